from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.errors import RecipeError
from compress.recipe.yaml_source import MAX_BYTES, MAX_DEPTH, parse_yaml, read_yaml


def value(text: str) -> object:
    return parse_yaml(text, name="r.yaml").value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-4", 1e-4),
        ("5e-5", 5e-5),
        ("1.5E+3", 1500.0),
        (".5", 0.5),
        ("-2.", -2.0),
        ("12:30", "12:30"),
        ("1:30:00", "1:30:00"),
        ("1_000", "1_000"),
        ("010", "010"),
        ("0x10", "0x10"),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("Off", "Off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("2024-01-01", "2024-01-01"),
        ('"0.1"', "0.1"),
        ("0.1", 0.1),
        ("+7", 7),
        ("0", 0),
        ("null", None),
        ("~", None),
        ("", None),
        ("'yes'", "yes"),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("Grüße: 漢字", {"Grüße": "漢字"}),
    ],
)
def test_scalars_are_read_as_people_mean_them(text: str, expected: object) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: 1\nb: .nan", 2, "not a finite number"),
        ("a: -.inf", 1, "not a finite number"),
        ("a: 1e999", 1, "not a finite number"),
        ("a: 1\nb: 2\na: 3", 3, "'a' is given twice (first on line 1)"),
        ("stages:\n  prune: {}\n  prune: {}", 3, "'prune' is given twice"),
        ("1: x", 1, "is not a name"),
        ("x: 1\nfalse: x", 2, "is not a name"),
        ("[a]: x", 1, "is not a name"),
        ("a: 1\nb: [1, 2", 2, "not valid YAML"),
        ("a: 1\n\tb: 2", 2, "not valid YAML"),
        ("a: *unknown", 1, "undefined alias"),
        ("a: 1\n---\nb: 2", 2, "keep one document"),
        ("a: !!python/object/apply:os.system [ls]", 1, "tag"),
        ("a: !custom {b: 1}", 1, "tag"),
        ("a: !!binary aGk=", 1, "tag"),
        ("a: !!int x", 1, "not the number it claims to be"),
        ("base: &b {x: 1}\nc: {<<: *b}", 2, "merge keys"),
        ("a: 1\nb: \x07", 2, "control character"),
        ('a: "\\ud800"', 1, "lone surrogate"),
        ("a: &a [*a]", 1, "nested deeper"),
    ],
)
def test_errors_name_the_line(text: str, line: int, part: str) -> None:
    with pytest.raises(RecipeError) as caught:
        value(text)
    assert str(caught.value).startswith(f"r.yaml:{line}: ")
    assert part in str(caught.value)
    assert caught.value.fix


def test_places_are_known_for_every_value() -> None:
    source = parse_yaml("a: 1\nstages:\n  - prune:\n      keep: 4\n  - fuse", name="r.yaml")
    assert source.where(("stages", 0, "prune", "keep")) == "r.yaml:4"
    assert source.where(("stages", 1)) == "r.yaml:5"
    assert source.where(("stages", 0, "prune", "absent")) == "r.yaml:3"


@pytest.mark.parametrize(
    "bomb",
    [
        "a: &a [1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{y}: &{y} [{','.join(9 * [f'*{x}'])}]\n" for x, y in zip("abcdefgh", "bcdefghi", strict=True)),
        "[" * 50_000,
        "{a: " * 20_000,
        "- " * 30_000 + "1",
        "a: [" + "1," * 60_000 + "]",
        "x" * (MAX_BYTES + 1),
        "? " * 40_000,
    ],
    ids=["aliases", "brackets", "braces", "dashes", "items", "size", "question marks"],
)
def test_bombs_are_refused_quickly(bomb: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(bomb)
    start = time.process_time()
    with pytest.raises(RecipeError):
        read_yaml(path)
    assert time.process_time() - start < 2.0


def test_the_deepest_allowed_nesting_is_read() -> None:
    assert value("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    with pytest.raises(RecipeError, match="nested deeper"):
        value("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_files_are_utf8(tmp_path: Path) -> None:
    path = tmp_path / "Grüße 漢字.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: \xc3\xa9")
    assert read_yaml(path).value == {"a": "é"}
    path.write_bytes(b"a: 1\nb: \xe9")
    with pytest.raises(RecipeError, match=r":2: the text is not UTF-8"):
        read_yaml(path)


def test_an_absent_file_and_a_folder_are_one_line_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(RecipeError, match="cannot be read"):
            read_yaml(path)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    try:
        value(text)
    except RecipeError as error:
        assert str(error).startswith("r.yaml")


# YAML allows fewer characters than JSON: no control characters, unassigned ones or surrogates.
text = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Cn", "Co", "Zl", "Zp"], exclude_characters="\ufeff"), max_size=20
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(plain)
def test_what_json_writes_is_read_back(content: object) -> None:
    """JSON is YAML; only the merge key is not supported."""
    written = json.dumps(content, ensure_ascii=False)
    if '"<<"' not in written:
        assert value(written) == content
