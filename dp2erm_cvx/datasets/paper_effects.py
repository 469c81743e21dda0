"""The scenarios of the paper as populations whose average effect is known."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, ndtr

from dp2erm_cvx.datasets.effect_scenarios import EffectScenario, people_of, population_domain
from dp2erm_cvx.datasets.simulation import SCENARIOS, draw_covariates, propensity_of
from dp2erm_cvx.errors import DeclarationError

#: Center and bound of the outcome, and a guess of its deviation beside a line.
_OUTCOMES = {"linear": (0.0, 20.0, 1.5), "tree": (4.0, 27.0, 4.0), "nonlinear": (3.0, 14.0, 2.0)}


def paper_population(scenario: str) -> EffectScenario:
    """A scenario of the paper as a population whose average effect is known.

    The norm of the covariates, all within [-1, 1], is at most 2.2 in 97 of 100 records. Center and bound of
    the outcome are rounded and hold five standard deviations; such constants are public in simulations alone.

    Raises DeclarationError for an unknown name.
    """
    if scenario not in SCENARIOS:
        raise DeclarationError(f"scenario = {scenario!r}: must be one of {', '.join(SCENARIOS)}")
    center, bound, residual_scale = _OUTCOMES[scenario]
    return EffectScenario(
        scenario,
        _effects()[scenario],
        population_domain(2.2, bound, center),
        residual_scale,
        people_of(draw_covariates, SCENARIOS[scenario].outcomes),
        propensity_of,
        effect_on_treated=_linear_on_treated() if scenario == "linear" else None,
    )


def _effects() -> dict[str, float]:
    """E[contrast]: the density of a covariate is the normal one over [-1, 1]."""
    mass = float(ndtr(1.0) - ndtr(-1.0))
    variance = 1.0 - 2.0 * float(np.exp(-0.5) / np.sqrt(2.0 * np.pi)) / mass
    low, near, middle = (float(ndtr(b) - ndtr(a)) / mass for a, b in ((-1, -0.5), (-0.5, -0.25), (-0.5, 0.5)))
    return {
        "linear": 0.0,
        "tree": 6.0 * (low - middle) + 5.0 * (low + near) * (1.0 - 2.0 * low) + 1.0,
        "nonlinear": -0.5 + 3.5 * variance,
    }


def _linear_on_treated() -> float:
    """E[contrast | A = 1] by Gauss and Legendre: of four covariates the propensity knows the first two."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    weights = weights * np.exp(-0.5 * nodes**2)
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    mass = np.outer(weights, weights) * expit(0.3 * first - 0.5 * second + 0.05)
    return float(np.sum(mass * 8.0 * (first - second)) / np.sum(mass))
