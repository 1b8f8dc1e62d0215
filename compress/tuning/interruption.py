"""SIGINT and SIGTERM end training between two steps, when everything is consistent."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """Within the block the first signal is noted, the second raises ``KeyboardInterrupt`` at once.

    Signals reach the main thread only; in any other thread this does nothing.

    Attributes:
        requested: whether a signal has come.
    """

    def __init__(self) -> None:
        self.requested = False
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def at_once(self, wanted: bool = True) -> Iterator[None]:
        """Within the block a signal, also one that came before, raises ``KeyboardInterrupt``, if ``wanted``."""
        self._at_once = wanted
        try:
            if wanted and self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested or self._at_once:
            raise KeyboardInterrupt
        self.requested = True
