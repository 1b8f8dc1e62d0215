"""docs/troubleshooting.md quotes what the program says: most lines are provoked, the others' words are in the code.

What stands in ``<...>`` on the page is whatever the case puts there.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny.pictures import pictures, save_pictures

import compress
from compress.artifact.folder import new_folder
from compress.artifact.run_folder import opened_run
from compress.cli.main import main

ROOT = Path(__file__).parents[1]
PLACEHOLDER = re.compile(r"<[^>]+>")
ROWS = re.findall(r"^\| `(.+?)` \|", (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8"), re.M)
RECIPE = "model: builtin:digits-vit\ndata: {calibration: 'builtin:digits#calibration'}\nstages:\n"


def test_every_row_is_quoted_once() -> None:
    assert len(ROWS) >= 30
    assert len(set(ROWS)) == len(ROWS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder full of mistakes."""
    folder = tmp_path_factory.mktemp("mistakes")
    digits = pictures(4, ("0", "1"))
    save_pictures(digits, folder / "splits/train")
    save_pictures(digits, folder / "mixed")
    shutil.copy(next((folder / "mixed").rglob("*.png")), folder / "mixed/loose.png")
    save_pictures(pictures(4, ("cat", "dog")), folder / "animals")
    (folder / "broken/0").mkdir(parents=True)
    (folder / "broken/0/a.png").write_bytes(b"no picture")
    (folder / "no-model").mkdir()
    (folder / "weights.pt").write_bytes(b"no weights")
    save_file({"other": torch.zeros(1)}, folder / "other.safetensors")
    (folder / "columns.csv").write_text("one,two\na,b\n", encoding="utf-8")
    (folder / "ragged.csv").write_text("text,label\nfine,0\nwell, yes,1\n", encoding="utf-8")
    (folder / "texts.csv").write_text("text,label\nfine,0\n", encoding="utf-8")
    for name, stages in {
        "typo": "  - prune: {kep: 6}\n",
        "order": "  - fuse\n",
        "untested": "  - eval\n",
        "good": "  - prune: {method: magnitude, members: 2}\n",
    }.items():
        (folder / f"{name}.yaml").write_text(RECIPE + stages, encoding="utf-8")
    options = compress.Prune(method="magnitude", members=2, keep=6, branch_layer=3)
    compress.prune("builtin:digits-vit", folder / "pruned", options=options)
    compress.fuse(folder / "pruned", folder / "fused")
    for name in ("unlisted", "changed", "newer"):
        shutil.copytree(folder / "fused", folder / name)
    (folder / "unlisted/MANIFEST.json").unlink()
    config = folder / "changed/config.json"
    config.write_bytes(config.read_bytes().replace(b'"0"', b'"1"', 1))
    manifest = folder / "newer/MANIFEST.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format_version": 99}), encoding="utf-8")
    return folder


VIT, TEST = "builtin:digits-vit", "builtin:digits#test[:16]"
PRUNE = ("prune", VIT, "-o", "out")
# The beginning of a row's first fixed words, and a call that ends in it.
CALLS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("no such file or folder; give an artifact", ("inspect", "nowhere")),
    ("no model family recognises", ("inspect", "no-model")),
    ("a weights file alone", ("inspect", "weights.pt")),
    (
        "the weights do not fit",
        ("inspect", "timm:test_vit", "--weights", "other.safetensors", "--label", "a", "--label", "b"),
    ),
    (
        "holds more than tensors",
        ("inspect", "timm:test_vit", "--weights", "weights.pt", "--label", "a", "--label", "b"),
    ),
    (
        "is not supported",
        ("inspect", "timm:beit_base_patch16_224", "--weights", "random", "--label", "a", "--label", "b"),
    ),
    ("no weights are named", ("inspect", "open_clip:ViT-B-32", "--label", "a", "--label", "b")),
    ("neither a folder nor to be had", ("inspect", "hf:nobody/nothing")),
    ("cannot be used here", ("eval", VIT, "--data", TEST, "--device", "cuda:99")),
    ("try builtin:digits#test", ("eval", VIT, "--data", "nowhere")),
    ("holds splits, not classes", ("eval", VIT, "--data", "splits")),
    ("images lie beside", ("eval", VIT, "--data", "mixed")),
    ("no column looks like", ("eval", VIT, "--data", "columns.csv")),
    ("cells where the header", ("eval", VIT, "--data", "ragged.csv")),
    ("but the model reads", ("eval", VIT, "--data", "texts.csv")),
    ("the data are unlabelled", ("eval", VIT, "--data", "builtin:photos")),
    ("is none of the model's", ("eval", VIT, "--data", "animals")),
    ("the image cannot be read", ("eval", VIT, "--data", "broken")),
    ("unknown key", ("validate", "typo.yaml")),
    ("but the stages before it leave", ("validate", "order.yaml")),
    ("the recipe has no data", ("validate", "untested.yaml")),
    ("not the folder of an earlier run", ("run", "good.yaml", "-o", "splits")),
    ("is not empty", ("fuse", "pruned", "-o", "fused")),
    ("so it is not overwritten", ("fuse", "pruned", "-o", "splits", "--overwrite")),
    ("MANIFEST.json is missing", ("inspect", "unlisted")),
    ("was changed or damaged", ("inspect", "changed")),
    ("a newer version of compress", ("inspect", "newer")),
    ("cannot be written", ("fuse", "pruned", "-o", "weights.pt/out")),
    ("taylor needs a calibration", PRUNE),
    ("cannot keep", (*PRUNE, "--method", "magnitude", "--keep", "13")),
    ("leaves no layer", (*PRUNE, "--method", "magnitude", "--branch-layer", "6")),
    ("members that overlap by at most", (*PRUNE, "--method", "magnitude", "--keep", "11", "--max-overlap", "0.1")),
    ("a fused model cannot be pruned", ("prune", "fused", "-o", "out", "--method", "magnitude")),
    ("float16 gradients", ("tune", VIT, "-o", "out", "--data", TEST, "--dtype", "float16")),
    ("unknown metric", ("eval", VIT, "--data", TEST, "--fail-if", "cls/acuracy < 1")),
    ("failed for", ("eval", VIT, "--data", TEST, "--no-latency", "--no-intervals", "--fail-if", "cls/nll > 0")),
    ("inputs cannot be used", ("predict", VIT, "broken/0/a.png", "nowhere.png")),
)


def row_of(words: str) -> re.Pattern[str]:
    """The one row that holds these words, as a pattern of a whole line."""
    (row,) = [row for row in ROWS if words in row]
    return re.compile(".+".join(map(re.escape, PLACEHOLDER.split(row))))


@pytest.fixture(scope="module")
def texts() -> str:
    """Every text in the package's code; an f-string counts as the texts between what is put in."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "compress").rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return "\n".join(node.value for node in nodes if isinstance(node.value, str))


@pytest.mark.parametrize("row", [row for row in ROWS if not any(words in row for words, _ in CALLS)])
def test_the_words_of_the_other_lines_are_in_the_code(row: str, texts: str) -> None:
    fragments = [part.strip(" :()") for part in re.split(r"<[^>]+>|; |: ", row)]
    fixed = [fragment for fragment in fragments if re.search(r"\w{2}", fragment)]
    assert fixed
    for fragment in fixed:
        assert fragment in texts, f"nothing in compress/ says {fragment!r}"


@pytest.mark.parametrize(("words", "arguments"), CALLS, ids=[words for words, _ in CALLS])
def test_calls_end_in_the_quoted_line(
    words: str,
    arguments: tuple[str, ...],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    code = main(arguments)
    said = capsys.readouterr().err.splitlines()
    assert code == (3 if words == "failed for" else 2), said
    assert any(row_of(words).fullmatch(line.removeprefix("compress: error: ")) for line in said), said
    assert not (place / "out").exists()


def test_two_at_once_are_told(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(place)
    with opened_run(Path("taken")):
        assert main(["run", "good.yaml", "-o", "taken"]) == 2
    assert row_of("running a recipe there").search(capsys.readouterr().err)
    with new_folder("written", kind="model", stage="fuse"):
        assert main(["fuse", "pruned", "-o", "written"]) == 2
    assert row_of("another process is writing").search(capsys.readouterr().err)


def test_members_that_are_alike_are_warned_about(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(place / "alike")
    assert main(["prune", VIT, "-o", out, "--method", "magnitude", "--members", "2", "--keep", "6"]) == 0
    assert row_of("will hardly differ").search(capsys.readouterr().err)


def test_what_is_no_error_of_the_user_is_called_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> None:
        raise KeyError("a name")

    monkeypatch.setattr("compress.cli.main._called", broken)
    assert main([]) == 1
    assert row_of("this is a bug").fullmatch(capsys.readouterr().err.strip().removeprefix("compress: error: "))


@pytest.mark.parametrize("greedy", [lambda: torch.empty(10**15), lambda: bytearray(10**17)])
def test_a_want_of_memory_is_no_bug(
    greedy: Callable[[], object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("compress.cli.main._called", lambda *arguments: greedy())
    assert main([]) == 2
    assert row_of("the memory does not suffice").fullmatch(
        capsys.readouterr().err.strip().removeprefix("compress: error: ")
    )
