from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from compress.cli.output import emit, raise_for_gates
from compress.errors import ArtifactError, GateFailed


def test_the_table_is_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    emit("a table", {"a": 1}, None)
    assert capsys.readouterr() == ("a table\n", "")


def test_json_replaces_the_table_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    emit("a table", {"ä": [1, None]}, "-")
    text = capsys.readouterr().out
    assert json.loads(text) == {"ä": [1, None]}
    assert "ä" in text


def test_json_in_a_file_comes_with_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    emit("a table", {"ä": 1}, str(tmp_path / "r.json"))
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8")) == {"ä": 1}
    assert capsys.readouterr().out == "a table\n"


def test_of_several_processes_the_first_one_speaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        emit("a table", {}, str(tmp_path / f"{rank}.json"))
    assert capsys.readouterr().out == "a table\n"
    assert [path.name for path in tmp_path.iterdir()] == ["0.json"]


def test_a_file_that_cannot_be_written_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"absent/r\.json"):
        emit("a table", {}, str(tmp_path / "absent" / "r.json"))


def test_gates_end_with_one_error(caplog: pytest.LogCaptureFixture) -> None:
    raise_for_gates([])
    with pytest.raises(GateFailed, match="first"):
        raise_for_gates(["first"])
    with caplog.at_level(logging.ERROR), pytest.raises(GateFailed, match="2 gates failed"):
        raise_for_gates(["first", "second"])
    assert [record.message for record in caplog.records] == ["first", "second"]
