from __future__ import annotations

import subprocess
import sys

import pytest

from compress.errors import UsageError
from compress.evaluation.metrics.registry import METRICS, OOD_SCORES, catalogue


def test_every_name_leads_to_a_function() -> None:
    for registry in (METRICS, OOD_SCORES):
        assert all(callable(registry[name]) for name in registry)


def test_catalogue_and_registry_list_the_same_metrics() -> None:
    targets = {metric.target for metric in catalogue(["svhn"]).values() if metric.target is not None}
    assert targets == set(METRICS)


def test_names_of_the_design() -> None:
    names = catalogue(["svhn"])
    expected = [
        *("cls/accuracy", "cls/nll", "cls/brier", "cal/ece", "cal/ace", "sc/aurc", "div/disagreement", "div/kl"),
        *("div/jaccard", "ood/svhn/auroc", "ood/svhn/aupr_in", "ood/svhn/aupr_out", "ood/svhn/fpr95"),
        *("ood/svhn/entropy/auroc", "ood/svhn/energy/fpr95", "cost/params", "cost/flops", "cost/latency_ms"),
    ]
    assert [name for name in expected if name not in names] == []
    assert all(metric.name == name and metric.description for name, metric in names.items())


@pytest.mark.parametrize("name", ["", "a/b", "two words", "a<b"])
def test_a_set_that_no_gate_could_name_is_refused(name) -> None:
    with pytest.raises(UsageError, match="--ood"):
        catalogue([name])


def test_names_are_known_without_torch() -> None:
    modules = "compress.evaluation.metrics.registry, compress.evaluation.gates, compress.evaluation.result"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
