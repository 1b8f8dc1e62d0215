"""From whatever names a model to the model."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress.artifact.manifest import MANIFEST_NAME
from compress.artifact.store import load_model
from compress.backbones.recognition import recognise
from compress.backbones.registry import ADAPTERS
from compress.backbones.source import ModelSource
from compress.errors import ArtifactError, ModelError, UsageError
from compress.home import expanded
from compress.registry import nearest
from compress.transformer.finite import check_weights
from compress.transformer.model import Transformer

SHIPPED = ("digits-vit",)
FORMS = "an artifact folder, a model folder, timm:NAME, hf:ID, open_clip:NAME or builtin:digits-vit"


def open_model(reference: str | Path | ModelSource | Transformer, **details: Any) -> Transformer:
    """Open a model.

    Args:
        reference: an artifact folder; a folder that a model family saved; ``timm:NAME``, ``hf:ID-or-folder`` or
            ``open_clip:NAME``; ``builtin:digits-vit``; a ``ModelSource``; or a model, which comes back as it is.
        details: further fields of ``ModelSource`` (``weights``, ``labels``, ``templates``, ``arguments``, ...); they
            say how to read a family's model and do not go with an artifact.

    Raises:
        ModelError: nothing there, or the weights do not fit or hold NaN or infinity.
        UnsupportedModelError: a part that the project cannot represent exactly.
        ArtifactError: an artifact that is incomplete or damaged.
    """
    given = {name: value for name, value in details.items() if value not in (None, (), [], {}, False)}
    if isinstance(reference, Transformer):
        return reference
    if isinstance(reference, ModelSource):
        return _opened(reference.model_copy(update=given))
    artifact = artifact_folder(reference)
    if artifact is not None:
        if given:
            raise UsageError(
                f"{', '.join(sorted(given))} cannot be changed in an artifact", where=str(reference), fix="leave it out"
            )
        return load_model(artifact)
    return _opened(parse_source(str(reference), given))


def _opened(source: ModelSource) -> Transformer:
    """A family's model, all of whose weights are numbers."""
    model = ADAPTERS[source.adapter].open(source)
    check_weights(model, source.name)
    return model


def artifact_folder(reference: str | Path) -> Path | None:
    """The artifact that ``reference`` names, or None when it names a family's model.

    Raises:
        ModelError: an unknown built-in model.
        ArtifactError: a folder that is the remains of an unfinished artifact.
    """
    text = str(reference)
    if text.startswith("builtin:"):
        name = text.removeprefix("builtin:")
        if name not in SHIPPED:
            raise ModelError(f"unknown built-in model {name!r}", fix=nearest(name, SHIPPED))
        return Path(str(files("compress") / "models" / name))
    folder = expanded(text)
    if (folder / MANIFEST_NAME).is_file():
        return folder
    if (folder / "provenance.json").is_file():
        raise ArtifactError(
            "MANIFEST.json is missing, so the artifact is incomplete", where=text, fix="run its stage again"
        )
    return None


def parse_source(reference: str, details: Mapping[str, Any] | None = None) -> ModelSource:
    """A reference to a family's model, as a ``ModelSource``.

    Raises:
        ModelError: a path that does not exist, or a folder that no family recognises.
        UsageError: an unknown prefix.
    """
    given = dict(details or {})
    prefix, separator, name = reference.partition(":")
    path = expanded(reference)
    if separator and prefix in ADAPTERS:
        return _source(prefix, name, given)
    if path.is_dir():
        adapter = recognise(path)
        if adapter is None:
            raise ModelError("no model family recognises this folder", where=reference, fix=f"give {FORMS}")
        return _source(adapter, str(path), given)
    if path.is_file():
        raise ModelError(
            "a weights file alone does not name its architecture",
            where=reference,
            fix=f"use timm:NAME --weights {reference}",
        )
    if separator and "/" not in prefix:
        raise UsageError(f"unknown model family {prefix!r}", where=reference, fix=nearest(prefix, ADAPTERS))
    raise ModelError("no such file or folder", where=reference, fix=f"give {FORMS}")


def _source(adapter: str, name: str, given: Mapping[str, Any]) -> ModelSource:
    try:
        return ModelSource(adapter=adapter, name=name, **given)
    except ValidationError as error:
        problem = error.errors()[0]
        raise UsageError(problem["msg"], where=".".join(map(str, problem["loc"]))) from None
