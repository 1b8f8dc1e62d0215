"""The log of a training."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from compress.data.base import Dataset
from compress.errors import UsageError
from compress.transformer.model import Transformer
from compress.tuning.log import TrainingLog, read_lines
from compress.tuning.options import Tune
from compress.tuning.tune import tune


def opened(path: Path, start: int = 0) -> TrainingLog:
    return TrainingLog(path, start=start, samples_before=0, samples=10, label="t")


def test_one_json_object_per_line_and_the_speed_between_reports(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    with opened(path) as log:
        log.advance(4)
        log.step(1, {"loss": 2.0, "lr": 0.1})
        log.evaluation(1, {"cls/accuracy": 0.5, "cls/nll": None}, best=True)
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first.pop("samples_per_second") > 0
    assert first == {"step": 1, "loss": 2.0, "lr": 0.1}
    assert second == {"step": 1, "cls/accuracy": 0.5, "cls/nll": None, "best": True}


def test_a_resumed_training_keeps_the_lines_up_to_its_step(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 4, "lo')
    with opened(path, start=2) as log:
        log.step(3, {"loss": 1.0, "lr": 0.1})
    assert [entry["step"] for entry in read_lines(path)] == [1, 2, 3]
    with opened(path):
        pass
    assert path.read_text() == ""


def test_losses_are_means_over_the_steps_between_two_lines(
    model: Transformer, data: Dataset, options: Callable[..., Tune], tmp_path: Path
) -> None:
    tune(model, tmp_path / "each", data=data, options=options(epochs=1, log_steps=1))
    tune(model, tmp_path / "some", data=data, options=options(epochs=1, log_steps=3))
    each = [entry["loss"] for entry in read_lines(tmp_path / "each" / "log.jsonl")]
    some = [entry["loss"] for entry in read_lines(tmp_path / "some" / "log.jsonl")]
    assert len(each) == 4
    assert some == pytest.approx([sum(each[:3]) / 3, each[3]])


def test_tensorboard_is_asked_for_before_anything_else(
    model: Transformer, data: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--tensorboard: TensorBoard is not installed; pip install tensorboard"):
        tune(model, tmp_path / "out", data=data, tensorboard=tmp_path / "events")


def test_numbers_reach_tensorboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert (folder, purge_step) == (str(tmp_path / "events"), 0)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("closed", 0.0, 0))

    stand_in = types.ModuleType("torch.utils.tensorboard")
    stand_in.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    with TrainingLog(
        tmp_path / "log", start=0, samples_before=0, samples=1, label="t", tensorboard=tmp_path / "events"
    ) as log:
        log.step(1, {"loss": 2.0, "lr": 0.1})
    assert written[:2] == [("loss", 2.0, 1), ("lr", 0.1, 1)]
    assert written[-1][0] == "closed"
