"""The ``prune`` stage: one model becomes a set of pruned members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from compress.errors import ModelError, UsageError
from compress.pruning.options import Prune, check_options, needs_labels
from compress.recipe.schema import DataSources
from compress.recipe.stages.base import FOREIGN_ROLE, Kind, PlannedModel, Stage, StageInputs, required_reference

if TYPE_CHECKING:
    from compress.transformer.config import Structure

FOREIGN_VALIDATION = f"{FOREIGN_ROLE}validation"


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
        "disagreement": "min_disagreement",
        "branch": "branch_layer",
    }

    def data(self, sources: DataSources, options: Prune) -> Mapping[str, str]:
        """The calibration set, by default the training set; for circuits the foreign validation set too."""
        reference = sources.calibration or sources.train
        if options.method in ("taylor", "circuit"):
            reference = required_reference(reference, "calibration", "on which stage prune scores the heads")
        found = {} if reference is None else {"calibration": reference}
        if options.method == "circuit" and sources.ood_validation is not None:
            found[FOREIGN_VALIDATION] = sources.ood_validation
        return found

    def unlabelled_roles(self, options: Prune) -> Collection[str]:
        """The calibration set, where no loss is measured on it."""
        return () if needs_labels(options) else ("calibration",)

    def check(self, sources: DataSources, options: Prune, label: str, earlier: tuple[Kind, ...]) -> None:
        """The options fit each other and the data."""
        check_options(options, ood=options.method == "circuit" and sources.ood_validation is not None)

    def plan(self, structure: Structure, options: Prune) -> Structure:
        """How many heads each layer keeps; a global scope is planned as if every layer kept its share."""
        from compress.pruning.selection import heads_to_keep, trunk_keep
        from compress.transformer.config import Structure

        if structure.members > 1:
            raise ModelError("a fused model cannot be pruned", fix="prune first, then fuse")
        # A branch layer that is still to be found is planned as the dearest.
        layers = len(structure.original_heads)
        branch = 0 if options.branch_layer == "auto" else options.branch_layer
        if branch > layers or (branch == layers and options.members > 1):
            raise UsageError(
                f"branch layer {branch} leaves no layer in which members could differ (the model has {layers})",
                where="branch_layer",
                fix=f"choose 0 to {layers - 1}",
            )
        kept = []
        for layer, groups in enumerate(structure.kept_heads):
            count = heads_to_keep(trunk_keep(options) if layer < branch else options.keep, len(groups[0]))
            kept.append((groups[0][:count],) * (1 if layer < branch else options.members))
        return Structure(
            original_heads=structure.original_heads,
            kept_heads=tuple(kept),
            members=options.members,
            branch_layer=branch if options.members > 1 else 0,
        )

    def peak_memory(
        self, before: PlannedModel, after: PlannedModel, made: Sequence[PlannedModel], batch_size: int
    ) -> int:
        """The model, one member beside it, and while scoring the activations of all layers for the backward pass.

        A circuit search holds a cache and candidates instead, up to the bounds of ``hidden_cache`` and ``candidates``.
        """
        member = after.bytes // after.structure.members
        return before.bytes + max(member, batch_size * before.layers * before.layer_activations)

    def execute(self, inputs: StageInputs, options: Prune) -> None:
        """Score, select, prune; writes the members and their scores."""
        from compress.pruning.prune import prune

        references = self.data(inputs.recipe.data, options)
        reference, foreign = references.get("calibration"), references.get(FOREIGN_VALIDATION)
        prune(
            inputs.current or inputs.recipe_model(),
            inputs.target,
            data=None if reference is None else inputs.open_data(reference),
            ood=None if foreign is None else inputs.open_data(foreign, labelled=False),
            options=options,
            runtime=inputs.recipe.runtime,
            overwrite=True,
        )
