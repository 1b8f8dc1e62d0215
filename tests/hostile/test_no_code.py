"""A configuration cannot make its family's library run, fetch or open anything."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile.foreign import ARGUMENTS, CONFIG, CONFIG_NAMES, open_folder, with_config
from hostile.opened import FOREIGN, MODEL, replaced

from compress.artifact.store import load_model
from compress.backbones.hf_encoder import ADAPTER as HF
from compress.errors import ArtifactError, CompressError, ModelError, RecipeError
from compress.opening import open_model
from compress.recipe.read import read_recipe
from compress.transformer.config import BackboneConfig


class _Marks:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "code ran"


@pytest.fixture
def pickled(tmp_path: Path, marker: Path) -> Path:
    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps({"state_dict": _Marks(marker)}))
    return path


def with_arguments(sound: Path, folder: Path, **changes: Any) -> Path:
    config = json.loads((sound / MODEL / "config.json").read_text())
    config["backbone"]["arguments"] |= changes
    return replaced(sound / MODEL, folder, "config.json", json.dumps(config).encode())


@pytest.mark.parametrize("name", ["checkpoint_path", "cache_dir", "pretrained_cfg", "pretrained_cfg_overlay"])
def test_an_artifact_names_no_files_of_weights(
    name: str, sound: Path, tmp_path: Path, pickled: Path, marker: Path
) -> None:
    artifact = with_arguments(sound, tmp_path, **{name: str(pickled)})
    with pytest.raises(
        ArtifactError, match=rf"config\.json: '{name}' is no argument of a model; run the stage 'prune'"
    ):
        load_model(artifact)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["checkpoint_path", "cache_dir", "pretrained_cfg", "pretrained_cfg_overlay"])
def test_nor_does_a_folder_of_timm(name: str, sound: Path, tmp_path: Path, pickled: Path, marker: Path) -> None:
    config = {**CONFIG, "model_args": {**ARGUMENTS, name: str(pickled)}}
    folder = with_config(sound / FOREIGN, "timm", json.dumps(config).encode(), tmp_path / "folder")
    with pytest.raises(ModelError, match=f"'{name}' is no argument of a model"):
        open_model(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    open_model(folder)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("family", "name"),
    [("timm", "pytorch_model.bin"), ("hf", "pytorch_model.bin"), ("open_clip", "open_clip_pytorch_model.bin")],
)
def test_weights_that_are_code_are_not_unpickled(
    family: str, name: str, sound: Path, tmp_path: Path, pickled: Path, marker: Path
) -> None:
    config = (sound / FOREIGN / family / CONFIG_NAMES[family]).read_bytes()
    folder = with_config(sound / FOREIGN, family, config, tmp_path / "folder")
    with pytest.raises(ModelError, match=r"weights\.pth: .*nothing was unpickled"):
        open_folder(folder, weights=str(pickled))
    next(folder.glob("*.safetensors")).unlink()
    (folder / name).write_bytes(pickled.read_bytes())
    with pytest.raises(ModelError, match=rf"{re.escape(name)}: .*nothing was unpickled"):
        open_folder(folder)
    assert not marker.exists()


def test_code_beside_an_encoder_is_not_imported(sound: Path, tmp_path: Path, marker: Path) -> None:
    code = {"AutoConfig": "evil.Evil", "AutoModelForSequenceClassification": "evil.Evil", "AutoTokenizer": "evil.Evil"}
    config = json.loads((sound / FOREIGN / "hf" / "config.json").read_text())
    content = json.dumps({**config, "auto_map": code}).encode()
    folder = with_config(sound / FOREIGN, "hf", content, tmp_path / "folder")
    tokenizer = folder / "tokenizer_config.json"
    settings = json.loads(tokenizer.read_text())
    tokenizer.unlink()
    tokenizer.write_text(json.dumps({**settings, "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}))
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(marker)!r})\nclass Evil: pass\n")
    assert open_model(folder).labels == tuple(config["id2label"].values())
    assert not marker.exists()


def test_tags_of_a_recipe_are_not_run(tmp_path: Path, marker: Path) -> None:
    for tag in ("apply:os.mkdir", "object/apply:os.mkdir", "object/new:os.mkdir"):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(f"model: m\nstages:\n  - !!python/{tag} [{str(marker)!r}]\n")
        with pytest.raises(RecipeError, match=r"recipe\.yaml:3"):
            read_recipe(recipe)
        assert not marker.exists()
    yaml.unsafe_load(recipe.read_text())  # the reader that runs tags is the one that leaves a trace
    assert marker.exists()


def test_further_files_of_an_artifact_are_not_run(sound: Path, tmp_path: Path, pickled: Path, marker: Path) -> None:
    for name in ("optimizer.bin", "data.pkl", "modeling_evil.py", "sitecustomize.py"):
        load_model(replaced(sound / MODEL, tmp_path, name, pickled.read_bytes()))
    assert not marker.exists()


def test_an_encoder_names_no_attention_kernels() -> None:
    arguments = {
        "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 9,
        "attn_implementation": "someone/kernel", "_attn_implementation": "someone/kernel",
        "_attn_implementation_internal": "someone/kernel", "experts_implementation": "someone/kernel",
    }  # fmt: skip
    backbone = BackboneConfig(adapter="hf", architecture="BertForSequenceClassification", arguments=arguments)
    assert HF.library_model(backbone, 2).model.config._attn_implementation in ("sdpa", "eager")


@pytest.mark.parametrize(
    ("part", "changes", "tower"),
    [
        ("text_cfg", {"hf_model_name": "someone/model"}, "image"),
        ("text_cfg", {"hf_tokenizer_name": "someone/model"}, "text"),
        ("vision_cfg", {"timm_model_name": "hf-hub:someone/model"}, "text"),
        ("vision_cfg", {"timm_model_name": "local-dir:/tmp"}, "text"),
    ],
)
def test_a_clip_names_no_other_models(
    part: str, changes: dict[str, str], tower: str, sound: Path, tmp_path: Path
) -> None:
    clip: dict[str, Any] = {
        "embed_dim": 8,
        "text_cfg": {"context_length": 8, "vocab_size": 9, "width": 8, "heads": 2, "layers": 1},
        "vision_cfg": {"image_size": 8, "patch_size": 4, "width": 8, "head_width": 4, "layers": 1},
    }
    clip[part] |= changes
    config = json.loads((sound / MODEL / "config.json").read_text())
    arguments = {"tower": tower, "templates": [], "model_cfg": clip}
    config["backbone"] = {"adapter": "open_clip", "architecture": "x", "arguments": arguments}
    with pytest.raises(CompressError, match="is not supported"):
        load_model(replaced(sound / MODEL, tmp_path, "config.json", json.dumps(config).encode()))
