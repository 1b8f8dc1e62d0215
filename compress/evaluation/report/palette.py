"""The colours of a report: one table for pictures and page, in a light and a dark edition.

Pictures are drawn in the light edition, in which every role has a colour of its own; in the page each of these becomes
a CSS variable, so pictures follow the reader's choice of light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping

# Six colours that stay apart for readers with protanopia, deuteranopia or tritanopia, and from the card beneath.
_MODELS_LIGHT = ("#0a5fbf", "#e8590c", "#0f9a68", "#b968a8", "#6b3410", "#4a4d57")
_MODELS_DARK = ("#4a9dff", "#ff7a45", "#6fe3b4", "#d884cf", "#f2d878", "#8b8a84")

MODEL_ROLES = tuple(f"model-{number}" for number in range(1, len(_MODELS_LIGHT) + 1))

LIGHT: Mapping[str, str] = {
    "page": "#f6f5f2",
    "card": "#ffffff",
    "ink": "#1d2026",
    "muted": "#5d636e",
    "rule": "#d5d7db",
    "faint": "#ebecee",
    "good": "#0b6e4b",
    "bad": "#b3261e",
    **dict(zip(MODEL_ROLES, _MODELS_LIGHT, strict=True)),
}
DARK: Mapping[str, str] = {
    "page": "#121419",
    "card": "#1b1e24",
    "ink": "#eceef1",
    "muted": "#a3a9b4",
    "rule": "#3c414b",
    "faint": "#2a2e36",
    "good": "#63d6a6",
    "bad": "#ff8f85",
    **dict(zip(MODEL_ROLES, _MODELS_DARK, strict=True)),
}

ROLE_OF_COLOUR: Mapping[str, str] = {colour: role for role, colour in LIGHT.items()}


def model_role(position: int) -> str:
    """The role of the model at this position in the call; more models than colours begin again."""
    return MODEL_ROLES[position % len(MODEL_ROLES)]


def css_variables(colours: Mapping[str, str]) -> str:
    """``--ink: #1d2026; ...``."""
    return " ".join(f"--{role}: {colour};" for role, colour in colours.items())
