"""Reading ahead changes when items are made, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from compress.data.reading import read_ahead


def test_the_items_come_in_order_and_none_is_lost() -> None:
    assert list(read_ahead(range(100))) == list(range(100))
    assert list(read_ahead([])) == []
    assert list(read_ahead([None, None])) == [None, None]


def test_the_next_item_is_made_while_the_caller_works() -> None:
    second = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    reading = read_ahead(items())
    assert next(reading) == 1
    assert second.wait(timeout=30), "nothing was read before it was asked for"
    assert list(reading) == [2]


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second is broken")

    reading = read_ahead(items())
    assert next(reading) == 1
    with pytest.raises(ValueError, match="the second is broken"):
        next(reading)


def test_nothing_is_read_after_the_caller_has_stopped() -> None:
    made = []

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    reading = read_ahead(items())
    assert next(reading) == 0
    reading.close()
    assert made in ([0], [0, 1])
    assert not any(thread.name.startswith("reading") for thread in threading.enumerate())
