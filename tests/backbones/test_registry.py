"""What a file says wrongly is the file's error; what the project does wrongly is not."""

from __future__ import annotations

import pytest
from tiny.scratch_vit import tiny_source

from compress.backbones import registry
from compress.errors import ModelError
from compress.opening import open_model
from compress.transformer.config import ModelConfig, Structure


@pytest.fixture(scope="module")
def config() -> ModelConfig:
    return open_model(tiny_source()).config


def test_what_the_library_refuses_is_an_error_of_the_configuration(config: ModelConfig) -> None:
    arguments = {**config.backbone.arguments, "num_heads": 0}
    backbone = config.backbone.model_copy(update={"arguments": arguments})
    with pytest.raises(ModelError, match=r"timm cannot build .* from its configuration \(integer modulo by zero\)"):
        registry.build_skeleton(config.model_copy(update={"backbone": backbone}))


@pytest.mark.parametrize("heads", [(4, 4), (4, 4, 9)])
def test_a_structure_of_another_model_is_refused(config: ModelConfig, heads: tuple[int, ...]) -> None:
    other = config.model_copy(update={"structure": Structure.original(heads)})
    with pytest.raises(ModelError, match="the structure lists other layers or heads than 'vit_tiny_patch16_224' has"):
        registry.build_skeleton(other)


def test_a_mistake_of_the_project_is_no_error_of_the_configuration(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(registry, "restructured", mistaken)
    with pytest.raises(ValueError, match="a mistake"):
        registry.build_skeleton(config)
