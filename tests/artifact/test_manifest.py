"""The manifest: canonical, versioned, and closed to hostile content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from compress.artifact.manifest import (
    FORMAT_VERSION,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    FileRecord,
    Manifest,
    check_relative,
    parse_manifest,
    read_manifest,
)
from compress.errors import ArtifactError

RECORD = FileRecord(sha256="a" * 64, bytes=3)
WHERE = Path("out/MANIFEST.json")


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {"kind": "model", "stage": "prune", "files": {"config.json": RECORD, "été/x": RECORD}}
    return Manifest(**(fields | changes))


def rewritten(**changes: Any) -> bytes:
    return json.dumps(json.loads(manifest().to_json()) | changes).encode()


def test_round_trip() -> None:
    members = manifest(kind="members", members=("b", "a"), files={f"{m}/{MANIFEST_NAME}": RECORD for m in "ab"})
    for original in (manifest(), members):
        assert parse_manifest(original.to_json(), WHERE) == original
    assert members.digest != manifest().digest


def test_bytes_and_digest_do_not_depend_on_the_order_of_files() -> None:
    turned = manifest(files={"été/x": RECORD, "config.json": RECORD})
    assert turned.to_json() == manifest().to_json()
    assert turned.digest == manifest().digest
    assert manifest(stage="fuse").digest != manifest().digest
    # Stored hashes of parents stay valid only while this value does.
    assert manifest().digest == "f286c64aa13f45a690f822030efed4009dd83b931000f65fb501692c791402ed"


def test_every_truncation_and_every_flipped_bit_is_found() -> None:
    content = bytearray(manifest(files={"a": RECORD}).to_json())
    for length in range(len(content) - 1):  # the last byte is a newline
        with pytest.raises(ArtifactError, match=r"out/MANIFEST.json"):
            parse_manifest(bytes(content[:length]), WHERE)
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ArtifactError) as caught:
            parse_manifest(bytes(content), WHERE)
        assert str(caught.value).isprintable()
        content[bit // 8] ^= 1 << bit % 8


def test_a_newer_format_is_named_so_even_when_its_fields_are_unknown() -> None:
    content = json.dumps({"format_version": FORMAT_VERSION + 1, "everything": "else"}).encode()
    with pytest.raises(ArtifactError, match=r"newer version of compress \(format 2, .* 1\); upgrade"):
        parse_manifest(content, WHERE)


@pytest.mark.parametrize(
    "content",
    [
        b"null",
        b"[" * 100_000,
        b'{"format_version":' * 50_000,
        b"1" * 10_000,
        b'{"format_version": ' + b"9" * 10_000 + b"}",
        b"\xff\xfe{}",
        rewritten(format_version="1"),
        rewritten(format_version=0),
        rewritten(kind="weights"),
        rewritten(stage="prune\x1b[31m"),
        rewritten(extra=1),
        rewritten(members=["../x"]),
        rewritten(files={"a": {"sha256": "A" * 64, "bytes": 1}}),
        rewritten(files={"a": {"sha256": "a" * 64, "bytes": True}}),
        rewritten(files={"a": {"sha256": "a" * 64, "bytes": -1}}),
        rewritten(files={"a\ud800": {"sha256": "a" * 64, "bytes": 1}}),
    ],
)
def test_hostile_content(content: bytes) -> None:
    with pytest.raises(ArtifactError, match=r"out/MANIFEST.json: ") as caught:
        parse_manifest(content, WHERE)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_size_is_capped(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(b" " * (MAX_MANIFEST_BYTES + 1))
    with pytest.raises(ArtifactError, match="larger than"):
        read_manifest(tmp_path)


HOSTILE = [
    "",
    ".",
    "..",
    "/etc/passwd",
    "../x",
    "a/../x",
    "a/..",
    "./a",
    "a//b",
    "a/",
    "a\\..\\b",
    "C:x",
    "a\0b",
    "a\nb",
    "//a",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_paths(path: str) -> None:
    with pytest.raises(ValueError, match="plain relative path"):
        check_relative(path)
    with pytest.raises(ValidationError, match="plain relative path"):
        manifest(files={path: RECORD})
    with pytest.raises(ArtifactError, match="plain relative path"):
        parse_manifest(rewritten(files={path: RECORD.model_dump()}), WHERE)


@pytest.mark.parametrize("path", ["a", "a/b.json", "été/模型 1.json", "...", "..a", ".hidden"])
def test_plain_paths(path: str) -> None:
    assert check_relative(path) == path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"files": {MANIFEST_NAME: RECORD}}, "cannot list itself"),
        ({"kind": "members"}, "does not go with 0 members"),
        ({"members": ("a",)}, "does not go with 1 members"),
        ({"kind": "members", "members": ("a",)}, "manifests of the members a"),
        ({"kind": "members", "members": ("a", "a")}, "named twice"),
        ({"kind": "members", "members": ("a/b",)}, "directly inside"),
    ],
)
def test_inconsistent_manifests(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        manifest(**changes)


def test_missing_folder_file_and_manifest(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="none: there is no such folder"):
        read_manifest(tmp_path / "none")
    with pytest.raises(ArtifactError, match=r"holds no MANIFEST.json; run the stage"):
        read_manifest(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="is a file"):
        read_manifest(tmp_path / "file")
    (tmp_path / MANIFEST_NAME).symlink_to("file")
    with pytest.raises(ArtifactError, match="not a regular file"):
        read_manifest(tmp_path)
    (tmp_path / MANIFEST_NAME).unlink()
    (tmp_path / MANIFEST_NAME).mkdir()
    with pytest.raises(ArtifactError, match="not a regular file"):
        read_manifest(tmp_path)
