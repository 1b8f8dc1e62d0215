from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tiny.hf_cases import CASES as TEXT_CASES
from tiny.pictures import pictures
from tiny.timm_cases import CASES

from compress.artifact.store import load_model
from compress.backbones.registry import preprocessor
from compress.errors import ModelError, UsageError
from compress.evaluation.baselines.specification import Baseline
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.evaluation.result import EvaluationResult
from compress.inference.temperature import fit_temperature
from compress.runtime import Runtime
from compress.transformer.cost import count_cost
from compress.transformer.mc_dropout import MonteCarloDropout, dropouts, set_rate
from compress.transformer.model import Transformer

QUICK = Evaluate(latency=False, memory=False, intervals=False)
CPU = Runtime(device="cpu", batch_size=4)
LABELS = CASES["timm plain"]().model.labels
DATA = pictures(12, LABELS)


def evaluated(models: dict, options: Evaluate = QUICK, **more) -> EvaluationResult:
    return evaluate(models, data=DATA, options=options, runtime=CPU, **more)


def images(model: Transformer) -> torch.Tensor:
    return preprocessor(model)([DATA[row].value for row in range(len(DATA))])


def nll(probabilities: torch.Tensor) -> float:
    return float(-probabilities.double().gather(1, torch.tensor(DATA.labels)[:, None]).log().mean())


def test_a_deep_ensemble_averages_probabilities(chain: Path) -> None:
    paths = [chain / "pruned" / f"member-{number}" for number in (0, 2)]
    deep = f"deep_ensemble:{paths[0]},{paths[1]}"
    result = evaluated({"fused": chain / "fused", "deep": deep})
    models = [load_model(path) for path in paths]
    with torch.no_grad():
        mean = sum(model(images(model)).softmax(-1) for model in models) / 2
    assert result.value("deep", "cls/nll") == pytest.approx(nll(mean), abs=1e-5)
    entry = result.models[1]
    assert (entry.kind, entry.members, entry.baseline, entry.reference) == ("deep_ensemble", 2, True, deep)
    assert entry.digest is None
    assert entry.cost.flops == sum(count_cost(model).flops for model in models)
    sizes = [sum(file.stat().st_size for file in path.iterdir() if file.name != "MANIFEST.json") for path in paths]
    assert entry.cost.bytes == sum(sizes)
    assert entry.metrics["div/jaccard"] is not None


def test_fused_models_in_an_ensemble_count_with_all_their_members(chain: Path) -> None:
    result = evaluated({"deep": Baseline("deep_ensemble", (chain / "fused", chain / "pruned"))})
    assert result.models[0].members == 6
    single = evaluated({"fused": chain / "fused"})
    assert result.value("deep", "cls/nll") == pytest.approx(single.value("fused", "cls/nll"), abs=1e-5)


def test_models_of_other_tasks_are_not_averaged(chain: Path) -> None:
    other = CASES["timm plain"]().model
    other.config = other.config.model_copy(update={"labels": ("a", "b", "c", "d", "e")})
    with pytest.raises(ModelError, match="its models differ in their labels"):
        evaluated({"deep": Baseline("deep_ensemble", (chain / "fused", other))})


def test_pruned_is_the_first_member(chain: Path) -> None:
    result = evaluated({"pruned": f"pruned:{chain / 'pruned'}", "same": chain / "pruned" / "member-0"})
    pruned, same = result.models
    assert pruned.metrics == same.metrics
    assert (pruned.kind, pruned.baseline, pruned.digest) == ("pruned", True, same.digest)
    assert same.baseline is False
    with pytest.raises(ModelError, match="no set of pruned members"):
        evaluated({"pruned": f"pruned:{chain / 'fused'}"})


def test_single_refuses_several_members(chain: Path) -> None:
    model = CASES["timm plain"]().model
    assert evaluated({"s": Baseline("single", (model,))}).models[0].kind == "single"
    with pytest.raises(ModelError, match="has 3 members"):
        evaluated({"s": f"single:{chain / 'fused'}"})


@pytest.mark.parametrize("name", ["fused", "pruned"])
def test_temperature_is_fitted_on_the_calibration_set(chain: Path, name: str) -> None:
    calibration = pictures(20, LABELS, seed=5)
    result = evaluated({"m": chain / name, "t": f"temperature:{chain / name}"}, calibration=calibration)
    models = [load_model(chain / "pruned" / f"member-{number}") for number in range(3)]
    inputs = preprocessor(models[0])([calibration[row].value for row in range(20)])
    with torch.no_grad():
        fitted = fit_temperature(
            torch.cat([model.members(inputs) for model in models]), torch.tensor(calibration.labels)
        )
        scaled = torch.cat([model.members(images(model)) for model in models]) / fitted
    assert result.models[1].settings["temperature"] == pytest.approx(fitted, rel=1e-3)
    assert result.value("t", "cls/nll") == pytest.approx(nll(scaled.softmax(-1).mean(0)), abs=1e-4)
    assert result.value("t", "cls/accuracy") is not None
    assert result.models[1].kind == "temperature"


def test_temperature_leaves_a_caller_s_model_alone() -> None:
    model = CASES["timm plain"]().model
    result = evaluated(
        {"m": model, "t": Baseline("temperature", (model,)), "again": model}, calibration=pictures(20, LABELS, seed=5)
    )
    assert model.config.temperature == 1
    assert result.models[0].metrics == result.models[2].metrics
    assert result.value("t", "cls/nll") != result.value("m", "cls/nll")
    with pytest.raises(UsageError, match="pass --calibration"):
        evaluated({"t": Baseline("temperature", (model,))})


def test_mc_dropout_without_dropout_is_refused() -> None:
    model = CASES["timm plain"]().model
    with pytest.raises(ModelError, match="probability 0, so all passes would agree; choose a rate with --dropout-rate"):
        evaluated({"mc": Baseline("mc_dropout", (model,))})


def test_mc_dropout_is_many_members_at_the_price_of_many_passes() -> None:
    model = CASES["timm plain"]().model
    options = QUICK.model_copy(update={"dropout_passes": 3, "dropout_rate": 0.2})
    models = {"m": model, "mc": Baseline("mc_dropout", (model,))}
    result = evaluated(models, options)
    entry = result.models[1]
    assert (entry.kind, entry.members, entry.settings) == ("mc_dropout", 3, {"passes": 3, "dropout_rate": 0.2})
    assert entry.metrics["div/disagreement"] is not None
    assert entry.metrics["div/kl"] > 0
    assert entry.cost.flops == 3 * count_cost(model).flops
    assert entry.cost.params == count_cost(model).parameters
    again = evaluated(models, options)
    assert again.models[1].metrics == entry.metrics
    assert evaluated(models, options.model_copy(update={"seed": 1})).models[1].metrics != entry.metrics
    # The caller's own model neither drops nor trains afterwards.
    assert result.models[0].metrics == evaluated({"m": model}).models[0].metrics
    assert not any(module.training for module in model.modules())


def test_only_dropout_is_in_training_mode_and_the_random_state_stays() -> None:
    case = TEXT_CASES["bert"]()
    model = case.model
    for module in dropouts(model):
        set_rate(module, 0.3)
    with torch.no_grad():
        plain = model.members(case.inputs)
    passes = MonteCarloDropout([model], passes=8, seed=3)
    training = {type(module).__name__ for module in passes.modules() if module.training}
    assert training == {"Dropout", "Attention"}
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    with torch.no_grad():
        first, second = passes.members(case.inputs), passes.members(case.inputs)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, second)
    assert first.shape == (8, *plain.shape[1:])
    assert len({float(logits.sum()) for logits in first}) == 8
    combined = passes(case.inputs).softmax(-1)
    assert torch.allclose(combined, first.softmax(-1).mean(0), atol=1e-6)


def test_gates_pass_baselines_over(chain: Path) -> None:
    options = QUICK.model_copy(update={"fail_if": ("cls/accuracy <= 1",)})
    result = evaluated({"fused": chain / "fused", "pruned": f"pruned:{chain / 'pruned'}"}, options)
    assert [(gate.model, math.isfinite(gate.value or 0)) for gate in result.failed_gates] == [("fused", True)]
