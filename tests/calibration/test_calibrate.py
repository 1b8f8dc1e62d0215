from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny.timm_cases import CASES

from compress.artifact.fingerprint import model_fingerprint
from compress.artifact.provenance import Provenance
from compress.artifact.store import load_model, read_provenance, save_model
from compress.calibration.calibrate import calibrate
from compress.calibration.options import Calibrate
from compress.cli.main import main
from compress.data.sequence import SequenceDataset
from compress.errors import DataError
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.prediction.predict import predict
from compress.runtime import DType, Runtime
from compress.transformer.config import Abstention, UncertaintyScore
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads

ON_CPU = Runtime(device="cpu")


@pytest.fixture
def model() -> Transformer:
    return CASES["timm plain"]().model


def pictures(model: Transformer, count: int = 60) -> SequenceDataset:
    """Noise whose labels are right two times out of three."""
    from PIL import Image

    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 16, 16, 3), generator=generator, dtype=torch.uint8).numpy()
    values = [Image.fromarray(picture) for picture in pixels]
    unlabelled = SequenceDataset(values, "image")
    from compress.inference.forward import answers

    predicted = torch.cat([batch.logits[0].argmax(-1) for batch in answers(model, model, unlabelled, ON_CPU, "")])
    labels = [(int(label) + (row % 3 == 0)) % 5 for row, label in enumerate(predicted)]
    return SequenceDataset(values, "image", class_names=model.labels, labels=labels)


def test_the_artifact_has_the_temperature_and_the_same_weights(model: Transformer, tmp_path: Path) -> None:
    data = pictures(model)
    result = calibrate(model, tmp_path / "c", data=data, runtime=ON_CPU)
    loaded = load_model(tmp_path / "c")
    assert loaded.config.temperature == result.temperature != 1
    assert loaded.config.abstention is None
    inputs = CASES["timm plain"]().inputs
    with torch.inference_mode():
        assert torch.equal(loaded(inputs), model(inputs) / result.temperature)
    assert model.config.temperature == 1
    assert result.nll_after < result.nll_before
    assert result.accuracy == pytest.approx(2 / 3)
    noted = read_provenance(tmp_path / "c")
    assert noted.stage == "calibrate"
    assert noted.parents == (model_fingerprint(model),)
    assert noted.notes["nll_after"] == result.nll_after


def test_the_figures_are_those_of_the_evaluation(model: Transformer, tmp_path: Path) -> None:
    data = pictures(model)
    result = calibrate(model, tmp_path / "c", data=data, runtime=ON_CPU)
    options = Evaluate(latency=False, memory=False, intervals=False)
    found = evaluate(
        {"before": model, "after": tmp_path / "c", "baseline": "temperature:" + str(tmp_path / "c")},
        data=data,
        calibration=data,
        options=options,
        runtime=ON_CPU,
    )
    assert found.value("before", "cls/nll") == pytest.approx(result.nll_before, abs=1e-6)
    assert found.value("after", "cls/nll") == pytest.approx(result.nll_after, abs=1e-6)
    # Nothing is left to gain for a second temperature.
    assert found.models[2].settings["temperature"] == pytest.approx(1, abs=1e-3)


def test_temperature_1_leaves_every_bit(model: Transformer) -> None:
    inputs = CASES["timm plain"]().inputs
    with torch.inference_mode():
        before = model.members(inputs)
        same = model.changed(model.config.model_copy(update={"temperature": 1.0}))
        half = model.changed(model.config.model_copy(update={"temperature": 0.5}))
        assert torch.equal(same.members(inputs), before)
        assert torch.equal(half.members(inputs), 2 * before)


def test_a_second_calibration_builds_on_the_first(model: Transformer, tmp_path: Path) -> None:
    data = pictures(model)
    first = calibrate(model, tmp_path / "first", data=data, runtime=ON_CPU)
    second = calibrate(tmp_path / "first", tmp_path / "second", data=data, runtime=ON_CPU)
    assert second.temperature == pytest.approx(first.temperature, rel=1e-3)


def test_abstention_meets_its_target(model: Transformer, tmp_path: Path) -> None:
    data = pictures(model)
    for score in ("max_probability", "entropy", "energy", "max_logit"):
        options = Calibrate(target_coverage=0.7, score=score)
        result = calibrate(model, tmp_path / score, data=data, options=options, runtime=ON_CPU)
        assert result.coverage == pytest.approx(42 / 60)
        stored = load_model(tmp_path / score).config.abstention
        assert stored == result.abstention
        assert stored is not None
        assert (stored.score, stored.target, stored.value) == (score, "coverage", 0.7)
    risky = calibrate(model, tmp_path / "r", data=data, options=Calibrate(target_risk=0.4), runtime=ON_CPU)
    assert risky.coverage == 1
    assert risky.risk == pytest.approx(1 / 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("score", ["max_probability", "entropy", "energy", "max_logit"])
def test_predict_answers_the_share_that_calibrate_reports_in_every_number_format(
    dtype: DType, score: UncertaintyScore, model: Transformer, tmp_path: Path
) -> None:
    data, runtime = pictures(model), Runtime(device="cpu", dtype=dtype)
    # A temperature that the model brings along takes part too.
    model.config = model.config.model_copy(update={"temperature": 1.3})
    options = Calibrate(target_coverage=0.5, score=score)
    result = calibrate(model, tmp_path / "c", data=data, options=options, runtime=runtime)
    answered = predict(tmp_path / "c", [data[row].value for row in range(len(data))], runtime=runtime)
    assert sum(not found.abstain for found in answered.predictions) / len(data) == result.coverage
    assert model.config.temperature == 1.3


@pytest.mark.parametrize(
    ("score", "threshold", "rule"),
    [
        ("max_probability", 0.001556, "abstains when the probability is below 0.9984"),
        ("max_probability", 3e-7, "abstains when the probability is below 1 - 3e-07"),
        ("entropy", 0.25, "abstains when the entropy is above 0.25"),
        ("mutual_information", 0.125, "abstains when the mutual information is above 0.125"),
        ("energy", -3.5, "abstains when the energy is above -3.5"),
        ("max_logit", -3.5, "abstains when the largest logit is below 3.5"),
    ],
)
def test_the_rule_reads_forwards(score: UncertaintyScore, threshold: float, rule: str) -> None:
    assert Abstention(score=score, threshold=threshold, target="coverage", value=0.9).rule == rule


def test_pruning_drops_the_threshold_and_keeps_the_temperature(model: Transformer, tmp_path: Path) -> None:
    calibrate(model, tmp_path / "c", data=pictures(model), options=Calibrate(target_coverage=0.9), runtime=ON_CPU)
    loaded = load_model(tmp_path / "c")
    pruned = prune_heads(loaded, [(0, 1)] * len(loaded.layers))
    assert pruned.config.abstention is None
    assert pruned.config.temperature == loaded.config.temperature


def test_what_cannot_work_is_said_and_nothing_is_written(model: Transformer, tmp_path: Path) -> None:
    data = pictures(model)
    wrong = [(label + 1) % 5 for label in data.labels or ()]
    always_wrong = SequenceDataset(
        [data[row].value for row in range(60)], "image", class_names=model.labels, labels=wrong
    )
    with pytest.raises(DataError, match="no threshold keeps the errors at"):
        calibrate(model, tmp_path / "c", data=always_wrong, options=Calibrate(target_risk=0.0), runtime=ON_CPU)
    texts = SequenceDataset(["a"], "text", class_names=model.labels, labels=[0])
    with pytest.raises(DataError, match="reads image samples"):
        calibrate(model, tmp_path / "c", data=texts, runtime=ON_CPU)
    unlabelled = SequenceDataset([data[0].value], "image")
    with pytest.raises(DataError, match="unlabelled"):
        calibrate(model, tmp_path / "c", data=unlabelled, runtime=ON_CPU)
    assert not (tmp_path / "c").exists()


def test_the_command(model: Transformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(model, tmp_path / "m", Provenance(stage="test"))
    data = pictures(model)
    for row in range(len(data)):
        sample = data[row]
        folder = tmp_path / "data" / model.labels[sample.label or 0]
        folder.mkdir(parents=True, exist_ok=True)
        sample.value.save(folder / f"{row}.png")  # type: ignore[union-attr]
    call = ["calibrate", str(tmp_path / "m"), "--data", str(tmp_path / "data"), "--device", "cpu", "-o"]
    assert main([*call, str(tmp_path / "c"), "--target-coverage", "0.5", "--json", "-"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["schema"] == "compress/calibrate"
    assert plain["coverage"] == 0.5
    assert plain["abstention"]["threshold"] == load_model(tmp_path / "c").config.abstention.threshold  # type: ignore[union-attr]
    assert main([*call, str(tmp_path / "f"), "--target-coverage", "0.5"]) == 0
    assert "\nabstains when the probability is below 0." in capsys.readouterr().out
    assert main([*call, str(tmp_path / "d")]) == 0
    assert "temperature" in capsys.readouterr().out
    assert main([*call, str(tmp_path / "e"), "--target-coverage", "0.5", "--target-risk", "0.1"]) == 2
    assert "--target-risk: the value is 0.1 but cannot be combined" in capsys.readouterr().err
    assert main([*call, str(tmp_path / "e"), "--no-temperature"]) == 2
    assert "a target coverage or a target risk is needed" in capsys.readouterr().err
