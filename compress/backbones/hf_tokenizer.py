"""A tokenizer of ``transformers``: as files that lie in an artifact, and as the preprocessing of a text model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from compress.errors import ModelError, first_line

SAVED = ("tokenizer.json", "tokenizer_config.json")
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
UNREADABLE = (OSError, ValueError, ImportError, LookupError, TypeError, AttributeError, RecursionError)
TOKENIZER_FILES = (*VOCABULARIES, "tokenizer_config.json", "merges.txt", "special_tokens_map.json", "added_tokens.json")


def read_tokenizer(folder: Path, where: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer in a folder, from its files alone; None when it has none.

    Raises:
        ModelError: the files are damaged, or need a library that is not installed.
    """
    if not any((folder / name).is_file() for name in VOCABULARIES):
        return None  # the library would make up a vocabulary of the special tokens
    try:
        return _read(folder)
    except Exception as error:
        # Of damaged files the tokenizers library, written in Rust, says so by a bare Exception, which nothing narrower
        # catches. Other kinds are let through, unless they are among those that mean the same.
        if type(error) is not Exception and not isinstance(error, UNREADABLE):
            raise
        raise ModelError(
            f"the tokenizer cannot be read ({first_line(error)})", where=where, fix=f"save it as {' and '.join(SAVED)}"
        ) from None


def _read(folder: Path) -> PreTrainedTokenizerBase:
    guessed = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not (folder / "tokenizer.json").is_file():
        return guessed
    # The library rebuilds the pipeline from the class it guesses, and then lowercases where tokenizer.json does not.
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(folder / "tokenizer.json")),
        model_max_length=guessed.model_max_length,
        model_input_names=guessed.model_input_names,
        **guessed.special_tokens_map,
    )


def saved_files(tokenizer: PreTrainedTokenizerBase) -> dict[str, bytes]:
    """The files from which ``preprocessor_from`` rebuilds the tokenizer, name to content."""
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()}


class TextPreprocessor:
    """From texts to ``input_ids``, ``attention_mask`` and whatever else the tokenizer gives, each ``(B, N)`` int64.

    N is the length of the longest text of the batch, ``max_length`` at most; shorter texts are padded on the right.
    Picklable, so that it can run in data workers.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int, vocabulary: int) -> None:
        self._tokenizer, self._max_length, self._vocabulary = tokenizer, max_length, vocabulary
        # The first token is pooled and positions count from it: padding before it would change a row's result.
        self._tokenizer.padding_side = "right"

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Tokenize; raises ``ModelError`` when the tokenizer does not belong to the model."""
        encoded = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self._max_length, return_tensors="pt"
        )
        largest = int(encoded["input_ids"].max())
        if largest >= self._vocabulary:
            raise ModelError(
                f"the tokenizer gives the token {largest}, but the model has {self._vocabulary} token embeddings",
                fix="use the tokenizer that the model was trained with",
            )
        return dict(encoded)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """See ``ReadableTokens``."""
        return [self._tokenizer.decode([number]) for number in ids]


def preprocessor_from(files: Mapping[str, bytes], max_length: int, vocabulary: int) -> TextPreprocessor:
    """Rebuild the tokenizer that ``saved_files`` took, without a network.

    Args:
        files: name to content.
        max_length: longest input, tokens.
        vocabulary: number of token embeddings of the model.

    Raises:
        ModelError: files are missing or damaged, or the tokenizer cannot pad.
    """
    missing = [name for name in SAVED if name not in files]
    if missing:
        raise ModelError(
            f"the model has no tokenizer ({' and '.join(missing)} missing)", fix="put its files into the model's folder"
        )
    try:
        with TemporaryDirectory() as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            tokenizer = read_tokenizer(Path(folder), "the model's tokenizer")
    except OSError as error:
        raise ModelError(
            f"the tokenizer needs a temporary folder, which cannot be written ({error.strerror or error})",
            fix="free some space there, or set TMPDIR to another folder",
        ) from None
    if tokenizer is None or tokenizer.pad_token_id is None:
        raise ModelError("the model's tokenizer has no padding token", fix="set pad_token in its tokenizer_config.json")
    return TextPreprocessor(tokenizer, max_length, vocabulary)
