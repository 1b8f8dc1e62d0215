"""AdamW and its parameter groups."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import nn

from compress.errors import ModelError
from compress.transformer.model import Transformer
from compress.tuning.options import Tune

HIGHEST_RATE = "highest_rate"
"""The key of a parameter group under which its highest learning rate stands."""


def decays(name: str, parameter: nn.Parameter, owner: nn.Module) -> bool:
    """Whether weight decay applies: to matrices whose name ends in ``weight`` and that belong to no normalisation.

    Tables of embeddings are such matrices, as in the training of BERT. Biases, norms, LayerScale, class tokens and the
    position embeddings of ViT and CLIP are left alone. The grouped biases of a fused model are matrices ``(M, out)``
    too, so the number of dimensions alone would not tell.
    """
    return name.endswith("weight") and parameter.dim() >= 2 and "Norm" not in type(owner).__name__


def depth(name: str, layers: int) -> int:
    """How many layers lie above a parameter: 0 for the head, 1 for the last layer, ``layers + 1`` for the stem."""
    part, _, rest = name.partition(".")
    if part == "layers":
        return layers - int(rest.partition(".")[0])
    return layers + 1 if part == "stem" else 0


def parameter_groups(model: nn.Module, options: Tune, layers: int = 0) -> list[dict[str, object]]:
    """The trainable parameters by learning rate and decay.

    A parameter under ``depth`` layers learns at ``lr · layer_decay^depth``, times the ``rate_factor`` of the module
    that it lies in, where that has one. A tied parameter counts where it first appears.

    Args:
        model: the model.
        options: see ``Tune``.
        layers: how many layers a ``Transformer`` has; other models have no depths.

    Raises:
        ModelError: nothing is trainable.
    """
    groups: dict[tuple[int, bool, float], list[nn.Parameter]] = defaultdict(list)
    factors = rate_factors(model)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            owner = model.get_submodule(name.rpartition(".")[0])
            below = depth(name, layers) if layers and options.layer_decay < 1 else 0
            groups[below, decays(name, parameter, owner), factors.get(parameter, 1.0)].append(parameter)
    if not groups:
        raise ModelError("no parameter is trainable", where="--freeze", fix="freeze less")
    return [
        {
            "params": parameters,
            "weight_decay": options.weight_decay if decaying else 0.0,
            HIGHEST_RATE: options.lr * options.layer_decay**below * factor,
        }
        for (below, decaying, factor), parameters in sorted(groups.items(), key=lambda item: item[0])
    ]


def rate_factors(model: nn.Module) -> dict[nn.Parameter, float]:
    """The factor of the learning rate of every parameter inside a module with an attribute ``rate_factor``."""
    return {
        parameter: float(module.rate_factor)  # type: ignore[arg-type]
        for module in model.modules()
        if hasattr(module, "rate_factor")
        for parameter in module.parameters()
    }


def build_optimizer(model: nn.Module, options: Tune) -> torch.optim.AdamW:
    """AdamW over ``parameter_groups``, one kernel per parameter."""
    layers = len(model.layers) if isinstance(model, Transformer) else 0
    groups = parameter_groups(model, options, layers)
    return torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, options.beta2), fused=True)


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> float:
    """Set every group to ``factor`` of its highest rate; returns the highest of all."""
    for group in optimizer.param_groups:
        group["lr"] = group[HIGHEST_RATE] * factor
    return max(float(group["lr"]) for group in optimizer.param_groups)


def check_bound(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Raise ``ModelError`` unless the optimizer holds exactly the model's trainable parameters.

    Surgery replaces parameters; an optimizer that was built before would train tensors that nobody reads.
    """
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    trained = {id(parameter): name for name, parameter in model.named_parameters() if parameter.requires_grad}
    foreign, missing = held - trained.keys(), [name for key, name in trained.items() if key not in held]
    if foreign or missing:
        shown = f", lacks {missing[0]}" if missing else ""
        raise ModelError(
            f"the optimizer holds {len(foreign)} parameters that are not the model's{shown}",
            where="optimizer",
            fix="build it after the model's last change",
        )
