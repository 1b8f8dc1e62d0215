"""Fused members are the separate members: every family, ragged heads, with and without a trunk, with padding."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny.all_cases import CASES, ONE_PER_FAMILY
from tiny.case import Case
from tiny.hf_cases import encoder_case
from transformers.models.bert.modeling_bert import BertForSequenceClassification

from compress.artifact.folder import new_folder
from compress.artifact.provenance import Provenance
from compress.artifact.store import load_model, read_provenance, save_model
from compress.errors import ArtifactError, CompressError, ModelError, SelfCheckError
from compress.fusion.fuse import fuse
from compress.fusion.options import Fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.transformer.cost import count_cost, count_parameters
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads


def save_set(members: list[Transformer], folder: Path, parents: list[str] | None = None) -> Path:
    """Any models as a set of members."""
    names = [f"member-{number}" for number in range(len(members))]
    parents = parents or ["base"] * len(members)
    with new_folder(folder, kind="members", stage="prune", members=names) as partial:
        for name, member, parent in zip(names, members, parents, strict=True):
            save_model(member, partial / name, Provenance(stage="prune", parents=(parent,)))
    return folder


def assert_members_equal(fused: Transformer, separate: list[Transformer], case: Case) -> None:
    with torch.inference_mode():
        together = fused.members(case.inputs)
        apart = torch.cat([member.members(case.inputs) for member in separate])
        assert together.shape == apart.shape
        assert float((together - apart).abs().max()) <= 1e-5 * max(1.0, float(apart.abs().max()))
        mean = torch.softmax(apart, -1).mean(0)
        torch.testing.assert_close(torch.softmax(fused(case.inputs), -1), mean, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "mlp"), [*((name, "averaged") for name in CASES), *((name, "grouped") for name in ONE_PER_FAMILY)]
)
def test_fused_members_are_the_pruned_copies(name: str, mlp: str, tmp_path: Path) -> None:
    case = CASES[name]()
    branch = 1 if len(case.model.layers) > 1 else 0
    options = Prune(method="random", members=3, keep=0.4, scope="global", branch_layer=branch, trunk_keep=3, seed=5)
    result = prune(case.model, tmp_path / "pruned", options=options)
    assert result.kept_heads[0] != result.kept_heads[1]
    fused = fuse(tmp_path / "pruned", tmp_path / "fused", options=Fuse(mlp=mlp))
    assert fused.exact
    assert fused.branch_layer >= branch
    model = load_model(tmp_path / "fused")
    separate = [load_model(tmp_path / "pruned" / f"member-{number}") for number in range(3)]
    assert_members_equal(model, separate, case)
    for number, member in enumerate(separate):
        for layer in range(len(case.model.layers)):
            groups = model.structure.kept_heads[layer]
            assert groups[number if len(groups) > 1 else 0] == member.structure.kept_heads[layer][0]


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_any_heads_and_any_branch_fuse_exactly(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = CASES[name]()
    layers = len(case.model.layers)
    branch = data.draw(st.integers(0, layers), label="branch")
    count = data.draw(st.integers(1, 4), label="members")
    heads = st.sets(st.integers(0, 3), min_size=1).map(lambda chosen: tuple(sorted(chosen)))
    trunk = [data.draw(heads) for _ in range(branch)]
    separate = [
        prune_heads(case.model, trunk + [data.draw(heads) for _ in range(layers - branch)]) for _ in range(count)
    ]
    root = tmp_path_factory.mktemp("fuse")
    result = fuse(save_set(separate, root / "pruned"), root / "fused")
    assert result.branch_layer >= branch or count == 1
    assert_members_equal(load_model(root / "fused"), separate, case)


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_one_member_fused_is_that_member_bit_for_bit(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    member = prune_heads(case.model, [(0, 2), (1,), (0, 1, 3)])
    fuse(save_set([member], tmp_path / "pruned"), tmp_path / "fused")
    with torch.inference_mode():
        assert torch.equal(load_model(tmp_path / "fused")(case.inputs), member(case.inputs))


def test_one_member_that_keeps_all_heads_is_the_original_bit_for_bit(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    prune(case.model, tmp_path / "pruned", options=Prune(method="magnitude", members=1, keep=1.0))
    fuse(tmp_path / "pruned", tmp_path / "fused")
    with torch.inference_mode():
        assert torch.equal(load_model(tmp_path / "fused")(case.inputs), case.model(case.inputs))


def test_identical_members_share_everything_and_still_answer_for_each(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    member = prune_heads(case.model, [(0, 2), (1,), (0, 1, 3)])
    result = fuse(save_set([member, member], tmp_path / "pruned"), tmp_path / "fused")
    assert result.branch_layer == 3
    assert_members_equal(load_model(tmp_path / "fused"), [member, member], case)


def test_the_trunk_is_computed_once(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    flops, parameters = [], []
    for branch in (0, 1, 2):
        options = Prune(method="random", members=3, keep=2, branch_layer=branch)
        prune(case.model, tmp_path / f"pruned{branch}", options=options)
        fuse(tmp_path / f"pruned{branch}", tmp_path / f"fused{branch}")
        model = load_model(tmp_path / f"fused{branch}")
        streams = [layer.streams for layer in count_cost(model).layers]
        assert streams == [1] * branch + [3] * (3 - branch)
        flops.append(count_cost(model).flops)
        parameters.append(count_parameters(model))
    assert flops == sorted(flops, reverse=True)
    assert parameters == sorted(parameters, reverse=True)


def tuned(model: Transformer, seed: int) -> Transformer:
    """A copy in which every weight has moved."""
    copied = prune_heads(model, [layer.attention.kept_heads[0] for layer in model.layers])
    generator = torch.Generator().manual_seed(seed)
    state = {
        name: value + 0.05 * torch.randn(value.shape, generator=generator)
        for name, value in copied.state_dict().items()
    }
    copied.load_state_dict(state, assign=True)
    return copied


def test_members_tuned_apart_are_averaged_outside_attention_and_classifier(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    base = prune_heads(case.model, [(0, 1), (1, 2), (0, 3)])
    members = [tuned(copy.deepcopy(base), seed) for seed in range(3)]
    result = fuse(save_set(members, tmp_path / "pruned"), tmp_path / "fused")
    assert not result.exact
    assert result.branch_layer == 0
    state = load_model(tmp_path / "fused").state_dict()
    states = [member.state_dict() for member in members]
    for name in ("stem.vit.pos_embed", "layers.1.mlp.fc1.weight", "head.norm.bias"):
        mean = torch.stack([own[name].double() for own in states]).mean(0)
        torch.testing.assert_close(state[name].double(), mean, atol=1e-7, rtol=0)
    for number in range(3):
        assert torch.equal(state["head.classifier.weight"][number], states[number]["head.classifier.weight"])
        assert torch.equal(
            state["layers.2.attention.qkv.weight"][number], states[number]["layers.2.attention.qkv.weight"][0]
        )


def test_grouped_mlps_keep_members_that_were_tuned_apart_exact_there(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    base = prune_heads(case.model, [(0, 1), (1, 2), (0, 3)])
    other = prune_heads(base, [layer.attention.kept_heads[0] for layer in base.layers])
    state = dict(base.state_dict())
    for name in [name for name in state if ".mlp." in name]:
        state[name] = state[name] * 1.5
    other = copy.deepcopy(other)
    other.load_state_dict(state, assign=True)
    result = fuse(save_set([base, other], tmp_path / "pruned"), tmp_path / "fused", options=Fuse(mlp="grouped"))
    assert result.exact
    assert_members_equal(load_model(tmp_path / "fused"), [base, other], case)


def with_changed(model: Transformer, *words: str) -> Transformer:
    """A copy whose tensors with one of the words in their names are others."""
    copied = prune_heads(model, [layer.attention.kept_heads[0] for layer in model.layers])
    state = {
        name: value * 1.5 + 0.1 for name, value in model.state_dict().items() if any(word in name for word in words)
    }
    assert state
    copied = copy.deepcopy(copied)
    copied.load_state_dict(state, strict=False)
    return copied


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
@pytest.mark.parametrize("same_heads", [True, False])
def test_members_with_heads_of_their_own_fuse_exactly(
    name: str, same_heads: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = CASES[name]()
    first, other = two_members(case)
    second = with_changed(first if same_heads else other, *(f"head.{own}." for own in case.model.head.per_member))
    result = fuse(save_set([first, second], tmp_path / "pruned"), tmp_path / "fused")
    assert result.exact
    assert read_provenance(tmp_path / "fused").notes["exact"] is True
    assert "equal to the separate members" in result.table()
    assert "identical" not in caplog.text
    assert_members_equal(load_model(tmp_path / "fused"), [first, second], case)


@pytest.mark.parametrize("word", ["query_norm", "key_norm", "mlp.fc1", "norm1"])
def test_members_that_differ_in_what_is_averaged_are_not_called_exact(word: str, tmp_path: Path) -> None:
    case = CASES["timm q/k norm"]()
    first, other = two_members(case)
    result = fuse(save_set([first, with_changed(other, word)], tmp_path / "pruned"), tmp_path / "fused")
    assert not result.exact
    assert "averaged" in result.table()


def two_members(case: Case) -> list[Transformer]:
    return [prune_heads(case.model, [(0, 1), (1, 2), (0, 3)]), prune_heads(case.model, [(0, 2), (1, 3), (0, 1)])]


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_members_that_keep_four_two_and_one_heads_fuse_exactly(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    kept = [(0, 1, 2, 3), (1, 3), (2,)]
    separate = [prune_heads(case.model, [(0, 1, 2), own, own[::-1][:1]]) for own in kept]
    fuse(save_set(separate, tmp_path / "pruned"), tmp_path / "fused")
    model = load_model(tmp_path / "fused")
    assert model.structure.branch_layer == 1
    assert model.layers[1].attention.slots == 4, "the two others are padded"
    assert_members_equal(model, separate, case)
    saved = sum(count_parameters(layer.attention) for layer in model.layers[1:])
    assert saved == sum(count_parameters(layer.attention) for member in separate for layer in member.layers[1:])


def test_a_width_that_the_number_of_members_does_not_divide(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    assert case.model.layers[0].attention.width % 5
    separate = [prune_heads(case.model, [(0, 1, 2), (own % 4,), (0, 1 + own % 3)]) for own in range(5)]
    fuse(save_set(separate, tmp_path / "pruned"), tmp_path / "fused")
    model = load_model(tmp_path / "fused")
    assert model.members(case.inputs).shape[0] == 5
    assert_members_equal(model, separate, case)


def test_members_of_different_parents_are_refused_unless_meant(tmp_path: Path) -> None:
    folder = save_set(two_members(CASES["timm plain"]()), tmp_path / "pruned", ["one", "other"])
    with pytest.raises(ModelError, match=r"different models.*--allow-different-parents"):
        fuse(folder, tmp_path / "fused")
    assert not (tmp_path / "fused").exists()
    fuse(folder, tmp_path / "fused", options=Fuse(allow_different_parents=True))
    assert (tmp_path / "fused" / "MANIFEST.json").exists()


def test_members_with_other_labels_or_shapes_are_refused_by_name(tmp_path: Path) -> None:
    first, second = two_members(CASES["timm plain"]())
    second.config = second.config.model_copy(update={"labels": ("a", "b", "c", "d", "e")})
    with pytest.raises(ModelError, match=r"member-1.*labels differs from that of member-0"):
        fuse(save_set([first, second], tmp_path / "labels"), tmp_path / "fused")
    wider = CASES["timm plain"]().model
    narrow = two_members(CASES["timm one channel"]())[0]
    narrow.config = narrow.config.model_copy(
        update={"backbone": wider.config.backbone, "preprocessing": wider.config.preprocessing}
    )
    with pytest.raises(ModelError, match=r"patch_embed\.proj\.weight is \(24, 1, 4, 4\), in member-0 \(24, 3, 4, 4\)"):
        fuse(save_set([first, narrow], tmp_path / "shapes"), tmp_path / "fused")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 50}, r"member-1: tensor .*word_embeddings\.weight is \(50, 24\), in member-0 \(40, 24\)"),
        ({"intermediate_size": 56}, r"member-1: tensor layers\.0\.mlp\.input\.bias is \(56,\), in member-0 \(48,\)"),
        ({"num_hidden_layers": 2}, r"member-1: tensor layers\.2\..* is in one of member-0 and member-1 only"),
        ({"hidden_act": "relu"}, "member-1: backbone differs from that of member-0"),
    ],
)
def test_members_of_other_vocabularies_and_widths_are_refused_by_tensor(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    first, other = CASES["bert"]().model, encoder_case(BertForSequenceClassification, **change).model
    with pytest.raises(ModelError, match=message):
        fuse(save_set([first, other], tmp_path / "pruned"), tmp_path / "fused")
    assert not (tmp_path / "fused").exists()


def test_a_fused_model_is_no_member(tmp_path: Path) -> None:
    first, second = two_members(CASES["timm plain"]())
    fuse(save_set([first, second], tmp_path / "pruned"), tmp_path / "fused")
    with pytest.raises(ModelError, match="member-0: is fused already"):
        fuse(save_set([load_model(tmp_path / "fused"), first], tmp_path / "mixed"), tmp_path / "again")


def test_the_self_check_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compress.fusion import merge

    monkeypatch.setattr(merge, "select_heads", lambda tensor, *_: tensor.flip(1))
    with pytest.raises(SelfCheckError, match="the fused members differ from the separate ones"):
        fuse(save_set(two_members(CASES["timm plain"]()), tmp_path / "pruned"), tmp_path / "fused")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pruned"]


def test_fuse_refuses_anything_less_than_a_complete_set(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    pruned = save_set(two_members(case), tmp_path / "pruned")
    with pytest.raises(ArtifactError, match="holds one model, not a set"):
        fuse(pruned / "member-0", tmp_path / "fused")
    (pruned / "member-1" / "model.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"member-1.model\.safetensors.*is missing.*'prune'"):
        fuse(pruned, tmp_path / "fused")
    (pruned / "MANIFEST.json").unlink()
    with pytest.raises(CompressError, match="MANIFEST"):
        fuse(pruned, tmp_path / "fused")


def test_a_member_that_cannot_be_built_is_named(tmp_path: Path) -> None:
    first, second = two_members(CASES["timm plain"]())
    backbone = second.config.backbone.model_copy(update={"architecture": "vit_of_nobody"})
    second.config = second.config.model_copy(update={"backbone": backbone})
    with pytest.raises(ArtifactError, match=r"member-1.config\.json: .*run the stage 'prune' that wrote it again"):
        fuse(save_set([first, second], tmp_path / "pruned"), tmp_path / "fused")


def test_peak_memory_is_said_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        fuse(save_set(two_members(CASES["timm plain"]()), tmp_path / "pruned"), tmp_path / "fused")
    assert "MB of memory" in caplog.text


def test_a_fused_model_answers_the_same_bits_in_a_fresh_process(tmp_path: Path) -> None:
    case = CASES["bert"]()
    fuse(save_set(two_members(case), tmp_path / "pruned"), tmp_path / "fused")
    torch.save(dict(case.inputs), tmp_path / "inputs.pt")
    code = (
        "import sys, json, torch, compress; model = compress.load(sys.argv[1]);"
        "inputs = torch.load(sys.argv[2], weights_only=True);"
        "torch.set_grad_enabled(False); print(json.dumps(model.members(inputs).double().tolist()))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "fused"), str(tmp_path / "inputs.pt")]
    fresh = subprocess.run(command, capture_output=True, text=True, check=True)
    with torch.inference_mode():
        here = load_model(tmp_path / "fused").members(case.inputs).double()
    assert torch.equal(torch.tensor(json.loads(fresh.stdout), dtype=torch.float64), here)


def test_members_that_are_identical_are_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = CASES["timm plain"]().model
    layers = len(model.layers)
    same, other = prune_heads(model, [(0, 1)] * layers), prune_heads(model, [(0, 1)] * (layers - 1) + [(1, 2)])
    fuse(save_set([same, other], tmp_path / "different"), tmp_path / "a")
    assert "identical" not in caplog.text
    fuse(save_set([same, same, same], tmp_path / "same"), tmp_path / "b")
    assert "the fused model is one model 3 times; pass --max-overlap when pruning" in caplog.text
