"""The ``prune`` stage: one model becomes a set of pruned members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from compress.pruning.options import Prune
from compress.recipe.schema import DataSources
from compress.recipe.stages.base import Kind, Stage, StageInputs, required_reference

if TYPE_CHECKING:
    from compress.transformer.config import Structure


class PruneStage(Stage[Prune]):
    """See ``compress.pruning``."""

    options = Prune
    accepts: ClassVar[tuple[Kind, ...]] = ("model",)
    produces: ClassVar[Kind | None] = "members"
    label = "members"
    synonyms: ClassVar[Mapping[str, str]] = {
        "ratio": "keep",
        "heads": "keep",
        "sparsity": "keep",
        "importance": "method",
        "copies": "members",
        "overlap": "max_overlap",
    }

    def data(self, sources: DataSources, options: Prune) -> Mapping[str, str]:
        """The calibration set, by default the training set."""
        reference = sources.calibration or sources.train
        return {"calibration": required_reference(reference, "calibration", "on which stage prune scores the heads")}

    def plan(self, structure: Structure, options: Prune) -> Structure:
        """Which layers keep how many heads; a global scope is planned as if every layer kept its share."""
        from compress.recipe.plan import planned_members

        return planned_members(structure, options)

    def execute(self, inputs: StageInputs, options: Prune) -> None:
        """Score, select, prune; writes the members and their scores."""
        from compress.pruning.prune import prune

        prune(
            inputs.current or inputs.open_recipe_model(),
            inputs.target,
            data=inputs.open_data(self.data(inputs.recipe.data, options)["calibration"]),
            options=options,
            runtime=inputs.recipe.runtime,
            overwrite=True,
        )
