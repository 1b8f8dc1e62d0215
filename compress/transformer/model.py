"""A transformer classifier of any family, single, pruned or fused."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from compress.attention.budgeted import BudgetedAttention, BudgetLimit
from compress.errors import ModelError, UsageError
from compress.transformer.combine import combine_logits, tempered
from compress.transformer.config import ModelConfig, Structure
from compress.transformer.layer import Layer, Layers
from compress.transformer.parts import Head, Hidden, Inputs, Stem
from compress.transformer.usage import Usage, UsageRecord

Gates = Sequence[Tensor | None]


class Transformer(nn.Module):
    """Stem, layers and head; below the branch layer one stream, from it on one per member.

    Args:
        stem: from inputs to hidden states.
        layers: the distinct layers.
        head: from hidden states to logits.
        config: what the model is (kept up to date by every stage).
        order: the layers in the order in which they run; a shared layer (ALBERT) appears several times. Default: each
            once.
        files: further files that belong to the model (a tokenizer), name to content.

    Attributes:
        recompute: whether a backward pass computes what lies inside the layers again instead of keeping it.
        usage: what the last call of ``run_layers`` executed; None when every layer always executes everything.
        untrained_classifier: whether the model was opened with a classifier of random weights. It is not stored, since
            what a stage writes was trained; training by other means leaves it as it is.
    """

    def __init__(
        self,
        stem: Stem,
        layers: Sequence[Layer],
        head: Head,
        *,
        config: ModelConfig,
        order: Sequence[int] | None = None,
        files: dict[str, bytes] | None = None,
    ) -> None:
        super().__init__()
        self.stem, self.layers, self.head = stem, Layers(layers), head
        self.config = config
        self.order: tuple[int, ...] = tuple(order if order is not None else range(len(layers)))
        self.files: dict[str, bytes] = dict(files or {})
        self.recompute = False
        self.usage: Usage | None = None
        self.untrained_classifier = False

    def changed(
        self, config: ModelConfig, *, layers: Sequence[Layer] | None = None, head: Head | None = None
    ) -> Transformer:
        """The model that ``config`` describes, with other layers or another head; whatever is not given is shared."""
        layers, head = list(self.layers) if layers is None else layers, self.head if head is None else head
        other = Transformer(self.stem, layers, head, config=config, order=self.order, files=self.files)
        other.untrained_classifier = self.untrained_classifier
        return other.train(self.training)

    @property
    def structure(self) -> Structure:
        """Kept heads, members and branch layer."""
        return self.config.structure

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names in the order of the logits."""
        return self.config.labels

    def embed(self, inputs: Inputs) -> Hidden:
        """The hidden states before the first layer: one stream."""
        return self.stem(inputs)

    def run_layers(
        self, hidden: Hidden, *, start: int = 0, stop: int | None = None, gates: Gates | None = None
    ) -> Hidden:
        """Run the steps ``start .. stop-1`` of ``order``; the streams part on the way where the branch layer lies.

        Args:
            hidden: states as they are before step ``start``.
            start, stop: positions in ``order``; ``stop`` None runs to the end.
            gates: per distinct layer a factor of its heads' contexts, ``(R or 1, heads)``, or None.
        """
        end, record = len(self.order), UsageRecord()
        parting = self.parting
        for step in range(start, end if stop is None else stop):
            index = self.order[step]
            if step == parting:
                hidden = hidden.repeated(self.structure.members)
            gate = None if gates is None else gates[index]
            layer, last = self.layers[index], step == end - 1
            if self.recompute and torch.is_grad_enabled():
                hidden = checkpoint(layer, hidden, gate=gate, last=last, use_reentrant=False)
            else:
                hidden = layer(hidden, gate=gate, last=last)
            # Now, before a later step or the recomputation of a backward pass runs the layer again.
            record.add(layer, self.structure.members if parting is not None and step >= parting else 1)
        self.usage = record.finish()
        return hidden

    @property
    def usages(self) -> tuple[Usage | None, ...]:
        """Of every pass through a transformer that the last prediction took: a single one."""
        return (self.usage,)

    @property
    def parting(self) -> int | None:
        """The step before which one stream becomes M; None for a single stream or when only the heads differ."""
        branch = self.structure.branch_layer
        if self.structure.members == 1 or branch >= len(self.layers):
            return None
        return self.order.index(branch)

    def classify(self, hidden: Hidden) -> Tensor:
        """Member logits ``(M, B, K)`` from the states after the last layer."""
        members = self.structure.members
        if members > 1 and self.parting is None:
            hidden = hidden.repeated(members)
        logits = tempered(self.head(hidden), self.config.temperature)
        return logits.view(members, -1, logits.shape[-1])

    def members(self, inputs: Inputs, *, gates: Gates | None = None) -> Tensor:
        """Logits of every member, ``(M, B, K)``.

        Args:
            inputs: images ``(B, channels, height, width)``, or a mapping of token tensors (``input_ids``,
                ``attention_mask``, ...).
            gates: see ``run_layers``.
        """
        return self.classify(self.run_layers(self.embed(inputs), gates=gates))

    def budget(self, value: float | None, *, cap: bool = False) -> None:
        """Set the share of the heads that runs from now on; the artifact stays as it is.

        Args:
            value: in (0, 1]; None gives every input its own budget again.
            cap: inputs keep their own budget where it is lower.

        Raises:
            ModelError: the model has no budgets.
            UsageError: a share outside (0, 1].
        """
        attentions = [layer.attention for layer in self.layers if isinstance(layer.attention, BudgetedAttention)]
        if not attentions:
            raise ModelError("the model has no budgets", where="budget", fix="give it some with compress budget")
        if value is not None and not 0 < value <= 1:
            raise UsageError(f"{value} is no share of the heads", where="budget", fix="choose above 0 and at most 1")
        for attention in attentions:
            attention.limit = None if value is None else BudgetLimit(value, cap)

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits ``(B, K)`` whose softmax is the mean of the members' probabilities."""
        return combine_logits(self.members(inputs))
