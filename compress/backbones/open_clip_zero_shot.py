"""Zero-shot classification: a CLIP tower's features against the embeddings of the classes' prompts.

Source: Radford et al. 2021, arXiv 2103.00020, section 3.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compress.errors import ModelError
from compress.transformer.parts import Head, Hidden


def tokenizer(model_cfg: Mapping[str, Any], length: int | None = None) -> open_clip.SimpleTokenizer:
    """CLIP's byte-pair tokenizer, which open_clip ships; it returns ``(B, length)``, zeros after the end-of-text token.

    Args:
        model_cfg: the arguments of ``open_clip.CLIP``.
        length: tokens per text; None for the model's context length.

    Raises:
        ModelError: the model's vocabulary is smaller than the tokenizer's, or its options are unknown.
    """
    text_cfg = model_cfg["text_cfg"]
    options = text_cfg.get("tokenizer_kwargs") or {}
    try:
        bpe = open_clip.SimpleTokenizer(context_length=length or text_cfg.get("context_length", 77), **options)
    except (TypeError, AssertionError) as error:
        raise ModelError(
            f"the SimpleTokenizer refuses {options} ({error})", where="tokenizer_kwargs", fix="correct model_cfg"
        ) from None
    vocabulary = text_cfg.get("vocab_size", bpe.vocab_size)
    if vocabulary < bpe.vocab_size:
        raise ModelError(
            f"the model knows {vocabulary} tokens, but the SimpleTokenizer has {bpe.vocab_size}",
            where="text_cfg.vocab_size",
            fix="use a model trained with CLIP's tokenizer",
        )
    return bpe


def check_classes(labels: Sequence[str] | None, templates: Sequence[str]) -> tuple[str, ...]:
    """The class names, or an error when they and the templates cannot make prompts.

    Raises:
        ModelError: no or repeated class names; no template, or one without a single ``{}``.
    """
    if not labels:
        raise ModelError("zero-shot classification needs class names", fix="pass --label or model.labels")
    label, times = Counter(labels).most_common(1)[0]
    if times > 1:
        raise ModelError(f"class {label!r} is named {times} times", where="labels", fix="name each class once")
    if not templates:
        raise ModelError("no prompt template is given", where="templates", fix="give one such as 'a photo of a {}.'")
    for template in templates:
        try:
            prompts = {template.format(name) for name in ("a", "b")}
        except (IndexError, KeyError, ValueError):
            prompts = set()
        if len(prompts) != 2:
            raise ModelError(f"{template!r} is no prompt template", where="templates", fix="put {} for the class")
    return tuple(labels)


def embed_classes(
    clip: open_clip.CLIP, model_cfg: Mapping[str, Any], labels: Sequence[str], templates: Sequence[str]
) -> Tensor:
    """Unit vectors ``(K, E)``: per class the normalised mean of its prompts' normalised text features."""
    weights = open_clip.build_zero_shot_classifier(clip, tokenizer(model_cfg), list(labels), list(templates))
    return weights.T.contiguous()


class FirstToken(nn.Module):
    """The one pooled token: ``(R, N, C)`` to ``(R, C)``."""

    def forward(self, states: Tensor) -> Tensor:
        return states[:, 0]


class PatchMean(nn.Module):
    """The mean of all tokens but the first, ``(R, N, C)`` to ``(R, C)``."""

    def forward(self, states: Tensor) -> Tensor:
        return states[:, 1:].mean(dim=1)


class ZeroShotHead(Head):
    """Logits ``exp(logit_scale) · normalise(projection(pool(norm(x)))) · class_embeddings^T + logit_bias``.

    Args:
        norm: the final norm.
        pool: ``FirstToken`` or ``PatchMean``.
        projection: into the space that both towers share, ``(R, C)`` to ``(R, E)``.
        class_embeddings: ``(K, E)``; the weights of the classifier.
        logit_scale, logit_bias: the model's temperature (a logarithm) and offset, of shape () or (1,).
        attention_pool: a learned pooling in front of the norm, ``(R, N, C)`` to ``(R, queries, E)``, or None.
        norm_after_pool: pool first.
    """

    def __init__(
        self,
        norm: nn.Module,
        pool: nn.Module,
        projection: nn.Module,
        class_embeddings: Tensor,
        logit_scale: nn.Parameter,
        logit_bias: nn.Parameter | None = None,
        *,
        attention_pool: nn.Module | None = None,
        norm_after_pool: bool = False,
    ) -> None:
        super().__init__()
        self.attention_pool, self.norm, self.pool = attention_pool, norm, pool
        self.norm_after_pool = norm_after_pool
        self.projection, self.classifier = projection, linear(class_embeddings)
        self.logit_scale = logit_scale
        self.register_parameter("logit_bias", logit_bias)
        self.per_member = ("projection", "classifier") if isinstance(projection, nn.Linear) else ("classifier",)

    def features(self, hidden: Hidden) -> Tensor:
        """Unit vectors ``(R, E)`` in the shared space."""
        x = hidden.states
        if self.attention_pool is not None:
            x = self.attention_pool(x)
        x = self.norm(self.pool(x)) if self.norm_after_pool else self.pool(self.norm(x))
        return F.normalize(self.projection(x), dim=-1)

    def forward(self, hidden: Hidden) -> Tensor:
        logits = self.classifier(self.logit_scale.exp() * self.features(hidden))
        return logits if self.logit_bias is None else logits + self.logit_bias


def linear(weight: Tensor) -> nn.Linear:
    """The linear layer without bias whose weight ``(out, in)`` is given."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device=torch.device("meta"))
    layer.weight = nn.Parameter(weight.detach())
    return layer
