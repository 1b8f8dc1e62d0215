"""What was predicted once is evaluated again to the same figures."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny.pictures import pictures
from tiny.timm_cases import CASES

from compress.artifact.manifest import MANIFEST_NAME, read_manifest
from compress.artifact.tensors import read_tensors
from compress.data.sequence import SequenceDataset
from compress.errors import ArtifactError, DataError, ModelError, UsageError
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.evaluation.result import EvaluationResult
from compress.evaluation.stored.evaluate import evaluate_stored
from compress.evaluation.stored.rows import LogitRows
from compress.fusion.fuse import fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.runtime import Runtime

OPTIONS = Evaluate(latency=False, memory=False, shift=("contrast",))
CPU = Runtime(device="cpu", batch_size=4)
LABELS = CASES["timm plain"]().model.labels
DATA, FOREIGN = pictures(10, LABELS), pictures(7, seed=1)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``pruned``, ``fused`` and ``kept``: the predictions of both and of a single model."""
    folder = tmp_path_factory.mktemp("stored")
    prune(CASES["timm plain"]().model, folder / "pruned", options=Prune(method="random", keep=2, branch_layer=1))
    fuse(folder / "pruned", folder / "fused")
    return folder


Run = Callable[[Path], EvaluationResult]


@pytest.fixture(scope="session")
def run(root: Path) -> Run:
    """Evaluate with predictions kept in a folder."""

    def evaluated(target: Path) -> EvaluationResult:
        return evaluate(
            {"single": CASES["timm plain"]().model, "members": root / "pruned", "fused": root / "fused"},
            data=DATA,
            ood={"noise": FOREIGN},
            options=OPTIONS,
            runtime=CPU,
            baselines=["single"],
            predictions=target,
        )

    return evaluated


@pytest.fixture(scope="session")
def first(root: Path, run: Run) -> EvaluationResult:
    return run(root / "kept")


def test_the_same_figures_to_the_last_bit(root: Path, first: EvaluationResult) -> None:
    again = evaluate_stored(root / "kept", options=OPTIONS)
    assert again.shift == first.shift
    assert again.resampling == first.resampling
    for before, after in zip(first.models, again.models, strict=True):
        unmeasured = {"reference": ""}
        assert after == before.model_copy(update=unmeasured)
    assert again.data.fingerprint == DATA.fingerprint
    assert again.environment.device == "stored predictions"


def test_what_is_on_disk(root: Path, first: EvaluationResult) -> None:
    kept = root / "kept"
    assert sorted(path.name for path in kept.iterdir()) == [
        MANIFEST_NAME,
        "predictions.json",
        "predictions.safetensors",
    ]
    tensors = read_tensors(kept / "predictions.safetensors")
    assert tensors["test/logits/members"].shape == (3, 10, 5)
    assert tensors["ood/noise/logits/single"].shape == (1, 7, 5)
    assert tensors["shift/contrast/5/logits/fused"].dtype == torch.float32
    assert tensors["test/labels"].tolist() == DATA.labels
    assert "ood/noise/labels" not in tensors
    ends = tensors["test/id_ends"].tolist()
    text = bytes(tensors["test/ids"].tolist()).decode()
    assert [text[start:end] for start, end in zip([0, *ends], ends, strict=False)] == [
        DATA[row].id for row in range(10)
    ]
    described = json.loads((kept / "predictions.json").read_text())
    assert described["schema"] == "compress/predictions"
    assert described["labels"] == list(LABELS)
    assert described["models"][2]["cost"]["params"] == first.models[2].cost.params
    assert str(root) not in (kept / "predictions.json").read_text()


def test_equal_runs_give_equal_folders(root: Path, first: EvaluationResult, run: Run, tmp_path: Path) -> None:
    run(tmp_path / "again")
    assert read_manifest(tmp_path / "again").digest == read_manifest(root / "kept").digest


def test_ensembles_of_stored_models(root: Path, first: EvaluationResult) -> None:
    chosen = {"one": "single", "both": "deep_ensemble:single,fused", "alone": "pruned:members", "s": "single:single"}
    options = OPTIONS.model_copy(update={"fail_if": ("both:cls/nll < 0", "both:cls/accuracy <= 1")})
    found = evaluate_stored(root / "kept", chosen, options=options)
    live = evaluate(
        {
            "both": f"deep_ensemble:{root / 'pruned' / 'member-0'},{root / 'fused'}",
            "alone": f"pruned:{root / 'pruned'}",
        },
        data=DATA,
        ood={"noise": FOREIGN},
        options=OPTIONS,
        runtime=CPU,
    )
    for metric in ("cls/nll", "ood/noise/auroc", "shift/ece"):
        assert found.value("alone", metric) == pytest.approx(live.value("alone", metric), abs=1e-6)
    both, alone = found.models[1], found.models[2]
    assert (both.kind, both.members, both.baseline) == ("deep_ensemble", 4, True)
    assert (alone.kind, alone.members, alone.baseline) == ("pruned", 1, True)
    parts = [model for model in first.models if model.name in ("single", "fused")]
    assert both.cost.flops == sum(model.cost.flops or 0 for model in parts)
    assert alone.cost.params is None
    assert found.models[3].kind == "single"
    assert [(gate.model, gate.gate) for gate in found.failed_gates] == [("both", "both:cls/accuracy <= 1")]
    assert [(gate.model, gate.gate) for gate in found.passed_gates] == [("both", "both:cls/nll < 0")]


def test_a_report_shows_inputs_when_it_has_them(root: Path, first: EvaluationResult, tmp_path: Path) -> None:
    options = OPTIONS.model_copy(update={"intervals": False})
    for name, data in (("without", None), ("with", DATA)):
        evaluate_stored(root / "kept", data=data, options=options, report=tmp_path / name)
        content = json.loads((tmp_path / name / "report.json").read_text(encoding="utf-8"))
        assert (content["examples"] is None) == (data is None)


def test_other_data_are_refused(root: Path, first: EvaluationResult) -> None:
    with pytest.raises(DataError, match="not the set that was predicted"):
        evaluate_stored(root / "kept", data=pictures(10, LABELS, seed=9))


def test_what_is_not_stored_is_refused(root: Path, first: EvaluationResult, tmp_path: Path) -> None:
    kept = root / "kept"
    with pytest.raises(UsageError, match="no predictions of 'singel' are stored; did you mean 'single'"):
        evaluate_stored(kept, {"m": "singel"})
    with pytest.raises(UsageError, match="temperature cannot be made from stored predictions"):
        evaluate_stored(kept, {"t": "temperature:single"})
    with pytest.raises(ModelError, match="no set of pruned members"):
        evaluate_stored(kept, {"p": "pruned:fused"})
    with pytest.raises(ModelError, match="has 3 members"):
        evaluate_stored(kept, {"p": "single:fused"})
    with pytest.raises(UsageError, match="unknown metric"):
        evaluate_stored(kept, options=Evaluate(fail_if=("cal/eec > 1",)))
    with pytest.raises(ArtifactError, match="holds one model, not predictions"):
        evaluate_stored(root / "fused")


def test_a_flipped_bit_is_found(root: Path, first: EvaluationResult, tmp_path: Path, run: Run) -> None:
    run(tmp_path / "kept")
    path = tmp_path / "kept" / "predictions.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="changed or damaged"):
        evaluate_stored(tmp_path / "kept")


def test_a_failed_evaluation_leaves_nothing(tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    with pytest.raises(DataError):
        evaluate({"m": model}, data=pictures(4), options=OPTIONS, runtime=CPU, predictions=tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_cleared_away_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rmtree = shutil.rmtree

    def refused(path: Path, **options: bool) -> None:
        if not options:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "0")  # a name within, as rmtree says it
        rmtree(path, **options)

    monkeypatch.setattr(shutil, "rmtree", refused)
    model = CASES["timm plain"]().model
    with pytest.raises(ArtifactError, match=r"kept.*: cannot be written \(Permission denied\)"):
        evaluate({"m": model}, data=DATA, options=OPTIONS, runtime=CPU, predictions=tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_foreign_set_is_kept(tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    options = OPTIONS.model_copy(update={"shift": ()})
    foreign = {"o": SequenceDataset([], "image")}
    evaluate({"m": model}, data=DATA, ood=foreign, options=options, runtime=CPU, predictions=tmp_path / "kept")
    again = evaluate_stored(tmp_path / "kept", options=options)
    assert again.models[0].reasons["ood/o/auroc"] == "out-of-distribution set o: the set is empty"


def test_rows_wait_in_a_file_and_not_in_memory(tmp_path: Path) -> None:
    rows = LogitRows(tmp_path / "rows", 100)
    for start in range(0, 100, 40):
        rows.add(torch.full((2, min(40, 100 - start), 3), float(start), dtype=torch.bfloat16))
    assert (tmp_path / "rows").stat().st_size == 2 * 100 * 3 * 4
    assert rows.shape == (2, 100, 3)
    assert rows.load()[1, :, 2].tolist() == [0.0] * 40 + [40.0] * 40 + [80.0] * 20
    short = LogitRows(tmp_path / "short", 100)
    short.add(torch.zeros(2, 40, 3))
    with pytest.raises(ValueError, match="40 of 100"):
        short.load()
    assert LogitRows(tmp_path / "none", 0).load().shape == (0, 0, 0)
