"""How much every head matters, per calibration sample; scored once, selected from often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from compress.artifact.folder import verify_file
from compress.artifact.tensors import TensorFile, read_tensors, tensor_entries, write_tensors
from compress.errors import ArtifactError, ModelError, UsageError

Importance = list[Tensor]
"""Per layer the importance of its heads, ``(n_l,)`` float32; higher means keep."""


@dataclass(frozen=True)
class HeadScores:
    """Importance of every head for every calibration sample.

    Attributes:
        samples: per layer ``(S, n_l)`` float32, at least 0; S = 1 where the method looks at the weights only.
        method: ``taylor``, ``magnitude`` or ``random``.
        model: fingerprint of the scored model.
        data: fingerprint of the calibration set, or None when it plays no part.
        seed: of random scores; None for others, and where it was not written down.
    """

    samples: tuple[Tensor, ...]
    method: str
    model: str
    data: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for layer, scores in enumerate(self.samples):
            bad = torch.nonzero(~torch.isfinite(scores))
            if len(bad):
                sample, head = bad[0].tolist()
                raise ModelError(
                    f"the importance of layer {layer}, head slot {head} is not finite (sample {sample})",
                    fix="look for NaN weights, or score in float32",
                )

    def mean(self) -> Importance:
        """Importance over the whole calibration set."""
        return [_mean(scores) for scores in self.samples]

    def of_members(self, members: int, seed: int) -> list[Importance]:
        """One importance per member.

        Taylor: each member sees its own bootstrap of the calibration set (one member: the set itself). Random: each
        draws its own. Magnitude: all the same.

        Raises:
            UsageError: more members than random scores were drawn for.
        """
        if self.method == "random":
            drawn = len(self.samples[0])
            if members > drawn:
                raise UsageError(
                    f"the random scores were drawn for {drawn} members, not {members}",
                    where="--members",
                    fix="leave --scores out, or make fewer members",
                )
            return [[scores[member] for scores in self.samples] for member in range(members)]
        if members == 1 or self.samples[0].shape[0] == 1:
            return [self.mean() for _ in range(members)]
        return [self._bootstrap(seed, member) for member in range(members)]

    def _bootstrap(self, seed: int, member: int) -> Importance:
        (chosen,) = bootstrap(seed, member, self.samples[0].shape[0])
        return [_mean(scores[chosen]) for scores in self.samples]


def bootstrap(seed: int, member: int, *sizes: int) -> list[Tensor]:
    """Positions drawn with replacement for one member: for each set of ``size`` samples ``(size,)`` int64."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + member)
    return [torch.randint(size, (size,), generator=generator) for size in sizes]


def normalised(importance: Importance) -> Importance:
    """Each layer divided by its Euclidean norm, so that heads of different layers compare (Molchanov et al. 2019)."""
    tiny = torch.finfo(torch.float32).tiny
    return [(wide / wide.norm().clamp_min(tiny)).float() for wide in (scores.double() for scores in importance)]


def _mean(scores: Tensor) -> Tensor:
    """Mean over samples; summed in float64, since machines sum in different orders and the ranking must not differ."""
    return scores.mean(0, dtype=torch.float64).float()


def save_scores(scores: HeadScores, path: Path) -> None:
    """Write ``scores.safetensors``."""
    entries, ties = tensor_entries({f"layer.{layer:03d}": tensor for layer, tensor in enumerate(scores.samples)})
    about: dict[str, Any] = {"method": scores.method, "model": scores.model, "data": scores.data}
    if scores.seed is not None:
        about["seed"] = scores.seed
    write_tensors(path, entries, about, ties=ties)


def scores_file(path: Path) -> Path:
    """The file of scores at ``path``: that of a ``prune`` whose folder it is, else the path itself."""
    return path / "scores.safetensors" if path.is_dir() else path


def open_scores(path: Path, *, model: str, method: str) -> tuple[Path, TensorFile]:
    """The file of scores in ``path`` (a file, or the folder of a ``prune``), of this model and method.

    Raises:
        ArtifactError: no such file, a damaged one, or scores of another model or method.
    """
    path = scores_file(path)
    if not path.is_file():
        raise ArtifactError("no such scores", where=str(path), fix="give the folder of an earlier prune")
    verify_file(path)
    tensors = read_tensors(path)
    for name, expected in (("model", model), ("method", method)):
        if tensors.metadata.get(name) != expected:
            raise ArtifactError(
                f"the scores are of another {name} ({str(tensors.metadata.get(name))[:12]}, not {expected[:12]})",
                where=str(path),
                fix="score again",
            )
    return path, tensors


def load_scores(path: Path, *, model: str, method: str, heads: Sequence[int]) -> HeadScores:
    """Read scores that an earlier ``prune`` wrote, from its folder or its file.

    Raises:
        ArtifactError: no such file, or scores of another model, method or shape.
    """
    path, tensors = open_scores(path, model=model, method=method)
    samples = tuple(tensors[name] for name in sorted(tensors))
    if [scores.shape[-1] for scores in samples] != list(heads):
        raise ArtifactError(
            "the scores have another number of heads than the model", where=str(path), fix="score again"
        )
    seed = tensors.metadata.get("seed")
    return HeadScores(samples, method, model, tensors.metadata.get("data"), seed if isinstance(seed, int) else None)
