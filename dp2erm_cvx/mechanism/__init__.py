"""The privacy noise. No other package draws it.

``floating`` draws in doubles, as if they were real numbers. ``exact`` draws within a proven distance of the
ideal law, ``grid`` adds the discrete noise that covers that distance, and ``integers`` is noise on exact
integers; all three need the extra ``secure``.
``selection`` draws the choice of a candidate, by OpenDP; ``quantile`` scores candidates for a quantile.
"""

from dp2erm_cvx.mechanism.exact import Draw, draw_within
from dp2erm_cvx.mechanism.floating import draw, simulate_noise
from dp2erm_cvx.mechanism.grid import perturb_on_grid
from dp2erm_cvx.mechanism.integers import perturb_integers
from dp2erm_cvx.mechanism.quantile import quantile_counts, quantile_scores
from dp2erm_cvx.mechanism.score import arm_sums, contrast_sums, overlap_sums, score_sums, treated_sums
from dp2erm_cvx.mechanism.selection import private_choice, random_source, repeatable_choice
from dp2erm_cvx.mechanism.uniform import secure_available

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
