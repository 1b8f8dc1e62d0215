"""Labels with accents, paths with spaces and CJK: a text classifier from its recipe to the table, all in UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny.hf_folder import LABELS, save_library, save_tokenizer

from compress.cli.main import main

RECIPE = """\
model: hf:./modèle 模型
data:
  calibration: avis d'été.csv
  test: avis d'été.csv
  ood: {etranger: autre 文.csv}
  text_column: texte
  label_column: étiquette
stages:
  - prune: {members: 2, keep: 2, branch_layer: 1}
  - fuse
  - eval: {latency: false, intervals: false}
"""
ROWS = (("un bon film", "positif"), ("très mauvais", "négatif"), ("a film", "neutre"), ("the film was bad", "négatif"))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "données 数据"
    save_library(folder / "modèle 模型")
    save_tokenizer(folder / "modèle 模型")
    lines = ["texte,étiquette", *(f"{text},{label}" for text, label in ROWS)]
    (folder / "avis d'été.csv").write_text("\n".join(lines), encoding="utf-8")
    (folder / "autre 文.csv").write_text("texte\n漢字\nzéro\n", encoding="utf-8")
    path = folder / "recette é.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_a_run_keeps_every_name(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sortie 出力"
    assert main(["run", str(recipe), "-o", str(out), "--quiet"]) == 0, capsys.readouterr().err
    assert "出力" in capsys.readouterr().out
    for name in ("01-prune/member-0/config.json", "02-fuse/config.json"):
        content = (out / name).read_bytes().decode("utf-8")
        assert json.loads(content)["labels"] == list(LABELS.values())
        assert '"négatif"' in content, "written as it reads, not escaped"
    result = json.loads((out / "03-eval" / "result.json").read_text(encoding="utf-8"))
    assert result["models"][-1]["metrics"]["ood/etranger/auroc"] is not None
    assert main(["run", str(recipe), "-o", str(out), "--quiet"]) == 0
    assert "computed" not in capsys.readouterr().out


def test_files_are_utf8_under_a_plain_c_locale(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "sortie"
    done = subprocess.run(
        [sys.executable, "-m", "compress", "run", str(recipe), "-o", str(out), "--quiet"],
        capture_output=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"négatif"' in (out / "02-fuse" / "config.json").read_bytes().decode("utf-8")
