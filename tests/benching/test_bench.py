"""Benchmarks: what is compared, that the figures belong together, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from tiny.timm_cases import CASES

import compress
from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.benching.bench import bench
from compress.benching.measure import measured
from compress.benching.options import Bench
from compress.benching.result import BenchResult
from compress.benching.variants import baselines, derived, original
from compress.cli.main import main
from compress.errors import ArtifactError, UsageError
from compress.fusion.fuse import fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.transformer.cost import count_cost

QUICK = {"keep": 1, "batch": (2,), "repeats": 2, "warmup": 0, "device": "cpu"}
TINY = {"patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 4, "num_classes": 5}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model ``m``, its pruned copies ``pruned`` and these fused, ``fused``."""
    root = tmp_path_factory.mktemp("bench")
    save_model(CASES["timm plain"]().model, root / "m", Provenance(stage="test"))
    prune(root / "m", root / "pruned", options=Prune(method="random", keep=2, branch_layer=1))
    fuse(root / "pruned", root / "fused")
    return root


def test_a_family_s_model_without_weights_and_what_could_be_made_of_it(tmp_path: Path) -> None:
    options = Bench(**QUICK, branch_layer=(1,), bare=True, image_size=16, memory=False)
    result = bench("timm:vit_tiny_patch16_224", tmp_path / "out", arguments=TINY, options=options)
    (run,) = result.runs
    assert (run.batch, run.tokens, run.environment.dtype) == (2, 17, "float32")
    assert [(row.kind, row.members, row.branch_layer) for row in run.rows] == [
        ("library", 1, None),
        ("single", 1, None),
        ("bare", 1, None),
        ("deep_ensemble", 3, None),
        ("members", 3, None),
        ("fused", 3, 1),
        ("bare", 3, 1),
    ]
    library, single, _, ensemble, *_ = run.rows
    assert (library.time_ratio, library.flops_ratio, single.time_ratio_single) == (1, 1, 1)
    assert ensemble.flops_ratio == 3
    assert ensemble.params == 3 * library.params
    assert single.flops < library.flops, "the pooled token alone asks in the last layer"
    for row in run.rows:
        assert row.time_ratio == pytest.approx(row.latency.median_ms / library.latency.median_ms)
        assert row.flops_ratio_single == pytest.approx(row.flops / single.flops)
        assert row.throughput == pytest.approx(2000 / row.latency.median_ms)
    written = (tmp_path / "out" / "bench.json").read_text(encoding="utf-8")
    assert BenchResult.model_validate_json(written) == result
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("bench.json", "bench.txt", "bench.png", "bench.svg")
    }
    assert "3 fused at 1, bare" in (tmp_path / "out" / "bench.svg").read_text(encoding="utf-8")


def test_an_artifact_is_compared_as_it_is(place: Path) -> None:
    options = Bench(**QUICK)
    result = bench(place / "fused", against={"apart": place / "pruned"}, options=options)
    kinds = {row.name: row.kind for row in result.runs[0].rows}
    assert list(kinds.values()) == ["library", "single", "fused", "members"]
    fused, single = compress.load(place / "fused"), compress.load(place / "m")
    by_kind = {row.kind: row for row in result.runs[0].rows}
    assert by_kind["fused"].flops == count_cost(fused).flops
    assert by_kind["fused"].branch_layer == 1
    assert by_kind["single"].flops == count_cost(single).flops
    peaks = [row.peak_mb for row in result.runs[0].rows]
    assert all(peak is not None or row.reason for peak, row in zip(peaks, result.runs[0].rows, strict=True))


def test_every_dtype_and_batch_size_is_a_run_on_the_same_variants(place: Path) -> None:
    options = Bench(**QUICK | {"batch": (1, 3), "dtype": ("float32", "bfloat16"), "members": 2, "memory": False})
    result = bench(place / "m", options=options)
    assert [(run.environment.dtype, run.batch) for run in result.runs] == [
        *(("float32", 1), ("float32", 3), ("bfloat16", 1), ("bfloat16", 3))
    ]
    names = [row.name for row in result.runs[0].rows]
    assert names == [
        "library",
        "single",
        "Deep Ensemble of 2",
        "2 pruned models",
        *(f"2 fused at {b}" for b in (0, 1, 2)),
    ]
    assert all([row.name for row in run.rows] == names for run in result.runs)
    assert "batch 3, 17 tokens, bfloat16" in result.table()


def test_budgets_and_routers_leave_work_out_that_the_figures_know_of(place: Path) -> None:
    options = Bench(**QUICK, branch_layer=(1,), separate=False, budget=0.5, capacity=0.25, memory=False)
    rows = {row.name: row for row in bench(place / "m", options=options).runs[0].rows}
    assert list(rows) == [
        "library",
        *("single", "single, budget 0.5", "single, capacity 0.25"),
        *("3 fused at 1", "3 fused at 1, budget 0.5", "3 fused at 1, capacity 0.25"),
    ]
    half, quarter = rows["single, budget 0.5"], rows["single, capacity 0.25"]
    assert (half.kind, quarter.kind) == ("budgeted", "routed")
    assert min(half.params, quarter.params) > rows["single"].params, "predictors and routers are parameters too"
    assert half.flops < rows["single"].flops
    assert quarter.flops < rows["single"].flops
    assert half.flops_ratio_single == pytest.approx(half.flops / rows["single"].flops)


def test_one_member_is_a_pruned_model(place: Path) -> None:
    rows = bench(place / "m", options=Bench(**QUICK, members=1, memory=False)).runs[0].rows
    assert [row.kind for row in rows] == ["library", "single", "pruned"]
    assert rows[2].flops < rows[1].flops


def test_separate_models_share_no_weight_and_members_differ_from_the_branch_layer_on() -> None:
    single = original(CASES["timm plain"]().model.config)
    library, _ = baselines(single, None)
    ensemble, members, fused = derived(single, library, Bench(keep=2, trunk_keep=3, branch_layer=(1,)))
    for variant in (ensemble, members):
        pointers = [parameter.data_ptr() for parameter in variant.module.parameters()]
        assert len(set(pointers)) == len(pointers)
    structure = fused.module.structure
    assert structure.branch_layer == 1
    assert structure.kept_heads[0] == ((0, 1, 2),)
    assert structure.kept_heads[1] == ((0, 1), (2, 3), (0, 1))
    assert members.flops > fused.flops


def test_compiled_variants_are_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda module, dynamic: compiled.append(module) or module)
    single = original(CASES["timm plain"]().model.config)
    variants = baselines(single, None)
    options = Bench(**QUICK, compile=True, memory=False)
    with torch.inference_mode():
        rows = measured(variants, single.stem.example(2), 2, options, torch.device("cpu"))
    assert [(row.name, row.compiled) for row in rows] == [
        *(("library", False), ("library", True), ("single", False), ("single", True))
    ]
    assert compiled == [variant.module for variant in variants]


def test_threads_are_as_before_afterwards(place: Path) -> None:
    before = torch.get_num_threads()
    result = bench(place / "fused", options=Bench(**QUICK, threads=before + 1, memory=False))
    assert result.runs[0].environment.threads == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("m", "--image-size", "32"), "--image-size: the shape of an artifact is fixed"),
        (("m", "--argument", "depth=3"), "--argument: the shape of an artifact is fixed"),
        (("m", "--length", "8"), "--length: a model of images has no length"),
        (("m", "--keep", "4"), "--keep: members that keep all heads do not differ"),
        (("m", "--keep", "2", "--branch-layer", "3"), "--branch-layer: branch layer 3 leaves no layer"),
        (("m", "--batch", "0"), "--batch"),
        (("m", "--against", "single=fused"), "the name 'single' is that of a baseline"),
        (("nowhere",), "nowhere: no such file or folder"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple, message: str
) -> None:
    monkeypatch.chdir(place)
    assert main(["bench", *arguments, "--repeats", "1", "--device", "cpu", "--no-memory"]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("compress: error")]
    assert len(error) == 1
    assert message in error[0]


def test_the_command_prints_the_table_or_json(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    quick = ("--batch", "1,2", "--repeats", "1", "--warmup", "0", "--device", "cpu", "--no-memory")
    assert main(["bench", "fused", "--against", "two=pruned", *quick, "--json", "-"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["schema"], plain["schema_version"]) == ("compress/bench", 1)
    assert [run["batch"] for run in plain["runs"]] == [1, 2]
    assert [row["name"] for row in plain["runs"][0]["rows"]] == ["library", "single", "fused", "two"]
    assert main(["bench", "fused", *quick]) == 0
    table = capsys.readouterr().out
    assert "quartiles" in table
    assert not math.isnan(float(table.split("library")[1].split()[0]))


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(place: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="file: cannot be written"):
        bench(place / "m", tmp_path / "file", options=Bench(**QUICK))


def test_zero_rounds_are_no_measurement() -> None:
    with pytest.raises(ValueError, match="repeats"):
        Bench(repeats=0)
    with pytest.raises(UsageError, match="keep at most 3"):
        bench(CASES["timm plain"]().model, options=Bench(**QUICK | {"keep": 4}))
