"""The training loop: the only one of the project."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from compress.data.base import Dataset
from compress.data.reading import read_ahead
from compress.errors import ModelError
from compress.runtime import Runtime
from compress.tuning.batches import TrainingBatch, TrainingBatches
from compress.tuning.checkpoint import load_checkpoint, save_checkpoint
from compress.tuning.engine import Machine
from compress.tuning.finite import first_non_finite, first_non_finite_gradient
from compress.tuning.interruption import Interruption
from compress.tuning.learner import Learner
from compress.tuning.log import LOG_NAME, TrainingLog
from compress.tuning.optimizer import check_bound, set_rate
from compress.tuning.options import Tune
from compress.tuning.order import Order
from compress.tuning.schedule import rate_factor
from compress.tuning.seeds import derived_seed
from compress.tuning.state import CheckpointStore, Progress
from compress.tuning.validation import Validation

logger = logging.getLogger(__name__)


class Loop:
    """One training.

    Args:
        learner: what is trained; on the machine's device.
        dataset: labelled samples.
        validation: what the best weights are chosen on; None keeps the last.
        options: see ``Tune``.
        runtime: for evaluations.
        place: where and with whom this process trains.
        folder: where the log and the resumable state lie.
    """

    def __init__(
        self,
        learner: Learner,
        dataset: Dataset,
        validation: Validation | None,
        options: Tune,
        runtime: Runtime,
        place: Machine,
        folder: Path,
    ) -> None:
        self.learner, self.validation, self.options, self.runtime = learner, validation, options, runtime
        self.place, self.store = place, CheckpointStore(folder)
        self.order = Order(len(dataset), options.batch_size, options.accumulate, options.seed)
        self.steps = options.steps or options.epochs * self.order.steps_per_epoch
        self.evaluate_steps = options.evaluate_steps or self.order.steps_per_epoch
        self.batches = TrainingBatches(dataset, learner.make_inputs(), self.order, place.team)
        optimizer = learner.optimizer()
        check_bound(optimizer, learner.weights)
        self.objective, self.optimizer = place.accelerator.prepare(learner.objective, optimizer)

        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        self.log: TrainingLog | None = None
        self._sums: dict[str, Tensor] = {}
        self._summed_steps = 0

    def train(self, label: str, tensorboard: Path | None) -> Progress:
        """Go on where an interrupted training of the same folder stood, to the end; the best weights are kept.

        Raises:
            KeyboardInterrupt: SIGINT or SIGTERM came; the state is saved.
            ModelError: a loss is not finite.
        """
        with Interruption() as interruption, contextlib.ExitStack() as stack:
            self._resume()
            if self.place.team.is_main:
                self.log = stack.enter_context(self._new_log(label, tensorboard))
            self._run(interruption)
        if self.best:
            self.learner.weights.load_state_dict(self.best)
        return self.progress

    def _resume(self) -> None:
        found = load_checkpoint(self.store, self.place)
        if found is not None:
            self.progress, self.best = found
            if self.progress.step:
                self.learner.prepare(self.progress.step - 1, self.steps)
            logger.info("going on after step %d of %d", self.progress.step, self.steps)

    def _new_log(self, label: str, tensorboard: Path | None) -> TrainingLog:
        return TrainingLog(
            self.store.folder / LOG_NAME,
            start=self.progress.step,
            samples_before=self.order.samples_before(self.progress.step),
            samples=self.order.samples_before(self.steps),
            label=label,
            tensorboard=tensorboard,
        )

    def _run(self, interruption: Interruption) -> None:
        """All steps that are left, with evaluations and checkpoints."""
        self.learner.set_training()
        self._evaluate_if_due(interruption)
        first, end = self.order.first_pass(self.progress.step), self.order.first_pass(self.steps)
        pin = self.place.device.type == "cuda"
        batches = self.batches.between(first, end, workers=self.options.workers, pin=pin)
        if not self.options.workers:  # which read ahead by themselves
            batches = read_ahead(batches)
        while self.progress.step < self.steps and not self._is_over():
            if self._step(batches, interruption):
                self._stop()
            self._evaluate_if_due(interruption)
            if self.progress.step % self.options.checkpoint_steps == 0 and self.progress.step < self.steps:
                self._save()

    def _is_over(self) -> bool:
        patience = self.options.patience
        return patience is not None and self.progress.without_gain >= patience

    def _step(self, batches: Iterator[TrainingBatch], interruption: Interruption) -> bool:
        """One optimizer step; returns whether an interruption was asked for."""
        step, options, accelerator = self.progress.step, self.options, self.place.accelerator
        # Every random number of a step follows from its number, so a resumed training draws the same ones.
        torch.manual_seed(derived_seed(options.seed, "step", step, self.place.team.index))
        rate = set_rate(self.optimizer, rate_factor(step, self.steps, warmup=options.warmup, shape=options.schedule))
        self.optimizer.zero_grad(set_to_none=True)
        losses = torch.zeros((), device=self.place.device)
        passes = self.order.passes(step)
        for number in range(1, passes + 1):
            batch = next(batches)
            with contextlib.nullcontext() if number == passes else accelerator.no_sync(self.objective):
                terms = self._forward(batch)
                # Several processes average their gradients; the weights are made for their sum.
                accelerator.backward(terms["loss"] * self.place.team.count)
            for name, term in terms.items():
                self._sums[name] = self._sums.get(name, 0.0) + term.detach()
            losses += terms["loss"].detach()
        norm = accelerator.clip_grad_norm_(self.learner.weights.parameters(), options.clip) if options.clip else None
        stop = self._check(batch, losses, norm, interruption)
        self.optimizer.step()
        self.learner.stepped()
        self.progress = self.progress.model_copy(update={"step": step + 1})
        self._report(rate, norm)
        return stop

    def _forward(self, batch: TrainingBatch) -> dict[str, Tensor]:
        with self.place.autocast():
            return self.learner.losses(self.objective, batch, self.progress.step, self.steps)

    def _check(self, batch: TrainingBatch, losses: Tensor, norm: Tensor | None, interruption: Interruption) -> bool:
        """What all processes must agree on: raises when a loss or a gradient is not finite, returns whether to stop."""
        broken = ~(losses if norm is None else losses + norm).isfinite()
        status = torch.stack([broken, torch.tensor(interruption.requested, device=broken.device)]).float()
        bad, stop = self.place.summed(status).tolist()
        if bad:
            # Gradients are shared by all processes: the one whose own forward pass broke knows where.
            _, what, samples = min(self.place.team.together(lambda: self._non_finite(batch, losses)))
            number = batch.share.number % self.order.passes_per_epoch + 1
            raise ModelError(
                f"the loss is not finite at step {self.progress.step + 1} of {self.steps} ({what})",
                where=f"batch {number} of {self.order.passes_per_epoch}, samples {samples}",
                fix="lower --lr, lengthen --warmup, or look at these samples",
            )
        return bool(stop)

    def _non_finite(self, batch: TrainingBatch, losses: Tensor) -> tuple[bool, str, str]:
        """Whether the forward pass was finite, the first place that is not, and the samples of the batch."""
        weights = self.learner.weights
        if bool(losses.isfinite()):
            return True, first_non_finite_gradient(weights), _some(batch.ids)
        return False, first_non_finite(weights, lambda: self._forward(batch)), _some(batch.ids)

    def _report(self, rate: float, norm: Tensor | None) -> None:
        """Move the bar; every ``log_steps`` write the mean losses since the last line."""
        step = self.progress.step
        self._summed_steps += 1
        if self.log is not None:
            self.log.advance(self.order.samples_before(step) - self.order.samples_before(step - 1))
        if step % self.options.log_steps and step < self.steps:
            return
        names = sorted(self._sums)
        means = self.place.summed(torch.stack([self._sums[name] for name in names]) / self._summed_steps)
        self._sums, self._summed_steps = {}, 0
        if self.log is not None:
            values = dict(zip(names, means.tolist(), strict=True))
            if norm is not None:
                values["gradient_norm"] = float(norm)
            self.log.step(step, {"epoch": step / self.order.steps_per_epoch, "lr": rate, **values})

    def _evaluate_if_due(self, interruption: Interruption) -> None:
        """Before the first step, every ``evaluate_steps``, and after the last; once each."""
        step = self.progress.step
        due = step % self.evaluate_steps == 0 or step == self.steps
        if self.validation is None or not due or self.progress.evaluated == step:
            return
        try:
            with interruption.at_once(self.place.team.count == 1), self.place.autocast():
                score = self.learner.evaluate(self.validation, self.runtime)
        except KeyboardInterrupt:
            self._stop()  # the state is of before this evaluation, with which a resumed training begins
        finally:
            self.learner.set_training()
        self._note(score.value, self.validation)
        if self.log is not None:
            self.log.evaluation(step, score.shown, best=self.progress.best_step == step)

    def _note(self, value: float, validation: Validation) -> None:
        """Remember the best weights; those before any training are no candidate."""
        step = self.progress.step
        update: dict[str, object] = {"evaluated": step}
        if step == 0:
            update["first"] = value
        elif validation.is_better(value, self.progress.best):
            state = self.learner.weights.state_dict()
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
            update |= {"best": value, "best_step": step, "without_gain": 0}
        else:
            update["without_gain"] = self.progress.without_gain + 1
        self.progress = self.progress.model_copy(update=update)

    def _save(self) -> None:
        save_checkpoint(self.store, self.place, self.progress, self.best)

    def _stop(self) -> None:
        """Save the state and end.

        Raises:
            KeyboardInterrupt: always.
        """
        self._save()
        logger.warning("stopped after step %d of %d; the same call goes on from there", self.progress.step, self.steps)
        raise KeyboardInterrupt


def _some(ids: tuple[str, ...], limit: int = 4) -> str:
    return ", ".join(ids[:limit]) + (", …" if len(ids) > limit else "")
