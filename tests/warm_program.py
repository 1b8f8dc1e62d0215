"""The program and Python in a process that has imported everything: a call costs its own work, and no start.

``warm_programs`` gives a folder for the front of PATH. What lies in it as ``compress`` and ``python`` hands its
arguments, folder, environment and standard streams to one server, which forks for every call. Importing the libraries
takes longer than most examples of the documentation.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

CLIENT = """#!{python} -SEs
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as call:
    call.connect({address!r})
    socket.send_fds(call, [b"."], [0, 1, 2])
    call.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
    call.shutdown(socket.SHUT_WR)
    code = call.recv(8)
sys.exit(int(code) if code else "the call ended without an exit code")
"""
NEEDED_BY_MOST = (
    "compress.backbones.timm_vit",
    "compress.pruning.prune",
    "compress.fusion.fuse",
    "compress.evaluation.evaluate",
    "compress.evaluation.report.write",
    "sklearn.datasets",
)


@contextlib.contextmanager
def warm_programs() -> Iterator[str]:
    """The folder, while the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/socket"
        for name in ("compress", "python"):
            path = Path(folder, name)
            path.write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
            path.chmod(0o755)
        command = [sys.executable, str(Path(__file__)), address]
        # Its standard input also ends when this process is killed.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            try:
                yield folder
            finally:
                server.kill()


def serve(address: str) -> None:
    """Answer calls until standard input ends."""
    for name in NEEDED_BY_MOST:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the calls
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            call, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(call)
            call.close()


def _answer(call: socket.socket) -> None:
    """Do what was asked for in this process, send the exit code, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(call, 1, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    content = b"".join(iter(lambda: call.recv(1 << 16), b""))
    (program, *arguments), folder, environment = json.loads(content)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code: object = 1
    try:
        code = _run(Path(program).name, arguments)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - the outermost layer of this process
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    number = code if isinstance(code, int) else int(code is not None)
    call.sendall(str(number).encode())
    os._exit(number)


def _run(program: str, arguments: list[str]) -> object:
    if program == "compress":
        from compress.__main__ import main

        sys.argv = [program, *arguments]
        return main()
    option, code = arguments
    assert option == "-c"
    exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
