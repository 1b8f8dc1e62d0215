from __future__ import annotations

import itertools

import numpy as np
import pytest

from compress.evaluation.report import words
from compress.evaluation.report.look import Look
from compress.evaluation.report.palette import DARK, LIGHT, MODEL_ROLES, ROLE_OF_COLOUR
from compress.evaluation.report.picture import picture_name

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SEEN_BY = {
    "everybody": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
) / np.array([[0.95047], [1.0], [1.08883]])


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(np.clip(TO_XYZ @ np.clip(rgb, 0, 1), 1e-4, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(first: str, second: str) -> float:
    dark, light = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour)) for colour in (first, second))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_marks_have_the_contrast_of_wcag(colours) -> None:
    for role in ("ink", "muted", "good", "bad"):
        assert contrast(colours[role], colours["card"]) >= 4.5
        assert contrast(colours[role], colours["page"]) >= 4.5
    for role in MODEL_ROLES:
        assert contrast(colours[role], colours["card"]) >= 3


@pytest.mark.parametrize("reader", SEEN_BY)
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_models_differ_in_colour_for_every_reader(colours, reader: str) -> None:
    seen = [lab(np.array(SEEN_BY[reader]) @ linear(colours[role])) for role in MODEL_ROLES]
    closest = min(float(np.linalg.norm(first - second)) for first, second in itertools.combinations(seen, 2))
    assert closest > 15


def test_every_role_has_its_own_colour_in_both_editions() -> None:
    assert len(ROLE_OF_COLOUR) == len(LIGHT)
    assert set(LIGHT) == set(DARK)


def test_more_models_than_colours_differ_in_line_or_marker() -> None:
    names = [f"model {number}" for number in range(20)]
    look = Look(names)
    seen = {(look.colour(name), str(look.dash(name)), look.marker(name)) for name in names}
    assert len(seen) >= 12
    assert look.colour("model 0") == look.colour("model 6")
    assert look.dash("model 0") != look.dash("model 6")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (words.percent(0.9421), "94.2 %"),
        (words.percent(0.00432), "0.43 %"),
        (words.percent(0.0), "0.0 %"),
        (words.percent(1.0), "100.0 %"),
        (words.quantity(86_567_000), "86.6 M"),
        (words.quantity(999.6), "1.00 k"),
        (words.quantity(12), "12"),
        (words.quantity(1e20), "100000 P"),
        (words.size(2048), "2.05 kB"),
        (words.size(12), "12 B"),
        (words.milliseconds(12.34), "12.3 ms"),
        (words.decimal(0.21349), "0.213"),
        (words.decimal(0.0), "0.000"),
        (words.decimal(0.00051), "0.00051"),
        (words.percent(0.00051), "0.051 %"),
        (words.decimal(12345.0), "1.23e+04"),
        (words.points(-0.0125), "−1.2 points"),
        (words.interval(0.91, 0.952, words.percent), "91.0 – 95.2 %"),
        (words.interval(900, 1100, words.quantity), "900 – 1.10 k"),
        (words.tick(words.percent)(0.8, None), "80 %"),
        (words.tick(words.quantity)(3e7, None), "30 M"),
        (words.tick(words.decimal)(0.95, None), "0.95"),
        (words.tick(words.milliseconds)(0.0, None), "0 ms"),
        (words.listed(["a", "b", "c"]), "a, b and c"),
        (words.listed([]), ""),
        (words.counted(1, "input", "inputs"), "1 input"),
        (words.counted(1200, "input", "inputs"), "1,200 inputs"),
    ],
)
def test_words(shown: str, expected: str) -> None:
    assert plain(shown) == expected


def test_file_names_are_safe_and_distinct() -> None:
    assert picture_name("roc", "../../etc/pässwd", 0) == "roc-1-etc-p-sswd"
    assert picture_name("roc", "…", 1) == "roc-2"
    assert picture_name("roc", "a b", 0) != picture_name("roc", "a/b", 1)
