"""Typing errors."""

from __future__ import annotations

import numpy as np

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _neighbours() -> dict[str, str]:
    """For each key of a QWERTY keyboard the keys that touch it."""
    places = {key: (row, column) for row, keys in enumerate(ROWS) for column, key in enumerate(keys)}
    return {
        key: "".join(
            other
            for other, (other_row, other_column) in places.items()
            # Each row is shifted to the right by about half a key.
            if other != key and abs(row - other_row) <= 1 and -1 <= (other_column - column) + (other_row - row) / 2 <= 1
        )
        for key, (row, column) in places.items()
    }


NEIGHBOURS = _neighbours()


def corrupt(text: str, severity: int, generator: np.random.Generator) -> str:
    """Mistype a share of the letters: 1, 2, 5, 10 or 20 %.

    A mistyped letter is swapped with the next one, left out, typed twice, or replaced by its neighbour on a QWERTY
    keyboard (typed twice when it is not on it), each as often. Works for every script; what is no letter stays. After
    the noise of Belinkov and Bisk, ICLR 2018 (arXiv 1711.02173).
    """
    draws = generator.random((len(text), 3))
    out: list[str] = []
    position = 0
    while position < len(text):
        letter, (error, kind, choice) = text[position], draws[position]
        following = text[position + 1 : position + 2]
        position += 1
        if not letter.isalpha() or error >= SHARES[severity - 1]:
            out.append(letter)
        elif kind < 0.25 and following.isalpha():
            out += [following, letter]
            position += 1
        elif kind < 0.5:
            pass
        else:
            out.append(letter * 2 if kind < 0.75 else _slipped(letter, choice))
    return "".join(out)


def _slipped(letter: str, choice: float) -> str:
    """The key beside ``letter``; ``choice`` in 0..1 says which."""
    near = NEIGHBOURS.get(letter.lower())
    if near is None:
        return letter * 2
    other = near[int(choice * len(near))]
    return other.upper() if letter.isupper() else other
