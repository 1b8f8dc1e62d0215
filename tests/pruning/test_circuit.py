"""The circuit search against a loop that masks one head at a time, and heads planted to be found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiny.all_cases import CASES
from tiny.hf_cases import tiny_library
from tiny.hf_folder import LABELS, save_tokenizer
from tiny.samples import samples, unlabelled
from tiny.signal_model import OOD_HEAD, TASK_HEAD, signal_images, signal_model
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.albert.modeling_albert import AlbertForSequenceClassification
from transformers.models.bert.modeling_bert import BertForSequenceClassification

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.errors import DataError, ModelError
from compress.opening import open_model
from compress.pruning import candidates, hidden_cache
from compress.pruning.circuit import CircuitSearcher
from compress.pruning.circuit_scores import Search, SearchScores
from compress.pruning.options import Objective
from compress.pruning.scores import HeadScores, bootstrap
from compress.pruning.selection import strongest
from compress.pruning.taylor import taylor_samples
from compress.runtime import Runtime
from compress.transformer.model import Transformer

CPU = Runtime(device="cpu", batch_size=4)
GROUPED = {"embedding_size": 8, "num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2}


def encoder(folder: Path, build: type[PreTrainedModel], **changes: object) -> Transformer:
    library = tiny_library(build, num_labels=len(LABELS), **changes)
    library.config.id2label = LABELS
    library.config.label2id = {name: index for index, name in LABELS.items()}
    library.save_pretrained(folder)
    save_tokenizer(folder)
    return open_model(folder)


def opened(name: str, folder: Path) -> Transformer:
    if name == "hf bert":
        return encoder(folder, BertForSequenceClassification)
    if name == "hf albert":
        return encoder(folder, AlbertForSequenceClassification, **GROUPED)
    return CASES[name]().model


def complete(
    search: Search, model: Transformer, data: Dataset, foreign: Dataset | None, **options: int
) -> SearchScores:
    runtime = CPU.model_copy(update=options)
    return CircuitSearcher(model, data, foreign, runtime).run(SearchScores(search))


def whole_search(model: Transformer, objective: Objective, keep: int, **details: object) -> Search:
    start = int(details.pop("start", 0))
    layers = len(model.layers) - start
    return Search(objective=objective, start=start, keep=(keep,) * layers, masked=((),) * start).model_copy(
        update=details
    )


def naive(search: Search, model: Transformer, data: Dataset, foreign: Dataset) -> Iterator[tuple[Tensor, Tensor]]:
    """Task and OOD loss without each head, layer by layer: one full pass of the whole data per head."""
    sets = []
    for position, own in enumerate((data, foreign)):
        drawn = list(range(len(own)))
        if search.bootstrap is not None:
            drawn = bootstrap(*search.bootstrap, len(data), len(foreign))[position].tolist()
        sets.append((preprocessor(model)([own[index].value for index in drawn]), [own[index].label for index in drawn]))
    masked = {(layer, slot) for layer, slots in enumerate(search.masked) for slot in slots}
    for layer in range(search.start, search.start + len(search.keep)):
        losses = [
            _losses_without(model, sets, masked | {(layer, head)})
            for head in range(model.layers[layer].attention.slots)
        ]
        task, ood = (torch.tensor(column, dtype=torch.float64) for column in zip(*losses, strict=True))
        found = {"task": task, "ood": ood, "avg": (_ranks(task) + _ranks(ood)) / 2}[search.objective]
        masked |= {(layer, head) for head in strongest(found, search.keep[layer - search.start])}
        yield task, ood


def _losses_without(model: Transformer, sets: list, masked: set[tuple[int, int]]) -> tuple[float, float]:
    gates = [torch.ones(1, layer.attention.slots) for layer in model.layers]
    for layer, head in masked:
        gates[layer][0, head] = 0
    with torch.no_grad():
        inside, outside = (model.members(inputs, gates=gates)[0].double() for inputs, _ in sets)
    sure, unsure = (logits.softmax(-1).amax(-1).tolist() for logits in (inside, outside))
    wins = [1.0 if foreign < own else 0.5 if foreign == own else 0.0 for own, foreign in product(sure, unsure)]
    return float(F.cross_entropy(inside, torch.tensor(sets[0][1]))), 1 - sum(wins) / len(wins)


def _ranks(values: Tensor) -> Tensor:
    below = (values[:, None] > values[None]).sum(1)
    return below + ((values[:, None] == values[None]).sum(1) + 1) / 2


@pytest.mark.parametrize("name", ["timm plain", "hf bert", "open_clip image", "open_clip text", "hf albert"])
@pytest.mark.parametrize("objective", ["task", "ood", "avg"])
def test_the_search_finds_what_masking_one_head_at_a_time_finds(
    name: str, objective: Objective, tmp_path: Path
) -> None:
    model = opened(name, tmp_path)
    data, foreign = samples(model, 9), samples(model, 7, seed=5)
    search = whole_search(model, objective, keep=2)
    found = complete(search, model, data, unlabelled(foreign))
    expected = list(naive(search, model, data, foreign))
    for losses, (task, ood) in zip(found.losses, expected, strict=True):
        torch.testing.assert_close(losses.task, task, atol=1e-5, rtol=0)
        torch.testing.assert_close(losses.ood, ood, atol=1e-5, rtol=0)
    rankings = [
        {"task": task, "ood": ood, "avg": (_ranks(task) + _ranks(ood)) / 2}[objective] for task, ood in expected
    ]
    assert found.circuit == tuple(tuple(strongest(own, 2)) for own in rankings)


@pytest.mark.parametrize("name", ["timm plain", "hf albert"])
def test_a_search_above_a_masked_trunk_on_a_bootstrap_is_that_of_the_loop(name: str, tmp_path: Path) -> None:
    model = opened(name, tmp_path)
    data, foreign = samples(model, 9), samples(model, 7, seed=5)
    search = whole_search(model, "task", keep=1, start=1, masked=((0, 3),), bootstrap=(3, 1))
    found = complete(search, model, data, foreign)
    for losses, (task, ood) in zip(found.losses, naive(search, model, data, foreign), strict=True):
        torch.testing.assert_close(losses.task, task, atol=1e-5, rtol=0)
        torch.testing.assert_close(losses.ood, ood, atol=1e-5, rtol=0)


def test_batches_groups_of_heads_and_the_size_of_the_cache_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CASES["timm plain"]().model
    data, foreign = samples(model, 9), samples(model, 5, seed=5)
    search = whole_search(model, "avg", keep=2)
    expected = complete(search, model, data, foreign, batch_size=9)
    monkeypatch.setattr(candidates, "CANDIDATE_BYTES", 1)
    one_by_one = complete(search, model, data, foreign, batch_size=2)
    states = 2 * 17 * 24 * 4  # of one batch of two

    class Small(hidden_cache.HiddenCache):
        def __init__(self, *args: object, **details: object) -> None:
            super().__init__(*args, **details, limit=2 * states + 1)

    monkeypatch.setattr("compress.pruning.circuit.HiddenCache", Small)
    half_kept = complete(search, model, data, foreign, batch_size=2)
    for found in (one_by_one, half_kept):
        assert found.circuit == expected.circuit
        for own, other in zip(found.losses, expected.losses, strict=True):
            torch.testing.assert_close(own.task, other.task, atol=1e-6, rtol=0)
            torch.testing.assert_close(own.ood, other.ood, atol=1e-6, rtol=0)


def test_padding_changes_nothing(tmp_path: Path) -> None:
    model = encoder(tmp_path, BertForSequenceClassification)
    data = samples(model, 6)
    search = whole_search(model, "task", keep=1)
    padded, alone = (complete(search, model, data, None, batch_size=size) for size in (6, 1))
    for own, other in zip(padded.losses, alone.losses, strict=True):
        torch.testing.assert_close(own.task, other.task, atol=1e-5, rtol=0)


def test_the_model_stays_in_its_mode_and_parameters_get_no_gradient() -> None:
    model = CASES["timm plain"]().model.train()
    complete(whole_search(model, "task", keep=2), model, samples(model, 4), None)
    assert model.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_labels_are_not_needed_to_search_by_foreign_data() -> None:
    model = CASES["timm plain"]().model
    data, foreign = samples(model, 6), samples(model, 5, seed=5)
    found = complete(whole_search(model, "ood", keep=2), model, unlabelled(data), unlabelled(foreign))
    assert all(losses.task is None for losses in found.losses)
    assert found.circuit == complete(whole_search(model, "ood", keep=2), model, data, foreign).circuit


def test_bfloat16_runs_and_agrees_roughly() -> None:
    model = CASES["timm plain"]().model
    search = whole_search(model, "task", keep=2)
    data = samples(model, 6)
    narrow, wide = (complete(search, model, data, None, dtype=dtype) for dtype in ("bfloat16", "float32"))
    torch.testing.assert_close(narrow.losses[0].task, wide.losses[0].task, atol=0.1, rtol=0.05)
    assert not torch.equal(narrow.losses[0].task, wide.losses[0].task)


def test_an_answer_that_is_no_number_names_layer_and_head() -> None:
    model = CASES["timm plain"]().model
    with torch.no_grad():
        model.layers[2].mlp.fc1.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="without head slot 0 of layer 0 are not finite"):
        complete(whole_search(model, "ood", keep=1), model, samples(model, 3), samples(model, 3, seed=1))


def test_an_empty_set_is_an_error() -> None:
    model = CASES["timm plain"]().model
    with pytest.raises(DataError, match="no samples"):
        complete(whole_search(model, "task", keep=1), model, samples(model, 0), None)


def test_the_bar_is_told_of_as_many_passes_as_it_was_promised() -> None:
    model = CASES["timm plain"]().model
    searcher = CircuitSearcher(model, samples(model, 9), samples(model, 5), CPU)
    search = whole_search(model, "avg", keep=2, start=1)
    told: list[int] = []
    left: list[int] = []
    searcher.run(
        SearchScores(search),
        advanced=told.append,
        record=lambda found: left.append(searcher.layer_passes(search, len(found.losses))),
    )
    # 3 + 2 batches, 4 heads, 2 layers above layer 1 and 1 above layer 2.
    assert sum(told) == searcher.layer_passes(search) == 5 * 4 * (2 + 1)
    assert left == [5 * 4, 0]


class TestPlantedHeads:
    """A circuit is found where it was put."""

    @pytest.mark.parametrize("name", ["timm plain", "open_clip image"])
    @pytest.mark.parametrize(("layer", "useful"), [(0, 2), (1, 0), (2, 3)])
    def test_the_only_head_of_a_layer_that_reaches_the_residual_stream(
        self, name: str, layer: int, useful: int
    ) -> None:
        model = CASES[name]().model
        attention = model.layers[layer].attention
        with torch.no_grad():
            columns = attention.output.weight[0].view(attention.width, attention.slots, attention.head_width)
            for head in range(attention.slots):
                columns[:, head] *= 3 if head == useful else 1e-4
            data = samples(model, 24)
            answers = model(preprocessor(model)([data[index].value for index in range(24)])).argmax(-1).tolist()
        data = samples(model, 24, labels=answers)
        found = complete(whole_search(model, "task", keep=1, start=layer), model, data, None)
        assert found.circuit[0] == (useful,)

    def test_each_objective_finds_the_head_that_carries_its_signal(self) -> None:
        model = signal_model()
        data, foreign = signal_images(8, foreign=False), signal_images(6, foreign=True)
        circuits = {
            objective: complete(whole_search(model, objective, keep=1), model, data, foreign).circuit[0]
            for objective in ("task", "ood")
        }
        assert circuits == {"task": (TASK_HEAD,), "ood": (OOD_HEAD,)}
        both = complete(whole_search(model, "avg", keep=2), model, data, foreign)
        assert set(both.circuit[0]) == {TASK_HEAD, OOD_HEAD}
        assert both.losses[0].ood.tolist() == [0.0, 0.5, 0.0, 0.0], "without the marker all confidences are tied"

    def test_taylor_finds_the_task_head(self) -> None:
        model, data = signal_model(), signal_images(8, foreign=False)
        scores = HeadScores(taylor_samples(model, data, CPU), "taylor", "model").mean()
        assert int(scores[0].argmax()) == TASK_HEAD
