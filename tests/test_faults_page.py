"""docs/faults.md names tests that exist; found by parsing the files, so that nothing is imported for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEST_ID = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?P<name>[\w:]+)`")


def names_in(path: Path) -> set[str]:
    """``test_x`` and ``TestY::test_z`` of a file."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {f"{prefix}{item.name}" for item in inner if isinstance(item, ast.FunctionDef)}
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


def test_every_named_test_exists() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    absent = []
    for match in TEST_ID.finditer(text):
        path = ROOT / match["file"]
        if not path.is_file() or match["name"] not in names_in(path):
            absent.append(match[0])
    assert not absent, f"docs/faults.md names tests that do not exist: {', '.join(absent)}"


def test_every_row_names_a_test() -> None:
    for section in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| input")]
        assert rows, f"an empty section: {section.splitlines()[0]}"
        bare = [row for row in rows if not TEST_ID.search(row)]
        assert not bare, f"no test is named in: {bare[0]}"
