"""The shared metrics agree with torch-uncertainty to 1e-6, on random and on adversarial inputs."""

from __future__ import annotations

import warnings

import pytest
import torch

from compress.evaluation.metrics.accuracy import accuracy
from compress.evaluation.metrics.adaptive_calibration_error import adaptive_calibration_error
from compress.evaluation.metrics.aurc import aurc
from compress.evaluation.metrics.brier import brier
from compress.evaluation.metrics.classwise_calibration_error import classwise_calibration_error
from compress.evaluation.metrics.detection import detect
from compress.evaluation.metrics.disagreement import disagreement
from compress.evaluation.metrics.expected_calibration_error import expected_calibration_error
from compress.evaluation.metrics.nll import nll
from compress.evaluation.metrics.ood_aupr_out import ood_aupr_out
from compress.evaluation.metrics.ood_auroc import ood_auroc
from compress.evaluation.metrics.ood_fpr95 import ood_fpr95
from compress.evaluation.metrics.risk_at_coverage import risk_at_80

oracle = pytest.importorskip("torch_uncertainty.metrics.classification")
torchmetrics = pytest.importorskip("torchmetrics.functional.classification")


def case(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Member logits ``(3, N, K)`` in float64 and labels ``(N,)``."""
    generator = torch.Generator().manual_seed(len(name))
    samples, classes = {"binary": (200, 2), "imbalanced": (330, 4)}.get(name, (300, 10))
    logits = torch.randn(3, samples, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (samples,), generator=generator)
    if name == "sharp":
        logits *= 6
    if name == "flat":
        logits *= 1e-3
    if name == "imbalanced":
        labels[:300] = 0
    if name == "one class":
        labels[:] = 3
    if name == "all right":
        labels = logits.softmax(-1).mean(0).argmax(-1)
    if name == "extreme":
        logits = logits.sign() * torch.rand(3, samples, classes, generator=generator, dtype=torch.float64) * 12
    if name == "identical members":
        logits = logits[:1].expand(3, -1, -1)
    return logits, labels


CASES = ["random", "sharp", "flat", "binary", "imbalanced", "one class", "all right", "extreme", "identical members"]


@pytest.mark.parametrize("name", CASES)
def test_classification_calibration_and_selection(columns_of, name) -> None:
    logits, labels = case(name)
    columns = columns_of(logits, labels)
    probabilities = logits.softmax(-1).mean(0)
    classes = probabilities.shape[1]
    ours_and_theirs = [
        (brier, oracle.BrierScore(classes)),
        (nll, oracle.CategoricalNLL()),
        (expected_calibration_error, oracle.CalibrationError("multiclass", num_bins=15, num_classes=classes)),
        (adaptive_calibration_error, oracle.AdaptiveCalibrationError("multiclass", num_bins=15, num_classes=classes)),
        (classwise_calibration_error, oracle.ClasswiseCalibrationError(classes)),
        (aurc, oracle.AURC()),
        (risk_at_80, oracle.RiskAt80Cov()),
    ]
    for ours, metric in ours_and_theirs:
        metric = metric.set_dtype(torch.float64)
        metric.update(probabilities, labels)
        assert float(ours(columns)) == pytest.approx(float(metric.compute()), abs=1e-6), ours.__name__
    assert float(accuracy(columns)) == pytest.approx(
        float(torchmetrics.multiclass_accuracy(probabilities, labels, classes, average="micro")), abs=1e-6
    )


@pytest.mark.parametrize("name", CASES)
def test_diversity(columns_of, name) -> None:
    logits, labels = case(name)
    columns, probabilities = columns_of(logits, labels), logits.softmax(-1).transpose(0, 1)
    metric = oracle.Disagreement()
    metric.update(probabilities)
    assert float(disagreement(columns)) == pytest.approx(float(metric.compute()), abs=1e-6)
    for column, metric in (("mutual_information", oracle.MutualInformation), ("entropy", oracle.Entropy)):
        metric = metric(reduction="none").set_dtype(torch.float64)
        metric.update(probabilities if column == "mutual_information" else probabilities.mean(1))
        assert torch.allclose(getattr(columns, column), metric.compute().double(), atol=1e-6), column


@pytest.mark.parametrize("ratio", [1, 10])
@pytest.mark.parametrize("kind", ["continuous", "ties", "all tied", "inverted", "separated"])
def test_detection(kind, ratio) -> None:
    generator = torch.Generator().manual_seed(ratio)
    inside, outside = torch.rand(40 * ratio, generator=generator), torch.rand(40, generator=generator) * 0.6 + 0.4
    if kind == "ties":
        inside, outside = (inside * 5).round() / 5, (outside * 5).round() / 5
    if kind == "all tied":
        inside, outside = torch.full_like(inside, 0.5), torch.full_like(outside, 0.5)
    if kind == "inverted":
        inside, outside = 1 - inside, 1 - outside
    if kind == "separated":
        inside = inside * 0.3
    scores, labels = (
        torch.cat([inside, outside]),
        torch.cat([torch.zeros_like(inside), torch.ones_like(outside)]).long(),
    )
    detection = detect(inside.double(), outside.double())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = oracle.FPR95(pos_label=1)
    theirs.update(scores, labels)
    assert float(ood_fpr95(detection)) == pytest.approx(float(theirs.compute()), abs=1e-6)
    assert float(ood_auroc(detection)) == pytest.approx(float(torchmetrics.binary_auroc(scores, labels)), abs=1e-6)
    expected = float(torchmetrics.binary_average_precision(scores, labels))
    assert float(ood_aupr_out(detection)) == pytest.approx(expected, abs=1e-6)
