"""Missing words."""

from __future__ import annotations

import re

import numpy as np

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)


def corrupt(text: str, severity: int, generator: np.random.Generator) -> str:
    """Leave out a share of the words: 5, 10, 20, 30 or 50 %; one stays in any case.

    Words are what spaces separate; a text without spaces stays as it is. After the random deletion of Wei and Zou,
    EMNLP 2019 (arXiv 1901.11196).
    """
    words = re.findall(r"\S+\s*", text)
    if len(words) < 2:
        return text
    draws = generator.random(len(words))
    kept = draws >= min(SHARES[severity - 1], draws.max())
    before = text[: len(text) - len(text.lstrip())]
    return before + "".join(word for word, keep in zip(words, kept, strict=True) if keep)
