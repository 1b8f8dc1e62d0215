from __future__ import annotations

import json
from pathlib import Path

import pytest

from compress.errors import ArtifactError
from compress.evaluation.report.folder import check_report_folder, write_files

DATA = json.dumps({"schema": "compress/report"}).encode()


def test_a_report_replaces_a_report_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report"
    write_files(target, pictures={"a.png": b"1", "b.png": b"2"}, data=DATA, page=b"old")
    (target / "notes.txt").write_text("mine")
    (target / "pictures" / "own.jpg").write_text("mine")
    write_files(target, pictures={"a.png": b"3"}, data=DATA, page=b"new")
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert found == ["index.html", "notes.txt", "pictures/a.png", "pictures/own.jpg", "report.json"]
    assert (target / "index.html").read_bytes() == b"new"
    assert (target / "pictures" / "a.png").read_bytes() == b"3"


@pytest.mark.parametrize("content", [{"notes.txt": "mine"}, {"report.json": "{}"}, {"report.json": "[1"}])
def test_a_folder_with_something_else_is_refused_untouched(tmp_path: Path, content: dict[str, str]) -> None:
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ArtifactError, match="holds no report") as caught:
        write_files(tmp_path, pictures={}, data=DATA, page=b"page")
    assert caught.value.fix is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(content)


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="is a file"):
        check_report_folder(tmp_path / "file")


def test_new_and_empty_folders_pass(tmp_path: Path) -> None:
    check_report_folder(tmp_path)
    check_report_folder(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_failed_write_leaves_the_old_page_and_can_be_repeated(tmp_path: Path, monkeypatch) -> None:
    target = tmp_path / "report"
    write_files(target, pictures={"a.png": b"1"}, data=DATA, page=b"old")

    def refuse(path: Path, data: bytes) -> None:
        raise ArtifactError("cannot be written", where=str(path))

    with monkeypatch.context() as patched:
        patched.setattr("compress.evaluation.report.folder.write_bytes", refuse)
        with pytest.raises(ArtifactError):
            write_files(target, pictures={"a.png": b"2"}, data=DATA, page=b"new")
    assert (target / "index.html").read_bytes() == b"old"
    write_files(target, pictures={"a.png": b"2"}, data=DATA, page=b"new")
    assert (target / "index.html").read_bytes() == b"new"
