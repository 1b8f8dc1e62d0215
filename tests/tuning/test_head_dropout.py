"""Head dropout as gates."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from compress.artifact.store import load_model
from compress.transformer.model import Transformer
from compress.tuning.batches import Share
from compress.tuning.head_dropout import HeadDropout, real_heads


def test_off_is_no_gate(model: Transformer) -> None:
    assert HeadDropout(0.0, 1, 0, seed=0).gates(model, Share(0, 4, 0, 4)) is None


def test_counts_lie_between_the_least_and_all_and_layers_below_keep_everything(model: Transformer) -> None:
    gates = HeadDropout(1.0, 2, 1, seed=0).gates(model, Share(0, 400, 0, 400))
    assert gates is not None
    assert gates[0] is None
    for gate in gates[1:]:
        assert gate is not None
        assert gate.shape == (400, 4)
        counts = gate.sum(1)
        assert set(counts.tolist()) == {2.0, 3.0, 4.0}
        assert (gate.mean(0) - 0.75).abs().max() < 0.1, "no head is preferred"


def test_the_probability_is_that_of_losing_any(model: Transformer) -> None:
    gates = HeadDropout(0.5, 1, 0, seed=0).gates(model, Share(0, 4000, 0, 4000))
    assert gates is not None
    assert gates[0] is not None
    whole = float((gates[0].sum(1) == 4).float().mean())
    assert whole == pytest.approx(0.5 + 0.5 / 4, abs=0.04)  # of the inputs that are drawn, a quarter keeps all four


def test_every_stream_draws_its_own_and_a_share_gets_its_rows(fused: Path) -> None:
    model = load_model(fused)
    dropout = HeadDropout(1.0, 1, 0, seed=0)
    whole = dropout.gates(model, Share(3, 10, 0, 10))
    share = dropout.gates(model, Share(3, 10, 4, 7))
    assert whole is not None
    assert share is not None
    trunk, streams = whole[0], whole[1]
    assert trunk is not None
    assert streams is not None
    assert trunk.shape == (10, 4)
    assert streams.shape == (30, 2)
    assert not torch.equal(streams[:10], streams[10:20])
    assert torch.equal(share[1], streams.view(3, 10, 2)[:, 4:7].flatten(0, 1))


def test_padding_of_smaller_groups_never_counts_as_a_head() -> None:
    assert real_heads([(0, 3), (1,), (0, 1, 2)], 3).tolist() == [
        [True, True, False],
        [True, False, False],
        [True, True, True],
    ]
