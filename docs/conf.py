"""Sphinx: the pages of this folder, the README and SECURITY.md as one site (``make docs``).

The source folder is the repository, so that links between all of them resolve and a link to any other file of the
repository becomes a download. The navigation is made from the tables of docs/index.md, which stay plain Markdown.
"""

from __future__ import annotations

import re

from pygments.lexers.shell import BashLexer
from sphinx.application import Sphinx

project = "compress"
html_title = "compress"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["README.md", "SECURITY.md", "docs/*.md"]
exclude_patterns = [".*", "build", "dist", "runs", "compress", "tests", "benchmarks", "recipes"]
myst_heading_anchors = 3
smartquotes = False  # would make a dash of the two hyphens of an option

html_theme = "furo"
html_extra_path = ["site"]  # the page at the root, which leads to docs/index.html
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False

SECTION = re.compile(r"^## (?P<caption>[^\n]+)\n(?P<body>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PAGE = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<path>[\w./-]+)\.md\)")


def navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append to the start page a hidden table of contents: a part per section, an entry per page that it links to."""
    if docname != root_doc:
        return
    for section in SECTION.finditer(source[0]):
        entries = [f"{page['title']} <{page['path']}>" for page in PAGE.finditer(section["body"])]
        if entries:
            source[0] += "\n".join(
                ("\n\n```{toctree}", ":hidden:", f":caption: {section['caption']}", "", *entries, "```\n")
            )


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", navigation)
    app.add_lexer("console", BashLexer)  # the pages' commands have no prompt, by which the usual one finds them
