"""A model hub in memory, at an address of this machine: as much of its protocol as an upload needs."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OWNER, TOKEN = "me", "hf_good"


@dataclass
class Repository:
    """Its files, whether it is private, and the name of its last commit."""

    private: bool = False
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b""})
    sha: str = "0" * 40


class Hub(ThreadingHTTPServer):
    """The server.

    Attributes:
        repositories: by name, ``me/name``.
        blobs: large files, by their hash.
        refuses_commits: whether the next steps end before the last.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.refuses_commits = False
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Requests, in the order in which an upload makes them."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def do_GET(self) -> None:
        self._take("GET")

    def do_POST(self) -> None:
        self._take("POST")

    def do_PUT(self) -> None:
        self._take("PUT")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""

    def _take(self, method: str) -> None:
        path, body = self.path.split("?")[0], self._body()
        self.server.requests.append(f"{method} {path}")
        if method == "PUT" and path.startswith("/lfs/"):  # signed addresses need no token
            oid = hashlib.sha256(body).hexdigest()
            self.server.blobs[oid] = body
            return self._answer({}, 200 if path.endswith(oid) else 400)
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return self._answer({"error": "Invalid username or password."}, 401)
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            with_metadata = json.loads(body)["content"].startswith("---\n")
            warnings = [] if with_metadata else [{"message": "empty or missing yaml metadata in repo card"}]
            return self._answer({"errors": [], "warnings": warnings})
        found = re.fullmatch(r"(?:/api/models)?/(\w+/[\w-]+)(/preupload/main|/commit/main|\.git/.*batch)?", path)
        if found is None or found[1] not in self.server.repositories:
            return self._answer({"error": "Not found"}, 404)
        name, step = found.groups()
        repository = self.server.repositories[name]
        if step is None:
            files = [{"rfilename": file} for file in repository.files]
            return self._answer({"id": name, "sha": repository.sha, "private": repository.private, "siblings": files})
        if step.startswith("/preupload"):
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            return self._answer({"files": modes})
        if step.startswith("/commit"):
            return self._commit(name, repository, body)
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.server.address}/lfs/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        return self._answer({"transfer": "basic", "objects": objects})

    def _create(self, asked: dict[str, Any]) -> None:
        owner = asked.get("organization") or OWNER
        name = f"{owner}/{asked['name']}"
        if owner != OWNER:
            return self._answer({"error": f'You don\'t have the rights to create a model under "{owner}"'}, 403)
        taken = name in self.server.repositories
        if not taken:
            private = asked.get("visibility") == "private" or asked.get("private") is True
            self.server.repositories[name] = Repository(private=private)
        return self._answer({"url": f"{self.server.address}/{name}", "name": name}, 409 if taken else 200)

    def _commit(self, name: str, repository: Repository, body: bytes) -> None:
        if self.server.refuses_commits:
            return self._answer({"error": "The disk of the hub is full\nIts keeper sleeps"}, 403)
        files = dict(repository.files)
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header" and value.get("parentCommit", repository.sha) != repository.sha:
                return self._answer({"error": "A commit has happened since"}, 412)
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        repository.files, repository.sha = files, hashlib.sha1(body).hexdigest()
        commit = f"{self.server.address}/{name}/commit/{repository.sha}"
        return self._answer({"commitUrl": commit, "commitOid": repository.sha, "success": True})

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub for the time of the block."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
