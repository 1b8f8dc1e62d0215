"""What a recipe would do: shapes, heads, parameters, FLOPs, disk and memory of every stage, without computing.

Everything is counted on skeletons, which have shapes and no memory. Only the weights of a family's model are read,
since its shapes are known from nowhere else; an artifact's are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from compress.backbones.registry import build_skeleton
from compress.columns import columns
from compress.errors import CompressError, RecipeError
from compress.recipe.chain import check_chain, check_files
from compress.recipe.readiness import check_data, check_target_disk
from compress.recipe.schema import Recipe
from compress.recipe.shapes import open_shapes
from compress.recipe.stages import STAGES
from compress.recipe.stages.base import RECIPE_MODEL_LABEL, Kind, PlannedModel, Stage
from compress.registry import Registry
from compress.transformer.config import Structure
from compress.transformer.cost import count_cost
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer

# Floats that a layer holds per token besides the attention matrix: two normalised copies, query, key, value, context,
# two residual sums, and an MLP of four times the width before and after its activation. Rough, and meant to be.
FLOATS_PER_TOKEN = 16


@dataclass(frozen=True)
class PlannedStage:
    """One stage of a plan.

    Attributes:
        folder: where it would be written.
        label: what it makes, in words.
        model: the model or members after the stage; None for a stage that makes none.
        disk: size of what it writes, bytes; 0 when that is small.
        peak: rough peak memory while it runs, bytes.
        attaches: whether it gives the model parts that decide for every input what runs.
    """

    folder: str
    label: str
    model: PlannedModel | None
    disk: int
    peak: int
    attaches: bool = False


@dataclass(frozen=True)
class Plan:
    """A recipe's model and its stages, in order."""

    out: Path
    start: PlannedModel
    stages: tuple[PlannedStage, ...]

    def table(self) -> str:
        """One row per stage."""
        header = ("stage", "makes", "heads kept per layer", "parameters", "FLOPs/input", "disk", "peak memory")
        first = ("", RECIPE_MODEL_LABEL, *_shape(self.start), "", "")
        rows = [
            (stage.folder, stage.label, *_shape(stage.model), _bytes(stage.disk), f"~{_bytes(stage.peak)}")
            for stage in self.stages
        ]
        lines = columns([header, first, *rows])
        start = self.start
        notes = [
            f"{start.layers} layers, width {start.width}, {start.tokens} tokens per input; 1 MAC = 2 FLOPs.",
            *self._reservations(),
            f"Nothing was computed or written. The run would write to {self.out}.",
        ]
        return "\n".join([*lines, "", *notes])

    def _reservations(self) -> Iterator[str]:
        """What the figures leave open."""
        models = [stage.model for stage in self.stages if stage.model is not None]
        if any(model.structure.members > 1 for model in models):
            yield "Members may keep the same heads in more layers than planned; then their streams part later."
        if any(stage.attaches for stage in self.stages):
            yield "Budgets and routers are planned with all heads and tokens, and without their own parameters."

    def to_plain(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "schema": "compress/plan",
            "schema_version": 1,
            "out": str(self.out),
            "model": _plain(self.start),
            "stages": [
                {
                    "folder": stage.folder,
                    "makes": stage.label,
                    "model": None if stage.model is None else _plain(stage.model),
                    "disk_bytes": stage.disk,
                    "peak_bytes": stage.peak,
                }
                for stage in self.stages
            ],
        }


def plan_recipe(recipe: Recipe, out: Path, *, stages: Registry[type[Stage[Any]]] = STAGES) -> Plan:
    """Plan a recipe.

    Args:
        recipe: the recipe.
        out: the folder that a run would write to.
        stages: the stages that exist.

    Raises:
        CompressError: the recipe cannot work with this model or these data, files are missing, or the target has no
            room.
    """
    check_chain(recipe, stages)
    check_files(recipe)
    skeleton = open_shapes(recipe.model.reference, **recipe.model.details)
    check_data(recipe, skeleton.config, stages)
    start = current = planned_model(skeleton, skeleton.structure, "model")
    made: dict[Kind, PlannedModel] = {}
    planned = []
    for folder, entry in zip(recipe.folder_names(), recipe.stages, strict=True):
        stage = stages[entry.stage]()
        model = None
        before = current
        try:
            made_kind = stage.made_from(before.kind)
            if made_kind is not None:
                structure = stage.plan(before.structure, entry.options)
                model = current = made[made_kind] = planned_model(skeleton, structure, made_kind)
        except CompressError as error:
            error.where = f"stage {folder}, {error.where}" if error.where else f"stage {folder}"
            raise
        except ValidationError as error:
            raise RecipeError(error.errors()[0]["msg"], where=f"stage {folder}", fix="change its options") from None
        compared = [start, *made.values()]
        peak = stage.peak_memory(before, current, compared, recipe.runtime.batch_size)
        label = stage.artifact_label(entry) if model is not None else "a result"
        planned.append(PlannedStage(folder, label, model, model.bytes if model else 0, peak, stage.attaches))
    check_target_disk(out, sum(stage.disk for stage in planned))
    return Plan(out, start, tuple(planned))


def planned_model(skeleton: Transformer, structure: Structure, kind: Kind) -> PlannedModel:
    """Count a model of another structure, or a set of members, each of which is a model of its own.

    Args:
        skeleton: the original model.
        structure: the heads; a set of members is given by the structure that it would have when fused.
        kind: one model, or separate members.
    """
    copies = [structure] if kind == "model" else [_member(structure, number) for number in range(structure.members)]
    costs = []
    for own in copies:
        config = skeleton.config.model_copy(update={"structure": own})
        costs.append(count_cost(build_skeleton(config, skeleton.files)))
    parameters = sum(cost.parameters for cost in costs)
    width = cast(Layer, skeleton.layers[0]).attention.width
    tokens = costs[0].tokens
    heads = max(structure.original_heads)
    return PlannedModel(
        kind=kind,
        structure=structure,
        parameters=parameters,
        flops=sum(cost.flops for cost in costs),
        bytes=parameters * _parameter_bytes(skeleton),
        layers=len(structure.original_heads),
        width=width,
        tokens=tokens,
        layer_activations=4 * (FLOATS_PER_TOKEN * tokens * width + heads * tokens * tokens),
    )


def _member(structure: Structure, number: int) -> Structure:
    """The structure of one separate member."""
    kept = tuple((groups[min(number, len(groups) - 1)],) for groups in structure.kept_heads)
    return Structure(original_heads=structure.original_heads, kept_heads=kept)


def _parameter_bytes(model: Transformer) -> int:
    return next(model.parameters()).element_size()


def _shape(model: PlannedModel | None) -> tuple[str, str, str]:
    if model is None:
        return "", "", ""
    return describe_heads(model.structure), f"{model.parameters:,}", f"{model.flops / 1e6:,.1f} M"


def describe_heads(structure: Structure) -> str:
    """Heads per layer in few words: ``0-2: 12, 3-5: 3 x 6``; ``6+6+5`` where members keep different counts."""
    layers = [tuple(len(heads) for heads in groups) for groups in structure.kept_heads]
    parts = []
    for counts, run in groupby(enumerate(layers), key=lambda item: item[1]):
        numbers = [layer for layer, _ in run]
        span = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
        same = len(set(counts)) == 1
        shown = (
            f"{counts[0]}"
            if len(counts) == 1
            else f"{len(counts)} x {counts[0]}"
            if same
            else "+".join(map(str, counts))
        )
        parts.append(f"{span}: {shown}")
    return ", ".join(parts)


def _bytes(count: int) -> str:
    if not count:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def _plain(model: PlannedModel) -> Mapping[str, Any]:
    return {
        "kind": model.kind,
        "members": model.structure.members,
        "heads_per_layer": [[len(heads) for heads in groups] for groups in model.structure.kept_heads],
        "parameters": model.parameters,
        "flops": model.flops,
        "bytes": model.bytes,
        "layers": model.layers,
        "width": model.width,
        "tokens": model.tokens,
    }
