from __future__ import annotations

from pathlib import Path

import pytest

from compress.cli.shared_options import named_references
from compress.errors import UsageError


@pytest.mark.parametrize(
    ("value", "name", "reference"),
    [
        ("svhn=./data/svhn#test", "svhn", "./data/svhn#test"),
        ("builtin:photos", "photos", "builtin:photos"),
        ("builtin:digits#test", "digits", "builtin:digits#test"),
        ("builtin:photos[:50]", "photos", "builtin:photos[:50]"),
        ("./data/svhn#test[1::2]", "svhn", "./data/svhn#test[1::2]"),
        ("./data/svhn#test", "svhn", "./data/svhn#test"),
        ("reviews.csv", "reviews", "reviews.csv"),
        ("hf:org/name", "name", "hf:org/name"),
        ("x=hf:org/name#test", "x", "hf:org/name#test"),
        ("./a b/漢字", "漢字", "./a b/漢字"),
        ("./a b/c d", "c-d", "./a b/c d"),
        ("größe=x", "größe", "x"),
        ("./with=sign/fused", "fused", "./with=sign/fused"),
    ],
)
def test_references_have_names(value: str, name: str, reference: str) -> None:
    assert named_references([value], "--ood") == {name: reference}


def test_an_existing_path_with_an_equals_sign_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run=1").mkdir()
    assert named_references(["run=1"], "--ood") == {"run-1": "run=1"}


def test_folders_with_dots_keep_their_whole_name(tmp_path: Path) -> None:
    (tmp_path / "v1.5").mkdir()
    assert list(named_references([str(tmp_path / "v1.5")], "MODEL")) == ["v1.5"]


def test_two_of_one_name_must_be_named() -> None:
    with pytest.raises(UsageError, match=r"--ood: two are called 'x'; name them: x-2=b/x"):
        named_references(["a/x", "b/x"], "--ood")
