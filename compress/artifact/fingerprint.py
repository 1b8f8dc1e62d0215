"""The identity of a model's weights, wherever they came from."""

from __future__ import annotations

import hashlib

import torch

from compress.transformer.model import Transformer


def model_fingerprint(model: Transformer) -> str:
    """sha256 (hexadecimal) of configuration and tensors; the same for equal models in any folder or process."""
    digest = hashlib.sha256(model.config.model_dump_json().encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()))
    return digest.hexdigest()
