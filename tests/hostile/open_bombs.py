"""Open small files that ask for much, each in a forked child, and print what was said and how much memory it took.

Usage: ``open_bombs.py FOLDER``. ``test_bombs.py`` looks at the results.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import struct
import sys
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hostile.opened import MODEL, OPENERS, make_sound, replaced
from tqdm import tqdm

from compress.artifact.store import load_model
from compress.errors import CompressError

MIB = 2**20
LIMIT = 1024 * MIB
SAID, DONE, BUG = 2, 0, 1


def safetensors(text: bytes, length: int | None = None) -> bytes:
    """A file with this header and no data."""
    return (len(text) if length is None else length).to_bytes(8, "little") + text


def filled(opening: bytes, part: bytes, size: int) -> bytes:
    """``opening`` and as many parts as fit."""
    return opening + part * ((size - len(opening)) // len(part))


def numbered(opening: bytes, value: bytes, size: int) -> bytes:
    """A JSON object of as many different keys as fit, all of the same value."""
    count = size // (len(value) + 12)
    return opening + b",".join(b'"%08x":%s' % (number, value) for number in range(count)) + b"}"


def png(width: int, height: int, rows: int) -> bytes:
    """A black picture, of which so many rows are there."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    row, stream = bytes(1 + 3 * width), zlib.compressobj(1)
    pixels = b"".join(stream.compress(row) for _ in range(rows)) + stream.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def idx(declared: tuple[int, int, int], content: int) -> bytes:
    """A gzipped file of images, of which the content does not depend on what is declared."""
    return gzip.compress(b"\x00\x00\x08\x03" + struct.pack(">3I", *declared) + bytes(content))


def config_and_weights(content: bytes, sound: Path, folder: Path) -> None:
    """Open a model of which both files are replaced; a zero byte parts them."""
    config, weights = content.split(b"\0", 1)
    target = replaced(sound / MODEL, folder / "first", "config.json", config)
    load_model(replaced(target, folder / "second", "model.safetensors", weights))


ALL_OPENERS = {**OPENERS, "config and weights": config_and_weights}


def bombs(config: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, str, bytes]]:
    """Name, kind and content."""
    for size in (2, 12):
        yield (
            f"header of lists, {size} MiB",
            "weights",
            safetensors(filled(b'{"a":[[]', b",[]", size * MIB - 2) + b"]}"),
        )
        yield f"header of wrong entries, {size} MiB", "weights", safetensors(numbered(b"{", b"0", size * MIB))
    entry = b'{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    yield "header of overlapping tensors", "weights", safetensors(numbered(b"{", entry, 8 * MIB))
    yield "header longer than its file", "weights", safetensors(b"{}", 2**63)
    yield (
        "header of a huge tensor",
        "weights",
        safetensors(b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'),
    )
    yield "header of wrong metadata", "weights", safetensors(numbered(b'{"__metadata__":{', b"0", 8 * MIB) + b"}")
    yield "deep header", "weights", safetensors(b'{"a":' * MIB)
    yield "index of wrong entries", "index", numbered(b'{"weight_map":{', b"0", 8 * MIB) + b"}"
    for kind in ("manifest", "config", "provenance", "predictions"):
        yield f"{kind} of lists", kind, filled(b'{"files":[[]', b",[]", 4 * MIB - 8) + b"]}"
        yield f"{kind} of wrong entries", kind, numbered(b"{", b"0", 4 * MIB - 64)
        yield f"deep {kind}", kind, b'{"a":' * (MIB // 2)
        yield f"huge {kind}", kind, b" " * (20 * MIB)
    wrong = {f"{number:x}": 0 for number in range(180_000)}
    yield "manifest of wrong records", "manifest", json.dumps({**manifest, "files": wrong}).encode()
    yield "config of wrong labels", "config", json.dumps({**config, "labels": [0] * 190_000}).encode()
    yield "config with a huge number", "config", json.dumps(config)[:-1].encode() + b',"x":' + b"9" * 10**6 + b"}"
    arguments = config["backbone"]["arguments"]
    for name, changes in {
        "a billion layers": {"depth": 10**9},
        "sixty thousand layers": {"depth": 60_000},
        "a huge width": {"embed_dim": 2**40, "num_heads": 1},
        "a wide network": {"embed_dim": 2**16, "num_heads": 1},
        "many patches": {"img_size": 2**15, "patch_size": 1},
        "huge hidden layers": {"mlp_ratio": 1e9},
        "a huge number of registers": {"reg_tokens": 2**16, "embed_dim": 2**15, "num_heads": 1},
    }.items():
        backbone = {**config["backbone"], "arguments": {**arguments, **changes}}
        yield f"config of {name}", "config", json.dumps({**config, "backbone": backbone}).encode()
    empty = {
        "a billion layers and as many columns of no rows": (10**9, 1, [0, 10**9]),
        "many layers and as many tensors without elements": (60_000, 60_000, [0]),
    }
    for name, (depth, count, shape) in empty.items():
        backbone = {**config["backbone"], "arguments": {**arguments, "depth": depth}}
        entry = b'{"dtype":"F32","shape":%s,"data_offsets":[0,0]}' % json.dumps(shape).encode()
        header = b"{" + b",".join(b'"%d":%s' % (number, entry) for number in range(count)) + b"}"
        both = json.dumps({**config, "backbone": backbone}).encode() + b"\0" + safetensors(header)
        yield name, "config and weights", both
    yield "config of many classes", "config", json.dumps({**config, "labels": ["a"] * 190_000}).encode()
    aliases = "".join(f"{y}: &{y} [{','.join(9 * [f'*{x}'])}]\n" for x, y in zip("abcdefgh", "bcdefghi", strict=True))
    yield "aliases of aliases", "recipe", b"a: &a [1,1,1,1,1,1,1,1,1]\n" + aliases.encode()
    yield "deep recipe", "recipe", b"[" * 100_000
    yield "huge recipe", "recipe", b"a: b\n" * 5 * MIB
    yield "picture of many pixels", "image", png(60_000, 60_000, rows=30)
    yield "picture of just too many pixels", "image", png(9_000, 9_000, rows=9_000)
    yield "unpacked images without end", "idx", idx((1, 2, 2), 64 * MIB)
    yield "images of a huge size", "idx", idx((2**31, 2**10, 2**10), 4)


def opened(kind: str, content: bytes, sound: Path, folder: Path) -> dict[str, Any]:
    """What opening the content says in a child of its own, and by how much the child's memory grows, bytes.

    Pages of mapped files are left out: the code of a library, up to 70 MB of it, is paged in when a child first runs
    it, and how much at once is the machine's choice.
    """
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        code, said = DONE, ""
        soft = LIMIT + _pages(0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, soft))
        before, mapped = _pages(1), _pages(2)
        try:
            ALL_OPENERS[kind](content, sound, folder)
        except CompressError as error:
            code, said = SAID, str(error)
        except BaseException:  # noqa: BLE001 - whatever it is, it is told
            code, said = BUG, traceback.format_exc()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before - (_pages(2) - mapped)
        os.write(tell, json.dumps({"said": said[-2000:], "grown": grown}).encode())
        os._exit(code)
    os.close(tell)
    with os.fdopen(told, "rb") as stream:
        answer = stream.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"code": code, **(json.loads(answer) if answer else {"said": "killed", "grown": 0})}


def _pages(column: int) -> int:
    """Address space (0), resident memory (1) or the part of it that files are mapped to (2) of this process, bytes."""
    return int(Path("/proc/self/statm").read_text().split()[column]) * resource.getpagesize()


def main(folder: Path) -> None:
    tqdm.monitor_interval = 0  # a child that is forked while tqdm's thread holds its lock would wait for it forever
    sound = make_sound(folder / "sound")
    OPENERS["config"]((sound / MODEL / "config.json").read_bytes(), sound, folder)  # what is imported late
    config = json.loads((sound / MODEL / "config.json").read_text())
    manifest = json.loads((sound / MODEL / "MANIFEST.json").read_text())
    results = [
        {"name": name, "bytes": len(content), **opened(kind, content, sound, folder)}
        for name, kind, content in bombs(config, manifest)
    ]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
