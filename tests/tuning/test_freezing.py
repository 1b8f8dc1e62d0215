"""What learns in a training, and what stays exactly as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES
from tiny.budgeted import varied
from tiny.scratch_vit import tiny_source

from compress.artifact.store import load_model
from compress.attention.budget_config import BudgetConfig
from compress.attention.head_chooser import HeadChooser
from compress.data.builtin import digits
from compress.data.subset import take
from compress.opening import open_model
from compress.runtime import Runtime
from compress.transformer.budgets import budgeted_attentions
from compress.tuning.freezing import all_but, training_mode
from compress.tuning.options import Tune
from compress.tuning.tune import tune


def test_what_holds_the_only_learners_drops_nothing() -> None:
    case = CASES["bert"]()
    model = varied(case.model)
    for _, attention in budgeted_attentions(model):
        attention.dropout, attention.gating = 0.5, "hard"
    only = (HeadChooser,)
    with training_mode(model, all_but(model, only), only):
        assert torch.equal(model.members(case.inputs), model.members(case.inputs))
        assert all(attention.chooser.training for _, attention in budgeted_attentions(model))
        learning = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert learning
    assert all("chooser" in name for name in learning)


@pytest.mark.parametrize("choice", ["learned", "random"])
def test_a_model_with_budgets_is_tuned_under_its_budgets(choice: str, tmp_path: Path) -> None:
    model = varied(open_model(tiny_source()), BudgetConfig.model_validate({"hidden": 8, "choice": choice}))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    options = Tune(steps=2, batch_size=8, lr=1e-2)
    tune(model, tmp_path / "t", data=take(digits("train"), range(16)), options=options, runtime=Runtime(device="cpu"))
    after = load_model(tmp_path / "t").state_dict()
    same = {name for name, tensor in before.items() if torch.equal(after[name], tensor)}
    assert {name for name in before if "chooser" in name} <= same, "no loss holds them"
    assert not {name for name in same if name.endswith(("qkv.weight", "output.weight"))}
