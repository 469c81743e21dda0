"""Many solves at once, each certified: neighbors of a dataset, and draws of the noise."""

from dp2erm_cvx.solve.batch.draws import DrawSolutions, solve_draws
from dp2erm_cvx.solve.batch.neighbors import Neighborhood
from dp2erm_cvx.solve.batch.replacements import NeighborReadings, NeighborSolutions, Reading, Replacements

__all__ = [
    "DrawSolutions",
    "NeighborReadings",
    "NeighborSolutions",
    "Neighborhood",
    "Reading",
    "Replacements",
    "solve_draws",
]
