"""The grammar of data references."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny.pictures import pictures, save_pictures

from compress.data.base import open_dataset, require_kind
from compress.data.reference import Reference, image_folders, parse_reference
from compress.data.sequence import SequenceDataset
from compress.errors import DataError


def test_builtin_and_hub_references_are_split_at_the_hash() -> None:
    assert parse_reference("builtin:digits#test") == Reference("builtin:digits#test", "builtin", "digits", "test")
    assert parse_reference("hf:org/name:config#train") == Reference(
        "hf:org/name:config#train", "hf", "org/name:config", "train"
    )


@pytest.mark.parametrize("name", ["a.csv", "b.TSV", "c.jsonl", "d.parquet"])
def test_tables_are_found_by_suffix(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert parse_reference(str(tmp_path / name)).kind == "table"


def test_a_path_that_holds_a_hash_is_never_cut(tmp_path: Path) -> None:
    path = tmp_path / "reviews#1 été 评论.csv"
    path.touch()
    assert parse_reference(str(path)).path == path
    assert parse_reference(str(path)).split is None


def test_the_split_of_a_folder_is_its_sub_folder(tmp_path: Path) -> None:
    (tmp_path / "photos" / "test").mkdir(parents=True)
    parsed = parse_reference(f"{tmp_path / 'photos'}#test")
    assert (parsed.kind, parsed.path, parsed.split) == ("folder", tmp_path / "photos" / "test", None)


def test_user_errors_name_the_place_and_the_mend(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "book.xlsx").touch()
    (tmp_path / "table.csv").touch()
    for reference, message in {
        f"{tmp_path}#tset": "no sub-folder 'tset'; choose one of train",
        f"{tmp_path / 'book.xlsx'}": "files of type '.xlsx' are not read; use .csv, .tsv, .jsonl, .parquet",
        f"{tmp_path / 'table.csv'}#test": "a single file has no split 'test'",
        f"{tmp_path / 'absent'}": "no such file or folder",
        "": "no such file or folder",
        "x" * 5000: "cannot be read (File name too long)",
        "builtin:digits#calibration[a:b]": "[a:b] is no slice; write [START:STOP] or [START:STOP:STEP]",
        "builtin:digits#calibration[5]": "[5] is no slice",
        f"{tmp_path / 'table.csv'}[1:2:3:4]": "[1:2:3:4] is no slice",
        f"{tmp_path / 'absent [old]'}": "no such file or folder",
        "bulitin:digits": "unknown prefix 'bulitin:'; did you mean 'builtin'?",
    }.items():
        with pytest.raises(DataError) as caught:
            open_dataset(reference)
        assert str(caught.value).startswith(f"{reference}: " if reference else "")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_columns_can_be_chosen_in_tables_only() -> None:
    with pytest.raises(DataError, match="in tables and hf: data only"):
        open_dataset("builtin:photos", text_column="text")


def test_the_kind_of_the_data_must_be_the_models() -> None:
    texts = SequenceDataset(["a"], "text", reference="reviews.csv")
    require_kind(texts, "text")
    with pytest.raises(DataError, match=r"reviews\.csv: holds text samples, but the model reads image samples"):
        require_kind(texts, "image")


def test_rows_are_chosen_as_python_slices_a_list() -> None:
    whole = open_dataset("builtin:digits#test")
    ids = [whole[row].id for row in range(len(whole))]
    for rows in ("[:7]", "[-3:]", "[::2]", "[1::2]", "[5:500:100]"):
        part = open_dataset(f"builtin:digits#test{rows}")
        start, stop, step = ([int(number) if number else None for number in rows[1:-1].split(":")] + [None])[:3]
        assert [part[row].id for row in range(len(part))] == ids[start:stop:step]
        assert part.reference == f"builtin:digits#test{rows}"


def test_a_choice_of_no_rows_is_an_error() -> None:
    with pytest.raises(DataError, match=r"builtin:digits#test\[9:3\]: chooses none of 500 samples; choose other rows"):
        open_dataset("builtin:digits#test[9:3]")
    with pytest.raises(DataError, match="the step between samples is 0"):
        open_dataset("builtin:digits#test[::0]")


def test_a_path_that_ends_in_brackets_is_never_cut(tmp_path: Path) -> None:
    for name in ("a.csv[:1]", "a.csv"):
        (tmp_path / name).write_text("text,label\nx,a\ny,b\n")
    assert len(open_dataset(str(tmp_path / "a.csv"))) == 2
    with pytest.raises(DataError, match="are not read"):
        open_dataset(str(tmp_path / "a.csv[:1]"))
    assert len(open_dataset(str(tmp_path / "a.csv") + "[1:]")) == 1


def test_folders_of_images_among_references_and_data_sets(tmp_path: Path) -> None:
    save_pictures(pictures(4, ("a", "b")), tmp_path / "images")
    (tmp_path / "t.csv").write_text("text,label\nx,1\n")
    given = [f"{tmp_path / 'images'}[:2]", open_dataset(str(tmp_path / "images")), str(tmp_path / "t.csv"), None, "no"]
    assert image_folders(*given) == [tmp_path / "images"] * 2
