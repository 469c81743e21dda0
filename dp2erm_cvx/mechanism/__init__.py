"""The privacy noise. No other package draws it.

``floating`` draws in doubles, as if they were real numbers. ``exact`` draws within a proven distance of the
ideal law. ``discrete`` adds noise to whole numbers, covers that distance by noise on a grid, and chooses a
candidate. Exact arithmetic needs the extra ``secure``.
"""

from dp2erm_cvx.mechanism.discrete import (
    arm_sums,
    contrast_sums,
    overlap_sums,
    perturb_integers,
    perturb_on_grid,
    private_choice,
    quantile_counts,
    quantile_scores,
    repeatable_choice,
    score_sums,
    treated_sums,
)
from dp2erm_cvx.mechanism.exact import Draw, draw_within, secure_available
from dp2erm_cvx.mechanism.floating import draw, random_source, simulate_noise

__all__ = [
    "Draw",
    "arm_sums",
    "contrast_sums",
    "draw",
    "draw_within",
    "overlap_sums",
    "perturb_integers",
    "perturb_on_grid",
    "private_choice",
    "quantile_counts",
    "quantile_scores",
    "random_source",
    "repeatable_choice",
    "score_sums",
    "secure_available",
    "simulate_noise",
    "treated_sums",
]
