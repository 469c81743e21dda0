"""Solve a first stage on many neighbors of one dataset, and certify every one."""

from dp2erm_cvx.neighbors.movements import NeighborMovements
from dp2erm_cvx.neighbors.neighborhood import Neighborhood
from dp2erm_cvx.neighbors.rows import NeighborSolutions, Reading, Replacements

__all__ = ["NeighborMovements", "NeighborSolutions", "Neighborhood", "Reading", "Replacements"]
