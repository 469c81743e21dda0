"""Embedded real data with its public domain, and the simulations of the paper."""

from dp2erm_cvx.datasets.nhefs import NHEFS_RANGES, PublicRange, load_nhefs, nhefs_domain
from dp2erm_cvx.datasets.simulation import SCENARIOS, Scenario, Simulation, simulate
from dp2erm_cvx.datasets.twins import TWINS_SHA256, Twins, read_twins

__all__ = [
    "NHEFS_RANGES",
    "SCENARIOS",
    "TWINS_SHA256",
    "PublicRange",
    "Scenario",
    "Simulation",
    "Twins",
    "load_nhefs",
    "nhefs_domain",
    "read_twins",
    "simulate",
]
