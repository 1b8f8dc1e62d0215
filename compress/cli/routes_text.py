"""Which tokens of inputs pass the routed blocks, as text for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compress.inference.routes import BlockPass, InputRoutes
    from compress.transformer.model import Transformer

PASSES, SKIPS = "■", "·"
IMAGES = f"{PASSES} passes the block, {SKIPS} skips it"
TEXTS = "a word in [ ] passes the block, another skips it"


def routes_of_inputs(model: str | Transformer, reference: str) -> list[InputRoutes]:
    """Run the inputs that ``reference`` names through a model with routers.

    Raises:
        CompressError: the model cannot be opened or has no routers; an input cannot be read.
    """
    from compress.inference.routes import check_routed, input_routes
    from compress.opening import open_model
    from compress.prediction.inputs import read_inputs
    from compress.runtime import Runtime

    opened = open_model(model)
    check_routed(opened)
    dataset = read_inputs([reference], opened.config.preprocessing.kind, stdin=sys.stdin)
    return input_routes(opened.float(), dataset, range(len(dataset)), Runtime(device="cpu"))


def routes_text(found: Sequence[InputRoutes]) -> str:
    """Patches as a grid of marks, words in brackets where they pass; where streams disagree, the majority."""
    parts = [IMAGES if all(routes.words is None for routes in found) else TEXTS]
    for routes in found:
        lines = [routes.id]
        for own in routes.blocks:
            passing = sum(share >= 0.5 for share in own.passed)
            lines.append(f"block {own.block}: {passing} of {len(own.passed)} pass")
            lines += _words(own, routes.words) if routes.words is not None else _grid(own, routes.grid)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _words(own: BlockPass, words: Sequence[str]) -> list[str]:
    shown = [
        f"[{word.strip()}]" if share >= 0.5 else word.strip() for word, share in zip(words, own.passed, strict=True)
    ]
    return [f"  {' '.join(shown)}"]


def _grid(own: BlockPass, grid: tuple[int, int] | None) -> list[str]:
    columns = len(own.passed) if grid is None else grid[1]
    marks = [PASSES if share >= 0.5 else SKIPS for share in own.passed]
    return [f"  {' '.join(marks[start : start + columns])}" for start in range(0, len(marks), columns)]
