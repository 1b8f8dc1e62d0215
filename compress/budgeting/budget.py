"""The ``budget`` stage: a model that chooses for every input how many heads run, and which."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from compress.artifact.folder import check_target
from compress.attention.budget_config import BudgetConfig
from compress.attention.head_chooser import HeadChooser
from compress.budgeting.loss import BudgetLoss
from compress.budgeting.measuring import Measured, measure_budgets
from compress.budgeting.options import Budget
from compress.budgeting.shifting import check_reachable, least_share, shift_predictors
from compress.data.base import Dataset, given_dataset
from compress.data.reference import image_folders
from compress.data.subset import even_places, take
from compress.distributed import processes
from compress.errors import DataError
from compress.opening import open_model
from compress.parent import parent_of
from compress.runtime import Runtime
from compress.transformer.budgets import budgeted_attentions, with_budgets
from compress.transformer.cost import count_cost
from compress.transformer.model import Transformer
from compress.tuning.job import Job, Tuned, fitting
from compress.tuning.log import require_tensorboard
from compress.tuning.metric import checkpoint_metric
from compress.tuning.one import tune_one
from compress.tuning.options import Tune, as_tune
from compress.tuning.seeds import derived_seed
from compress.tuning.starting import starting_model
from compress.tuning.state import remove_states

log = logging.getLogger(__name__)
MEASURED_SAMPLES = 1024
WORTH_CHOOSING = 50e6
"""FLOPs of a layer's attention per input: at 35 M (MiniLM, sentences) choosing heads cost as much time as it saved on a
CPU, at 900 M (ViT-B/16) it saved half, at 1 M it took three times as long as the heads."""
"""Training samples that budgets are shifted and measured on when there is no calibration set."""
MISSED = 0.01
"""Distance from the share that was asked for beyond which the result says that it was missed."""
OUTSIDE = 0.05
"""Distance of the mean share from the range min to max beyond which a warning says that it was not reached."""


@dataclass(frozen=True)
class BudgetResult:
    """What ``budget`` wrote.

    Attributes:
        folder: the artifact.
        tuned: the training.
        measured: the budgets that came out, on the calibration set.
        shift: what was added to the logits of all budgets; 0 without ``calibrate_to``.
        calibrate_to: the share of the heads that was asked for on the calibration set, or None.
    """

    folder: Path
    tuned: Tuned
    measured: Measured
    shift: float
    calibrate_to: float | None = None

    @property
    def missed(self) -> bool:
        """Whether another share runs on the calibration set than was asked for."""
        return self.calibrate_to is not None and abs(self.measured.mean - self.calibrate_to) > MISSED

    def table(self) -> str:
        """A short text for the terminal."""
        found = self.measured
        lines = [
            self.tuned.outcome(),
            f"{found.mean:.3f} of the heads run (5 % of the inputs below {found.p05:.3f}, 5 % above {found.p95:.3f})",
            f"accuracy {found.accuracy:.4f} with the other heads skipped, {found.soft_accuracy:.4f} with all weighted, "
            f"on {found.samples:,} samples",
        ]
        if self.missed:
            lines.append(f"asked for {self.calibrate_to:.3f} of the heads: no shift of the predictors came nearer")
        return "\n".join([*lines, f"written to {self.folder}"])

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        plain = {**asdict(self), "folder": str(self.folder)}
        plain["measured"]["collapsed"] = self.measured.collapsed
        return plain


def budget(
    model: str | Path | Transformer,
    out: str | Path,
    *,
    data: str | Dataset,
    validation: str | Dataset | None = None,
    calibration: str | Dataset | None = None,
    teacher: str | Path | Transformer | None = None,
    options: Budget | None = None,
    runtime: Runtime | None = None,
    tensorboard: str | Path | None = None,
    overwrite: bool = False,
) -> BudgetResult:
    """Attach budgets to a model and train it with them.

    Works on single, pruned and fused models; of a fused one every member has its own budgets from the branch layer on.
    An interrupted call goes on when it is repeated.

    Args:
        model: see ``open_model``.
        out: folder to write.
        data: labelled training set.
        validation: labelled set that is measured before and after; the last weights are kept, as an earlier checkpoint
            has another budget.
        calibration: labelled set that ``calibrate_to`` is met on, and the budgets are measured on; default: the
            validation set, else a part of the training set.
        teacher: a model with the same labels and preprocessing whose predictions are learned too.
        options: see ``Budget``.
        runtime: device and number format; its batch size is that of measuring.
        tensorboard: folder for TensorBoard's event files.
        overwrite: replace an artifact that is there.

    Raises:
        CompressError: a bad option, model, data set or place, or a loss that is not finite; nothing is written.
        KeyboardInterrupt: SIGINT or SIGTERM came; the state is saved.

    Source: BudgetFormer, arXiv 2604.22583.
    """
    options, runtime, out = options or Budget(), runtime or Runtime(), Path(out)
    metric = checkpoint_metric(options, {}, validation is not None)
    dataset, checked = given_dataset(data), None if validation is None else given_dataset(validation)
    job = Job(
        out=out,
        dataset=dataset,
        options=_once_evaluated(options),
        runtime=runtime,
        team=processes(runtime.torch_device()),
        validation=checked,
        metric=metric,
        teacher=None if teacher is None else open_model(teacher),
        extra_losses=(BudgetLoss(options),),
        only=(HeadChooser,) if options.train == "predictor" else (),
        stage="budget",
        stage_options=options,
        tensorboard=_events(tensorboard),
        overwrite=overwrite,
    )
    given = checked or _some(dataset) if calibration is None else given_dataset(calibration)
    return _train(job, model, _Finishing(given, options, runtime))


def _events(folder: str | Path | None) -> Path | None:
    """The folder of TensorBoard's files; raises ``UsageError`` when it is not installed."""
    if folder is None:
        return None
    require_tensorboard()
    return Path(folder)


def _train(job: Job, given: str | Path | Transformer, finishing: _Finishing) -> BudgetResult:
    job.team.on_main(
        lambda: check_target(job.out, overwrite=job.overwrite, inputs=(given,), outside=image_folders(job.dataset))
    )
    start = starting_model(given, job.dataset, from_scratch=False, seed=job.options.seed)
    _warn_of_little_to_save(start)
    parent = parent_of(given, start)
    budgeted = attach_budgets(start, finishing.options)
    finishing.check(budgeted)
    branch_layer = start.structure.branch_layer if start.structure.members > 1 else 0
    tuned = tune_one(job, budgeted, parent, job.options, branch_layer, finish=finishing)
    job.team.on_main(lambda: remove_states(job.out))
    result = BudgetResult(job.out, tuned, finishing.measured, finishing.shift, finishing.options.calibrate_to)
    if result.missed:
        log.warning(
            "asked for %.3f of the heads, %.3f run on the calibration set: no shift of the predictors came nearer; use "
            "more samples, or train with --min and --max around the share",
            result.calibrate_to,
            result.measured.mean,
        )
    return result


def _warn_of_little_to_save(model: Transformer) -> None:
    """Say when a layer's attention is so cheap that choosing its heads may take longer than they do."""
    largest = max(layer.attention for layer in count_cost(model).layers)
    if largest < WORTH_CHOOSING:
        log.warning(
            "attention takes at most %.1f MFLOPs per layer and input: choosing heads may take longer than it saves; "
            "compress bench --budget shows it",
            largest / 1e6,
        )


def attach_budgets(model: Transformer, options: Budget) -> Transformer:
    """The model with fresh budgets, all of them 1 until training begins."""
    config = BudgetConfig(
        hidden=options.hidden, temperature=options.head_temperature, choice=options.choice, fixed=options.fixed
    )
    budgeted = with_budgets(model, config)
    generator = torch.Generator().manual_seed(derived_seed(options.seed, "budgets"))
    for _, attention in budgeted_attentions(budgeted):
        attention.chooser.start(generator)
        attention.chooser.rate_factor = options.predictor_lr / options.lr
    budgeted.budget(1.0)
    return budgeted


class _Finishing:
    """Shifts and measures the budgets of a trained model.

    Args:
        dataset: labelled.
        options, runtime: of the stage.

    Attributes:
        options: of the stage.
        measured, shift: see ``BudgetResult``; set by the call.
    """

    measured: Measured
    shift: float = 0.0

    def __init__(self, dataset: Dataset, options: Budget, runtime: Runtime) -> None:
        self.options, self._dataset, self._runtime = options, dataset, runtime

    def check(self, model: Transformer) -> None:
        """Raise ``CompressError`` for data or a share that would come to nothing after the training."""
        if not len(fitting(self._dataset, model)):
            raise DataError("has no samples", where=self._dataset.reference, fix="choose data with samples")
        if self.options.calibrate_to is not None:
            check_reachable(model, self.options.calibrate_to)

    def __call__(self, model: Transformer, tuned: Tuned) -> dict[str, Any]:
        """Leave the training behind, shift, measure; returns notes for the provenance."""
        for _, attention in budgeted_attentions(model):
            attention.gating, attention.temperature = None, attention.rule.temperature
        model.budget(None)
        dataset, dtype = fitting(self._dataset, model), next(model.parameters()).dtype
        device, computed = self._runtime.torch_device(), self._runtime.torch_dtype()
        # The weights are written: they stay as they are, and the number format is autocast, as in the training.
        model.to(device, torch.float32).eval()
        runtime, target = self._runtime.model_copy(update={"dtype": "float32"}), self.options.calibrate_to
        with torch.autocast(device.type, computed, enabled=computed != torch.float32):
            if target is not None:
                self.shift = shift_predictors(model, dataset, runtime, target)
            self.measured = measure_budgets(model, dataset, runtime)
        model.to("cpu", dtype)
        if self.options.fixed is None:
            self._warn(least_share(model))
        return {
            "budget": asdict(self.measured) | {"collapsed": self.measured.collapsed},
            "shift": self.shift,
            "calibration": dataset.fingerprint,
        }

    def _warn(self, least: float) -> None:
        """Say when the budgets are not what they were trained to be; one sentence, as the first cause explains both.

        Args:
            least: share that runs when every layer runs one head, which no training gets below.
        """
        found, low, high = self.measured, self.options.min, self.options.max
        beyond = max(found.mean - max(high, least), low - found.mean)
        if beyond > OUTSIDE and self.options.calibrate_to is None:
            log.warning(
                "%.3f of the heads run, but the budgets were to lie between --min %g and --max %g: they were not "
                "reached; train longer, or raise --budget-weight or --predictor-lr",
                found.mean,
                low,
                high,
            )
        elif found.collapsed:
            log.warning(
                "every input gets the same budget, %.3f of the heads (nine of ten %.3f to %.3f): the predictors have "
                "collapsed; widen --min and --max, train longer, or lower --budget-weight",
                found.mean,
                found.p05,
                found.p95,
            )


def _once_evaluated(options: Budget) -> Tune:
    """The training, with evaluations before the first step and after the last only."""
    return as_tune(options).model_copy(update={"evaluate_steps": options.steps or 2**62})


def _some(dataset: Dataset) -> Dataset:
    """Samples from all over the set, which may be sorted by class."""
    return take(dataset, even_places(len(dataset), MEASURED_SAMPLES))
