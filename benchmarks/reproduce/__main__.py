"""Every figure of docs/results.md: ``python benchmarks/reproduce DATA``, from the top of the repository.

DATA holds the folders ``fashion-mnist``, ``mnist`` and ``sentiment`` (docs/data.md says where they come from). The
recipes in ``recipes/fashion-mnist``, ``recipes/minilm`` and ``recipes/clip`` run for every seed, then all models of a
seed are evaluated together. What is up to date in the work folder is not done again: repeat an interrupted call.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

sys.path.append(str(Path(__file__).parents[1]))  # what all benchmarks share

from families import FAMILIES
from figures import Figures, collect, read_figures
from page import page
from picture import draw
from steps import Place, make_and_measure

DOCS = Path("docs")
FIGURES, NOTES = DOCS / "results" / "figures.json", DOCS / "results" / "notes.md"


@click.command(help=__doc__)
@click.argument("data", type=click.Path(exists=True, file_okay=False))
@click.option("--work", default="runs/results", show_default=True, type=click.Path(path_type=Path), help="For models.")
@click.option("--family", "names", multiple=True, type=click.Choice(list(FAMILIES)), help="Some only; repeatable.")
@click.option("--seed", "seeds", multiple=True, type=int, default=(0, 1, 2), show_default=True, help="Repeatable.")
@click.option(
    "--jobs", default=2, show_default=True, type=click.IntRange(1), help="Trainings at a time; they share the cores."
)
def main(data: str, work: Path, names: tuple[str, ...], seeds: tuple[int, ...], jobs: int) -> None:
    place = Place(data, work)
    families = [FAMILIES[name] for name in names or FAMILIES]
    make_and_measure(place, families, seeds, jobs)
    for family in families:
        figures = read_figures(FIGURES)
        figures[family.name] = collect(place, family, seeds, jobs)
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    write_page()


def write_page() -> None:
    """Page and pictures from the figures."""
    figures = read_figures(FIGURES)
    for name, content in figures.items():
        (DOCS / "images" / f"results-{name}.png").write_bytes(draw(Figures(FAMILIES[name], content)))
    notes = NOTES.read_text(encoding="utf-8") if NOTES.is_file() else ""
    (DOCS / "results.md").write_text(page(figures, notes), encoding="utf-8")


if __name__ == "__main__":
    main()
