"""The family of docs/examples/own_family.py, which docs/backbones.md shows, goes through the whole chain."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

import compress
from compress.backbones.registry import ADAPTERS
from compress.cli.main import main
from compress.errors import ModelError, UnsupportedModelError

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
CALIBRATION = "builtin:digits#calibration[:64]"


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The file, with its line in the registry."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setitem(ADAPTERS._targets, "patches", "own_family:ADAPTER")
    return importlib.import_module("own_family")


@pytest.fixture
def library(family: ModuleType) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return family.PatchClassifier(10).eval()


@pytest.fixture
def weights(library: torch.nn.Module, tmp_path: Path) -> str:
    save_file(library.state_dict(), tmp_path / "weights.safetensors")
    return str(tmp_path / "weights.safetensors")


def test_the_model_answers_as_the_library_s(library: torch.nn.Module, weights: str) -> None:
    model = compress.open_model("patches:small", weights=weights)
    images = model.stem.probe(5)
    with torch.inference_mode():
        torch.testing.assert_close(model(images), library(images), atol=1e-5, rtol=0)


def test_pruned_fused_and_measured(weights: str, tmp_path: Path) -> None:
    model = compress.open_model("patches:small", weights=weights)
    options = compress.Prune(members=2, keep=2, branch_layer=2, trunk_keep=4)
    compress.prune(model, tmp_path / "pruned", data=CALIBRATION, options=options)
    compress.fuse(tmp_path / "pruned", tmp_path / "fused")
    fused = compress.load(tmp_path / "fused")  # from config.json alone
    images = fused.stem.probe(5)
    with torch.inference_mode():
        for number, logits in enumerate(fused.members(images)):
            member = compress.load(tmp_path / f"pruned/member-{number}")
            torch.testing.assert_close(logits, member(images), atol=1e-5, rtol=0)
    quick = compress.Evaluate(latency=False, memory=False, intervals=False)
    result = compress.evaluate({"single": model, "fused": fused}, data="builtin:digits#test[:50]", options=quick)
    assert (result.value("fused", "cost/flops") or 0) > 0


def test_commands_take_it(weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "patches:small", "--weights", weights]) == 0
    assert "patches" in capsys.readouterr().out
    quick = "--argument depth=3 --keep 2 --branch-layer 2 --batch 1 --repeats 1 --warmup 0 --no-memory"
    assert main(["bench", "patches:small", *quick.split()]) == 0
    assert "library" in capsys.readouterr().out


def test_what_does_not_fit_is_refused(family: ModuleType, weights: str) -> None:
    with pytest.raises(ModelError, match="do not fit"):
        compress.open_model("patches:small", weights=weights, arguments={"depth": 2})
    subclass = type("Other", (family.PatchClassifier,), {})
    with pytest.raises(UnsupportedModelError, match="Other is not supported"):
        family.take_apart(subclass(10))
