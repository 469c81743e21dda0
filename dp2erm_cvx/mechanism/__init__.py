"""The privacy noise. No other package draws it.

``exact`` draws in doubles, as if they were real numbers, and within a proven distance of the ideal law.
``discrete`` adds noise to whole numbers, covers that distance by noise on a grid, and chooses a
candidate. Exact arithmetic needs the extra ``secure``.
"""

from dp2erm_cvx.mechanism.discrete import (
    perturb_integers,
    perturb_on_grid,
    private_choice,
    quantile_places,
    quantile_scores,
)
from dp2erm_cvx.mechanism.exact import (
    Draw,
    draw,
    draw_within,
    random_source,
    secure_available,
    simulate_noise,
)

__all__ = [
    "Draw",
    "draw",
    "draw_within",
    "perturb_integers",
    "perturb_on_grid",
    "private_choice",
    "quantile_places",
    "quantile_scores",
    "random_source",
    "secure_available",
    "simulate_noise",
]
