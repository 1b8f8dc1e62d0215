"""torch.compile of routed and budgeted models: the same results, and a bounded number of graphs over many lengths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tiny.all_cases import CASES
from tiny.hf_cases import token_batch
from torch import Tensor

from compress.transformer.model import Transformer
from compress.transformer.routing import routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig

pytestmark = pytest.mark.slow
LENGTHS = ((5, 3), (7, 2), (9, 9), (11, 4), (13, 6), (16, 1))


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()


def graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def routed(name: str, choice: str, part: str = "block") -> Transformer:
    config = RoutingConfig.model_validate({"blocks": (0, 1), "capacity": (0.5,), "choice": choice, "part": part})
    model = with_routers(CASES[name]().model, config).eval()
    for _, layer in routed_layers(model):
        torch.nn.init.normal_(layer.router.weight, generator=torch.Generator().manual_seed(0))
        if choice == "token":
            layer.router.thresholds.fill_(0.0)
    return model


@pytest.mark.parametrize("part", ["block", "attention"])
@pytest.mark.parametrize("choice", ["expert", "token"])
def test_texts_of_many_lengths(choice: str, part: str) -> None:
    model = routed("bert", choice, part)
    compiled = torch.compile(model, backend="aot_eager")
    counts = []
    with torch.no_grad():
        for lengths in LENGTHS:
            batch = token_batch(lengths, 0)
            torch.testing.assert_close(compiled(batch), model(batch), rtol=1e-4, atol=1e-5)
            counts.append(graphs())
    assert counts[-1] == counts[2], f"no new graph after the third length: {counts}"


@pytest.mark.parametrize("choice", ["expert", "token"])
def test_images_by_the_default_compiler(choice: str) -> None:
    case = CASES["timm plain"]()
    model = routed("timm plain", choice)
    compiled = torch.compile(model)
    assert isinstance(case.inputs, Tensor)
    with torch.no_grad():
        for batch in (1, 2, 3, 3):
            images = case.inputs[:batch]
            torch.testing.assert_close(compiled(images), model(images), rtol=1e-4, atol=1e-5)
