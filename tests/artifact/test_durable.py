"""One file at a time: complete under its name, or the name unchanged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from compress.artifact.durable import durable_file, read_bytes, read_failure, sync_folder, write_bytes, write_failure
from compress.errors import ArtifactError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_bytes(path, b"old")
    with pytest.raises(ZeroDivisionError), durable_file(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["result.json"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_refused_sync_is_a_user_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def sync(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(ArtifactError, match=r"x\.bin: cannot be written \(.*\); \w+"):
        write_bytes(tmp_path / "x.bin", b"data")
    assert names(tmp_path) == []


def test_messages_name_file_reason_and_cure() -> None:
    path = Path("out/model.safetensors")
    full = write_failure(OSError(errno.ENOSPC, "No space left on device"), path)
    assert str(full) == (
        "out/model.safetensors: cannot be written (No space left on device); free some space or write to another disk"
    )
    assert "odd" in str(write_failure(OSError("odd"), path))
    assert "may read it" in str(read_failure(PermissionError(errno.EACCES, "Permission denied"), path))


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = errno.EINVAL

    def sync(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", sync)
    sync_folder(tmp_path)
    number = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        sync_folder(tmp_path)


def test_a_file_above_its_limit_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(bytes(2_500_000))
    with pytest.raises(ArtifactError) as caught:
        read_bytes(tmp_path / "config.json", 1_000_000)
    assert "has 2.5 MB, more than the 1.0 MB that are read of such a file; it is not one that" in str(caught.value)
    assert len(read_bytes(tmp_path / "config.json", 2_500_000)) == 2_500_000
