"""Taylor importance against finite differences, and heads planted to matter."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from timm.models.vision_transformer import VisionTransformer
from tiny.all_cases import CASES, ONE_PER_FAMILY
from tiny.case import Case
from tiny.timm_cases import vit_case
from torch import Tensor

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.sequence import SequenceDataset
from compress.errors import DataError, ModelError
from compress.pruning.baselines import magnitude_samples, random_samples
from compress.pruning.options import Prune
from compress.pruning.scores import HeadScores
from compress.pruning.selection import select
from compress.pruning.self_check import check_pruned
from compress.pruning.taylor import taylor_samples
from compress.runtime import Runtime
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Hidden
from compress.transformer.surgery import keep_heads, prune_heads

CPU = Runtime(device="cpu", batch_size=4)


def pictures(count: int, classes: int = 5, size: int = 16, channels: int = 3) -> Dataset:
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randint(256, (count, size, size, 3), generator=generator, dtype=torch.uint8).numpy()
    images = [Image.fromarray(own) if channels == 3 else Image.fromarray(own[..., 0]) for own in pixels]
    names = tuple(f"class {index}" for index in range(classes))
    return SequenceDataset(images, "image", class_names=names, labels=[index % classes for index in range(count)])


def as_float64(case: Case) -> Transformer:
    return copy.deepcopy(case.model).double()


@pytest.mark.parametrize("name", ["timm plain", "timm distilled", "open_clip image"])
def test_importance_is_the_absolute_derivative_of_the_loss(name: str) -> None:
    case = CASES[name]()
    labels = case.model.labels
    data = pictures(6, classes=len(labels))
    data = SequenceDataset([data[i].value for i in range(6)], "image", class_names=labels, labels=[0, 1, 2, 3, 4, 0])
    found = taylor_samples(case.model, data, CPU)
    model = as_float64(case)
    inputs = preprocessor(case.model)([data[i].value for i in range(6)]).double()
    target = torch.tensor(data.labels)
    step = 1e-5
    for layer, module in enumerate(model.layers):
        for head in range(module.attention.slots):
            losses = []
            for sign in (1, -1):
                gates = [torch.ones(1, own.attention.slots, dtype=torch.float64) for own in model.layers]
                gates[layer][0, head] += sign * step
                with torch.no_grad():
                    logits = model.members(inputs, gates=gates)[0]
                losses.append(F.cross_entropy(logits, target, reduction="none"))
            expected = ((losses[0] - losses[1]) / (2 * step)).abs()
            torch.testing.assert_close(found[layer][:, head].double(), expected, atol=2e-5, rtol=1e-3)


def test_scores_do_not_depend_on_the_batch_size_or_on_frozen_parameters() -> None:
    model = CASES["timm plain"]().model
    data = pictures(7)
    apart = taylor_samples(model, data, Runtime(device="cpu", batch_size=1))
    model.requires_grad_(False)
    together = taylor_samples(model.train(), data, Runtime(device="cpu", batch_size=7))
    for one, other in zip(apart, together, strict=True):
        assert one.shape == (7, 4)
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert not any(parameter.requires_grad for parameter in model.parameters()), "left as it was"
    assert all(parameter.grad is None for parameter in model.parameters())


def words(model: Transformer) -> Dataset:
    labels = model.labels
    return SequenceDataset(["a cat", "two dogs", "no fish"], "text", class_names=labels, labels=[0, 1, 2])


@pytest.mark.parametrize("name", ["timm plain", "open_clip image", "open_clip image own attention", "open_clip text"])
def test_scores_are_equal_in_training_evaluation_and_without_gradients(name: str) -> None:
    """Libraries' fused kernels and hooks depend on these modes; the project's attention does not."""
    model = CASES[name]().model
    data = words(model) if model.config.preprocessing.kind == "text" else pictures(3, classes=len(model.labels))
    data = SequenceDataset([data[i].value for i in range(3)], data.kind, class_names=model.labels, labels=[0, 1, 2])
    expected = taylor_samples(model.eval(), data, CPU)
    assert all(bool((own > 0).any()) for own in expected)
    found = [taylor_samples(model.train(), data, CPU)]
    assert model.training, "left as it was"
    assert model.layers[0].attention.training
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            found.append(taylor_samples(model.eval(), data, CPU))
    for scores in found:
        assert all(torch.equal(own, other) for own, other in zip(scores, expected, strict=True))


def test_scores_of_a_model_with_dropout_do_not_depend_on_chance() -> None:
    model = vit_case(VisionTransformer, drop_rate=0.5, attn_drop_rate=0.5, proj_drop_rate=0.5).model.train()
    first, second = (taylor_samples(model, pictures(3), CPU) for _ in range(2))
    assert all(torch.equal(own, other) for own, other in zip(first, second, strict=True))
    kept = [(0, 1), (2,), (1, 3)]
    assert check_pruned(model, prune_heads(model, kept), CASES["timm plain"]().inputs, "copy") < 1e-5
    assert model.training


def test_a_loss_that_does_not_reach_a_layer_is_an_error_that_names_it() -> None:
    model = CASES["timm plain"]().model

    class Deaf(Layer):
        def forward(self, hidden: Hidden, *, gate: Tensor | None = None, last: bool = False) -> Hidden:
            return hidden

    layer = model.layers[1]
    model.layers[1] = Deaf(layer.attention, layer.mlp, layer.norm1, layer.norm2)
    with pytest.raises(ModelError, match=r"no gradient in layers \[1\]"):
        taylor_samples(model, pictures(2), CPU)


def test_a_nan_weight_is_an_error_that_names_layer_and_head() -> None:
    model = CASES["timm plain"]().model
    with torch.no_grad():
        model.layers[1].attention.qkv.weight[0, 0, 0] = float("nan")
    with pytest.raises(ModelError, match="layer 0, head slot 0 is not finite"):
        HeadScores(taylor_samples(model, pictures(2), CPU), "taylor", "model")


def test_an_overflow_of_half_precision_is_an_error_and_float32_is_the_cure() -> None:
    model = CASES["timm plain"]().model
    with torch.no_grad():
        model.head.classifier.weight.mul_(1e6)
    with pytest.raises(ModelError, match=r"layer 0, head slot 0 is not finite .* score in float32"):
        HeadScores(taylor_samples(model, pictures(2), Runtime(device="cpu", dtype="float16")), "taylor", "model")
    HeadScores(taylor_samples(model, pictures(2), CPU), "taylor", "model")


@pytest.mark.parametrize("method", ["taylor", "magnitude"])
def test_of_duplicated_heads_the_lowest_stays(method: str) -> None:
    model = CASES["timm plain"]().model
    with torch.no_grad():
        for layer in model.layers:
            attention = layer.attention
            for part in (attention.qkv.weight[0], attention.qkv.bias[0]):
                heads = part.view(3, attention.slots, attention.head_width, -1)
                heads.copy_(heads[:, 2:3].expand_as(heads).clone())
            output = attention.output.weight[0].view(attention.width, attention.slots, -1)
            output.copy_(output[:, 2:3].expand_as(output).clone())
    samples = taylor_samples(model, pictures(4), CPU) if method == "taylor" else magnitude_samples(model)
    scores = HeadScores(samples, method, "model")
    for scope in ("layer", "global"):
        chosen = select(scores, Prune(members=1, keep=2, scope=scope))
        assert all(slots[0] == 0 for slots in chosen.slots[0])
    assert select(scores, Prune(members=1, keep=2)).slots[0] == ((0, 1),) * 3


def test_an_empty_calibration_set_is_an_error() -> None:
    empty = SequenceDataset([], "image", class_names=("class 0",), labels=[])
    with pytest.raises(DataError, match="no samples"):
        taylor_samples(CASES["timm plain"]().model, empty, CPU)


def test_a_shared_layer_is_scored_once_over_all_its_uses() -> None:
    case = CASES["albert"]()
    assert len(case.model.order) == 3
    gates = [torch.ones(3, 4, requires_grad=True)]
    loss = F.cross_entropy(case.model.members(case.inputs, gates=gates)[0], torch.tensor([0, 1, 2]), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, gates)
    assert gradient.shape == (3, 4)


def plant(model: Transformer, layer: int, useful: int) -> None:
    """Only one head of a layer reaches the residual stream."""
    attention = model.layers[layer].attention
    with torch.no_grad():
        output = attention.output.weight[0].view(attention.width, attention.slots, attention.head_width)
        for head in range(attention.slots):
            if head != useful:
                output[:, head] *= 1e-4


@pytest.mark.parametrize("name", ["timm plain", "open_clip image"])
@pytest.mark.parametrize("method", ["taylor", "magnitude"])
def test_a_planted_head_ranks_first(name: str, method: str) -> None:
    model = CASES[name]().model
    planted = {0: 2, 1: 0, 2: 3}
    for layer, head in planted.items():
        plant(model, layer, head)
    data = pictures(8)
    data = SequenceDataset(
        [data[i].value for i in range(8)], "image", class_names=model.labels, labels=[0, 1, 2, 3] * 2
    )
    samples = taylor_samples(model, data, CPU) if method == "taylor" else magnitude_samples(model)
    assert {layer: int(own.mean(0).argmax()) for layer, own in enumerate(samples)} == planted


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_magnitude_is_unchanged_when_a_factor_moves_between_values_and_output(name: str) -> None:
    model = CASES[name]().model
    before = magnitude_samples(model)
    attention = model.layers[0].attention
    with torch.no_grad():
        attention.qkv.weight[0].view(3, attention.slots, -1)[2] *= 4
        attention.output.weight /= 4
    torch.testing.assert_close(magnitude_samples(model)[0], before[0])


def test_random_scores_are_seeded_and_one_draw_per_member() -> None:
    model = CASES["timm plain"]().model
    assert all(torch.equal(a, b) for a, b in zip(random_samples(model, 3, 1), random_samples(model, 3, 1), strict=True))
    assert not torch.equal(random_samples(model, 3, 1)[0], random_samples(model, 3, 2)[0])
    assert random_samples(model, 3, 1)[0].shape == (3, 4)


def test_scores_of_a_pruned_model_are_of_its_present_heads() -> None:
    model = CASES["timm plain"]().model
    model.layers[1].attention = keep_heads(model.layers[1].attention, (1, 3))
    assert [own.shape for own in taylor_samples(model, pictures(3), CPU)] == [(3, 4), (3, 2), (3, 4)]
