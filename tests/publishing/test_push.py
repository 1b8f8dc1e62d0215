"""Uploads to a hub on this machine. Each runs in a process of its own: the hub's library reads its settings once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny.hub import TOKEN, Hub, Repository, running_hub
from tiny.timm_cases import CASES

from compress.artifact.folder import new_folder, verify_folder
from compress.artifact.provenance import Provenance
from compress.artifact.store import load_model, save_model
from compress.errors import UsageError
from compress.publishing.push import hub_problems


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    save_model(CASES["timm plain"]().model, tmp_path / "model", Provenance(stage="fuse"))
    return tmp_path / "model"


def push(address: str, *arguments: str | Path, token: str | None = TOKEN, **settings: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``compress push``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING_FACE"))}
    own = {
        "HF_ENDPOINT": address,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": str(Path(arguments[0]).parent / "home"),
    }
    environment = {**kept, **own, **({"HF_TOKEN": token} if token else {}), **settings}
    command = [sys.executable, "-m", "compress", "push", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def one_line(found: tuple[int, str, str]) -> str:
    """The message of a call that was refused."""
    code, out, error = found
    assert (code, out) == (2, ""), error
    assert error.count("\n") == 1, error
    assert TOKEN not in error
    return error


def test_what_is_uploaded_is_the_artifact(hub: Hub, artifact: Path, tmp_path: Path) -> None:
    (artifact / "private notes.txt").write_text("not listed, so not uploaded")
    code, out, error = push(hub.address, artifact, "me/vit", "--private")
    assert code == 0, error
    assert out.splitlines()[-1] == f"uploaded to {hub.address}/me/vit"
    assert error == "", "a model card that the hub has nothing to say about"
    repository = hub.repositories["me/vit"]
    assert repository.private
    assert "README.md" in repository.files
    assert set(hub.blobs.values()) == {(artifact / "model.safetensors").read_bytes()}
    copy = tmp_path / "downloaded"
    copy.mkdir()
    for name, content in repository.files.items():
        (copy / name).write_bytes(content)
    assert not (copy / "private notes.txt").exists()
    inputs = CASES["timm plain"]().inputs
    with torch.inference_mode():
        assert torch.equal(load_model(copy)(inputs), load_model(artifact)(inputs))


def test_the_result_as_json(hub: Hub, artifact: Path) -> None:
    code, out, error = push(hub.address, artifact, "vit", "--json", "-")
    assert code == 0, error
    plain = json.loads(out)
    assert (plain["schema"], plain["repository"]) == ("compress/push", "me/vit")
    assert plain["commit"] == hub.repositories["me/vit"].sha
    assert plain["digest"] == verify_folder(artifact).digest
    assert plain["bytes"] == sum(len(content) for content in hub.repositories["me/vit"].files.values())
    assert not hub.repositories["me/vit"].private


def test_other_content_is_replaced_on_request_only(hub: Hub, artifact: Path) -> None:
    before = {".gitattributes": b"", "old.bin": b"1", "README.md": b"2"}
    hub.repositories["me/vit"] = Repository(files=dict(before))
    message = one_line(push(hub.address, artifact, "me/vit"))
    assert "me/vit: the repository holds files already (README.md, old.bin); choose another name" in message
    assert hub.repositories["me/vit"].files == before
    code, _, error = push(hub.address, artifact, "me/vit", "--overwrite")
    assert code == 0, error
    assert set(hub.repositories["me/vit"].files) == {".gitattributes", "MANIFEST.json", *verify_folder(artifact).files}


def test_an_interrupted_upload_is_simply_repeated(hub: Hub, artifact: Path) -> None:
    hub.refuses_commits = True
    assert "the hub refuses: 403 The disk of the hub is full; check" in one_line(push(hub.address, artifact, "me/vit"))
    assert set(hub.repositories["me/vit"].files) == {".gitattributes"}
    hub.refuses_commits = False
    assert push(hub.address, artifact, "me/vit")[0] == 0
    assert "MANIFEST.json" in hub.repositories["me/vit"].files


def test_a_public_repository_is_not_taken_for_a_private_one(hub: Hub, artifact: Path) -> None:
    hub.repositories["me/vit"] = Repository()
    assert "is there already and is public" in one_line(push(hub.address, artifact, "me/vit", "--private"))
    assert set(hub.repositories["me/vit"].files) == {".gitattributes"}


def test_who_may_not_write_is_told_so(hub: Hub, artifact: Path) -> None:
    assert "the hub asks for a token; log in" in one_line(push(hub.address, artifact, "me/vit", token=None))
    assert hub.requests == []
    assert "the hub refuses: 401" in one_line(push(hub.address, artifact, "me/vit", token="hf_wrong"))
    assert "rights to create a model under" in one_line(push(hub.address, artifact, "they/vit"))
    for name in ("me/vit/more", "me/-vit", "me vit"):
        assert "is no name of a repository" in one_line(push(hub.address, artifact, name, token=None))
    assert hub.repositories == {}


def test_without_a_network_it_is_one_line(artifact: Path) -> None:
    closed = "http://127.0.0.1:9"
    assert "me/vit: the upload failed (" in one_line(push(closed, artifact, "me/vit"))
    assert "HF_HUB_OFFLINE is set" in one_line(push(closed, artifact, "me/vit", HF_HUB_OFFLINE="1"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught, hub_problems("me/vit"):
        (tmp_path / "gone").read_bytes()
    message = f"{tmp_path / 'gone'}: the upload failed (No such file or directory); check the file, run it again"
    assert str(caught.value) == message


def test_what_is_no_artifact_is_not_sent(hub: Hub, artifact: Path, tmp_path: Path) -> None:
    weights = artifact / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "model.safetensors: was changed or damaged" in one_line(push(hub.address, artifact, "me/vit"))
    (tmp_path / "folder").mkdir()
    assert "not an artifact" in one_line(push(hub.address, tmp_path / "folder", "me/vit"))
    assert "there is no such folder" in one_line(push(hub.address, tmp_path / "gone", "me/vit"))
    with new_folder(tmp_path / "checkpoint", kind="checkpoint", stage="tune") as partial:
        (partial / "state.json").write_text("{}")
    assert "not one model" in one_line(push(hub.address, tmp_path / "checkpoint", "me/vit"))
    assert hub.requests == []
