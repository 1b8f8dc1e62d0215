"""torch.compile of routed models: the same results, and a bounded number of graphs over many lengths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tiny.all_cases import CASES
from tiny.hf_cases import token_batch

from compress.transformer.model import Transformer
from compress.transformer.parts import Hidden
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


@pytest.mark.parametrize(("choice", "part"), [("expert", "block"), ("expert", "attention"), ("token", "block")])
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


def test_a_routed_layer_by_the_default_compiler() -> None:
    layer = routed("timm plain", "expert").layers[0]
    compiled = torch.compile(layer)
    with torch.no_grad():
        for rows in (1, 2, 3, 3):
            hidden = Hidden(torch.randn(rows, 17, 24, generator=torch.Generator().manual_seed(rows)), pooled=1)
            torch.testing.assert_close(compiled(hidden).states, layer(hidden).states, rtol=1e-4, atol=1e-5)
