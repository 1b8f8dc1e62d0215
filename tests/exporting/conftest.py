"""Models to export, and files that were: each is made once, for it takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny.all_cases import CASES
from tiny.hf_cases import CASES as ENCODERS
from tiny.hf_folder import save_tokenizer
from tiny.ragged import ragged

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.backbones.hf_tokenizer import saved_files
from compress.exporting.export import ExportResult, export
from compress.fusion.in_memory import fuse_models
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads


def pruned(model: Transformer) -> Transformer:
    """Three heads of the first layer, one of the second, two of the third."""
    return prune_heads(model, [((0, 1, 3), (2,), (1, 2))[index % 3] for index in range(len(model.layers))])


def grouped(model: Transformer) -> Transformer:
    """Two members with MLPs of their own."""
    return fuse_models([prune_heads(model, [heads] * len(model.layers)) for heads in ((0, 1), (2,))], mlp="grouped")


def warm(model: Transformer) -> Transformer:
    """A fused model with a temperature."""
    fused = ragged(model)
    return fused.changed(fused.config.model_copy(update={"temperature": 4.0}))


MADE: dict[str, Callable[[Transformer], Transformer]] = {
    "original": lambda model: model,
    "pruned": pruned,
    "fused": ragged,
    "warm": warm,
    "grouped": grouped,
}


@dataclass(frozen=True)
class Exported:
    """A file and what it was made from.

    Attributes:
        result: what ``export`` said.
        file: the file.
        model: the model.
        artifact: the folder of the model that ``export`` read.
    """

    result: ExportResult
    file: Path
    model: Transformer
    artifact: Path


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Transformer]:
    """A tiny model by its name, with what an artifact of it holds beside the weights."""
    files = saved_files(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))

    def open_case(name: str) -> Transformer:
        model = CASES[name]().model
        if name in ENCODERS:
            model.files.update(files)
        return model

    return open_case


@pytest.fixture(scope="session")
def exported(
    opened: Callable[[str], Transformer], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str, str], Exported]:
    """A file by the name of its model, what was made of that, and the file's ending."""
    known: dict[tuple[str, str, str], Exported] = {}

    def exported_case(name: str, made: str, ending: str) -> Exported:
        key = (name, made, ending)
        if key not in known:
            folder, model = tmp_path_factory.mktemp("exported"), MADE[made](opened(name))
            save_model(model, folder / "artifact", Provenance(stage="test"))
            file = folder / f"model.{ending}"
            known[key] = Exported(export(folder / "artifact", file), file, model, folder / "artifact")
        return known[key]

    return exported_case
