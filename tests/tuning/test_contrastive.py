"""Both towers of a CLIP, trained on captions."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import open_clip
import pytest
import torch
from tiny.open_clip_cases import tiny_config

from compress.artifact.folder import verify_folder
from compress.artifact.store import load_model
from compress.backbones.registry import PAIRS
from compress.backbones.source import ModelSource
from compress.cli.main import main
from compress.data.base import Dataset
from compress.data.sequence import SequenceDataset
from compress.errors import DataError, RecipeError, UsageError
from compress.opening import open_model
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.recipe.chain import check_chain
from compress.recipe.read import read_recipe
from compress.recipe.run import run_recipe
from compress.transformer.model import Transformer
from compress.tuning.contrastive import contrastive_loss
from compress.tuning.log import read_lines
from compress.tuning.options import Tune
from compress.tuning.tune import tune

TEMPLATES = ("a photo of a {}.", "the digit {}")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    """A folder with open_clip's configuration of a tiny model; its weights are drawn."""
    folder = tmp_path_factory.mktemp("tiny-clip")
    preprocess = {"mean": [0.3] * 3, "std": [0.4] * 3, "interpolation": "bicubic", "resize_mode": "squash"}
    content = {"model_cfg": tiny_config(), "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    return ModelSource(adapter="open_clip", name=str(folder), weights="random", templates=TEMPLATES)


@pytest.fixture
def captions(options: Callable[..., Tune]) -> Callable[..., Tune]:
    def make(**changes: object) -> Tune:
        return options(objective="captions", **changes)

    return make


def test_the_loss_by_hand() -> None:
    images = torch.eye(3)
    texts = torch.eye(3)
    alone = contrastive_loss(images, texts, torch.tensor(2.0), torch.tensor([0, 1, 2]))
    expected = -torch.tensor([2.0, 0.0, 0.0]).log_softmax(0)[0]
    assert torch.allclose(alone, expected.expand(3))
    together = contrastive_loss(images, texts, torch.tensor(2.0), torch.tensor([0, 0, 1]))
    rows = torch.tensor([2.0, 0.0, 0.0]).log_softmax(0)
    assert float(together[0]) == pytest.approx(float(-(rows[0] + rows[1]) / 2))


def test_trains_and_writes_a_classifier_and_both_towers(
    source: ModelSource, data: Dataset, validation: Dataset, captions: Callable[..., Tune], tmp_path: Path
) -> None:
    out = tmp_path / "clip"
    chosen = captions(epochs=12, lr=2e-3, batch_size=20, metric="cls/nll", log_steps=4)
    result = tune(source, out, data=data, validation=validation, options=chosen)
    losses = [entry["loss"] for entry in read_lines(out / "log.jsonl") if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]
    assert result.models[0].after is not None
    assert result.models[0].before is not None
    assert result.models[0].after < result.models[0].before
    classifier = load_model(out)
    assert classifier.labels == tuple("0123456789")
    assert classifier.files == {}
    prune(out, tmp_path / "pruned", data=data, options=Prune(members=2, keep=2))
    verify_folder(tmp_path / "pruned")

    labels = tuple("0123456789")
    again = open_model(f"open_clip:{out / 'open_clip'}", labels=labels, templates=TEMPLATES)
    images = torch.randn(3, 3, 16, 16)
    with torch.no_grad():
        assert torch.allclose(again(images), classifier(images), atol=1e-5)
    other = open_model(f"open_clip:{out / 'open_clip'}", labels=("cat", "dog"), arguments={"tower": "text"})
    assert other.labels == ("cat", "dog")

    library, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{out / 'open_clip'}")
    words = open_clip.SimpleTokenizer(context_length=12)
    weights = open_clip.build_zero_shot_classifier(library, words, list(labels), list(TEMPLATES))
    with torch.no_grad():
        logits = library.logit_scale.exp() * library.encode_image(images, normalize=True) @ weights
        assert torch.allclose(logits, classifier(images), atol=1e-4)
    assert preprocess is not None


def test_the_seed_decides_the_weights_from_scratch(
    source: ModelSource, data: Dataset, captions: Callable[..., Tune], tmp_path: Path
) -> None:
    """A learning rate too small to move anything: what differs is what training started from."""
    weights = []
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        still = captions(steps=1, lr=1e-30, weight_decay=0.0, from_scratch=True, seed=seed)
        tune(source, tmp_path / name, data=data, options=still)
        weights.append(load_model(tmp_path / name).layers[0].attention.output.weight)  # type: ignore[union-attr]
    one, same, other = weights
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_the_same_bytes_after_an_interruption_and_with_workers(
    source: ModelSource, data: Dataset, captions: Callable[..., Tune], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(source, tmp_path / "whole", data=data, options=captions(steps=3))
    from compress.tuning import contrastive

    real, calls = contrastive.contrastive_loss, []

    def interrupting(*arguments: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    monkeypatch.setattr(contrastive, "contrastive_loss", interrupting)
    with pytest.raises(KeyboardInterrupt):
        tune(source, tmp_path / "out", data=data, options=captions(steps=3))
    tune(source, tmp_path / "out", data=data, options=captions(steps=3, workers=1))
    assert len(calls) == 3
    assert verify_folder(tmp_path / "out").digest == verify_folder(tmp_path / "whole").digest


def test_every_template_is_used_and_names_the_class(source: ModelSource, data: Dataset) -> None:
    from compress.tuning.batches import Share
    from compress.tuning.contrastive import ContrastiveLearner

    pair = PAIRS["open_clip"](source)
    learner = ContrastiveLearner(
        pair, Tune(), torch.device("cpu"), class_names=data.class_names or (), templates=TEMPLATES
    )
    samples = [data[index] for index in range(20)]
    images, tokens = learner.make_inputs()(samples, Share(0, 20, 0, 20))
    assert images.shape == (20, 3, 16, 16)
    prompts = {
        template: pair.tokenizer()([template.format(sample.label) for sample in samples]) for template in TEMPLATES
    }
    used = [
        [template for template in TEMPLATES if torch.equal(tokens[row], prompts[template][row])] for row in range(20)
    ]
    assert all(len(found) == 1 for found in used)
    assert {found[0] for found in used} == set(TEMPLATES)


def test_a_recipe_trains_prunes_and_fuses_without_a_line_of_the_family(source: ModelSource, tmp_path: Path) -> None:
    text = f"""\
model: {{adapter: open_clip, name: {source.name}, weights: random, labels: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}}
data: {{train: "builtin:digits#calibration", calibration: "builtin:digits#calibration"}}
stages:
  - tune: {{objective: captions, from_scratch: true, steps: 2, batch_size: 20}}
  - prune: {{members: 2, keep: 2}}
  - fuse
"""
    (tmp_path / "recipe.yaml").write_text(text)
    result = run_recipe(read_recipe(tmp_path / "recipe.yaml"), tmp_path / "out")
    assert load_model(result.outcomes[-1].folder).structure.members == 2
    later = text.replace("  - fuse\n", "  - fuse\n  - tune: {objective: captions}\n")
    (tmp_path / "recipe.yaml").write_text(later)
    with pytest.raises(RecipeError, match="captions need the recipe's own model with both towers"):
        check_chain(read_recipe(tmp_path / "recipe.yaml"))


def test_the_command(source: ModelSource, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["tune", f"open_clip:{source.name}", "--weights", "random", "--objective", "captions", "--steps", "1"]
    line += ["--template", "the digit {}", "--data", "builtin:digits#calibration", "-o", str(tmp_path / "out")]
    assert main(line) == 0
    assert "model: 1 steps" in capsys.readouterr().out
    assert load_model(tmp_path / "out").config.backbone.arguments["templates"] == ["the digit {}"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"diversity": 0.1}, "--diversity: means nothing for captions"),
        ({"freeze": "backbone"}, "--freeze: means nothing for captions"),
        ({"layer_decay": 0.9}, "--layer-decay: means nothing for captions"),
        ({"keep_trunk_outputs": True}, "--keep-trunk-outputs: means nothing for captions"),
        ({"head_dropout_from": 1}, "--head-dropout-from: means nothing for captions"),
    ],
)
def test_options_that_mean_nothing(
    source: ModelSource,
    data: Dataset,
    captions: Callable[..., Tune],
    changes: dict[str, object],
    message: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match=message):
        tune(source, tmp_path / "out", data=data, options=captions(**changes))


def test_models_of_one_tower_and_data_without_names_are_refused(
    model: Transformer, source: ModelSource, data: Dataset, fused: Path, captions: Callable[..., Tune], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="an artifact has one tower"):
        tune(fused, tmp_path / "out", data=data, options=captions())
    with pytest.raises(
        UsageError, match="timm models have one tower, captions need two; give one of the families open_clip"
    ):
        tune("timm:vit_tiny_patch16_224", tmp_path / "out", data=data, options=captions())
    unlabelled = SequenceDataset([data[0].value], "image", reference="photos")
    with pytest.raises(DataError, match="photos: the data are unlabelled"):
        tune(source, tmp_path / "out", data=unlabelled, options=captions())
