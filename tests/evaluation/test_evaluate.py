"""The eval stage on tiny models: figures against the same computed by hand, and what it refuses."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny.all_cases import CASES
from tiny.pictures import save_pictures
from torch import Tensor

from compress.artifact.folder import new_folder
from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.backbones.registry import preprocessor
from compress.cli.main import main
from compress.data.sequence import SequenceDataset
from compress.errors import DataError, ModelError, UsageError
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.evaluation.subject import open_subject
from compress.fusion.fuse import fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.runtime import Runtime
from compress.transformer.cost import count_cost
from compress.transformer.model import Transformer
from compress.transformer.parts import Hidden
from compress.transformer.surgery import prune_heads

QUICK = Evaluate(latency=False, intervals=False)
CPU = Runtime(device="cpu", batch_size=4)


def pictures(count: int, labels: tuple[str, ...] | None, seed: int = 0) -> SequenceDataset:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
    classes = None if labels is None else [index % len(labels) for index in range(count)]
    return SequenceDataset([Image.fromarray(own) for own in pixels], "image", class_names=labels, labels=classes)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Path, Path]:
    """A single model, its pruned copies, and those fused."""
    root = tmp_path_factory.mktemp("chain")
    model = CASES["timm plain"]().model
    prune(model, root / "pruned", options=Prune(method="random", keep=2, branch_layer=1))
    fuse(root / "pruned", root / "fused")
    return model, root / "pruned", root / "fused"


def test_single_members_and_fused_side_by_side(chain: tuple[Transformer, Path, Path]) -> None:
    model, pruned, fused = chain
    data = pictures(10, model.labels)
    foreign = pictures(7, None, seed=1)
    result = evaluate(
        {"single": model, "members": pruned, "fused": fused},
        data=data,
        ood={"noise": foreign},
        options=QUICK,
        runtime=CPU,
    )
    with torch.no_grad():
        images = preprocessor(model)([data[index].value for index in range(10)])
        probabilities = torch.softmax(model(images).double(), -1)
    target = torch.tensor(data.labels)
    assert result.value("single", "cls/accuracy") == pytest.approx(
        float((probabilities.argmax(-1) == target).double().mean())
    )
    assert result.value("single", "cls/nll") == pytest.approx(
        float(-probabilities[range(10), target].log().mean()), abs=1e-5
    )
    for metric in ("cls/accuracy", "cls/nll", "cal/ece", "ood/noise/auroc", "div/disagreement"):
        assert result.value("fused", metric) == pytest.approx(result.value("members", metric), abs=1e-5)
    assert [(entry.kind, entry.members) for entry in result.models] == [("single", 1), ("members", 3), ("fused", 3)]
    assert result.value("single", "div/disagreement") is None
    assert result.models[0].reasons["div/disagreement"] == "needs at least two members"
    assert result.value("fused", "cost/params") < result.value("members", "cost/params")
    assert result.value("single", "cost/flops") == count_cost(model).flops
    assert result.value("members", "cost/bytes") > result.value("fused", "cost/bytes") > 0
    assert "fused" in result.table()
    assert "0.0" not in [result.models[0].metrics["div/disagreement"]]


def test_latency_and_intervals_are_measured(chain: tuple[Transformer, Path, Path]) -> None:
    model, _, fused = chain
    options = Evaluate(latency_batch=2)
    result = evaluate({"single": model, "fused": fused}, data=pictures(6, model.labels), options=options, runtime=CPU)
    latency = result.models[1].cost.latency
    assert latency is not None and 0 < latency.q25_ms <= latency.median_ms <= latency.q75_ms
    interval = result.models[0].intervals["cls/accuracy"]
    assert interval.low <= result.value("single", "cls/accuracy") <= interval.high
    assert "cls/accuracy" in result.models[1].differences
    assert result.latency_batch == 2


def test_results_do_not_depend_on_the_batch_size(chain: tuple[Transformer, Path, Path]) -> None:
    model, _, fused = chain
    data = pictures(9, model.labels)
    values = [
        evaluate({"fused": fused}, data=data, options=QUICK, runtime=Runtime(device="cpu", batch_size=size))
        .models[0]
        .metrics
        for size in (1, 4, 9)
    ]
    for name, value in values[0].items():
        assert value is None or all(other[name] == pytest.approx(value, abs=1e-5) for other in values)


def test_a_caller_s_model_is_left_as_it_is(chain: tuple[Transformer, Path, Path]) -> None:
    model, _, _ = chain
    evaluate(
        {"single": model},
        data=pictures(4, model.labels),
        options=QUICK,
        runtime=Runtime(device="cpu", dtype="bfloat16"),
    )
    assert next(model.parameters()).dtype == torch.float32


def test_flops_of_texts_follow_their_real_lengths() -> None:
    model = CASES["bert"]().model
    short, long = (count_cost(model, length=length).layers[0].total for length in (4, 8))
    assert long > 2 * short


def test_an_empty_ood_set_is_null_with_a_reason(chain: tuple[Transformer, Path, Path]) -> None:
    model, _, _ = chain
    empty = SequenceDataset([], "image")
    result = evaluate(
        {"single": model}, data=pictures(4, model.labels), ood={"none": empty}, options=QUICK, runtime=CPU
    )
    assert result.value("single", "ood/none/auroc") is None
    assert result.models[0].reasons["ood/none/auroc"]


def test_gates_and_baselines(chain: tuple[Transformer, Path, Path]) -> None:
    model, _, fused = chain
    options = Evaluate(latency=False, intervals=False, fail_if=("cls/accuracy < 2", "cost/params > single * 9"))
    result = evaluate(
        {"single": model, "fused": fused},
        data=pictures(4, model.labels),
        options=options,
        runtime=CPU,
        baselines=("single",),
    )
    assert [(gate.model, gate.gate) for gate in result.failed_gates] == [("fused", "cls/accuracy < 2")]


def test_what_cannot_be_evaluated_is_said_before_any_work(chain: tuple[Transformer, Path, Path]) -> None:
    model, _, _ = chain
    data = pictures(4, model.labels)
    with pytest.raises(UsageError, match="did you mean 'cal/ece'"):
        evaluate({"single": model}, data=data, options=Evaluate(fail_if=("cal/eec > 0.1",)), runtime=CPU)
    with pytest.raises(DataError, match="text samples"):
        evaluate({"single": model}, data=SequenceDataset(["a"], "text", class_names=("x",), labels=[0]), runtime=CPU)
    with pytest.raises(DataError, match="is none of the model's"):
        evaluate({"single": model}, data=pictures(4, ("cat", "dog")), options=QUICK, runtime=CPU)
    other = CASES["timm plain"]().model
    other.config = other.config.model_copy(update={"labels": ("v", "w", "x", "y", "z")})
    with pytest.raises(
        ModelError, match=r"other: its labels differ from those of single; .* or open it with --label for each"
    ):
        evaluate({"single": model, "other": other}, data=data, options=QUICK, runtime=CPU)
    with pytest.raises(ModelError, match="Linear is not a model of this library"):
        evaluate({"single": torch.nn.Linear(2, 2)}, data=data, options=QUICK, runtime=CPU)


def overflowing() -> Transformer:
    """Finite weights whose products are not."""
    model = CASES["timm plain"]().model
    with torch.no_grad():
        model.layers[-1].mlp.fc1.weight.fill_(1e30)
        model.layers[-1].mlp.fc2.weight.fill_(1e30)
    return model


def test_a_model_that_answers_nothing_is_an_error_that_names_it(
    chain: tuple[Transformer, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _, _ = chain
    data = pictures(6, model.labels)
    words = "the logits of all 6 inputs of the test set are not finite; check the model's weights, or use --dtype"
    with pytest.raises(ModelError, match=f"broken: {words} float32"):
        evaluate({"single": model, "broken": overflowing()}, data=data, options=QUICK, runtime=CPU)
    save_model(overflowing(), tmp_path / "broken", Provenance(stage="tune"))
    save_pictures(data, tmp_path / "data")
    assert main(["eval", str(tmp_path / "broken"), "--data", str(tmp_path / "data"), "--device", "cpu"]) == 2
    assert words in capsys.readouterr().err


def test_single_inputs_without_an_answer_are_a_footnote(
    chain: tuple[Transformer, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _, _ = chain
    classify = model.classify

    def first_is_lost(hidden: Hidden) -> Tensor:
        logits = classify(hidden).clone()
        logits[:, 0] = torch.nan
        return logits

    monkeypatch.setattr(model, "classify", first_is_lost)
    result = evaluate({"single": model}, data=pictures(6, model.labels), options=QUICK, runtime=CPU)
    assert "logits of 2 of 6 inputs are not finite" in result.models[0].reasons["cls/accuracy"]


def branch_layers(members: Path, fused: Path) -> tuple[int, int]:
    """Where a set of members and its fusion part."""
    return open_subject("members", members, CPU).branch_layer, open_subject("fused", fused, CPU).branch_layer


def test_overlap_counts_the_same_layers_for_separate_members_and_their_fusion(tmp_path: Path) -> None:
    # Layer 0 keeps the same heads in both members, and no weight of it differs.
    model = CASES["timm plain"]().model
    members = [prune_heads(model, [(0, 1), heads, (0, 3)]) for heads in ((0, 1), (2, 3))]
    fuse(save_set(members, tmp_path / "pruned"), tmp_path / "fused")
    assert branch_layers(tmp_path / "pruned", tmp_path / "fused") == (1, 1)
    # Now one does: the members part there.
    members[1] = copy.deepcopy(members[1])
    with torch.no_grad():
        members[1].layers[0].attention.qkv.weight += 1
    fuse(save_set(members, tmp_path / "tuned"), tmp_path / "fused-tuned")
    assert branch_layers(tmp_path / "tuned", tmp_path / "fused-tuned") == (0, 0)
    models = {"members": tmp_path / "tuned", "fused": tmp_path / "fused-tuned"}
    result = evaluate(models, data=pictures(4, model.labels), options=QUICK, runtime=CPU)
    # Of the heads in layers 0, 1 and 2 both keep (0, 1), nothing in common, and (0, 3).
    assert result.value("members", "div/jaccard") == result.value("fused", "div/jaccard") == pytest.approx(4 / 8)


def save_set(members: list[Transformer], folder: Path) -> Path:
    """Models as a set of members."""
    names = [f"member-{number}" for number in range(len(members))]
    with new_folder(folder, kind="members", stage="prune", members=names) as partial:
        for name, member in zip(names, members, strict=True):
            save_model(member, partial / name, Provenance(stage="prune", parents=("base",)))
    return folder
