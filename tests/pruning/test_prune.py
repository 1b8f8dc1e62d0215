"""The prune stage end to end: what is written, what is reused, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES, ONE_PER_FAMILY
from tiny.scratch_vit import tiny_source

from compress.artifact.folder import verify_folder
from compress.artifact.provenance import Provenance
from compress.artifact.store import load_model, read_provenance, save_model
from compress.backbones.registry import preprocessor
from compress.data.sequence import SequenceDataset
from compress.errors import ArtifactError, DataError, ModelError, SelfCheckError, UsageError
from compress.fusion.fuse import fuse
from compress.opening import open_model
from compress.pruning import self_check
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.runtime import Runtime
from compress.transformer.cost import count_parameters
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads


def texts(labels: tuple[str, ...], count: int = 6) -> SequenceDataset:
    values = ["a cat", "the dog sat", "fish", "an old newt", "barn owls at night", "no"][:count]
    return SequenceDataset(values, "text", class_names=labels, labels=[index % len(labels) for index in range(count)])


def images(model: Transformer, count: int = 6) -> SequenceDataset:
    from PIL import Image

    spec = model.config.preprocessing
    mode = "L" if spec.channels == 1 else "RGB"
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (count, *spec.size, 3), generator=generator, dtype=torch.uint8).numpy()
    values = [Image.fromarray(own).convert(mode) for own in pixels]
    return SequenceDataset(
        values, "image", class_names=model.labels, labels=[i % len(model.labels) for i in range(count)]
    )


@pytest.mark.parametrize("name", ["timm plain", "open_clip image", "open_clip text"])
def test_taylor_members_of_every_kind_of_input(name: str, tmp_path: Path) -> None:
    model = CASES[name]().model
    data = images(model) if model.config.preprocessing.kind == "image" else texts(model.labels)
    result = prune(model, tmp_path / "pruned", data=data, options=Prune(keep=2, branch_layer=1, max_overlap=0.6))
    manifest = verify_folder(tmp_path / "pruned", expect_kind="members")
    assert manifest.members == ("member-0", "member-1", "member-2")
    for number, member in enumerate(manifest.members):
        loaded = load_model(tmp_path / "pruned" / member)
        assert tuple(heads for (heads,) in loaded.structure.kept_heads) == result.kept_heads[number]
        assert count_parameters(loaded) == result.parameters[number] < result.original_parameters
    assert result.kept_heads[0][0] == result.kept_heads[1][0] == result.kept_heads[2][0]
    assert result.overlap[0][1] <= 0.6


def test_files_shrink_by_the_reported_number_of_parameters(tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    result = prune(model, tmp_path / "pruned", options=Prune(method="magnitude", members=1, keep=1))
    whole = prune(model, tmp_path / "whole", options=Prune(method="magnitude", members=1, keep=1.0))
    sizes = [(tmp_path / name / "member-0" / "model.safetensors").stat().st_size for name in ("whole", "pruned")]
    assert whole.parameters[0] == result.original_parameters
    expected = 4 * (result.original_parameters - result.parameters[0])
    assert abs((sizes[0] - sizes[1]) - expected) < 200  # the header's numbers have other lengths


def test_ratio_1_is_the_original_bit_for_bit(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    prune(case.model, tmp_path / "pruned", options=Prune(method="magnitude", members=1, keep=1.0))
    with torch.inference_mode():
        assert torch.equal(load_model(tmp_path / "pruned" / "member-0")(case.inputs), case.model(case.inputs))


def test_saved_scores_select_again_without_data(tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    first = prune(model, tmp_path / "first", data=images(model), options=Prune(keep=2))
    again = prune(model, tmp_path / "again", scores=tmp_path / "first", options=Prune(keep=2))
    assert again.kept_heads == first.kept_heads
    wider = prune(
        model, tmp_path / "wider", scores=tmp_path / "first" / "scores.safetensors", options=Prune(keep=3, members=2)
    )
    assert all(set(narrow) <= set(wide) for narrow, wide in zip(first.kept_heads[0], wider.kept_heads[0], strict=True))
    assert [len(heads) for heads in wider.kept_heads[0]] == [3, 3, 3]
    assert read_provenance(tmp_path / "again").data_fingerprint == read_provenance(tmp_path / "first").data_fingerprint


def test_random_scores_serve_the_members_that_they_were_drawn_for_and_bring_their_seed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = CASES["timm plain"]().model
    options = Prune(method="random", members=2, keep=2, seed=7)
    first = prune(model, tmp_path / "first", options=options)
    with pytest.raises(UsageError, match=r"--members: the random scores were drawn for 2 members, not 4; leave --sc"):
        more = options.model_copy(update={"members": 4})
        prune(model, tmp_path / "more", scores=tmp_path / "first", options=more)
    assert not (tmp_path / "more").exists()
    other = options.model_copy(update={"seed": 99})
    again = prune(model, tmp_path / "again", scores=tmp_path / "first", options=other)
    assert again.kept_heads == first.kept_heads
    assert "drawn with seed 7, which takes the place of seed 99" in caplog.text
    for folder in ("again", "again/member-0", "first"):
        assert read_provenance(tmp_path / folder).options["seed"] == 7
    third = prune(model, tmp_path / "third", scores=tmp_path / "again", options=other)
    assert third.kept_heads == first.kept_heads
    assert read_provenance(tmp_path / "third").options["seed"] == 7


def test_scores_of_another_model_or_method_are_refused(tmp_path: Path) -> None:
    model, other = CASES["timm plain"]().model, CASES["timm layer scale"]().model
    prune(model, tmp_path / "first", data=images(model), options=Prune(keep=2))
    with pytest.raises(ArtifactError, match="scores are of another model"):
        prune(other, tmp_path / "other", scores=tmp_path / "first", options=Prune(keep=2))
    with pytest.raises(ArtifactError, match="scores are of another method"):
        prune(model, tmp_path / "other", scores=tmp_path / "first", options=Prune(keep=2, method="magnitude"))
    with pytest.raises(ArtifactError, match="no such scores"):
        prune(model, tmp_path / "other", scores=tmp_path / "nowhere", options=Prune(keep=2))
    assert not (tmp_path / "other").exists()


def test_equal_runs_give_equal_artifacts(tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    digests = []
    for name in ("one", "two"):
        prune(model, tmp_path / name, data=images(model), options=Prune(keep=2), runtime=Runtime(device="cpu"))
        fuse(tmp_path / name, tmp_path / f"{name}-fused")
        digests.append((verify_folder(tmp_path / name).digest, verify_folder(tmp_path / f"{name}-fused").digest))
    assert digests[0] == digests[1]
    text = (tmp_path / "one" / "provenance.json").read_text()
    assert str(tmp_path) not in text


def test_the_overlap_matrix_is_in_the_artifact(tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    result = prune(model, tmp_path / "pruned", data=images(model), options=Prune(keep=2, max_overlap=0.5))
    stored = json.loads((tmp_path / "pruned" / "provenance.json").read_text())["notes"]["overlap"]
    torch.testing.assert_close(torch.tensor(stored), torch.tensor(result.overlap), atol=1e-5, rtol=0)


def test_members_that_hardly_differ_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prune(CASES["timm plain"]().model, tmp_path / "pruned", options=Prune(method="magnitude", keep=2))
    assert "overlap by up to 1.00" in caplog.text


@pytest.mark.parametrize(("method", "noise"), [("taylor", True), ("magnitude", False)])
def test_an_untrained_classifier_is_warned_about(
    method: str, noise: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fresh = open_model(tiny_source())
    prune(fresh, tmp_path / "fresh", data=images(fresh), options=Prune(method=method, keep=2))
    assert ("the classifier is untrained, so importance measures noise; tune it first" in caplog.text) == noise
    caplog.clear()
    save_model(fresh, tmp_path / "tuned", Provenance(stage="tune"))
    prune(tmp_path / "tuned", tmp_path / "out", data=images(fresh), options=Prune(method=method, keep=2))
    assert "untrained" not in caplog.text


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_pruning_a_pruned_copy_names_heads_by_their_original_number(name: str, tmp_path: Path) -> None:
    model = CASES[name]().model
    once = prune_heads(model, [(1, 2, 3)] * 3)
    result = prune(once, tmp_path / "twice", options=Prune(method="random", members=1, keep=2))
    assert all(set(heads) < {1, 2, 3} for heads in result.kept_heads[0])


def test_what_cannot_work_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    out = tmp_path / "pruned"
    with pytest.raises(UsageError, match=r"--data.*pass --data"):
        prune(model, out)
    with pytest.raises(DataError, match="text samples"):
        prune(model, out, data=texts(model.labels))
    with pytest.raises(UsageError, match="cannot keep 5 of 4"):
        prune(model, out, data=images(model), options=Prune(keep=5))
    wrong = SequenceDataset(images(model)._values, "image", class_names=("cat",), labels=[0] * 6)
    with pytest.raises(DataError, match=r"row 0: label 'cat' is none of"):
        prune(model, out, data=wrong)
    options = Prune(method="random", keep=2)
    prune(model, out, options=options)
    fuse(out, tmp_path / "fused")
    with pytest.raises(ModelError, match="a fused model cannot be pruned"):
        prune(tmp_path / "fused", tmp_path / "again", options=options)
    with pytest.raises(ArtifactError, match=r"is not empty.*--overwrite"):
        prune(model, out, options=options)
    prune(model, out, options=options, overwrite=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 3, "max_overlap": 0.1, "branch_layer": 2}, r"at most 0\.1 cannot be .* possible is 0\.500; allow"),
        ({"keep": 3, "max_overlap": 0.1, "method": "circuit"}, r"the smallest overlap possible is 0\.500"),
        ({"keep": 2, "trunk_keep": 5, "branch_layer": 1}, "cannot keep 5 of 4 heads"),
        ({"keep": 5, "trunk_keep": 2, "branch_layer": 1}, "cannot keep 5 of 4 heads"),
        ({"keep": 2, "branch_layer": 3}, "branch layer 3 leaves no layer"),
    ],
)
def test_what_counting_rules_out_is_refused_before_scoring(
    options: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_scoring(*_: object, **__: object) -> None:
        raise AssertionError("scored")

    monkeypatch.setattr("compress.pruning.prune.open_chooser", no_scoring)
    model = CASES["timm plain"]().model
    with pytest.raises(UsageError, match=message):
        prune(model, tmp_path / "pruned", data=images(model), options=Prune.model_validate(options))


def test_the_self_check_sees_a_wrong_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compress.pruning import members as stage

    def wrong(model: Transformer, kept: object) -> Transformer:
        pruned = prune_heads(model, kept)
        pruned.layers[0].attention.qkv.weight = torch.nn.Parameter(pruned.layers[0].attention.qkv.weight.flip(1))
        return pruned

    monkeypatch.setattr(stage, "prune_heads", wrong)
    with pytest.raises(SelfCheckError, match="member-0: logits differ from the masked original"):
        prune(CASES["timm plain"]().model, tmp_path / "pruned", options=Prune(method="random", keep=2))
    assert not (tmp_path / "pruned").exists()
    assert self_check.TOLERANCE == 1e-5


def test_pruning_then_training_a_step_works(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    prune(case.model, tmp_path / "pruned", data=images(case.model), options=Prune(keep=2))
    member = load_model(tmp_path / "pruned" / "member-0").train()
    assert all(
        parameter.is_leaf and parameter.requires_grad and parameter.grad is None for parameter in member.parameters()
    )
    optimizer = torch.optim.SGD(member.parameters(), lr=0.1)
    before = member.layers[0].attention.qkv.weight.detach().clone()
    torch.nn.functional.cross_entropy(member(case.inputs), torch.tensor([0, 1, 2])).backward()
    optimizer.step()
    assert not torch.equal(before, member.layers[0].attention.qkv.weight)
    verify_folder(tmp_path / "pruned" / "member-0")  # training in memory never writes through to the file


@pytest.mark.parametrize("method", ["taylor", "circuit", "magnitude"])
def test_the_one_useful_head_is_kept_by_every_method(method: str, tmp_path: Path) -> None:
    model, planted = CASES["timm plain"]().model, (1, 2)
    with torch.no_grad():
        for number, layer in enumerate(model.layers):
            output = layer.attention.output.weight[0].view(layer.attention.width, layer.attention.slots, -1)
            for head in range(4):
                output[:, head] *= 20 if (number, head) == planted else 1e-4
    pictures = images(model, 60)
    samples = [pictures[index].value for index in range(60)]
    gates = [torch.tensor([[float((number, head) != planted) for head in range(4)]]) for number in range(3)]
    with torch.inference_mode():
        inputs = preprocessor(model)(samples)
        right, wrong = model(inputs).argmax(1), model.members(inputs, gates=gates)[0].argmax(1)
    decided = torch.nonzero(right != wrong).flatten().tolist()  # by that head alone
    assert decided
    data = SequenceDataset(
        [samples[row] for row in decided], "image", class_names=model.labels, labels=right[decided].tolist()
    )
    result = prune(model, tmp_path / "out", data=data, options=Prune(method=method, members=1, keep=1))
    assert result.kept_heads[0][planted[0]] == (planted[1],)
