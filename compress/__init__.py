"""Prune attention heads of pretrained transformers, fuse the pruned copies, and measure what it costs and knows.

Importing this package imports none of the heavy libraries; each function below is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compress.artifact.store import load_model as load
    from compress.benching.bench import bench
    from compress.benching.options import Bench
    from compress.budgeting.budget import budget
    from compress.budgeting.options import Budget
    from compress.calibration.calibrate import calibrate
    from compress.calibration.options import Calibrate
    from compress.data.base import open_dataset
    from compress.errors import CompressError
    from compress.evaluation.evaluate import evaluate
    from compress.evaluation.options import Evaluate
    from compress.evaluation.stored.evaluate import evaluate_stored
    from compress.exporting.export import export
    from compress.exporting.options import Export
    from compress.fusion.fuse import fuse
    from compress.fusion.options import Fuse
    from compress.opening import open_model
    from compress.prediction.predict import predict
    from compress.pruning.options import Prune
    from compress.pruning.prune import prune
    from compress.publishing.push import push
    from compress.routing.options import Route
    from compress.routing.route import route
    from compress.runtime import Runtime
    from compress.sweeping.grid import Grid
    from compress.sweeping.sweep import sweep
    from compress.tuning.options import Tune
    from compress.tuning.tune import tune

__version__ = "0.1.0"

_PUBLIC = {
    "Bench": "compress.benching.options:Bench",
    "Budget": "compress.budgeting.options:Budget",
    "Calibrate": "compress.calibration.options:Calibrate",
    "CompressError": "compress.errors:CompressError",
    "Evaluate": "compress.evaluation.options:Evaluate",
    "Export": "compress.exporting.options:Export",
    "Fuse": "compress.fusion.options:Fuse",
    "Grid": "compress.sweeping.grid:Grid",
    "Prune": "compress.pruning.options:Prune",
    "Route": "compress.routing.options:Route",
    "Runtime": "compress.runtime:Runtime",
    "Tune": "compress.tuning.options:Tune",
    "bench": "compress.benching.bench:bench",
    "budget": "compress.budgeting.budget:budget",
    "calibrate": "compress.calibration.calibrate:calibrate",
    "evaluate": "compress.evaluation.evaluate:evaluate",
    "evaluate_stored": "compress.evaluation.stored.evaluate:evaluate_stored",
    "export": "compress.exporting.export:export",
    "fuse": "compress.fusion.fuse:fuse",
    "load": "compress.artifact.store:load_model",
    "open_dataset": "compress.data.base:open_dataset",
    "open_model": "compress.opening:open_model",
    "predict": "compress.prediction.predict:predict",
    "prune": "compress.pruning.prune:prune",
    "push": "compress.publishing.push:push",
    "route": "compress.routing.route:route",
    "sweep": "compress.sweeping.sweep:sweep",
    "tune": "compress.tuning.tune:tune",
}

__all__ = [
    "Bench",
    "Budget",
    "Calibrate",
    "CompressError",
    "Evaluate",
    "Export",
    "Fuse",
    "Grid",
    "Prune",
    "Route",
    "Runtime",
    "Tune",
    "bench",
    "budget",
    "calibrate",
    "evaluate",
    "evaluate_stored",
    "export",
    "fuse",
    "load",
    "open_dataset",
    "open_model",
    "predict",
    "prune",
    "push",
    "route",
    "sweep",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
