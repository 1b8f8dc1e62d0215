from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.errors import RecipeError
from compress.pruning.options import Prune
from compress.recipe.read import read_recipe
from compress.recipe.schema import StageEntry

GOOD = """\
model: {adapter: timm, name: vit_base_patch16_224, weights: ./vit.safetensors}
data: {train: ./train, calibration: ./cal, test: ./test, ood: {svhn: ./svhn}}
seed: 3
stages:
  - prune: {method: taylor, members: 3, keep: 4, branch_layer: 9}
  - fuse: {}
  - eval: {fail_if: ["cal/ece > 0.05", "cls/accuracy < 0.80"]}
"""

KEYS = ["model", "data", "stages", "seed", "runtime", "name", "keep", "prune", "ood", "labels", "compare", "train"]
ASSIGNMENTS = ["seed=1", "prune.keep=4", "prune.a.b.c=4", "data.ood.x=y", "model.labels=[a]", "model=x", "keep.x=1"]
Write = Callable[[str], Path]


def message(path: Path, *assignments: str) -> str:
    with pytest.raises(RecipeError) as caught:
        read_recipe(path, assignments)
    return str(caught.value)


def test_a_recipe_is_resolved(write: Write, tmp_path: Path) -> None:
    recipe = read_recipe(write(GOOD))
    assert recipe.model.reference == "timm:vit_base_patch16_224"
    assert recipe.model.weights == str(tmp_path / "vit.safetensors")
    assert recipe.data.ood == {"svhn": str(tmp_path / "svhn")}
    assert recipe.folder_names() == ("01-prune", "02-fuse", "03-eval")
    prune = recipe.stages[0].options
    assert isinstance(prune, Prune)
    assert (prune.keep, prune.branch_layer, prune.seed) == (4, 9, 3)


def test_the_resolved_recipe_reads_back_as_the_same(write: Write, tmp_path: Path) -> None:
    recipe = read_recipe(write(GOOD))
    again = tmp_path / "elsewhere" / "resolved.yaml"
    again.parent.mkdir()
    again.write_text(recipe.to_yaml(), encoding="utf-8")
    assert read_recipe(again) == recipe


def test_a_stage_may_be_a_bare_word_and_have_a_name(write: Write) -> None:
    recipe = read_recipe(write("model: m\nstages:\n  - prune: {name: narrow, seed: 5}\n  - fuse\n  - fuse:\n"))
    assert [(entry.stage, entry.name) for entry in recipe.stages] == [
        ("prune", "narrow"),
        ("fuse", "fuse"),
        ("fuse", "fuse"),
    ]
    assert recipe.stages[0].options == Prune(seed=5)


@pytest.mark.parametrize(
    ("body", "line", "parts"),
    [
        ("  - prune: {ratioo: 0.5}", 3, ["unknown key 'ratioo' in stage prune", "did you mean 'keep'?"]),
        ("  - prune: {membres: 3}", 3, ["unknown key 'membres'", "did you mean 'members'?"]),
        ("  - prune:\n      keep: 4\n      branchlayer: 3", 5, ["did you mean 'branch_layer'?"]),
        ("  - prune:\n    keep: 4", 4, ["'keep' stands beside 'prune'", "belongs one level deeper"]),
        ("  - prune: {}\n    fuse: {}", 4, ["start a new item '- fuse:'"]),
        ("  - prun: {}", 3, ["unknown stage 'prun'", "did you mean 'prune'?"]),
        ("  - keep: 4", 3, ["unknown stage 'keep'", "'keep' belongs under stages: - prune:"]),
        ("  - fuse: {keep: 4}", 3, ["'keep' in stage fuse", "'keep' belongs under stages: - prune:"]),
        ("  - prune: {device: cpu}", 3, ["'device' belongs under runtime:"]),
        ("  - prune: {keep: 0}", 3, ["'keep' in stage prune is 0 but must be"]),
        ("  - prune: {keep: 1.5}", 3, ["'keep' in stage prune is 1.5"]),
        ("  - prune: {members: 12:30}", 3, ["'members' in stage prune is '12:30' but must be a valid integer"]),
        ("  - prune: {members: true}", 3, ["'members' in stage prune is true but must be a number"]),
        ("  - prune: {keep: false}", 3, ["'keep' in stage prune is false"]),
        ("  - prune: {max_overlap: .nan}", 3, ["not a finite number"]),
        ("  - prune: {max_overlap: half}", 3, ["'max_overlap' in stage prune is 'half' but must be a valid number"]),
        ("  - prune: {method: tailor}", 3, ["'method' in stage prune is 'tailor'", "did you mean 'taylor'?"]),
        ("  - prune: {keep: 4, keep: 5}", 3, ["'keep' is given twice"]),
        ("  - prune: 4", 3, ["the keys of stage prune are not a mapping"]),
        ("  - [prune]", 3, ["a stage is its name and its keys"]),
        ("  - eval: {compare: [singel]}", 3, ["is 'singel'", "did you mean 'single'?"]),
        ("  - eval: {fail_if: cal/ece > 1}", 3, ["'fail_if' in stage eval is 'cal/ece > 1' but must be a list"]),
        ("  - prune: {name: data}", 3, ["'data' is a section of every recipe"]),
        ("  - prune: {name: ../up}", 3, ["'name' in stage prune is '../up'"]),
        ("  prune: {keep: 4}", 2, ["stages is a mapping, not a list", "'- prune:'"]),
        ("  []", 2, ["the recipe has no stages"]),
    ],
)
def test_errors_in_stages_name_line_and_cure(write: Write, body: str, line: int, parts: list[str]) -> None:
    path = write(f"model: builtin:digits-vit\nstages:\n{body}\n")
    found = message(path)
    assert found.startswith(f"{path}:{line}: ")
    for part in parts:
        assert part in found


@pytest.mark.parametrize(
    ("head", "line", "parts"),
    [
        ("model: m\nkeep: 4", 2, ["unknown key 'keep'", "'keep' belongs under stages: - prune:"]),
        ("model: m\nprune: {keep: 4}", 2, ["'prune' is a stage and belongs in the list under stages: - prune:"]),
        ("model: m\ntrain: ./x", 2, ["'train' belongs under data:"]),
        ("model: m\nweights: ./x", 2, ["'weights' belongs under model:"]),
        ("model: m\nbatch_size: 4", 2, ["'batch_size' belongs under runtime:"]),
        ("model: m\ndta: {}", 2, ["unknown key 'dta'", "did you mean 'data'?"]),
        ("model: m\ndata:\n  cal: ./x", 3, ["unknown key 'cal' under data:", "did you mean 'calibration'?"]),
        ("model: m\ndata:\n  seed: 1", 3, ["'seed' belongs at the top level"]),
        ("model: m\ndata: ./x", 2, ["'data' is not a mapping"]),
        ("model: m\ndata: {ood: ./x}", 2, ["'ood' under data: is './x' but must be a mapping"]),
        ("model: m\ndata: {ood: {'a/b': ./x}}", 2, ["'ood.a/b'"]),
        ("model: {adapter: timm}", 1, ["the key 'name' is missing under model:"]),
        ("model: {name: x, labels: [yes, true]}", 1, ["put it in quotes"]),
        ("data: {}", 1, ["the key 'model' is missing"]),
        ("model: m\nseed: 1.5", 2, ["'seed' is 1.5"]),
        ("model: m\nruntime: {dtype: fp16}", 2, ["did you mean 'float16'?"]),
    ],
)
def test_errors_outside_stages_name_line_and_cure(write: Write, head: str, line: int, parts: list[str]) -> None:
    path = write(f"{head}\nstages:\n  - fuse\n")
    found = message(path)
    assert found.startswith((f"{path}:{line}: ", f"{path}:1: " if "missing" in found else f"{path}:{line}: "))
    for part in parts:
        assert part in found


def test_labels_may_be_numbers_and_yaml_words(write: Write) -> None:
    recipe = read_recipe(write("model: {name: m, labels: [0, 7, yes, no, on, 010, café]}\nstages: [fuse]"))
    assert recipe.model.labels == ("0", "7", "yes", "no", "on", "010", "café")


@pytest.mark.parametrize(
    ("written", "meant"), [("1e-1", 0.1), ('"0.1"', 0.1), ("0.1", 0.1), ("1_000", 1000), ("'4'", 4), ("4", 4)]
)
def test_numbers_are_read_as_meant(write: Write, written: str, meant: float) -> None:
    recipe = read_recipe(write(f"model: m\nstages:\n  - prune: {{keep: {written}}}"))
    options = recipe.stages[0].options
    assert isinstance(options, Prune)
    assert options.keep == meant
    assert type(options.keep) is type(meant)


def test_all_problems_are_counted(write: Write) -> None:
    found = message(write("model: m\nstages:\n  - prune: {ratioo: 1, keep: 0}\n  - fus"))
    assert "unknown key 'ratioo' in stage prune (and 2 more problems)" in found


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a", "just text"])
def test_what_is_no_recipe_is_refused(write: Write, text: str) -> None:
    assert "start with" in message(write(text))


class TestPaths:
    def test_root_is_the_start_of_relative_references(self, write: Write, tmp_path: Path) -> None:
        written = "{root: sets, train: a#train, test: /abs, calibration: builtin:digits#train}"
        data = read_recipe(write(f"model: ./m\ndata: {written}\nstages: [fuse]")).data
        assert data.train == str(tmp_path / "sets" / "a#train")
        assert data.test == "/abs"
        assert data.calibration == "builtin:digits#train"

    def test_set_values_start_at_the_working_directory(
        self, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write("model: ./m\ndata: {train: ./a}\nstages: [fuse]")
        elsewhere = tmp_path / "with blank 漢"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        recipe = read_recipe(path, ["data.test=./t", "data.ood.svhn=s.csv"])
        assert recipe.data.train == str(tmp_path / "a")
        assert recipe.data.test == str(elsewhere / "t")
        assert recipe.data.ood == {"svhn": str(elsewhere / "s.csv")}
        assert read_recipe(path, ["data.root=."]).data.train == str(elsewhere / "a")

    def test_weights_are_a_file_or_a_tag(self, write: Write, tmp_path: Path) -> None:
        (tmp_path / "laion").write_text("x")
        for written, expected in (("laion2b", "laion2b"), ("laion", str(tmp_path / "laion"))):
            path = write(f"model: {{adapter: open_clip, name: ViT-B-32, weights: {written}}}\nstages: [fuse]")
            assert read_recipe(path).model.weights == expected

    def test_a_local_hub_folder_is_relative_to_the_recipe(self, write: Write, tmp_path: Path) -> None:
        recipe = read_recipe(write("model: hf:./bert\nstages: [fuse]"))
        assert recipe.model.reference == f"hf:{tmp_path / 'bert'}"
        assert read_recipe(write("model: hf:org/bert\nstages: [fuse]")).model.reference == "hf:org/bert"


class TestSet:
    @pytest.fixture
    def recipe(self, write: Write) -> Path:
        return write("model: timm:vit\ndata: {test: t}\nstages:\n  - prune\n  - fuse\n  - prune: {name: second}")

    def stage(self, path: Path, *assignments: str, index: int = 0) -> StageEntry:
        return read_recipe(path, assignments).stages[index]

    def test_values_are_typed(self, recipe: Path) -> None:
        assert self.stage(recipe, "prune.keep=6").options == Prune(keep=6)
        assert self.stage(recipe, "prune.keep=1e-1").options == Prune(keep=0.1)
        assert self.stage(recipe, "second.method=random", index=2).options == Prune(method="random")

    def test_other_sections(self, recipe: Path) -> None:
        found = read_recipe(
            recipe,
            ["seed=7", "runtime.device=cpu", "model.weights=laion", "model.labels=[a, b]", "prune.name=first"],
        )
        assert (found.seed, found.runtime.device, found.model.weights) == (7, "cpu", "laion")
        assert found.model.labels == ("a", "b")
        assert found.stages[0].name == "first"
        assert read_recipe(recipe, ["model=hf:org/bert"]).model.reference == "hf:org/bert"

    @pytest.mark.parametrize(
        ("assignment", "part"),
        [
            ("prune.kep=4", "did you mean 'keep'?"),
            ("prun.keep=4", "did you mean 'prune'?"),
            ("prune.keep=0", "'keep' in stage prune is 0"),
            ("prune.keep", "no 'key=value'"),
            ("=4", "no 'key=value'"),
            ("prune=4", "write prune.KEY=VALUE"),
            ("data=4", "write data.KEY=VALUE"),
            ("data.tset=x", "did you mean 'test'?"),
            ("seed.x=1", "is a value, not a section"),
            ("data.test.x=1", "'test' is a value, not a section"),
            ("prune.keep=[", "not valid YAML"),
            ("prune.keep=.nan", "not a finite number"),
        ],
    )
    def test_errors_name_the_option(self, recipe: Path, assignment: str, part: str) -> None:
        found = message(recipe, assignment)
        assert found.startswith(f"--set {assignment}: ")
        assert part in found

    def test_two_stages_of_one_name_must_be_told_apart(self, write: Write) -> None:
        path = write("model: m\nstages: [prune, fuse, prune]")
        assert "give each its own 'name:'" in message(path, "prune.keep=4")


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 99) | st.floats(0, 1) | st.sampled_from(["prune", "keep", "x", "1e9"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), junk, max_size=4), junk, st.sampled_from(ASSIGNMENTS))
def test_any_values_are_a_recipe_or_a_recipe_error(head: dict[str, Any], stages: Any, assignment: str) -> None:
    """A stranger's recipe never gets past the error family, whatever stands where."""
    text = json.dumps({"model": "m", "stages": [{"prune": stages}, stages], **head})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            read_recipe(path, [assignment])
        except RecipeError as error:
            assert error.where


def test_a_typo_is_answered_without_torch(write: Write) -> None:
    path = write("model: m\nstages:\n  - prune: {ratioo: 0.5}")
    code = (
        "import sys, time\n"
        "from compress.cli.main import main\n"
        f"code = main(['run', {str(path)!r}])\n"
        "print(code, 'torch' in sys.modules, time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    code_, torch_imported, seconds = done.stdout.split()
    assert (code_, torch_imported) == ("2", "False")
    assert float(seconds) < 1.0
    assert done.stderr.startswith(
        f"compress: error: {path}:3: unknown key 'ratioo' in stage prune; did you mean 'keep'?"
    )
    assert done.stderr.count("\n") == 1
