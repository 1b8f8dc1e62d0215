"""The stage: budgets are trained, shifted, measured, saved, resumed; in single, pruned and fused models."""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from tiny.all_cases import CASES
from tiny.budgeted import varied
from tiny.scratch_vit import tiny_source
from torch import Tensor

from compress.artifact.folder import verify_folder
from compress.artifact.store import load_model, read_provenance
from compress.budgeting.budget import attach_budgets, budget
from compress.budgeting.loss import BudgetLoss, entropy
from compress.budgeting.measuring import Measured, measure_budgets
from compress.budgeting.options import Budget
from compress.budgeting.schedules import entropy_coefficient, gating, head_temperature
from compress.budgeting.shifting import TOLERANCE, check_reachable, shift_predictors
from compress.cli.main import main
from compress.data.base import Dataset
from compress.data.builtin import digits
from compress.data.labels import AlignedDataset
from compress.data.subset import take
from compress.errors import CompressError, DataError, ModelError, UsageError
from compress.evaluation import collect as collecting
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.fusion.in_memory import fuse_models
from compress.opening import open_model
from compress.prediction.predict import predict
from compress.runtime import Runtime
from compress.transformer.budgets import budgeted_attentions
from compress.transformer.config import Abstention
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads
from compress.tuning.losses import StepOutputs

ON_CPU = Runtime(device="cpu")


@pytest.fixture(scope="module")
def fresh() -> Transformer:
    return open_model(tiny_source())


@pytest.fixture
def model(fresh: Transformer) -> Transformer:
    return copy.deepcopy(fresh)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return take(digits("train"), range(64))


def options(**changes: Any) -> Budget:
    return Budget(**{"steps": 6, "batch_size": 16, "lr": 1e-3, "hidden": 8, **changes})


def fused_model(model: Transformer) -> Transformer:
    pruned = [prune_heads(model, [(0, 1, 2, 3), heads, heads[:1]]) for heads in ((0, 1), (2, 3))]
    return fuse_models(pruned)


KINDS: Mapping[str, Callable[[Transformer], Transformer]] = {
    "single": lambda model: model,
    "pruned": lambda model: prune_heads(model, [(0, 1, 3), (2,), (0, 3)]),
    "fused": fused_model,
}


@pytest.mark.parametrize("kind", KINDS)
def test_budgets_are_trained_saved_and_loaded(kind: str, model: Transformer, data: Dataset, tmp_path: Path) -> None:
    start = KINDS[kind](model)
    result = budget(start, tmp_path / "b", data=data, options=options(), runtime=ON_CPU)
    loaded, again = load_model(tmp_path / "b"), load_model(tmp_path / "b")
    assert loaded.config.budget is not None
    assert loaded.structure == start.structure
    inputs = torch.randn(5, 1, 8, 8)
    with torch.inference_mode():
        found = loaded.members(inputs)
        assert torch.equal(found, again.members(inputs))
    assert loaded.usage is not None
    for heads, kept in zip(loaded.usage.heads, loaded.structure.kept_heads, strict=True):
        assert heads is not None
        assert heads.shape == (len(kept), 5)
        assert (heads >= 1).all()
        assert (heads <= torch.tensor([len(own) for own in kept])[:, None]).all()
    note = read_provenance(tmp_path / "b")
    assert note.stage == "budget"
    assert note.notes["budget"]["mean"] == result.measured.mean
    assert 0 < result.measured.p05 <= result.measured.mean <= result.measured.p95 <= 1


@pytest.mark.parametrize("kind", ["pruned", "fused"])
def test_a_fresh_budget_of_one_is_the_model_bit_for_bit(kind: str, model: Transformer) -> None:
    start = KINDS[kind](model)
    attached = attach_budgets(start, options())
    inputs = torch.randn(3, 1, 8, 8)
    with torch.inference_mode():
        assert torch.equal(attached.members(inputs), start.members(inputs))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_the_predictors_learn_when_asked(
    dtype: Literal["float32", "bfloat16"], model: Transformer, data: Dataset, tmp_path: Path
) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    chosen, runtime = options(train="predictor", calibrate_to=0.5), Runtime(device="cpu", dtype=dtype)
    budget(model, tmp_path / "b", data=data, options=chosen, runtime=runtime)
    after = load_model(tmp_path / "b").state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert all("chooser" in name for name in after.keys() - before.keys())
    learned = [after[name] for name in after.keys() - before.keys()]
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in learned), "they are not rounded"


def test_an_interrupted_training_goes_on_to_the_same_result(
    model: Transformer, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = options(checkpoint_steps=2)
    budget(model, tmp_path / "whole", data=data, options=whole, runtime=ON_CPU)
    prepare = BudgetLoss.prepare

    def stopping(self: BudgetLoss, model: Transformer, step: int, steps: int) -> None:
        if step == 4:
            raise KeyboardInterrupt
        prepare(self, model, step, steps)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(BudgetLoss, "prepare", stopping)
        budget(model, tmp_path / "parts", data=data, options=whole, runtime=ON_CPU)
    budget(model, tmp_path / "parts", data=data, options=whole, runtime=ON_CPU)
    first, second = (load_model(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("moment", ["in the last evaluation", "in the last step"])
def test_an_interruption_at_the_end_changes_nothing(
    moment: str, model: Transformer, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, validation = options(head_temperature_start=4.0, min=0.0, max=0.1), take(digits("calibration"), range(40))
    settings: dict[str, Any] = {"data": data, "validation": validation, "options": chosen, "runtime": ON_CPU}
    whole = budget(model, tmp_path / "whole", **settings)
    calls = []
    real = collecting.answers

    def interrupting(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given, **named)

    prepare = BudgetLoss.prepare

    def signalling(self: BudgetLoss, model: Transformer, step: int, steps: int) -> None:
        prepare(self, model, step, steps)
        if step == steps - 1:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        if moment == "in the last step":
            patched.setattr(BudgetLoss, "prepare", signalling)
        else:
            patched.setattr(collecting, "answers", interrupting)
        budget(model, tmp_path / "parts", **settings)
    assert [path.name for path in tmp_path.glob(".parts.tune-*/**/step-*")] == ["step-00000006"]
    resumed = budget(model, tmp_path / "parts", **settings)
    assert resumed.tuned.after == whole.tuned.after
    assert verify_folder(tmp_path / "parts").digest == verify_folder(tmp_path / "whole").digest


@pytest.mark.parametrize("target", [0.4, 0.75])
def test_predictors_are_shifted_to_the_share_that_was_asked_for(target: float, model: Transformer) -> None:
    data = take(digits("calibration"), range(60))
    budgeted = varied(model)
    shift_predictors(budgeted, data, ON_CPU, target)
    assert measure_budgets(budgeted, data, ON_CPU).mean == pytest.approx(target, abs=5 * TOLERANCE)
    with pytest.raises(UsageError, match="below one head per layer"):
        shift_predictors(budgeted, data, ON_CPU, 0.1)


def test_the_share_that_is_recommended_is_taken(model: Transformer) -> None:
    third = prune_heads(model, [(0, 1, 3)] * 3)
    for share in (1 / 3, 0.334):
        check_reachable(third, share)
    with pytest.raises(UsageError, match=r"choose 0\.334 or more"):
        check_reachable(third, 0.333)
    check_reachable(model, 0.25)
    with pytest.raises(UsageError, match=r"choose 0\.250 or more"):
        check_reachable(model, 0.249)
    budgeted, data = varied(third), take(digits("calibration"), range(20))
    shift_predictors(budgeted, data, ON_CPU, 1 / 3)
    assert measure_budgets(budgeted, data, ON_CPU).mean == pytest.approx(1 / 3)


@pytest.mark.parametrize("wrong", ["empty", "classes", "share"])
def test_what_the_end_needs_is_checked_before_the_training(
    wrong: str, model: Transformer, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compress.budgeting.budget.tune_one", lambda *_, **__: pytest.fail("it was trained"))
    chosen = options(calibrate_to=0.1) if wrong == "share" else options()
    calibration = take(data, [] if wrong == "empty" else range(8))
    if wrong == "classes":
        calibration = AlignedDataset(calibration, tuple("abcdefghij"), [0] * 8)
    with pytest.raises(
        DataError if wrong != "share" else UsageError, match=r"samples|none of the model|below one head"
    ):
        budget(model, tmp_path / "b", data=data, calibration=calibration, options=chosen, runtime=ON_CPU)
    assert not (tmp_path / "b").exists()


def test_a_share_that_was_missed_is_said(
    model: Transformer, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    same = take(data, [0] * 32)  # all get the same number of heads in a layer: twelfths are all that can run
    with caplog.at_level(logging.WARNING):
        result = budget(
            model, tmp_path / "b", data=data, calibration=same, options=options(calibrate_to=0.71), runtime=ON_CPU
        )
    assert result.missed
    assert f"{result.measured.mean:.3f} run" in caplog.text
    assert "asked for 0.710 of the heads" in result.table()
    assert result.to_plain()["calibrate_to"] == 0.71


def test_the_nearest_shift_is_kept(model: Transformer) -> None:
    one = take(digits("calibration"), range(1))  # whole heads of three layers: twelfths are all that can run
    budgeted = varied(model)
    assert measure_budgets(budgeted, one, ON_CPU).mean == pytest.approx(5 / 12)
    assert shift_predictors(budgeted, one, ON_CPU, 0.4) == 0.0, "each that is tried goes as far or farther beyond it"
    assert measure_budgets(budgeted, one, ON_CPU).mean == pytest.approx(5 / 12)


def test_options_and_provenance_are_those_of_every_training(
    model: Transformer, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="needs a validation set"):
        budget(model, tmp_path / "b", data=data, options=options(metric="cls/nll"), runtime=ON_CPU)
    with monkeypatch.context() as patched, pytest.raises(UsageError, match="no TensorBoard"):
        patched.setattr("compress.budgeting.budget.require_tensorboard", no_tensorboard)
        budget(model, tmp_path / "b", data=data, options=options(), runtime=ON_CPU, tensorboard=tmp_path / "events")
    calibration = take(digits("calibration"), range(20))
    budget(model, tmp_path / "b", data=data, calibration=calibration, options=options(steps=1), runtime=ON_CPU)
    assert read_provenance(tmp_path / "b").notes["calibration"] == calibration.fingerprint


def no_tensorboard() -> None:
    raise UsageError("no TensorBoard", where="--tensorboard", fix="install it")


@pytest.mark.parametrize("weight", [0.0, 1e6])
def test_any_weight_of_the_losses_stays_finite(
    weight: float, model: Transformer, data: Dataset, tmp_path: Path
) -> None:
    chosen = options(budget_weight=weight, entropy_weight=weight)
    result = budget(model, tmp_path / "b", data=data, options=chosen, runtime=ON_CPU)
    assert all(bool(tensor.isfinite().all()) for tensor in load_model(tmp_path / "b").state_dict().values())
    assert 0 < result.measured.mean <= 1


def test_a_collapse_is_said(
    model: Transformer, data: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    constant = take(data, [0] * 32)
    with caplog.at_level(logging.WARNING):
        result = budget(model, tmp_path / "b", data=constant, options=options(steps=2, max=1.0), runtime=ON_CPU)
    assert result.measured.collapsed
    assert "same budget" in caplog.text
    assert "choosing heads may take longer than it saves" in caplog.text, "a tiny model"
    assert "were not reached" not in caplog.text
    assert "collapsed" not in result.table(), "said once, by the warning"
    assert "2 steps; training loss" in result.table()


def test_a_range_that_was_not_reached_is_said(
    model: Transformer, data: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    constant = take(data, [0] * 32)
    with caplog.at_level(logging.WARNING):
        result = budget(model, tmp_path / "b", data=constant, options=options(steps=2, max=0.4), runtime=ON_CPU)
    assert result.measured.mean > 0.45
    assert f"{result.measured.mean:.3f} of the heads run" in caplog.text
    assert "--max 0.4: they were not reached; train longer, or raise --budget-weight" in caplog.text
    assert "same budget" not in caplog.text


def test_no_share_below_one_head_per_layer_is_expected(
    model: Transformer, data: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = prune_heads(model, [(0,)] * len(model.layers))
    with caplog.at_level(logging.WARNING):
        result = budget(one, tmp_path / "b", data=data, options=options(steps=1, max=0.4), runtime=ON_CPU)
    assert result.measured.mean == 1
    assert "were not reached" not in caplog.text


def test_inputs_that_differ_are_no_collapse() -> None:
    found = Measured(samples=9, mean=0.9, p05=0.889, p95=0.917, deviation=0.0095, accuracy=1.0, soft_accuracy=1.0)
    assert not found.collapsed
    assert dataclasses.replace(found, p95=0.89).collapsed


def test_a_range_upside_down_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "m", "-o", "b", "--data", "d", "--min", "0.8", "--max", "0.2"]) == 2
    assert "--min 0.8 is above --max 0.2; lower --min or raise --max" in capsys.readouterr().err


def test_the_ablations_train(model: Transformer, data: Dataset, tmp_path: Path) -> None:
    fixed = budget(model, tmp_path / "f", data=data, options=options(fixed=0.5, steps=2), runtime=ON_CPU)
    assert fixed.measured.mean == 0.5
    drawn = budget(
        model, tmp_path / "r", data=data, options=options(fixed=0.5, choice="random", steps=2), runtime=ON_CPU
    )
    assert drawn.measured.mean == 0.5


def test_the_losses_are_those_of_the_paper(model: Transformer) -> None:
    chosen = options(min=0.4, max=0.6, budget_weight=2.0, entropy_weight=0.5)
    budgeted = varied(model)
    loss = BudgetLoss(chosen)
    inputs = torch.randn(4, 1, 8, 8)
    loss.prepare(budgeted, 5, 6)
    logits = budgeted.members(inputs)
    outputs = StepOutputs(budgeted, inputs, torch.zeros(4, dtype=torch.long), logits, 5, 6)
    terms = loss.terms(outputs)
    assert budgeted.usage is not None
    decisions = [decision for decision in budgeted.usage.decisions if decision is not None]
    budgets = torch.stack([decision.budget for decision in decisions])
    excess = (0.4 - budgets).relu().square() + (budgets - 0.6).relu().square()
    torch.testing.assert_close(terms["budget"], 2 * excess.mean(0))
    shares = torch.stack([decision.shares for decision in decisions])
    torch.testing.assert_close(terms["entropy"], 0.5 * -(shares * shares.log()).sum(-1).mean(0))
    torch.testing.assert_close(loss.readings(outputs)["s"], budgets.mean(0))
    assert not BudgetLoss(options(budget_weight=0, entropy_weight=0)).terms(outputs)


def test_entropy_of_padding_is_nothing() -> None:
    shares = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], requires_grad=True)
    found: Tensor = entropy(shares)
    torch.testing.assert_close(found, torch.tensor([0.6931, 0.0]), atol=1e-4, rtol=0)
    found.sum().backward()
    assert shares.grad is not None
    assert bool(shares.grad.isfinite().all())


def test_the_schedules() -> None:
    assert [gating(progress, 0.5) for progress in (0.0, 0.4, 0.5, 1.0)] == ["soft", "soft", "hard", "hard"]
    assert gating(1.0, 1.0) == "soft", "all of the training"
    assert [entropy_coefficient(progress, 0.2) for progress in (0.0, 0.5, 1.0)] == [-0.2, 0.0, 0.2]
    assert head_temperature(0.0, 0.5, 2.0, 0.5) == 2.0
    assert head_temperature(0.25, 0.5, 2.0, 0.5) == pytest.approx(1.0)
    assert head_temperature(0.5, 0.5, 2.0, 0.5) == head_temperature(1.0, 0.0, 2.0, 0.5) == 0.5


def test_what_cannot_be(model: Transformer, data: Dataset, tmp_path: Path) -> None:
    for wrong in ({"min": 0.6, "max": 0.5}, {"fixed": 0.5, "calibrate_to": 0.5}, {"patience": 2}):
        with pytest.raises(ValueError, match=r"min|fixed|patience"):
            options(**wrong)
    with pytest.raises(ModelError, match="budgets already"):
        budget(varied(model), tmp_path / "b", data=data, options=options(), runtime=ON_CPU)
    with pytest.raises(CompressError, match="text"):
        budget(CASES["bert"]().model, tmp_path / "b", data=data, options=options(), runtime=ON_CPU)
    assert not (tmp_path / "b").exists()


def test_an_evaluation_counts_what_ran(model: Transformer) -> None:
    data = take(digits("test"), range(40))
    budgeted = varied(model)
    quick = Evaluate(latency=False, memory=False, intervals=False)
    result = evaluate({"single": model, "budgeted": budgeted}, data=data, options=quick, runtime=ON_CPU)
    single, own = result.models
    assert single.budget is None
    assert own.budget is not None
    assert sum(own.budget.histogram) == len(data)
    assert result.value("budgeted", "budget/mean") == own.budget.mean == pytest.approx(sum(own.budget.layers) / 3)
    assert own.cost.flops_p05 is not None
    assert own.cost.flops is not None
    assert single.cost.flops is not None
    assert own.cost.flops_p05 < own.cost.flops < single.cost.flops
    assert "heads" in result.table()
    half = evaluate({"budgeted": budgeted}, data=data, options=quick.model_copy(update={"budget": 0.5}), runtime=ON_CPU)
    assert half.models[0].budget is not None
    assert half.models[0].budget.mean == half.models[0].budget.p95 == 0.5
    assert all(attention.limit is None for _, attention in budgeted_attentions(budgeted))
    with pytest.raises(UsageError, match="no model here has budgets"):
        evaluate({"single": model}, data=data, options=quick.model_copy(update={"budget": 0.5}), runtime=ON_CPU)


def test_a_prediction_takes_a_budget(model: Transformer) -> None:
    picture = digits("test")[0].value
    budgeted = varied(model)
    own = predict(budgeted, picture, runtime=ON_CPU).predictions[0].probability
    least = predict(budgeted, picture, runtime=ON_CPU, budget=0.25).predictions[0].probability
    assert own != least


@pytest.mark.parametrize("asked", [{"budget": 0.25}, {"budget_cap": 0.25}])
def test_another_budget_drops_the_threshold_of_abstention(
    asked: dict[str, float], model: Transformer, caplog: pytest.LogCaptureFixture
) -> None:
    picture = digits("test")[0].value
    budgeted = varied(model)
    rule = Abstention(score="entropy", threshold=0.0, target="risk", value=0.1)
    budgeted.config = budgeted.config.model_copy(update={"abstention": rule})
    assert predict(budgeted, picture, runtime=ON_CPU).predictions[0].abstain is True
    with caplog.at_level(logging.WARNING):
        found = predict(budgeted, picture, runtime=ON_CPU, **asked)
    assert found.abstention is None
    assert found.predictions[0].abstain is None
    assert "its own budgets" in caplog.text
