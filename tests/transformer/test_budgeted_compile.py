"""torch.compile of models with budgets: the same results, and a bounded number of graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tiny.all_cases import CASES
from tiny.budgeted import varied
from tiny.hf_cases import token_batch

pytestmark = pytest.mark.slow
LENGTHS = ((5, 3), (7, 2), (9, 9), (11, 4), (13, 6), (16, 1), (16, 2), (12, 9), (8, 3), (20, 4))


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("share", [None, 1.0])
def test_texts_of_many_lengths(share: float | None) -> None:
    model = varied(CASES["bert"]().model)
    model.budget(share)
    compiled = torch.compile(model, backend="aot_eager")
    graphs, ran = [], set()
    with torch.no_grad():
        for seed, lengths in enumerate(LENGTHS):
            batch = token_batch(lengths, seed)
            torch.testing.assert_close(compiled(batch), model(batch), rtol=1e-4, atol=1e-5)
            graphs.append(int(torch._dynamo.utils.counters["stats"]["unique_graphs"]))
            assert model.usage is not None
            ran |= {int(heads.sum()) for heads in model.usage.heads if heads is not None}
    assert graphs[-1] == graphs[2], f"no new graph after the third length: {graphs}"
    assert graphs[0] <= 4 * len(model.layers) + 2
    assert share == 1.0 or len(ran) > 3, "numbers of heads differ from batch to batch"
