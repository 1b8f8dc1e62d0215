from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny.hf_folder import TEXTS, save_library, save_tokenizer
from tiny.timm_cases import CASES

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.backbones.registry import preprocessor
from compress.cli.main import main
from compress.errors import DataError, ModelError
from compress.opening import open_model
from compress.prediction.inputs import BadInputsError
from compress.prediction.predict import predict
from compress.runtime import Runtime
from compress.transformer.config import Abstention
from compress.transformer.ensemble import Ensemble
from compress.transformer.model import Transformer

ON_CPU = Runtime(device="cpu", batch_size=2)


@pytest.fixture
def model() -> Transformer:
    return CASES["timm plain"]().model


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three pictures, two of them in a folder of their own."""
    generator = torch.Generator().manual_seed(0)
    paths = [tmp_path / "one é.png", tmp_path / "more" / "a.png", tmp_path / "more" / "b.jpg"]
    (tmp_path / "more").mkdir()
    for path in paths:
        pixels = torch.randint(0, 256, (20, 24, 3), generator=generator, dtype=torch.uint8).numpy()
        Image.fromarray(pixels).save(path)
    return paths


@pytest.fixture
def text_model(tmp_path: Path) -> Transformer:
    save_library(tmp_path / "bert")
    save_tokenizer(tmp_path / "bert")
    return open_model(f"hf:{tmp_path / 'bert'}")


def test_answers_are_the_model_s_own(model: Transformer, files: list[Path]) -> None:
    found = predict(model, files, runtime=ON_CPU).predictions
    with torch.inference_mode():
        logits = model(preprocessor(model)([Image.open(path) for path in files])).double()
    probabilities = logits.softmax(-1)
    assert [one.input for one in found] == [str(path) for path in files]
    assert [one.label for one in found] == [model.labels[index] for index in probabilities.argmax(-1)]
    assert [one.probability for one in found] == pytest.approx(probabilities.max(-1).values.tolist(), abs=1e-5)
    entropy = -(probabilities * probabilities.log()).sum(-1)
    assert [one.entropy for one in found] == pytest.approx(entropy.tolist(), abs=1e-5)
    assert {(one.mutual_information, one.abstain) for one in found} == {(None, None)}


def test_members_that_disagree_have_mutual_information(model: Transformer, files: list[Path]) -> None:
    other = CASES["timm plain"]().model
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    apart = predict(Ensemble([model, other]), files, runtime=ON_CPU).predictions
    same = predict(Ensemble([model, model]), files, runtime=ON_CPU).predictions
    assert all((one.mutual_information or 0) > 1e-4 for one in apart)
    assert [one.mutual_information for one in same] == pytest.approx([0, 0, 0], abs=1e-12)


def test_a_stored_threshold_decides_who_abstains(model: Transformer, files: list[Path]) -> None:
    uncertainty = sorted(1 - one.probability for one in predict(model, files, runtime=ON_CPU).predictions)
    rule = Abstention(score="max_probability", threshold=uncertainty[1], target="coverage", value=0.6)
    cautious = model.changed(model.config.model_copy(update={"abstention": rule}))
    result = predict(cautious, files, runtime=ON_CPU)
    assert result.abstention == rule
    assert sorted((1 - one.probability, one.abstain) for one in result.predictions) == [
        (uncertainty[0], False),
        (uncertainty[1], False),
        (uncertainty[2], True),
    ]


def test_every_way_to_name_an_image(model: Transformer, files: list[Path], tmp_path: Path) -> None:
    one, a, b = files
    lines = io.StringIO(f"{a}\n{b}\n")
    found = predict(model, [one, tmp_path / "more", "-", Image.open(one)], runtime=ON_CPU, stdin=lines).predictions
    assert [answer.input for answer in found] == [str(path) for path in (one, a, b, a, b)] + ["image"]
    assert found[1].probability == pytest.approx(found[3].probability, abs=1e-6)
    assert found[0].probability == pytest.approx(found[5].probability, abs=1e-6)
    assert len(predict(model, one, runtime=ON_CPU).predictions) == 1


def test_every_way_to_name_a_text(text_model: Transformer, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a good film\nvery bad\n", encoding="utf-8")
    (tmp_path / "table.csv").write_text("text,stars\na good film,1\nvery bad,2\n", encoding="utf-8")
    given = ["a good film", tmp_path / "lines.txt", tmp_path / "table.csv", "-"]
    found = predict(text_model, given, runtime=ON_CPU, stdin=["very bad\r\n", "\n"]).predictions
    lines, table = tmp_path / "lines.txt", tmp_path / "table.csv"
    names = ["a good film", f"{lines}:1", f"{lines}:2", f"{table}:2", f"{table}:3", "stdin:1", "stdin:2"]
    assert [answer.input for answer in found] == names
    assert found[0].probability == pytest.approx(found[1].probability, abs=1e-6)
    assert found[2].probability == pytest.approx(found[5].probability, abs=1e-6)
    assert {answer.label for answer in found} <= {"négatif", "neutre", "positif"}
    assert len(predict(text_model, TEXTS, runtime=ON_CPU).predictions) == len(TEXTS)


def test_all_bad_inputs_are_named_and_none_is_answered(model: Transformer, files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "more" / "broken.png").write_bytes(b"not an image")
    (tmp_path / "cut.png").write_bytes(files[0].read_bytes()[:60])
    given = [files[0], tmp_path / "missing.png", tmp_path / "more", tmp_path / "cut.png", "builtin:nothing"]
    with pytest.raises(BadInputsError) as caught:
        predict(model, given, runtime=ON_CPU)
    messages = [str(problem) for problem in caught.value.problems]
    assert len(messages) == 4
    parts = ("missing.png: no such", "broken.png: the image", "cut.png: the image", "nothing")
    for part, message in zip(parts, messages, strict=True):
        assert part in message
        assert "\n" not in message


def test_inputs_of_the_other_kind_are_refused(model: Transformer, text_model: Transformer, files: list[Path]) -> None:
    with pytest.raises(DataError, match="holds image samples"):
        predict(text_model, "builtin:photos", runtime=ON_CPU)
    with pytest.raises(DataError, match="the model reads text"):
        predict(text_model, Image.open(files[0]), runtime=ON_CPU)
    with pytest.raises(DataError, match="no such file"):
        predict(text_model, "reviews.csv", runtime=ON_CPU)
    with pytest.raises(DataError, match="no input"):
        predict(model, ["-"], runtime=ON_CPU, stdin=[])


def test_a_logit_that_is_not_finite_is_an_error(model: Transformer, files: list[Path]) -> None:
    with torch.no_grad():
        next(model.head.parameters()).fill_(float("nan"))
    with pytest.raises(ModelError, match=r"one é\.png: a logit is not finite"):
        predict(model, files, runtime=ON_CPU)


def test_the_command(
    model: Transformer, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    save_model(model, tmp_path / "m", Provenance(stage="test"))
    call = ["predict", str(tmp_path / "m"), "--device", "cpu"]
    assert main([*call, str(files[0]), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["schema"], plain["schema_version"], plain["abstention"]) == ("compress/predict", 1, None)
    expected = predict(model, files[0], runtime=ON_CPU).predictions[0].model_dump()
    assert plain["predictions"][0] == pytest.approx(expected, abs=1e-5)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{files[1]}\n{files[2]}\n"))
    assert main([*call, "-"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 3
    assert table[0].split() == ["input", "label", "probability", "entropy", "mutual", "information", "abstain"]
    assert main([*call, "x.png", "y.png", str(files[0])]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(":")[0] for line in captured.err.splitlines()] == ["x.png", "y.png", "compress"]
    assert main([*call, "x.png"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
