"""Tables of texts."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from compress.data.base import Dataset, open_dataset
from compress.errors import DataError

ROWS = [
    ('He said "no", twice,\nand left.', "neg"),
    ("déjà vu — 素晴らしい 🎬", "pos"),
    ("tab\there", "pos"),
]


def write(path: Path, rows: list[tuple[str, str]], header: tuple[str, str] = ("text", "label")) -> Path:
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",").writerows([header, *rows])
    elif path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        columns = [list(column) for column in zip(*rows, strict=True)]
        parquet.write_table(pa.table(dict(zip(header, columns, strict=True))), path)
    return path


def samples(dataset: Dataset) -> list[tuple[object, str | None]]:
    names = dataset.class_names
    read = [dataset[row] for row in range(len(dataset))]
    return [(sample.value, None if sample.label is None or names is None else names[sample.label]) for sample in read]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_holds_the_same_data(tmp_path: Path, suffix: str) -> None:
    dataset = open_dataset(str(write(tmp_path / f"été 评论{suffix}", ROWS)))
    assert (dataset.kind, dataset.class_names) == ("text", ("neg", "pos"))
    assert samples(dataset) == ROWS
    reference = open_dataset(str(write(tmp_path / "other.csv", ROWS)))
    assert dataset.fingerprint == reference.fingerprint


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.just("x")), min_size=1, max_size=4))
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_any_text_comes_back(tmp_path: Path, suffix: str, rows: list[tuple[str, str]]) -> None:
    assert samples(open_dataset(str(write(tmp_path / f"t{suffix}", rows)))) == rows


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"t{suffix}", ROWS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert samples(open_dataset(str(path))) == ROWS


def test_rows_are_named_by_the_line_on_which_they_begin(tmp_path: Path) -> None:
    dataset = open_dataset(str(write(tmp_path / "t.csv", ROWS)))
    assert [dataset[row].id for row in range(3)] == ["2", "4", "5"]


def test_a_tsv_file_without_quoting_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text('sentence\tlabel\n"Great" film\t1\nan "unclosed\t0\n"never closed\t0\n', encoding="utf-8")
    assert samples(open_dataset(str(path))) == [('"Great" film', "1"), ('an "unclosed', "0"), ('"never closed', "0")]


def test_labels_may_be_integers_of_any_form(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a", "label": 10}\n\n{"text": "b", "label": 9.0}\n', encoding="utf-8")
    dataset = open_dataset(str(path))
    assert (dataset.class_names, dataset.labels, dataset[1].id) == (("9", "10"), [1, 0], "3")


def test_an_empty_or_absent_label_column_is_unlabelled(tmp_path: Path) -> None:
    empty = open_dataset(str(write(tmp_path / "empty.csv", [("a", ""), ("b", "")])))
    absent = open_dataset(str(write(tmp_path / "absent.csv", [("a", "1"), ("b", "2")], ("text", "score"))))
    for dataset in (empty, absent):
        assert (dataset.class_names, dataset.labels, dataset[1].value, dataset[1].label) == (None, None, "b", None)
    with pytest.raises(DataError, match="the label column 'label' is empty"):
        open_dataset(str(tmp_path / "empty.csv"), label_column="label")


def test_columns_are_guessed_by_usual_names_and_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,Review,stars,Label\n1,good,5,pos\n2,bad,1,neg\n", encoding="utf-8")
    assert samples(open_dataset(str(path))) == [("good", "pos"), ("bad", "neg")]
    chosen = open_dataset(str(path), text_column="id", label_column="stars")
    assert samples(chosen) == [("1", "5"), ("2", "1")]


def test_the_only_column_is_the_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("phrase,label\nx,1\n", encoding="utf-8")
    assert samples(open_dataset(str(path))) == [("x", "1")]


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("t.csv", "a,b\n1,2\n", {}, "{path}: no column looks like the text; name it with --text-column: a, b"),
        (
            "t.csv",
            "text,label\nx,1\n",
            {"text_column": "tex"},
            "{path}: there is no column 'tex' for --text-column; did",
        ),
        ("t.csv", "text,label\nx,1\n", {"label_column": "y"}, "{path}: there is no column 'y' for --label-column"),
        ("t.csv", "text,label\nx,1\n", {"text_column": "label", "label_column": "label"}, "{path}: there is no column"),
        ("t.csv", "text,text\nx,1\n", {}, "{path}: two columns are called 'text'"),
        ("t.csv", "", {}, "{path}: the table is empty"),
        ("t.csv", "text;label\nx;1\n", {}, "{path}: the header is one cell with semicolons in it, 'text;label'"),
        ("t.csv", "text\tlabel\nx\t1\n", {}, "{path}: the header is one cell with tabs in it"),
        ("t.tsv", "text,label\nx,1\n", {}, "{path}: the header is one cell with commas in it"),
        ("t.csv", "text,label\nx,1\ny\n", {}, "{path}:3: 1 cells where the header has 2"),
        ("t.csv", 'text,label\n"x\ny",1,2\n', {}, "{path}:2: 3 cells where the header has 2"),
        ("t.csv", 'text,label\nx,1\n"y,0\nz,1\n', {}, "{path}:3: broken quoting"),
        (
            "t.csv",
            "text,label\n" + "x" * 140_000 + ",1\n",
            {},
            "{path}:2: a quote that is never closed, or more than 131,072 characters",
        ),
        ("t.jsonl", '{"text":' + "[" * 100_000 + "]" * 100_000 + "}\n", {}, "{path}:1: not JSON"),
        ("t.csv", "text,label\nx,1\ny,\n", {}, "{path}, row 3: the label is missing"),
        ("t.csv", "text,label\nx,0\ny,0.5\n", {}, "{path}, row 3: the label 0.5 is a fraction"),
        ("t.jsonl", '{"text": "a"}\n{"text": \n', {}, "{path}:2: not JSON"),
        ("t.jsonl", '{"text": "a"}\n[1]\n', {}, "{path}:2: a list, not an object"),
        ("t.jsonl", "null\n", {}, "{path}:1: a NoneType, not an object"),
        ("t.jsonl", '{"text": "a"}\n{"label": 1}\n', {}, "{path}, row 2: column 'text' is missing"),
        ("t.jsonl", '{"text": 5}\n', {}, "{path}, row 1: column 'text' is a int, not a text"),
        ("t.jsonl", '{"text": "\\ud83d"}\n', {}, "{path}, row 1: column 'text' holds half of a surrogate pair"),
        ("t.jsonl", '{"text": "a", "label": [1]}\n', {}, "{path}, row 1: the label is a list"),
        ("t.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', {}, "{path}, row 2: the label is missing"),
        ("t.parquet", "PAR1", {}, "{path}: not a readable parquet file"),
    ],
)
def test_errors_name_file_row_and_column(
    tmp_path: Path, name: str, content: str, columns: dict[str, str], message: str
) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8", newline="")
    with pytest.raises(DataError) as caught:
        open_dataset(str(path), **columns)
    assert str(caught.value).startswith(message.format(path=path))


def test_a_header_of_one_quoted_cell_may_hold_the_separator(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"film, in words"\nx\n', encoding="utf-8")
    assert [sample.value for sample in open_dataset(str(tmp_path / "t.csv"))] == ["x"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_line_that_is_not_utf8_is_named(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"t{suffix}", [("a", "x")] * 2000 + [("été", "x")] + [("b", "x")] * 2000)
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    line = 2001 + (suffix == ".csv")
    with pytest.raises(DataError, match=rf"{suffix}:{line}: not UTF-8 \(byte 0xe9\); save the file as UTF-8"):
        open_dataset(str(path))


def test_a_damaged_parquet_file_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", ROWS)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="not a readable parquet file"):
        open_dataset(str(path))


@pytest.mark.skipif(
    "COMPRESS_SHARED_DATA" not in os.environ, reason="COMPRESS_SHARED_DATA names no folder of real data"
)
def test_real_reviews_are_read() -> None:
    folder = os.environ["COMPRESS_SHARED_DATA"]
    reviews = open_dataset(f"{folder}/sentiment/movie_test.csv")
    assert (reviews.class_names, len(reviews) > 500) == (("neg", "pos"), True)
    assert open_dataset(f"{folder}/sentiment/nyt_ood.csv").class_names is None
