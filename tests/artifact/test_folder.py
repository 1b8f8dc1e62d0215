"""Writing an artifact folder: all or nothing. Verifying one: the damaged file is named, with the stage to rerun."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import compress.artifact.claim
from compress.artifact.durable import write_bytes
from compress.artifact.folder import check_target, new_folder, verify_folder
from compress.artifact.manifest import MANIFEST_NAME
from compress.errors import ArtifactError


def save_model(target: Path, content: str = "weights", *, stage: str = "prune", overwrite: bool = False) -> Path:
    with new_folder(target, kind="model", stage=stage, overwrite=overwrite) as folder:
        write_bytes(folder / "model.safetensors", content.encode() * 10)
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "vocab.txt").write_text("é token\n", encoding="utf-8")
        (folder / "README.md").write_text("# card")
    return target


def save_set(target: Path, *, overwrite: bool = False) -> Path:
    members = ("member-0", "member-1")
    with new_folder(target, kind="members", stage="prune", members=members, overwrite=overwrite) as folder:
        for member in members:
            save_model(folder / member, member)
        write_bytes(folder / "scores.safetensors", b"scores")
    return target


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    previous = os.umask(mask)
    try:
        yield
    finally:
        os.umask(previous)


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_complete_artifact_and_nothing_else(tmp_path: Path) -> None:
    manifest = verify_folder(save_model(tmp_path / "deep" / "out"))
    assert names(tmp_path / "deep") == ["out"]
    assert set(manifest.files) == {"model.safetensors", "tokenizer/vocab.txt", "README.md"}
    assert (manifest.kind, manifest.stage, manifest.files["model.safetensors"].bytes) == ("model", "prune", 70)
    stored = json.loads((tmp_path / "deep" / "out" / MANIFEST_NAME).read_text())
    assert stored["sha256"] == manifest.digest


def test_repeated_saves_have_the_same_bytes(tmp_path: Path) -> None:
    first, second = save_set(tmp_path / "a"), save_set(tmp_path / "elsewhere")
    assert content(first) == content(second)
    assert verify_folder(first).digest == verify_folder(second).digest


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    with umask(0o022):
        save_set(tmp_path / "out")
    modes = {
        path.is_dir(): oct(path.stat().st_mode & 0o777) for path in [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    }
    assert modes == {True: "0o755", False: "0o644"}


def test_a_set_of_members_appears_as_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(ZeroDivisionError), new_folder(target, kind="members", stage="prune", members=("m",)) as folder:
        save_model(folder / "m")
        assert not target.exists()
        raise ZeroDivisionError
    assert names(tmp_path) == []
    manifest = verify_folder(save_set(target), expect_kind="members")
    assert manifest.members == ("member-0", "member-1")
    assert set(manifest.files) == {"scores.safetensors", "member-0/MANIFEST.json", "member-1/MANIFEST.json"}
    assert verify_folder(target / "member-0").kind == "model"  # a member stands alone too


def test_a_promised_member_that_was_not_written_is_an_error(tmp_path: Path) -> None:
    members = ("member-0", "member-1")
    with (
        pytest.raises(ArtifactError, match="member-1: there is no such folder"),
        new_folder(tmp_path / "out", kind="members", stage="prune", members=members) as folder,
    ):
        save_model(folder / "member-0")
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_a_failing_block_leaves_the_target_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    target = save_model(tmp_path / "out", "old")
    before = content(tmp_path)
    with pytest.raises(error), new_folder(target, kind="model", stage="fuse", overwrite=True) as folder:
        (folder / "half").write_text("x")
        raise error
    assert content(tmp_path) == before
    assert names(tmp_path) == ["out"]


def test_ctrl_c_inside_a_save(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "out", kind="model", stage="fuse") as folder:
        (folder / "half").write_text("x")
        os.kill(os.getpid(), signal.SIGINT)
        (folder / "never").write_text("x")
    assert names(tmp_path) == []


def test_overwrite_replaces_all_of_it(tmp_path: Path) -> None:
    target = save_set(tmp_path / "out")
    save_model(target, "new", overwrite=True)
    assert verify_folder(target).kind == "model"
    assert not (target / "member-0").exists()
    assert names(tmp_path) == ["out"]


def test_an_empty_folder_is_a_fine_target(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert verify_folder(save_model(tmp_path / "out")).kind == "model"


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk/real")
    save_model(tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    verify_folder(tmp_path / "disk" / "real")


def test_names_with_spaces_accents_and_cjk(tmp_path: Path) -> None:
    assert verify_folder(save_model(tmp_path / "mes modèles" / "模型 [1] *")).kind == "model"


def refused(target: Path, message: str, *, overwrite: bool = False) -> None:
    """The save is refused before its block runs."""
    ran = False
    with (
        pytest.raises(ArtifactError, match=message),
        new_folder(target, kind="model", stage="prune", overwrite=overwrite),
    ):
        ran = True
    assert not ran


def test_refused_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", "file: is a file")
    refused(tmp_path / "file" / "out", "cannot be written .*parents are folders")
    refused(tmp_path / "file" / "deep" / "out", "parents are folders")
    refused(tmp_path / ("x" * 250), "shorter name")
    refused(Path("/"), "mount point")
    artifact = save_model(tmp_path / "out")
    refused(artifact, "out: is not empty; .*--overwrite")
    monkeypatch.chdir(artifact)
    refused(Path(), "working folder", overwrite=True)
    assert names(tmp_path) == ["file", "out"]


def test_overwrite_deletes_artifacts_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years")
    refused(home, "no artifact .*'thesis.tex'", overwrite=True)
    assert (home / "thesis.tex").read_text() == "years"
    broken = save_model(tmp_path / "broken")
    (broken / "model.safetensors").unlink()
    check_target(broken, overwrite=True)
    (broken / MANIFEST_NAME).rename(broken / "provenance.json")
    check_target(broken, overwrite=True)


@pytest.mark.parametrize(("number", "cure"), [(errno.EACCES, "may write to"), (errno.EROFS, "not read-only")])
def test_a_parent_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cure: str
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        if path.name.startswith(".out"):
            raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    refused(tmp_path / "out", f"out: cannot be written .*{cure}")
    assert not names(tmp_path)


def test_a_full_or_broken_disk_in_the_block_or_at_the_last_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    refusal = pytest.raises(ArtifactError, match=r"out: cannot be written .*free some space")
    with refusal, new_folder(tmp_path / "out", kind="model", stage="fuse"):
        raise full

    def sync(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", sync)
    refusal = pytest.raises(ArtifactError, match=r"out: cannot be written .*check the disk")
    with refusal, new_folder(tmp_path / "out", kind="model", stage="fuse") as folder:
        (folder / "config.json").write_text("{}")
    assert names(tmp_path) == []


def test_errors_that_are_not_about_the_artifact_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), new_folder(tmp_path / "out", kind="model", stage="fuse"):
        (tmp_path / "no such input").read_text()
    refusal = pytest.raises(ArtifactError, match="out: cannot be written")
    with refusal, new_folder(tmp_path / "out", kind="model", stage="fuse") as folder:
        (folder / "no such folder" / "x").write_text("x")


@pytest.mark.parametrize("to", ["/etc/hostname", "/etc", "/nowhere"])
def test_links_are_not_stored(tmp_path: Path, to: str) -> None:
    with (
        pytest.raises(ValueError, match="neither a file nor a folder"),
        new_folder(tmp_path / "out", kind="model", stage="fuse") as folder,
    ):
        (folder / "link").symlink_to(to)
    assert names(tmp_path) == []


def test_a_second_writer_is_refused_at_once(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out", kind="model", stage="prune") as folder:
        (folder / "config.json").write_text("first")
        refused(tmp_path / "out", "another process is writing it")
        (folder / "more.json").write_text("still there")
    assert set(verify_folder(tmp_path / "out").files) == {"config.json", "more.json"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_target_that_appears_meanwhile_is_kept(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "out"
    with (
        pytest.raises(ArtifactError, match="out: is no"),
        new_folder(target, kind="model", stage="prune", overwrite=overwrite) as folder,
    ):
        (folder / "config.json").write_text("ours")
        target.mkdir()
        (target / "theirs").write_text("theirs")
    assert content(tmp_path) == {"out/theirs": b"theirs"}


@pytest.mark.parametrize(
    ("number", "message"), [(errno.EIO, "cannot be written"), (errno.ENOTEMPTY, "written by another process meanwhile")]
)
def test_a_failed_exchange_puts_the_old_artifact_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    target = save_model(tmp_path / "out", "old")
    rename = Path.rename

    def fail(path: Path, to: Path) -> Path:
        if path.name.endswith(".partial"):
            raise OSError(number, os.strerror(number), str(path))
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(ArtifactError, match=message):
        save_model(target, "new", overwrite=True)
    monkeypatch.undo()
    verify_folder(target)
    assert (target / "model.safetensors").read_bytes() == b"old" * 10
    assert names(tmp_path) == ["out"]


def test_what_dead_writers_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".out.partial" / "member-0").mkdir(parents=True)
    (tmp_path / ".out.old-0123").mkdir()  # not a name of ours
    (tmp_path / ".other.partial").mkdir()
    save_model(tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / (".out.old-" + "0" * 16))
    save_model(tmp_path / "out", "newer", overwrite=True)
    assert names(tmp_path) == [".other.partial", ".out.old-0123", "out"]


def test_an_artifact_taken_away_by_a_killed_overwrite_comes_back(tmp_path: Path) -> None:
    save_model(tmp_path / "out", "old").rename(tmp_path / (".out.old-" + "0" * 16))
    refused(tmp_path / "out", "is not empty")
    verify_folder(tmp_path / "out")
    assert names(tmp_path) == ["out"]


def test_without_folder_locks_saves_work_and_leftovers_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(compress.artifact.claim.fcntl, "flock", unsupported)
    verify_folder(save_model(tmp_path / "out"))
    (tmp_path / ".next.partial").mkdir()
    refused(tmp_path / "next", r"if there is none, delete .*\.next\.partial")
    assert (tmp_path / ".next.partial").exists()


# --- verifying -------------------------------------------------------------------------------------------------------


def every_file(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("length", [None, 0, 4, "half"])
def test_every_cut_or_missing_file_is_named(tmp_path: Path, length: int | str | None) -> None:
    target = save_set(tmp_path / "out")
    for path in every_file(target):
        original = path.read_bytes()
        if length is None:
            path.unlink()
        else:
            path.write_bytes(original[: len(original) // 2 if length == "half" else int(length)])
        named = path.parent if path.name == MANIFEST_NAME and length is None and path.parent == target else path
        with pytest.raises(ArtifactError) as caught:
            verify_folder(target)
        assert caught.value.where == str(named)
        assert "run the stage" in str(caught.value)
        if path.parent != target or path.name != MANIFEST_NAME:
            assert "'prune'" in str(caught.value)
        path.write_bytes(original)
    verify_folder(target)


def test_one_flipped_bit_in_any_file_is_found(tmp_path: Path) -> None:
    target = save_set(tmp_path / "out")
    for path in every_file(target):
        original = path.read_bytes()
        for position in {0, len(original) // 2, len(original) - 1}:
            changed = bytearray(original)
            changed[position] ^= 0x10
            path.write_bytes(changed)
            with pytest.raises(ArtifactError) as caught:
                verify_folder(target)
            assert caught.value.where == str(path)
        path.write_bytes(original)
    verify_folder(target)


def test_unlisted_files_are_tolerated_edited_ones_are_not(tmp_path: Path) -> None:
    target = save_model(tmp_path / "out")
    digest = verify_folder(target).digest
    (target / ".README.md.swp").write_text("x")
    (target / "evaluation.json").write_text("{}")
    save_model(target / "nested")
    assert verify_folder(target).digest == digest
    (target / "README.md").write_text("# my own words")
    with pytest.raises(ArtifactError, match=r"README\.md: has 14 bytes instead of 6; run the stage 'prune'"):
        verify_folder(target)


def test_links_are_refused(tmp_path: Path) -> None:
    target = save_model(tmp_path / "out")
    real = target / "model.safetensors"
    real.rename(tmp_path / "aside")
    real.symlink_to(tmp_path / "aside")
    with pytest.raises(ArtifactError, match=r"model.safetensors: is not a regular file"):
        verify_folder(target)
    (tmp_path / "aside").replace(real)
    (target / "tokenizer").rename(tmp_path / "aside")
    (target / "tokenizer").symlink_to(tmp_path / "aside")
    with pytest.raises(ArtifactError, match="tokenizer: is not a folder"):
        verify_folder(target)


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    target = save_model(tmp_path / "out")
    (target / "README.md").unlink()
    os.mkfifo(target / "README.md")
    with pytest.raises(ArtifactError, match="not a regular file"):
        verify_folder(target)


def test_a_member_exchanged_for_another_sound_one_is_found(tmp_path: Path) -> None:
    target = save_set(tmp_path / "out")
    shutil.rmtree(target / "member-1")
    save_model(target / "member-1", "another")
    with pytest.raises(ArtifactError, match=r"member-1/MANIFEST\.json"):
        verify_folder(target)


def test_the_kind_is_checked(tmp_path: Path) -> None:
    model, members = save_model(tmp_path / "model"), save_set(tmp_path / "set")
    with pytest.raises(ArtifactError, match=r"model: holds one model, not a set of pruned members; .*compress prune"):
        verify_folder(model, expect_kind="members")
    with pytest.raises(ArtifactError, match=r"set: holds a set of pruned members, not one model; .*compress fuse"):
        verify_folder(members, expect_kind="model")
    assert verify_folder(model, expect_kind="model").members == ()


def test_a_moved_artifact_stays_sound(tmp_path: Path) -> None:
    digest = verify_folder(save_set(tmp_path / "out")).digest
    (tmp_path / "out").rename(tmp_path / "moved")
    assert verify_folder(tmp_path / "moved").digest == digest


class TestOutputsAndInputs:
    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Path:
        with (
            new_folder(tmp_path / "in", kind="members", stage="prune", members=["member-0"]) as partial,
            new_folder(partial / "member-0", kind="model", stage="prune") as member,
        ):
            (member / "weights").write_text("1")
        return tmp_path / "in"

    @pytest.mark.parametrize(
        ("target", "message"),
        [("in", "is the input"), ("in/member-0", "is a part of the input"), ("", "holds the input")],
    )
    def test_an_output_that_would_destroy_its_input_is_refused(
        self, artifact: Path, tmp_path: Path, target: str, message: str
    ) -> None:
        for given in (artifact, str(artifact)):
            with pytest.raises(ArtifactError, match=message):
                check_target(tmp_path / target, overwrite=True, inputs=[given])

    def test_a_link_to_the_input_is_the_input(self, artifact: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(artifact)
        with pytest.raises(ArtifactError, match="is the input"):
            check_target(tmp_path / "link", overwrite=True, inputs=[artifact])

    def test_other_places_are_fine(self, artifact: Path, tmp_path: Path) -> None:
        (tmp_path / "plain").mkdir()
        check_target(tmp_path / "out", inputs=[artifact, "timm:vit_tiny_patch16_224", None])
        check_target(tmp_path / "plain" / "out", inputs=[tmp_path / "plain"])
        check_target(artifact / "fused", inputs=[artifact])

    def test_an_artifact_that_holds_another_is_not_replaced(self, artifact: Path) -> None:
        check_target(artifact, overwrite=True)  # its own members are its own
        save_model(artifact / "fused")
        with pytest.raises(ArtifactError, match="holds another artifact, 'fused', which would be lost; move it away"):
            check_target(artifact, overwrite=True)

    @pytest.mark.parametrize("place", ["out", "cats/out", "."])
    def test_nothing_is_put_among_the_data(self, tmp_path: Path, place: str) -> None:
        (tmp_path / "images" / "cats").mkdir(parents=True)
        with pytest.raises(ArtifactError, match="of which it would become a part; choose a folder outside of the data"):
            check_target(tmp_path / "images" / place, outside=[tmp_path / "images"])
        check_target(tmp_path / "images-out", outside=[tmp_path / "images"])
