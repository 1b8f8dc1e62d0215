"""The README and the pages of docs/: commands run, links lead somewhere, tables are those of the code.

Every ```console and ```python block of a page runs, in order, in one temporary folder, unless the line before it is
``<!-- not run: reason -->``. Blocks with paths of the reader's own are ```sh, and do not run; the commands and options
in them exist, and so do the files of this repository.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from warm_program import warm_programs

from compress.cli.lazy_group import LazyGroup
from compress.cli.main import COMMANDS
from compress.recipe.chain import check_chain
from compress.recipe.read import read_recipe
from compress.recipe.stages import STAGES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *DOCS.glob("*.md")))
FENCE = re.compile(r"(?:<!-- not run: (?P<reason>.+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.S | re.M)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
RUNNABLE = ("console", "python")
OWN_FILE = re.compile(r"(benchmarks|recipes|docs)/[\w/.-]+\.\w+")


def blocks(page: str) -> Iterator[re.Match[str]]:
    return FENCE.finditer((ROOT / page).read_text(encoding="utf-8"))


def runnable(page: str) -> list[re.Match[str]]:
    return [block for block in blocks(page) if block["language"] in RUNNABLE and not block["reason"]]


@pytest.fixture(scope="module")
def programs() -> Iterator[str]:
    with warm_programs() as folder:
        yield folder


def run(block: re.Match[str], folder: Path, programs: str) -> subprocess.CompletedProcess[str]:
    shell = ["bash", "-euo", "pipefail"]
    command = [*(["python"] if block["language"] == "python" else shell), "-c", block["code"]]
    path = os.pathsep.join((programs, str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)])
def test_every_command_of_a_page_runs(page: str, programs: str, tmp_path: Path) -> None:
    for block in runnable(page):
        done = run(block, tmp_path, programs)
        assert done.returncode == 0, f"{page}:\n{block['code']}\n{done.stdout}\n{done.stderr}"


def calls(code: str) -> Iterator[list[str]]:
    """The words of every line of a shell block, without comments and redirections."""
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""  # DATA#test is no comment
        words: list[str] = []
        for word in lexer:
            if word.startswith("#") or set(word) <= set("();<>|&"):
                break
            words.append(word)
        yield words


@pytest.mark.parametrize("page", PAGES)
def test_what_does_not_run_names_commands_options_and_files_that_exist(page: str) -> None:
    group = LazyGroup(entries=COMMANDS, help="", epilog="")
    for block in blocks(page):
        if block["language"] != "sh" and not (block["language"] == "console" and block["reason"]):
            continue
        for words in calls(block["code"]):
            for word in words:
                assert not OWN_FILE.fullmatch(word) or (ROOT / word).is_file(), f"{page}: there is no {word}"
            if words[:1] != ["compress"] and "-m" not in words:
                continue
            name, *arguments = words[words.index("compress") + 1 :]
            command = group.get_command(click.Context(group), name)
            assert command is not None, f"{page}: there is no command {name}"
            command.make_parser(click.Context(command)).parse_args(arguments)  # raises for an unknown option


def test_the_readme_has_something_to_run() -> None:
    assert runnable("README.md")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in LINK.finditer(text):
        target, _, heading = match["target"].partition("#")
        if target.startswith(("https://", "http://")):
            continue
        linked = (ROOT / page).parent / target if target else ROOT / page
        assert linked.exists(), f"{page} links to {match['target']}"
        assert linked.resolve().is_relative_to(ROOT.resolve())
        if heading:
            assert heading in headings(linked.read_text(encoding="utf-8")), f"{page} links to {match['target']}"


def headings(text: str) -> set[str]:
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_tables_are_those_of_the_schemas(page: str) -> None:
    specification = importlib.util.spec_from_file_location("update_tables", DOCS / "update_tables.py")
    assert specification is not None
    assert specification.loader is not None
    tables = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tables)
    text = (ROOT / page).read_text(encoding="utf-8")
    assert tables.updated(text) == text, "run: python docs/update_tables.py"


@pytest.mark.parametrize("page", PAGES)
def test_sample_recipes_are_valid(page: str, tmp_path: Path) -> None:
    for block in blocks(page):
        if block["language"] != "yaml" or "stages" not in (content := yaml.safe_load(block["code"])):
            continue
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump({"model": "builtin:digits-vit", **content}), encoding="utf-8")
        recipe = read_recipe(path)
        assert recipe.stages
        if "data" in content:
            check_chain(recipe)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_every_page_is_found_from_the_index(page: str) -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    assert page == "docs/index.md" or f"]({Path(page).name})" in text


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_page_with_keys_a_sample_and_limits(stage: str) -> None:
    page = f"docs/{stage}.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    assert {"keys", "limits"} <= headings(text)
    samples = [block["code"] for block in blocks(page) if block["language"] == "yaml"]
    assert any(re.search(rf"^  - {stage}\b", sample, re.M) for sample in samples)
