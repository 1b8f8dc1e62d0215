"""Exported files, run by onnxruntime and by torch, against the models they were made from."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from tiny.all_cases import CASES, ONE_PER_FAMILY
from tiny.ragged import ragged
from torch import Tensor

from compress.artifact.folder import verify_folder
from compress.backbones.registry import preprocessor
from compress.exporting.export import export
from compress.exporting.graph import named
from compress.exporting.options import Export
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

Opened = Callable[[str], Transformer]
MakeFile = Callable[[str, str, str], Any]
WORDS = "the very good film was bad a films"

# Of every family one file of either kind is made here; all that can be made of it, and its features, are slow.
ONNX_FILES = [("timm plain", "warm"), ("bert", "fused"), ("open_clip text", "pruned")]
PROGRAMS = [("open_clip image", "original"), ("bert", "pruned")]
FILES = [(*case, "onnx") for case in ONNX_FILES] + [(*case, "pt2") for case in PROGRAMS]


def fresh_inputs(model: Transformer, rows: int, words: int = 5) -> Inputs:
    """Inputs that the export has not seen, of ``rows`` rows; texts of up to ``words`` words."""
    if model.config.preprocessing.kind == "image":
        example = model.stem.example(rows)
        assert isinstance(example, Tensor)
        return torch.randn(example.shape, generator=torch.Generator().manual_seed(rows))
    texts = [" ".join(WORDS.split()[: 1 + (row + words - 1) % words]) for row in range(rows)]
    return preprocessor(model)(texts)


def run_onnx(path: Path, inputs: Inputs) -> Mapping[str, Tensor]:
    """What onnxruntime makes of a file; the graph is asked which inputs it wants."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = named(inputs)
    feeds = {wanted.name: given[wanted.name].numpy() for wanted in session.get_inputs()}
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(torch.from_numpy, session.run(None, feeds)), strict=True))


def run_program(path: Path, inputs: Inputs) -> Mapping[str, Tensor]:
    """What torch makes of a file."""
    with torch.no_grad():
        found: Mapping[str, Tensor] = torch.export.load(str(path)).module()(inputs)
    return found


def run(path: Path, inputs: Inputs) -> Mapping[str, Tensor]:
    """What the file's own runtime makes of it."""
    return run_onnx(path, inputs) if path.suffix == ".onnx" else run_program(path, inputs)


def assert_answers(found: Mapping[str, Tensor], model: Transformer, inputs: Inputs) -> None:
    """The mean of the members' probabilities and their logits, the batch first."""
    with torch.inference_mode():
        logits = model.members(inputs)
    assert list(found) == ["probabilities", "member_logits"]
    expected = logits.double().softmax(-1).mean(0)
    assert float((found["probabilities"] - expected).abs().max()) <= 1e-4
    assert found["member_logits"].shape == (logits.shape[1], logits.shape[0], logits.shape[2])
    scale = max(1.0, float(logits.abs().max()))
    assert float((found["member_logits"].transpose(0, 1) - logits).abs().max()) <= 1e-4 * scale


@pytest.mark.parametrize(("name", "made", "ending"), FILES)
def test_a_file_answers_like_its_model(exported: MakeFile, name: str, made: str, ending: str) -> None:
    one = exported(name, made, ending)
    assert one.result.difference <= 1e-4
    for rows, words in ((1, 1), (2, 2), (7, 8)):
        inputs = fresh_inputs(one.model, rows, words)
        assert_answers(run(one.file, inputs), one.model, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
@pytest.mark.parametrize("made", ["original", "pruned", "fused", "grouped"])
@pytest.mark.parametrize("name", [*ONE_PER_FAMILY, "open_clip text"])
def test_all_that_is_made_of_a_model_answers_like_it(exported: MakeFile, name: str, made: str, ending: str) -> None:
    test_a_file_answers_like_its_model(exported, name, made, ending)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
@pytest.mark.parametrize("name", CASES)
def test_every_feature_of_every_family(exported: MakeFile, name: str, ending: str) -> None:
    test_a_file_answers_like_its_model(exported, name, "fused", ending)


@pytest.mark.parametrize(("made", "ending"), [("fused", "onnx"), ("pruned", "pt2")])
def test_a_row_of_padding_has_an_answer_and_harms_no_other(exported: MakeFile, made: str, ending: str) -> None:
    one = exported("bert", made, ending)
    inputs = dict(named(fresh_inputs(one.model, 3)))
    inputs["attention_mask"] = inputs["attention_mask"].clone()
    inputs["attention_mask"][1] = 0
    found = run(one.file, inputs)
    assert bool(found["probabilities"].isfinite().all())
    assert_answers(found, one.model, inputs)


def test_the_temperature_is_inside(opened: Opened, exported: MakeFile) -> None:
    one, without = exported("timm plain", "warm", "onnx"), ragged(opened("timm plain"))
    inputs = fresh_inputs(without, 3)
    with torch.inference_mode():
        logits = without.members(inputs)
    found = run(one.file, inputs)["member_logits"].transpose(0, 1)
    assert float((found - logits / 4).abs().max()) <= 1e-5
    assert one.result.metadata.temperature == 4


def test_a_file_tells_what_its_consumer_needs(exported: MakeFile) -> None:
    one = exported("bert", "fused", "onnx")
    session = onnxruntime.InferenceSession(str(one.file), providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["compress"])
    assert about == one.result.metadata.model_dump(mode="json", by_alias=True)
    assert about["labels"] == list(one.model.labels)
    assert about["preprocessing"] == {"kind": "text", "max_length": 16}
    assert about["digest"] == verify_folder(one.artifact).digest
    assert about["members"] == 3
    described = {tensor["name"]: tensor["shape"] for tensor in (*about["inputs"], *about["outputs"])}
    assert described["attention_mask"] == ["batch", "length"]
    found = {tensor.name: tensor.shape for tensor in (*session.get_inputs(), *session.get_outputs())}
    assert found == described


def test_a_program_has_the_same_metadata(exported: MakeFile) -> None:
    one = exported("open_clip image", "original", "pt2")
    about = {"compress.json": ""}
    torch.export.load(str(one.file), extra_files=about)
    assert json.loads(about["compress.json"]) == one.result.metadata.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize(("name", "made", "ending"), [FILES[0], FILES[-1]])
def test_a_file_knows_nothing_of_the_machine_that_made_it(
    exported: MakeFile, name: str, made: str, ending: str
) -> None:
    content = exported(name, made, ending).file.read_bytes()
    assert str(Path(torch.__file__).parents[1]).encode() not in content
    assert b"model.py" not in content


@pytest.mark.slow
def test_weights_in_half_precision_are_exported_in_single(opened: Opened, tmp_path: Path) -> None:
    model = opened("timm plain").to(torch.bfloat16)
    export(model, tmp_path / "model.onnx")
    assert next(model.parameters()).dtype == torch.bfloat16, "the model that was given stays as it is"
    inputs = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    assert_answers(run_onnx(tmp_path / "model.onnx", inputs), copy.deepcopy(model).float(), inputs)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 20, 22])
def test_the_operators_are_of_the_version_that_was_asked_for(opened: Opened, opset: int, tmp_path: Path) -> None:
    export(opened("bert"), tmp_path / "model.onnx", options=Export(opset=opset))
    versions = {entry.domain: entry.version for entry in onnx.load(tmp_path / "model.onnx").opset_import}
    assert versions == {"": opset}
