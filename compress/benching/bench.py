"""``bench``: what variants of a model cost on this machine, measured in turns."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compress.artifact.durable import write_bytes, write_failure
from compress.backbones.registry import ADAPTERS
from compress.benching.measure import measured
from compress.benching.options import Bench
from compress.benching.result import BenchResult, BenchRun
from compress.benching.variants import LIBRARY, SINGLE, Variant, baselines, derived, of_subject, original, with_changes
from compress.errors import UsageError
from compress.evaluation.environment import current_environment
from compress.evaluation.subject import Subject, open_subject
from compress.opening import artifact_folder, parse_source
from compress.runtime import DType, Runtime
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

log = logging.getLogger(__name__)
RESULT, TABLE, PICTURE = "bench.json", "bench.txt", "bench"


def bench(
    model: str | Path | nn.Module,
    out: str | Path | None = None,
    *,
    against: Mapping[str, str | Path | nn.Module] | None = None,
    arguments: Mapping[str, Any] | None = None,
    options: Bench | None = None,
) -> BenchResult:
    """Measure time, FLOPs and memory of a model and its variants, beside the library's own model.

    A single model, trained or with random weights, is compared with what could be made of it: a Deep Ensemble, separate
    pruned members, and these fused at several branch layers. An artifact that is pruned or fused already is compared
    as it is.

    Args:
        model: an artifact's folder; ``timm:NAME``, ``open_clip:NAME`` or ``hf:ID-or-folder-or-class``, which gets
            random weights without reading any; or a model.
        out: folder for ``bench.json``, ``bench.txt``, ``bench.png`` and ``bench.svg``; None writes nothing.
        against: further artifacts or models, by name.
        arguments: the family's own arguments, such as ``{"tower": "text"}``; not for an artifact.
        options: what is compared, and how it is measured.

    Raises:
        CompressError: a model that cannot be opened, an option that does not fit it, a place that cannot be written.
    """
    options = options or Bench()
    opened = {str(model): _opened(model, options, arguments or {})}
    opened |= {name: _opened(given, options, {}) for name, given in (against or {}).items()}
    taken = [name for name in opened if name in (LIBRARY, SINGLE)]
    if taken:
        raise UsageError(f"the name {taken[0]!r} is that of a baseline", where="--against", fix="choose another name")
    folder = None if out is None else _made(Path(out))
    with _threads(options.threads):
        runs = [run for dtype in options.dtype for run in _runs(opened, dtype, options)]
    shown = str(model) if isinstance(model, str | Path) else type(model).__name__
    result = BenchResult(model=shown, torch=torch.__version__, runs=tuple(runs))
    if folder is not None:
        _write(result, folder)
    return result


def _opened(given: str | Path | nn.Module, options: Bench, arguments: Mapping[str, Any]) -> str | Path | nn.Module:
    """An artifact or a model as it was given; a family's model with random weights."""
    is_artifact = isinstance(given, nn.Module) or artifact_folder(given) is not None
    if is_artifact:
        changes = {"--image-size": options.image_size, "--argument": arguments or None}
        for option, value in changes.items():
            if value is not None:
                raise UsageError("the shape of an artifact is fixed", where=option, fix="leave it out")
        return given
    source = parse_source(str(given), {"arguments": dict(arguments)})
    return ADAPTERS[source.adapter].untrained(source, options.image_size)


def _runs(opened: Mapping[str, str | Path | nn.Module], dtype: DType, options: Bench) -> Iterator[BenchRun]:
    """One run per batch size, all on the same variants."""
    runtime = Runtime(device=options.device, dtype=dtype)
    device = runtime.torch_device()
    subjects = [open_subject(name, given, runtime) for name, given in opened.items()]
    _check_length(subjects[0], options.length)
    variants = list(_variants(subjects, options))
    for batch in options.batch:
        inputs = _inputs(subjects[0], batch, options, runtime)
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        log.info("batch %d, %s: %d variants, %d rounds", batch, dtype, len(variants), options.warmup + options.repeats)
        with torch.inference_mode():
            tokens = subjects[0].models[0].embed(inputs).states.shape[1]
            rows = measured(variants, inputs, batch, options, device)
        environment = current_environment(device, dtype)
        yield BenchRun(batch=batch, tokens=tokens, environment=environment, load=load, rows=tuple(rows))
    del variants, subjects
    gc.collect()


def _variants(subjects: Sequence[Subject], options: Bench) -> Iterator[Variant]:
    """The two baselines, what can be derived of a single model, and artifacts as they are."""
    first = subjects[0]
    config = first.models[0].config
    whole = first.kind == "single" and config.budget is None and config.routing is None
    tensor = next(first.module.parameters())
    single = first.models[0] if whole else original(config).to(tensor.device, tensor.dtype)
    pair = baselines(single, options.length)
    yield pair[0]
    yield from with_changes(pair[1], single, options)
    if whole:
        yield from derived(single, pair[0], options)
    for subject in subjects[1:] if whole else subjects:
        yield from _as_it_is(subject, options)


def _as_it_is(subject: Subject, options: Bench) -> Iterator[Variant]:
    variant = of_subject(subject, options.length)
    if options.bare and isinstance(subject.module, Transformer):
        yield from with_changes(variant, subject.module, options.model_copy(update={"budget": None, "capacity": None}))
    else:
        yield variant


def _inputs(subject: Subject, batch: int, options: Bench, runtime: Runtime) -> Inputs:
    """Random images, or texts of full length without padding."""
    example = subject.models[0].stem.example(batch, options.length)
    if isinstance(example, torch.Tensor):
        generator = torch.Generator().manual_seed(0)
        return torch.randn(example.shape, generator=generator).to(example.device, runtime.torch_dtype())
    return example


def _check_length(subject: Subject, length: int | None) -> None:
    if length is not None and subject.models[0].config.preprocessing.kind != "text":
        raise UsageError("a model of images has no length", where="--length", fix="use --image-size")


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Within the block one operation uses ``count`` CPU threads; None leaves them as they are."""
    before = torch.get_num_threads()
    try:
        if count is not None:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)


def _made(out: Path) -> Path:
    """The folder, before anything is measured; raises ``ArtifactError`` when there can be none."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failure(error, out) from error
    return out


def _write(result: BenchResult, out: Path) -> None:
    from compress.benching.picture import draw

    write_bytes(out / RESULT, result.to_json().encode())
    write_bytes(out / TABLE, f"{result.table()}\n".encode())
    for suffix, content in draw(result).items():
        write_bytes(out / f"{PICTURE}.{suffix}", content)
