"""The ``fuse`` stage: a set of members becomes one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from compress.errors import RecipeError
from compress.fusion.options import Fuse
from compress.recipe.stages.base import Kind, Stage, StageInputs

if TYPE_CHECKING:
    from compress.transformer.config import Structure


class FuseStage(Stage[Fuse]):
    """See ``compress.fusion``."""

    options = Fuse
    accepts: ClassVar[tuple[Kind, ...]] = ("members",)
    produces: ClassVar[Kind | None] = "model"
    label = "fused"

    def plan(self, structure: Structure, options: Fuse) -> Structure:
        """The members side by side in one model."""
        return structure.model_copy(update={"mlp": options.mlp})

    def execute(self, inputs: StageInputs, options: Fuse) -> None:
        """Fuse the newest members."""
        from compress.fusion.fuse import fuse

        if inputs.current is None:
            raise RecipeError(
                "fuse has no members to start from", where="stage fuse", fix="put a prune stage before it"
            )
        fuse(inputs.current, inputs.target, options=options, overwrite=True)
