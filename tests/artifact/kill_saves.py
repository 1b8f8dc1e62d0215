"""Save artifacts in forked children that are killed or refused the disk, and print what is left as JSON.

Run by ``test_folder_kills.py``. Usage: ``kill_saves.py steps|random|refuse|race FOLDER``.
It imports no torch, so a fork and a save cost milliseconds.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from refused_writes import refuse_change

from compress.artifact.durable import write_bytes
from compress.artifact.folder import new_folder, verify_folder
from compress.errors import ArtifactError

MEMBERS = ("member-0", "member-1")
ERRORS = (errno.ENOSPC, errno.EACCES, errno.EROFS)
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def save(target: Path, content: str, *, overwrite: bool, size: int = 100_000) -> None:
    with new_folder(target, kind="members", stage="prune", members=MEMBERS, overwrite=overwrite) as root:
        for member in MEMBERS:
            with new_folder(root / member, kind="model", stage="prune") as folder:
                write_bytes(folder / "model.safetensors", content.encode() * size)
                write_bytes(folder / "config.json", content.encode())
        write_bytes(root / "scores.safetensors", content.encode())


def forked(action: Callable[[], None]) -> int:
    """Run ``action`` in a child; returns its process id."""
    child = os.fork()
    if child:
        return child
    try:
        action()
    except ArtifactError:
        os._exit(2)
    except BaseException:  # noqa: BLE001 - whatever it is, the child ends here
        os._exit(1)
    os._exit(0)


def die_before_step(number: int) -> None:
    """From now on, die just before the ``number``-th change to the file system."""
    taken = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal taken
        if event in CHANGES or (event == "open" and arguments[2] & os.O_CREAT):
            if taken == number:
                os.kill(os.getpid(), signal.SIGKILL)
            taken += 1

    sys.addaudithook(count)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def state(target: Path) -> str:
    """``absent``, ``broken: ...``, or the content that every file of a complete artifact agrees on."""
    if not target.exists():
        return "absent"
    try:
        manifest = verify_folder(target, expect_kind="members")
    except ArtifactError as error:
        return f"broken: {error}"
    contents = {(target / member / "config.json").read_text() for member in manifest.members}
    contents.add((target / "scores.safetensors").read_text())
    return contents.pop() if len(contents) == 1 else f"broken: mixed {sorted(contents)}"


def after_a_kill(folder: Path, kill: Callable[[Path], int], *, overwrite: bool) -> dict[str, object]:
    """Kill one save; report what is there, and what is there after the next, unhurt save."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    target = folder / "out"
    if overwrite:
        save(target, "old", overwrite=False)
    _, status = os.waitpid(kill(target), 0)
    result: dict[str, object] = {
        "overwrite": overwrite,
        "killed": os.WIFSIGNALED(status),
        "code": os.waitstatus_to_exitcode(status),
        "state": state(target),
        "retired": [state(path) for path in folder.glob(".out.old-*")],
    }
    save(target, "next", overwrite=target.exists() or overwrite)
    return result | {"next": state(target), "left": names(folder)}


def kill_at_steps(folder: Path) -> list[dict[str, object]]:
    results = []
    for overwrite in (False, True):
        number = 0
        while True:

            def kill(target: Path, number: int = number, overwrite: bool = overwrite) -> int:
                def action() -> None:
                    die_before_step(number)
                    save(target, "new", overwrite=overwrite)

                return forked(action)

            results.append(after_a_kill(folder, kill, overwrite=overwrite))
            if not results[-1]["killed"]:
                break
            number += 1
    return results


def kill_at_random(folder: Path) -> list[dict[str, object]]:
    generator = random.Random(0)
    begin = time.perf_counter()
    save(folder / "measured", "x", overwrite=False)
    duration = time.perf_counter() - begin

    def kill(target: Path, overwrite: bool) -> int:
        child = forked(lambda: save(target, "new", overwrite=overwrite))
        time.sleep(generator.uniform(0, 1.2 * duration))
        os.kill(child, signal.SIGKILL)
        return child

    kills = (lambda target: kill(target, False), lambda target: kill(target, True))
    return [after_a_kill(folder / "kills", kills[number % 2], overwrite=bool(number % 2)) for number in range(40)]


def refuse_at_steps(folder: Path) -> list[dict[str, object]]:
    """Every change of a save is refused once, with the errors in turn."""
    return [result for overwrite in (False, True) for result in _refused(folder, overwrite)]


def _refused(folder: Path, overwrite: bool) -> Iterator[dict[str, object]]:
    place, said = folder / "refused", folder / "said"
    folder.mkdir(exist_ok=True)
    number = changes = 0
    while number <= changes:
        error = ERRORS[number % len(ERRORS)]

        def refused(target: Path, number: int = number, error: int = error) -> int:
            def action() -> None:
                count = refuse_change(place, number, error)
                try:
                    save(target, "new", overwrite=overwrite, size=1)
                except ArtifactError as refusal:
                    said.write_text(str(refusal), encoding="utf-8")
                    raise
                finally:
                    (folder / "changes").write_text(str(count()))

            said.unlink(missing_ok=True)
            return forked(action)

        result = after_a_kill(place, refused, overwrite=overwrite)
        changes = max(changes, int((folder / "changes").read_text()))
        message = said.read_text(encoding="utf-8") if said.exists() else None
        yield {**result, "number": number, "error": errno.errorcode[error], "said": message}
        number += 1


def race(folder: Path) -> list[dict[str, object]]:
    """Two processes save to one target at once."""
    results = []
    for number in range(20):
        target = folder / str(number)
        start = time.monotonic() + 0.02

        def action(content: str, target: Path = target, start: float = start) -> None:
            time.sleep(max(0.0, start - time.monotonic()))
            save(target, content, overwrite=False)

        children = {name: forked(lambda name=name: action(name)) for name in ("a", "b")}
        exits = {name: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for name, child in children.items()}
        results.append({"exits": exits, "state": state(target)})
    results.append({"left": names(folder)})
    return results


if __name__ == "__main__":
    modes = {"steps": kill_at_steps, "random": kill_at_random, "refuse": refuse_at_steps, "race": race}
    place = Path(sys.argv[2])
    json.dump(modes[sys.argv[1]](place), sys.stdout)
