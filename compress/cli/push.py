"""``compress push``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.shared_options import RESULT, json_option


@click.command(
    "push",
    cls=SectionedCommand,
    examples=("compress push fused my-name/fused-vit --private", "compress push fused my-name/fused-vit --overwrite"),
)
@click.argument("artifact", type=click.Path(path_type=Path))
@click.argument("repository", metavar="USER/NAME")
@section_option("Hub", "--private", is_flag=True, help="Make a repository that only its owners see.")
@section_option(
    "Hub",
    "--token",
    metavar="TOKEN",
    help="Token with the right to write; better set HF_TOKEN or log in with hf auth login.",
)
@section_option(RESULT, "--overwrite", is_flag=True, help="Replace what the repository holds, in a new commit.")
@json_option()
@message_options
def push(
    artifact: Path, repository: str, private: bool, token: str | None, overwrite: bool, json_target: str | None
) -> None:
    """Upload ARTIFACT, one model, to the repository USER/NAME of the Hugging Face hub, with its model card.

    ARTIFACT is verified first. The files appear in one commit, and nothing else in its folder is uploaded.
    """
    from compress.publishing.push import push as push_artifact

    result = push_artifact(artifact, repository, private=private, token=token, overwrite=overwrite)
    plain = {"schema": "compress/push", "schema_version": 1, **asdict(result)}
    emit(f"{result.files} files, {result.bytes / 1e6:.1f} MB\nuploaded to {result.address}", plain, json_target)
