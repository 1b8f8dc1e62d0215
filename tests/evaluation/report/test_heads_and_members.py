"""The map of kept heads, and the diversity of members."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from compress.evaluation.evaluation import Evaluation
from compress.evaluation.report.diversity import measure_diversity
from compress.evaluation.report.heads import draw_heads, measure_heads
from compress.evaluation.report.look import Look, drawing
from compress.evaluation.unavailable import UnavailableMetricError
from compress.pruning.scores import HeadScores, save_scores

IMPORTANCE = (torch.tensor([[1.0, 0, 0, 0], [3.0, 0, 0, 0]]), torch.ones(2, 4), torch.tensor([[0, 4.0, 0, 3]] * 2))


@pytest.fixture
def scored(fused_evaluation: Evaluation, tmp_path: Path) -> Evaluation:
    save_scores(HeadScores(IMPORTANCE, "taylor", "model"), tmp_path / "scores.safetensors")
    return dataclasses.replace(fused_evaluation, folders={"fused": tmp_path})


def test_only_models_that_lost_heads_have_a_map_and_shared_layers_are_repeated(fused_evaluation: Evaluation) -> None:
    (found,) = measure_heads(fused_evaluation)
    assert found.models == ("fused",)
    assert found.kept[0] == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert found.kept[1] == ((0, 1), (1, 2))
    assert found.branch_layer == 1
    assert found.importance is None


def test_importance_is_the_mean_over_samples_normalised_in_each_layer(scored: Evaluation) -> None:
    (found,) = measure_heads(scored)
    # Layer norms: 2, 2 and 5; the largest quotient is 1.
    assert found.importance == ((1.0, 0, 0, 0), (0.5,) * 4, (0, pytest.approx(0.8), 0, pytest.approx(0.6)))
    assert found.method == "taylor"


def test_models_that_keep_the_same_heads_share_a_map_and_its_importance(scored: Evaluation) -> None:
    models = {"first": scored.predictions["fused"], **scored.predictions}
    both = dataclasses.replace(scored, predictions=models, original_heads=dict.fromkeys(models, (4, 4, 4)))
    (found,) = measure_heads(both)
    assert found.models == ("first", "fused")
    assert found.importance is not None


@pytest.mark.parametrize(
    "scores",
    [HeadScores(IMPORTANCE, "random", "model"), HeadScores((torch.ones(1, 3),) * 3, "taylor", "model")],
    ids=["random", "another number of heads"],
)
def test_scores_that_say_nothing_are_not_shown(fused_evaluation, tmp_path, scores) -> None:
    save_scores(scores, tmp_path / "scores.safetensors")
    (found,) = measure_heads(dataclasses.replace(fused_evaluation, folders={"fused": tmp_path}))
    assert found.importance is None


def test_every_head_of_every_member_has_a_tip(scored: Evaluation) -> None:
    (found,) = measure_heads(scored)
    with drawing():
        picture = draw_heads(found, Look(["single", "fused"]), 0)
    assert len(picture.tips) == 2 * 3 * 4
    assert picture.tips["head-1-2-3"] == "layer 2, head 3: kept, importance 0.60"
    assert picture.tips["head-1-2-1"] == "layer 2, head 1: removed, importance 0.80"
    assert picture.description == "Heads kept by fused: 8 and 8 of 12 in 2 members, the same ones below layer 1."


@pytest.mark.parametrize(("layers", "heads", "members"), [(24, 16, 7), (1, 1, 1), (2, 64, 3), (48, 4, 2)])
def test_maps_of_any_shape_stay_inside_the_picture(scored: Evaluation, layers: int, heads: int, members: int) -> None:
    (found,) = measure_heads(scored)
    kept = tuple(tuple((0,) for _ in range(members)) for _ in range(layers))
    shaped = found.model_copy(
        update={"original_heads": (heads,) * layers, "kept": kept, "importance": None, "branch_layer": layers}
    )
    with drawing():
        figure = draw_heads(shaped, Look(["single", "fused"]), 0).figure
    (axes,) = figure.axes
    right, bottom = axes.get_xlim()[1], axes.get_ylim()[0]
    for patch in axes.patches:
        box = patch.get_path().get_extents(patch.get_patch_transform())
        assert 0 <= box.x0 <= box.x1 <= right
        assert 0 <= box.y0 <= box.y1 <= bottom


def test_diversity_by_hand(fused_evaluation: Evaluation) -> None:
    predictions = fused_evaluation.predictions["fused"]
    data = measure_diversity("fused", predictions)
    first, second = predictions.test.member_predicted
    share = float((first != second).double().mean())
    assert data.disagreement == ((0.0, share), (share, 0.0))
    # Layers 1 and 2: {10, 11, 20, 23} and {11, 12, 22, 23} share two of six.
    assert data.overlap == ((1.0, pytest.approx(1 / 3)), (pytest.approx(1 / 3), 1.0))


def test_a_single_member_has_no_diversity(fused_evaluation: Evaluation) -> None:
    with pytest.raises(UnavailableMetricError, match="two members"):
        measure_diversity("single", fused_evaluation.predictions["single"])
