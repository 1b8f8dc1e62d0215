"""Slow tests run only when asked for; every test is offline."""

from __future__ import annotations

import os
import signal

import pytest

# The hub's library reads this once, when it is imported.
os.environ["HF_HUB_OFFLINE"] = "1"

# A suite started in the background of a script inherits that Ctrl-C is ignored; tests of interruptions need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    skip = pytest.mark.skip(reason="slow; add --run-slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
