"""Real data with public domains, and the simulations of the paper."""

from dp2erm_cvx.datasets.nhefs import NHEFS_RANGES, load_nhefs, nhefs_domain
from dp2erm_cvx.datasets.simulation import SCENARIOS, Scenario, Simulation, simulate

__all__ = ["NHEFS_RANGES", "SCENARIOS", "Scenario", "Simulation", "load_nhefs", "nhefs_domain", "simulate"]
