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
from steps import LATENCY_BATCH

OPENING = """\
# Results: real models beside Deep Ensembles

<!-- written by benchmarks/reproduce; change its page.py or docs/results/notes.md, not this file -->

What pruning and fusing does to a vision transformer, a BERT and a CLIP, beside the single model and a Deep Ensemble of
three. Everything here is made by

```sh
make reproduce DATA=FOLDER
```

which goes on where it was interrupted. Every figure of every seed is in [results/figures.json](results/figures.json).
[Where the data come from, and what is trained, chosen and tested on which part](data.md).

- A seed is that of the whole chain: random weights or classifier, data order, bootstraps, further training. `±` is half
  of Student's 95 % interval over the seeds; no `±` means one seed, or the same in all.
- *{longer}* and the rows marked • were trained for equally many further steps on the same data, the others not at all
  after the reference. Fused, budgeted and routed models learned from the reference's predictions too (half of the loss,
  `teacher: single`), which the reference itself cannot; in *members tuned* each of the three had all the steps.
- The Deep Ensemble is of the models trained on, of seeds 0, 1 and 2. It is the same for every seed, so its own
  variation is in no `±`.
- *temperature*: logits divided by one number that was fitted on the calibration set.
- Quality and latency of a row are of the same weights and number format. Latency is a ratio to the single model, in
  turns within one run, batches of {batch}; FLOPs are per input. Detection scores are 1 − the largest probability."""

TIME_SHARE, ACCURACY_LOSS = 0.40, -0.005


def page(figures: Mapping[str, Any], notes: str) -> str:
    """The whole page; ``notes`` is what a person wrote about it, Markdown."""
    known = [Figures(family, figures[name]) for name, family in FAMILIES.items() if name in figures]
    parts = [OPENING.format(longer=LONGER, batch=LATENCY_BATCH), notes.strip()]
    parts += ["\n".join(section(own)) for own in known]
    return "\n\n".join(parts) + "\n"


def section(own: Figures) -> Iterator[str]:
    """One family."""
    family = own.family
    place = own.environment
    yield from (f"## {family.title}", "", f"{family.intro} Seeds: {', '.join(own.seeds)}.", "")
    yield (
        f"{own.hours:.1f} hours of commands, {own.jobs} at a time on {own.cores} cores. Latencies: {place['device']}, "
        f"{place['threads']} threads, {place['dtype']}, {place['allocator']}."
    )
    yield ""
    yield from (f"![Accuracy and detection against latency: {family.title}](images/results-{family.name}.png)", "")
    for title, columns in _tables(family):
        yield from (title, "", *_table(own, columns), "")
    yield from (
        f"Against what they are to replace, points; *{LONGER}* of the same seed. The targets: accuracy at most "
        f"{-100 * ACCURACY_LOSS} below the Deep Ensemble's, at {TIME_SHARE} of its latency; AUROC at least the Deep "
        f"Ensemble's; ECE at most that of *{LONGER}*. A target is *open* where the interval contains its limit.",
        "",
        *_differences(own),
        "",
        f"The commands, for seed S{' (MINILM is the folder of the model)' if family.reference_settings else ''}:",
        "",
        "```sh",
        *commands(family),
        "```",
    )


Column = tuple[str, Callable[[Figures, Row], str]]


def _table(own: Figures, columns: Sequence[Column]) -> Iterator[str]:
    yield f"| model | {' | '.join(title for title, _ in columns)} |"
    yield f"|---{'|---' * len(columns)}|"
    for row in own.family.rows:
        name = f"{row.name} •" if row.more else row.name
        yield f"| {name} | {' | '.join(cell(own, row) for _, cell in columns)} |"


def _tables(family: Family) -> Iterator[tuple[str, list[Column]]]:
    """Titles and columns."""
    shifted = family.shifted[0]
    yield (
        "Classification and calibration, percent, NLL in nats:",
        [
            ("accuracy", _percent(ACCURACY)),
            ("NLL", _plain(NLL)),
            ("ECE", _percent(ECE)),
            (f"accuracy, {shifted}", _percent(SHIFTED_ACCURACY)),
            (f"ECE, {shifted}", _percent(SHIFTED_ECE)),
            ("disagreement", _percent(DISAGREEMENT)),
        ],
    )
    detection = [
        [(f"AUROC {foreign}", _percent(auroc(foreign))), (f"FPR95 {foreign}", _percent(fpr95(foreign)))]
        for foreign in family.foreign
    ]
    yield "Detection of foreign inputs, percent:", [column for pair in detection for column in pair]
    yield (
        "Cost:",
        [
            ("parameters", lambda own, row: _millions(own.of(row.name, PARAMETERS))),
            ("FLOPs", lambda own, row: _millions(own.of(row.name, FLOPS))),
            ("FLOPs × single", _ratio(FLOPS, SINGLE)),
            ("latency × single", _ratio(LATENCY, SINGLE)),
            ("latency × Deep Ensemble", _ratio(LATENCY, ENSEMBLE)),
        ],
    )


def _ratio(metric: str, other: str) -> Callable[[Figures, Row], str]:
    return lambda own, row: _spread(own.ratio(row.name, other, metric), 1, 2)


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
    foreign = own.family.foreign
    titles = ["accuracy − Deep Ensemble", *(f"AUROC {name} − Deep Ensemble" for name in foreign), f"ECE − {LONGER}"]
    yield f"| model | {' | '.join(titles)} | targets |"
    yield f"|---{'|---' * len(titles)}|---|"
    for row in own.family.rows:
        if "fused" not in row.name:
            continue
        accuracy = own.difference(row.name, ENSEMBLE, ACCURACY)
        detection = [own.difference(row.name, ENSEMBLE, auroc(name)) for name in foreign]
        calibration = own.difference(row.name, LONGER, ECE)
        latency = own.ratio(row.name, ENSEMBLE, LATENCY)
        cells = [_signed(found) for found in (accuracy, *detection, calibration)]
        verdicts = [
            _verdict("accuracy", accuracy.mean >= ACCURACY_LOSS, accuracy.differs_from(ACCURACY_LOSS)),
            _verdict("latency", latency.mean <= TIME_SHARE, latency.differs_from(TIME_SHARE)),
            *(
                _verdict(f"AUROC {name}", found.mean >= 0, found.differs_from(0))
                for name, found in zip(foreign, detection, strict=True)
            ),
            _verdict("ECE", calibration.mean <= 0, calibration.differs_from(0)),
        ]
        yield f"| {row.name} | {' | '.join(cells)} | {', '.join(verdicts)} |"


def _verdict(name: str, met: bool, sure: bool) -> str:
    return f"{name} {'open' if not sure else 'met' if met else 'missed'}"


def _signed(found: Estimate) -> str:
    shown = f"{100 * found.mean:+.1f}".replace("-", "−")
    return shown if found.half_width is None else f"{shown} ± {100 * found.half_width:.1f}"
