"""The resumable state beside the output."""

from __future__ import annotations

from pathlib import Path

import pytest

from compress.artifact.claim import claimed
from compress.artifact.manifest import MANIFEST_NAME
from compress.distributed import Processes
from compress.errors import ArtifactError
from compress.tuning.state import CheckpointStore, Progress, held_state, identity, remove_states, state_folder


def save(store: CheckpointStore, step: int, text: str = "weights") -> None:
    store.save(Progress(step=step), lambda folder: (folder / "weights").write_text(text) and None)


def test_the_newest_complete_checkpoint_is_found_and_older_ones_go(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "state")
    assert store.newest() is None
    for step in (5, 10, 100):
        save(store, step)
    found = store.newest()
    assert found is not None
    assert found[1].step == 100
    assert [path.name for path in store.folder.iterdir()] == ["step-00000100"]


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "state")
    save(store, 5)
    kept = (store.folder / "step-00000005").rename(store.folder / "kept")
    save(store, 6)
    kept.rename(store.folder / "step-00000005")
    (store.folder / "step-00000006" / "weights").write_text("w3ights")
    found = store.newest()
    assert found is not None
    assert found[1].step == 5


def test_a_failing_save_leaves_the_one_before(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "state")
    save(store, 5)

    def fail(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.save(Progress(step=6), fail)
    found = store.newest()
    assert found is not None
    assert found[1].step == 5


def test_what_a_broken_off_removal_left_is_in_nobody_s_way(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 2)
    (tmp_path / "step-00000002" / MANIFEST_NAME).unlink()
    assert store.newest() is None
    save(store, 2)
    found = store.newest()
    assert found is not None
    assert found[1].step == 2


def test_runs_of_other_options_keep_their_states_apart_until_the_output_is_there(tmp_path: Path) -> None:
    out = tmp_path / "o[1]*"
    one, other = identity(lr=1), identity(lr=2)
    assert one == identity(lr=1)
    for run in (one, other):
        save(CheckpointStore(state_folder(out, run)), 1)
    (tmp_path / ".o11.tune-x").mkdir()
    remove_states(out)
    assert [path.name for path in tmp_path.iterdir()] == [".o11.tune-x"]


def test_a_second_process_is_refused_and_nothing_resumable_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with held_state(out, "x", Processes()) as folder:
        with pytest.raises(ArtifactError, match="another process is writing it"), claimed(folder / "run"):
            pass
        save(CheckpointStore(folder), 3)
    assert folder.is_dir()
    with held_state(tmp_path / "other", "x", Processes()) as folder:
        (folder / "log.jsonl").write_text("")
    assert not folder.exists()
