"""An interrupted training goes on to the same weights, bit for bit."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from torch import Tensor

from compress.artifact.folder import verify_folder
from compress.data.base import Dataset
from compress.errors import ArtifactError
from compress.evaluation import collect as collecting
from compress.transformer.model import Transformer
from compress.tuning.checkpoint import SCRATCH
from compress.tuning.log import read_lines
from compress.tuning.losses import ExtraLoss, StepOutputs
from compress.tuning.options import Tune
from compress.tuning.tune import tune

Options = Callable[..., Tune]


class Signal(ExtraLoss):
    """A loss of nothing that sends this process a signal when a step begins."""

    def __init__(self, step: int, number: signal.Signals = signal.SIGINT) -> None:
        self.step, self.number = step, number

    def prepare(self, model: Transformer, step: int, steps: int) -> None:
        if step == self.step:
            self.step = -1  # a second signal would not wait for the end of the step
            os.kill(os.getpid(), self.number)

    def terms(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        return {"nothing": outputs.member_logits.new_zeros(())}


def digest(folder: Path) -> str:
    return verify_folder(folder).digest


def states(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".*.tune-*/**/step-*"))


def test_a_checkpoint_that_cannot_be_moved_into_its_place_is_one_sentence(
    model: Transformer, data: Dataset, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.parent.name == SCRATCH:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(ArtifactError, match=r"step-00000002.*: cannot be written \(Permission denied\)"):
        tune(model, tmp_path / "out", data=data, options=options(checkpoint_steps=2))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [0, 3, 5])
def test_interrupted_and_resumed_equals_uninterrupted(
    model: Transformer,
    data: Dataset,
    validation: Dataset,
    options: Options,
    tmp_path: Path,
    step: int,
    number: signal.Signals,
) -> None:
    chosen = options(epochs=3, head_dropout=0.5, shift=1, accumulate=2, evaluate_steps=2, metric="cls/nll", lr=0.05)
    whole, out = tmp_path / "whole", tmp_path / "out"
    tune(model, whole, data=data, validation=validation, options=chosen, extra_losses=[Signal(-1)])
    with pytest.raises(KeyboardInterrupt):
        tune(model, out, data=data, validation=validation, options=chosen, extra_losses=[Signal(step, number)])
    assert not out.exists()
    assert states(tmp_path) == [f"step-{step + 1:08d}"]
    helped = chosen.model_copy(update={"workers": 2, "checkpoint_steps": 1})
    tune(model, out, data=data, validation=validation, options=helped, extra_losses=[Signal(-1)])
    assert digest(out) == digest(whole)
    assert states(tmp_path) == []
    steps = [entry["step"] for entry in read_lines(out / "log.jsonl") if "cls/nll" in entry]
    assert steps == [0, 2, 4, 6], "every evaluation once"


def test_an_interruption_of_an_evaluation_loses_nothing(
    model: Transformer,
    data: Dataset,
    validation: Dataset,
    options: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = options(steps=4, evaluate_steps=2)
    tune(model, tmp_path / "whole", data=data, validation=validation, options=chosen)
    calls = []
    real = collecting.answers

    def interrupting(*arguments: object, **named: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        return real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(collecting, "answers", interrupting)
    with pytest.raises(KeyboardInterrupt):
        tune(model, tmp_path / "out", data=data, validation=validation, options=chosen)
    assert states(tmp_path) == ["step-00000002"]
    tune(model, tmp_path / "out", data=data, validation=validation, options=chosen)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def test_other_options_start_anew_and_the_first_run_can_still_go_on(
    model: Transformer, data: Dataset, options: Options, tmp_path: Path
) -> None:
    for lr in (1e-3, 2e-3):
        with pytest.raises(KeyboardInterrupt):
            tune(model, tmp_path / "out", data=data, options=options(lr=lr), extra_losses=[Signal(2)])
    assert len(states(tmp_path)) == 2
    tune(model, tmp_path / "out", data=data, options=options(lr=1e-3), extra_losses=[Signal(-1)])
    tune(model, tmp_path / "whole", data=data, options=options(lr=1e-3))
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def test_a_member_that_was_removed_in_part_is_trained_again(
    members: Path, data: Dataset, options: Options, tmp_path: Path
) -> None:
    tune(members, tmp_path / "whole", data=data, options=options())
    with pytest.raises(KeyboardInterrupt):
        tune(members, tmp_path / "out", data=data, options=options(), extra_losses=[Signal(2)])
    (state,) = tmp_path.glob(".out.tune-*")
    names = [path.name for path in (tmp_path / "whole").iterdir() if path.is_dir()]
    for name in names:
        (state / name).mkdir()
        (state / name / "model.safetensors").write_bytes(b"what a removal that was killed has left")
    tune(members, tmp_path / "out", data=data, options=options())
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def test_finished_members_are_not_trained_again(members: Path, data: Dataset, options: Options, tmp_path: Path) -> None:
    tune(members, tmp_path / "whole", data=data, options=options())

    class InSecondMember(Signal):
        seen = 0

        def prepare(self, model: Transformer, step: int, steps: int) -> None:
            self.seen += step == 0
            if self.seen == 2:
                super().prepare(model, step, steps)

    second = InSecondMember(3)
    with pytest.raises(KeyboardInterrupt):
        tune(members, tmp_path / "out", data=data, options=options(), extra_losses=[second])
    again = InSecondMember(-1)
    resumed = tune(members, tmp_path / "out", data=data, options=options(), extra_losses=[again])
    assert again.seen == 1, "the first member was finished, the second in its middle"
    assert all(own.loss is not None for own in resumed.models)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def arguments(out: Path) -> list[str]:
    return [
        sys.executable, "-m", "compress", "tune", "timm:vit_tiny_patch16_224", "--from-scratch", "-o", str(out),
        *(f"--argument={text}" for text in ("img_size=8", "patch_size=4", "in_chans=1", "embed_dim=24", "depth=3")),
        "--argument=num_heads=4", "--preprocessing=mean=[0.3]", "--preprocessing=std=[0.4]",
        "--preprocessing=resize=squash", "--preprocessing=interpolation=bilinear",
        "--data=builtin:digits#calibration", "--batch-size=5", "--epochs=6", "--checkpoint-steps=10", "--workers=2",
    ]  # fmt: skip


def wait_for_state(folder: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        if states(folder) or process.poll() is not None:
            return
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_goes_on_when_it_is_repeated(tmp_path: Path, number: signal.Signals) -> None:
    subprocess.run(arguments(tmp_path / "whole"), check=True)
    process = subprocess.Popen(arguments(tmp_path / "out"), stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for_state(tmp_path, process)
    # The whole group, as a terminal's Ctrl-C or a scheduler does it: the data workers get it too.
    os.killpg(process.pid, number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130), error
    assert not (tmp_path / "out").exists()
    saved = states(tmp_path)
    assert saved
    if number != signal.SIGKILL:
        assert "the same call goes on from there" in error
    done = subprocess.run(arguments(tmp_path / "out"), check=True, stderr=subprocess.PIPE, text=True)
    assert f"going on after step {int(saved[-1].removeprefix('step-'))} of 240" in done.stderr
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")
