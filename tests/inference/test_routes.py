"""Which tokens of an input pass, told in patches and words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny.all_cases import CASES

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.cli.main import main
from compress.cli.routes_text import routes_text
from compress.data.sequence import SequenceDataset
from compress.errors import ModelError
from compress.evaluation.report.look import Look, drawing
from compress.evaluation.report.routes import RouteMap, draw_routes
from compress.evaluation.report.svg import inline_svg, png
from compress.inference.routes import BlockPass, InputRoutes, input_routes, patch_grid
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.routing import routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig

CPU = Runtime(device="cpu")


@pytest.fixture
def routed() -> Transformer:
    model = with_routers(CASES["timm plain"]().model, RoutingConfig(blocks=(0, 1), capacity=(0.25,))).eval()
    for _, layer in routed_layers(model):
        torch.nn.init.normal_(layer.router.weight, generator=torch.Generator().manual_seed(0))
    return model


@pytest.fixture
def picture() -> Image.Image:
    pixels = torch.randint(256, (16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Image.fromarray(pixels.numpy())


def test_patches_that_pass_are_those_of_the_model(routed: Transformer, picture: Image.Image) -> None:
    (found,) = input_routes(routed, SequenceDataset([picture], "image"), [0], CPU)
    assert found.grid == (4, 4)
    assert [own.block for own in found.blocks] == [0, 1]
    for own, (_, layer) in zip(found.blocks, routed_layers(routed), strict=True):
        assert layer.selection is not None
        assert list(own.passed) == layer.selection.passed[0, 1:].float().tolist(), "the class token is not shown"
        assert sum(own.passed) == 4


def test_a_model_without_routers_is_refused(picture: Image.Image) -> None:
    with pytest.raises(ModelError, match="no routers; give it some"):
        input_routes(CASES["timm plain"]().model, SequenceDataset([picture], "image"), [0], CPU)


@pytest.mark.parametrize(
    ("size", "patches", "grid"), [((224, 224), 196, (14, 14)), ((8, 24), 12, (2, 6)), ((16, 16), 15, None)]
)
def test_the_grid_of_patches(size: tuple[int, int], patches: int, grid: tuple[int, int] | None) -> None:
    assert patch_grid(size, patches) == grid


def test_text_for_the_terminal() -> None:
    blocks = (BlockPass(block=3, passed=(1.0, 0.0, 0.5, 0.0)),)
    words = InputRoutes(id="a film", words=("[CLS]", "a", "film", "[SEP]"), blocks=blocks)
    patches = InputRoutes(id="b.png", grid=(2, 2), blocks=blocks)
    assert routes_text([words]).splitlines() == [
        "a word in [ ] passes the block, another skips it",
        "",
        "a film",
        "block 3: 2 of 4 pass",
        "  [[CLS]] a [film] [SEP]",
    ]
    assert routes_text([patches]).splitlines() == [
        "■ passes the block, · skips it",
        "",
        "b.png",
        "block 3: 2 of 4 pass",
        "  ■ ·",
        "  ■ ·",
    ]


@pytest.mark.parametrize("kind", ["image", "text"])
def test_pictures_show_images_and_words(kind: str) -> None:
    blocks = (BlockPass(block=0, passed=(1.0, 0.0, 0.5, 0.0)), BlockPass(block=2, passed=(0.0, 1.0, 1.0, 0.0)))
    shown = {"grid": (2, 2)} if kind == "image" else {"words": ("a", "<b>", "", "d")}
    with drawing():
        drawn = draw_routes(RouteMap(model="m", routes=InputRoutes(id="x", blocks=blocks, **shown)), Look(["m"]), 0)
        svg, bitmap = inline_svg(drawn), png(drawn)
    assert "block 0: 2 of 4, block 2: 2 of 4" in drawn.description
    assert bitmap.startswith(b"\x89PNG")
    assert ('href="data:image/png;base64' in svg) == (kind == "image")


def test_the_command_shows_routes_and_the_report_has_pictures(
    routed: Transformer, picture: Image.Image, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(routed, tmp_path / "routed", Provenance(stage="route"))
    for label in routed.labels:
        (tmp_path / "data" / label).mkdir(parents=True)
        picture.save(tmp_path / "data" / label / "0.png")
    assert main(["inspect", str(tmp_path / "routed"), "--routes", str(tmp_path / "data" / "class 0" / "0.png")]) == 0
    assert "block 1: 4 of 16 pass" in capsys.readouterr().out
    command = ["eval", str(tmp_path / "routed"), "--data", str(tmp_path / "data"), "--no-latency"]
    assert main([*command, "--report", str(tmp_path / "report")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {tmp_path / 'report' / 'index.html'}"
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [entry["routes"]["grid"] for entry in report["routes"]] == [[4, 4]] * 4
    assert "Which tokens pass" in (tmp_path / "report" / "index.html").read_text()
