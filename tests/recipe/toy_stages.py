"""Two tiny stages that write real artifacts without any model, for tests of the runner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from compress.artifact.folder import new_folder
from compress.errors import DataError
from compress.options import Options
from compress.recipe.schema import DataSources
from compress.recipe.stages.base import Kind, Stage, StageInputs, StageReport


class Copy(Options):
    """Options of the toy stages."""

    text: str = Field("a", description="What the artifact holds.")
    fail: bool = Field(False, description="Fail after half the work.")
    seed: int = Field(0, description="Has no effect on the content.")
    keep: int | float = Field(4, description="Has no effect either.")


class _Toy(Stage[Copy]):
    options = Copy
    executed: ClassVar[list[str]] = []

    def execute(self, inputs: StageInputs, options: Copy) -> None:
        before = "" if inputs.current is None else (inputs.current / "text").read_text(encoding="utf-8")
        _Toy.executed.append(inputs.target.name)
        with new_folder(inputs.target, kind="model", stage="toy", overwrite=True) as folder:
            (folder / "text").write_text(before + options.text, encoding="utf-8")
            if options.fail:
                raise DataError("the toy broke", where="--fail", fix="do not ask for it")


class Split(_Toy):
    """Makes members from a model."""

    accepts: ClassVar[tuple[Kind, ...]] = ("model",)
    produces: ClassVar[Kind | None] = "members"
    label = "members"
    synonyms: ClassVar[Mapping[str, str]] = {"word": "text"}

    def data(self, sources: DataSources, options: Copy) -> Mapping[str, str]:
        return {"calibration": sources.calibration} if sources.calibration else {}


class Join(_Toy):
    """Makes a model from members."""

    accepts: ClassVar[tuple[Kind, ...]] = ("members",)
    produces: ClassVar[Kind | None] = "model"
    label = "joined"


class Patience(Copy):
    """Options of the slow stage."""

    seconds: float = Field(0.2, description="How long the work takes.")


class Slow(_Toy):
    """Takes its time, and tells the parent folder when it has begun."""

    options = Patience
    accepts: ClassVar[tuple[Kind, ...]] = ("model",)
    produces: ClassVar[Kind | None] = "members"

    def execute(self, inputs: StageInputs, options: Copy) -> None:
        assert isinstance(options, Patience)
        with new_folder(inputs.target, kind="model", stage="toy", overwrite=True) as folder:
            (folder / "text").write_text("abc", encoding="utf-8")
            started = inputs.target.parent / "toy.started"
            started.touch()
            try:
                time.sleep(options.seconds)
            finally:
                started.unlink(missing_ok=True)


class Count(_Toy):
    """Counts the letters; a gate fails above three."""

    accepts: ClassVar[tuple[Kind, ...]] = ("model", "members")
    produces: ClassVar[Kind | None] = None

    def report(self, folder: Path, options: Copy) -> StageReport:
        letters = len((folder / "text").read_text(encoding="utf-8"))
        return StageReport(f"letters {letters}", {"letters": letters}, ("too many letters",) if letters > 3 else ())


def executed() -> list[str]:
    """Names of the folders that were computed since the last call."""
    names = list(_Toy.executed)
    _Toy.executed.clear()
    return names
