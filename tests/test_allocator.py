"""Freed memory stays with the program's process, and every other process is left alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from compress import allocator
from compress.allocator import keep_memory, user_settings

ON_GLIBC = pytest.mark.skipif(
    allocator._glibc() is None or allocator.keeps_memory() is None, reason="needs glibc 2.33 or later"
)

FAULTS = """
import ctypes, resource, sys
from compress.allocator import allocator, keep_memory
if sys.argv[1] == "keep":
    print(keep_memory())
else:
    print(None)
for turn in range(9):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(80 * 2**20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(allocator())
"""


def in_a_process(*arguments: str, **variables: str) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if "MALLOC" not in key and key != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@ON_GLIBC
def test_large_blocks_are_mapped_once_and_not_for_every_use() -> None:
    pages = 8 * 80 * 2**20 // os.sysconf("SC_PAGESIZE")
    _, afresh, plain = in_a_process("leave")
    took, kept, described = in_a_process("keep")
    assert (plain, described, took) == ("glibc", "glibc keeping freed memory", "True")
    assert int(kept) < 0.01 * int(afresh)
    assert int(afresh) <= 1.1 * pages


@ON_GLIBC
@pytest.mark.parametrize(
    ("name", "value", "described"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "131072", "glibc MALLOC_TRIM_THRESHOLD_=131072"),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=4096", "glibc glibc.malloc.mmap_threshold=4096"),
    ],
)
def test_what_the_user_set_wins(name: str, value: str, described: str) -> None:
    took, _, found = in_a_process("keep", **{name: value})
    assert (took, found) == ("False", described)


def test_tunables_of_other_parts_of_the_library_are_not_settings_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.rtld.nns=3:glibc.malloc.trim_threshold=5")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    found = user_settings()
    assert found["glibc.malloc.trim_threshold"] == "5"
    assert not {"glibc.rtld.nns", "MALLOC_ARENA_MAX"} & set(found)


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_on_other_systems_nothing_happens(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(allocator.sys, "platform", platform)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: pytest.fail("the C library was touched"))
    assert keep_memory() is False
    assert allocator.keeps_memory() is None


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Musl:
        """Has no ``mallopt`` and does not say that it is glibc."""

    monkeypatch.setattr(allocator.sys, "platform", "linux")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: Musl())
    assert keep_memory() is False
    assert allocator.keeps_memory() is None


@ON_GLIBC
def test_importing_the_library_changes_nothing() -> None:
    code = "import compress, compress.cli.main, compress.allocator as a; print(a.keeps_memory())"
    environment = {key: value for key, value in os.environ.items() if "MALLOC" not in key and key != "GLIBC_TUNABLES"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
