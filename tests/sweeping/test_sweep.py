"""A sweep: its points against the stages they stand for, its memory, its files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny.all_cases import CASES
from tiny.samples import samples, unlabelled

from compress.cli.main import main
from compress.errors import ArtifactError, ModelError, UsageError
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.fusion.fuse import fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.recipe.read import read_recipe
from compress.recipe.run import run_recipe
from compress.runtime import Runtime
from compress.sweeping import sweep as sweeping
from compress.sweeping.grid import Grid
from compress.sweeping.result import SweepPoint, SweepResult
from compress.sweeping.sweep import sweep
from compress.transformer.model import Transformer

CPU = Runtime(device="cpu", batch_size=8)
GRID = Grid(keep=(1, 0.5), members=(2, 3), branch_layer=(0, 2))
OPTIONS = Prune(trunk_keep=4)


@pytest.fixture
def model() -> Transformer:
    return CASES["timm plain"]().model


def swept(model: Transformer, out: Path, **changes: object) -> SweepResult:
    given: dict[str, object] = {
        "grid": GRID,
        "data": samples(model, 12),
        "validation": samples(model, 16, seed=3),
        "ood": {"other": unlabelled(samples(model, 9, seed=7))},
        "options": OPTIONS,
        "runtime": CPU,
        **changes,
    }
    return sweep(model, out, **given)  # type: ignore[arg-type]


def test_every_point_is_what_the_stages_make(model: Transformer, tmp_path: Path) -> None:
    result = swept(model, tmp_path / "sweep")
    assert [point.name for point in result.points] == ["single", *GRID.names()]
    for name, options in [*GRID.points(OPTIONS)][::3]:
        folder = tmp_path / name
        prune(model, folder, data=samples(model, 12), options=options, runtime=CPU)
        fuse(folder, folder / "fused")
        expected = evaluate(
            {"fused": folder / "fused"},
            data=samples(model, 16, seed=3),
            ood={"other": unlabelled(samples(model, 9, seed=7))},
            options=Evaluate(latency=False, memory=False, intervals=False),
            runtime=CPU,
        ).models[0]
        point = next(point for point in result.points if point.name == name)
        assert (point.flops, point.parameters) == (expected.cost.flops, expected.cost.params)
        for metric, value in point.metrics.items():
            assert value == pytest.approx(expected.metrics[metric], abs=1e-6)


def test_an_interrupted_sweep_goes_on_at_its_point(
    model: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = swept(model, tmp_path / "whole")
    measured: list[str] = []
    whole = sweeping.run_evaluation

    def counted(*arguments: object, **details: object) -> object:
        measured.append("point")
        if len(measured) > limit:
            raise KeyboardInterrupt
        return whole(*arguments, **details)  # type: ignore[arg-type]

    monkeypatch.setattr(sweeping, "run_evaluation", counted)
    limit = 4
    with pytest.raises(KeyboardInterrupt):
        swept(model, tmp_path / "sweep")
    assert not (tmp_path / "sweep" / "sweep.json").exists()
    limit = 100
    measured.clear()
    assert swept(model, tmp_path / "sweep") == expected
    assert len(measured) == 9 - 4
    monkeypatch.setattr("compress.pruning.prune.taylor_samples", None)
    measured.clear()
    assert swept(model, tmp_path / "sweep") == expected, "neither scored nor measured again"
    assert measured == []
    wider = swept(model, tmp_path / "sweep", grid=GRID.model_copy(update={"keep": (1, 0.5, 3)}))
    assert len(measured) == 4
    assert wider.points[:9] == expected.points
    for suffix in ("json", "txt"):
        assert (tmp_path / "whole" / f"sweep.{suffix}").is_file()


def test_other_data_options_or_damaged_memory_are_measured_again(model: Transformer, tmp_path: Path) -> None:
    small = Grid(keep=(2,), members=(2,))
    first = swept(model, tmp_path / "sweep", grid=small)
    other = swept(model, tmp_path / "sweep", grid=small, validation=samples(model, 15, seed=3))
    assert other.points != first.points
    (tmp_path / "sweep" / "state" / "k2-m2-b0.json").write_text("{")
    (tmp_path / "sweep" / "scores.safetensors").unlink()
    assert swept(model, tmp_path / "sweep", grid=small) == first
    assert swept(model, tmp_path / "sweep", grid=small, options=Prune(seed=1)).points != first.points


def test_circuits_are_searched_once_per_number_of_heads_and_branch(
    model: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compress.pruning import circuit

    circuits = {
        "options": Prune(method="circuit", trunk_keep=4),
        "ood_validation": unlabelled(samples(model, 6, seed=8)),
    }
    first = swept(model, tmp_path / "sweep", grid=Grid(keep=(1, 2), branch_layer=(1,)), **circuits)
    assert first.method == "circuit"
    monkeypatch.setattr(circuit, "candidate_logits", None)
    (tmp_path / "sweep" / "state" / "k1-m3-b1.json").unlink()
    assert swept(model, tmp_path / "sweep", grid=Grid(keep=(1, 2), branch_layer=(1,)), **circuits) == first


def test_impossible_points_are_told_and_a_grid_of_them_is_refused(model: Transformer, tmp_path: Path) -> None:
    result = swept(model, tmp_path / "sweep", grid=Grid(keep=(2, 9), members=(2,)))
    assert result.points[2].reason == "cannot keep 9 of 4 heads"
    assert "k9-m2-b0: cannot keep 9 of 4 heads" in result.table()
    with pytest.raises(UsageError, match="no point of the grid is possible"):
        swept(model, tmp_path / "other", grid=Grid(keep=(9,)))
    with pytest.raises(ArtifactError, match="not the folder of an earlier run"):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "file").touch()
        swept(model, tmp_path / "mine")
    with pytest.raises(UsageError, match="no set to measure"):
        swept(model, tmp_path / "none", data=None, validation=None, options=Prune(method="random"))
    fused = sweeping.fuse_models([model, model])
    with pytest.raises(ModelError, match="a fused model cannot be pruned"):
        swept(fused, tmp_path / "fused")


def test_a_point_whose_answers_are_no_numbers_is_told_and_the_others_are_measured(
    model: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sweeping.fuse_models

    def broken(members: list[Transformer]) -> Transformer:
        fused = whole(members)
        if len(members) == 3:
            fused.head.classifier.weight.data.fill_(float("inf"))  # type: ignore[union-attr,operator]
        return fused

    monkeypatch.setattr(sweeping, "fuse_models", broken)
    points = swept(model, tmp_path / "sweep", grid=Grid(keep=(2,), members=(2, 3))).points
    assert points[1].reason is None
    assert str(points[2].reason).startswith("the logits of all 16 inputs of the test set are not finite")


def test_saved_scores_serve(model: Transformer, tmp_path: Path) -> None:
    prune(model, tmp_path / "pruned", data=samples(model, 12), options=Prune(keep=2), runtime=CPU)
    small = Grid(keep=(1, 2), members=(3,))
    again = swept(model, tmp_path / "again", grid=small, data=None, scores=tmp_path / "pruned")
    assert again.points == swept(model, tmp_path / "fresh", grid=small).points


def test_other_scores_of_the_same_method_and_data_are_measured_again(model: Transformer, tmp_path: Path) -> None:
    small = Grid(keep=(1,), members=(1,))
    results = []
    for seed in (0, 1):
        options = Prune(method="random", keep=1, members=1, seed=seed)
        prune(model, tmp_path / f"pruned-{seed}", options=options, runtime=CPU)
        given = {"grid": small, "options": Prune(method="random"), "scores": tmp_path / f"pruned-{seed}"}
        results.append(swept(model, tmp_path / "sweep", **given).points)
        assert results[-1] == swept(model, tmp_path / f"fresh-{seed}", **given).points
    assert results[0] != results[1]


def test_a_combination_that_is_given_twice_is_one_point() -> None:
    assert Grid(keep=(1, 1, 1.0), members=(2,)).names() == ["k1-m2-b0", "k1.0-m2-b0"]


class TestFrontier:
    @staticmethod
    def result(*points: tuple[float, float, float]) -> SweepResult:
        made = [
            SweepPoint(name=f"p{number}", flops=flops, metrics={"cls/accuracy": accuracy, "cal/ece": ece})
            for number, (flops, accuracy, ece) in enumerate(points)
        ]
        data = {"reference": "x", "fingerprint": "y", "samples": 1}
        return SweepResult.model_validate({"method": "taylor", "data": data, "points": made})

    def test_by_hand(self) -> None:
        result = self.result((10, 0.9, 0.1), (20, 0.9, 0.05), (20, 0.8, 0.2), (30, 0.95, 0.2), (10, 0.9, 0.1))
        assert result.frontier() == ("p0", "p1", "p3", "p4")
        assert result.frontier(["cls/accuracy"]) == ("p0", "p3", "p4")
        assert result.frontier(["cal/ece"]) == ("p0", "p1", "p4")

    def test_a_point_without_a_figure_is_on_no_frontier(self) -> None:
        result = self.result((10, 0.9, 0.1), (5, 0.9, 0.1))
        broken = result.points[1].model_copy(update={"metrics": {"cls/accuracy": None, "cal/ece": 0.0}})
        assert result.model_copy(update={"points": (result.points[0], broken)}).frontier() == ("p0",)


class TestCommand:
    ARGUMENTS = (
        *("sweep", "builtin:digits-vit", "--data", "builtin:digits#calibration", "--ood", "builtin:photos"),
        *("--keep", "4,0.5", "--members", "2", "--branch-layer", "5", "--trunk-keep", "12"),
    )

    def test_the_recipe_that_was_written_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        done = SimpleNamespace(table=lambda: "points", to_json=lambda: "{}")
        monkeypatch.setattr("compress.sweeping.sweep.sweep", lambda *arguments, **options: done)
        out, file = tmp_path / "sweep", tmp_path / "chosen.yaml"
        assert main([*self.ARGUMENTS, "-o", str(out), "--write-recipe", "k4-m2-b5", str(file)]) == 0
        assert capsys.readouterr().out == f"points\nwritten to {out}; recipe: {file}\n"
        assert file.exists()

    @pytest.mark.slow
    def test_table_pictures_json_and_a_recipe_that_makes_the_point(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "chosen.yaml"
        out = ["-o", str(tmp_path / "sweep"), "--json", "-", "--write-recipe", "k4-m2-b5", str(file)]
        assert main([*self.ARGUMENTS, *out]) == 0
        plain = json.loads(capsys.readouterr().out)
        assert [point["name"] for point in plain["points"]] == ["single", "k4-m2-b5", "k0.5-m2-b5"]
        assert (tmp_path / "sweep" / "pareto.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (tmp_path / "sweep" / "pareto.svg").read_bytes()
        result = run_recipe(read_recipe(file), tmp_path / "run").outcomes[-1].report
        assert result is not None
        models = result.plain["models"]  # type: ignore[index]
        fused = next(model for model in models if model["name"] == "fused")
        assert fused["cost"]["flops"] == plain["points"][1]["flops"]
        assert fused["metrics"]["cls/accuracy"] == pytest.approx(plain["points"][1]["metrics"]["cls/accuracy"])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (["--keep", "4,x"], "'x' is neither a count (4) nor a fraction"),
            (["--keep", "0"], "--keep"),
            (["--members", "1.5"], "--members"),
            (["--branch-layer", "-1"], "--branch-layer"),
            (["--write-recipe", "k5-m2-b5", "x.yaml"], "the sweep has no point 'k5-m2-b5'; did you mean"),
            (
                ["--method", "random", "--scores", "s", "--write-recipe", "k4-m2-b5", "x.yaml"],
                "a recipe draws random scores anew",
            ),
        ],
    )
    def test_what_is_wrong_is_said_before_anything_is_computed(
        self, change: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([*self.ARGUMENTS, *change, "-o", str(tmp_path / "sweep")]) == 2
        assert message in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []
