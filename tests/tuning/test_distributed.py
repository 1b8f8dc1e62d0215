"""Two processes under ``accelerate launch`` see, score, train and measure what one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from compress.artifact.folder import verify_folder
from compress.artifact.store import load_model
from compress.artifact.tensors import read_tensors
from compress.distributed import Processes, processes
from compress.errors import UsageError
from compress.tuning.log import read_lines

HERE = Path(__file__).parent
SCRIPT = HERE / "two_processes.py"
LAUNCH = [
    sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1", "--num_processes", "2",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
]  # fmt: skip


def environment() -> dict[str, str]:
    paths = f"{HERE.parents[1]}{os.pathsep}{HERE.parent}"
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("processes")
    for launcher in ([sys.executable], LAUNCH):
        done = subprocess.run(
            [*launcher, str(SCRIPT), str(out)], env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return out


def seen(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text())


def test_scores_and_kept_heads_are_the_same(folder: Path) -> None:
    one, two = (read_tensors(folder / f"pruned-{count}" / "scores.safetensors") for count in (1, 2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert verify_folder(folder / "pruned-1").digest == verify_folder(folder / "pruned-2").digest
    assert seen(folder, "0-of-1")["kept"] == seen(folder, "0-of-2")["kept"] == seen(folder, "1-of-2")["kept"]


def test_circuits_are_the_same(folder: Path) -> None:
    one, two = (read_tensors(folder / f"circuits-{count}" / "scores.safetensors") for count in (1, 2))
    assert sorted(one) == sorted(two)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert verify_folder(folder / "circuits-1").digest == verify_folder(folder / "circuits-2").digest


def test_metrics_are_the_same_on_every_process(folder: Path) -> None:
    alone = seen(folder, "0-of-1")["metrics"]
    assert alone["ood/photos/auroc"] is not None
    for name in ("0-of-2", "1-of-2"):
        assert seen(folder, name)["metrics"] == alone


def test_training_is_the_same_but_for_rounding(folder: Path) -> None:
    one, two = (load_model(folder / f"tuned-{count}").state_dict() for count in (1, 2))
    assert max(float((one[name] - two[name]).abs().median()) for name in one) < 1e-6
    losses = [
        [entry["loss"] for entry in read_lines(folder / f"tuned-{count}" / "log.jsonl") if "loss" in entry]
        for count in (1, 2)
    ]
    assert len(losses[0]) == 4
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert seen(folder, "0-of-2")["tuned"]["models"] == seen(folder, "1-of-2")["tuned"]["models"]
    assert not list(folder.glob(".tuned-*"))


def test_a_layer_that_one_process_never_enters(folder: Path) -> None:
    first, second = (load_file(folder / f"{index}-of-2.safetensors") for index in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(bool(value.isfinite().all()) for value in first.values())


def test_all_stop_when_the_loss_of_one_is_no_number(folder: Path) -> None:
    for name in ("0-of-1", "0-of-2", "1-of-2"):
        assert "the loss is not finite at step 1 of 2 (the losses or their gradients)" in seen(folder, name)["error"]


@given(st.integers(0, 50), st.integers(1, 12), st.integers(1, 5))
def test_parts_are_whole_batches_in_order(samples: int, batch_size: int, count: int) -> None:
    parts = [Processes(index, count).part(samples, batch_size) for index in range(count)]
    assert [sample for part in parts for sample in part] == list(range(samples))
    assert all(part.start % batch_size == 0 for part in parts if part)
    sizes = [-(-len(part) // batch_size) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_one_process_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert processes(torch.device("cpu")) == Processes(0, 1)
    assert Processes().together(lambda: 3) == [3]
    assert Processes().on_main(lambda: 4) == 4


def test_one_numbered_device_for_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="cuda:1 is one device for several processes; use cuda or auto"):
        processes(torch.device("cuda:1"))
