"""Encoders taken apart ignore padding, can be rebuilt, and refuse what they cannot represent.

The contract of all adapters (logits, pruning, training, parameters) is tested on the same rows in ``test_contract``.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny.case import Case
from tiny.hf_cases import CASES, TINY, encoder_case, tiny_library
from torch import nn
from transformers import PreTrainedModel
from transformers.models.albert.modeling_albert import AlbertForSequenceClassification
from transformers.models.bert.modeling_bert import BertForSequenceClassification, BertForTokenClassification
from transformers.models.mpnet.modeling_mpnet import MPNetForSequenceClassification

from compress.backbones.hf_layers import take_apart
from compress.backbones.registry import build_skeleton
from compress.errors import ModelError, UnsupportedModelError


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


def test_a_row_does_not_depend_on_its_padding(case: Case) -> None:
    with torch.no_grad():
        together = case.model(case.inputs)
        alone = case.model({name: tensor[1:2, :3] for name, tensor in case.inputs.items()})
        unmasked = case.model({name: case.inputs[name][1:2, :3] for name in case.inputs if name != "attention_mask"})
    torch.testing.assert_close(together[1:2], alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(unmasked, alone, atol=1e-5, rtol=0)


def test_dropout_is_as_strong_as_the_librarys(case: Case) -> None:
    ours = [m.p for m in case.model.modules() if isinstance(m, nn.Dropout)]
    ours += [layer.attention.dropout for layer in case.model.layers]
    theirs = [m.p for m in case.library.modules() if isinstance(m, nn.Dropout)]
    assert sum(ours) == pytest.approx(sum(theirs))


def test_a_skeleton_on_the_meta_device_takes_the_weights(case: Case) -> None:
    skeleton = build_skeleton(case.model.config)
    assert all(parameter.is_meta for parameter in skeleton.parameters())
    assert not any(buffer.is_meta for buffer in skeleton.buffers())
    skeleton.load_state_dict(case.model.state_dict(), assign=True)
    with torch.no_grad():
        assert torch.equal(skeleton(case.inputs), case.model(case.inputs))


def test_the_example_is_a_valid_input(case: Case) -> None:
    example = case.model.stem.example(2, 6)
    assert example["input_ids"].shape == (2, 6)
    assert (example["input_ids"] != case.library.config.pad_token_id).all()
    with torch.no_grad():
        torch.testing.assert_close(case.model(example), case.logits(case.library, example), atol=1e-5, rtol=0)


def test_every_linear_layer_of_the_head_is_per_member(case: Case) -> None:
    linear = {name for name, module in case.model.head.named_modules() if isinstance(module, nn.Linear)}
    assert set(case.model.head.per_member) == linear


def test_albert_shares_one_layer() -> None:
    model = CASES["albert"]().model
    assert (len(model.layers), model.order) == (1, (0, 0, 0))
    grouped = CASES["albert in groups"]().model
    assert (len(grouped.layers), grouped.order) == (4, (0, 1, 0, 1, 0, 1, 2, 3, 2, 3))


def test_too_long_an_input_is_an_error() -> None:
    case = encoder_case(BertForSequenceClassification)
    with pytest.raises(ModelError, match=r"21 tokens.*positions for 20"):
        case.model({"input_ids": torch.ones(1, 21, dtype=torch.long)})
    with pytest.raises(ModelError, match="mapping with input_ids"):
        case.model(torch.ones(1, 3))


@pytest.mark.parametrize("build", [MPNetForSequenceClassification, BertForTokenClassification])
def test_other_classes_are_refused_by_name(build: type[PreTrainedModel]) -> None:
    with pytest.raises(
        UnsupportedModelError, match=rf"{build.__name__} .*supported: .*AlbertForSequenceClassification"
    ):
        take_apart(tiny_library(build))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_decoder": True}, "BertSelfAttention as a decoder"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
    ],
)
def test_settings_that_cannot_be_represented_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        take_apart(tiny_library(BertForSequenceClassification, **changes))


def test_a_replaced_module_is_refused_by_class_and_place() -> None:
    class LowRank(nn.Linear):
        """Stands for an adapter that another library put in."""

    library = tiny_library(BertForSequenceClassification)
    library.bert.encoder.layer[1].attention.self.query = LowRank(24, 24)
    with pytest.raises(UnsupportedModelError, match=r"bert\.encoder\.layer\.1\.attention\.self\.query: LowRank"):
        take_apart(library)


def test_albert_with_groups_that_never_run_is_refused() -> None:
    library = tiny_library(AlbertForSequenceClassification, TINY, num_hidden_layers=2, num_hidden_groups=3)
    with pytest.raises(UnsupportedModelError, match="3 groups of layers for 2 layers"):
        take_apart(library)
