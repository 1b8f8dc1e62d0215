from __future__ import annotations

from compress.evaluation.joined_heads import ModelHeads, first_difference, joined_heads

FUSED = ModelHeads((4, 4), (((0, 1),), ((0,), (1,))), 2)
SINGLE = ModelHeads((4, 4), (((0, 1, 2, 3),), ((2,),)), 1)


def test_shared_layers_are_listed_for_every_member() -> None:
    assert joined_heads([FUSED]) == FUSED.kept
    assert joined_heads([FUSED, SINGLE]) == (((0, 1), (0, 1), (0, 1, 2, 3)), ((0,), (1,), (2,)))
    assert joined_heads([FUSED, FUSED]) == (((0, 1),) * 4, ((0,), (1,), (0,), (1,)))


def test_other_architectures_have_no_common_heads() -> None:
    assert joined_heads([FUSED, ModelHeads((4,), (((0,),),), 1)]) is None


def test_the_first_difference() -> None:
    assert first_difference(joined_heads([FUSED, FUSED])) == 1
    assert first_difference(joined_heads([SINGLE, SINGLE])) == 2
    assert first_difference(None) == 0
