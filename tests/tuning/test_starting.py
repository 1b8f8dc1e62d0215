"""Random weights to start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES, ONE_PER_FAMILY
from tiny.scratch_vit import tiny_source

from compress.artifact.store import load_model
from compress.attention.budget_config import BudgetConfig
from compress.data.base import Dataset
from compress.data.sequence import SequenceDataset
from compress.errors import ModelError
from compress.opening import open_model
from compress.transformer.budgets import with_budgets
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads
from compress.tuning.options import Tune
from compress.tuning.starting import redrawn, starting_model
from compress.tuning.tune import tune

SOURCE = tiny_source(weights=None, labels=None)


def equal(one: Transformer, other: Transformer) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_family_s_model_takes_its_classes_from_the_data(data: Dataset) -> None:
    model = starting_model(SOURCE, data, from_scratch=True, seed=0)
    assert model.labels == tuple("0123456789")
    weight = model.layers[0].attention.qkv.weight  # type: ignore[union-attr]
    assert 0.01 < float(weight.detach().std()) < 0.03, "timm's own initialisation"
    assert float(model.layers[0].attention.output.weight.detach().abs().max()) > 0  # type: ignore[union-attr]


def test_the_seed_decides(data: Dataset) -> None:
    before = torch.get_rng_state()
    one, same, other = (starting_model(SOURCE, data, from_scratch=True, seed=seed) for seed in (1, 1, 2))
    assert equal(one, same)
    assert not equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("family", ONE_PER_FAMILY)
def test_the_seed_decides_in_every_family(family: str) -> None:
    model = CASES[family]().model
    before = torch.get_rng_state()
    one, same, other = (redrawn(model, seed) for seed in (1, 1, 2))
    assert equal(one, same)
    assert not equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_pruned_model_keeps_its_structure(model: Transformer) -> None:
    pruned = prune_heads(model, [(0, 2), (1,), (0, 1, 3)])
    fresh = redrawn(pruned, seed=3)
    assert fresh.structure == pruned.structure
    assert not equal(fresh, pruned)
    with torch.no_grad():
        assert fresh(fresh.stem.example(2)).shape == (2, 10)


def test_a_fused_model_is_refused(fused: Path) -> None:
    with pytest.raises(ModelError, match="a fused model has no random weights of its own"):
        redrawn(load_model(fused), 0)


def test_a_model_with_budgets_is_refused(model: Transformer) -> None:
    with pytest.raises(ModelError, match="would lose its budgets"):
        redrawn(with_budgets(model, BudgetConfig()), 0)


def test_an_artifact_is_trained_from_scratch(
    model: Transformer, data: Dataset, options: Callable[..., Tune], tmp_path: Path
) -> None:
    tune(model, tmp_path / "model", data=data, options=options(steps=1))
    for name, seed in (("a", 1), ("b", 2)):
        tune(tmp_path / "model", tmp_path / name, data=data, options=options(steps=1, from_scratch=True, seed=seed))
    one, other = load_model(tmp_path / "a"), load_model(tmp_path / "b")
    assert one.config == other.config
    assert not equal(one, other)


def test_random_weights_need_classes_and_preprocessing() -> None:
    drawn = SOURCE.model_copy(update={"weights": "random"})
    with pytest.raises(ModelError, match="random weights know no classes; name them with --label"):
        open_model(drawn)
    bare = drawn.model_copy(update={"labels": ("a", "b"), "preprocessing": {"mean": [0.3]}})
    with pytest.raises(ModelError, match=r"without its preprocessing \(std, interpolation, resize\)"):
        open_model(bare)


def test_random_weights_contact_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*arguments: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    model = open_model(SOURCE.model_copy(update={"weights": "random", "labels": ("a", "b")}))
    assert model.labels == ("a", "b")


def test_unlabelled_data_name_no_classes(data: Dataset, tmp_path: Path) -> None:
    unlabelled = SequenceDataset([data[0].value], "image", reference="photos")
    with pytest.raises(Exception, match="photos: the classes are not known"):
        tune(SOURCE, tmp_path / "out", data=unlabelled, options=Tune(from_scratch=True))


def test_position_embeddings_of_a_given_size(data: Dataset) -> None:
    wide = tiny_source(weights=None, labels=None, arguments={**SOURCE.arguments, "pos_embed_std": 0.5})
    plain, changed = (starting_model(source, data, from_scratch=True, seed=0) for source in (SOURCE, wide))
    own, other = plain.stem.vit.pos_embed, changed.stem.vit.pos_embed  # type: ignore[union-attr]
    assert float(own.detach().std()) == pytest.approx(0.02, rel=0.3)  # type: ignore[union-attr, operator]
    assert float(other.detach().std()) == pytest.approx(0.5, rel=0.3)  # type: ignore[union-attr, operator]
    without = [name for name, value in plain.state_dict().items() if "pos_embed" not in name]
    assert all(torch.equal(plain.state_dict()[name], changed.state_dict()[name]) for name in without)
