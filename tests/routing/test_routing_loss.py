"""The loss on the capacity and the readings, against numbers that are worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from tiny.scratch_vit import tiny_source

from compress.fusion.in_memory import fuse_models
from compress.opening import open_model
from compress.routing.loss import RoutingLoss, entropy, kept
from compress.transformer.parts import Hidden
from compress.transformer.routing import RoutedLayer, routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig
from compress.transformer.selection import Selection
from compress.transformer.surgery import prune_heads
from compress.tuning.losses import StepOutputs


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("step", [0, 2])
def test_the_capacity_loss_and_its_gradient(members: int, step: int) -> None:
    """Of every stream the threshold is its own percentile, at the capacity of the step: 1 − 0.75 · step / 4."""
    single = open_model(tiny_source())
    heads = [[(0, 1, 2, 3), (0, 1), (0, 1)], [(0, 1, 2, 3), (2, 3), (1, 2)]]
    start = single if members == 1 else fuse_models([prune_heads(single, own) for own in heads])
    model = with_routers(start, RoutingConfig(blocks=(1,), capacity=(0.25,), choice="token")).train()
    layer = dict(routed_layers(model))[1]
    torch.nn.init.normal_(layer.router.weight, generator=torch.Generator().manual_seed(0))
    entering: list[torch.Tensor] = []

    def note(module: RoutedLayer, given: tuple[Hidden]) -> None:
        entering.append(given[0].states.detach().double()[:, 1:])

    layer.register_forward_pre_hook(note)
    inputs, loss = torch.randn(5, 1, 8, 8), RoutingLoss(anneal=0.5, weight=0.3)
    loss.prepare(model, step, 8)
    logits = model.members(inputs)
    outputs = StepOutputs(model, inputs, torch.zeros(5, dtype=torch.long), logits, step, 8)
    found = loss.terms(outputs)["route/capacity"]

    capacity = 1 - 0.75 * step / 4
    states, weight = entering[0].reshape(members, 5 * 4, -1), layer.router.weight.detach().double()
    scores = torch.einsum("mtc,mc->mt", states, weight)
    place = math.ceil(capacity * 20) - 1
    soft = (scores - scores.sort(dim=1, descending=True).values[:, place, None]).sigmoid()
    missed = soft.mean() - capacity
    torch.testing.assert_close(found.double(), 0.3 * missed.square(), rtol=1e-4, atol=1e-8)
    (gradient,) = torch.autograd.grad(found, layer.router.weight)
    slope = (soft * (1 - soft))[:, :, None] * states
    torch.testing.assert_close(gradient.double(), 0.3 * 2 * missed * slope.sum(1) / soft.numel(), rtol=1e-3, atol=1e-6)


def test_the_loss_moves_no_threshold() -> None:
    model = with_routers(open_model(tiny_source()), RoutingConfig(blocks=(1,), capacity=(0.5,), choice="token"))
    router = dict(routed_layers(model.train()))[1].router
    inputs, loss = torch.randn(3, 1, 8, 8), RoutingLoss(anneal=0.0, weight=1.0)
    loss.prepare(model, 0, 1)
    outputs = StepOutputs(model, inputs, torch.zeros(3, dtype=torch.long), model.members(inputs), 0, 1)
    loss.terms(outputs)
    loss.readings(outputs)
    assert router.thresholds.tolist() == [-math.inf]
    loss.stepped(model)
    assert router.thresholds.tolist() == [0.0]


def test_readings_count_the_tokens_of_all_rows() -> None:
    routed = torch.tensor([[False, True, True, True], [False, True, True, False]])
    passed = torch.tensor([[True, True, False, False], [True, True, True, False]])
    scores = torch.tensor([[9.0, 0.0, 0.0, 0.0], [9.0, math.log(3), math.log(3), 9.0]])
    selection = Selection(scores, routed, passed)
    assert float(kept(selection)) == pytest.approx(3 / 5)
    unequal = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert float(entropy(selection)) == pytest.approx((3 * 1 + 2 * unequal) / 5)
