"""What the routers of a trained model do on data, and whether one of them has collapsed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.batches import batches
from compress.data.subset import even_places, take
from compress.placing import to_device
from compress.routing.loss import entropy, kept
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.routing import routed_layers, routed_selections
from compress.transformer.selection import Selection

MOST_SAMPLES = 256
FLAT = 1e-6
SHUT = 0.05
SAME = 0.999


@dataclass(frozen=True)
class BlockRoutes:
    """One routed block on a data set.

    Attributes:
        block: its number.
        kept: mean share of the routed tokens that passed.
        entropy: mean binary entropy of the router's scores, bits.
        collapse: what has gone wrong with the router, in words; None when it looks sound.
    """

    block: int
    kept: float
    entropy: float
    collapse: str | None


def observe(model: Transformer, dataset: Dataset, runtime: Runtime) -> tuple[BlockRoutes, ...]:
    """Run at most 256 inputs, at even steps, through a routed model in evaluation mode, and look at every router."""
    found, layers = decisions(model, dataset, runtime), dict(routed_layers(model))
    return tuple(
        _summary(block, selections, layers[block].router.streams) for block, selections in sorted(found.items())
    )


def fit_thresholds(model: Transformer, dataset: Dataset, runtime: Runtime) -> None:
    """Set the thresholds of token choice so that their capacity passes in the inputs that ``observe`` reads.

    In the order in which the blocks run, since what passes one changes the scores of the next. A block that several
    steps share comes before itself: its threshold is found again as often as it runs, and its share is met nearly.

    Args:
        model: on the runtime's device, in evaluation mode; changed in place.
        dataset, runtime: see ``observe``.
    """
    layers = dict(routed_layers(model))
    for block in dict.fromkeys(model.order):
        if block in layers and layers[block].router.choice == "token":
            for _ in range(model.order.count(block)):
                layers[block].router.fit_thresholds(decisions(model, dataset, runtime)[block])


def decisions(model: Transformer, dataset: Dataset, runtime: Runtime) -> dict[int, list[Selection]]:
    """By number of a routed block, what its router decides in each run on at most 256 inputs, batch after batch."""
    found: dict[int, list[Selection]] = defaultdict(list)
    places = even_places(len(dataset), MOST_SAMPLES)
    for batch in batches(take(dataset, places), preprocessor(model), batch_size=runtime.batch_size):
        with torch.inference_mode():
            model.members(to_device(batch.inputs, runtime.torch_device(), next(model.parameters()).dtype))
        for index, selections in routed_selections(model).items():
            found[index] += selections
    return found


def _summary(block: int, selections: list[Selection], streams: int) -> BlockRoutes:
    counts = torch.stack([own.routed.sum() for own in selections]).double()
    share, bits = (
        float((torch.stack([measure(own) for own in selections]) * counts).sum() / counts.sum().clamp(min=1))
        for measure in (kept, entropy)
    )
    return BlockRoutes(block, share, bits, collapse(selections, streams))


def collapse(selections: list[Selection], streams: int = 1) -> str | None:
    """What has gone wrong with a router, judged by batches of its decisions; None when it looks sound.

    Args:
        selections: the batches.
        streams: in so many equal parts the rows come; each is judged apart, and one of several is named.
    """
    found: dict[str, list[str]] = {}
    for stream in range(streams):
        problem = _collapsed([_of_stream(own, stream, streams) for own in selections])
        if problem is not None:
            found.setdefault(problem, []).append(str(stream))
    if streams == 1:
        return next(iter(found), None)
    return "; ".join(f"in stream {', '.join(numbers)} {problem}" for problem, numbers in found.items()) or None


def _of_stream(selection: Selection, stream: int, streams: int) -> Selection:
    """What was decided about the rows of one stream, without the places."""
    scores, routed, passed = (
        part.chunk(streams)[stream] for part in (selection.scores, selection.routed, selection.passed)
    )
    return Selection(scores, routed, passed, gated=selection.gated)


def _collapsed(selections: list[Selection]) -> str | None:
    """``collapse`` of one stream."""
    if all(bool(own.passed.all()) for own in selections):
        return None
    spread = max(float(_spread(own)) for own in selections)
    if spread < FLAT:
        return "all tokens have the same score, so that their order in the input decides"
    gates = torch.cat([(2 * own.scores.sigmoid())[own.passed & own.routed] for own in selections])
    if len(gates) and float(gates.mean()) < SHUT:
        return "its gate is shut, so that the block does nothing"
    if _agreement(selections) > SAME:
        return "the same places pass in every input"
    return None


def _spread(selection: Selection) -> Tensor:
    """The largest standard deviation of scores within a row, relative to their size."""
    scores, routed = selection.scores, selection.routed
    count = routed.sum(1, keepdim=True).clamp(min=1)
    centred = (scores - (scores * routed).sum(1, keepdim=True) / count) * routed
    return (centred.square().sum(1) / count.squeeze(1)).sqrt().amax() / (1e-30 + scores.abs().amax()).clamp(min=1.0)


def _agreement(selections: list[Selection]) -> float:
    """Over places: the mean share of inputs that agree with the majority on whether the place passes."""
    longest = max(own.passed.shape[1] for own in selections)
    passed, routed = torch.zeros(longest), torch.zeros(longest)
    rows = 0
    for own in selections:
        width = own.passed.shape[1]
        passed[:width] += (own.passed & own.routed).sum(0).cpu()
        routed[:width] += own.routed.sum(0).cpu()
        rows += len(own.passed)
    seen = routed > 0
    if rows < 2 or not bool(seen.any()):
        return 0.0
    share = passed[seen] / routed[seen]
    return float((torch.maximum(share, 1 - share) * routed[seen]).sum() / routed[seen].sum())
