"""Populations whose average effect is known, each with a public domain that was written down without data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from scipy.special import expit

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Domain

#: Draws rows x (n, k) and both outcomes (n, 2) from (generator, n).
People = Callable[[np.random.Generator, int], tuple[Array, Array]]

#: Constant and slopes of the logit of treatment, and of the outcome, in "binary".
_TREATED = np.array([0.1, -0.15, 0.225, -0.15, -0.2, 0.1, 0.05, -0.075, 0.225, -0.15, -0.2])
_CONTROL = np.array([-0.05, 0.175, 0.1, -0.125, 0.075, -0.1, 0.2, -0.2, 0.175, -0.1, 0.2])
#: Shift of the logit of the outcome under treatment, in "binary".
_SHIFT = -0.42585


@dataclass(frozen=True, eq=False)
class EffectSample:
    """Records, and what is unknown of real ones: ``outcomes`` (n, 2) of both arms, ``propensity`` (n,)."""

    dataset: Dataset
    outcomes: Array
    propensity: Array


@dataclass(frozen=True, eq=False)
class EffectScenario:
    """A population, and what a data holder may declare about it.

    Attributes
    ----------
    effect
        E[Y(1) - Y(0)].
    domain, residual_scale
        Public, by the sizes of the covariates and of the outcome alone.
    people
        Draws rows x (n, k), and Y(0) and Y(1) (n, 2), from (generator, n).
    propensity
        P(A = 1 | x), (n,), of rows x (n, k).
    effect_on_treated
        E[Y(1) - Y(0) | A = 1], None where nobody asks.
    """

    name: str
    effect: float
    domain: Domain
    residual_scale: float
    people: People
    propensity: Callable[[Array], Array]
    effect_on_treated: float | None = None

    def draw(self, n_samples: int, rng: np.random.Generator) -> EffectSample:
        """``n_samples`` independent records."""
        x, outcomes = self.people(rng, n_samples)
        propensity = self.propensity(x)
        a = (rng.random(n_samples) < propensity).astype(np.int64)
        observed = np.where(a == 1, outcomes[:, 1], outcomes[:, 0])
        return EffectSample(Dataset.from_arrays(x, a, observed, self.domain.columns), outcomes, propensity)


def people_of(
    covariates: Callable[[np.random.Generator, int], Array],
    outcomes: Callable[[np.random.Generator, Array], Array],
) -> People:
    """Draws rows x (n, k) from (generator, n), and then Y(0) and Y(1), (n, 2), from (generator, x)."""

    def drawn(rng: np.random.Generator, n_samples: int) -> tuple[Array, Array]:
        x = covariates(rng, n_samples)
        return x, outcomes(rng, x)

    return drawn


def _normal(columns: int) -> Callable[[np.random.Generator, int], Array]:
    return lambda rng, n: rng.standard_normal((n, columns))


def _shifted(control: Array, effect: Array | float, bound: float = math.inf) -> Array:
    """Both outcomes, clipped to [-bound, bound]: noise is that of the record, not of the arm."""
    return np.clip(np.column_stack([control, control + effect]), -bound, bound)


def _overlap_outcomes(rng: np.random.Generator, x: Array) -> Array:
    return _shifted(-0.05 + 0.225 * x[:, 0] + 0.1 * rng.standard_normal(len(x)), 0.1, 1.0)


def _regions_propensity(x: Array) -> Array:
    first, second = x.T
    low, right, above = (first < -0.05) & (second <= 0), first > 0.1, second > 0
    found: Array = np.select([low, above & ~right, above & right], [0.25, 0.6, 0.75], 0.5)
    return found


def _regions_outcomes(rng: np.random.Generator, x: Array) -> Array:
    first, second = x.T
    # the last rule that applies decides
    rules = [(first < 0) & (second <= 0.05), (first <= 0) & (second > 0.05), (first > 0) & (second > 0)]
    base = np.select(rules[::-1], [-0.7, -0.4, 0.6], 0.1)
    return _shifted(base + 0.05 * rng.standard_normal(len(x)), 0.2, 1.0)


def _binary_propensity(x: Array) -> Array:
    found: Array = np.clip(expit(_TREATED[0] + x @ _TREATED[1:]), 0.1, 0.9)
    return found


def _binary_outcomes(rng: np.random.Generator, x: Array) -> Array:
    logit = _CONTROL[0] + x @ _CONTROL[1:]
    level = rng.random(len(x))
    return np.column_stack([level < expit(logit), level < expit(logit + _SHIFT)]).astype(np.float64)


def _binary_effect() -> float:
    """The logit of the outcome is normal: by Gauss and Hermite."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    logit = _CONTROL[0] + float(np.linalg.norm(_CONTROL[1:])) * nodes
    mean = np.sum(weights * (expit(logit + _SHIFT) - expit(logit))) / np.sum(weights)
    return float(mean)


def _varying_outcomes(rng: np.random.Generator, x: Array) -> Array:
    control = 3.0 + 2.0 * x[:, 0] + 0.5 * rng.standard_normal(len(x))
    return _shifted(control, 0.5 + x[:, 2] - x[:, 1])


def population_domain(features_bound: float, outcome_bound: float, center: float = 0.0) -> Domain:
    """Covariates of a norm, a constant beside them, and outcomes of ``center`` +- ``outcome_bound``."""
    bound = math.hypot(1.0, features_bound)
    return Domain(covariate_bound=bound, outcome_bound=outcome_bound, outcome_center=center, intercept=1.0)


#: Populations by name. The first three are those of Lebeda, Even, Bellet & Josse (arXiv 2505.19589).
#:
#: Standard normals are clipped at the norm 3, two of them that have ranges at 4.2, and ten of them at 4 (the
#: root mean square of their norm is 3.2). Uniforms are not clipped at all. Outcomes are clipped to the
#: interval that their authors state, or at five units.
EFFECT_SCENARIOS: Mapping[str, EffectScenario] = MappingProxyType(
    {
        one.name: one
        for one in (
            EffectScenario(
                "low overlap",
                0.1,
                population_domain(3.0, 1.0),
                0.1,
                people_of(_normal(1), _overlap_outcomes),
                lambda x: np.clip(expit(-0.2 + 3.0 * x[:, 0]), 0.004, 0.996),
            ),
            EffectScenario(
                "regions",
                0.2,
                # a column from -3 to 3 is scaled to one from -1 to 1, and both together have the norm sqrt(2)
                replace(
                    population_domain(math.sqrt(2.0), 1.0), ranges={"x1": (-3.0, 3.0), "x2": (-3.0, 3.0)}
                ),
                0.5,
                people_of(_normal(2), _regions_outcomes),
                _regions_propensity,
            ),
            EffectScenario(
                "binary",
                _binary_effect(),
                population_domain(4.0, 0.5, 0.5),
                0.5,
                people_of(_normal(10), _binary_outcomes),
                _binary_propensity,
            ),
            EffectScenario(
                "varying",
                0.5,
                population_domain(math.sqrt(5.0), 5.0, 3.0),
                0.5,
                people_of(lambda rng, n: rng.uniform(-1.0, 1.0, (n, 5)), _varying_outcomes),
                lambda x: expit(0.5 + x[:, 0]),
            ),
        )
    }
)
