"""Attention in ONNX's operators, with torch's answer for a row that may attend to nothing: zeros.

The exporter's own translation adds the lowest float32 to hidden scores, after which such a row attends to all tokens
alike.
"""

from __future__ import annotations

import numpy as np
from onnxscript import BOOL, FLOAT
from onnxscript import opset18 as op


def masked_attention(
    query: FLOAT,
    key: FLOAT,
    value: FLOAT,
    attn_mask: BOOL | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> FLOAT:
    """``torch.nn.functional.scaled_dot_product_attention`` in evaluation, with a boolean mask or none.

    Args:
        query: ``(R, H, Nq, D)``.
        key, value: ``(R, H, N, D)``.
        attn_mask: True where a token may be attended to; broadcast to ``(R, H, Nq, N)``.
        dropout_p: ignored, as in evaluation.
        is_causal: token i attends to tokens 0..i only.
        scale: factor of the scores; None means D^-0.5.
        enable_gqa: never set by the project's attention.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    zero, hidden = (op.Constant(value_float=number) for number in (0.0, -np.inf))
    scores = op.MatMul(op.Mul(query, op.Constant(value_float=factor)), op.Transpose(key, perm=[0, 1, 3, 2]))
    seen = _earlier(query, key) if is_causal else attn_mask
    if seen is None:
        return op.MatMul(op.Softmax(scores, axis=-1), value)
    weights = op.Softmax(op.Where(seen, scores, hidden), axis=-1)
    return op.MatMul(op.Where(seen, weights, zero), value)  # where nothing is seen, the softmax is 0/0


def _earlier(query: FLOAT, key: FLOAT) -> BOOL:
    """``(Nq, N)``, True where the key is not later than the query."""
    first, step, last = op.Constant(value_int=0), op.Constant(value_int=1), op.Constant(value_ints=[-1])
    asking, asked = (op.Range(first, op.Squeeze(op.Shape(tensor, start=2, end=3)), step) for tensor in (query, key))
    return op.GreaterOrEqual(op.Unsqueeze(asking, last), asked)
