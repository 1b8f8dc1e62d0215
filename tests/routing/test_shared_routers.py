"""A routed layer that several steps share (ALBERT): every run counts, in the loss and in what is watched."""

from __future__ import annotations

import pytest
import torch
from tiny.all_cases import CASES

from compress.data.builtin import digits
from compress.data.subset import take
from compress.routing import observe as observing
from compress.routing.loss import RoutingLoss, kept
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.routing import routed_layers, routed_selections, with_routers
from compress.transformer.routing_config import RoutingConfig
from compress.transformer.selection import Selection
from compress.tuning.losses import StepOutputs

CAPACITY = 0.4


@pytest.fixture
def model() -> Transformer:
    routed = with_routers(
        CASES["albert"]().model, RoutingConfig(blocks=(0,), capacity=(CAPACITY,), choice="token", part="block")
    )
    for _, layer in routed_layers(routed):
        torch.nn.init.normal_(layer.router.weight, generator=torch.Generator().manual_seed(0))
    assert routed.order.count(0) > 1
    return routed.train()


def passed(model: Transformer, loss: RoutingLoss) -> tuple[StepOutputs, list[Selection]]:
    """One training pass, and what the router decided in each of its runs."""
    seen: list[Selection] = []
    layer = dict(routed_layers(model))[0]
    hook = layer.register_forward_hook(lambda *_: seen.append(layer.selection))
    inputs = CASES["albert"]().inputs
    loss.prepare(model, 0, 1)
    logits = model.members(inputs)
    hook.remove()
    return StepOutputs(model, inputs, torch.zeros(logits.shape[1], dtype=torch.long), logits, 0, 1), seen


def test_loss_and_thresholds_read_every_run(model: Transformer) -> None:
    loss = RoutingLoss(anneal=0.0, weight=1.0)
    outputs, seen = passed(model, loss)
    assert routed_selections(model) == {0: seen}
    found = loss.terms(outputs)["route/capacity"]
    loss.stepped(model)
    router = dict(routed_layers(model))[0].router
    expected = []
    for selection in seen:
        scores = selection.scores[selection.routed]
        place = router.percentiles(selection.scores.detach(), selection.routed, CAPACITY)
        expected.append(((scores - place).sigmoid().mean() - CAPACITY) ** 2)
    torch.testing.assert_close(found, torch.stack(expected).mean())
    together = torch.cat([selection.scores[selection.routed] for selection in seen])
    share = (together >= router.thresholds).double().mean()
    assert float(share) == pytest.approx(CAPACITY, abs=1 / len(together))


def test_a_threshold_that_moves_its_own_scores_is_nearly_fitted(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.randint(5, 40, (40, 16), generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}

    def decisions(*_: object) -> dict[int, list[Selection]]:
        with torch.no_grad():
            model.eval().members(inputs)
        return routed_selections(model)

    monkeypatch.setattr(observing, "decisions", decisions)
    observing.fit_thresholds(model, take(digits("train"), []), Runtime(device="cpu"))
    shares = torch.stack([kept(selection) for selection in decisions()[0]])
    assert float(shares.mean()) == pytest.approx(CAPACITY, abs=0.02)


def test_readings_are_means_over_the_runs(model: Transformer) -> None:
    loss = RoutingLoss(anneal=0.0, weight=1.0)
    outputs, seen = passed(model, loss)
    shares = torch.stack([kept(selection) for selection in seen])
    torch.testing.assert_close(loss.readings(outputs)["route/kept/0"], shares.mean())
