"""``compress inspect`` through the real command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
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


def test_plain_weights_of_an_architecture_with_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 4, "num_classes": 2}
    vit = timm.create_model("vit_tiny_patch16_224", **arguments)
    torch.save(vit.state_dict(), tmp_path / "vit.pth")
    named = ["inspect", "timm:vit_tiny_patch16_224", f"--weights={tmp_path / 'vit.pth'}", "--label=a", "--label=b"]
    assert main(named) == 2
    assert "(--argument img_size=64)" in capsys.readouterr().err
    assert main([*named, *(f"--argument={name}={value}" for name, value in arguments.items())]) == 0
    assert "width 24, heads of 6, 5 tokens per input" in capsys.readouterr().out


def test_a_model_without_routers_says_so_before_the_input_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(CASES["timm plain"]().model, tmp_path / "m", Provenance(stage="test"))
    assert main(["inspect", str(tmp_path / "m"), "--routes", "no-such-file"]) == 2
    assert "the model has no routers" in capsys.readouterr().err
