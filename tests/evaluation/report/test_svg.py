from __future__ import annotations

import io
import re
import warnings
from xml.etree import ElementTree

import matplotlib
import pytest
from PIL import Image

from compress.evaluation.report.look import Look, drawing, heading, new_figure, shortened
from compress.evaluation.report.picture import Picture
from compress.evaluation.report.svg import inline_svg, png

NAMES = ["<b>$x$", "_hidden", "数字"]


def picture(name: str = "curves") -> Picture:
    look = Look(NAMES)
    figure = new_figure(200)
    axes = figure.subplots()
    for place, model in enumerate(NAMES):
        axes.plot(
            [0, 1],
            [0, place],
            color=look.colour(model),
            marker=look.marker(model),
            linestyle=look.dash(model),
            label=shortened(model),
            gid=f"line-{place}",
        )
    axes.legend()
    heading(axes, "</svg><script>alert(1)</script>")
    return Picture(name, figure, 'a "quoted" <description>', {"line-0": "first \x00 line"})


@pytest.fixture
def svg() -> str:
    with drawing():
        return inline_svg(picture())


def test_names_stay_text(svg: str) -> None:
    root = ElementTree.fromstring(svg)
    shown = {element.text for element in root.iter("text")}
    assert {"<b>$x$", " _hidden", "数字", "</svg><script>alert(1)</script>"} <= shown
    assert root.get("aria-label") == 'a "quoted" <description>'
    assert "<script" not in svg


def test_colours_follow_the_page_and_nothing_points_outside(svg: str) -> None:
    assert not re.search(r"#[0-9a-f]{6}\b", svg)
    assert "var(--model-1)" in svg
    assert "var(--card)" in svg
    assert "http" not in svg
    assert "<style" not in svg
    assert "font-family" not in svg


def test_identifiers_belong_to_the_picture(svg: str) -> None:
    identifiers = re.findall(r'\bid="([^"]*)"', svg)
    references = re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', svg)
    assert identifiers
    assert all(name.startswith("curves.") for name in identifiers)
    assert {first or second for first, second in references} <= set(identifiers)


def test_a_tip_becomes_a_title_without_forbidden_characters(svg: str) -> None:
    assert [element.text for element in ElementTree.fromstring(svg).iter("title")] == [
        "first \N{REPLACEMENT CHARACTER} line"
    ]


def test_the_same_picture_gives_the_same_bytes() -> None:
    with drawing():
        assert inline_svg(picture()) == inline_svg(picture())
        assert png(picture()) == png(picture())


def test_the_users_matplotlib_settings_neither_matter_nor_change() -> None:
    with matplotlib.rc_context({"font.size": 30.0, "text.usetex": True}):
        with drawing():
            svg = inline_svg(picture())
        assert matplotlib.rcParams["font.size"] == 30.0
    with drawing():
        assert inline_svg(picture()) == svg


def test_png_has_the_size_of_the_figure_and_missing_glyphs_are_no_warning() -> None:
    with drawing(), warnings.catch_warnings():
        warnings.simplefilter("error")
        image = Image.open(io.BytesIO(png(picture())))
    assert image.size == (944, 555)
