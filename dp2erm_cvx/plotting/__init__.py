"""Figures. matplotlib is imported when one is drawn, never before.

Those of experiments are drawn by :func:`~dp2erm_cvx.plotting.studies.figures_of`, those of the pages of
audits by ``plotting.bounds``.
"""

from dp2erm_cvx.plotting.balance import love_plot, overlap_plot
from dp2erm_cvx.plotting.bounds import Panel, bound_plot
from dp2erm_cvx.plotting.forest import forest_plot

__all__ = ["Panel", "bound_plot", "forest_plot", "love_plot", "overlap_plot"]
