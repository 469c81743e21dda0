"""Many solves at once, each certified: neighbors of a dataset, and draws of the noise."""

from dp2erm_cvx.solve.batch.draws import DrawSolutions, solve_draws
from dp2erm_cvx.solve.batch.fast_path import NeighborSolutions
from dp2erm_cvx.solve.batch.neighbors import solve_neighbors
from dp2erm_cvx.solve.batch.replacements import Replacements

__all__ = ["DrawSolutions", "NeighborSolutions", "Replacements", "solve_draws", "solve_neighbors"]
