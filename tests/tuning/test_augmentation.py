"""Random changes of training images."""

from __future__ import annotations

import pytest
import torch

from compress.data.preprocessing import ImagePreprocessing
from compress.tuning.augmentation import ImageAugmentation, image_augmentation
from compress.tuning.batches import Share
from compress.tuning.options import Tune

SPEC = ImagePreprocessing(size=(6, 8), channels=1, mean=(0.5,), std=(0.25,), resize="squash")


def augmentation(**changes: float | bool) -> ImageAugmentation:
    found = image_augmentation(Tune(**changes), SPEC)  # type: ignore[arg-type]
    assert found is not None
    return found


def images(count: int = 64) -> torch.Tensor:
    return torch.rand(count, 1, 6, 8, generator=torch.Generator().manual_seed(0)) * 4 - 2


def test_nothing_asked_for_is_nothing() -> None:
    assert image_augmentation(Tune(), SPEC) is None


def test_flips_mirror_about_half_and_change_nothing_else() -> None:
    before = images()
    after = augmentation(flip=True)(before, Share(0, 64, 0, 64))
    mirrored = [torch.equal(new, old.flip(-1)) for new, old in zip(after, before, strict=True)]
    same = [torch.equal(new, old) for new, old in zip(after, before, strict=True)]
    assert all(one or other for one, other in zip(mirrored, same, strict=True))
    assert 16 < sum(mirrored) < 48


def test_shifts_move_whole_pixels_and_pad_with_black() -> None:
    before = images()
    after = augmentation(shift=2)(before, Share(0, 64, 0, 64))
    black = (0 - 0.5) / 0.25
    seen = set()
    for new, old in zip(after[:, 0], before[:, 0], strict=True):
        fitting = []
        for down in range(-2, 3):
            for right in range(-2, 3):
                moved = torch.full_like(old, black)
                rows, columns = slice(max(0, down), 6 + min(0, down)), slice(max(0, right), 8 + min(0, right))
                origin = slice(max(0, -down), 6 - max(0, down)), slice(max(0, -right), 8 - max(0, right))
                moved[rows, columns] = old[origin]
                if torch.allclose(moved, new, atol=1e-6):
                    fitting.append((down, right))
        assert len(fitting) == 1
        seen.update(fitting)
    assert len(seen) > 15, "all of the 25 moves occur"


def test_a_quarter_turn_is_a_quarter_turn() -> None:
    square = ImagePreprocessing(size=(8, 8), channels=1, mean=(0.0,), std=(1.0,), resize="squash")
    chosen = image_augmentation(Tune(rotate=90), square)
    assert chosen is not None
    from compress.tuning import augmentation as module

    image = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    turned = module._turned(image, torch.tensor([torch.pi / 2]), torch.ones(1))
    assert torch.allclose(turned, image.rot90(1, (-2, -1)), atol=1e-5) or torch.allclose(
        turned, image.rot90(-1, (-2, -1)), atol=1e-5
    )


def test_zoom_keeps_a_constant_centre() -> None:
    bright = torch.ones(4, 1, 6, 8)
    after = augmentation(zoom=0.3)(bright, Share(0, 4, 0, 4))
    assert torch.allclose(after[:, :, 2:4, 3:5], torch.ones(4, 1, 2, 2), atol=1e-5)


@pytest.mark.parametrize("rows", [(0, 3), (3, 8)])
def test_a_share_gets_the_draws_of_its_rows(rows: tuple[int, int]) -> None:
    before, chosen = images(8), augmentation(shift=2, flip=True, rotate=30, zoom=0.2)
    whole = chosen(before, Share(5, 8, 0, 8))
    assert torch.equal(chosen(before[slice(*rows)], Share(5, 8, *rows)), whole[slice(*rows)])
    assert not torch.equal(chosen(before, Share(6, 8, 0, 8)), whole)
