"""The choice of a branch layer, from ``prune`` through ``fuse`` into the report."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from tiny.all_cases import CASES
from tiny.samples import samples

from compress.artifact.store import read_provenance
from compress.evaluation.evaluate import evaluate
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.options import Evaluate
from compress.evaluation.report.branching import BranchChoice, BranchPoint, draw_branching, measure_branching
from compress.evaluation.report.look import Look, drawing
from compress.fusion.fuse import fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.runtime import Runtime
from compress.tuning.options import Tune
from compress.tuning.tune import tune

CPU = Runtime(device="cpu", batch_size=8)
AUTO = Prune(keep=1, branch_layer="auto", members=3, min_disagreement=0.0, max_overlap=0.4)


@pytest.fixture
def pruned(tmp_path: Path) -> Path:
    model = CASES["timm plain"]().model
    prune(model, tmp_path / "pruned", data=samples(model, 20), options=AUTO, runtime=CPU)
    return tmp_path / "pruned"


def test_the_report_shows_disagreement_and_flops_by_branch_layer(pruned: Path, tmp_path: Path) -> None:
    fuse(pruned, tmp_path / "fused")
    model = CASES["timm plain"]().model
    evaluate(
        {"single": model, "fused": tmp_path / "fused"},
        data=samples(model, 20),
        options=Evaluate(latency=False, memory=False, intervals=False),
        runtime=CPU,
        report=tmp_path / "report",
    )
    (choice,) = json.loads((tmp_path / "report" / "report.json").read_text())["branching"]
    noted = json.loads((pruned / "provenance.json").read_text())["notes"]["branch_candidates"]
    assert choice["models"] == ["fused"]
    assert choice["taken"] == 2
    assert [point["branch_layer"] for point in choice["points"]] == [0, 1, 2]
    assert [point["disagreement"] for point in choice["points"]] == [entry["disagreement"] for entry in noted]
    flops = [point["flops"] for point in choice["points"]]
    assert flops == sorted(flops, reverse=True)
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Where should members part?" in page
    assert "branch at layer 1: " in page


def test_tuning_members_and_models_hands_the_choice_down(pruned: Path, tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    noted = read_provenance(pruned).handed_down()
    assert noted
    once = Tune(steps=1)
    tune(pruned, tmp_path / "tuned", data=samples(model, 8), options=once, runtime=CPU)
    fuse(tmp_path / "tuned", tmp_path / "fused")
    tune(tmp_path / "fused", tmp_path / "joint", data=samples(model, 8), options=once, runtime=CPU)
    for made in ("tuned", "fused", "joint"):
        assert read_provenance(tmp_path / made).handed_down() == noted, made


def test_a_model_without_that_history_and_a_note_of_another_kind_show_nothing(
    fused_evaluation: Evaluation, pruned: Path
) -> None:
    assert measure_branching(fused_evaluation) == ()
    path = pruned / "provenance.json"
    content = json.loads(path.read_text())
    evaluation = dataclasses.replace(fused_evaluation, folders={"fused": pruned})
    assert len(measure_branching(evaluation)) == 1
    for strange in ("text", [3], [{"branch_layer": "x"}], [{"branch_layer": 1, "disagreement": None, "flops": 1}]):
        content["notes"]["branch_candidates"] = strange
        path.write_text(json.dumps(content))
        assert measure_branching(evaluation) == ()


def test_the_taken_layer_is_marked_and_every_mark_has_a_tip() -> None:
    points = tuple(BranchPoint(branch_layer=n, disagreement=0.3 - n / 10, flops=900 - 100 * n) for n in range(3))
    with drawing():
        picture = draw_branching(BranchChoice(models=("fused",), taken=1, points=points), Look(["single", "fused"]), 0)
    sizes = {
        line.get_gid(): line.get_markersize() for axes in picture.figure.axes for line in axes.lines if line.get_gid()
    }
    assert sizes["disagreement-1"] == sizes["flops-1"] > sizes["disagreement-0"] == sizes["flops-2"]
    assert set(picture.tips) == set(sizes)
    assert picture.tips["flops-2"] == "branch at layer 2: 700 FLOPs per input"
    assert picture.description.endswith("Taken: layer 1.")
