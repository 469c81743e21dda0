"""Populations whose average effect is known.

Each has a public domain that was written down without data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import expit, ndtr
from sklearn.linear_model import LogisticRegression
from twins_data import AMOUNTS, read_twins

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.datasets import SCENARIOS, draw_covariates, load_nhefs, nhefs_domain, propensity_of

#: Draws rows x (n, k) and both outcomes (n, 2) from (generator, n).
People = Callable[[np.random.Generator, int], tuple[Array, Array]]

#: Constant and slopes of the logit of treatment, and of the outcome, in "binary"; the shift under
#: treatment.
_TREATED = np.array([0.1, -0.15, 0.225, -0.15, -0.2, 0.1, 0.05, -0.075, 0.225, -0.15, -0.2])
_CONTROL = np.array([-0.05, 0.175, 0.1, -0.125, 0.075, -0.1, 0.2, -0.2, 0.175, -0.1, 0.2])
_SHIFT = -0.42585


@dataclass(frozen=True, eq=False)
class Sample:
    """Records, and what is unknown of real ones.

    That is ``outcomes`` (n, 2) of both arms, and ``propensity`` (n,).
    """

    dataset: Dataset
    outcomes: Array
    propensity: Array


@dataclass(frozen=True, eq=False)
class Population:
    """A population, and what a data holder may declare about it.

    Declared are the sizes of covariates and outcome alone. ``effect`` is E[Y(1) - Y(0)],
    ``effect_on_treated`` the same given A = 1, None where it is not known.
    """

    name: str
    effect: float
    domain: Domain
    residual_scale: float
    people: People
    propensity: Callable[[Array], Array]
    effect_on_treated: float | None = None

    def draw(self, n_samples: int, rng: np.random.Generator) -> Sample:
        """``n_samples`` independent records."""
        x, outcomes = self.people(rng, n_samples)
        propensity = self.propensity(x)
        a = (rng.random(n_samples) < propensity).astype(np.int64)
        observed = np.where(a == 1, outcomes[:, 1], outcomes[:, 0])
        return Sample(
            Dataset.from_arrays(x, a, observed, self.domain.columns), outcomes, propensity
        )


def people_of(
    covariates: Callable[[np.random.Generator, int], Array],
    outcomes: Callable[[np.random.Generator, Array], Array],
) -> People:
    """Draw rows x (n, k) from (generator, n).

    Then draw Y(0) and Y(1), (n, 2), from (generator, x).
    """

    def drawn(rng: np.random.Generator, n_samples: int) -> tuple[Array, Array]:
        x = covariates(rng, n_samples)
        return x, outcomes(rng, x)

    return drawn


def population_domain(features_bound: float, outcome_bound: float, center: float = 0.0) -> Domain:
    """Covariates of a norm and a constant beside them; outcomes within a bound of ``center``."""
    bound = math.hypot(1.0, features_bound)
    return Domain(
        covariate_bound=bound, outcome_bound=outcome_bound, outcome_center=center, intercept=1.0
    )


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
    return np.select([low, above & ~right, above & right], [0.25, 0.6, 0.75], 0.5)


def _regions_outcomes(rng: np.random.Generator, x: Array) -> Array:
    first, second = x.T
    # the last rule that applies decides
    rules = [
        (first < 0) & (second <= 0.05),
        (first <= 0) & (second > 0.05),
        (first > 0) & (second > 0),
    ]
    base = np.select(rules[::-1], [-0.7, -0.4, 0.6], 0.1)
    return _shifted(base + 0.05 * rng.standard_normal(len(x)), 0.2, 1.0)


def _binary_outcomes(rng: np.random.Generator, x: Array) -> Array:
    logit, level = _CONTROL[0] + x @ _CONTROL[1:], rng.random(len(x))
    return np.column_stack([level < expit(logit), level < expit(logit + _SHIFT)]).astype(np.float64)


def _binary_effect() -> float:
    """The logit of the outcome is normal: by Gauss and Hermite."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    logit = _CONTROL[0] + float(np.linalg.norm(_CONTROL[1:])) * nodes
    return float(np.sum(weights * (expit(logit + _SHIFT) - expit(logit))) / np.sum(weights))


def _varying_outcomes(rng: np.random.Generator, x: Array) -> Array:
    return _shifted(
        3.0 + 2.0 * x[:, 0] + 0.5 * rng.standard_normal(len(x)), 0.5 + x[:, 2] - x[:, 1]
    )


#: Populations by name. The first three are those of Lebeda, Even, Bellet & Josse (arXiv
#: 2505.19589).
#:
#: Standard normals are clipped at the norm 3, two of them that have ranges at 4.2, and ten of them
#: at 4 (the root mean square of their norm is 3.2). Uniforms are not clipped at all. Outcomes are
#: clipped to the interval that their authors state, or at five units.
POPULATIONS = {
    one.name: one
    for one in (
        Population(
            "low overlap",
            0.1,
            population_domain(3.0, 1.0),
            0.1,
            people_of(_normal(1), _overlap_outcomes),
            lambda x: np.clip(expit(-0.2 + 3.0 * x[:, 0]), 0.004, 0.996),
        ),
        Population(
            "regions",
            0.2,
            # a column from -3 to 3 is scaled to one from -1 to 1, and both together have the norm
            # sqrt(2)
            replace(
                population_domain(math.sqrt(2.0), 1.0),
                ranges={"x1": (-3.0, 3.0), "x2": (-3.0, 3.0)},
            ),
            0.5,
            people_of(_normal(2), _regions_outcomes),
            _regions_propensity,
        ),
        Population(
            "binary",
            _binary_effect(),
            population_domain(4.0, 0.5, 0.5),
            0.5,
            people_of(_normal(10), _binary_outcomes),
            lambda x: np.clip(expit(_TREATED[0] + x @ _TREATED[1:]), 0.1, 0.9),
        ),
        Population(
            "varying",
            0.5,
            population_domain(math.sqrt(5.0), 5.0, 3.0),
            0.5,
            people_of(lambda rng, n: rng.uniform(-1.0, 1.0, (n, 5)), _varying_outcomes),
            lambda x: expit(0.5 + x[:, 0]),
        ),
    )
}

#: Of the paper's scenarios: center and bound of the outcome, and a guess of its deviation beside a
#: line.
_OUTCOMES = {"linear": (0.0, 20.0, 1.5), "tree": (4.0, 27.0, 4.0), "nonlinear": (3.0, 14.0, 2.0)}


def paper_population(scenario: str) -> Population:
    """A scenario of the paper as a population whose average effect is known. Raises KeyError.

    The norm of the covariates, all within [-1, 1], is at most 2.2 in 97 of 100 records. Center and
    bound of the outcome are rounded and hold five standard deviations; such constants are public in
    simulations alone.
    """
    center, bound, residual_scale = _OUTCOMES[scenario]
    return Population(
        scenario,
        _paper_effects()[scenario],
        population_domain(2.2, bound, center),
        residual_scale,
        people_of(draw_covariates, SCENARIOS[scenario].outcomes),
        propensity_of,
        effect_on_treated=_linear_on_treated() if scenario == "linear" else None,
    )


def _paper_effects() -> dict[str, float]:
    """E[contrast]: the density of a covariate is the normal one over [-1, 1]."""
    mass = float(ndtr(1.0) - ndtr(-1.0))
    variance = 1.0 - 2.0 * float(np.exp(-0.5) / np.sqrt(2.0 * np.pi)) / mass
    low, near, middle = (
        float(ndtr(b) - ndtr(a)) / mass for a, b in ((-1, -0.5), (-0.5, -0.25), (-0.5, 0.5))
    )
    return {
        "linear": 0.0,
        "tree": 6.0 * (low - middle) + 5.0 * (low + near) * (1.0 - 2.0 * low) + 1.0,
        "nonlinear": -0.5 + 3.5 * variance,
    }


def _linear_on_treated() -> float:
    """E[contrast | A = 1] by Gauss and Legendre.

    The propensity knows the first two of four covariates.
    """
    nodes, weights = np.polynomial.legendre.leggauss(40)
    weights = weights * np.exp(-0.5 * nodes**2)
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    mass = np.outer(weights, weights) * expit(0.3 * first - 0.5 * second + 0.05)
    return float(np.sum(mass * 8.0 * (first - second)) / np.sum(mass))


@functools.cache
def nhefs_plasmode() -> Population:
    """A population with the covariates of NHEFS in which everything about the effect is known.

    Covariates are resampled from the 1,566 records. Treatments follow the logistic regression,
    outcomes the linear regressions of either arm, that fit these records, with the residuals of a
    record drawn at random. The effect varies, and both models are linear in the scaled covariates
    before any clip.
    """
    data = load_nhefs()
    # in kg: losses of bounded slope and clipped residuals need no tighter bound than 40
    domain = nhefs_domain(covariate_bound=math.hypot(1.0, 2.5), outcome_bound=40.0, intercept=1.0)
    rows = domain.features(data.X)
    logistic = LogisticRegression(
        C=np.inf, solver="newton-cholesky", tol=1e-10, fit_intercept=False
    )
    slope = logistic.fit(rows, data.a).coef_[0]
    fitted, residuals = [], np.empty(len(data.a))
    for arm in (0, 1):
        own = data.a == arm
        fitted.append(np.linalg.lstsq(rows[own], data.y[own])[0])
        residuals[own] = data.y[own] - rows[own] @ fitted[arm]
    slopes = np.column_stack(fitted)

    def outcomes(rng: np.random.Generator, x: Array) -> Array:
        noise = residuals[rng.integers(len(residuals), size=len(x))]
        return domain.features(x) @ slopes + noise[:, None]

    effect = float(np.mean(rows @ (slopes[:, 1] - slopes[:, 0])))
    people = people_of(lambda rng, n: data.X[rng.integers(len(data.X), size=n)], outcomes)
    return Population(
        "nhefs plasmode", effect, domain, 7.0, people, lambda x: expit(domain.features(x) @ slope)
    )


#: Where most twin births are, as is known without the file: what :func:`twins_population` scales to
#: [-1, 1]. Of cigarettes and drinks a day, which are mostly none, 0 is the center.
_USUAL = (
    (1, 5),
    (-20, 20),
    (-10, 10),
    (0, 60),
    (26, 40),
    (18, 38),
    (8, 16),
    (1, 2),
    (0, 6),
    (0, 20),
)
#: What it adjusts for beside amounts: risks and levels of more than one birth in a hundred, without
#: the first level of a category. A column of a handful of records separates the arms.
_COMMON = (
    *("anemia", "diabetes", "hydra", "phyper", "incervix", "preterm", "uterine", "othermr"),
    *("adequacy=2", "adequacy=3", "resstatb=2", "resstatb=3"),
)


@functools.cache
def twins_population(path: str | Path, sha256: str | None) -> Population:
    """Pairs of twins drawn with replacement, of whom one is seen.

    The effect is that of being the heavier on death. Both outcomes of a pair are in the file, so
    that the effect is known: by design. Who is seen is drawn here, the heavier the more likely the
    longer the mother carried, which also saves lives: the log odds are 5 (g - 1/2), g being weeks
    of gestation from 17 to 47 as 0 to 1.

    Covariates are ten amounts, eight risks and four levels. Their norm is clipped at 2.5: an amount
    is half a unit or so from the middle of its usual range, and one or two of the others are
    present. Raises as
    :func:`~twins_data.read_twins` does.
    """
    known = read_twins(path, sha256=sha256)
    columns = [*AMOUNTS, *_COMMON]
    X, place = known.X[:, [known.columns.index(name) for name in columns]], columns.index("gestat")

    def propensity(x: Array) -> Array:
        return expit(5.0 * (x[:, place] - 0.5))

    def people(rng: np.random.Generator, n_samples: int) -> tuple[Array, Array]:
        rows = rng.integers(len(X), size=n_samples)
        return X[rows], known.deaths[rows]

    ranges = {
        name: ((usual[0] - low) / (high - low), (usual[1] - low) / (high - low))
        for (name, (low, high)), usual in zip(AMOUNTS.items(), _USUAL, strict=True)
    }
    ranges |= dict.fromkeys(_COMMON, (-1.0, 1.0))
    domain = replace(population_domain(2.5, 0.5, 0.5), ranges=ranges)
    gain, e = known.deaths[:, 1] - known.deaths[:, 0], propensity(X)
    on_treated = float(np.sum(e * gain) / np.sum(e))
    return Population("twins", float(np.mean(gain)), domain, 0.5, people, propensity, on_treated)
