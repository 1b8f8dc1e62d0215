"""Commands that make the models and measure them; what is up to date is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from families import ENSEMBLE, ENSEMBLE_SEEDS, REFERENCE, Family, Row
from minilm import minilm_folder

from compress import __version__
from compress.artifact.manifest import MANIFEST_NAME

RECIPES = Path("recipes")
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

    ``compress run`` itself knows which of its stages are up to date. The first command that fails ends the call, and
    so does an interruption: what runs then saves its state, what waits is not started.
    """
    threads = max(1, cores() // jobs)
    pool = ThreadPoolExecutor(jobs)
    try:
        queued = [future for family in families for future in _submit(pool, place, family, seeds, threads)]
        for done in as_completed(queued):
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)
    for family in families:
        for seed in seeds:
            _measure(place, family, seed, TIME, threads=cores())


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _submit(pool: Executor, place: Place, family: Family, seeds: Sequence[int], threads: int) -> Iterator[Future[None]]:
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
    yield from references.values()
    made = [
        pool.submit(run, seed, recipe, [references[seed]])
        for seed in every
        for recipe in (family.recipes if seed in seeds else family.ensemble_recipes)
        if recipe != REFERENCE
    ]
    yield from made
    yield from [pool.submit(measure, seed, what, made) for seed in seeds for what in (TEST, SHIFT)]


def _wait(after: Sequence[Future[None]]) -> None:
    """Until these are done; raises what one of them raised."""
    for future in after:
        future.result()


def _measure(place: Place, family: Family, seed: int, what: str, threads: int) -> None:
    """Evaluate, unless the result that is there is of the same models, data and version."""
    command = eval_command(place, family, seed, what)
    result = place.result(family, seed, what)
    parts = [*command, __version__, *_digests(place, family, seed), *_state(Path(place.data))]
    key, kept = hashlib.sha256("\n".join(parts).encode()).hexdigest(), result.with_suffix(".key")
    if not (result.is_file() and kept.is_file() and kept.read_text(encoding="utf-8") == key):
        kept.unlink(missing_ok=True)
        _execute(command, place, threads)
        kept.write_text(key, encoding="utf-8")


def _state(data: Path) -> Iterator[str]:
    """What tells that a file of the data has changed."""
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        about = path.stat()
        yield f"{path.relative_to(data)} {about.st_size} {about.st_mtime_ns}"


def _digests(place: Place, family: Family, seed: int) -> Iterator[str]:
    """What identifies the weights of all rows."""
    for row in family.rows:
        for each in ENSEMBLE_SEEDS if row.name == ENSEMBLE else (seed,):
            manifest = place.artifact(family, each, row) / MANIFEST_NAME
            yield hashlib.sha256(manifest.read_bytes()).hexdigest()


def _execute(command: Sequence[str], place: Place, threads: int) -> None:
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
        record.write(json.dumps(line) + "\n")
    click.echo(f"{line['seconds']:7.1f} s  {line['command'][:160]}", err=True)


def records(place: Place) -> list[Mapping[str, Any]]:
    """The commands that ended well, with seconds and threads."""
    if not _record(place).is_file():
        return []
    return [json.loads(line) for line in _record(place).read_text(encoding="utf-8").splitlines()]


def _record(place: Place) -> Path:
    place.work.mkdir(parents=True, exist_ok=True)
    return place.work / "commands.jsonl"
