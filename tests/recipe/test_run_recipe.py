from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compress.distributed import Processes
from compress.errors import ArtifactError, DataError, RecipeError, UsageError
from compress.recipe.read import read_recipe
from compress.recipe.run import RunResult, StageOutcome, describe_complete, run_recipe
from compress.recipe.schema import Recipe
from compress.recipe.stages.base import Stage
from compress.registry import Registry

Stages = Registry[type[Stage[Any]]]
Executed = Callable[[], list[str]]

TEXT = """\
model: ./model
data: {{calibration: ./set.csv}}
stages:
  - split: {{text: {first}, seed: {seed}}}
  - join: {{text: {second}}}
  - count
"""


@pytest.fixture
def recipe(write: Callable[[str], Path], toy_stages: Stages, tmp_path: Path) -> Callable[..., Recipe]:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("w")
    (tmp_path / "set.csv").write_text("text,label\ngood,yes\nbad,no\n")

    def read(first: str = "a", second: str = "b", seed: int = 0) -> Recipe:
        return read_recipe(write(TEXT.format(first=first, second=second, seed=seed)), stages=toy_stages)

    return read


@pytest.fixture
def run(toy_stages: Stages, tmp_path: Path) -> Callable[..., RunResult]:
    def run_in_out(recipe: Recipe, **options: Any) -> RunResult:
        return run_recipe(recipe, tmp_path / "out", stages=toy_stages, **options)

    return run_in_out


ALL = ["01-split", "02-join", "03-count"]


def test_every_stage_runs_once_and_then_is_skipped(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], executed: Executed, tmp_path: Path
) -> None:
    first = run(recipe())
    assert executed() == ALL
    assert (tmp_path / "out" / "02-join" / "text").read_text() == "ab"
    again = run(recipe())
    assert executed() == []
    assert [outcome.digest for outcome in again.outcomes] == [outcome.digest for outcome in first.outcomes]
    assert [outcome.computed for outcome in again.outcomes] == [False] * 3


def test_fresh_computes_everything(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], executed: Executed
) -> None:
    run(recipe())
    run(recipe(), fresh=True)
    assert executed() == ALL * 2


@pytest.mark.parametrize(
    ("change", "redone"),
    [
        ({"first": "x"}, ALL),
        ({"second": "x"}, ["02-join", "03-count"]),
        # The seed changes the first stage's key but not what it writes, so what follows is still right.
        ({"seed": 7}, ["01-split"]),
    ],
)
def test_an_edited_recipe_redoes_what_changed_and_no_more(
    recipe: Callable[..., Recipe],
    run: Callable[..., RunResult],
    executed: Executed,
    change: dict[str, Any],
    redone: list[str],
) -> None:
    run(recipe())
    executed()
    run(recipe(**change))
    assert executed() == redone


def test_changed_data_and_a_changed_model_count(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], executed: Executed, tmp_path: Path
) -> None:
    run(recipe())
    executed()
    (tmp_path / "set.csv").write_text("text,label\ngood,yes\nbad,yes\n")
    run(recipe())
    assert executed() == ["01-split"]
    (tmp_path / "model" / "weights").write_text("v")
    run(recipe())
    assert executed() == ALL


def test_a_moved_model_and_moved_data_do_not_count(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], executed: Executed, tmp_path: Path
) -> None:
    old = recipe()
    run(old)
    executed()
    (tmp_path / "model").rename(tmp_path / "moved")
    (tmp_path / "set.csv").rename(tmp_path / "moved.csv")
    model = old.model.model_copy(update={"name": str(tmp_path / "moved")})
    data = old.data.model_copy(update={"calibration": str(tmp_path / "moved.csv")})
    run(old.model_copy(update={"model": model, "data": data}))
    assert executed() == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "text").unlink(),
        lambda folder: (folder / "text").write_text("aX"),
        lambda folder: (folder / "text").write_text(""),
        lambda folder: (folder / "MANIFEST.json").unlink(),
        lambda folder: (folder / "MANIFEST.json").write_text("{"),
        shutil.rmtree,
    ],
    ids=["file gone", "bit flipped", "file empty", "manifest gone", "manifest cut", "folder gone"],
)
@pytest.mark.parametrize("stage", ALL)
def test_a_broken_artifact_is_done_again_and_the_others_are_not(
    recipe: Callable[..., Recipe],
    run: Callable[..., RunResult],
    executed: Executed,
    tmp_path: Path,
    stage: str,
    damage: Callable[[Path], object],
) -> None:
    before = run(recipe())
    executed()
    damage(tmp_path / "out" / stage)
    after = run(recipe())
    assert executed() == [stage]
    assert [outcome.digest for outcome in after.outcomes] == [outcome.digest for outcome in before.outcomes]


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"key": 1, "digest": 2}', "\x00" * 100])
def test_a_lost_or_damaged_record_means_to_do_the_stage_again(
    recipe: Callable[..., Recipe],
    run: Callable[..., RunResult],
    executed: Executed,
    tmp_path: Path,
    content: str | None,
) -> None:
    run(recipe())
    executed()
    record = tmp_path / "out" / "state" / "02-join.json"
    record.unlink() if content is None else record.write_text(content)
    run(recipe())
    assert executed() == ["02-join"]


def test_an_artifact_put_in_anothers_place_is_found(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], executed: Executed, tmp_path: Path
) -> None:
    run(recipe())
    executed()
    shutil.rmtree(tmp_path / "out" / "02-join")
    shutil.copytree(tmp_path / "out" / "01-split", tmp_path / "out" / "02-join")
    run(recipe())
    assert executed() == ["02-join"]
    assert (tmp_path / "out" / "02-join" / "text").read_text() == "ab"


def test_a_failing_stage_says_where_and_leaves_what_was_complete(
    toy_stages: Stages, write: Callable[[str], Path], executed: Executed, tmp_path: Path
) -> None:
    recipe = read_recipe(write("model: m\nstages:\n  - split\n  - join: {name: glue, fail: true}"), stages=toy_stages)
    complete: list[StageOutcome] = []
    with pytest.raises(DataError) as caught:
        run_recipe(recipe, tmp_path / "out", stages=toy_stages, finished=complete.append)
    assert str(caught.value) == "stage 02-glue, --fail: the toy broke; do not ask for it"
    assert describe_complete(complete).startswith(f"complete so far: {tmp_path / 'out' / '01-split'};")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["01-split", "logs", "recipe.yaml", "state"]
    assert describe_complete([]) == "no stage was completed"


def test_a_kill_between_artifact_and_record_is_survived(
    recipe: Callable[..., Recipe],
    run: Callable[..., RunResult],
    executed: Executed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(recipe())
    executed()

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("compress.recipe.run.write_record", killed)
        run(recipe(second="x"))
    assert executed() == ["02-join"]
    run(recipe())
    # Its record does not fit the artifact any more; what it is computed to is what 03-count was computed from.
    assert executed() == ["02-join"]


def test_the_result_has_a_table_json_and_gates(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], tmp_path: Path
) -> None:
    result = run(recipe(second="bcd"))
    assert result.table().startswith("letters 5")
    assert str(tmp_path / "out" / "02-join") in result.table()
    assert result.failed_gates() == ("03-count: too many letters",)
    plain = json.loads(json.dumps(result.to_plain()))
    assert [stage["stage"] for stage in plain["stages"]] == ["split", "join", "count"]
    assert plain["stages"][2]["result"] == {"letters": 5}
    assert run(recipe()).failed_gates() == ()


def test_the_resolved_recipe_is_stored(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], toy_stages: Stages, tmp_path: Path
) -> None:
    run(recipe())
    assert read_recipe(tmp_path / "out" / "recipe.yaml", stages=toy_stages) == recipe()


def test_a_folder_of_something_else_is_not_touched(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(ArtifactError, match="not the folder of an earlier run"):
        run(recipe())
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]


def test_several_processes_are_refused(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compress.recipe.run.processes", lambda device: Processes(1, 2))
    with pytest.raises(UsageError, match="a recipe runs in a single process; run it without the launcher"):
        run(recipe())
    assert not (tmp_path / "out").exists()


def test_data_are_opened_before_anything_is_computed(
    recipe: Callable[..., Recipe], run: Callable[..., RunResult], executed: Executed, tmp_path: Path
) -> None:
    ready = recipe()
    (tmp_path / "set.csv").unlink()
    with pytest.raises(DataError, match="no such file"):
        run(ready)
    assert executed() == []


@pytest.mark.parametrize(
    ("stages", "part"),
    [
        ("[join]", "join starts from a set of pruned members, but the stages before it leave one model"),
        ("[split, split]", "split starts from one model"),
    ],
)
def test_stages_in_a_wrong_order_are_refused_before_anything_is_written(
    toy_stages: Stages, write: Callable[[str], Path], tmp_path: Path, stages: str, part: str
) -> None:
    recipe = read_recipe(write(f"model: m\nstages: {stages}"), stages=toy_stages)
    with pytest.raises(RecipeError, match=part):
        run_recipe(recipe, tmp_path / "out", stages=toy_stages)
    assert not (tmp_path / "out").exists()
