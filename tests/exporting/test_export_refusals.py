"""What ``export`` refuses, and that nothing is left behind then; the command."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny.budgeted import fresh
from torch import Tensor

from compress.artifact.folder import new_folder
from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.cli.main import main
from compress.errors import ArtifactError, CompressError, SelfCheckError, UnsupportedModelError, UsageError
from compress.exporting.export import export
from compress.exporting.graph import InferenceGraph
from compress.exporting.onnx_file import OnnxFormat
from compress.exporting.program_file import ProgramFormat
from compress.exporting.target import check_file_target
from compress.exporting.trial import Answer, agreement, trial_batches
from compress.transformer.config import Abstention
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.routing import with_routers
from compress.transformer.routing_config import RoutingConfig

Opened = Callable[[str], Transformer]


@pytest.fixture
def model(opened: Opened) -> Transformer:
    return opened("timm plain")


def test_what_runs_must_not_depend_on_the_input(model: Transformer, tmp_path: Path) -> None:
    routed = with_routers(model, RoutingConfig.model_validate({"blocks": (1,), "capacity": (0.5,)}))
    for attached, word in ((fresh(model), "budgets"), (routed, "routers")):
        with pytest.raises(UnsupportedModelError, match=f"a model with {word} decides from each input") as caught:
            export(attached, tmp_path / "model.onnx")
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_set_of_members_is_to_be_fused_first(model: Transformer, tmp_path: Path) -> None:
    with new_folder(tmp_path / "set", kind="members", stage="prune", members=["member-0"]) as partial:
        save_model(model, partial / "member-0", Provenance(stage="prune"))
    with pytest.raises(ArtifactError, match=r"not one model; give one model, such as .* what `compress fuse` wrote"):
        export(tmp_path / "set", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_a_file_that_disagrees_is_not_kept(model: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_back = ProgramFormat.open

    def off(self: ProgramFormat, path: Path) -> Answer:
        answer = read_back(self, path)
        return lambda inputs: {name: tensor + 2e-4 for name, tensor in answer(inputs).items()}

    monkeypatch.setattr(ProgramFormat, "open", off)
    target = tmp_path / "model.pt2"
    target.write_bytes(b"older")
    with pytest.raises(SelfCheckError, match=r"probabilities differ from the model's by 2\.0e-04 in a batch of 1"):
        export(model, target, overwrite=True)
    assert target.read_bytes() == b"older"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize(("rows", "change"), [(5, 2e-4), (2, float("nan")), (1, float("inf"))])
def test_one_wrong_number_in_one_batch_is_found(model: Transformer, rows: int, change: float) -> None:
    graph, batches = InferenceGraph(model).eval(), trial_batches(model)
    assert [len(batch) for batch in batches] == [1, 2, 5]

    def answer(inputs: Inputs) -> dict[str, Tensor]:
        with torch.no_grad():
            found = graph(inputs)
        if len(found["probabilities"]) == rows:
            found["probabilities"][-1, -1] += change
        return found

    with pytest.raises(SelfCheckError, match=f"in a batch of {rows}, so it was not kept"):
        agreement(model, answer, batches, Path("model.onnx"))


def test_places_that_are_not_written_to(model: Transformer, tmp_path: Path) -> None:
    save_model(model, tmp_path / "artifact", Provenance(stage="test"))
    (tmp_path / "there.onnx").write_bytes(b"mine")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "link.onnx").symlink_to(tmp_path / "there.onnx")
    for target, message in {
        tmp_path / "there.onnx": "there.onnx: exists; choose another name or pass --overwrite",
        tmp_path / "link.onnx": "exists",
        tmp_path / "folder.onnx": "is a folder",
        tmp_path / "gone" / "model.onnx": "there is no folder",
        tmp_path / "model.bin": "the name does not tell the kind of file; end it with .onnx or .pt2",
        tmp_path / "model": "does not tell",
    }.items():
        with pytest.raises(CompressError, match=message.replace(".", r"\.")) as caught:
            export(tmp_path / "artifact", target)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "there.onnx").read_bytes() == b"mine"


def test_files_of_artifacts_and_inputs_are_never_overwritten(model: Transformer, tmp_path: Path) -> None:
    model.files["weights.onnx"] = b"a file of the family's own"
    save_model(model, tmp_path / "artifact", Provenance(stage="test"))
    with pytest.raises(ArtifactError, match="is a part of the artifact"):
        export(tmp_path / "artifact", tmp_path / "artifact" / "weights.onnx", overwrite=True)
    (tmp_path / "input.onnx").write_bytes(b"x")
    with pytest.raises(ArtifactError, match="is the input"):
        export(tmp_path / "input.onnx", tmp_path / "input.onnx", overwrite=True)
    assert (tmp_path / "artifact" / "weights.onnx").read_bytes() == b"a file of the family's own"


def test_only_the_nearest_artifact_owns_a_file(model: Transformer, tmp_path: Path) -> None:
    save_model(model, tmp_path / "artifact", Provenance(stage="test"))
    check_file_target(tmp_path / "artifact" / "model.onnx", inputs=("~nobody-of-this-name/model",))
    within = tmp_path / "artifact" / "other"
    within.mkdir()
    (within / "MANIFEST.json").write_text('{"of": "another program"}')
    check_file_target(within / "model.onnx")
    with pytest.raises(ArtifactError, match="is a part of the artifact"):
        check_file_target(tmp_path / "artifact" / "MANIFEST.json", overwrite=True)


def test_missing_packages_are_named_before_any_work(
    model: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else real(name))
    with pytest.raises(UsageError, match=r"without onnxruntime no ONNX file .*'compress-transformers\[export\]'"):
        export(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_weights_beyond_the_format_are_refused(
    model: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnnxFormat, "largest_bytes", 1000)
    with pytest.raises(UnsupportedModelError, match=r"and ONNX files hold .* at most; write a \.pt2 file"):
        export(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_command(model: Transformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule = Abstention(score="max_probability", threshold=0.0607, target="coverage", value=0.8)
    model.config = model.config.model_copy(update={"abstention": rule})
    save_model(model, tmp_path / "m", Provenance(stage="test"))
    target = tmp_path / "model.pt2"
    call = ["export", str(tmp_path / "m"), "-o", str(target), "--json", str(tmp_path / "result.json")]
    assert main([*call, "--opset", "5"]) == 2
    assert main(call) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "inputs   images (batch, 3, 16, 16)"
    assert lines[1] == "outputs  probabilities (batch, 5), member_logits (batch, 1, 5)"
    assert lines[-1].startswith("torch.export, ")
    assert lines[-1].endswith(f"written to {target}")
    assert len(lines) == 4
    plain = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (plain["schema"], plain["bytes"]) == ("compress/export", target.stat().st_size)
    assert plain["metadata"]["labels"] == list(model.labels)
    assert plain["metadata"]["rule"] == "abstains when the probability is below 0.9393"
    first = target.read_bytes()
    assert main(call) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert target.read_bytes() == first


LIMITED = """
import resource, sys
from pathlib import Path
from compress.errors import CompressError
from compress.exporting.export import export
source, target, size = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
try:
    export(source, Path(target), overwrite=True)
except CompressError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on file sizes")
@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_a_full_disk_is_one_sentence(model: Transformer, tmp_path: Path, ending: str) -> None:
    save_model(model, tmp_path / "m", Provenance(stage="test"))
    target = tmp_path / f"model.{ending}"
    target.write_bytes(b"older")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "m", target, "20000"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f"model.{ending}: cannot be written (File too large); raise the limit" in done.stderr.splitlines()[-1]
    assert target.read_bytes() == b"older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", target.name]
