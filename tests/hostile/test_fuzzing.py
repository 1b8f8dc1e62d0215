"""Whatever a stranger's file holds, it is opened, or refused in one sentence.

The fuzzer changes sound files of every kind, the same ones in every run (``derandomize``); the slow run draws others.
What it ever found, and what was thought of by hand, lies under ``tests/corpus/KIND`` and is opened again by every run.
"""

from __future__ import annotations

import copy
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile.foreign import CONFIG_NAMES
from hostile.opened import FOREIGN, MODEL, OPENERS, PREDICTIONS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tiny.whole_run import TEXT

from compress.errors import CompressError

CORPUS = Path(__file__).parents[1] / "corpus"
KEPT = sorted(path for path in CORPUS.glob("*/*") if path.is_file())
MAY_OPEN = {
    "config/control_characters.json",  # labels are anybody's text; messages escape them
    "config/text_preprocessing.json",  # what fits the samples is seen when there are some
    "hf_folder/encoder_of_code.json",  # code is not looked for; test_no_code lays some beside it
    "predictions/sound.json",
    "recipe/long_home.yaml",  # paths are looked up by the run
    "recipe/nul_in_path.yaml",
}

FOLDERS = {"timm_folder": "timm", "hf_folder": "hf", "clip_folder": "open_clip"}
# Sound weights lie beside these configurations, so that each is refused for the one value that is wrong in it.
FOR_WHAT = {
    "clip_folder/hub_encoder.json": "HFTextEncoder is not supported",
    "clip_folder/hub_tokenizer.json": "HFTokenizer is not supported",
    "clip_folder/hub_vision.json": "TimmModel is not supported",
    "clip_folder/layers_are_text.json": "'str' object cannot be interpreted as an integer",
    "clip_folder/mean_is_text.json": "preprocessing.mean: Input should be a valid tuple",
    "clip_folder/vision_is_a_list.json": "has no vision_cfg and text_cfg",
    "hf_folder/labels_are_a_number.json": "'int' object is not iterable",
    "hf_folder/type_is_a_list.json": "unhashable type: 'list'",
    "hf_folder/unknown_type.json": "model type '../../x' is not supported",
    "hf_folder/width_is_text.json": "Field 'hidden_size' expected int, got str",
    "timm_folder/architecture_is_a_number.json": "'int' object has no attribute 'split'",
    "timm_folder/cache_dir.json": "'cache_dir' is no argument of a model",
    "timm_folder/checkpoint_path.json": "'checkpoint_path' is no argument of a model",
    "timm_folder/deep.json": "no model family recognises this folder",
    "timm_folder/hub_architecture.json": "timm has no model 'hf-hub:a/b'",
    "timm_folder/model_args_are_a_list.json": "'list' object is not a mapping",
    "timm_folder/negative_heads.json": "heads [] must be distinct, ascending",
    "timm_folder/no_mapping.json": "no model family recognises this folder",
}


def check_opened(kind: str, content: bytes, sound: Path, folder: Path) -> str | None:
    """Open it; returns the sentence by which it was refused."""
    try:
        OPENERS[kind](content, sound, folder)
    except CompressError as error:
        said = str(error)
        assert said.isprintable(), said
        assert len(said) < 1500, said
        return said
    return None


@pytest.mark.parametrize("path", KEPT, ids=[path.relative_to(CORPUS).as_posix() for path in KEPT])
def test_the_corpus(path: Path, sound: Path, tmp_path: Path) -> None:
    name, kind = path.relative_to(CORPUS).as_posix(), path.parent.name
    said = check_opened(kind, path.read_bytes(), sound, tmp_path)
    assert (said is None) == (name in MAY_OPEN), said
    if said is not None:
        assert (FOR_WHAT[name] if kind in FOLDERS else str(tmp_path)) in said


@pytest.mark.parametrize("kind", FOLDERS)
def test_sound_folders_of_the_families_open(kind: str, sound: Path, tmp_path: Path) -> None:
    family = FOLDERS[kind]
    content = (sound / FOREIGN / family / CONFIG_NAMES[family]).read_bytes()
    assert check_opened(kind, content, sound, tmp_path) is None


def test_every_kind_has_a_corpus() -> None:
    assert {path.parent.name for path in KEPT} == set(OPENERS)


# --- values in the place of others ------------------------------------------------------------------------------------

AWKWARD = st.sampled_from(
    [
        None, True, 0, -1, 1, 2, 7, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"),
        "", "x", "../x", "/etc/passwd", "a/../b", "\x1b[31m", "a\nb", "\x00", "é" * 300,
        [], {}, [[]], [0], [[[0]]], {"a": 1},
    ]
)  # fmt: skip
SMALL = st.integers(-4, 20) | st.text(max_size=4) | st.lists(st.integers(-1, 9), max_size=3)
VALUES = AWKWARD | SMALL
# What a folder that is no artifact asks for is not bounded: see docs/security-and-limits.md.
WITHOUT_LARGE = AWKWARD.filter(lambda value: not isinstance(value, int | float) or not value > 20) | SMALL


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container within JSON values, with each of its keys."""
    found = []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += [(value, key), *places(value[key])]
    return found


@st.composite
def changed(draw: st.DrawFn, documents: Sequence[Any], values: st.SearchStrategy[Any] = VALUES) -> Any:
    """One of the documents with up to three of its values replaced, removed, doubled or joined by others."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 3))):
        where = places(document)
        if not where:
            break
        container, key = draw(st.sampled_from(where))
        action = draw(st.sampled_from(["replace", "replace", "remove", "add", "double"]))
        if action == "replace":
            container[key] = copy.deepcopy(draw(values))
        elif action == "remove":
            del container[key]
        elif isinstance(container, dict):
            container[draw(st.text(max_size=3))] = copy.deepcopy(draw(values))
        else:
            container.append(copy.deepcopy(container[key] if action == "double" else draw(values)))
    return document


@st.composite
def damaged(draw: st.DrawFn, contents: Sequence[bytes]) -> bytes:
    """One of the contents with some bytes changed, cut out or put in."""
    content = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, max(0, len(content) - 1)))
        action = draw(st.sampled_from(["change", "change", "cut", "insert", "end"]))
        if action == "change" and content:
            content[position] = draw(st.integers(0, 255))
        elif action == "cut":
            del content[position : position + draw(st.integers(1, 9))]
        elif action == "insert":
            content[position:position] = draw(st.binary(min_size=1, max_size=9))
        else:
            del content[position:]
    return bytes(content)


def fuzzed(strategy: st.SearchStrategy[bytes], kind: str, sound: Path, examples: int, slow: bool) -> None:
    """Open as many examples as that; twenty times as many, and others in every run, when there is time."""

    @settings(
        max_examples=examples * 20 if slow else examples,
        derandomize=not slow,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(strategy)
    def opened(content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check_opened(kind, content, sound, Path(folder))

    opened()


time = pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "long"])


@time
@pytest.mark.parametrize(
    ("kind", "name", "examples"),
    [
        ("manifest", f"{MODEL}/MANIFEST.json", 80),
        ("config", f"{MODEL}/config.json", 150),
        ("provenance", f"{MODEL}/provenance.json", 30),
        ("predictions", f"{PREDICTIONS}/predictions.json", 50),
    ],
)
def test_changed_values_of_json_files(kind: str, name: str, examples: int, slow: bool, sound: Path) -> None:
    document = json.loads((sound / name).read_text())
    strategy = changed([document]).map(lambda value: json.dumps(value).encode())
    fuzzed(strategy, kind, sound, examples, slow)


@time
@pytest.mark.parametrize(("kind", "examples"), [("timm_folder", 40), ("hf_folder", 40), ("clip_folder", 15)])
def test_changed_configurations_of_model_folders(kind: str, examples: int, slow: bool, sound: Path) -> None:
    family = FOLDERS[kind]
    document = json.loads((sound / FOREIGN / family / CONFIG_NAMES[family]).read_text())
    strategy = changed([document], WITHOUT_LARGE).map(lambda value: json.dumps(value).encode())
    fuzzed(strategy, kind, sound, examples, slow)


@time
@pytest.mark.parametrize("kind", ["manifest", "config", "recipe"])
def test_damaged_texts(kind: str, slow: bool, sound: Path) -> None:
    texts = {
        "manifest": (sound / MODEL / "MANIFEST.json").read_bytes(),
        "config": (sound / MODEL / "config.json").read_bytes(),
        "recipe": TEXT.encode(),
    }
    fuzzed(damaged([texts[kind]]), kind, sound, 40, slow)


@time
def test_changed_values_of_recipes(slow: bool, sound: Path) -> None:
    strategy = changed([yaml.safe_load(TEXT)]).map(lambda value: json.dumps(value).encode())
    fuzzed(strategy, "recipe", sound, 60, slow)


@time
def test_changed_headers_of_weights(slow: bool, sound: Path) -> None:
    content = (sound / MODEL / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]

    def packed(changed_header: Any) -> bytes:
        text = json.dumps(changed_header).encode()
        return len(text).to_bytes(8, "little") + text + data

    fuzzed(changed([header]).map(packed) | damaged([content[: 8 + length]]), "weights", sound, 80, slow)


@time
def test_damaged_images(slow: bool, sound: Path) -> None:
    contents = []
    for name in ("PNG", "GIF", "JPEG", "BMP", "TIFF", "WEBP", "PPM"):
        stream = io.BytesIO()
        Image.linear_gradient("L").resize((9, 7)).save(stream, name)
        contents.append(stream.getvalue())
    fuzzed(damaged(contents), "image", sound, 150, slow)
