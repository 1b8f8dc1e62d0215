"""Which attention heads each member keeps, layer by layer, and how important they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from pydantic import FiniteFloat

from compress.artifact.tensors import read_tensors
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.predictions import KeptHeads
from compress.evaluation.report.look import FAINT, INK, MUTED, SMALL, WIDTH, Look, new_figure, shortened
from compress.evaluation.report.picture import Picture, picture_name
from compress.evaluation.report.words import counted, listed
from compress.options import Options

EXPLANATION = (
    "Each square is one attention head, each row one layer, from input (top) to output (bottom): coloured heads were "
    "kept, pale ones removed."
)
IMPORTANCE_EXPLANATION = "The stronger the colour, the more the answers depend on the head."
SCORES = "scores.safetensors"
# Random scores say nothing about a head, and the losses of circuits belong to one search each.
METHODS = ("taylor", "magnitude")
LAYER = "layer."

_LEFT, _TOP, _GAP, _LEGEND = 22, 28, 14, 46
_SMALLEST_CELL, _LARGEST_CELL = 10.5, 15.0
_PALEST = 0.38

Importance = tuple[tuple[FiniteFloat, ...], ...]
"""``[layer][head]``."""


class HeadMap(Options):
    """Heads of one or several models that keep the same."""

    models: tuple[str, ...]
    original_heads: tuple[int, ...]
    """Heads per layer before pruning."""
    kept: tuple[tuple[tuple[int, ...], ...], ...]
    """``[layer][member]``: numbers of the kept heads in the original model."""
    branch_layer: int
    """The first layer in which members differ; the number of layers when none does."""
    importance: Importance | None = None
    """``[layer][head]`` in [0, 1]: of all heads of the original model, relative to the most important one."""
    method: str | None = None
    """How the importance was measured."""


def measure_heads(evaluation: Evaluation) -> tuple[HeadMap, ...]:
    """Head maps of the models that lost heads, one for models that keep the same."""
    maps: list[HeadMap] = []
    for model, predictions in evaluation.predictions.items():
        original = evaluation.original_heads.get(model)
        if not original or predictions.kept_heads is None:
            continue
        kept = _per_member(predictions.kept_heads)
        if all(len(heads) == total for groups, total in zip(kept, original, strict=True) for heads in groups):
            continue
        importance, method = _importance(evaluation.folders.get(model), original)
        for number, known in enumerate(maps):
            if (known.kept, known.original_heads) == (kept, original):
                maps[number] = _joined(known, model, importance, method)
                break
        else:
            differing = (layer for layer, groups in enumerate(kept) if len(set(groups)) > 1)
            maps.append(
                HeadMap(
                    models=(model,),
                    original_heads=original,
                    kept=kept,
                    branch_layer=next(differing, len(kept)),
                    importance=importance,
                    method=method,
                )
            )
    return tuple(maps)


def _joined(known: HeadMap, model: str, importance: Importance | None, method: str | None) -> HeadMap:
    """The map with one more model that keeps the same heads, and with the importance if the map had none."""
    if known.importance is not None:
        importance, method = known.importance, known.method
    update = {"models": (*known.models, model), "importance": importance, "method": method}
    return known.model_copy(update=update)


def _per_member(kept: KeptHeads) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """A shared layer, which lists its heads once, repeated for every member."""
    members = max(len(groups) for groups in kept)
    return tuple(
        tuple(tuple(groups[member] if len(groups) > 1 else groups[0]) for member in range(members)) for groups in kept
    )


def _importance(folder: Path | None, original: Sequence[int]) -> tuple[Importance | None, str | None]:
    """What ``prune`` measured on all heads of the original model, if the folder has it.

    Heads of different layers compare after each layer is divided by its Euclidean norm (Molchanov et al. 2019).
    """
    path = None if folder is None else folder / SCORES
    if path is None or not path.is_file():
        return None, None
    tensors = read_tensors(path)
    method = tensors.metadata.get("method")
    names = [name for name in sorted(tensors) if name.startswith(LAYER) and len(tensors.shape(name)) == 2]
    if method not in METHODS or [tensors.shape(name)[1] for name in names] != list(original):
        return None, None
    layers = [tensors[name].double().mean(0) for name in names]
    tiny = torch.finfo(torch.float64).tiny
    scaled = [layer / layer.norm().clamp_min(tiny) for layer in layers]
    largest = max(float(layer.max()) for layer in scaled)
    if not largest > 0:
        return None, None
    return tuple(tuple((layer / largest).clamp(0, 1).tolist()) for layer in scaled), method


def explanation(maps: Sequence[HeadMap]) -> str:
    """How to read the maps."""
    return f"{EXPLANATION} {IMPORTANCE_EXPLANATION}" if any(data.importance for data in maps) else EXPLANATION


def draw_heads(data: HeadMap, look: Look, position: int) -> Picture:
    """One panel per member; panels wrap when there is no room."""
    members, layers, columns = len(data.kept[0]), len(data.kept), max(data.original_heads)
    per_row = max(1, min(members, int((WIDTH - _LEFT) // (columns * _SMALLEST_CELL + _GAP))))
    cell = min(_LARGEST_CELL, (WIDTH - _LEFT - _GAP * per_row) / (columns * per_row))
    rows = -(-members // per_row)
    panel_height = layers * cell + _TOP
    height = 20 + rows * panel_height + _LEGEND
    figure = new_figure(height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    names = listed([shortened(name, 44 // len(data.models)) for name in data.models])
    axes.text(2, 13, names, fontweight="bold")
    colour = look.colour(data.models[0])
    tips: dict[str, str] = {}
    for member in range(members):
        left = _LEFT + (member % per_row) * (columns * cell + _GAP)
        top = 20 + (member // per_row) * panel_height + _TOP - 8
        title = f"member {member + 1}" if members > 1 else ""
        axes.text(left, top - 6, title, fontsize=SMALL, color=MUTED)
        tips |= _draw_member(axes, data, member, (left, top), cell, colour)
        if member % per_row == 0:
            _label_layers(axes, layers, (left, top), cell)
    _draw_legend(axes, data, colour, height - _LEGEND + 12)
    return Picture(picture_name("heads", data.models[0], position), figure, _description(data), tips)


def _draw_member(
    axes: Axes, data: HeadMap, member: int, corner: tuple[float, float], cell: float, colour: str
) -> dict[str, str]:
    left, top = corner
    tips = {}
    for layer, total in enumerate(data.original_heads):
        for head in range(total):
            kept = head in data.kept[layer][member]
            weight = 1.0 if data.importance is None else data.importance[layer][head]
            gid = f"head-{member}-{layer}-{head}"
            _square(
                axes,
                (left + head * cell, top + layer * cell),
                cell,
                colour if kept else FAINT,
                _PALEST + (1 - _PALEST) * weight if kept else 1.0,
                gid,
            )
            words = f"layer {layer}, head {head}: {'kept' if kept else 'removed'}"
            tips[gid] = words if data.importance is None else f"{words}, importance {weight:.2f}"
    if 0 < data.branch_layer < len(data.kept):
        line = top + data.branch_layer * cell - 0.3
        axes.plot([left - 2, left + max(data.original_heads) * cell + 1], [line, line], color=INK, linewidth=1)
    return tips


def _square(axes: Axes, corner: tuple[float, float], cell: float, colour: str, alpha: float, gid: str) -> None:
    inset, rounding = cell * 0.07, cell * 0.16
    axes.add_patch(
        FancyBboxPatch(
            (corner[0] + inset + rounding, corner[1] + inset + rounding),
            cell - 2 * (inset + rounding),
            cell - 2 * (inset + rounding),
            boxstyle=f"round,pad={rounding}",
            linewidth=0,
            facecolor=colour,
            alpha=alpha,
            gid=gid,
        )
    )


def _label_layers(axes: Axes, layers: int, corner: tuple[float, float], cell: float) -> None:
    left, top = corner
    step = -(-layers // 12)
    for layer in range(0, layers, step):
        axes.text(
            left - 5, top + (layer + 0.5) * cell, str(layer), fontsize=SMALL, color=MUTED, ha="right", va="center"
        )


def _draw_legend(axes: Axes, data: HeadMap, colour: str, line: float) -> None:
    side = 11.0
    levels = (1.0,) if data.importance is None else (0.0, 0.33, 0.67, 1.0)
    _square(axes, (_LEFT, line - side / 2), side, FAINT, 1.0, "legend-removed")
    axes.text(_LEFT + side + 4, line, "removed", fontsize=SMALL, color=MUTED, va="center")
    start = _LEFT + 70
    for number, level in enumerate(levels):
        alpha = _PALEST + (1 - _PALEST) * level
        _square(axes, (start + number * side, line - side / 2), side, colour, alpha, f"legend-{number}")
    words = "kept" if data.importance is None else "kept: less to more important"
    axes.text(start + len(levels) * side + 4, line, words, fontsize=SMALL, color=MUTED, va="center")
    if 0 < data.branch_layer < len(data.kept):
        line += 17
        axes.plot([_LEFT, _LEFT + side], [line, line], color=INK, linewidth=1)
        words = "the members share the layers above this line"
        axes.text(_LEFT + side + 4, line, words, fontsize=SMALL, color=MUTED, va="center")


def _description(data: HeadMap) -> str:
    members = len(data.kept[0])
    total = sum(data.original_heads)
    counts = [sum(len(groups[member]) for groups in data.kept) for member in range(members)]
    kept = listed([str(count) for count in counts])
    text = f"Heads kept by {listed(data.models)}: {kept} of {total}"
    if members > 1:
        text += f" in {counted(members, 'member', 'members')}"
        if 0 < data.branch_layer < len(data.kept):
            text += f", the same ones below layer {data.branch_layer}"
    return text + "."
