"""``MANIFEST.json``: the list of an artifact's files with their sizes and hashes, written last."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints, ValidationError, field_validator, model_validator

from compress.artifact.durable import read_failure
from compress.artifact.json_values import check_values
from compress.errors import ArtifactError, first_line
from compress.options import Options

MANIFEST_NAME = "MANIFEST.json"
FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 4 * 2**20
_GIVE_A_FOLDER = "give the folder that a stage wrote"

Kind = Literal["model", "members", "predictions", "checkpoint"]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
StageName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]


def check_relative(path: str) -> str:
    """Return ``path`` when it is a plain relative POSIX path that stays inside its folder.

    Raises:
        ValueError: it is empty, absolute, not normalised, climbs with ``..``, or holds a backslash, a colon or an
            unprintable character (so that it means the same on every system and cannot disturb a terminal).
    """
    plain = path == str(PurePosixPath(path)) and not path.startswith("/") and path != "."
    if not plain or ".." in path.split("/") or "\\" in path or ":" in path or not path.isprintable():
        raise ValueError(f"{path!r} is not a plain relative path inside the folder")
    return path


class FileRecord(Options):
    """What one file must be."""

    sha256: Sha256 = Field(description="SHA-256 of the content, lower-case hexadecimal.")
    bytes: int = Field(ge=0, description="Size of the file, bytes.")


class Manifest(Options):
    """The content of ``MANIFEST.json``.

    ``files`` holds every file of the artifact except the manifest itself. Of a member folder it holds the member's
    own manifest only, whose hashes cover the rest.
    """

    format_version: int = Field(default=FORMAT_VERSION, ge=1, description="Version of the layout of the artifact.")
    kind: Kind = Field(
        description="One model, a set of member models, predictions of an evaluation, or the state of a training."
    )
    stage: StageName = Field(description="The stage that wrote the artifact.")
    files: dict[str, FileRecord] = Field(description="Relative POSIX path to record.")
    members: tuple[str, ...] = Field(
        default=(), description="Folders that are complete artifacts, in the members' order."
    )

    @field_validator("files")
    @classmethod
    def _files_inside(cls, files: dict[str, FileRecord]) -> dict[str, FileRecord]:
        for path in files:
            check_relative(path)
        if MANIFEST_NAME in files:
            raise ValueError(f"{MANIFEST_NAME} cannot list itself")
        return files

    @field_validator("members")
    @classmethod
    def _members_inside(cls, members: tuple[str, ...]) -> tuple[str, ...]:
        for name in members:
            if "/" in check_relative(name):
                raise ValueError(f"member {name!r} must be a folder directly inside")
        if len(set(members)) != len(members):
            raise ValueError("a member is named twice")
        return members

    @model_validator(mode="after")
    def _members_listed(self) -> Manifest:
        if bool(self.members) != (self.kind == "members"):
            raise ValueError(f"kind {self.kind!r} does not go with {len(self.members)} members")
        missing = [name for name in self.members if f"{name}/{MANIFEST_NAME}" not in self.files]
        if missing:
            raise ValueError(f"the manifests of the members {', '.join(missing)} are not listed")
        return self

    @property
    def digest(self) -> str:
        """The artifact's hash: SHA-256 of the canonical JSON of this manifest, lower-case hexadecimal."""
        content = {name: value for name, value in self.model_dump(mode="json").items() if name in Manifest.model_fields}
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def to_json(self) -> bytes:
        """The file: sorted keys, UTF-8, the same bytes for the same content; ``sha256`` repeats ``digest``."""
        content = self.model_dump(mode="json") | {"sha256": self.digest}
        return (json.dumps(content, sort_keys=True, ensure_ascii=False, indent=2) + "\n").encode()


class _StoredManifest(Manifest):
    """The file: the manifest and its own hash, so that a flipped bit in any field is found."""

    sha256: Sha256

    @model_validator(mode="after")
    def _undamaged(self) -> _StoredManifest:
        if self.sha256 != self.digest:
            raise ValueError("its content does not match its own hash")
        return self


class _Version(BaseModel):
    """The one field that every version of the format has."""

    format_version: int


def parse_manifest(content: bytes, where: Path) -> Manifest:
    """Read a manifest's bytes.

    Raises:
        ArtifactError: the content is too large, damaged, or of a newer format; the message names ``where``.
    """
    if len(content) > MAX_MANIFEST_BYTES:
        raise _damaged(where, f"is larger than {MAX_MANIFEST_BYTES} bytes")
    try:
        check_values(content)
    except ValueError as error:
        raise _damaged(where, f"is damaged ({error})") from None
    try:
        version = _Version.model_validate_json(content, strict=True).format_version
        if version > FORMAT_VERSION:
            raise ArtifactError(
                f"was written by a newer version of compress (format {version}, this one reads up to {FORMAT_VERSION})",
                where=str(where),
                fix="upgrade the package compress-transformers",
            )
        stored = _StoredManifest.model_validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        detail = f"{place}: {first['msg']}" if place else first["msg"]
        raise _damaged(where, f"is cut off or damaged ({first_line(detail)})") from None
    return Manifest(**{name: getattr(stored, name) for name in Manifest.model_fields})


def read_manifest(folder: Path) -> Manifest:
    """Read ``folder/MANIFEST.json`` without looking at the other files.

    Raises:
        ArtifactError: there is no such folder, it holds no manifest, or the manifest is damaged or too new.
    """
    path = folder / MANIFEST_NAME
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise ArtifactError("is a file, not an artifact", where=str(folder), fix=_GIVE_A_FOLDER)
        if not stat.S_ISREG(path.lstat().st_mode):
            raise _damaged(path, "is not a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        if folder.exists():
            raise _damaged(folder, f"is incomplete or not an artifact: it holds no {MANIFEST_NAME}") from None
        raise ArtifactError("there is no such folder", where=str(folder), fix=_GIVE_A_FOLDER) from None
    except OSError as error:
        raise read_failure(error, path) from error
    return parse_manifest(content, path)


def _damaged(where: Path, what: str) -> ArtifactError:
    return ArtifactError(what, where=str(where), fix="run the stage that writes this artifact again")
