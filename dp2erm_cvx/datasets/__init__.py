"""Real data with public domains, the simulations of the paper, and populations whose effect is known."""

from dp2erm_cvx.datasets.benchmarks import BENCHMARKS, Benchmark, load_benchmark
from dp2erm_cvx.datasets.effect_scenarios import EFFECT_SCENARIOS, EffectSample, EffectScenario
from dp2erm_cvx.datasets.nhefs import NHEFS_RANGES, PublicRange, load_nhefs, nhefs_domain
from dp2erm_cvx.datasets.paper_effects import paper_population
from dp2erm_cvx.datasets.plasmode import nhefs_plasmode
from dp2erm_cvx.datasets.simulation import SCENARIOS, Scenario, Simulation, simulate
from dp2erm_cvx.datasets.twin_pairs import twins_population
from dp2erm_cvx.datasets.twins import TWINS_SHA256, Twins, read_twins, twins_digest

__all__ = [
    "BENCHMARKS",
    "EFFECT_SCENARIOS",
    "NHEFS_RANGES",
    "SCENARIOS",
    "TWINS_SHA256",
    "Benchmark",
    "EffectSample",
    "EffectScenario",
    "PublicRange",
    "Scenario",
    "Simulation",
    "Twins",
    "load_benchmark",
    "load_nhefs",
    "nhefs_domain",
    "nhefs_plasmode",
    "paper_population",
    "read_twins",
    "simulate",
    "twins_digest",
    "twins_population",
]
