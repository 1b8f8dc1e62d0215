"""Make the tables of the MiniLM recipes from the ratings that come with VADER.

    python recipes/minilm/make_tables.py vaderSentiment-3.3.2.tar.gz DATA/sentiment

The first argument is the source package of vaderSentiment 3.3.2 (Hutto and Gilbert, ICWSM 2014; MIT licence), which
holds sentences with the mean rating of twenty people. Movie and Amazon sentences that are repeated or rated between
-0.3 and 0.3 are dropped; editorials are all kept and have no label, because they are foreign. Seed 0 shuffles them.
"""

from __future__ import annotations

import csv
import io
import random
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

RATINGS = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
NEUTRAL = 0.3
# Per source the tables with their numbers of rows; None is the rest.
TABLES = {
    "movieReview": {"movie_test.csv": 2000, "movie_calibration.csv": 1000, "movie_train.csv": None},
    "amazonReview": {"amazon_shift.csv": 2000},
    "nytEditorial": {"nyt_ood.csv": 2000, "nyt_ood_validation.csv": 1000},
}
UNLABELLED = "nytEditorial"


def rated(package: Path, source: str) -> Iterator[tuple[str, float]]:
    """Sentences and their ratings, in the order of the file."""
    ratings = _file(package.read_bytes(), RATINGS)
    text = _file(ratings, f"hutto_ICWSM_2014/{source}Snippets_GroundTruth.txt").decode("latin-1")
    seen = set()
    for line in filter(None, text.split("\n")):
        _, rating, sentence = (cell.strip() for cell in line.split("\t"))
        dropped = sentence in seen or abs(float(rating)) < NEUTRAL
        if source == UNLABELLED or not dropped:
            seen.add(sentence)
            yield sentence, float(rating)


def _file(archive: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        found = files.extractfile(name)
        if found is None:
            raise click.ClickException(f"{name} is no file of the archive")
        return found.read()


def write_table(path: Path, rows: Sequence[tuple[str, float]], *, labelled: bool) -> None:
    """A CSV file with the columns text, label and score."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("text", "label", "score"))
        for sentence, score in rows:
            table.writerow((sentence, ("pos" if score > 0 else "neg") if labelled else "", round(score, 3)))


@click.command(help=__doc__)
@click.argument("package", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def main(package: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    order = random.Random(0)
    for source, tables in TABLES.items():
        sentences = list(rated(package, source))
        order.shuffle(sentences)
        for name, count in tables.items():
            rows, sentences = sentences[:count], sentences[count:] if count else []
            write_table(out / name, rows, labelled=source != UNLABELLED)
            click.echo(f"{name}: {len(rows)} sentences")


if __name__ == "__main__":
    main()
