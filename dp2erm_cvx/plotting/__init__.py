"""Figures. matplotlib is imported when one is drawn, never before."""

from dp2erm_cvx.plotting.balance import love_plot, overlap_plot
from dp2erm_cvx.plotting.figure import bound_plot, forest_plot

__all__ = ["bound_plot", "forest_plot", "love_plot", "overlap_plot"]
