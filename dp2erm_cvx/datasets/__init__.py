"""Real data with public domains, and the simulations of the paper.

NHEFS is the effect of giving up smoking on weight, 1,566 smokers of whom 403 gave up: the data of
Hernan and Robins, "Causal Inference: What If", part II. ``README.md`` beside this file tells where
the CSV comes from. The three scenarios are those of Lee & Chen (arXiv 2602.12604), section
"Simulation Studies".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr, ndtri

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import whole_number
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.errors import DeclarationError

__all__ = [
    "NHEFS_RANGES",
    "SCENARIOS",
    "Scenario",
    "Simulation",
    "load_nhefs",
    "nhefs_domain",
    "simulate",
]

#: The covariates of :func:`load_nhefs`, in order: least and largest value, unit, and why. None of
#: the ends is read off the data.
NHEFS_RANGES: Mapping[str, tuple[float, float, str, str]] = MappingProxyType(
    {
        "sex": (0, 1, "0 male, 1 female", "codebook"),
        "age": (25, 74, "years at baseline", "the cohort was defined as ages 25 to 74"),
        "race": (0, 1, "0 white, 1 other", "codebook"),
        "education": (1, 5, "level", "codebook: 1 (8th grade or less) to 5 (college or more)"),
        "smokeintensity": (0, 60, "cigarettes a day", "none to three packs of 20"),
        "smokeyrs": (0, 60, "years", "the oldest age of the cohort, less a start at 14"),
        "exercise": (0, 2, "level", "codebook: 0 (much) to 2 (little or none)"),
        "active": (0, 2, "level", "codebook: 0 (very active) to 2 (inactive)"),
        "wt71": (40, 140, "kg at baseline", "body mass index 16 at 158 cm to 40 at 187 cm"),
        "ht": (140, 200, "cm", "adult height: about 170 cm, and three standard deviations of 10"),
    }
)


def load_nhefs() -> Dataset:
    """The 1,566 complete records in their own units.

    Covariates are those of :data:`~dp2erm_cvx.datasets.NHEFS_RANGES`; the treatment ``qsmk`` is 1
    for those who gave up smoking between the two visits; the outcome ``wt82_71`` is the change of
    weight in kg (1982-84 less 1971-75).
    """
    with resources.as_file(resources.files(__name__) / "nhefs.csv") as path:
        return Dataset.read(
            path, treatment="qsmk", outcome="wt82_71", covariates=list(NHEFS_RANGES)
        )


def nhefs_domain(
    *,
    covariate_bound: float = 2.5,
    outcome_bound: float = 20.0,
    outcome_center: float = 2.5,
    **settings: Any,
) -> Domain:
    """A public domain for :func:`load_nhefs`, declared without the data.

    It is a :class:`~dp2erm_cvx.data.domain.Domain`. Covariates are scaled by
    :data:`~dp2erm_cvx.datasets.NHEFS_RANGES`, so that each lies in [-1, 1] inside its range.

    Parameters
    ----------
    covariate_bound
        Norm of the ten scaled covariates (with the intercept). The default is a little above the
        root mean square 2.35 of ten columns spread evenly over their ranges and levels; sqrt(10) =
        3.16 clips no record inside the ranges, but every constant of the squared loss grows with
        its square.
    outcome_bound, outcome_center
        In kg. Adults in middle life gain about a quarter of a kilogram a year, 2.5 kg in the ten
        years between the visits; a change 20 kg away from that is rare.
    others
        ``treatment_cost`` (in kg), ``intercept``, ``arm_floor`` and ``relation`` of
        :class:`~dp2erm_cvx.data.domain.Domain`.

    Raises DeclarationError where a constant is invalid.
    """
    return Domain(
        covariate_bound=covariate_bound,
        outcome_bound=outcome_bound,
        outcome_center=outcome_center,
        ranges={name: (low, high) for name, (low, high, *_) in NHEFS_RANGES.items()},
        **settings,
    )


#: Number of covariates in every scenario.
N_COVARIATES = 10


@dataclass(frozen=True)
class Scenario:
    """The outcome mechanism: Y = main_effect(X) + (A - 1/2) contrast(X) + noise.

    Parameters
    ----------
    name
        Of the population.
    main_effect, contrast
        Functions from (n, 10) covariates to (n,).
    variance
        Of the noise: a function from (n, 10) covariates and (n,) treatments to (n,).
    """

    name: str
    main_effect: Callable[[Array], Array]
    contrast: Callable[[Array], Array]
    variance: Callable[[Array, NDArray[np.int64]], Array]

    def outcomes(self, rng: np.random.Generator, X: Array) -> Array:
        """Y(0) and Y(1), (n, 2), of rows X (n, d).

        One normal draw is for both, scaled to their variances.
        """
        main = self.main_effect(X)
        half = self.contrast(X) / 2.0
        noise = rng.standard_normal(len(X))
        nobody = np.zeros(len(X), dtype=np.int64)
        everybody = np.ones(len(X), dtype=np.int64)
        of_controls = noise * np.sqrt(self.variance(X, nobody))
        of_treated = noise * np.sqrt(self.variance(X, everybody))
        return np.column_stack([main - half + of_controls, main + half + of_treated])


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated records and what is unknown in real data; all arrays are (n,).

    Parameters
    ----------
    scenario
        The population that they are drawn from.
    dataset
        The records.
    propensity
        P(A = 1 | X).
    contrast
        The effect E[Y(1) - Y(0) | X].
    main_effect
        The mean of the two potential outcomes given X.
    """

    scenario: Scenario
    dataset: Dataset
    propensity: Array
    contrast: Array
    main_effect: Array

    @property
    def optimal_rule(self) -> NDArray[np.int64]:
        """Treat where the contrast is positive (n,)."""
        return (self.contrast > 0).astype(np.int64)

    def accuracy(self, rule: ArrayLike) -> float:
        """Share of records where ``rule`` (n,) in {0, 1} is the optimal rule."""
        return float(np.mean(np.asarray(rule) == self.optimal_rule))

    def value(self, rule: ArrayLike) -> float:
        """Mean outcome if everyone were treated by ``rule`` (n,) in {0, 1}, without noise."""
        return float(np.mean(self.main_effect + (np.asarray(rule) - 0.5) * self.contrast))


def simulate(scenario: str, n_samples: int, *, rng: np.random.Generator | int) -> Simulation:
    """Draw ``n_samples`` records from ``"linear"``, ``"tree"`` or ``"nonlinear"``.

    The ten covariates are standard normals truncated to [-1, 1], and the logit of P(A = 1 | X) is
    0.3 X_1 - 0.5 X_2 + 0.05. The paper gives only the variance of the noise; here it is Gaussian.

    Parameters
    ----------
    scenario
        The name of the population.
    n_samples
        At least 2.
    rng
        A generator, or a seed.

    Raises
    ------
    DeclarationError
        For an unknown scenario, or fewer records.
    """
    if scenario not in SCENARIOS:
        raise DeclarationError(f"scenario = {scenario!r}: must be one of {', '.join(SCENARIOS)}")
    n_samples = whole_number("n_samples", n_samples, at_least=2)
    drawn = SCENARIOS[scenario]
    generator = np.random.default_rng(rng)
    X = draw_covariates(generator, n_samples)
    propensity = propensity_of(X)
    a = (generator.uniform(size=len(X)) < propensity).astype(np.int64)
    main_effect = drawn.main_effect(X)
    contrast = drawn.contrast(X)
    noise = generator.standard_normal(len(X)) * np.sqrt(drawn.variance(X, a))
    y = main_effect + (a - 0.5) * contrast + noise
    return Simulation(drawn, Dataset.from_arrays(X, a, y), propensity, contrast, main_effect)


def draw_covariates(rng: np.random.Generator, n_samples: int) -> Array:
    """Standard normals truncated to [-1, 1], (n, 10)."""
    X = ndtri(rng.uniform(ndtr(-1.0), ndtr(1.0), (n_samples, N_COVARIATES)))
    return np.clip(X, -1.0, 1.0)  # rounding in the inverse may step over the end


def propensity_of(X: Array) -> Array:
    """P(A = 1 | X) of rows X (n, 10), the same in every scenario."""
    return np.asarray(expit(0.3 * X[:, 0] - 0.5 * X[:, 1] + 0.05))


def _quadratic(X: Array) -> Array:
    """Sum over the first five covariates of ``x + 2/3 (2 x^2 - 1)``."""
    first_five = X[:, :5]
    return np.asarray(np.sum(first_five + (2.0 / 3.0) * (2.0 * first_five**2 - 1.0), axis=1))


def _linear_main_effect(X: Array) -> Array:
    return -0.1 * _quadratic(X)


def _linear_contrast(X: Array) -> Array:
    return np.asarray(8.0 * X[:, 0] - 8.0 * X[:, 1] + 4.0 * X[:, 2] + 8.0 * X[:, 3])


def _tree_main_effect(X: Array) -> Array:
    return -3.0 * _quadratic(X)


def _tree_contrast(X: Array) -> Array:
    first = X[:, 0]
    fourth = X[:, 3]
    by_first = 6.0 * (first > -0.5) * np.sign(first - 0.5)
    by_fourth = 5.0 * (2.0 * first < -0.5) * np.sign(fourth + 0.5)
    return np.asarray(by_first + by_fourth + 1.0)


def _nonlinear_main_effect(X: Array) -> Array:
    x1, x2, x3, x4, x5 = X[:, :5].T
    polynomial = 2.0 + 3.0 * x1 + 2.0 * x2 + 3.0 * x4 - 2.5 * x4**2 - 1.5 * x5**2 + 2.0 * x1 * x2
    return np.asarray(polynomial + 2.0 * np.exp(-x1 * x2) + np.sin(x3))


def _nonlinear_contrast(X: Array) -> Array:
    return np.asarray(-0.5 - 2.0 * X[:, 3] + X[:, 3] ** 2 + 2.5 * X[:, 4] ** 2)


def _nonlinear_variance(X: Array, a: NDArray[np.int64]) -> Array:
    x2, x3, x4 = np.maximum(X[:, 1:4], 0.0).T
    return np.asarray(0.25 + 2.0 * x2 + x3 * (a == 1) + x4 * (a == 0))


def _two(X: Array, a: NDArray[np.int64]) -> Array:
    return np.full(len(X), 2.0)


#: The populations that :func:`simulate` draws from, by name.
SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "linear": Scenario("linear", _linear_main_effect, _linear_contrast, _two),
        "tree": Scenario("tree", _tree_main_effect, _tree_contrast, _two),
        "nonlinear": Scenario(
            "nonlinear", _nonlinear_main_effect, _nonlinear_contrast, _nonlinear_variance
        ),
    }
)
