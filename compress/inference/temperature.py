"""Temperature scaling."""

from __future__ import annotations

import logging
import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from compress.errors import DataError
from compress.transformer.combine import log_mean_probabilities

logger = logging.getLogger(__name__)

LOWEST, HIGHEST = 0.05, 20.0
GRID = 25


def fit_temperature(member_logits: Tensor, labels: Tensor) -> float:
    """The temperature T that minimises the negative log-likelihood of mean_m softmax(z_m / T).

    One T for all members divides the members' logits, and not the combined ones: then the same number works for
    separate members, for the fused model and for every score that is made from member logits, and softmax of the
    combined logits stays the mean of the members' probabilities. The loss is that of the mean, which is what a user
    gets. For a single model this is ordinary temperature scaling.

    The search is over log T between 0.05 and 20, in float64, first on a grid (the loss of several members may have
    several minima), then by Brent's method. A set on which the model makes no mistake would ask for T = 0, which is
    not known to be right anywhere else: T stays 1, and the log says so.

    Args:
        member_logits: ``(M, N, K)``, with N calibration samples.
        labels: ``(N,)`` int64.

    Raises:
        DataError: there is no sample, or a logit is not finite.

    Source: Guo et al., ICML 2017 (arXiv 1706.04599), section 4.2; for ensembles, Rahaman and Thiery, NeurIPS 2021
    (arXiv 2007.08792), who scale after pooling.
    """
    logits = member_logits.detach().cpu().to(torch.float64)
    if logits.shape[1] == 0:
        raise DataError("there is no sample to fit a temperature to", fix="give a calibration set with samples")
    if not bool(logits.isfinite().all()):
        raise DataError("a logit of the calibration set is not finite", fix="check the model's weights")
    predicted = logits.softmax(dim=-1).mean(dim=0).argmax(dim=-1)
    if torch.equal(predicted, labels.cpu()):
        logger.warning("the model makes no mistake on the %d calibration samples: the temperature stays 1", len(labels))
        return 1.0
    index = labels.cpu()[None, :, None].expand(len(logits), -1, 1)

    def loss(log_temperature: float) -> float:
        log_members = (logits / math.exp(log_temperature)).log_softmax(dim=-1).gather(2, index).squeeze(2)
        return float(-log_mean_probabilities(log_members).mean())

    low, high = math.log(LOWEST), math.log(HIGHEST)
    step = (high - low) / (GRID - 1)
    best = min((low + step * number for number in range(GRID)), key=loss)
    bounds = (max(low, best - step), min(high, best + step))
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-7})
    # The bounded search never tries the bounds themselves.
    chosen = min((float(found.x), best), key=loss)
    return math.exp(chosen)
