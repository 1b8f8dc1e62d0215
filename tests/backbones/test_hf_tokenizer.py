"""The tokenizer travels with the model and gives what the library's gives, offline."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny.hf_folder import TEXTS, WORDS, save_library, save_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AlbertTokenizer,
    BertTokenizer,
    CamembertTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)

from compress.backbones.hf_encoder import ADAPTER
from compress.backbones.hf_tokenizer import preprocessor_from, read_tokenizer, saved_files
from compress.backbones.source import ModelSource
from compress.errors import ModelError
from compress.transformer.model import Transformer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_library(tmp_path)
    return tmp_path


def open_model(folder: Path, **preprocessing: int) -> Transformer:
    return ADAPTER.open(ModelSource(adapter="hf", name=str(folder), preprocessing=preprocessing or None))


def test_the_preprocessing_equals_the_librarys_tokenizer(folder: Path) -> None:
    tokenizer = save_tokenizer(folder)
    model = open_model(folder)
    inputs = ADAPTER.preprocessor(model)(TEXTS)
    expected = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert inputs.keys() == expected.keys()
    for name in expected:
        assert torch.equal(inputs[name], expected[name])
    assert inputs["input_ids"].dtype == torch.int64
    assert set(model.files) == {"tokenizer.json", "tokenizer_config.json"}


def test_a_vocabulary_alone_becomes_a_tokenizer_file(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    model = open_model(folder)
    assert "tokenizer.json" in model.files
    assert ADAPTER.preprocessor(model)(["good films"])["input_ids"].tolist() == [[2, 6, 8, 10, 3]]


LETTERS = [*"acdefghinostmklGFé", *(f"##{letter}" for letter in "acdefghinostmkl")]
PIECES = [("▁", -2.0), ("▁the", -1.0), *((letter, -4.0) for letter in LETTERS[:18])]
ROBERTA_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
ALBERT_TOKENS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


def numbered(*words: str) -> dict[str, int]:
    return {word: index for index, word in enumerate(words)}


def weighted(special: tuple[str, ...]) -> list[tuple[str, float]]:
    return [*((token, 0.0) for token in special), *PIECES]


@pytest.mark.parametrize(
    "original",
    [
        pytest.param(lambda: BertTokenizer(vocab=numbered(*WORDS, *LETTERS)), id="bert"),
        pytest.param(lambda: BertTokenizer(vocab=numbered(*WORDS, *LETTERS), do_lower_case=False), id="bert cased"),
        pytest.param(
            lambda: RobertaTokenizer(
                vocab=numbered(*ROBERTA_TOKENS, *sorted(ByteLevel.alphabet()), "th", "the"),
                merges=[("t", "h"), ("th", "e")],
            ),
            id="roberta",
        ),
        pytest.param(lambda: XLMRobertaTokenizer(vocab=weighted(ROBERTA_TOKENS)), id="xlm-roberta"),
        pytest.param(lambda: CamembertTokenizer(vocab=weighted(ROBERTA_TOKENS)), id="camembert"),
        pytest.param(lambda: AlbertTokenizer(vocab=weighted(ALBERT_TOKENS)), id="albert"),
    ],
)
def test_every_kind_of_tokenizer_survives(original: Callable[[], PreTrainedTokenizerBase]) -> None:
    texts = ["the café", "Good  films", "", "don't <mask> [MASK] look: it is made of the long longest tokens of all"]
    expected = original()(texts, padding=True, truncation=True, max_length=16, return_tensors="pt")
    found = preprocessor_from(saved_files(original()), 16, 1000)(texts)
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name])


def test_a_cased_tokenizer_file_alone_stays_cased(folder: Path) -> None:
    cased = BertTokenizer(vocab=numbered(*WORDS, "Good"), do_lower_case=False)
    cased.save_pretrained(folder)
    (folder / "tokenizer_config.json").unlink()  # the library would fall back to a lowercasing BertTokenizer
    assert ADAPTER.preprocessor(open_model(folder))(["Good good"])["input_ids"].tolist() == [[2, 13, 6, 3]]


def test_a_tokenizer_of_no_known_class_survives(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    original = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", padding_side="left"
    )
    inputs = preprocessor_from(saved_files(original), 16, len(WORDS))(["a good film", "bad"])
    assert inputs["input_ids"].tolist() == [[2, 5, 6, 8, 3], [2, 7, 3, 0, 0]]


def test_files_are_the_same_on_every_save(folder: Path) -> None:
    save_tokenizer(folder)
    assert open_model(folder).files == open_model(folder).files
    again = saved_files(ADAPTER.preprocessor(open_model(folder))._tokenizer)
    assert again["tokenizer.json"] == open_model(folder).files["tokenizer.json"]


@pytest.mark.parametrize(("limit", "asked", "expected"), [(16, None, 16), (10**30, None, 20), (16, 4, 4), (16, 20, 20)])
def test_texts_are_cut_to_what_tokenizer_and_positions_allow(
    folder: Path, limit: int, asked: int | None, expected: int
) -> None:
    save_tokenizer(folder, limit)
    model = open_model(folder, **({} if asked is None else {"max_length": asked}))
    assert model.config.preprocessing.max_length == expected
    assert ADAPTER.preprocessor(model)(["very " * 50])["input_ids"].shape == (1, expected)


@pytest.mark.parametrize("preprocessing", [{"max_length": 21}, {"max_length": 0}, {"max_lenght": 4}])
def test_a_wrong_length_is_an_error(folder: Path, preprocessing: dict[str, int]) -> None:
    with pytest.raises(ModelError, match=r"model\.preprocessing"):
        open_model(folder, **preprocessing)


def test_without_a_tokenizer_the_preprocessing_names_what_is_missing(folder: Path) -> None:
    model = open_model(folder)
    assert model.files == {}
    with pytest.raises(ModelError, match=r"tokenizer\.json and tokenizer_config\.json missing"):
        ADAPTER.preprocessor(model)


def test_a_damaged_tokenizer_is_one_line(folder: Path) -> None:
    save_tokenizer(folder)
    content = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match="tokenizer cannot be read") as error:
        open_model(folder)
    assert "\n" not in str(error.value)


def test_code_beside_a_tokenizer_is_not_run(folder: Path) -> None:
    save_tokenizer(folder)
    config = folder / "tokenizer_config.json"
    config.write_text(
        '{"auto_map": {"AutoTokenizer": ["evil.Evil", null]}, "tokenizer_class": "Evil"}', encoding="utf-8"
    )
    (folder / "evil.py").write_text("raise SystemExit('code from the folder ran')", encoding="utf-8")
    assert read_tokenizer(folder, "here") is not None


def test_a_tokenizer_of_another_model_is_an_error(folder: Path) -> None:
    preprocess = preprocessor_from(saved_files(save_tokenizer(folder)), 16, 8)
    assert preprocess(["a good"])["input_ids"].shape == (1, 4)
    with pytest.raises(ModelError, match="gives the token 8, but the model has 8 token embeddings"):
        preprocess(["a good film"])


def test_the_preprocessing_can_be_sent_to_a_worker(folder: Path) -> None:
    save_tokenizer(folder)
    preprocess = ADAPTER.preprocessor(open_model(folder))
    sent = pickle.loads(pickle.dumps(preprocess))  # noqa: S301  # what a data worker does, on our own object
    assert torch.equal(sent(TEXTS)["input_ids"], preprocess(TEXTS)["input_ids"])
