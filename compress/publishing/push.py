"""``push``: the files of an artifact to a model hub, in one commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is that of whatever client the hub uses
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
)
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
    validate_repo_id,
)

from compress import __version__
from compress.artifact.folder import verify_folder
from compress.artifact.manifest import MANIFEST_NAME, Manifest
from compress.errors import ArtifactError, CompressError, UsageError, first_line
from compress.progress import silent

HUB_FILES = (".gitattributes",)
"""What the hub puts into every new repository."""
SHOWN = 3


@dataclass(frozen=True)
class PushResult:
    """What ``push`` uploaded.

    Attributes:
        repository: ``user/name``.
        address: of its page.
        commit: the hub's name of the commit.
        digest: the artifact's hash.
        files: number of files.
        bytes: their size.
    """

    repository: str
    address: str
    commit: str
    digest: str
    files: int
    bytes: int


def push(
    artifact: str | Path, repository: str, *, private: bool = False, token: str | None = None, overwrite: bool = False
) -> PushResult:
    """Upload one model, with its model card, to the hub that ``HF_ENDPOINT`` names (huggingface.co by default).

    The artifact is verified first, only the files that it lists are uploaded, and they appear in one commit: an
    interrupted upload leaves an empty repository, which the next call fills.

    Args:
        artifact: folder of one model.
        repository: ``user/name`` or ``organisation/name``; it is made when there is none.
        private: make a repository that only its owners see. It is an error when a public one is there already.
        token: of the hub, with the right to write; None for that of ``HF_TOKEN`` or ``hf auth login``.
        overwrite: replace what the repository holds; its history keeps it.

    Raises:
        ArtifactError: the artifact is incomplete or damaged, or the repository holds something already.
        UsageError: no token, an impossible name, or the hub cannot be reached or refuses.
    """
    folder = Path(artifact)
    manifest = verify_folder(folder, expect_kind="model")
    with hub_problems(repository):
        validate_repo_id(repository)
    known = token or get_token()
    if not known:
        raise UsageError(
            "the hub asks for a token", where="--token", fix="log in with `hf auth login`, or set HF_TOKEN"
        )
    api = HfApi(token=known, library_name="compress-transformers", library_version=__version__)
    with _bars_as_elsewhere(), hub_problems(repository):
        made = api.create_repo(repository, private=private or None, exist_ok=True)
        there = api.model_info(made.repo_id)
        held = [sibling.rfilename for sibling in there.siblings or () if sibling.rfilename not in HUB_FILES]
        _check_repository(made.repo_id, held, private and not there.private, overwrite=overwrite)
        done: Any = api.create_commit(
            made.repo_id,
            _operations(folder, manifest, held),
            commit_message=f"compress {manifest.stage} {manifest.digest[:12]}",
            parent_commit=there.sha,  # nobody else's commit is overwritten unseen
        )
    listed = manifest.files.values()
    size = sum(record.bytes for record in listed) + (folder / MANIFEST_NAME).stat().st_size
    return PushResult(made.repo_id, str(made), done.oid, manifest.digest, len(listed) + 1, size)


def _check_repository(name: str, held: list[str], visible: bool, *, overwrite: bool) -> None:
    """Refuse a repository that is public against the user's wish, or holds files that he does not want replaced."""
    if visible:
        raise ArtifactError(
            "the repository is there already and is public",
            where=name,
            fix="make it private on its page, or choose another name",
        )
    if held and not overwrite:
        more = ", …" if len(held) > SHOWN else ""
        raise ArtifactError(
            f"the repository holds files already ({', '.join(sorted(held)[:SHOWN])}{more})",
            where=name,
            fix="choose another name, or pass --overwrite to replace them in a new commit",
        )


def _operations(folder: Path, manifest: Manifest, held: list[str]) -> list[CommitOperationAdd | CommitOperationDelete]:
    """Add the artifact's files, and delete what else lies in the repository."""
    names = [*manifest.files, MANIFEST_NAME]
    added = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=folder / name) for name in names]
    return [*added, *(CommitOperationDelete(path_in_repo=name) for name in sorted(set(held) - set(names)))]


@contextlib.contextmanager
def _bars_as_elsewhere() -> Iterator[None]:
    """Within the block, the hub's library shows its bars only where the project shows its own."""
    if not silent() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


@contextlib.contextmanager
def hub_problems(repository: str) -> Iterator[None]:
    """Within the block, what the hub's library raises becomes one sentence."""
    try:
        yield
    except CompressError:
        raise
    except HFValidationError:
        raise UsageError(f"{repository!r} is no name of a repository", fix="give it as user/name") from None
    except OfflineModeIsEnabled:
        raise UsageError(
            "the hub is not asked, because HF_HUB_OFFLINE is set", where=repository, fix="unset it"
        ) from None
    except HfHubHTTPError as error:
        reason = first_line(error.server_message or error)
        fix = "check the name, and that the token may write there"
        raise UsageError(f"the hub refuses: {error.response.status_code} {reason}", where=repository, fix=fix) from None
    # What the transport, the upload of large files and the check of the card raise.
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # a file of this machine
            raise UsageError(
                f"the upload failed ({error.strerror})", where=str(error.filename), fix="check the file, run it again"
            ) from error
        raise UsageError(
            f"the upload failed ({first_line(error)})", where=repository, fix="check the network, and run it again"
        ) from error
