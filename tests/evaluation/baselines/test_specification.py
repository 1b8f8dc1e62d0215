from __future__ import annotations

from pathlib import Path

import pytest

from compress.errors import UsageError
from compress.evaluation.baselines.specification import BASELINES, Baseline, parse_baseline


@pytest.mark.parametrize(
    ("text", "kind", "models"),
    [
        ("deep_ensemble:a,b/c,timm:d", "deep_ensemble", ("a", "b/c", "timm:d")),
        ("deep_ensemble: a , b", "deep_ensemble", ("a", "b")),
        ("mc_dropout:timm:vit", "mc_dropout", ("timm:vit",)),
        ("pruned:folder,with,commas", "pruned", ("folder,with,commas",)),
        ("temperature:./m", "temperature", ("./m",)),
        ("single:m", "single", ("m",)),
    ],
)
def test_words_and_their_models(text: str, kind: str, models: tuple[str, ...]) -> None:
    assert parse_baseline(text) == Baseline(kind, models)


@pytest.mark.parametrize("text", ["timm:vit", "./deep_ensemble", "deep_ensemble", "hf:mc_dropout", "a=b"])
def test_what_is_no_baseline(text: str) -> None:
    assert parse_baseline(text) is None


def test_a_path_that_exists_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pruned:x").mkdir()
    assert parse_baseline("pruned:x") is None


def test_too_few_and_too_many_models() -> None:
    with pytest.raises(UsageError, match="an ensemble of 1 is none"):
        parse_baseline("deep_ensemble:a")
    with pytest.raises(UsageError, match="a model is missing; write deep_ensemble:MODEL,MODEL"):
        parse_baseline("deep_ensemble:a,")
    with pytest.raises(UsageError, match="a model is missing; write mc_dropout:MODEL"):
        parse_baseline("mc_dropout:")
    with pytest.raises(UsageError, match="takes one model, not 2"):
        Baseline("single", ("a", "b"))
    with pytest.raises(UsageError, match="did you mean 'deep_ensemble'"):
        Baseline("deep_ensembel", ("a", "b"))


def test_every_word_can_be_built() -> None:
    assert all(callable(BASELINES[word]) for word in BASELINES)
