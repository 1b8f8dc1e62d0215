"""Where the commands put what they make."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny.pictures import pictures, save_pictures
from tiny.timm_cases import CASES

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.cli.main import main

TRAINING = ("--steps", "1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``model`` and the images ``data``."""
    root = tmp_path_factory.mktemp("outputs")
    model = CASES["timm plain"]().model
    save_model(model, root / "model", Provenance(stage="test"))
    save_pictures(pictures(8, model.labels), root / "data")
    return root


@pytest.mark.parametrize(
    ("command", "options"),
    [("prune", ()), ("tune", TRAINING), ("route", TRAINING), ("budget", TRAINING), ("calibrate", ())],
)
def test_no_stage_writes_among_the_images_that_it_reads(
    command: str, options: tuple[str, ...], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next call would take the output for a class without images."""
    out = place / "data" / "out"
    assert main([command, str(place / "model"), "-o", str(out), "--data", str(place / "data"), *options]) == 2
    assert f"{out}: lies in the data {place / 'data'}, of which it would become a part" in capsys.readouterr().err
    assert not out.exists()
