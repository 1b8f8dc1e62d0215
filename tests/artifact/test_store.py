"""Models on disk: the same bits in a fresh process, complete offline, never half."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES, ONE_PER_FAMILY
from tiny.hf_folder import LABELS, TEXTS, save_library, save_tokenizer

from compress.artifact.card import model_card
from compress.artifact.folder import verify_folder
from compress.artifact.provenance import Provenance
from compress.artifact.store import load_model, read_config, save_model
from compress.backbones.registry import preprocessor
from compress.errors import ArtifactError
from compress.opening import open_model
from compress.transformer.config import FORMAT_VERSION, Structure
from compress.transformer.surgery import prune_heads

PRUNE = Provenance(stage="prune")


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_artifact_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    kept = [tuple(range(1 + index % 3)) for index, _ in enumerate(case.model.layers)]
    pruned = prune_heads(case.model, kept)
    save_model(pruned, tmp_path / "out", PRUNE)
    loaded = load_model(tmp_path / "out")
    assert loaded.config == pruned.config
    assert not loaded.training
    with torch.inference_mode():
        assert torch.equal(loaded(case.inputs), pruned(case.inputs))


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_a_fresh_process_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    pruned = prune_heads(case.model, [(0, 3), (1,), (0, 1, 2)])
    save_model(pruned, tmp_path / "out", PRUNE)
    inputs = case.inputs if isinstance(case.inputs, torch.Tensor) else dict(case.inputs)
    torch.save(inputs, tmp_path / "inputs.pt")
    code = (
        "import sys, json, torch, compress; torch.set_grad_enabled(False);"
        "print(json.dumps(compress.load(sys.argv[1])(torch.load(sys.argv[2])).double().tolist()))"
    )
    # Offline and from another folder: the artifact is complete.
    moved = shutil.move(tmp_path / "out", tmp_path / "elsewhere")
    fresh = subprocess.run(
        [sys.executable, "-c", code, str(moved), str(tmp_path / "inputs.pt")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "empty")},
        cwd=tmp_path,
    )
    with torch.inference_mode():
        expected = pruned(case.inputs).double()
    assert torch.equal(torch.tensor(json.loads(fresh.stdout), dtype=torch.float64), expected)


def test_a_text_model_is_complete_on_an_empty_machine(tmp_path: Path) -> None:
    """Tokenizer, labels and preprocessing are in the folder: from texts to named classes, with nothing else at hand."""
    save_library(tmp_path / "origin")
    save_tokenizer(tmp_path / "origin")
    opened = open_model(tmp_path / "origin")
    save_model(prune_heads(opened, [(0, 3), (1,), (0, 1, 2)]), tmp_path / "out", PRUNE)
    pruned = load_model(tmp_path / "out")
    with torch.inference_mode():
        expected = pruned(preprocessor(pruned)(TEXTS)).double()
    shutil.rmtree(tmp_path / "origin")
    moved = shutil.move(tmp_path / "out", tmp_path / "déplacé 移动")
    code = (
        "import sys, json, torch, compress; from compress.backbones.registry import preprocessor;"
        "torch.set_grad_enabled(False); model = compress.load(sys.argv[1]);"
        "logits = model(preprocessor(model)(json.loads(sys.argv[2])));"
        "print(json.dumps([model.labels, logits.double().tolist()]))"
    )
    fresh = subprocess.run(
        [sys.executable, "-c", code, str(moved), json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "empty")},
        cwd=tmp_path,
    )
    labels, logits = json.loads(fresh.stdout)
    assert tuple(labels) == tuple(LABELS.values())
    assert torch.equal(torch.tensor(logits, dtype=torch.float64), expected)


def test_tied_parameters_are_one_parameter_again(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    case.model.layers[1].norm1 = case.model.layers[0].norm1
    save_model(case.model, tmp_path / "out", PRUNE)
    loaded = load_model(tmp_path / "out")
    assert loaded.layers[1].norm1.weight is loaded.layers[0].norm1.weight
    assert len(list(loaded.parameters())) == len(list(case.model.parameters()))
    with torch.inference_mode():
        assert torch.equal(loaded(case.inputs), case.model(case.inputs))


def test_equal_models_give_equal_bytes_and_readable_files(tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    before = os.umask(0o022)
    try:
        for name in ("one", "two"):
            save_model(model, tmp_path / name, PRUNE)
    finally:
        os.umask(before)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert verify_folder(tmp_path / "one").digest == verify_folder(tmp_path / "two").digest


def test_the_shared_layer_of_albert_is_stored_once(tmp_path: Path) -> None:
    case = CASES["albert"]()
    save_model(case.model, tmp_path / "out", PRUNE)
    stored = (tmp_path / "out" / "model.safetensors").stat().st_size
    assert stored < 4 * sum(p.numel() for p in case.library.parameters()) + 8192


def test_the_model_card_says_what_it_is(tmp_path: Path) -> None:
    save_model(prune_heads(CASES["timm plain"]().model, [(0, 3), (1,), (0, 1, 2)]), tmp_path / "out", PRUNE)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "| 0 | 4 | 0, 3 |" in card
    assert "\nWritten by `compress prune`. 5 classes.\n" in card


def test_the_card_of_a_fused_model_names_the_layers_that_its_members_share() -> None:
    config = CASES["timm plain"]().model.config
    members = [config.structure.model_copy(update={"kept_heads": (((0,),), ((1,),), ((last,),))}) for last in range(2)]
    fused = config.model_copy(update={"structure": Structure.side_by_side(members)})
    card = model_card(fused, Provenance(stage="fuse"))
    assert "\nWritten by `compress fuse`. 5 classes; the members share layers 0 to 1.\n" in card


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "provenance.json", "README.md", "MANIFEST.json"])
@pytest.mark.parametrize("damage", ["half", "four", "empty", "bit", "gone"])
def test_damage_in_any_file_is_named_with_the_stage_to_rerun(name: str, damage: str, tmp_path: Path) -> None:
    save_model(CASES["timm plain"]().model, tmp_path / "out", PRUNE)
    path = tmp_path / "out" / name
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "bit":
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    else:
        path.write_bytes(content[: {"half": len(content) // 2, "four": 4, "empty": 0}[damage]])
    with pytest.raises(ArtifactError) as caught:
        load_model(tmp_path / "out")
    assert name in str(caught.value)
    assert "again" in str(caught.value)


def test_a_newer_format_is_refused_as_such(tmp_path: Path) -> None:
    save_model(CASES["timm plain"]().model, tmp_path / "out", PRUNE)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "config.json").write_text(
        json.dumps({**config, "format_version": FORMAT_VERSION + 1, "new": 1})
    )
    with pytest.raises(ArtifactError, match=rf"format version {FORMAT_VERSION + 1}.*upgrade"):
        read_config(tmp_path / "out")


@pytest.mark.parametrize("content", ["[]", "{", "null", '{"format_version": "x"}', '{"a": ' * 5000, "\x00"])
def test_a_configuration_that_makes_no_sense_is_an_error_of_the_artifact(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ArtifactError, match="is not a valid configuration"):
        read_config(tmp_path)


def test_a_configuration_without_preprocessing_is_refused(tmp_path: Path) -> None:
    save_model(CASES["timm plain"]().model, tmp_path / "out", PRUNE)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    for change in ({"preprocessing": None}, {"preprocessing": {"kind": "image", "size": [16, 16], "channels": 3}}):
        (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ArtifactError, match="is not a valid configuration"):
            read_config(tmp_path)
    del config["preprocessing"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ArtifactError, match="is not a valid configuration"):
        read_config(tmp_path)


def test_weights_that_do_not_fit_their_configuration_are_refused(tmp_path: Path) -> None:
    model = CASES["timm plain"]().model
    pruned = prune_heads(model, [(0, 3), (1,), (0, 1, 2)])
    pruned.config = model.config
    save_model(pruned, tmp_path / "out", PRUNE)
    with pytest.raises(ArtifactError, match=r"weights do not fit the configuration \(layers\.0\.attention"):
        load_model(tmp_path / "out")


def test_training_a_loaded_model_leaves_its_file_alone(tmp_path: Path) -> None:
    case = CASES["timm plain"]()
    save_model(case.model, tmp_path / "out", PRUNE)
    digest = verify_folder(tmp_path / "out").digest
    loaded = load_model(tmp_path / "out")
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.add_(1)
    assert verify_folder(tmp_path / "out").digest == digest


SAVER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tiny.all_cases import CASES
from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
model = CASES["timm plain"]().model
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        save_model(model, Path(line.strip()), Provenance(stage="prune"), overwrite=True)
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


def test_a_save_killed_at_any_moment_leaves_nothing_that_loads_by_half(tmp_path: Path) -> None:
    """Real weights, SIGKILL after a random delay; what is there afterwards is absent or loads."""
    tests = str(Path(__file__).parents[1])
    server = subprocess.Popen(
        [sys.executable, "-c", SAVER, tests], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    generator = torch.Generator().manual_seed(0)
    outcomes = set()
    for attempt in range(24):
        target = tmp_path / f"out-{attempt % 3}"
        server.stdin.write(f"{target}\n")
        server.stdin.flush()
        child = int(server.stdout.readline())
        time.sleep(float(torch.rand((), generator=generator)) * 0.05)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        assert server.stdout.readline() == "ended\n"
        if target.exists():
            load_model(target)
        outcomes.add(target.exists())
    server.stdin.close()
    server.wait(timeout=30)
    assert outcomes, "at least one save was tried"
