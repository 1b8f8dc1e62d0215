"""AdamW and its parameter groups."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES
from torch import nn

from compress.artifact.store import load_model
from compress.budgeting.budget import attach_budgets
from compress.budgeting.options import Budget
from compress.errors import ModelError
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads
from compress.tuning.optimizer import HIGHEST_RATE, build_optimizer, check_bound, depth, set_rate
from compress.tuning.options import Tune


def by_name(model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, float]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: group for group in optimizer.param_groups for parameter in group["params"]}


def test_matrices_decay_and_nothing_else(model: Transformer) -> None:
    groups = by_name(model, build_optimizer(model, Tune(weight_decay=0.1)))
    assert len(groups) == len(list(model.parameters()))
    decaying = {name for name, group in groups.items() if group["weight_decay"]}
    assert "layers.0.attention.qkv.weight" in decaying
    assert "head.classifier.weight" in decaying
    assert all(name.endswith(".weight") for name in decaying)
    for name in ("stem.vit.cls_token", "stem.vit.pos_embed", "layers.0.norm1.weight", "layers.0.attention.qkv.bias"):
        assert name in groups
        assert name not in decaying


@pytest.mark.parametrize("family", ["bert", "open_clip image", "open_clip text"])
def test_tables_of_embeddings_are_matrices_and_position_parameters_are_not(family: str) -> None:
    model = CASES[family]().model
    groups = by_name(model, build_optimizer(model, Tune(weight_decay=0.1)))
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            assert groups[f"{name}.weight"]["weight_decay"] == 0.1
    still = {name for name, group in groups.items() if not group["weight_decay"]}
    assert {name for name in groups if name.endswith(("positional_embedding", "class_embedding", "bias"))} <= still
    assert any("Norm" in name or "norm" in name for name in still)


def test_the_grouped_biases_of_a_fused_model_do_not_decay(fused: Path) -> None:
    model = load_model(fused)
    groups = by_name(model, build_optimizer(model, Tune()))
    biases = [name for name, parameter in model.named_parameters() if name.endswith("bias") and parameter.dim() == 2]
    assert biases
    assert all(groups[name]["weight_decay"] == 0 for name in biases)


def test_layers_learn_the_slower_the_lower_they_lie(model: Transformer) -> None:
    groups = by_name(model, build_optimizer(model, Tune(lr=1.0, layer_decay=0.5)))
    assert groups["head.classifier.weight"][HIGHEST_RATE] == 1
    assert groups["layers.2.mlp.fc1.weight"][HIGHEST_RATE] == 0.5
    assert groups["layers.0.mlp.fc1.weight"][HIGHEST_RATE] == 0.125
    assert groups["stem.vit.pos_embed"][HIGHEST_RATE] == 0.0625
    assert depth("layers.11.norm1.weight", 12) == 1


def test_predictors_learn_at_their_own_rate(model: Transformer) -> None:
    budgeted = attach_budgets(model, Budget(lr=1e-4, predictor_lr=5e-3))
    groups = by_name(budgeted, build_optimizer(budgeted, Tune(lr=1e-4)))
    assert groups["layers.1.attention.chooser.scorer.weight"][HIGHEST_RATE] == pytest.approx(5e-3)
    assert groups["layers.1.attention.qkv.weight"][HIGHEST_RATE] == pytest.approx(1e-4)


def test_a_factor_scales_every_group(model: Transformer) -> None:
    optimizer = build_optimizer(model, Tune(lr=1.0, layer_decay=0.5))
    assert set_rate(optimizer, 0.1) == pytest.approx(0.1)
    assert {group["lr"] / group[HIGHEST_RATE] for group in optimizer.param_groups} == {0.1}


def test_an_optimizer_from_before_surgery_is_found_out(model: Transformer) -> None:
    optimizer = build_optimizer(model, Tune())
    check_bound(optimizer, model)
    pruned = prune_heads(model, [(0, 1)] * 3)
    with pytest.raises(ModelError, match=r"optimizer: the optimizer holds 12 parameters that are not the model's"):
        check_bound(optimizer, pruned)
    check_bound(build_optimizer(pruned, Tune()), pruned)


def test_nothing_trainable_is_an_error(model: Transformer) -> None:
    with pytest.raises(ModelError, match="no parameter is trainable"):
        build_optimizer(model.requires_grad_(False), Tune())
