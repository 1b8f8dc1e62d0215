"""What baselines are built with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from compress.data.base import Dataset
from compress.evaluation.baselines.specification import BASELINES, Baseline, parse_baseline
from compress.evaluation.options import Evaluate
from compress.evaluation.subject import Subject, open_subject
from compress.runtime import Runtime


@dataclass(frozen=True)
class Opening:
    """How models are opened in one evaluation.

    Attributes:
        runtime: device, number format, batch size.
        options: of the evaluation.
        calibration: labelled data on which a baseline may fit something; None when the user gave none.
    """

    runtime: Runtime
    options: Evaluate
    calibration: Dataset | None = None

    def subject(self, name: str, given: str | Path | nn.Module | Baseline) -> Subject:
        """Open a model or build a baseline.

        Raises:
            CompressError: it cannot be opened or built.
        """
        baseline = parse_baseline(given) if isinstance(given, str) else given
        if not isinstance(baseline, Baseline):
            return open_subject(name, given, self.runtime)  # type: ignore[arg-type]
        subject = BASELINES[baseline.kind](name, baseline.models, self)
        subject.baseline, subject.reference = baseline.kind, baseline.reference
        return subject
