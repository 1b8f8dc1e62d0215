"""Options of the ``tune`` stage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from compress.options import Options

Freeze = Literal["trunk", "backbone", "none"]
Shape = Literal["cosine", "linear", "constant"]

NO_EFFECT_ON_RESULT = frozenset({"checkpoint_steps", "log_steps", "workers", "gradient_checkpointing"})
"""Fields that may change between an interrupted call and the one that goes on from it."""


class Training(Options):
    """How a model is trained, whatever the stage: the options of the loop and of its losses."""

    epochs: int = Field(1, ge=1, description="Passes over the data.")
    steps: int | None = Field(None, ge=1, description="Optimizer steps, instead of epochs.")
    batch_size: int = Field(32, ge=1, description="Inputs per forward pass, of all processes together.")
    accumulate: int = Field(1, ge=1, description="Forward passes per optimizer step.")
    lr: float = Field(5e-5, gt=0.0, description="Highest learning rate.")
    schedule: Shape = Field("cosine", description="How the rate falls to 0 after the warm-up; constant: it stays.")
    warmup: float = Field(0.1, ge=0.0, le=1.0, description="Share of the steps in which the rate rises from 0.")
    weight_decay: float = Field(
        0.05, ge=0.0, description="Decay of the matrices (AdamW), tables of embeddings among them; the rest has none."
    )
    beta2: float = Field(
        0.999, ge=0.0, lt=1.0, description="Memory of AdamW for the size of gradients; 0.99 for short trainings."
    )
    layer_decay: float = Field(
        1.0, gt=0.0, le=1.0, description="Factor of the rate from each layer to the one below it."
    )
    clip: float = Field(1.0, ge=0.0, description="Largest norm of the gradient; 0 does not clip.")
    label_smoothing: float = Field(0.0, ge=0.0, lt=1.0, description="Share of the target spread over all classes.")
    diversity: float = Field(
        0.0, ge=0.0, description="Weight of the mutual information between prediction and member, which is raised."
    )
    distill: float = Field(
        0.5, ge=0.0, le=1.0, description="Share of the teacher's targets in the loss, when there is a teacher."
    )
    temperature: float = Field(2.0, gt=0.0, description="Softening of teacher and student for these targets.")
    flip: bool = Field(False, description="Mirror half of the training images, left to right.")
    shift: int = Field(0, ge=0, description="Move training images by up to so many pixels, padding with black.")
    rotate: float = Field(0.0, ge=0.0, le=180.0, description="Turn training images by up to so many degrees.")
    zoom: float = Field(0.0, ge=0.0, lt=1.0, description="Scale training images by up to this share.")
    metric: str = Field("cls/accuracy", description="Metric of eval by which the best checkpoint is chosen.")
    evaluate_steps: int | None = Field(
        None, ge=1, description="Steps between evaluations on the validation set (default: an epoch)."
    )
    patience: int | None = Field(
        None, ge=1, description="Stop after so many evaluations without a better one (default: never)."
    )
    checkpoint_steps: int = Field(500, ge=1, description="Steps between saves of the resumable state.")
    log_steps: int = Field(10, ge=1, description="Steps between lines of the log.")
    workers: int = Field(0, ge=0, description="Processes that read and preprocess data; the result is the same.")
    gradient_checkpointing: bool = Field(
        False, description="Compute activations twice instead of keeping them: less memory, more time."
    )
    seed: int = Field(0, ge=0, description="Seed of data order, augmentation, dropout and random weights.")

    @model_validator(mode="after")
    def _evaluated_in_time(self) -> Training:
        if self.evaluate_steps is not None and self.steps is not None and self.evaluate_steps > self.steps:
            raise ValueError(f"evaluate_steps {self.evaluate_steps} is beyond the last of {self.steps} steps")
        return self


class Tune(Training):
    """Fine-tune a model, separate members or a fused model; or train one from random weights."""

    objective: Literal["labels", "captions"] = Field(
        "labels",
        description="labels: classify; captions: bring images and their captions together, for models of two towers.",
    )
    freeze: Freeze | None = Field(
        None,
        description="What is not trained: trunk (all below the branch layer), backbone (all but the head, i.e. what "
        "follows the last layer), none. Default: the trunk of separate members, else none.",
    )
    from_scratch: bool = Field(False, description="Start from random weights, drawn from the seed.")
    head_dropout: float = Field(
        0.0, ge=0.0, le=1.0, description="Probability that an input loses random heads of a layer, in training."
    )
    head_dropout_keep: int = Field(1, ge=1, description="Fewest heads that head dropout leaves in a layer.")
    head_dropout_from: int = Field(0, ge=0, description="First layer with head dropout.")
    keep_trunk_outputs: bool = Field(
        False,
        description="Run the frozen trunk once per input, not in every epoch of every member; its outputs go to the "
        "disk. For inputs that stay as they are (no augmentation, no teacher).",
    )

    @model_validator(mode="after")
    def _inputs_stay(self) -> Tune:
        changing = [name for name in ("flip", "shift", "rotate", "zoom") if getattr(self, name)]
        if self.keep_trunk_outputs and changing:
            raise ValueError(f"keep_trunk_outputs needs inputs that stay as they are, not {', '.join(changing)}")
        return self


def as_tune(options: Training) -> Tune:
    """The training of another stage as ``tune`` takes it."""
    return Tune.model_validate({name: getattr(options, name) for name in Training.model_fields})
