"""docs/results.md: tables, pictures and commands, made of the figures alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from families import ENSEMBLE, FAMILIES, LONGER, SINGLE, Family, Row
from figures import (
    ACCURACY,
    DISAGREEMENT,
    ECE,
    FLOPS,
    LATENCY,
    NLL,
    PARAMETERS,
    SHIFTED_ACCURACY,
    SHIFTED_ECE,
    Estimate,
    Figures,
    auroc,
    commands,
    fpr95,
)

OPENING = """\
# Results: three families of real models

<!-- written by benchmarks/reproduce; change its page.py or docs/results/notes.md, not this file -->

What pruning and fusing does to a vision transformer, a BERT and a CLIP, beside the single model and a Deep Ensemble of
three. Everything here is made by

```sh
make reproduce DATA=FOLDER
```

which took {hours:.1f} hours of commands, two at a time on two cores; it goes on where it was interrupted. Every figure
of every seed is in [results/figures.json](results/figures.json). [Where the data come from](data.md).

Measured on: {device}, {dtype}, {allocator}; latencies with {threads} threads.

- A seed is that of the whole chain: random weights or classifier, data order, bootstraps, further training. `±` is half
  of Student's 95 % interval over the seeds; no `±` means one seed, or the same in all.
- *{longer}* and the rows marked • were trained for equally many further steps on the same data, the others not at all
  after the reference. The Deep Ensemble is of the models trained on, of seeds 0, 1 and 2: the same for every seed.
- *temperature*: logits divided by one number that was fitted on the calibration set.
- Quality and latency of a row are of the same weights and number format. Latency is a ratio to the single model, in
  turns within one run, batches of 32; FLOPs are per input. Detection scores are 1 − the largest probability."""

MOST_TIME, LEAST_ACCURACY = 0.40, -0.005


def page(figures: Mapping[str, Any], notes: str) -> str:
    """The whole page; ``notes`` is what a person wrote about it, Markdown."""
    known = [Figures(family, figures[name]) for name, family in FAMILIES.items() if name in figures]
    parts = ["\n".join(_opening(known)), notes.strip()]
    parts += ["\n".join(section(own)) for own in known]
    return "\n\n".join(parts) + "\n"


def _opening(known: Sequence[Figures]) -> Iterator[str]:
    hours = sum(own.hours for own in known)
    place = known[0].environment
    yield OPENING.format(hours=hours, longer=LONGER, **place)


def section(own: Figures) -> Iterator[str]:
    """One family."""
    family = own.family
    yield from ("", f"## {family.title}", "", f"{family.intro} Seeds: {', '.join(own.seeds)}.", "")
    yield from (f"![Accuracy and detection against latency: {family.title}](images/results-{family.name}.png)", "")
    yield from _table(own, "model", _quality(family))
    yield ""
    yield from _table(own, "model", _cost())
    yield from ("", "Against the Deep Ensemble, paired by seed, points:", "")
    yield from _differences(own)
    yield from (
        ("", "The commands, for seed S (MINILM is the folder of the model):", "")
        if _uses_minilm(family)
        else (
            "",
            "The commands, for seed S:",
            "",
        )
    )
    yield from ("```sh", *commands(family), "```")


Column = tuple[str, Callable[[Figures, Row], str]]


def _table(own: Figures, first: str, columns: Sequence[Column]) -> Iterator[str]:
    yield f"| {first} | {' | '.join(title for title, _ in columns)} |"
    yield f"|---{'|---' * len(columns)}|"
    for row in own.family.rows:
        name = f"{row.name} •" if row.more else row.name
        yield f"| {name} | {' | '.join(cell(own, row) for _, cell in columns)} |"


def _quality(family: Family) -> list[Column]:
    columns = [
        ("accuracy", _percent(ACCURACY)),
        ("NLL", _plain(NLL)),
        ("ECE", _percent(ECE)),
        (f"accuracy, {family.shifted[0]}", _percent(SHIFTED_ACCURACY)),
        ("ECE there", _percent(SHIFTED_ECE)),
    ]
    for foreign in family.foreign:
        columns += [(f"AUROC {foreign}", _percent(auroc(foreign))), (f"FPR95 {foreign}", _percent(fpr95(foreign)))]
    return [*columns, ("disagreement", _percent(DISAGREEMENT))]


def _cost() -> list[Column]:
    return [
        ("parameters", lambda own, row: _millions(own.of(row.name, PARAMETERS))),
        ("FLOPs", lambda own, row: _millions(own.of(row.name, FLOPS))),
        ("FLOPs × single", lambda own, row: f"{own.ratio(row.name, SINGLE, FLOPS).mean:.2f}"),
        ("latency × single", lambda own, row: _spread(own.time(row.name), 1, 2)),
        ("latency × Deep Ensemble", lambda own, row: _spread(own.ratio(row.name, ENSEMBLE, LATENCY), 1, 2)),
    ]


def _percent(metric: str) -> Callable[[Figures, Row], str]:
    return lambda own, row: _spread(own.of(row.name, metric), 100, 1)


def _plain(metric: str) -> Callable[[Figures, Row], str]:
    return lambda own, row: _spread(own.of(row.name, metric), 1, 3)


def _spread(found: Estimate | None, factor: float, digits: int) -> str:
    if found is None:
        return "–"
    shown = f"{factor * found.mean:.{digits}f}"
    return shown if found.half_width is None else f"{shown} ± {factor * found.half_width:.{digits}f}"


def _millions(found: Estimate | None) -> str:
    return "–" if found is None else f"{found.mean / 1e6:.2f} M"


def _differences(own: Figures) -> Iterator[str]:
    metrics = [("accuracy", ACCURACY), ("ECE", ECE), *((f"AUROC {name}", auroc(name)) for name in own.family.foreign)]
    yield f"| model | {' | '.join(title for title, _ in metrics)} | target: accuracy ≥ −0.5 at ≤ 0.40 of the latency |"
    yield f"|---{'|---' * len(metrics)}|---|"
    for row in own.family.rows:
        if row.name in (SINGLE, ENSEMBLE):
            continue
        found = [own.difference(row.name, ENSEMBLE, metric) for _, metric in metrics]
        cells = [_signed(difference) for difference in found]
        near = found[0].mean >= LEAST_ACCURACY
        quick = own.ratio(row.name, ENSEMBLE, LATENCY).mean <= MOST_TIME
        verdict = (
            "met"
            if near and quick
            else "missed: "
            + " and ".join(word for word, failed in (("accuracy", not near), ("latency", not quick)) if failed)
        )
        yield f"| {row.name} | {' | '.join(cells)} | {verdict if 'fused' in row.name else '–'} |"


def _signed(found: Estimate) -> str:
    shown = f"{100 * found.mean:+.1f}".replace("-", "−")
    if found.half_width is None:
        return shown
    return f"{shown} ± {100 * found.half_width:.1f}{', noise' if found.noise else ''}"


def _uses_minilm(family: Family) -> bool:
    return any("{minilm}" in setting for setting in family.reference_settings)
