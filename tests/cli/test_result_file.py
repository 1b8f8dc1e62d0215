"""Files that the user names for results."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from compress.cli.main import main
from compress.cli.result_file import write_result
from compress.errors import ArtifactError

INSPECT = ("inspect", "builtin:digits-vit", "--json")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("absent/x.json", "/absent; make it first, or name another file"),
        ("dangling.json", "/absent; make it first, or name another file"),
        ("folder", "--json: folder is a folder; name a file"),
        ("artifact/config.json", "--json: artifact/config.json is a file of an artifact; name another file"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(
    target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("dangling.json").symlink_to("absent/y.json")
    Path("artifact").mkdir()
    for name in ("MANIFEST.json", "config.json"):
        (Path("artifact") / name).write_text("{}")
    assert main([*INSPECT, target]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert not shown.out
    assert Path("artifact/config.json").read_text() == "{}"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    assert main([*INSPECT, str(tmp_path / "link.json")]) == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["schema"] == "compress/inspect"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_result(pipe, b"{}")
    reader.join(timeout=30)
    assert read == [b"{}"]
    assert pipe.is_fifo()


def test_a_device_that_is_full_is_a_user_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with pytest.raises(ArtifactError, match="/dev/full: cannot be written"):
        write_result(Path("/dev/full"), b"{}")
