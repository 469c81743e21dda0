"""Many solves at once, each certified: neighbors of a dataset, and draws of the noise."""

from dp2erm_cvx.solve.batch.draws import DrawSolutions, solve_draws
from dp2erm_cvx.solve.batch.fast_path import NeighborSolutions
from dp2erm_cvx.solve.batch.neighbors import Neighborhood, solve_neighbors
from dp2erm_cvx.solve.batch.reading import NeighborReadings, Reading
from dp2erm_cvx.solve.batch.replacements import Replacements

__all__ = [
    "DrawSolutions",
    "NeighborReadings",
    "NeighborSolutions",
    "Neighborhood",
    "Reading",
    "Replacements",
    "solve_draws",
    "solve_neighbors",
]
