"""The branch layer that is found: the latest that leaves members different enough."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES
from tiny.samples import samples, unlabelled

from compress.artifact.store import load_model
from compress.backbones.registry import preprocessor
from compress.errors import UsageError
from compress.fusion.fuse import fuse
from compress.pruning.branching import BranchCandidate, disagreement, fused_flops
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.pruning.result import PruneResult
from compress.runtime import Runtime
from compress.transformer.cost import count_cost
from compress.transformer.model import Transformer

CPU = Runtime(device="cpu", batch_size=8)
AUTO = Prune(keep=1, branch_layer="auto", members=3, min_disagreement=0.0, max_overlap=0.4)


@pytest.fixture
def model() -> Transformer:
    return CASES["timm plain"]().model


def cut(model: Transformer, out: Path, options: Prune) -> PruneResult:
    return prune(model, out, data=samples(model, 20), options=options, runtime=CPU)


def predicted_disagreement(model: Transformer, folder: Path, members: int) -> float:
    """By the members that were written."""
    data = samples(model, 20)
    inputs = preprocessor(model)([data[index].value for index in range(20)])
    with torch.inference_mode():
        answers = [load_model(folder / f"member-{number}")(inputs).argmax(-1) for number in range(members)]
    pairs = [(one, two) for one in range(members) for two in range(one)]
    return sum(float((answers[one] != answers[two]).float().mean()) for one, two in pairs) / len(pairs)


def test_scores_that_are_there_show_every_branch_layer(model: Transformer, tmp_path: Path) -> None:
    result = cut(model, tmp_path / "auto", AUTO)
    assert [candidate.branch_layer for candidate in result.branch_candidates] == [0, 1, 2]
    for candidate in result.branch_candidates:
        own = AUTO.model_copy(update={"branch_layer": candidate.branch_layer})
        folder = tmp_path / f"branch-{candidate.branch_layer}"
        cut(model, folder, own)
        assert candidate.disagreement == pytest.approx(predicted_disagreement(model, folder, 3))
        fuse(folder, folder / "fused")
        assert candidate.flops == count_cost(load_model(folder / "fused")).flops


def test_the_last_layer_that_suffices_is_taken(model: Transformer, tmp_path: Path) -> None:
    found = {
        candidate.branch_layer: candidate.disagreement
        for candidate in cut(model, tmp_path / "all", AUTO).branch_candidates
    }
    for number, wanted in enumerate(sorted({value for value in found.values() if value})):
        suffice = [branch for branch, value in found.items() if value is not None and value >= wanted]
        options = AUTO.model_copy(update={"min_disagreement": wanted})
        assert cut(model, tmp_path / str(number), options).branch_layer == max(suffice)


def test_the_artifact_holds_the_number_and_the_candidates(model: Transformer, tmp_path: Path) -> None:
    result = cut(model, tmp_path / "auto", AUTO)
    stored = json.loads((tmp_path / "auto" / "provenance.json").read_text())
    assert stored["options"]["branch_layer"] == result.branch_layer == 2
    assert [item["branch_layer"] for item in stored["notes"]["branch_candidates"]] == [0, 1, 2]
    assert "branch layer 2: members disagree on" in result.table()
    assert result.table().count("<- taken") == 1
    again = cut(model, tmp_path / "again", AUTO.model_copy(update={"branch_layer": result.branch_layer}))
    assert again.kept_heads == result.kept_heads


def test_circuits_are_searched_from_the_last_layer_down_until_one_suffices(model: Transformer, tmp_path: Path) -> None:
    options = Prune(method="circuit", keep=1, trunk_keep=4, members=2, branch_layer="auto", max_overlap=0.5)
    data = samples(model, 20)
    result = prune(
        model, tmp_path / "first", data=data, options=options.model_copy(update={"min_disagreement": 0.0}), runtime=CPU
    )
    assert [candidate.branch_layer for candidate in result.branch_candidates] == [2]
    disagreed = result.branch_candidates[0].disagreement
    assert disagreed is not None
    options = options.model_copy(update={"min_disagreement": disagreed + 0.01})
    later = prune(model, tmp_path / "second", data=data, options=options, runtime=CPU)
    assert later.branch_layer < 2
    assert [candidate.branch_layer for candidate in later.branch_candidates] == list(range(later.branch_layer, 3))


def test_a_layer_that_cannot_meet_the_overlap_is_passed_over(model: Transformer, tmp_path: Path) -> None:
    # Two heads of four: two members may share none, three cannot.
    options = AUTO.model_copy(update={"keep": 2, "members": 3, "max_overlap": 0.0})
    with pytest.raises(UsageError, match="at most 0 cannot be chosen"):
        cut(model, tmp_path / "three", options)
    result = cut(model, tmp_path / "two", options.model_copy(update={"members": 2}))
    assert result.branch_layer == 2


def test_too_much_is_refused_with_the_most_that_was_found(model: Transformer, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--min-disagreement: no branch layer.*the most found is 0\.\d+, branching at"
    ):
        cut(model, tmp_path / "auto", AUTO.model_copy(update={"min_disagreement": 1.0}))
    with pytest.raises(UsageError, match=r"--branch-layer: members are compared on a calibration set"):
        prune(model, tmp_path / "auto", options=AUTO.model_copy(update={"method": "magnitude"}))
    assert list(tmp_path.iterdir()) == []


def test_disagreement_needs_no_labels_and_is_nothing_for_equal_members(model: Transformer) -> None:
    data = unlabelled(samples(model, 8))
    same = [[[0, 1], [2], [1, 3]]] * 2
    assert disagreement(model, data, same, CPU) == 0
    assert disagreement(model, data, [*same, [[2, 3], [0], [0]]], CPU) > 0


def test_flops_of_equal_members_are_those_of_one(model: Transformer) -> None:
    every = [[0, 1, 2, 3]] * 3
    single = count_cost(model)
    assert fused_flops(model, [every, every]) == single.flops + single.head  # the classifier runs for each member


def test_what_could_not_be_chosen_is_said() -> None:
    result = PruneResult(
        Path("p"), ((((0,),)),) * 2, ((1.0, 1.0),) * 2, (1, 1), 2, 0.0, 0, (BranchCandidate(1, reason="x"),)
    )
    assert "branch layer 1: impossible, x" in result.table()
