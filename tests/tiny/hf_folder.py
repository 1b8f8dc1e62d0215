"""A tiny encoder with its tokenizer, as ``save_pretrained`` writes it."""

from __future__ import annotations

from pathlib import Path

from tiny.hf_cases import tiny_library
from transformers import BertTokenizer, PreTrainedModel
from transformers.models.bert.modeling_bert import BertForSequenceClassification

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "was", "##s", "very", "the")
TEXTS = ["a good film", "the films was very very bad", "", "Good film unheard-of"]
LABELS = {0: "négatif", 1: "neutre", 2: "positif"}


def save_tokenizer(folder: Path, limit: int = 16) -> BertTokenizer:
    """A WordPiece tokenizer of ``WORDS``, saved into ``folder``."""
    tokenizer = BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)}, model_max_length=limit)
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_library(folder: Path, build: type[PreTrainedModel] = BertForSequenceClassification) -> PreTrainedModel:
    """A three-class BERT, or the encoder of another task, saved into ``folder``."""
    library = tiny_library(build, num_labels=len(LABELS))
    library.config.id2label = LABELS
    library.config.label2id = {name: index for index, name in LABELS.items()}
    library.save_pretrained(folder)
    return library
