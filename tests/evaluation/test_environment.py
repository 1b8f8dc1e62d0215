from __future__ import annotations

import torch

from compress.evaluation.environment import current_environment


def test_threads_and_allocator_tuning_are_recorded(monkeypatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "123")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=5:glibc.rtld.nns=3")
    found = current_environment(torch.device("cpu"), "bfloat16")
    assert (found.device, found.threads, found.dtype) == ("cpu", torch.get_num_threads(), "bfloat16")
    if found.allocator.split()[0] in ("glibc", "system"):
        assert "MALLOC_TRIM_THRESHOLD_=123" in found.allocator
        assert "glibc.malloc.trim_threshold=5" in found.allocator
        assert "nns" not in found.allocator
