"""What a frozen trunk gives is computed once, and training with it is training with the trunk."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES
from tiny.hf_folder import save_library, save_tokenizer
from tiny.samples import samples
from torch import Tensor

from compress.artifact.store import load_model
from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.errors import UsageError
from compress.opening import open_model
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.tuning.batches import Share
from compress.tuning.options import Tune
from compress.tuning.trunk_outputs import stored_trunk_outputs
from compress.tuning.tune import tune

CPU = Runtime(device="cpu", batch_size=3)
Options = Callable[..., Tune]


def bert(folder: Path) -> Transformer:
    """A BERT with its tokenizer."""
    save_library(folder)
    save_tokenizer(folder)
    return open_model(folder)


@pytest.mark.parametrize("name", ["timm plain", "open_clip image", "bert"])
def test_the_layers_above_go_on_where_the_trunk_ended(name: str, tmp_path: Path) -> None:
    model = bert(tmp_path / "bert") if name == "bert" else CASES[name]().model
    dataset = samples(model, 7)
    outputs = stored_trunk_outputs(tmp_path, model, 1, dataset, CPU)
    chosen = (6, 0, 3, 5)  # not as they were stored: other batch mates, other padding
    inputs = outputs.inputs([outputs[index] for index in chosen], Share(0, 4, 0, 4))
    hidden = copy.deepcopy(outputs).entering(inputs)
    assert [outputs[index].id for index in chosen] == [dataset[index].id for index in chosen]
    whole = preprocessor(model)([dataset[index].value for index in chosen])
    with torch.no_grad():
        above = model.classify(model.run_layers(hidden, start=outputs.steps))
        assert torch.allclose(above, model.members(whole), atol=1e-5)


class TestMembers:
    @pytest.fixture
    def embedded(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The inputs of every pass through a stem."""
        seen: list[int] = []
        embed = Transformer.embed

        def counted(self: Transformer, inputs: Tensor) -> object:
            seen.append(len(inputs))
            return embed(self, inputs)

        monkeypatch.setattr(Transformer, "embed", counted)
        return seen

    def test_learn_the_same_while_the_trunk_runs_once_for_all(
        self, members: Path, data: Dataset, options: Options, embedded: list[int], tmp_path: Path
    ) -> None:
        tune(members, tmp_path / "with", data=data, options=options(keep_trunk_outputs=True), runtime=CPU)
        assert sum(embedded) == len(data)
        embedded.clear()
        tune(members, tmp_path / "without", data=data, options=options(), runtime=CPU)
        assert sum(embedded) == 3 * 2 * len(data)
        for member in ("member-0", "member-1", "member-2"):
            one, other = (load_model(tmp_path / name / member).state_dict() for name in ("with", "without"))
            assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-4
        assert not list(tmp_path.glob(".*")), "the outputs went with the state"

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"freeze": "none"}, "only outputs of a frozen trunk can be kept"),
            ({"head_dropout": 0.5}, "need the trunk in every step"),
        ],
    )
    def test_a_trunk_that_changes_is_refused(
        self, changes: dict[str, object], message: str, members: Path, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        with pytest.raises(UsageError, match=message):
            tune(members, tmp_path / "out", data=data, options=options(keep_trunk_outputs=True, **changes))
        assert not (tmp_path / "out").exists()


def test_changing_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="inputs that stay as they are, not flip, shift"):
        Tune(keep_trunk_outputs=True, flip=True, shift=1)
