"""What is compared: three families of models, and the rows of their tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ENSEMBLE_SEEDS = (0, 1, 2)
"""The Deep Ensemble has one member per seed; it is the same for every row of every seed."""


@dataclass(frozen=True)
class Row:
    """One model of a table.

    Attributes:
        name: in tables and pictures.
        recipe: the file in the family's folder of recipes that makes it.
        artifact: the stage's folder in the recipe's output.
        more: whether it was trained after the reference; all such rows of a table for as many steps.
        temperature: whether its logits are divided by a temperature fitted on the calibration set.
    """

    name: str
    recipe: str
    artifact: str
    more: bool = False
    temperature: bool = False

    @property
    def key(self) -> str:
        """The name as ``compress eval`` takes it."""
        return self.name.replace(",", "").replace(" ", "-")


@dataclass(frozen=True)
class Family:
    """Models of one kind on one data set.

    Attributes:
        name: the folder of its recipes.
        title: of its section.
        intro: what the reader must know before the table.
        rows: the first is what the others are compared with.
        test: arguments of ``compress eval`` for the test set and the foreign sets.
        shift: arguments for the shifted test.
        timed: arguments for the latencies.
        shifted: what the shift is, and its metrics of accuracy and calibration error.
        foreign: the foreign sets in the order of the columns.
        reference_settings: ``--set`` of the recipe that makes the reference.
    """

    name: str
    title: str
    intro: str
    rows: tuple[Row, ...]
    test: tuple[str, ...]
    shift: tuple[str, ...]
    timed: tuple[str, ...]
    shifted: tuple[str, str, str]
    foreign: tuple[str, ...]
    reference_settings: tuple[str, ...] = field(default=())

    @property
    def ensemble_recipes(self) -> tuple[str, ...]:
        """The recipes that a member of the Deep Ensemble needs."""
        return tuple(row.recipe for row in self.rows if row.name == ENSEMBLE)

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes of the rows, each once, the reference's first."""
        return tuple(dict.fromkeys(row.recipe for row in self.rows))


REFERENCE = "reference"
SINGLE, LONGER, ENSEMBLE = "single", "single, trained on", "Deep Ensemble of 3"

ROWS = (
    Row(SINGLE, REFERENCE, "01-tune"),
    Row(LONGER, "longer", "01-tune", more=True),
    Row(f"{LONGER}, temperature", "longer", "01-tune", more=True, temperature=True),
    Row(ENSEMBLE, "longer", "01-tune", more=True),
    Row("fused", "prune-fuse", "02-fuse"),
    Row("fused, temperature", "prune-fuse", "02-fuse", temperature=True),
    Row("fused circuits", "circuits-fuse", "02-fuse"),
    Row("fused circuits, temperature", "circuits-fuse", "02-fuse", temperature=True),
    Row("members tuned, fused", "prune-tune-fuse", "03-fuse", more=True),
    Row("fused, tuned", "prune-fuse-tune", "03-tune", more=True),
    Row("fused, budgets", "budget", "03-budget", more=True),
    Row("fused, routed", "route", "03-route", more=True),
)

FASHION_TEST = (
    "--data={data}/fashion-mnist#test",
    "--ood=mnist={data}/mnist#test[1::2]",
    "--ood=digits=builtin:digits#train",
    "--calibration={data}/fashion-mnist#train[58000:]",
)
FASHION_SHIFT = ("--data={data}/fashion-mnist#test[::10]", "--shift=all", FASHION_TEST[3])
CORRUPTED = ("corrupted images", "shift/accuracy", "shift/ece")
TABLES = ("--text-column=text", "--label-column=label")

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family(
            "fashion-mnist",
            "A vision transformer on Fashion-MNIST",
            "A timm ViT of 8 layers × 12 heads × width 96, trained from random weights on 58,000 images. The other "
            "2,000 training images are the calibration set. Foreign sets: `mnist` (odd-numbered test images; even ones "
            "are for the search of circuits) and `digits` (scikit-learn's), which no search sees. Shift: five "
            "corruptions at five severities of every tenth test image.",
            ROWS,
            FASHION_TEST,
            FASHION_SHIFT,
            ("--data={data}/fashion-mnist#test[:64]", FASHION_TEST[3]),
            CORRUPTED,
            ("mnist", "digits"),
        ),
        Family(
            "clip",
            "A small CLIP that classifies handwritten digits by prompts",
            "An open_clip model (image tower 8 layers × 12 heads × width 96) that the project trained contrastively "
            "from random weights on 7,000 captioned MNIST images; it classifies 2,000 others by three prompts each. "
            "Foreign sets: `clothes` (Fashion-MNIST; others of them are for the search of circuits) and `photos` "
            "(scikit-learn's), which no search sees. Shift: five corruptions at five severities of every fourth image.",
            ROWS,
            (
                "--data={data}/mnist#test[8000:]",
                "--ood=clothes={data}/fashion-mnist#test[::5]",
                "--ood=photos=builtin:photos",
                "--calibration={data}/mnist#test[7000:8000]",
            ),
            ("--data={data}/mnist#test[8000::4]", "--shift=all", "--calibration={data}/mnist#test[7000:8000]"),
            ("--data={data}/mnist#test[8000:8064]", "--calibration={data}/mnist#test[7000:8000]"),
            CORRUPTED,
            ("clothes", "photos"),
        ),
        Family(
            "minilm",
            "MiniLM on movie sentences",
            "A BERT of 6 layers × 12 heads × width 384 with published weights, fine-tuned on 7,316 sentences. Foreign "
            "set: 1,000 sentences of newspaper editorials, others of which are for the search of circuits. Shift: "
            "1,000 sentences of Amazon reviews.",
            ROWS,
            (
                "--data={data}/sentiment/movie_test.csv",
                "--ood=editorials={data}/sentiment/nyt_ood.csv[::2]",
                "--calibration={data}/sentiment/movie_calibration.csv",
                *TABLES,
            ),
            (
                "--data={data}/sentiment/amazon_shift.csv[::2]",
                "--calibration={data}/sentiment/movie_calibration.csv",
                *TABLES,
            ),
            (
                "--data={data}/sentiment/movie_test.csv[:64]",
                "--calibration={data}/sentiment/movie_calibration.csv",
                *TABLES,
            ),
            ("Amazon reviews", "cls/accuracy", "cal/ece"),
            ("editorials",),
            ("model.name={minilm}",),
        ),
    )
}
