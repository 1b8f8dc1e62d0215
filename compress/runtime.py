"""Where and how a command computes: device, number format, batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from compress.errors import UsageError, first_line
from compress.options import Options

if TYPE_CHECKING:
    import torch

DType = Literal["float32", "bfloat16", "float16"]


class Runtime(Options):
    """Options of every command that computes."""

    device: str = Field("auto", description="cpu, cuda, cuda:N, mps, or auto (the first accelerator, else the CPU).")
    dtype: DType = Field("float32", description="Number format of the forward passes.")
    batch_size: int = Field(64, ge=1, description="Inputs per forward pass.")

    def torch_device(self) -> torch.device:
        """The device; raises ``UsageError`` when it does not exist here."""
        import torch

        if self.device == "auto":
            found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
            return found or torch.device("cpu")
        try:
            device = torch.device(self.device)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise UsageError(
                f"device {self.device!r} cannot be used here ({first_line(error)})",
                where="--device",
                fix="use cpu or auto",
            ) from None
        return device

    def torch_dtype(self) -> torch.dtype:
        """The torch number format."""
        import torch

        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[self.dtype]
