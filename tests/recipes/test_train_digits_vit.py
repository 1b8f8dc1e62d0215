"""The training script of the demo model; one pass over the data, since the whole training takes minutes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner

from compress.artifact.folder import verify_folder
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.opening import artifact_folder

SCRIPT = Path(__file__).parents[2] / "recipes" / "train" / "digits_vit.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_vit", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_head_dropout_is_the_identity_in_evaluation(script):
    contexts = torch.randn(5, 17, 96)
    assert torch.equal(script.HeadDropout(12, rate=1.0).eval()(contexts), contexts)


def test_head_dropout_zeroes_whole_heads_and_leaves_the_others_unscaled(script):
    torch.manual_seed(0)
    contexts = torch.rand(300, 3, 24) + 1
    dropped = script.HeadDropout(12, rate=1.0, fewest=4)(contexts).unflatten(2, (12, 2))
    kept = dropped.ne(0)
    assert torch.equal(kept, kept[:, :1, :, :1].expand_as(kept))
    assert torch.equal(dropped[kept], contexts.unflatten(2, (12, 2))[kept])
    assert set(kept[:, 0, :, 0].sum(1).tolist()) == set(range(4, 13))


def test_head_dropout_spares_the_samples_beyond_its_rate(script):
    contexts = torch.ones(50, 3, 24)
    assert torch.equal(script.HeadDropout(12, rate=0.0)(contexts), contexts)


def test_distorted_images_stay_images(script):
    pixels, _ = script.pixels_and_labels("calibration")
    distorted = script.distort(pixels)
    assert distorted.shape == pixels.shape == (200, 1, 8, 8)
    assert distorted.min() >= 0 and distorted.max() <= 1
    assert 0.02 < (distorted - pixels).abs().mean() < 0.3


@pytest.mark.slow
def test_training_repeats_with_the_seed_and_writes_an_artifact(script, tmp_path):
    threads = torch.get_num_threads()
    for name in ("first", "second"):
        result = CliRunner().invoke(script.main, [str(tmp_path / name), "--epochs", "1"])
        assert result.exit_code == 0, result.output
    torch.set_num_threads(threads)
    assert verify_folder(tmp_path / "first").digest == verify_folder(tmp_path / "second").digest
    measured = evaluate({"demo": tmp_path / "first"}, data="builtin:digits#test")
    assert f"test         accuracy {measured.value('demo', 'cls/accuracy'):.4f}" in result.output


def test_the_shipped_model_is_small_and_right():
    """Well below the measured 98.8 %, so that another CPU's rounding does not matter."""
    model = artifact_folder("builtin:digits-vit")
    assert sum(path.stat().st_size for path in model.iterdir()) <= 4 * 2**20
    quick = Evaluate(latency=False, intervals=False)
    measured = evaluate({"demo": model}, data="builtin:digits#test", options=quick)
    assert measured.value("demo", "cls/accuracy") >= 0.97
