"""Figures. matplotlib is imported when one is drawn, never before.

Those of the pages of audits are drawn by ``plotting.bounds``.
"""

from dp2erm_cvx.plotting.balance import love_plot, overlap_plot
from dp2erm_cvx.plotting.bounds import bound_plot
from dp2erm_cvx.plotting.figure import forest_plot

__all__ = ["bound_plot", "forest_plot", "love_plot", "overlap_plot"]
