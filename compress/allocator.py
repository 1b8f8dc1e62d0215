"""How the C library hands out memory: kept for reuse, or mapped afresh for every large block.

glibc maps a block of more than 32 MiB on its own and unmaps it when it is freed, so every large activation is paid for
twice: the system clears its pages again at the first touch. On a CPU that can take longer than the arithmetic.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

# <malloc.h>: the parameters of mallopt.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = -1
PROBE_BYTES = 64 * 2**20
REPLACEMENTS = ("jemalloc", "tcmalloc", "mimalloc")
_COUNTS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2``; ``arena`` counts the heap's bytes, ``hblks`` the blocks that are mapped on their own."""

    _fields_ = [(name, ctypes.c_size_t) for name in _COUNTS]


def keep_memory() -> bool:
    """Let glibc keep freed memory for the next large block, from now on and for the whole process.

    Large blocks then come from the heap, and the heap does not shrink: the process stays as large as it once was. To
    be called once, before large tensors are made; the program ``compress`` does it when it starts. What the user chose
    by ``MALLOC_...`` or ``GLIBC_TUNABLES``, and any other allocator or C library, is left alone.

    No threshold is used for it: mallopt takes a 32-bit integer, so at most 2 GiB, and before glibc 2.35 refuses more
    than 32 MiB. Both settings here are the documented ones without a bound.

    Returns:
        Whether it took effect.
    """
    library = _glibc()
    if library is None or replacement() or user_settings():
        return False
    return bool(library.mallopt(M_MMAP_MAX, 0)) and bool(library.mallopt(M_TRIM_THRESHOLD, NEVER))


def keeps_memory() -> bool | None:
    """Whether a freed block of 64 MiB stays with the process, found by trying; None where glibc does not tell."""
    library = _glibc()
    if library is None or not hasattr(library, "mallinfo2"):
        return None
    library.mallinfo2.restype = _Mallinfo2
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    before = library.mallinfo2()
    block = library.malloc(PROBE_BYTES)  # its pages are never touched, so it costs nothing
    held = library.mallinfo2()
    library.free(block)
    after = library.mallinfo2()
    return bool(block) and held.hblks == before.hblks and after.arena == held.arena


def allocator() -> str:
    """The process's allocator in words: its name, the user's settings, and whether it keeps memory."""
    name = replacement()
    if name:
        return name
    words = ["glibc" if sys.platform == "linux" else "system"]
    words += [f"{key}={value}" for key, value in sorted(user_settings().items())]
    if keeps_memory():
        words.append("keeping freed memory")
    return " ".join(words)


def replacement() -> str:
    """The allocator that was loaded in the place of the C library's; empty when there is none."""
    maps = Path("/proc/self/maps")
    loaded = maps.read_text(errors="replace") if maps.exists() else os.environ.get("LD_PRELOAD", "")
    return next((name for name in REPLACEMENTS if name in loaded), "")


def user_settings() -> dict[str, str]:
    """What the user set for glibc's allocator in the environment, by name."""
    variables = {key: value for key, value in os.environ.items() if key.startswith("MALLOC_") and key.endswith("_")}
    parts = (setting.partition("=") for setting in os.environ.get("GLIBC_TUNABLES", "").split(":"))
    return variables | {key: value for key, _, value in parts if key.startswith("glibc.malloc.")}


def _glibc() -> ctypes.CDLL | None:
    """The C library of this process when it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None
