"""Why a metric has no value."""

from __future__ import annotations


class UnavailableMetricError(Exception):
    """A metric is not defined for these predictions; the message is the reason a user reads.

    It is not an error of the user: the metric's value becomes ``None`` with this reason, never 0.0.
    """
