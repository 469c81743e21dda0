"""A scenario in which weights of 1 are clearly wrong, to see where weighting pays under privacy."""

from dp2erm_cvx.studies.confounded.experiment import Confounded

__all__ = ["Confounded"]
