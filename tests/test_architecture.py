"""Imports go one way, families stay behind their adapters, and starting costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import compress

PACKAGE = Path(compress.__file__).parent
FAMILIES = {"timm", "transformers", "open_clip"}
STAGES = {"pruning", "fusion", "tuning", "calibration", "prediction", "budgeting", "routing"}

# What a part may import besides itself. A stage never imports another stage; nothing imports recipe or cli.
# Evaluation lies below the stages: they choose checkpoints and thresholds by its metrics.
BASE = {"errors", "home", "references", "columns", "options", "registry", "runtime", "progress"}
MODEL = BASE | {"data", "attention", "transformer"}
SHARED = MODEL | {"backbones", "artifact", "opening", "parent", "placing", "distributed"}
MEASURED = SHARED | {"inference", "evaluation"}
ALLOWED: dict[str, set[str]] = {
    "allocator": set(),
    "errors": set(),
    "home": set(),
    "options": set(),
    "progress": set(),
    "references": {"home"},
    "columns": set(),
    "registry": {"errors"},
    "runtime": {"errors", "options"},
    "data": BASE,
    "attention": BASE,
    "transformer": BASE | {"data", "attention"},
    "placing": MODEL,
    "distributed": MODEL | {"placing"},
    "backbones": MODEL,
    "artifact": MODEL | {"backbones"},
    "opening": MODEL | {"backbones", "artifact"},
    "parent": MODEL | {"backbones", "artifact", "opening"},
    "inference": SHARED,
    "evaluation": SHARED | {"inference", "allocator"},
    "exporting": SHARED,
    "publishing": {"errors", "progress", "artifact"},
    **dict.fromkeys(STAGES, MEASURED),
    # Budgets and routers are trained by the project's one loop.
    **dict.fromkeys(("budgeting", "routing"), MEASURED | {"tuning"}),
    "recipe": MEASURED | STAGES,
    "sweeping": MEASURED | STAGES,
    "benching": MEASURED | STAGES,
    "cli": MEASURED | STAGES | {"recipe", "sweeping", "benching", "exporting", "publishing"},
}


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def test_imports_go_one_way() -> None:
    wrong = []
    for path, tree in sources():
        part = part_of(path)
        if part in ("__init__", "__main__"):
            continue
        for name in imported(tree):
            pieces = name.split(".")
            if pieces[0] == "compress" and len(pieces) > 1 and pieces[1] not in ALLOWED[part] | {part}:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_only_backbones_import_model_families() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path, tree in sources()
        if part_of(path) != "backbones"
        for name in imported(tree)
        if name.split(".")[0] in FAMILIES
    ]
    # A stage that trains both towers of a CLIP needs the library's own model; it asks the adapter for it.
    assert not wrong, "\n".join(wrong)


def test_forward_is_never_assigned_and_classes_are_never_renamed() -> None:
    wrong = []
    for path, tree in sources():
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            wrong += [
                f"{path.relative_to(PACKAGE)}:{node.lineno}"
                for target in targets
                if isinstance(target, ast.Attribute) and target.attr in ("forward", "__class__", "__name__")
            ]
    assert not wrong, "\n".join(wrong)


def test_home_folders_are_found_in_one_place() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: use compress.home.expanded, which does not raise"
        for path, tree in sources()
        if part_of(path) != "home"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "expanduser"
    ]
    assert not wrong, "\n".join(wrong)


def test_files_and_functions_are_small() -> None:
    long = []
    for path, tree in sources():
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > 400:
            long.append(f"{path.relative_to(PACKAGE)} has {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 60:
                long.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}")
    assert not long, "\n".join(long)


@pytest.mark.parametrize("command", ["import compress", "import compress; compress.Prune(keep=3)"])
def test_importing_the_package_imports_no_torch(command: str) -> None:
    code = f"{command}; import sys; print([name for name in ('torch', 'timm', 'transformers') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_public_names_exist() -> None:
    for name in compress.__all__:
        assert callable(getattr(compress, name))
    with pytest.raises(AttributeError, match="no attribute 'prun'"):
        _ = compress.prun  # type: ignore[attr-defined]
