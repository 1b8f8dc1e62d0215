"""What the runner of recipes knows about a stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from compress.errors import RecipeError
from compress.options import Options
from compress.recipe.schema import DataSources, Recipe, StageEntry

if TYPE_CHECKING:
    from compress.data.base import Dataset
    from compress.transformer.config import Structure
    from compress.transformer.model import Transformer

Kind = Literal["model", "members"]
KIND_NAMES: Mapping[Kind, str] = {"model": "one model", "members": "a set of pruned members"}

RECIPE_MODEL_LABEL = "single"
"""What tables call the recipe's own model."""

FOREIGN_ROLE = "ood/"
"""How the role of a data set begins that is foreign: its labels are not used."""

KINDS_WITH_COLUMNS = ("table", "hf")

O = TypeVar("O", bound=Options)  # noqa: E741


@dataclass(frozen=True)
class PlannedModel:
    """What is known about a model, or about a set of members together, before it exists.

    Attributes:
        kind: one model or separate members.
        structure: the heads; of members the structure that they would have when fused.
        parameters: distinct parameters.
        flops: FLOPs per input.
        bytes: size of the weights.
        layers, width, tokens: shape of the hidden states of one input.
        layer_activations: bytes that one layer holds per input, roughly.
    """

    kind: Kind
    structure: Structure
    parameters: int
    flops: int
    bytes: int
    layers: int
    width: int
    tokens: int
    layer_activations: int


@dataclass(frozen=True)
class StageInputs:
    """What a stage starts from.

    Attributes:
        recipe: the whole recipe.
        target: the folder the stage must write, whole or not at all.
        current: newest artifact of the run; None while that is still the recipe's own model.
        label: what a table calls the current artifact.
        artifacts: newest artifact of each kind that an earlier stage of the run wrote.
    """

    recipe: Recipe
    target: Path
    current: Path | None = None
    label: str = RECIPE_MODEL_LABEL
    artifacts: Mapping[Kind, Path] = field(default_factory=dict)

    def recipe_model(self) -> str | Transformer:
        """The recipe's own model: opened when more than its reference was set, else the reference.

        What its weights lack, such as a classifier that starts anew, is drawn from the recipe's seed.
        """
        model = self.recipe.model
        if not model.details:
            return model.reference
        from compress.backbones.drawing import drawn_from
        from compress.opening import open_model

        with drawn_from(self.recipe.seed):
            return open_model(model.reference, **model.details)

    def open_data(self, reference: str, *, labelled: bool = True) -> Dataset:
        """A data set of the recipe."""
        return open_recipe_data(self.recipe.data, reference, labelled=labelled)


def open_recipe_data(sources: DataSources, reference: str, *, labelled: bool = True) -> Dataset:
    """Open one of the references of ``data:``.

    Args:
        sources: the recipe's data; its columns are for tables, and foreign tables have no column of labels.
        reference: one of its references.
        labelled: whether the labels are used.
    """
    from compress.data.base import open_dataset
    from compress.data.reference import parse_reference

    if parse_reference(reference).kind not in KINDS_WITH_COLUMNS:
        return open_dataset(reference)
    label_column = sources.label_column if labelled else None
    return open_dataset(reference, text_column=sources.text_column, label_column=label_column)


class Stage(ABC, Generic[O]):
    """One kind of stage: its options, what it needs, what it makes, and how to run it.

    Importing a stage's module must not import torch: the work is imported within ``execute``.
    """

    options: ClassVar[type[Options]]
    """The schema of the stage's keys."""

    accepts: ClassVar[tuple[Kind, ...]]
    """Kinds of artifact the stage can start from."""

    produces: ClassVar[Kind | None]
    """Kind of the artifact it makes; None when the next stage continues with the same artifact. See ``made_from``."""

    label: ClassVar[str] = ""
    """What a table calls the artifact that it makes."""

    attaches: ClassVar[bool] = False
    """Whether it gives the model parts that decide for every input what runs: budgets or routers."""

    synonyms: ClassVar[Mapping[str, str]] = {}
    """Names that other tools use for a key, for hints only."""

    def made_from(self, kind: Kind) -> Kind | None:
        """Kind of the artifact that the stage makes from one of ``kind``."""
        return self.produces

    def unlabelled_roles(self, options: O) -> Collection[str]:
        """Roles of ``data`` whose labels are not used, beside the foreign ones."""
        return ()

    def takes_classes_from_data(self, options: O) -> bool:
        """Whether the classes after the stage are those of its data, whatever the model's were."""
        return False

    def models(self, options: O) -> Sequence[str]:
        """References to models beside those of the run; what they are counts for whether a stage is done again."""
        return ()

    def with_absolute_paths(self, options: O, absolute: Callable[[str], str]) -> O:
        """The options with the paths among ``models`` absolute."""
        return options

    def data(self, sources: DataSources, options: O) -> Mapping[str, str]:
        """References the stage reads, by role; raises ``RecipeError`` when the recipe lacks one."""
        return {}

    def check(self, sources: DataSources, options: O, label: str, earlier: tuple[Kind, ...]) -> None:
        """Raise ``CompressError`` when the options cannot work.

        Args:
            sources: the recipe's data.
            options: the stage's options.
            label: what a table calls the artifact that the stage starts from.
            earlier: kinds of artifact that earlier stages made.
        """

    def plan(self, structure: Structure, options: O) -> Structure:
        """The structure after the stage, as far as it is known without computing (head numbers are placeholders)."""
        return structure

    def peak_memory(
        self, before: PlannedModel, after: PlannedModel, made: Sequence[PlannedModel], batch_size: int
    ) -> int:
        """Rough peak memory of the stage, bytes.

        Args:
            before, after: the model or members that the stage starts from and leaves.
            made: the recipe's model and everything that stages up to this one make.
            batch_size: inputs per forward pass.
        """
        return before.bytes + after.bytes

    def artifact_label(self, entry: StageEntry) -> str:
        """What a table calls the artifact of this step: its own name if it has one."""
        return self.label if entry.name == entry.stage else entry.name

    @abstractmethod
    def execute(self, inputs: StageInputs, options: O) -> None:
        """Do the work and write ``inputs.target``, replacing what is there."""

    def report(self, folder: Path, options: O) -> StageReport | None:
        """What a finished stage has to say at the end of a run; raises ``ArtifactError`` when its files are broken."""
        return None


@dataclass(frozen=True)
class StageReport:
    """What a finished stage has to say.

    Attributes:
        table: text for the terminal.
        plain: the same and more as JSON values.
        failed_gates: one sentence per gate that failed.
    """

    table: str
    plain: object
    failed_gates: tuple[str, ...] = ()


def required_reference(value: str | None, key: str, why: str) -> str:
    """``value``, or a ``RecipeError`` that asks for it."""
    if value is None:
        raise RecipeError(f"the recipe has no data.{key}, {why}", where="data", fix=f"add '{key}:' under data:")
    return value
