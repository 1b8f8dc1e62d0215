"""``compress tune``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.schema_options import read_options, refuse_together, schema_options
from compress.cli.shared_options import (
    COMPUTING,
    MODEL_AND_DATA,
    data_options,
    json_option,
    model_details,
    model_options,
    named_references,
    open_given_data,
    output_options,
)
from compress.runtime import Runtime
from compress.tuning.options import Tune

if TYPE_CHECKING:
    from compress.backbones.source import ModelSource
    from compress.transformer.model import Transformer


@click.command(
    "tune",
    cls=SectionedCommand,
    examples=(
        "compress tune pruned -o tuned --data ./train --validation ./validation --epochs 2 --lr 1e-4",
        "compress tune fused -o tuned --data ./train --teacher ./model --diversity 0.1",
        "compress tune timm:vit_tiny_patch16_224 --from-scratch --argument img_size=28 --argument in_chans=1 \\",
        "    --preprocessing mean=[0.29] --preprocessing std=[0.35] --preprocessing resize=squash \\",
        "    --preprocessing interpolation=bilinear -o model --data ./train --epochs 30 --lr 1e-3",
        "compress tune open_clip:./clip --objective captions --template 'a photo of a {}.' -o clip --data ./images",
        "torchrun --nproc-per-node 2 -m compress tune fused -o tuned --data ./train",
    ),
)
@click.argument("model")
@data_options("Labelled training set: a folder, table, idx file, builtin:NAME or hf:ID, with #SPLIT.")
@section_option(
    MODEL_AND_DATA, "--validation", metavar="DATA", help="Labelled set on which the best checkpoint is chosen."
)
@section_option(
    MODEL_AND_DATA,
    "--ood",
    multiple=True,
    metavar="[NAME=]DATA",
    help="Foreign data for --metric ood/NAME/auroc; repeatable.",
)
@section_option(MODEL_AND_DATA, "--teacher", metavar="MODEL", help="Model whose predictions are learned too.")
@model_options()
@schema_options(Tune, "Tuning")
@output_options()
@section_option(
    "Result", "--tensorboard", type=click.Path(path_type=Path), metavar="FOLDER", help="Write TensorBoard events."
)
@json_option()
@schema_options(Runtime, COMPUTING, skip=("batch_size",))
@message_options
def tune(
    model: str,
    data: str,
    validation: str | None,
    ood: tuple[str, ...],
    teacher: str | None,
    out: Path,
    overwrite: bool,
    tensorboard: Path | None,
    json_target: str | None,
    **values: Any,
) -> None:
    """Train MODEL on labelled data: one model, a fused one, or every member that compress prune wrote.

    MODEL is an artifact's folder, the folder of members, a folder that timm, transformers or open_clip saved,
    timm:NAME, hf:ID, open_clip:NAME or builtin:digits-vit. A call that was interrupted goes on when it is repeated.
    """
    refuse_together("steps", "epochs")
    options = read_options(Tune, values)
    runtime = read_options(Runtime, {name: values[name] for name in ("device", "dtype")})
    foreign = named_references(ood, "--ood")
    details = model_details(values)

    from compress.artifact.folder import check_target
    from compress.tuning.tune import tune as tune_model

    check_target(out, overwrite=overwrite, inputs=(model,))
    result = tune_model(
        _given_model(model, details, described=options.from_scratch or options.objective == "captions"),
        out,
        data=open_given_data(data, values),
        validation=None if validation is None else open_given_data(validation, values),
        ood=foreign,
        teacher=teacher,
        options=options,
        runtime=runtime,
        tensorboard=tensorboard,
        overwrite=overwrite,
    )
    emit(result.table(), {"schema": "compress/tune", "schema_version": 1, **result.to_plain()}, json_target)


def _given_model(reference: str, details: Mapping[str, Any], *, described: bool) -> str | ModelSource | Transformer:
    """What to train: opened when it needs more than its reference, or only described.

    A model that starts from random weights has none to read, and one of two towers is opened as a whole.
    """
    if not details:
        return reference
    from compress.opening import artifact_folder, open_model, parse_source

    if described and artifact_folder(reference) is None:
        return parse_source(reference, details)
    return open_model(reference, **details)
