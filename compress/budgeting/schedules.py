"""What changes while a model with budgets is trained; ``progress`` runs from 0 to 1.

==================  =====================================================================================
gates               soft while progress < ``soft``: all heads run, weighted, so that all are explored; then
                    hard: what runs in training is what is evaluated
λ_e                 from −w to +w: the entropy of the heads is raised first, lowered last
τ                   falls geometrically to its last value while the gates are soft, and stays there
==================  =====================================================================================

Source: BudgetFormer, arXiv 2604.22583.
"""

from __future__ import annotations

from compress.attention.budgeted import Gating


def gating(progress: float, soft: float) -> Gating:
    """The gates of a step; with ``soft`` 1 also those of the last, whose progress is 1."""
    return "soft" if progress < soft or soft >= 1 else "hard"


def entropy_coefficient(progress: float, weight: float) -> float:
    """λ_e of a step."""
    return weight * (2 * progress - 1)


def head_temperature(progress: float, soft: float, start: float, end: float) -> float:
    """τ of a step."""
    done = 1.0 if progress >= soft else progress / soft
    return float(start ** (1 - done) * end**done)
