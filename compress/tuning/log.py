"""What training reports: a bar, a file with one JSON object per line, and TensorBoard on request."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from compress.artifact.durable import write_failure
from compress.errors import UsageError
from compress.progress import progress_bar

LOG_NAME = "log.jsonl"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a log; a line that a kill cut short is left out."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)


def last_loss(path: Path) -> float | None:
    """The training loss in the last line of a log that has one, a mean over the steps since the line before."""
    losses: list[float] = [entry["loss"] for entry in read_lines(path) if "loss" in entry]
    return losses[-1] if losses else None


class TrainingLog:
    """Reports of one training; only the main process makes one.

    Args:
        path: the JSONL file. A resumed training keeps the lines up to its step and appends.
        start: steps that were done before.
        samples_before: samples that they saw.
        samples: samples of the whole training.
        label: title of the bar.
        tensorboard: folder for event files, or None.

    Raises:
        ArtifactError: the file cannot be written, now or later.
    """

    def __init__(
        self, path: Path, *, start: int, samples_before: int, samples: int, label: str, tensorboard: Path | None = None
    ) -> None:
        self._path = path
        kept = [entry for entry in read_lines(path) if entry.get("step", 0) <= start] if start else []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: every line is on the disk at once, and closing the file cannot fail.
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise write_failure(error, path) from error
        for entry in kept:
            self._write(entry)
        self._bar = progress_bar(label, total=samples, initial=samples_before, unit="sample")
        self._events = None if tensorboard is None else _event_writer(tensorboard, start)
        self._samples, self._since = 0, time.perf_counter()

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        self._file.close()
        if self._events is not None:
            self._events.close()

    def advance(self, samples: int) -> None:
        """Move the bar by the samples of one step."""
        self._samples += samples
        self._bar.update(samples)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """Report losses and rate after ``step`` steps; adds the samples per second since the last report."""
        now = time.perf_counter()
        speed = self._samples / max(now - self._since, 1e-9)
        self._samples, self._since = 0, now
        self._bar.set_postfix({name: f"{values[name]:.3g}" for name in ("loss", "lr")}, refresh=False)
        self._report(step, {**values, "samples_per_second": speed})

    def evaluation(self, step: int, metrics: Mapping[str, float | None], *, best: bool) -> None:
        """Report the metrics of the validation set; the time they took does not count as training."""
        self._report(step, {**metrics, "best": best})
        self._samples, self._since = 0, time.perf_counter()

    def _report(self, step: int, values: Mapping[str, Any]) -> None:
        self._write({"step": step, **values})
        if self._events is not None:
            for name, value in values.items():
                if isinstance(value, float):
                    self._events.add_scalar(name, value, step)

    def _write(self, entry: Mapping[str, Any]) -> None:
        try:
            self._file.write(f"{json.dumps(entry)}\n".encode())
        except OSError as error:
            raise write_failure(error, self._path) from error


def require_tensorboard() -> None:
    """Raise ``UsageError`` when TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError(
            "TensorBoard is not installed", where="--tensorboard", fix="pip install tensorboard, or leave it out"
        )


def _event_writer(folder: Path, start: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=start)
