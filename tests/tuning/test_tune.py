"""``tune`` on single models, members and fused models."""

from __future__ import annotations

import copy
import gc
import json
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator, DistributedType
from timm.models.deit import VisionTransformerDistilled
from torch import Tensor

from compress.artifact.folder import verify_folder
from compress.artifact.manifest import read_manifest
from compress.artifact.store import load_model, read_provenance
from compress.attention.attention import Attention
from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.sequence import SequenceDataset
from compress.errors import ArtifactError, DataError, ModelError, UsageError
from compress.fusion.fuse import fuse
from compress.runtime import Runtime
from compress.transformer.config import Abstention
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads
from compress.tuning.head_dropout import real_heads
from compress.tuning.loop import Loop
from compress.tuning.losses import ExtraLoss, StepOutputs, mutual_information
from compress.tuning.options import Tune
from compress.tuning.state import Progress
from compress.tuning.tune import TuneResult, tune

Options = Callable[..., Tune]


def weights(folder: Path) -> dict[str, Tensor]:
    return load_model(folder).state_dict()


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_launcher_that_shards_the_model_is_refused(
    model: Transformer, data: Dataset, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Accelerator, "distributed_type", property(lambda own: DistributedType.FSDP))
    with pytest.raises(UsageError, match=r"FSDP is not supported: every process holds the whole model"):
        tune(model, tmp_path / "out", data=data, options=options())
    assert list(tmp_path.iterdir()) == []


class TestSingle:
    def test_what_was_trained_is_let_go_without_a_garbage_collection(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trained: list[weakref.ref[object]] = []
        train = Loop.train

        def watched(loop: Loop, label: str, tensorboard: Path | None) -> Progress:
            trained.extend(map(weakref.ref, (loop.learner.weights, loop.optimizer.optimizer, loop.place.accelerator)))
            return train(loop, label, tensorboard)

        monkeypatch.setattr(Loop, "train", watched)
        gc.disable()
        try:
            result = tune(model, tmp_path / "out", data=data, validation=data, options=options(epochs=1))
            assert result.models[0].steps == 4
            assert [reference() for reference in trained] == [None] * 3
        finally:
            gc.enable()

    def test_learns_and_leaves_the_caller_s_model_alone(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        before = copy.deepcopy(model.state_dict())
        result = tune(model, tmp_path / "out", data=data, options=options(epochs=12, lr=3e-3, log_steps=4))
        assert same(model.state_dict(), before)
        assert all(parameter.requires_grad for parameter in model.parameters())
        losses = [entry["loss"] for entry in log_of(tmp_path / "out")]
        assert losses[-1] < 0.7 * losses[0]
        assert result.models[0].steps == 48
        assert read_manifest(tmp_path / "out").stage == "tune"
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "no state is left"

    def test_a_threshold_of_abstention_does_not_outlive_its_weights(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        threshold = Abstention(score="entropy", threshold=0.5, target="coverage", value=0.9)
        calibrated = model.changed(model.config.model_copy(update={"temperature": 1.5, "abstention": threshold}))
        tune(calibrated, tmp_path / "out", data=data, options=options(steps=1))
        config = load_model(tmp_path / "out").config
        assert config.abstention is None
        assert config.temperature == 1.5, "the temperature was part of the model that learned"

    def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        chosen = options(head_dropout=0.5, shift=1, seed=3)
        for name, workers in (("a", 0), ("b", 2)):
            tune(model, tmp_path / name, data=data, options=chosen.model_copy(update={"workers": workers}))
        tune(model, tmp_path / "c", data=data, options=chosen.model_copy(update={"seed": 4}))
        assert verify_folder(tmp_path / "a").digest == verify_folder(tmp_path / "b").digest
        assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))

    def test_accumulation_is_a_larger_batch(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        tune(model, tmp_path / "a", data=data, options=options(batch_size=20))
        tune(model, tmp_path / "b", data=data, options=options(batch_size=5, accumulate=4))
        one, other = weights(tmp_path / "a"), weights(tmp_path / "b")
        # Adam divides by the gradient's size, so rounding shows where a gradient is all but zero.
        assert max(float((one[name] - other[name]).abs().median()) for name in one) < 1e-6

    def test_recomputing_activations_changes_nothing(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        tune(model, tmp_path / "a", data=data, options=options(steps=3, head_dropout=0.5))
        tune(model, tmp_path / "b", data=data, options=options(steps=3, head_dropout=0.5, gradient_checkpointing=True))
        assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))

    def test_bfloat16_is_autocast_around_float32_weights(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        tune(model, tmp_path / "a", data=data, options=options(steps=2), runtime=Runtime(dtype="bfloat16"))
        tune(model, tmp_path / "b", data=data, options=options(steps=2))
        narrow, wide = weights(tmp_path / "a"), weights(tmp_path / "b")
        assert all(tensor.dtype == torch.float32 for tensor in narrow.values())
        assert not same(narrow, wide)
        with pytest.raises(UsageError, match="float16 gradients underflow"):
            tune(model, tmp_path / "c", data=data, runtime=Runtime(dtype="float16"))

    def test_a_frozen_backbone_stays(self, model: Transformer, data: Dataset, options: Options, tmp_path: Path) -> None:
        tune(model, tmp_path / "out", data=data, options=options(steps=2, freeze="backbone"))
        before, after = model.state_dict(), weights(tmp_path / "out")
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert changed
        assert all(name.startswith("head.") for name in changed)

    def test_a_single_model_has_no_trunk(self, model: Transformer, data: Dataset, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="the model has no trunk"):
            tune(model, tmp_path / "out", data=data, options=Tune(freeze="trunk"))

    def test_a_pruned_model_trains(self, model: Transformer, data: Dataset, options: Options, tmp_path: Path) -> None:
        pruned = prune_heads(model, [(0, 2), (1,), (0, 1, 3)])
        tune(pruned, tmp_path / "out", data=data, options=options(steps=2))
        before, after = pruned.state_dict(), weights(tmp_path / "out")
        assert all(not torch.equal(before[name], after[name]) for name in before if name.endswith("qkv.weight"))

    def test_both_classifiers_of_a_distilled_model_learn(self, data: Dataset, options: Options, tmp_path: Path) -> None:
        from tiny.timm_cases import vit_case

        case = vit_case(VisionTransformerDistilled, img_size=8, in_chans=1, num_classes=10)
        labels = tuple("0123456789")
        case.model.config = case.model.config.model_copy(update={"labels": labels})
        tune(case.model, tmp_path / "out", data=data, options=options(steps=2))
        before, after = case.model.state_dict(), weights(tmp_path / "out")
        for name in ("head.classifier.weight", "head.distillation_classifier.weight"):
            assert not torch.equal(before[name], after[name])


class TestMembers:
    @pytest.fixture(scope="class")
    def result(self, members: Path, data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
        out = tmp_path_factory.mktemp("tuned") / "members"
        return tune(members, out, data=data, options=Tune(epochs=2, batch_size=16, lr=1e-3))

    def test_each_is_tuned_apart_around_the_same_trunk(self, result: TuneResult, members: Path) -> None:
        manifest = verify_folder(result.folder, expect_kind="members")
        assert manifest.members == ("member-0", "member-1", "member-2")
        before = [weights(members / name) for name in manifest.members]
        after = [weights(result.folder / name) for name in manifest.members]
        trunk = [name for name in before[0] if name.startswith(("stem.", "layers.0."))]
        for old, new in zip(before, after, strict=True):
            assert all(torch.equal(old[name], new[name]) for name in trunk)
            assert not torch.equal(old["layers.1.mlp.fc1.weight"], new["layers.1.mlp.fc1.weight"])
        assert not torch.equal(after[0]["head.classifier.weight"], after[1]["head.classifier.weight"])

    def test_fuse_accepts_them_and_runs_the_trunk_once(self, result: TuneResult, tmp_path: Path) -> None:
        fused = fuse(result.folder, tmp_path / "fused")
        assert fused.branch_layer == 1
        assert not fused.exact

    def test_tuned_twice_they_still_share_their_trunk(
        self, result: TuneResult, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        tune(result.folder, tmp_path / "again", data=data, options=options(steps=2))
        assert fuse(tmp_path / "again", tmp_path / "fused").branch_layer == 1

    def test_their_seeds_differ_and_the_lineage_stays(self, result: TuneResult, members: Path) -> None:
        found = [read_provenance(result.folder / name) for name in ("member-0", "member-1")]
        assert found[0].options["seed"] != found[1].options["seed"]
        root = read_provenance(members / "member-0").parents[0]
        assert {provenance.parents[0] for provenance in found} == {root}
        assert found[0].parents[1] == read_manifest(members / "member-0").digest
        assert found[0].options["freeze"] == "trunk"

    def test_nothing_frozen_on_request(self, members: Path, data: Dataset, options: Options, tmp_path: Path) -> None:
        tune(members, tmp_path / "out", data=data, options=options(steps=2, freeze="none"))
        before, after = weights(members / "member-0"), weights(tmp_path / "out" / "member-0")
        assert not torch.equal(before["layers.0.mlp.fc1.weight"], after["layers.0.mlp.fc1.weight"])

    def test_random_weights_are_refused(self, members: Path, data: Dataset, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="pruned members have no random weights"):
            tune(members, tmp_path / "out", data=data, options=Tune(from_scratch=True))


class TestFused:
    def test_is_trained_as_one_trunk_included(
        self, fused: Path, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        tune(fused, tmp_path / "out", data=data, options=options(steps=3))
        before, after = weights(fused), weights(tmp_path / "out")
        for name in ("stem.vit.pos_embed", "layers.0.attention.qkv.weight", "layers.1.attention.qkv.weight"):
            assert not torch.equal(before[name], after[name])
        assert load_model(tmp_path / "out").structure == load_model(fused).structure

    def test_its_trunk_can_be_frozen(self, fused: Path, data: Dataset, options: Options, tmp_path: Path) -> None:
        tune(fused, tmp_path / "out", data=data, options=options(steps=3, freeze="trunk"))
        before, after = weights(fused), weights(tmp_path / "out")
        assert torch.equal(before["layers.0.attention.qkv.weight"], after["layers.0.attention.qkv.weight"])
        assert not torch.equal(before["layers.1.attention.qkv.weight"], after["layers.1.attention.qkv.weight"])

    def test_the_diversity_term_makes_members_differ(
        self, fused: Path, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        found = {}
        for name, weight in (("plain", 0.0), ("diverse", 20.0)):
            chosen = options(epochs=8, lr=3e-3, diversity=weight, clip=0.0)
            tune(fused, tmp_path / name, data=data, options=chosen)
            model = load_model(tmp_path / name)
            images = preprocessor(model)([data[index].value for index in range(len(data))])
            with torch.no_grad():
                found[name] = float(mutual_information(model.members(images)).mean())
        assert found["diverse"] > 3 * found["plain"]
        assert log_of(tmp_path / "diverse")[-1]["diversity"] < 0
        assert "diversity" not in log_of(tmp_path / "plain")[-1]

    def test_the_padding_of_smaller_groups_stays_zero(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        ragged = prune_ragged(model, tmp_path)
        result = tune(
            ragged, tmp_path / "out", data=data, options=options(epochs=4, weight_decay=0.1, head_dropout=0.5)
        )
        trained = load_model(result.folder)
        checked = 0
        for layer in trained.layers:
            attention: Attention = layer.attention  # type: ignore[assignment]
            padding = ~real_heads(attention.kept_heads, attention.slots)
            width = attention.head_width
            for group, slot in padding.nonzero().tolist():
                rows = attention.qkv.weight.view(attention.groups, 3, attention.slots, width, -1)[group, :, slot]
                columns = attention.output.weight.view(attention.groups, attention.width, attention.slots, width)
                assert rows.count_nonzero() == 0
                assert columns[group, :, slot].count_nonzero() == 0
                checked += 1
        assert checked


def prune_ragged(model: Transformer, folder: Path) -> Path:
    """Two members that keep 3 and 1 heads in every layer, fused."""
    from compress.artifact.folder import new_folder
    from compress.artifact.provenance import Provenance
    from compress.artifact.store import save_model

    with new_folder(folder / "ragged", kind="members", stage="prune", members=["member-0", "member-1"]) as partial:
        for name, kept in (("member-0", (0, 1, 3)), ("member-1", (2,))):
            save_model(prune_heads(model, [kept] * 3), partial / name, Provenance(stage="prune", parents=("x",)))
    fuse(folder / "ragged", folder / "ragged-fused")
    return folder / "ragged-fused"


class TestTeacher:
    def test_the_student_comes_closer_to_it(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        tune(model, tmp_path / "teacher", data=data, options=options(epochs=10, lr=3e-3))
        student = prune_heads(model, [(0, 1)] * 3)
        tune(
            student,
            tmp_path / "student",
            data=data,
            teacher=tmp_path / "teacher",
            options=options(epochs=10, lr=3e-3, distill=1.0, log_steps=4),
        )
        entries = log_of(tmp_path / "student")
        assert entries[-1]["teacher"] < 0.7 * entries[0]["teacher"]
        assert "task" not in entries[-1]
        assert "teacher" in read_provenance(tmp_path / "student").notes["data"]

    def test_another_task_is_refused(self, model: Transformer, data: Dataset, tmp_path: Path) -> None:
        other = copy.deepcopy(model)
        other.config = other.config.model_copy(update={"labels": tuple("abcdefghij")})
        with pytest.raises(ModelError, match="--teacher: its labels differ from the student's"):
            tune(model, tmp_path / "out", data=data, teacher=other)


class TestValidation:
    def test_the_best_checkpoint_is_kept(
        self, model: Transformer, data: Dataset, validation: Dataset, options: Options, tmp_path: Path
    ) -> None:
        # A rate that ruins the model after it has learned something.
        chosen = options(steps=24, evaluate_steps=2, lr=0.3, warmup=1.0, metric="cls/nll", clip=0.0)
        result = tune(model, tmp_path / "out", data=data, validation=validation, options=chosen).models[0]
        entries = [entry for entry in log_of(tmp_path / "out") if "cls/nll" in entry]
        values = {int(entry["step"]): entry["cls/nll"] for entry in entries if entry["step"]}
        assert list(values) == list(range(2, 25, 2))
        best = min(values, key=lambda step: values[step])
        assert best < 24
        assert result.best_step == best
        assert result.after == values[best]
        assert result.before == entries[0]["cls/nll"]
        from compress.evaluation.collect import collect
        from compress.evaluation.subject import Subject

        kept = collect(Subject("kept", load_model(tmp_path / "out")), validation, Runtime(), "")
        assert kept.columns.nll is not None
        assert float(kept.columns.nll.mean()) == pytest.approx(values[best], rel=1e-6)

    def test_patience_stops_early(
        self, model: Transformer, data: Dataset, validation: Dataset, options: Options, tmp_path: Path
    ) -> None:
        chosen = options(steps=200, evaluate_steps=1, patience=3, lr=0.3, warmup=0.0, metric="cls/nll", clip=0.0)
        result = tune(model, tmp_path / "out", data=data, validation=validation, options=chosen).models[0]
        assert result.steps < 200
        assert result.best_step is not None
        assert result.steps == result.best_step + 3

    def test_a_metric_of_detection(
        self, fused: Path, data: Dataset, validation: Dataset, options: Options, tmp_path: Path
    ) -> None:
        chosen = options(steps=2, metric="ood/photos/mutual_information/auroc")
        result = tune(
            fused, tmp_path / "out", data=data, validation=validation, ood={"photos": "builtin:photos"}, options=chosen
        )
        assert result.models[0].after is not None
        assert 0 <= result.models[0].after <= 1

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"metric": "cls/acuracy"}, "did you mean 'cls/accuracy'"),
            ({"metric": "cost/flops"}, "no metric that a checkpoint can be chosen by"),
            ({"metric": "cal/signed_ece"}, "no metric that a checkpoint can be chosen by"),
            ({"metric": "ood/svhn/auroc"}, "pass --ood svhn=DATA"),
        ],
    )
    def test_metrics_that_cannot_choose(
        self, model: Transformer, data: Dataset, changes: dict[str, str], message: str, tmp_path: Path
    ) -> None:
        with pytest.raises(UsageError, match=message):
            tune(model, tmp_path / "out", data=data, validation=data, options=Tune(**changes))

    def test_a_metric_without_a_value_is_an_error_before_training(
        self, model: Transformer, data: Dataset, validation: Dataset, tmp_path: Path
    ) -> None:
        with pytest.raises(DataError, match=r"ood/empty/auroc cannot be computed \(.*empty"):
            empty = SequenceDataset([], "image", reference="empty")
            tune(
                model,
                tmp_path / "out",
                data=data,
                validation=validation,
                ood={"empty": empty},
                options=Tune(metric="ood/empty/auroc"),
            )

    @pytest.mark.parametrize("changes", [{"patience": 2}, {"metric": "cal/ece"}, {"evaluate_steps": 5}])
    def test_options_that_need_a_validation_set(
        self, model: Transformer, data: Dataset, changes: dict[str, object], tmp_path: Path
    ) -> None:
        with pytest.raises(UsageError, match="needs a validation set"):
            tune(model, tmp_path / "out", data=data, options=Tune(**changes))


class TestRefusals:
    def test_a_class_that_the_model_does_not_know(self, model: Transformer, data: Dataset, tmp_path: Path) -> None:
        values = [data[index].value for index in range(3)]
        foreign = SequenceDataset(
            values, "image", class_names=["0", "1", "seven"], labels=[0, 1, 2], reference="d.csv#train"
        )
        with pytest.raises(DataError, match=r"d\.csv#train, row 2: label 'seven' is none of the model's 10 labels"):
            tune(model, tmp_path / "out", data=foreign)

    def test_integers_as_texts_are_mapped(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        names = [str(digit) for digit in reversed(range(10))]
        labels = [9 - label for label in data.labels or ()]
        turned = SequenceDataset([data[i].value for i in range(61)], "image", class_names=names, labels=labels)
        tune(model, tmp_path / "a", data=data, options=options(steps=2))
        tune(model, tmp_path / "b", data=turned, options=options(steps=2))
        assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))

    def test_texts_for_an_image_model(self, model: Transformer, tmp_path: Path) -> None:
        texts = SequenceDataset(["a"], "text", class_names=["0"], labels=[0], reference="t.csv")
        with pytest.raises(DataError, match="holds text samples"):
            tune(model, tmp_path / "out", data=texts)

    def test_a_place_that_is_taken(self, model: Transformer, data: Dataset, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ArtifactError, match="is not empty"):
            tune(model, tmp_path, data=data)

    def test_a_loss_that_is_no_number_names_step_batch_and_layer(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        with torch.no_grad():
            model.layers[1].mlp.fc1.bias[3] = torch.inf  # type: ignore[union-attr, index]
        message = (
            r"batch 1 of 4, samples .*: the loss is not finite at step 1 of 8 \(weight layers\.1\.mlp\.fc1\.bias\)"
        )
        with pytest.raises(ModelError, match=message):
            tune(model, tmp_path / "out", data=data, options=options())
        assert list(tmp_path.iterdir()) == [], "nothing is left"

    def test_an_overflow_names_the_module_that_made_it(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        with torch.no_grad():
            model.layers[1].mlp.fc2.weight.fill_(3e38)  # type: ignore[union-attr, operator]
        with pytest.raises(ModelError, match=r"output of layers\.1\.mlp\.fc2"):
            tune(model, tmp_path / "out", data=data, options=options())

    def test_a_gradient_that_is_no_number_is_found_before_the_step(
        self, model: Transformer, data: Dataset, options: Options, tmp_path: Path
    ) -> None:
        class Root(ExtraLoss):
            """Finite, with an infinite slope at 0."""

            def prepare(self, model: Transformer, step: int, steps: int) -> None: ...

            def terms(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
                return {"root": (outputs.member_logits[0, :, 0] * 0).sqrt()}

        with pytest.raises(ModelError, match=r"\(gradient of .*\)"):
            tune(model, tmp_path / "out", data=data, options=options(), extra_losses=[Root()])
