"""What a recipe can do: one file per stage, one line per stage here."""

from __future__ import annotations

from compress.recipe.stages.base import Stage
from compress.registry import Registry

STAGES: Registry[type[Stage]] = Registry(
    "stage",
    {
        "prune": "compress.recipe.stages.prune:PruneStage",
        "fuse": "compress.recipe.stages.fuse:FuseStage",
        "tune": "compress.recipe.stages.tune:TuneStage",
        "budget": "compress.recipe.stages.budget:BudgetStage",
        "route": "compress.recipe.stages.route:RouteStage",
        "calibrate": "compress.recipe.stages.calibrate:CalibrateStage",
        "eval": "compress.recipe.stages.evaluate:EvaluateStage",
    },
)
