"""A recipe over the real stages, on a tiny random vision transformer and the built-in digits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from compress.cli.main import main
from compress.errors import CompressError, UsageError
from compress.evaluation.result import EvaluationResult
from compress.recipe.plan import describe_heads, plan_recipe
from compress.recipe.read import read_recipe
from compress.recipe.run import RunResult, run_recipe
from compress.recipe.stages.base import StageInputs
from compress.recipe.stages.evaluate import EvaluateEntry, EvaluateStage
from compress.recipe.stages.fuse import FuseStage
from compress.recipe.stages.prune import PruneStage
from compress.transformer.config import Structure

SIZES = {"img_size": 8, "patch_size": 4, "in_chans": 1, "embed_dim": 24, "depth": 3, "num_heads": 4}
DRAWN = "mean: [0.5], std: [0.5], resize: squash, interpolation: bilinear"
TEXT = f"""\
model:
  adapter: timm
  name: vit_tiny_patch16_224
  weights: vit.safetensors
  labels: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
  arguments: {json.dumps(SIZES)}
  preprocessing: {{mean: [0.5], std: [0.5]}}
data:
  calibration: builtin:digits#calibration
  test: builtin:digits#test
  ood: {{photos: builtin:photos}}
stages:
  - prune: {{members: 2, keep: 2, branch_layer: 1, trunk_keep: 0.75, max_overlap: 0.4}}
  - fuse
  - eval: {{compare: [single, members], latency: false, intervals: false}}
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, **SIZES)
    save_file(model.state_dict(), folder / "vit.safetensors")
    path = folder / "recipe.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def result(recipe: Path) -> RunResult:
    return run_recipe(read_recipe(recipe), recipe.parent / "out")


def test_the_table_compares_single_members_and_fused(result: RunResult) -> None:
    stored = EvaluationResult.from_json((result.out / "03-eval" / "result.json").read_text())
    assert [(model.name, model.kind, model.baseline) for model in stored.models] == [
        ("single", "single", True),
        ("members", "members", True),
        ("fused", "fused", False),
    ]
    for name in ("cls/accuracy", "cal/ece", "ood/photos/auroc"):
        assert stored.value("fused", name) == pytest.approx(stored.value("members", name), abs=1e-4)
    assert "fused" in result.table()


def test_what_is_hashed_holds_no_time_and_no_path(result: RunResult, recipe: Path) -> None:
    for path in result.out.rglob("*.json"):
        if path.name != "result.json":
            assert str(recipe.parent) not in path.read_text()
    metrics = (result.out / "03-eval" / "metrics.json").read_text()
    assert "latency" not in metrics
    assert "environment" not in metrics


def test_a_run_elsewhere_gives_the_same_digests(result: RunResult, recipe: Path, tmp_path: Path) -> None:
    again = run_recipe(read_recipe(recipe), tmp_path / "again")
    assert [outcome.digest for outcome in again.outcomes] == [outcome.digest for outcome in result.outcomes]


def test_a_report_is_named_after_the_table(result: RunResult) -> None:
    folder, stage = result.out / "03-eval", EvaluateStage()
    assert stage.report(folder, EvaluateEntry(report=True)).table.endswith(f"\nreport: {folder}/report/index.html")
    assert "report:" not in stage.report(folder, EvaluateEntry()).table


@pytest.mark.parametrize("damage", ["{", '{"models": []}'])
def test_a_damaged_result_is_evaluated_again(result: RunResult, recipe: Path, damage: str) -> None:
    (result.out / "03-eval" / "result.json").write_text(damage)
    again = run_recipe(read_recipe(recipe), result.out)
    assert [outcome.computed for outcome in again.outcomes] == [False, False, True]


def test_a_gate_of_the_recipe_decides_the_exit_code(
    result: RunResult, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = "eval.fail_if=['cls/accuracy <= 1', 'cls/accuracy < single - 2']"
    assert main(["run", str(recipe), "-o", str(result.out), "--set", gates]) == 3
    printed = capsys.readouterr()
    assert "fused" in printed.out
    assert 'gate "cls/accuracy <= 1" failed for fused' in printed.err
    assert "failed for single" not in printed.err


class TestPlan:
    def test_heads_parameters_and_flops_are_those_of_the_run(self, result: RunResult, recipe: Path) -> None:
        plan = plan_recipe(read_recipe(recipe), result.out)
        stored = EvaluationResult.from_json((result.out / "03-eval" / "result.json").read_text())
        costs = {model.name: model.cost for model in stored.models}
        members, fused = plan.stages[0].model, plan.stages[1].model
        assert members is not None
        assert fused is not None
        for planned, name in ((plan.start, "single"), (members, "members"), (fused, "fused")):
            assert (planned.parameters, planned.flops) == (costs[name].params, costs[name].flops)
        assert describe_heads(fused.structure) == "0: 3, 1-2: 2 x 2"

    def test_nothing_is_written(self, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(recipe), "-o", str(tmp_path / "out"), "--dry-run"]) == 0
        assert list(tmp_path.iterdir()) == []
        page = capsys.readouterr().out
        assert "01-prune" in page
        assert "0: 3, 1-2: 2 x 2" in page
        assert str(tmp_path / "out") in page

    def test_json(self, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(recipe), "-o", str(tmp_path / "out"), "--dry-run", "--json", "-"]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert plan["stages"][0]["model"]["heads_per_layer"] == [[3], [2, 2], [2, 2]]
        assert plan["model"]["width"] == 24

    @pytest.mark.parametrize(
        ("assignment", "part"),
        [
            ("prune.keep=5", "cannot keep 5 of 4 heads"),
            ("prune.branch_layer=3", "leaves no layer in which members could differ"),
            ("data.test=./absent", "no such file or folder"),
            ("model.weights=./absent.safetensors", "no such file or folder"),
        ],
    )
    def test_what_cannot_work_is_refused(self, recipe: Path, tmp_path: Path, assignment: str, part: str) -> None:
        with pytest.raises(CompressError, match=part):
            plan_recipe(read_recipe(recipe, [assignment]), tmp_path / "out")

    def test_a_planned_structure(self) -> None:
        whole = Structure.original((4, 4, 4))
        options = PruneStage.options(members=3, keep=0.5, branch_layer=1, trunk_keep=1.0)
        pruned = PruneStage().plan(whole, options)
        assert [[len(heads) for heads in layer] for layer in pruned.kept_heads] == [[4], [2, 2, 2], [2, 2, 2]]
        fused = FuseStage().plan(pruned, FuseStage.options(mlp="grouped"))
        assert (fused.mlp, fused.members, fused.branch_layer) == ("grouped", 3, 1)
        with pytest.raises(CompressError, match="fused model cannot be pruned"):
            PruneStage().plan(fused, options)


class TestCommands:
    """The single commands write what the recipe's stages write."""

    def test_prune_fuse_eval_and_inspect(
        self, result: RunResult, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # An artifact of the unpruned model: one member that keeps everything.
        source = str(result.out / "01-prune" / "member-0")
        pruned, fused, report = tmp_path / "p q", tmp_path / "漢字", tmp_path / "r.json"
        data = ["--data", "builtin:digits#calibration"]
        options = ["--members", "2", "--keep", "1", "--branch-layer", "1", "--max-overlap", "0.3"]
        assert main(["prune", source, "-o", str(pruned), *data, *options]) == 0
        assert "member-1" in capsys.readouterr().out
        assert main(["prune", source, "-o", str(pruned), *data, *options]) == 2
        assert "is not empty" in capsys.readouterr().err
        assert main(["prune", source, "-o", str(pruned), *data, *options, "--overwrite", "--json", "-"]) == 0
        assert [len(layer) for layer in json.loads(capsys.readouterr().out)["kept_heads"][0]] == [1, 1, 1]

        assert main(["fuse", str(pruned), "-o", str(fused)]) == 0
        assert "2 members in one model" in capsys.readouterr().out

        test = ["--data", "builtin:digits#test", "--ood", "builtin:photos", "--no-latency", "--no-intervals"]
        assert main(["eval", source, f"two={pruned}", str(fused), *test, "--json", str(report)]) == 0
        assert [model["name"] for model in json.loads(report.read_text())["models"]] == ["member-0", "two", "漢字"]
        capsys.readouterr()

        assert main(["inspect", str(fused)]) == 0
        page = capsys.readouterr().out
        assert "2 members" in page
        assert "1+1/4" in page
        assert main(["inspect", str(fused), "--json", "-"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["labels"] == [str(digit) for digit in range(10)]
        assert sum(layer["parameters"] for layer in shown["layers"]) < shown["parameters"]
        assert main(["inspect", str(pruned)]) == 2
        assert "not one model" in capsys.readouterr().err

    def test_scores_are_used_again_without_data(self, result: RunResult, recipe: Path, tmp_path: Path) -> None:
        source = str(result.out / "01-prune" / "member-0")
        again = ["prune", source, "--keep", "1", "--members", "2", "--quiet"]
        assert main([*again, "-o", str(tmp_path / "a"), "--data", "builtin:digits#calibration"]) == 0
        assert main([*again, "-o", str(tmp_path / "b"), "--scores", str(tmp_path / "a" / "scores.safetensors")]) == 0
        assert main([*again, "-o", str(tmp_path / "c")]) == 2

    def test_weights_go_to_one_model(self, result: RunResult, recipe: Path) -> None:
        line = ["eval", "timm:a", "x=timm:b", "--data", "builtin:digits#test", "--weights", "w.safetensors"]
        assert main(line) == 2


def test_data_columns_are_for_tables_only(recipe: Path, tmp_path: Path) -> None:
    from compress.recipe.stages.base import open_recipe_data

    (tmp_path / "reviews.csv").write_text("body,stars,other\ngood,5,x\nbad,1,y\n")
    assignments = ["data.text_column=body", "data.label_column=stars", f"data.train={tmp_path / 'reviews.csv'}"]
    sources = read_recipe(recipe, assignments).data
    assert sources.train is not None
    table = open_recipe_data(sources, sources.train)
    assert table.class_names == ("1", "5")
    assert len(open_recipe_data(sources, "builtin:digits#test")) > 0


def test_evaluation_is_refused_before_anything_is_computed(recipe: Path, tmp_path: Path) -> None:
    for assignment, part in (
        ("eval.fail_if=['cal/ec > 0.1']", "did you mean 'cal/ece'?"),
        ("eval.fail_if=['cls/accuracy < singel']", "did you mean 'single'?"),
        ("eval.fail_if=['ood/svhn/auroc < 0.5']", "unknown metric"),
    ):
        with pytest.raises(UsageError) as caught:
            run_recipe(read_recipe(recipe, [assignment]), tmp_path / "out")
        assert part in str(caught.value)
        assert "03-eval" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_recipes_seed_draws_what_the_model_lacks(tmp_path: Path) -> None:
    """A classifier that starts anew, or random weights; without it every seed would start from the same."""
    path = tmp_path / "recipe.yaml"
    path.write_text(TEXT.replace("vit.safetensors", "random").replace("mean: [0.5], std: [0.5]", DRAWN), "utf-8")
    weights = []
    for seed in (0, 0, 1):
        inputs = StageInputs(read_recipe(path, [f"seed={seed}"]), tmp_path / "out")
        weights.append(next(inputs.recipe_model().parameters()))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
