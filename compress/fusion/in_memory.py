"""Fusing members that are in memory, for comparisons that write no artifact."""

from __future__ import annotations

from collections.abc import Sequence

from compress.backbones.registry import build_skeleton
from compress.fusion.agreement import fused_config
from compress.fusion.merge import merged_tensor
from compress.transformer.config import StreamMlp
from compress.transformer.model import Transformer


def fuse_models(members: Sequence[Transformer], *, mlp: StreamMlp = "averaged") -> Transformer:
    """What ``fuse`` makes of members that were pruned from one model, without a file.

    Args:
        members: pruned copies on one device. Weights that are equal in all of them are shared with the result.
        mlp: see ``Fuse``.

    Returns:
        The fused model, in evaluation mode.
    """
    states = [member.state_dict() for member in members]
    config = fused_config([member.config for member in members], states, mlp)
    fused = build_skeleton(config, members[0].files)
    tensors = {
        name: merged_tensor(name, expected, fused, members, states) for name, expected in fused.state_dict().items()
    }
    fused.load_state_dict(tensors, strict=True, assign=True)
    return fused.to(next(members[0].parameters()).device).eval()
