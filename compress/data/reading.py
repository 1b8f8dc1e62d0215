"""Reading and computing at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items in the same order, each made by a thread while the caller works on the one before.

    Decoding a file and most of a forward pass run outside Python's lock, so the two overlap. One item waits at most;
    an error is raised where its item would have come, and nothing is read on after the caller has stopped.
    """
    end = object()
    iterator = iter(items)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="reading") as thread:
        waiting = thread.submit(next, iterator, end)
        while (item := waiting.result()) is not end:
            waiting = thread.submit(next, iterator, end)
            yield item  # type: ignore[misc]  # not the end, so a T
