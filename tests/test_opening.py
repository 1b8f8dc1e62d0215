"""From whatever names a model to the model, or one sentence that says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
from hostile.foreign import CONFIG_NAMES, make_foreign, open_folder
from safetensors.torch import save_file

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.backbones.source import ModelSource
from compress.errors import ArtifactError, CompressError, ModelError, UnsupportedModelError, UsageError
from compress.opening import open_model

ARGUMENTS = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 4, "num_classes": 3}
PREPROCESSING = {
    "mean": [0.5] * 3,
    "std": [0.25] * 3,
    "interpolation": "bilinear",
    "crop_pct": 1.0,
    "crop_mode": "squash",
}


@pytest.fixture
def vit() -> torch.nn.Module:
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", **ARGUMENTS).eval()


def save_folder(vit: torch.nn.Module, folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True)
    save_file(vit.state_dict(), folder / "model.safetensors")
    arguments = {name: value for name, value in ARGUMENTS.items() if name != "num_classes"}
    config = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 3,
        "model_args": arguments,
        "pretrained_cfg": PREPROCESSING,
    }
    (folder / "config.json").write_text(json.dumps({**config, **changes}), encoding="utf-8")
    return folder


def same(model: torch.nn.Module, vit: torch.nn.Module) -> bool:
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        return torch.allclose(model(images), vit(images), atol=1e-6)


def test_a_folder_says_its_family_preprocessing_and_labels(vit: torch.nn.Module, tmp_path: Path) -> None:
    folder = save_folder(vit, tmp_path / "mit Leerzeichen 模型", label_names=["Äpfel", "b", "c"])
    model = open_model(folder)
    assert same(model, vit)
    assert model.labels == ("Äpfel", "b", "c")
    assert model.config.preprocessing.std == (0.25,) * 3
    assert model.config.preprocessing.resize == "squash"
    assert same(open_model(f"timm:{folder}"), vit)


@pytest.mark.parametrize("kind", ["safetensors", "pt", "pth", "bin", "nested", "prefixed", "compiled"])
def test_weights_files_of_every_kind(kind: str, vit: torch.nn.Module, tmp_path: Path) -> None:
    state = vit.state_dict()
    path = tmp_path / f"weights.{kind if kind in ('safetensors', 'pt', 'pth', 'bin') else 'pt'}"
    if kind == "safetensors":
        save_file(state, path)
    else:
        prefix = {"prefixed": "module.", "compiled": "_orig_mod.module."}.get(kind, "")
        state = {prefix + name: value for name, value in state.items()}
        torch.save({"state_dict": state, "epoch": 3} if kind == "nested" else state, path)
    model = open_model("timm:vit_tiny_patch16_224", weights=str(path), arguments=ARGUMENTS)
    assert same(model, vit)


def test_a_prefix_on_some_keys_is_not_stripped(vit: torch.nn.Module, tmp_path: Path) -> None:
    state = {("module." + name if "head" in name else name): value for name, value in vit.state_dict().items()}
    torch.save(state, tmp_path / "weights.pt")
    with pytest.raises(ModelError, match=r"missing: head\.bias.*unexpected: module\.head\.bias"):
        open_model("timm:vit_tiny_patch16_224", weights=str(tmp_path / "weights.pt"), arguments=ARGUMENTS)


class Payload:
    """Unpickling this would leave a trace."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("UNPICKLED",))


@pytest.mark.parametrize("content", ["module", "payload"])
def test_pickled_objects_are_refused_and_not_run(
    content: str, vit: torch.nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(vit if content == "module" else {"state_dict": Payload()}, tmp_path / "model.pt")
    with pytest.raises(ModelError, match=r"model\.pt: holds more than tensors.*save a state dict"):
        open_model("timm:vit_tiny_patch16_224", weights=str(tmp_path / "model.pt"), arguments=ARGUMENTS)
    assert "UNPICKLED" not in capsys.readouterr().out


def test_another_number_of_classes_is_an_error_unless_the_classifier_is_reset(
    vit: torch.nn.Module, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save_folder(vit, tmp_path / "vit")
    labels = ("a", "b", "c", "d", "e")
    with pytest.raises(ModelError, match=r"5 labels for a classifier of 3 classes.*--reset-classifier"):
        open_model(folder, labels=labels)
    model = open_model(folder, labels=labels, reset_classifier=True)
    assert "classifier started anew: head.bias, head.weight" in caplog.text
    assert model.untrained_classifier
    assert not open_model(folder).untrained_classifier
    assert model(torch.zeros(1, 3, 16, 16)).shape == (1, 5)
    with pytest.raises(ModelError, match=r"wrong shape: .*pos_embed"):
        open_model(folder, labels=labels, reset_classifier=True, arguments={"img_size": 32})


def test_missing_preprocessing_is_asked_for(vit: torch.nn.Module, tmp_path: Path) -> None:
    folder = save_folder(vit, tmp_path / "vit", pretrained_cfg={"mean": [0.5] * 3})
    asked = r"without its preprocessing \(std, interpolation, crop_fraction\).*model\.preprocessing"
    with pytest.raises(ModelError, match=asked):
        open_model(folder)
    given = {"std": [1.0] * 3, "interpolation": "bicubic", "crop_fraction": 0.9}
    assert open_model(folder, preprocessing=given).config.preprocessing.std == (1.0,) * 3


def test_input_channels_come_from_the_weights(tmp_path: Path) -> None:
    grey = timm.create_model("vit_tiny_patch16_224", **ARGUMENTS, in_chans=1)
    save_file(grey.state_dict(), tmp_path / "grey.safetensors")
    with pytest.raises(ModelError, match="takes 1 channels but its preprocessing has 3 means"):
        open_model("timm:vit_tiny_patch16_224", weights=str(tmp_path / "grey.safetensors"), arguments=ARGUMENTS)
    model = open_model(
        "timm:vit_tiny_patch16_224",
        weights=str(tmp_path / "grey.safetensors"),
        arguments=ARGUMENTS,
        preprocessing={"mean": [0.5], "std": [0.5]},
    )
    assert model.config.preprocessing.channels == 1


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        ("./nowhere", ModelError, r"\./nowhere: no such file or folder"),
        ("tim:vit_tiny", UsageError, r"unknown model family 'tim'; did you mean 'timm'"),
        ("timm:vit_tinyy_patch16_224", ModelError, "did you mean 'vit_tiny_patch16_224'"),
        ("builtin:digits", ModelError, "did you mean 'digits-vit'"),
        ("timm:resnet18", UnsupportedModelError, "ResNet is not supported; supported: timm VisionTransformer"),
        ("timm:beit_base_patch16_224", UnsupportedModelError, "Beit is not supported"),
        ("timm:swin_tiny_patch4_window7_224", UnsupportedModelError, "SwinTransformer is not supported"),
        ("timm:cait_xxs24_224", UnsupportedModelError, "Cait is not supported"),
        ("timm:xcit_nano_12_p16_224", UnsupportedModelError, "Xcit is not supported"),
        ("timm:eva02_tiny_patch14_224", UnsupportedModelError, "Eva is not supported"),
        ("timm:vit_relpos_small_patch16_224", UnsupportedModelError, "VisionTransformerRelPos is not supported"),
    ],
)
def test_what_cannot_be_opened_is_said_in_one_line(reference: str, error: type[CompressError], message: str) -> None:
    from compress.backbones.timm_vit import take_apart

    with pytest.raises(error, match=message) as caught:
        if error is UnsupportedModelError:
            take_apart(timm.create_model(reference.removeprefix("timm:"), pretrained=False))
        open_model(reference)
    assert "\n" not in str(caught.value)


def test_unsupported_attention_is_refused_by_class_name() -> None:
    from timm.models.vision_transformer import ParallelScalingBlock, VisionTransformer

    from compress.backbones.timm_vit import take_apart

    small = {**ARGUMENTS, "embed_dim": 24}
    with pytest.raises(UnsupportedModelError, match=r"blocks\.0: ParallelScalingBlock is not supported"):
        take_apart(VisionTransformer(**small, block_fn=ParallelScalingBlock))
    with pytest.raises(UnsupportedModelError, match=r"blocks\.0: attention DiffAttention is not supported"):
        take_apart(VisionTransformer(**small, attn_layer="diff"))
    with pytest.raises(UnsupportedModelError, match="full-width norm"):
        take_apart(VisionTransformer(**small, scale_attn_norm=True))


def test_a_bare_weights_file_asks_for_its_architecture(vit: torch.nn.Module, tmp_path: Path) -> None:
    save_file(vit.state_dict(), tmp_path / "vit.safetensors")
    with pytest.raises(ModelError, match=r"does not name its architecture; use timm:NAME --weights"):
        open_model(tmp_path / "vit.safetensors")


def test_a_folder_that_is_no_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model family recognises this folder"):
        open_model(tmp_path)
    (tmp_path / "provenance.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"MANIFEST\.json is missing, so the artifact is incomplete"):
        open_model(tmp_path)


def test_damaged_weights_name_the_file(vit: torch.nn.Module, tmp_path: Path) -> None:
    folder = save_folder(vit, tmp_path / "vit")
    content = (folder / "model.safetensors").read_bytes()
    for length in (0, 4, len(content) // 2):
        (folder / "model.safetensors").write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"model\.safetensors: not a readable safetensors file"):
            open_model(folder)


def test_a_source_may_be_given_whole(vit: torch.nn.Module, tmp_path: Path) -> None:
    folder = save_folder(vit, tmp_path / "vit")
    assert same(open_model(ModelSource(adapter="timm", name=str(folder))), vit)
    model = open_model(folder)
    assert open_model(model) is model


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_name(
    vit: torch.nn.Module, tmp_path: Path, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        vit.blocks[1].mlp.fc2.weight[3, 5] = value
    folder = save_folder(vit, tmp_path / "model")
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.fc2\.weight.* holds NaN or infinity") as caught:
        open_model(folder)
    assert str(folder) in str(caught.value)
    with monkeypatch.context() as unchecked:
        unchecked.setattr("compress.opening.check_weights", lambda model, where: None)
        broken = open_model(folder)
    save_model(broken, tmp_path / "artifact", Provenance(stage="original"))
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.fc2\.weight.* holds NaN or infinity") as caught:
        open_model(tmp_path / "artifact")
    assert str(tmp_path / "artifact" / "model.safetensors") in str(caught.value)


@pytest.mark.parametrize("family", CONFIG_NAMES)
@pytest.mark.parametrize("broken", ["assemble", "take_apart", "load_strictly"])
def test_a_mistake_of_the_project_is_not_the_fault_of_the_folder(
    family: str, broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_foreign(tmp_path / "sound") / family
    adapter = {"timm": "timm_vit", "hf": "hf_encoder", "open_clip": "open_clip_tower"}[family]
    place = "open_clip_source" if (family, broken) == ("open_clip", "load_strictly") else adapter
    assert open_folder(folder)

    def mistaken(*arguments: object, **options: object) -> None:
        raise AttributeError("a mistake of the project")

    monkeypatch.setattr(f"compress.backbones.{place}.{broken}", mistaken)
    with pytest.raises(AttributeError, match=r"^a mistake of the project$"):
        open_folder(folder)
