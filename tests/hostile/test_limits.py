"""The table of limits in docs/security-and-limits.md is that of the code, and what no bomb reaches has a test here."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile.opened import MODEL, replaced

from compress.artifact import header, manifest, store
from compress.artifact.json_values import MOST_VALUES
from compress.backbones import bounds
from compress.data import folder as pictures
from compress.data import idx
from compress.errors import ArtifactError
from compress.evaluation.stored import read as predictions
from compress.recipe import state, yaml_source
from compress.sweeping import record as sweep

PAGE = Path(__file__).parents[2] / "docs" / "security-and-limits.md"
KIB, MIB, GIB = 2**10, 2**20, 2**30
JSON = f"{{:g}} MiB, {MOST_VALUES:,} values"
LIMITS = {
    "manifest": JSON.format(manifest.MAX_MANIFEST_BYTES / MIB),
    "`config.json`, `provenance.json`": JSON.format(store.MAX_CONFIG_BYTES / MIB),
    "header of a safetensors file, index of shards": (
        f"{header.MAX_HEADER_BYTES / MIB:g} MiB, {header.MAX_HEADER_VALUES:,} values"
    ),
    "a tokenizer's file": f"{store.MAX_FILE_BYTES / MIB:g} MiB",
    "`predictions.json`": JSON.format(predictions.MAX_DESCRIPTION_BYTES / MIB),
    "what a sweep remembers of a point": f"{sweep.MAX_RECORD_BYTES / MIB:g} MiB",
    "what a run remembers of a stage": f"{state.MAX_RECORD_BYTES / KIB:g} KiB",
    "recipe": (
        f"{yaml_source.MAX_BYTES / KIB:g} KiB, {yaml_source.MAX_DEPTH} levels, "
        f"{yaml_source.MAX_VALUES:,} values with aliases expanded"
    ),
    "a picture": f"{round(pictures.MAX_PIXELS / 1e6)} million pixels",
    "gzipped images, unpacked": f"{idx.MAX_UNPACKED_BYTES / GIB:g} GiB",
    "a skeleton that an artifact's configuration asks for": (
        f"{bounds.SPARE_MODULES:,} modules and {bounds.MODULES_PER_TENSOR} per stored tensor; tensors of "
        f"{bounds.SPARE_BYTES / MIB:g} MiB or {bounds.BYTES_PER_STORED_BYTE} times the stored bytes; whole numbers up "
        f"to {bounds.LARGEST_NUMBER:,} or the largest stored dimension; tensors without elements do not count"
    ),
}


def test_the_table_is_that_of_the_code() -> None:
    _, _, below = PAGE.read_text(encoding="utf-8").partition("| limit | value |\n|---|---|\n")
    rows = below.partition("\n\n")[0].splitlines()
    assert dict(row.strip("| ").split(" | ") for row in rows) == LIMITS


def test_a_tokenizer_s_file_may_not_be_larger(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_FILE_BYTES", 100)
    store.load_model(replaced(sound / MODEL, tmp_path, "vocab.txt", bytes(100)))
    with pytest.raises(ArtifactError, match=r"vocab\.txt: has .* MB, more than"):
        store.load_model(replaced(sound / MODEL, tmp_path, "vocab.txt", bytes(101)))


def test_what_a_sweep_remembers_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    sweep.write_record(path, sweep.Record(key="k"))
    content = path.read_bytes().strip()
    path.write_bytes(content.rjust(sweep.MAX_RECORD_BYTES))
    assert sweep.read_record(path, "k") == sweep.Record(key="k")
    path.write_bytes(content.rjust(sweep.MAX_RECORD_BYTES + 1))
    assert sweep.read_record(path, "k") is None
