"""A model for its shapes only: what a plan and an inspection need."""

from __future__ import annotations

from typing import Any

from compress.artifact.folder import verify_folder
from compress.artifact.store import stored_skeleton
from compress.errors import UsageError
from compress.opening import artifact_folder, open_model
from compress.transformer.model import Transformer


def open_shapes(reference: str, **details: Any) -> Transformer:
    """The model that a reference names. An artifact comes without its weights, on the meta device.

    A family's model comes with its weights, since its shapes are known from nowhere else.

    Args:
        reference: as in ``open_model``.
        details: as in ``open_model``; they do not go with an artifact.

    Raises:
        CompressError: there is no such model, or it is damaged or not supported.
    """
    folder = artifact_folder(reference)
    if folder is None:
        return open_model(reference, **details)
    if details:
        raise UsageError(
            f"{', '.join(sorted(details))} cannot be changed in an artifact", where=reference, fix="leave it out"
        )
    manifest = verify_folder(folder, expect_kind="model")
    return stored_skeleton(folder, manifest)[0]
