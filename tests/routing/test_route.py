"""The stage: what it writes, what it trains, what the log says, and what it refuses."""

from __future__ import annotations

import copy
import json
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny.scratch_vit import tiny_source

from compress.artifact.folder import verify_folder
from compress.artifact.store import load_model, read_provenance
from compress.attention.budget_config import BudgetConfig
from compress.backbones.registry import preprocessor
from compress.budgeting.budget import budget
from compress.data.base import Dataset
from compress.data.builtin import digits
from compress.data.subset import take
from compress.distributed import Processes
from compress.errors import ModelError, UsageError
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.fusion.agreement import check_members
from compress.fusion.in_memory import fuse_models
from compress.opening import open_model
from compress.pruning.prune import prune
from compress.routing.blocks import chosen_blocks, every_block, logits_without, removal_costs
from compress.routing.loss import RoutingLoss, capacity_at
from compress.routing.observe import collapse, observe
from compress.routing.options import Route
from compress.routing.route import route
from compress.runtime import Runtime
from compress.transformer.budgets import with_budgets
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.router import Router
from compress.transformer.routing import routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig
from compress.transformer.selection import Selection
from compress.transformer.surgery import prune_heads
from compress.tuning.options import Tune
from compress.tuning.tune import tune

CPU = Runtime(device="cpu", batch_size=16)


@pytest.fixture(scope="session")
def data() -> Dataset:
    return take(digits("train"), range(61))


@pytest.fixture
def model() -> Transformer:
    return open_model(tiny_source())


@pytest.fixture
def options() -> Callable[..., Route]:
    def make(**changes: Any) -> Route:
        return Route(**{"epochs": 2, "batch_size": 16, "lr": 1e-3, "log_steps": 1, **changes})

    return make


def log_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def inputs_of(model: Transformer, data: Dataset) -> Any:
    return preprocessor(model)([data[index].value for index in range(8)])


def silence(layer: Layer) -> None:
    """Make a pre-norm layer add nothing to the residual stream."""
    with torch.no_grad():
        for parameter in (layer.attention.output.weight, layer.attention.output.bias, *layer.mlp.parameters()):
            parameter.zero_()


def fused_model(model: Transformer) -> Transformer:
    heads = [[(0, 1, 2, 3), (0, 1), (0, 1)], [(0, 1, 2, 3), (2, 3), (1, 2)]]
    return fuse_models([prune_heads(model, own) for own in heads])


class Interrupted(RoutingLoss):
    """Sends this process SIGINT when step number ``at`` begins."""

    at = 3

    def prepare(self, model: Transformer, step: int, steps: int) -> None:
        super().prepare(model, step, steps)
        if step == self.at:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("at", [3, 7])
@pytest.mark.parametrize("choice", ["expert", "token"])
def test_interrupted_and_resumed_equals_uninterrupted(
    model: Transformer,
    data: Dataset,
    options: Callable[..., Route],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    at: int,
) -> None:
    chosen, whole, out = options(choice=choice, blocks=[0, 1]), tmp_path / "whole", tmp_path / "out"
    settings: dict[str, Any] = {"data": data, "validation": data, "options": chosen, "runtime": CPU}
    settings["options"] = chosen.model_copy(update={"metric": "cls/nll"})
    route(model, whole, **settings)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("compress.routing.route.RoutingLoss", Interrupted)
        patched.setattr(Interrupted, "at", at)
        route(model, out, **settings)
    assert not out.exists()
    assert [path.name for path in tmp_path.glob(".out.tune-*/**/step-*")] == [f"step-{at + 1:08d}"]
    route(model, out, **settings)
    assert verify_folder(out).digest == verify_folder(whole).digest, "thresholds included"
    assert not list(tmp_path.glob(".out.tune-*"))


@pytest.mark.parametrize("choice", ["expert", "token"])
@pytest.mark.parametrize("train", ["all", "router"])
def test_a_routed_model_is_trained_saved_and_loaded(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path, choice: str, train: str
) -> None:
    before = copy.deepcopy(model.state_dict())
    result = route(
        model, tmp_path / "out", data=data, options=options(choice=choice, train=train, blocks=[0, 1]), runtime=CPU
    )
    loaded = load_model(tmp_path / "out")
    assert [index for index, _ in routed_layers(loaded)] == [0, 1]
    assert loaded.config.routing is not None
    assert loaded.config.routing.capacity == (0.5,)
    state = loaded.state_dict()
    moved = [name for name, tensor in before.items() if not torch.equal(state[name], tensor)]
    assert bool(moved) == (train == "all")
    for _, layer in routed_layers(loaded):
        assert layer.router.weight.abs().sum() > 0
        if choice == "token":
            assert layer.router.thresholds.isfinite().all()
    with torch.no_grad():
        loaded.members(inputs_of(loaded, data))
    assert loaded.usage is not None
    if choice == "expert":
        assert loaded.usage.tokens[0].tolist() == [[1 + 2] * 8], "a class token and half of four patches"
    assert [routes.block for routes in result.blocks] == [0, 1]
    assert all(0.2 < routes.kept < 0.8 for routes in result.blocks)
    assert "block 1" in result.table()
    assert "; training loss" in result.table()
    provenance = read_provenance(tmp_path / "out")
    assert provenance.stage == "route"
    assert provenance.options["blocks"] == [0, 1]
    assert provenance.notes["routes"][0]["block"] == 0
    torch.testing.assert_close(model.state_dict(), before)


def test_the_log_shows_what_the_routers_do(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path
) -> None:
    route(model, tmp_path / "out", data=data, options=options(choice="token", capacity=0.25), runtime=CPU)
    lines = log_lines(tmp_path / "out")
    assert lines[0]["route/kept"] == 1.0, "the capacity begins at 1.0"
    assert lines[-1]["route/kept"] < 0.4
    assert lines[0]["route/entropy"] == pytest.approx(1.0)
    assert "route/kept/1" in lines[0]
    last = lines[-1]
    assert last["loss"] == pytest.approx(last["task"] + last["route/capacity"], abs=1e-6)


@pytest.mark.parametrize("capacity", [[0.4], [0.6, 0.3]])
@pytest.mark.parametrize("kind", ["single", "fused"])
def test_token_choice_holds_its_capacity(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path, kind: str, capacity: list[float]
) -> None:
    start = model if kind == "single" else fused_model(model)
    chosen = options(choice="token", capacity=capacity, blocks=[0, 1], accumulate=2, lr=1e-2)
    result = route(start, tmp_path / "out", data=data, options=chosen, runtime=CPU)
    loaded = load_model(tmp_path / "out")
    found = observe(loaded, data, CPU)
    for routes, share, (_, layer) in zip(found, result.capacity, routed_layers(loaded), strict=True):
        assert share <= routes.kept <= share + 1 / (4 * len(data)), "of four patches each"
        assert len(layer.router.thresholds) == layer.attention.groups
    assert found == result.blocks


def test_thresholds_move_once_per_optimizer_step(
    model: Transformer,
    data: Dataset,
    options: Callable[..., Route],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved = []
    learn, step = Router.learn_thresholds, torch.optim.AdamW.step

    def learning(self: Router, selections: list[Selection]) -> None:
        moved.append("thresholds")
        learn(self, selections)

    def stepping(self: torch.optim.AdamW, *given: Any) -> Any:
        moved.append("weights")
        return step(self, *given)

    monkeypatch.setattr(Router, "learn_thresholds", learning)
    monkeypatch.setattr(torch.optim.AdamW, "step", stepping)
    chosen = options(choice="token", accumulate=3, steps=4)
    route(model, tmp_path / "out", data=data, options=chosen, runtime=CPU)
    assert moved == ["weights", "thresholds"] * 4


def test_equal_scores_that_no_threshold_parts_are_warned_about(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    same = take(data, [0] * 32)  # four patches, of which a half passes, or three quarters
    with caplog.at_level(logging.WARNING):
        chosen = options(choice="token", capacity=0.6, steps=2)
        result = route(model, tmp_path / "out", data=same, options=chosen, runtime=CPU)
    assert result.blocks[0].kept == 0.75
    assert "0.750 of the tokens pass block 1, not its capacity 0.6: no threshold comes nearer" in caplog.text


def test_the_best_checkpoint_is_measured_at_the_target(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path
) -> None:
    result = route(model, tmp_path / "out", data=data, validation=data, options=options(capacity=0.3), runtime=CPU)
    assert result.tuned.after is not None
    found = load_model(tmp_path / "out")
    right = 0
    with torch.no_grad():
        for index in range(len(data)):
            sample = data[index]
            right += int(found(preprocessor(found)([sample.value])).argmax() == sample.label)
    assert result.tuned.after == pytest.approx(right / len(data))


@pytest.mark.parametrize("choice", ["expert", "token"])
def test_an_evaluation_counts_the_tokens_that_the_routers_decide_about(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path, choice: str
) -> None:
    chosen = options(choice=choice, capacity=[0.5, 0.25], blocks=[0, 1], steps=3, lr=1e-2)
    result = route(fused_model(model), tmp_path / "out", data=data, options=chosen, runtime=CPU)
    quick = Evaluate(latency=False, memory=False, intervals=False)
    found = evaluate({"routed": tmp_path / "out"}, data=data, options=quick, runtime=CPU).models[0].kept_tokens
    assert found is not None
    assert found.layers == pytest.approx([routes.kept for routes in result.blocks], abs=1e-6)
    assert found.layers == pytest.approx([0.5, 0.25], abs=1 / (4 * len(data))), "the class token is not counted"


def test_the_capacity_falls_to_its_target() -> None:
    shares = [capacity_at(step, 10, target=0.2, anneal=0.5) for step in range(10)]
    assert shares[0] == 1.0
    assert shares[1] == pytest.approx(0.84)
    assert shares[5:] == [0.2] * 5
    assert capacity_at(0, 10, target=0.2, anneal=0.0) == 0.2


def test_which_blocks_are_routed(model: Transformer, data: Dataset) -> None:
    assert every_block(2, 12) == (0, 2, 4, 6, 8, 10)
    assert every_block(3, 12) == (1, 4, 7, 10)
    assert chosen_blocks(model, Route(), data, CPU) == (1,)
    assert chosen_blocks(model, Route(blocks=(1, 0)), data, CPU) == (0, 1)
    with pytest.raises(ModelError, match="no block 5"):
        chosen_blocks(model, Route(blocks=(5,)), data, CPU)
    with pytest.raises(ModelError, match="pooled tokens alone"):
        chosen_blocks(model, Route(blocks=(2,)), data, CPU)


def test_auto_takes_the_block_that_does_least(model: Transformer, data: Dataset) -> None:
    silence(model.layers[0])
    costs = removal_costs(model, data, CPU)
    assert costs[0] == pytest.approx(0, abs=1e-9)
    assert all(abs(cost) > 1e-6 for cost in costs[1:])
    cheapest = min((0, 1), key=lambda block: costs[block])
    assert chosen_blocks(model, Route(blocks="auto", every=3), data, CPU) == (cheapest,)


def test_a_removed_block_is_skipped_where_streams_part(model: Transformer, data: Dataset) -> None:
    fused = fused_model(model)
    assert fused.structure.branch_layer == 1
    inputs = inputs_of(fused, data)
    with torch.no_grad():
        torch.testing.assert_close(logits_without(fused, inputs, None), fused.members(inputs))
        for block in range(3):
            without = copy.deepcopy(fused)
            silence(without.layers[block])
            found = logits_without(fused, inputs, block)
            torch.testing.assert_close(found, without.members(inputs))
            assert not torch.allclose(found, fused.members(inputs))


def test_a_collapsed_router_is_told() -> None:
    routed = torch.ones(6, 8, dtype=torch.bool)
    first = torch.zeros(6, 8, dtype=torch.bool)
    first[:, :4] = True
    scores = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    assert "same score" in (collapse([Selection(torch.zeros(6, 8), routed, first)]) or "")
    assert "same places" in (collapse([Selection(scores, routed, first)]) or "")
    own = scores >= scores.median(1, keepdim=True).values
    assert "shut" in (collapse([Selection(scores - 20, routed, own)]) or "")
    assert collapse([Selection(scores, routed, own)]) is None
    assert collapse([Selection(torch.zeros(6, 8), routed, routed)]) is None, "all pass"


def test_one_collapsed_stream_is_named() -> None:
    routed = torch.ones(6, 8, dtype=torch.bool)
    scores = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    sound = Selection(scores, routed, scores >= scores.median(1, keepdim=True).values)
    first = torch.arange(8).expand(6, 8) < 4
    same_places, flat, shut = (
        Selection(own, routed, passed)
        for own, passed in ((scores, first), (torch.zeros(6, 8), first), (scores - 20, sound.passed))
    )

    def together(*streams: Selection) -> list[Selection]:
        return [
            Selection(*(torch.cat([getattr(own, name) for own in streams]) for name in ("scores", "routed", "passed")))
        ]

    assert collapse(together(sound, sound), 2) is None
    assert collapse(together(sound, same_places), 2) == "in stream 1 the same places pass in every input"
    assert (collapse(together(flat, sound), 2) or "").startswith("in stream 0 all tokens have the same score")
    found = collapse(together(shut, flat, shut), 3) or ""
    assert found.startswith("in stream 0, 2 its gate is shut")
    assert "; in stream 1 all tokens" in found


def test_a_collapsed_stream_of_a_fused_model_is_seen(model: Transformer, data: Dataset) -> None:
    routed = with_routers(fused_model(model), RoutingConfig(blocks=(0, 1), capacity=(0.5,))).eval()
    layers = dict(routed_layers(routed))
    with torch.no_grad():
        layers[0].router.weight.normal_(generator=torch.Generator().manual_seed(0))
        layers[1].router.weight[0].normal_(generator=torch.Generator().manual_seed(1))
    trunk, parted = observe(routed, data, CPU)
    assert trunk.collapse is None
    assert (parted.collapse or "").startswith("in stream 1 all tokens have the same score")


def test_a_router_that_learns_nothing_is_warned_about(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        result = route(model, tmp_path / "out", data=data, options=options(lr=1e-30, steps=2), runtime=CPU)
    assert result.blocks[0].collapse == "all tokens have the same score, so that their order in the input decides"
    assert "the router of block 1 has collapsed: all tokens have the same score" in caplog.text
    assert read_provenance(tmp_path / "out").notes["routes"][0]["collapse"] == result.blocks[0].collapse


def test_token_choice_is_not_learned_by_several_processes(
    model: Transformer,
    data: Dataset,
    options: Callable[..., Route],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("compress.routing.route.processes", lambda device: Processes(1, 2))
    with pytest.raises(UsageError, match=r"2 processes would learn other thresholds.*use expert"):
        route(model, tmp_path / "out", data=data, options=options(choice="token"), runtime=CPU)


@pytest.mark.parametrize("stage", [tune, budget])
def test_thresholds_do_not_go_stale_in_another_training(
    model: Transformer, data: Dataset, tmp_path: Path, stage: Callable[..., object]
) -> None:
    by_threshold = with_routers(model, RoutingConfig(blocks=(1,), capacity=(0.5,), choice="token"))
    with pytest.raises(ModelError, match=r"thresholds .* fit the weights as they are.*before it is routed"):
        stage(by_threshold, tmp_path / "out", data=data, runtime=CPU)
    assert not (tmp_path / "out").exists()


def test_a_model_with_expert_choice_is_tuned(model: Transformer, data: Dataset, tmp_path: Path) -> None:
    by_rank = with_routers(model, RoutingConfig(blocks=(1,), capacity=(0.5,)))
    tune(by_rank, tmp_path / "out", data=data, options=Tune(steps=2, lr=1e-3), runtime=CPU)
    layer = dict(routed_layers(load_model(tmp_path / "out")))[1]
    assert layer.router.weight.abs().sum() > 0, "the router learns with the rest"


def test_a_routed_model_is_not_routed_again(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path
) -> None:
    route(model, tmp_path / "out", data=data, options=options(steps=1), runtime=CPU)
    with pytest.raises(ModelError, match="routers already"):
        route(tmp_path / "out", tmp_path / "again", data=data, runtime=CPU)
    assert not (tmp_path / "again").exists()


def test_what_the_options_refuse() -> None:
    assert Route(capacity=0.25, blocks="auto").capacity == (0.25,)
    for wrong in ({"capacity": 0}, {"capacity": [0.5, 1.2]}, {"blocks": [1, "auto"]}, {"blocks": [1, 1]}):
        with pytest.raises(ValueError, match=r"capacity|auto|twice"):
            Route(**wrong)
    with pytest.raises(ValueError, match="2 capacities for 3"):
        Route(capacity=[0.5, 0.2], blocks=[0, 1, 2])


def test_every_block_keeps_the_capacity_that_was_given_for_it() -> None:
    options = Route(blocks=(4, 1, 2), capacity=(0.25, 0.75, 0.5))
    assert options.blocks == (1, 2, 4)
    assert options.capacity == (0.75, 0.5, 0.25)
    assert Route(blocks=(4, 1), capacity=0.3).capacity == (0.3,)
    assert Route.model_validate(options.model_dump()) == options


def test_routed_models_are_neither_pruned_nor_fused(model: Transformer, data: Dataset, tmp_path: Path) -> None:
    routed = with_routers(model, RoutingConfig(blocks=(1,), capacity=(0.5,)))
    with pytest.raises(ModelError, match=r"with routers cannot be pruned.*prune and fuse first"):
        prune(routed, tmp_path / "pruned", data=data)
    with pytest.raises(ModelError, match="has routers, which cannot be merged"):
        check_members([routed.config, routed.config], [], ("a", "b"))


def test_a_fused_model_routes_every_stream(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path
) -> None:
    fused = fused_model(model)
    route(fused, tmp_path / "out", data=data, options=options(blocks=[0, 1]), runtime=CPU)
    loaded = load_model(tmp_path / "out")
    weights = {index: layer.router.weight for index, layer in routed_layers(loaded)}
    assert weights[0].shape == (1, 24)
    assert weights[1].shape == (2, 24)
    assert not torch.equal(weights[1][0], weights[1][1])
    with torch.no_grad():
        loaded.members(inputs_of(loaded, data))
    assert loaded.usage is not None
    assert loaded.usage.tokens[1].tolist() == [[3] * 8] * 2


def test_a_budgeted_model_is_routed(
    model: Transformer, data: Dataset, options: Callable[..., Route], tmp_path: Path
) -> None:
    budgeted = with_budgets(model, BudgetConfig())
    route(budgeted, tmp_path / "out", data=data, options=options(), runtime=CPU)
    loaded = load_model(tmp_path / "out")
    with torch.no_grad():
        loaded.members(inputs_of(loaded, data))
    assert loaded.usage is not None
    assert loaded.usage.tokens[1].tolist() == [[3] * 8]
    assert all(heads is not None for heads in loaded.usage.heads)
