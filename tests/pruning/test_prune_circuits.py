"""The prune stage with circuits: members, saved scores, interruptions, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES
from tiny.samples import samples, unlabelled
from tiny.signal_model import OOD_HEAD, TASK_HEAD, signal_images, signal_model

from compress.artifact.folder import verify_folder
from compress.artifact.store import load_model, read_provenance
from compress.errors import ArtifactError, UsageError
from compress.fusion.fuse import fuse
from compress.pruning import circuit
from compress.pruning.circuit_scores import load_circuit_scores
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.pruning.result import PruneResult
from compress.runtime import Runtime
from compress.transformer.model import Transformer

CPU = Runtime(device="cpu", batch_size=4)
CIRCUIT = Prune(method="circuit", keep=2)


@pytest.fixture
def model() -> Transformer:
    return CASES["timm plain"]().model


def cut(model: Transformer, out: Path, options: Prune = CIRCUIT, **details: object) -> PruneResult:
    """Prune on the standard data."""
    given = {"data": samples(model, 9), "ood": samples(model, 7, seed=5), "runtime": CPU, **details}
    return prune(model, out, options=options, **given)  # type: ignore[arg-type]


def test_three_members_with_foreign_data_have_one_objective_each(model: Transformer, tmp_path: Path) -> None:
    result = cut(model, tmp_path / "pruned", CIRCUIT.model_copy(update={"branch_layer": 1, "trunk_keep": 4}))
    assert [member.objective for member in result.circuits] == ["task", "ood", "avg"]
    assert verify_folder(tmp_path / "pruned", expect_kind="members").members == ("member-0", "member-1", "member-2")
    assert {heads[0] for heads in result.kept_heads} == {(0, 1, 2, 3)}, "the trunk keeps all"
    scores = load_circuit_scores(
        tmp_path / "pruned", model=read_provenance(tmp_path / "pruned").parents[0], heads=[4, 4, 4]
    )
    assert [(search.objective, search.start, search.bootstrap) for search in scores.searches] == [
        ("task", 1, None),
        ("ood", 1, None),
        ("avg", 1, None),
    ]


def test_members_of_one_objective_see_a_bootstrap_each(model: Transformer, tmp_path: Path) -> None:
    options = CIRCUIT.model_copy(update={"members": 2, "branch_layer": 1, "seed": 4})
    cut(model, tmp_path / "pruned", options)
    scores = load_circuit_scores(
        tmp_path / "pruned", model=read_provenance(tmp_path / "pruned").parents[0], heads=[4, 4, 4]
    )
    assert [(search.objective, search.start, search.bootstrap) for search in scores.searches] == [
        ("avg", 0, None),  # the trunk: once, by both objectives, on everything
        ("task", 1, (4, 0)),
        ("task", 1, (4, 1)),
    ]
    trunk, first, second = scores.searches.values()
    assert first.search.masked == second.search.masked == trunk.circuit


def test_the_objectives_find_their_heads_and_labels_are_not_needed(tmp_path: Path) -> None:
    model = signal_model()
    data, foreign = signal_images(8, foreign=False), signal_images(6, foreign=True)
    options = Prune(method="circuit", members=1, keep=1)
    by_task = prune(model, tmp_path / "task", data=data, ood=foreign, options=options, runtime=CPU)
    by_ood = prune(
        model,
        tmp_path / "ood",
        data=unlabelled(data),
        ood=foreign,
        options=options.model_copy(update={"objective": "ood"}),
        runtime=CPU,
    )
    assert by_task.kept_heads == (((TASK_HEAD,),),)
    assert by_ood.kept_heads == (((OOD_HEAD,),),)
    (task,), (ood,) = by_task.circuits, by_ood.circuits
    assert task.kept.task < 0.1 < task.masked.task  # type: ignore[operator]
    assert ood.kept.task is None
    assert (ood.kept.ood, ood.masked.ood) == (0.0, 0.5)


def test_the_pruned_member_has_the_losses_that_were_noted(model: Transformer, tmp_path: Path) -> None:
    result = cut(model, tmp_path / "pruned")
    data = samples(model, 9)
    from compress.backbones.registry import preprocessor

    inputs = preprocessor(model)([data[index].value for index in range(9)])
    for number, circuit_losses in enumerate(result.circuits):
        member = load_model(tmp_path / "pruned" / f"member-{number}")
        with torch.inference_mode():
            loss = torch.nn.functional.cross_entropy(member(inputs), torch.tensor(data.labels))
        assert float(loss) == pytest.approx(circuit_losses.kept.task, abs=1e-5)
    notes = json.loads((tmp_path / "pruned" / "provenance.json").read_text())["notes"]
    assert notes["circuits"][1]["objective"] == "ood"
    assert notes["ood_fingerprint"] == samples(model, 7, seed=5).fingerprint
    assert "circuit by ood: its heads alone: loss" in result.table()


def test_a_bound_on_the_overlap_is_met_and_its_price_measured_again(model: Transformer, tmp_path: Path) -> None:
    free = cut(model, tmp_path / "free")
    largest = max(free.overlap[0][1], free.overlap[0][2], free.overlap[1][2])
    bound = cut(model, tmp_path / "bound", CIRCUIT.model_copy(update={"max_overlap": largest - 0.1}))
    assert max(bound.overlap[0][1], bound.overlap[0][2], bound.overlap[1][2]) <= largest - 0.1
    assert bound.importance_lost_to_overlap > 0
    for before, after in zip(free.circuits, bound.circuits, strict=True):
        assert after.masked_without_bound == before.masked, "of the search without a bound"
    changed = [
        after.masked != after.masked_without_bound
        for after, old, new in zip(bound.circuits, free.kept_heads, bound.kept_heads, strict=True)
        if old != new
    ]
    assert changed
    assert all(changed)
    with pytest.raises(UsageError, match=r"smallest overlap possible is"):
        cut(model, tmp_path / "impossible", CIRCUIT.model_copy(update={"keep": 3, "max_overlap": 0.1}))


class TestSavedScores:
    def test_selection_needs_no_data_and_is_the_same(self, model: Transformer, tmp_path: Path) -> None:
        first = cut(model, tmp_path / "first")
        again = prune(model, tmp_path / "again", scores=tmp_path / "first", options=CIRCUIT, runtime=CPU)
        assert again.kept_heads == first.kept_heads
        assert again.circuits == (), "nothing to measure them on"
        files = [tmp_path / name / "scores.safetensors" for name in ("first", "again")]
        assert files[0].read_bytes() == files[1].read_bytes()

    def test_data_are_measured_but_not_searched_again(
        self, model: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = cut(model, tmp_path / "first")
        monkeypatch.setattr(circuit, "candidate_logits", None)
        again = cut(model, tmp_path / "again", scores=tmp_path / "first")
        assert again.circuits == first.circuits
        digests = [verify_folder(tmp_path / name).digest for name in ("first", "again")]
        assert digests[0] == digests[1]

    def test_another_number_of_heads_is_another_search(self, model: Transformer, tmp_path: Path) -> None:
        cut(model, tmp_path / "first")
        other = CIRCUIT.model_copy(update={"keep": 1})
        with pytest.raises(UsageError, match=r"no search by task with 1 heads from layer 0.*but task with 2.*--data"):
            prune(model, tmp_path / "other", scores=tmp_path / "first", options=other, runtime=CPU)
        searched = cut(model, tmp_path / "searched", other, scores=tmp_path / "first")
        assert searched.kept_heads == cut(model, tmp_path / "fresh", other).kept_heads

    def test_scores_of_other_data_or_another_model_are_refused(self, model: Transformer, tmp_path: Path) -> None:
        cut(model, tmp_path / "first")
        with pytest.raises(ArtifactError, match="made on other data"):
            cut(model, tmp_path / "other", data=samples(model, 8), scores=tmp_path / "first")
        with pytest.raises(ArtifactError, match="scores are of another method"):
            cut(model, tmp_path / "other", Prune(keep=2), ood=None, scores=tmp_path / "first")
        prune(model, tmp_path / "taylor", data=samples(model, 4), options=Prune(keep=2))
        with pytest.raises(ArtifactError, match="scores are of another method"):
            cut(model, tmp_path / "other", scores=tmp_path / "taylor")
        with pytest.raises(ArtifactError, match="scores are of another model"):
            cut(CASES["timm layer scale"]().model, tmp_path / "other", scores=tmp_path / "first")


class TestInterruption:
    def test_a_search_goes_on_at_the_layer_it_had_reached(
        self, model: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = cut(model, tmp_path / "expected")
        searched: list[int] = []
        whole = circuit.candidate_logits

        def counted(model: Transformer, hidden: object, layer: int, gates: object) -> object:
            searched.append(layer)
            if len(searched) > limit:
                raise KeyboardInterrupt
            return whole(model, hidden, layer, gates)  # type: ignore[arg-type]

        monkeypatch.setattr(circuit, "candidate_logits", counted)
        batches = 3 + 2  # of calibration and foreign data
        limit = 4 * batches + 2  # in layer 1 of the second of three searches
        with pytest.raises(KeyboardInterrupt):
            cut(model, tmp_path / "pruned")
        state = tmp_path / ".pruned.search.safetensors"
        assert sorted(path.name for path in tmp_path.iterdir()) == [state.name, "expected"]
        searched.clear()
        limit = 1000
        result = cut(model, tmp_path / "pruned")
        assert searched == [1] * batches + [2] * batches + [0] * batches + [1] * batches + [2] * batches
        assert result.kept_heads == expected.kept_heads
        assert not state.exists(), "removed when all is written"
        digests = [verify_folder(tmp_path / name).digest for name in ("expected", "pruned")]
        assert digests[0] == digests[1]

    def test_what_is_left_of_other_data_or_damaged_is_not_used(
        self, model: Transformer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        expected = cut(model, tmp_path / "expected")
        state = tmp_path / ".pruned.search.safetensors"
        for content in (b"", b"nonsense", (tmp_path / "expected" / "scores.safetensors").read_bytes()[:-8]):
            state.write_bytes(content)
            assert cut(model, tmp_path / "pruned", overwrite=True).kept_heads == expected.kept_heads
        assert caplog.text.count("is not used") == 3
        cut(model, tmp_path / "of-other-data", data=samples(model, 6))
        state.write_bytes((tmp_path / "of-other-data" / "scores.safetensors").read_bytes())
        assert cut(model, tmp_path / "pruned", overwrite=True).kept_heads == expected.kept_heads
        assert "it is of other data" in caplog.text

    @pytest.mark.slow
    def test_a_killed_process_leaves_what_the_next_one_continues(self, tmp_path: Path) -> None:
        program = (
            "import os, signal, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
            "from tiny.all_cases import CASES; from tiny.samples import samples\n"
            "from compress.pruning import circuit_chooser; from compress.pruning.options import Prune\n"
            "from compress.pruning.prune import prune; from compress.runtime import Runtime\n"
            "model = CASES['timm plain']().model; save = circuit_chooser.save_circuit_scores; saved = []\n"
            "def counted(scores, path):\n"
            "    save(scores, path); saved.append(1)\n"
            "    if len(saved) == int(sys.argv[3]): os.kill(os.getpid(), signal.SIGKILL)\n"
            "circuit_chooser.save_circuit_scores = counted\n"
            "prune(model, Path(sys.argv[2]), data=samples(model, 9), ood=samples(model, 7, seed=5),\n"
            "      options=Prune(method='circuit', keep=2), runtime=Runtime(device='cpu', batch_size=4))\n"
            "print(len(saved))\n"
        )
        tests = str(Path(__file__).parents[1])

        def run(limit: int) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-c", program, tests, str(tmp_path / "pruned"), str(limit)],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

        assert run(5).returncode == -signal.SIGKILL
        finished = run(1000)
        # Nine layers in all, five were done; the last save is that of the artifact.
        assert finished.stdout.strip() == str(9 - 5 + 1), finished.stderr


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (Prune(method="circuit", scope="global"), r"--scope: circuits have no global scope, because"),
            (Prune(method="taylor", objective="task"), r"--objective: only circuits are searched by an objective"),
            (Prune(method="magnitude"), r"--ood: magnitude uses no foreign data"),
            (Prune(method="circuit", members=1, branch_layer="auto"), r"--branch-layer: a single member has none"),
            (Prune(method="circuit", keep=5), r"--keep: cannot keep 5 of 4 heads"),
            (Prune(method="circuit", keep=2, branch_layer=3), r"--branch-layer: branch layer 3 leaves no layer"),
        ],
    )
    def test_options_that_do_not_fit(self, options: Prune, message: str, model: Transformer, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=message):
            cut(model, tmp_path / "pruned", options)
        assert list(tmp_path.iterdir()) == []

    def test_data_that_are_missing(self, model: Transformer, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="needs a foreign validation set; pass --ood"):
            cut(model, tmp_path / "pruned", CIRCUIT.model_copy(update={"objective": "ood"}), ood=None)
        with pytest.raises(UsageError, match="circuits need a calibration set"):
            cut(model, tmp_path / "pruned", data=None)

    def test_pruning_the_members_again_and_fusing_them_work(self, model: Transformer, tmp_path: Path) -> None:
        cut(model, tmp_path / "pruned", CIRCUIT.model_copy(update={"keep": 3}))
        assert fuse(tmp_path / "pruned", tmp_path / "fused").members == 3
        member = load_model(tmp_path / "pruned" / "member-1")
        twice = cut(member, tmp_path / "twice", CIRCUIT.model_copy(update={"members": 1}))
        for before, after in zip(member.structure.kept_heads, twice.kept_heads[0], strict=True):
            assert set(after) < set(before[0])
