"""``compress inspect`` through the real command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny.timm_cases import CASES

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.attention.budget_config import BudgetConfig
from compress.cli.main import main
from compress.transformer.budgets import with_budgets


@pytest.mark.parametrize(
    ("fixed", "line"),
    [(None, "predicted for every input; learned choice of heads"), (0.5, "0.5 of the heads; learned choice of heads")],
)
def test_budgets_are_shown(fixed: float | None, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = with_budgets(CASES["timm plain"]().model, BudgetConfig(fixed=fixed))
    save_model(model, tmp_path / "b", Provenance(stage="budget"))
    assert main(["inspect", str(tmp_path / "b")]) == 0
    (shown,) = [row for row in capsys.readouterr().out.splitlines() if row.startswith("budgets")]
    assert shown.split(maxsplit=1)[1] == line
    assert main(["inspect", str(tmp_path / "b"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["budget"]["fixed"] == fixed


def test_a_model_without_budgets_has_no_such_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(CASES["timm plain"]().model, tmp_path / "m", Provenance(stage="test"))
    assert main(["inspect", str(tmp_path / "m")]) == 0
    assert "budgets" not in capsys.readouterr().out
