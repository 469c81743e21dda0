"""Real data with public domains, the simulations of the paper, and populations whose effect is known."""

from dp2erm_cvx.datasets.benchmarks import BENCHMARKS, Benchmark, load_benchmark
from dp2erm_cvx.datasets.effect_scenarios import EFFECT_SCENARIOS, EffectSample, EffectScenario
from dp2erm_cvx.datasets.nhefs import NHEFS_RANGES, PublicRange, load_nhefs, nhefs_domain
from dp2erm_cvx.datasets.plasmode import nhefs_plasmode
from dp2erm_cvx.datasets.simulation import SCENARIOS, Scenario, Simulation, paper_population, simulate
from dp2erm_cvx.datasets.twins import TWINS_SHA256, Twins, read_twins, twins_digest, twins_population

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
