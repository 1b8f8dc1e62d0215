"""From a figure to SVG that lives inside a page, and to PNG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from xml.etree import ElementTree

from compress.evaluation.report.palette import ROLE_OF_COLOUR
from compress.evaluation.report.picture import Picture

PNG_DPI = 200

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_FAMILY = re.compile(r"font-family: [^;]*; ?")
_DIGITS = re.compile(r"(\.\d\d)\d+")
_NO_TURN = re.compile(r"rotate\(-?0 [^)]*\)")
_REFERENCE = re.compile(r"(?:url\(|href=\")#([^)\"]+)")
_DROPPED = ("metadata", "style", "title")
# Characters that no XML holds.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def png(picture: Picture) -> bytes:
    """The picture on a light ground; the same picture gives the same bytes."""
    buffer = io.BytesIO()
    with _missing_glyphs_pass():
        picture.figure.savefig(buffer, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return buffer.getvalue()


def inline_svg(picture: Picture) -> str:
    """An ``<svg>`` element for HTML.

    Colours become CSS variables, type takes the page's font, identifiers begin with the picture's name so that pictures
    do not meet in one page, and nothing refers to anything outside.
    """
    buffer = io.BytesIO()
    with _missing_glyphs_pass():
        picture.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Type": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for element in list(root.iter()):
        for child in list(element):
            if _local(child.tag) in _DROPPED:
                element.remove(child)
    used = set(_REFERENCE.findall(buffer.getvalue().decode()))
    for element in root.iter():
        _rewrite(element, picture, used)
    width, height = root.get("viewBox", "0 0 1 1").split()[2:]
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": printable(picture.description), "class": "picture"}
    root.set("style", f"aspect-ratio: {width} / {height}; --natural-width: {width}px")
    return ElementTree.tostring(root, encoding="unicode")


def printable(text: str) -> str:
    """The text without characters that XML and HTML forbid."""
    return _CONTROL.sub("\ufffd", text)


def _rewrite(element: ElementTree.Element, picture: Picture, used: Collection[str]) -> None:
    """Make one element fit for a page: see ``inline_svg``."""
    element.tag = _local(element.tag)
    element.tail = None
    if element.tag not in ("text", "title"):
        element.text = None
    tip = picture.tips.get(element.get("id", ""))
    if tip is not None:
        title = ElementTree.Element("title")
        title.text = printable(tip)
        element.insert(0, title)
    attributes = {_local(name): value for name, value in element.attrib.items()}
    element.attrib.clear()
    for name, value in attributes.items():
        if name == "id":
            if value in used:
                element.set(name, f"{picture.name}.{value}")
        elif name == "href":
            # A picture inside the drawing is not referred to but written out.
            inside = value.startswith("data:image/")
            element.set(name, value if inside else f"#{picture.name}.{value.removeprefix('#')}")
        elif name == "style":
            element.set(name, _COLOUR.sub(_variable, _DIGITS.sub(r"\1", _FAMILY.sub("", value))))
        elif name != "transform" or not _NO_TURN.fullmatch(value):
            element.set(name, _DIGITS.sub(r"\1", value).replace("url(#", f"url(#{picture.name}."))


def _variable(colour: re.Match[str]) -> str:
    return f"var(--{ROLE_OF_COLOUR[colour[0].lower()]})"


def _local(name: str) -> str:
    return name.rpartition("}")[2]


@contextmanager
def _missing_glyphs_pass() -> Iterator[None]:
    """A name in a script that matplotlib's font lacks is drawn as boxes in the PNG; the page has the reader's fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield
