"""The ``calibrate`` stage: the newest model with a temperature and a threshold of abstention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compress.calibration.options import Calibrate
from compress.recipe.schema import DataSources
from compress.recipe.stages.base import Kind, Stage, StageInputs, required_reference


class CalibrateStage(Stage[Calibrate]):
    """See ``compress.calibration``."""

    options = Calibrate
    accepts: ClassVar[tuple[Kind, ...]] = ("model",)
    produces: ClassVar[Kind | None] = "model"
    label = "calibrated"
    synonyms: ClassVar[Mapping[str, str]] = {"coverage": "target_coverage", "risk": "target_risk"}

    def data(self, sources: DataSources, options: Calibrate) -> Mapping[str, str]:
        """The calibration set, or else the validation set; on the training set a model is surer than it should be."""
        reference = sources.calibration or sources.validation
        return {"calibration": required_reference(reference, "calibration", "on which stage calibrate fits")}

    def execute(self, inputs: StageInputs, options: Calibrate) -> None:
        """Fit, and write the same weights."""
        from compress.calibration.calibrate import calibrate

        calibrate(
            inputs.current or inputs.recipe_model(),
            inputs.target,
            data=inputs.open_data(self.data(inputs.recipe.data, options)["calibration"]),
            options=options,
            runtime=inputs.recipe.runtime,
            overwrite=True,
        )
