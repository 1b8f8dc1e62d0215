"""``compress inspect``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.shared_options import MODEL_AND_DATA, json_option, model_details, model_options, open_given_model
from compress.columns import columns

if TYPE_CHECKING:
    from compress.transformer.model import Transformer

LABELS_SHOWN = 10


@click.command(
    "inspect",
    cls=SectionedCommand,
    examples=(
        "compress inspect builtin:digits-vit",
        "compress inspect fused --json -",
        "compress inspect routed --routes photo.png",
        "compress inspect routed --routes 'a fine film'",
    ),
)
@click.argument("model")
@model_options()
@section_option(
    MODEL_AND_DATA,
    "--routes",
    metavar="INPUT",
    help="Show instead which patches or words of INPUT pass the routed blocks: an image, a text, or a set of them.",
)
@json_option()
@message_options
def inspect(model: str, routes: str | None, json_target: str | None, **values: Any) -> None:
    """Show the layers of MODEL, the heads that each keeps, parameters and FLOPs.

    MODEL is an artifact's folder, a folder that timm, transformers or open_clip saved, timm:NAME, hf:ID, open_clip:NAME
    or builtin:digits-vit. Of a set of pruned members name one, such as pruned/member-0.
    """
    if routes is not None:
        from compress.cli.routes_text import routes_of_inputs, routes_text

        found = routes_of_inputs(open_given_model(model, model_details(values)), routes)
        inputs = [own.model_dump(mode="json") for own in found]
        emit(routes_text(found), {"schema": "compress/routes", "schema_version": 1, "inputs": inputs}, json_target)
        return

    from compress.recipe.shapes import open_shapes

    plain = _describe(open_shapes(model, **model_details(values)))
    emit(_table(plain), plain, json_target)


def _describe(model: Transformer) -> dict[str, Any]:
    """Everything that is shown, as JSON values. FLOPs are per input; 1 MAC = 2 FLOPs."""
    from compress.transformer.cost import count_cost, count_parameters
    from compress.transformer.layer import Layer

    attention = cast(Layer, model.layers[0]).attention
    cost, structure, routing = count_cost(model), model.structure, model.config.routing
    budget = model.config.budget
    capacities = {} if routing is None else {block: routing.capacity_of(block) for block in routing.blocks}
    layers = [
        {
            "layer": layer.layer,
            "streams": layer.streams,
            "heads": structure.original_heads[layer.layer],
            "kept_heads": [list(heads) for heads in structure.kept_heads[layer.layer]],
            "parameters": count_parameters(model.layers[layer.layer]),
            "attention_flops": layer.attention,
            "mlp_flops": layer.mlp,
            "capacity": capacities.get(layer.layer, 1.0),
        }
        for layer in cost.layers
    ]
    return {
        "schema": "compress/inspect",
        "schema_version": 1,
        "adapter": model.config.backbone.adapter,
        "architecture": model.config.backbone.architecture,
        "dtype": model.config.dtype,
        "labels": list(model.labels),
        "members": structure.members,
        "branch_layer": structure.branch_layer,
        "mlp": structure.mlp,
        "width": attention.width,
        "head_width": attention.head_width,
        "tokens": cost.tokens,
        "parameters": cost.parameters,
        "flops": cost.flops,
        "budget": None if budget is None else budget.model_dump(mode="json"),
        "routing": None if routing is None else routing.model_dump(mode="json"),
        "layers": layers,
    }


def _table(plain: Mapping[str, Any]) -> str:
    members = _members(plain)
    labels = plain["labels"]
    named = ", ".join(labels[:LABELS_SHOWN]) + (", ..." if len(labels) > LABELS_SHOWN else "")
    head = [
        ("model", f"{plain['adapter']} {plain['architecture']}, {members}"),
        ("labels", f"{len(labels)}: {named}"),
        ("shape", f"width {plain['width']}, heads of {plain['head_width']}, {plain['tokens']} tokens per input"),
        ("parameters", f"{plain['parameters']:,}"),
        ("FLOPs", f"{plain['flops'] / 1e6:,.2f} M per input when all is executed (1 MAC = 2 FLOPs)"),
    ]
    budget = plain["budget"]
    if budget is not None:
        share = "predicted for every input" if budget["fixed"] is None else f"{budget['fixed']:g} of the heads"
        head.append(("budgets", f"{share}; {budget['choice']} choice of heads"))
    routing = plain["routing"]
    if routing is not None:
        shares = ", ".join(f"{block} ({plain['layers'][block]['capacity']:g})" for block in routing["blocks"])
        head.append(("routers", f"{routing['choice']} choice, {routing['part']}; blocks (capacity): {shares}"))
    rows = [("layer", "heads", "parameters", "M FLOPs", "kept")]
    for layer in plain["layers"]:
        kept = layer["kept_heads"]
        counts = "+".join(str(len(heads)) for heads in kept)
        flops = (layer["attention_flops"] + layer["mlp_flops"]) / 1e6
        shown = " | ".join(_ranges(heads) for heads in kept)
        rows.append(
            (str(layer["layer"]), f"{counts}/{layer['heads']}", f"{layer['parameters']:,}", f"{flops:,.2f}", shown)
        )
    return "\n".join([*columns(head), "", *columns(rows, right=(0, 1, 2, 3))])


def _members(plain: Mapping[str, Any]) -> str:
    if plain["members"] == 1:
        return "single"
    branch, mlp = plain["branch_layer"], plain["mlp"]
    parting = (
        f"from layer {branch} on, MLPs {mlp}" if branch < len(plain["layers"]) else "with the same heads in every layer"
    )
    return f"{plain['members']} members {parting}"


def _ranges(numbers: Sequence[int]) -> str:
    """``0-3 5 7-8`` for ``[0, 1, 2, 3, 5, 7, 8]``."""
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        members = [number for _, number in run]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return " ".join(parts)
