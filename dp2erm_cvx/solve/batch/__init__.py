"""Neighbors of a dataset solved together, each with a certificate."""

from dp2erm_cvx.solve.batch.neighbors import Neighborhood
from dp2erm_cvx.solve.batch.rows import NeighborSolutions, Reading, Replacements

__all__ = ["NeighborSolutions", "Neighborhood", "Reading", "Replacements"]
