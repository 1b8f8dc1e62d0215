"""What ``torch.compile`` leaves alone.

Imported only where it compiles: the decorator loads the compiler, which takes seconds that other programs do not need.
"""

from __future__ import annotations

import torch

from compress.attention import budgeted, skipping

attend_chosen = torch.compiler.disable(
    skipping.attend_chosen, reason="which heads run, and for how many rows, is known only when the inputs are"
)
check_finite = torch.compiler.disable(budgeted.check_finite, reason="reads a value to decide whether to raise")
