"""What every metric is computed from: per-sample columns, reduced batch by batch from the members' logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from compress.errors import DataError
from compress.evaluation.binning import CALIBRATION_BINS
from compress.evaluation.input_use import InputUse
from compress.evaluation.reduction import FIXED_POINT, reduce_logits
from compress.evaluation.ties import TieGroups, group_ties
from compress.evaluation.unavailable import UnavailableMetricError

# Logits are reduced about this many at a time: large enough to hide the cost of many small operations, small enough
# that float64 intermediates stay below 100 MB.
LOGITS_PER_REDUCTION = 1 << 20

KeptHeads = Sequence[Sequence[Sequence[int]]]


@dataclass(frozen=True, eq=False)
class Columns:
    """One row per sample, on the CPU, float64; N samples, M members, K classes.

    p̄ is the mean of the members' probabilities. A column is ``None`` when it needs labels, or at least two members,
    and there are none. Memory grows with N (about 100 bytes a sample), never with N × K.

    Attributes:
        ids: the samples' identities, in order.
        classes: K; 0 for an empty set.
        members: M; 0 for an empty set.
        labels: ``(N,)`` int64, or ``None`` for an unlabelled set.
        predicted: ``(N,)`` int64, argmax of p̄ (ties to the lowest class).
        confidence: ``(N,)``, max of p̄.
        correct: ``(N,)`` bool.
        top5_correct: ``(N,)`` bool; ``None`` also when K ≤ 5.
        nll: ``(N,)``, −log p̄ of the label, in nats.
        brier: ``(N,)``, Σ_k (p̄_k − y_k)².
        entropy: ``(N,)``, H(p̄) in nats.
        mutual_information: ``(N,)``, H(p̄) − mean_m H(p_m) in nats; needs two members.
        energy: ``(N,)``, mean over members of −logsumexp(logits); high for out-of-distribution inputs.
        max_logit: ``(N,)``, mean over members of the largest logit; low for out-of-distribution inputs.
        kl: ``(N,)``, mean of KL(p_m ‖ p_n) over ordered pairs m ≠ n, in nats; needs two members.
        member_predicted: ``(M, N)`` int32, each member's class.
        class_bin_gaps: ``(K, bins)``, Σ (p̄_k − y_k) over the samples whose p̄_k falls into the bin.
        non_finite: identities of samples whose logits are NaN or infinite; metrics refuse them.
    """

    ids: tuple[str, ...]
    classes: int
    members: int
    labels: Tensor | None
    predicted: Tensor
    confidence: Tensor
    correct: Tensor | None
    top5_correct: Tensor | None
    nll: Tensor | None
    brier: Tensor | None
    entropy: Tensor
    mutual_information: Tensor | None
    energy: Tensor
    max_logit: Tensor
    kl: Tensor | None
    member_predicted: Tensor
    class_bin_gaps: Tensor | None
    non_finite: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def confidence_groups(self) -> TieGroups:
        """Samples grouped by equal confidence."""
        return group_ties(self.confidence)

    def checked(self, column: Tensor) -> Tensor:
        """The column itself; raises ``UnavailableMetricError`` for an empty set or logits that are not finite."""
        if not len(self):
            raise UnavailableMetricError("the set is empty")
        if self.non_finite:
            raise UnavailableMetricError(
                f"logits of {len(self.non_finite)} of {len(self)} inputs are not finite (first: {self.non_finite[0]})"
            )
        return column

    def labelled(self, column: Tensor | None) -> Tensor:
        """A column that needs labels; raises ``UnavailableMetricError`` when there are none."""
        self.checked(self.predicted)
        if self.labels is None or column is None:
            raise UnavailableMetricError("the set has no labels")
        return column

    def between_members(self, column: Tensor | None) -> Tensor:
        """A column that compares members; raises ``UnavailableMetricError`` when the model has a single one."""
        self.checked(self.predicted)
        if self.members < 2 or column is None:
            raise UnavailableMetricError("needs at least two members")
        return column


@dataclass(frozen=True, eq=False)
class Predictions:
    """One model's columns on the evaluated set and on each out-of-distribution set.

    Attributes:
        test: columns of the evaluated set.
        ood: columns by the name of the out-of-distribution set.
        kept_heads: ``kept_heads[layer][member]`` lists the heads kept, by their number in the original model; ``None``
            when unknown.
        branch_layer: first layer in which members may differ; the overlap of heads counts from here on.
        use: heads, tokens and FLOPs of every input of the evaluated set; ``None`` when each was given everything, or
            when that is not known.
    """

    test: Columns
    ood: Mapping[str, Columns] = field(default_factory=dict)
    kept_heads: KeptHeads | None = None
    branch_layer: int = 0
    use: InputUse | None = None


class ColumnCollector:
    """Turns batches of member logits into ``Columns``.

    Logits wait on their device and are reduced about a million at a time, so an accelerator is not made to wait after
    each batch, and the cost per batch stays small.
    """

    def __init__(self) -> None:
        self._waiting: list[Tensor] = []
        self._waiting_labels: list[Tensor | None] = []
        self._waiting_logits = 0
        self._parts: list[dict[str, Tensor]] = []
        self._ids: list[str] = []
        self._shape: tuple[int, int, bool] | None = None
        self._reduced_samples = 0

    def add(self, member_logits: Tensor, labels: Tensor | None, ids: Sequence[str]) -> None:
        """Add a batch.

        Args:
            member_logits: ``(M, B, K)``, any floating dtype and device; a single model has M = 1.
            labels: ``(B,)`` class indices, or ``None`` for every batch of an unlabelled set.
            ids: B identities.

        Raises:
            ValueError: the shapes do not fit each other or the batches before.
            DataError: a label lies outside ``0 .. K - 1`` (found when the batch is reduced).
        """
        if member_logits.ndim != 3:
            raise ValueError(f"member_logits must have shape (M, B, K), not {tuple(member_logits.shape)}")
        members, samples, classes = member_logits.shape
        if len(ids) != samples or (labels is not None and labels.shape != (samples,)):
            raise ValueError(
                f"{samples} rows of logits, {len(ids)} ids, labels {None if labels is None else labels.shape}"
            )
        kind = (members, classes, labels is not None)
        if self._shape is None:
            self._shape = kind
        elif kind != self._shape:
            raise ValueError(f"(members, classes, labelled) is {kind} in this batch and {self._shape} in the first")
        # A compiled model may reuse its output buffer for the next batch.
        self._waiting.append(member_logits.detach().clone())
        self._waiting_labels.append(labels)
        self._ids.extend(ids)
        self._waiting_logits += member_logits.numel()
        if self._waiting_logits >= LOGITS_PER_REDUCTION:
            self.reduce()

    def extend(self, later: ColumnCollector) -> None:
        """Append what another collector has gathered on the samples that follow.

        Raises:
            ValueError: it was gathered from a model or data of another shape.
        """
        self.reduce()
        later.reduce()
        if later._shape is None:
            return
        if self._shape not in (None, later._shape):
            raise ValueError(f"(members, classes, labelled) is {later._shape} and was {self._shape}")
        self._shape = later._shape
        self._parts.extend(later._parts)
        self._ids.extend(later._ids)
        self._reduced_samples += later._reduced_samples

    def reduce(self) -> None:
        """Turn the logits that wait into columns on the CPU."""
        if not self._waiting:
            return
        logits = torch.cat(self._waiting, dim=1)
        present = [labels for labels in self._waiting_labels if labels is not None]
        labels = torch.cat(present) if present else None
        if labels is not None:
            self._check_labels(labels, logits.shape[2])
        rows = max(1, LOGITS_PER_REDUCTION // max(1, logits.shape[0] * logits.shape[2]))
        for start in range(0, logits.shape[1], rows):
            part = slice(start, start + rows)
            self._parts.append(reduce_logits(logits[:, part], None if labels is None else labels[part]))
        self._reduced_samples += logits.shape[1]
        self._waiting, self._waiting_labels, self._waiting_logits = [], [], 0

    def _check_labels(self, labels: Tensor, classes: int) -> None:
        outside = torch.nonzero((labels < 0) | (labels >= classes)).flatten()
        if len(outside):
            row = int(outside[0])
            raise DataError(
                f"label {int(labels[row])} is outside 0..{classes - 1}",
                where=self._ids[self._reduced_samples + row],
                fix="map the labels to the model's classes",
            )

    def finish(self) -> Columns:
        """The columns of all batches added so far."""
        self.reduce()
        members, classes = self._shape[:2] if self._shape else (0, 0)

        def optional(name: str) -> Tensor | None:
            parts = [part[name] for part in self._parts if name in part]
            return torch.cat(parts, dim=-1) if parts else None

        def column(name: str, dtype: torch.dtype = torch.float64) -> Tensor:
            found = optional(name)
            return torch.empty(0, dtype=dtype) if found is None else found

        bad = torch.nonzero(column("non_finite", torch.bool)).flatten().tolist()
        return Columns(
            ids=tuple(self._ids),
            classes=classes,
            members=members,
            labels=optional("labels"),
            predicted=column("predicted", torch.int64),
            confidence=column("confidence"),
            correct=optional("correct"),
            top5_correct=optional("top5_correct"),
            nll=optional("nll"),
            brier=optional("brier"),
            entropy=column("entropy"),
            mutual_information=optional("mutual_information"),
            energy=column("energy"),
            max_logit=column("max_logit"),
            kl=optional("kl"),
            member_predicted=column("member_predicted", torch.int32).reshape(members, len(self._ids)),
            class_bin_gaps=self._class_bin_gaps(classes),
            non_finite=tuple(self._ids[row] for row in bad),
        )

    def _class_bin_gaps(self, classes: int) -> Tensor | None:
        sums = [part["class_bin_gaps"] for part in self._parts if "class_bin_gaps" in part]
        if not sums:
            return None
        return torch.stack(sums).sum(dim=0).reshape(classes, CALIBRATION_BINS).to(torch.float64) / FIXED_POINT
