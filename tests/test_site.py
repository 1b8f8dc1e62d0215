"""The site of ``make docs``: every page is in it, and no link of it is dead."""

from __future__ import annotations

import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """As the Makefile does."""
    options = ("-q", "-W", "--keep-going", "-n", "-c", "docs", "-d", str(out / "doctrees"))
    command = [sys.executable, "-m", "sphinx", *options, ".", str(out / "html")]
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)


class Page(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name == "id" and value:
                self.places.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_every_page_is_in_the_navigation(site: Path) -> None:
    listed = Page(site / "docs/index.html").targets
    for name in PAGES:
        assert name == "index" or f"{name}.html" in listed
    assert {"../README.html", "../SECURITY.html"} <= set(listed)


def test_no_link_is_dead_and_nothing_is_fetched(site: Path) -> None:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    assert len(pages) > len(PAGES)
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme:
                assert parts.scheme == "https", f"{path.name}: {target}"
                continue
            linked = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert linked.is_file(), f"{path.name}: {target}"
            if parts.fragment and linked in pages:
                assert unquote(parts.fragment) in pages[linked].places, f"{path.name}: {target}"


def test_a_dead_link_fails_the_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.md", "images", "examples"))
    text = "# Start\n\n[page](nowhere.md), [heading](index.md#absent-heading), [file](nothing.yaml)\n"
    (tmp_path / "docs/index.md").write_text(text, encoding="utf-8")
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    for dead in ("nowhere.md", "absent-heading", "nothing.yaml"):
        assert dead in done.stderr
