"""Disturb whole runs of ``tiny.whole_run``'s recipe in forked children, and print what is left as JSON.

Usage: ``disturb_runs.py FOLDER KILLS REFUSALS``. Everything is imported and warm before the first fork, so a run costs
what its stages cost. ``test_disturbed_runs.py`` looks at the results.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from artifact.refused_writes import refuse_change
from tiny.whole_run import digests, run, write_recipe
from tqdm import tqdm

from compress.errors import CompressError

ERRORS = (errno.ENOSPC, errno.EACCES, errno.EROFS)
DONE, REFUSED, BUG = 0, 2, 1


def forked(action: Callable[[], None]) -> tuple[int, Path]:
    """Run ``action`` in a child; returns its process id, and the file in which it leaves its message."""
    descriptor, name = tempfile.mkstemp(dir=MESSAGES)
    child = os.fork()
    if child:
        os.close(descriptor)
        return child, Path(name)
    code = DONE
    try:
        action()
        said = ""
    except CompressError as error:
        code, said = REFUSED, str(error)
    except BaseException:  # noqa: BLE001 - whatever it is, it is told
        code, said = BUG, traceback.format_exc()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.write(descriptor, said.encode())
    os._exit(code)


def waited(child: int, message: Path) -> dict[str, Any]:
    """How a child ended: its exit code (negative: the signal), and what it said."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"code": code, "said": message.read_text(encoding="utf-8")}


def outcome(recipe: Path, out: Path, disturbed: dict[str, Any]) -> dict[str, Any]:
    """What is there after a disturbed run, and after an undisturbed one that follows it."""
    found = digests(out)
    again = waited(*forked(lambda: run(recipe, out)))
    hidden = sorted(path.relative_to(out).as_posix() for path in out.rglob(".*"))
    result = {**disturbed, "found": found, "again": again, "digests": digests(out), "hidden": hidden}
    shutil.rmtree(out, ignore_errors=True)
    return result


def killed(recipe: Path, out: Path, rounds: int, duration: float) -> list[dict[str, Any]]:
    """SIGKILL after a random part of the time that a run takes."""
    chance = random.Random(0)
    results = []
    for _ in range(rounds):
        child, message = forked(lambda: run(recipe, out))
        time.sleep(chance.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        results.append(outcome(recipe, out, waited(child, message)))
    return results


def refused(recipe: Path, out: Path, rounds: int) -> list[dict[str, Any]]:
    """A file system that refuses from the n-th change on, for n spread over the whole run; all errors in turn."""

    def counted() -> None:
        count = refuse_change(out, None, 0)
        run(recipe, out)
        raise CompressError(str(count()))

    total = int(waited(*forked(counted))["said"])
    shutil.rmtree(out)
    results = []
    for index, number in enumerate(sorted({round(step * total / rounds) for step in range(rounds)})):
        for error in ERRORS if rounds >= total else (ERRORS[index % len(ERRORS)],):

            def disturbed(number: int = number, error: int = error) -> None:
                refuse_change(out, number, error)
                run(recipe, out)

            ended = waited(*forked(disturbed))
            results.append(outcome(recipe, out, {**ended, "number": number, "error": errno.errorcode[error]}))
    return results


def limited(recipe: Path, out: Path) -> list[dict[str, Any]]:
    """Files may not grow beyond a size, which the writers in C++ and Rust meet as well."""

    def disturbed(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        run(recipe, out)

    sizes = (0, 3_000, 25_000, 40_000)
    return [
        outcome(recipe, out, {**waited(*forked(lambda size=size: disturbed(size))), "size": size}) for size in sizes
    ]


def raced(recipe: Path, out: Path) -> dict[str, Any]:
    """Two processes run the recipe into one folder at once."""
    children = [forked(lambda: run(recipe, out)) for _ in range(2)]
    both = [waited(*child) for child in children]
    return outcome(recipe, out, {"both": both})


def main(folder: Path, kills: int, refusals: int) -> None:
    torch.set_num_threads(1)
    tqdm.monitor_interval = 0  # a child that is forked while tqdm's thread holds its lock would wait for it forever
    recipe, out = write_recipe(folder), folder / "out"
    run(recipe, folder / "warm")
    gc.freeze()  # or every collection of a child would walk through all that is imported
    began = time.perf_counter()
    undisturbed = waited(*forked(lambda: run(recipe, folder / "whole")))
    duration = time.perf_counter() - began
    result = {
        "undisturbed": {**undisturbed, "seconds": duration, "digests": digests(folder / "whole")},
        "killed": killed(recipe, out, kills, duration),
        "refused": refused(recipe, out, refusals),
        "limited": limited(recipe, out),
        "raced": raced(recipe, out),
    }
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    PLACE = Path(sys.argv[1])
    MESSAGES = PLACE / "messages"
    MESSAGES.mkdir()
    main(PLACE, int(sys.argv[2]), int(sys.argv[3]))
