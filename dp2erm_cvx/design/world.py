"""Records drawn from a guess of the world, with what is unknown of real ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dp2erm_cvx.design.question import Guess, driver_columns
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan.predict import public_covariates

#: Records that the moments of covariates and true effects are computed from.
_CENSUS = 10_000
#: How far the mean outcome lies off its declared center, in standard deviations: nobody knows it in advance.
_OFF = 0.5
#: How far the means of covariates lie off their typical values, in standard deviations: what an interval for
#: an effect assumes where it cannot see more.
_SHIFT = 0.25
#: The probabilities that two outcomes keep.
_LEAST = 0.02


@dataclass(frozen=True, eq=False)
class World:
    """One population that a filled ``guess`` describes.

    Two lines in the scaled covariates are drawn by ``seed``: one that outcome and log odds of treatment
    follow alike, one that the effect follows. Both have a standard deviation of 1 in the population, so that
    the guess states the sizes. Covariates are those of
    :func:`~dp2erm_cvx.plan.predict.public_covariates`.
    """

    domain: Domain
    n_features: int
    guess: Guess
    seed: tuple[int, ...] = (0,)
    census: Array = field(init=False, repr=False)
    _line: Array = field(init=False, repr=False)
    _other: Array = field(init=False, repr=False)
    _center: Array = field(init=False, repr=False)
    _share: float = field(init=False, repr=False)
    _square: tuple[float, float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        put, rng = object.__setattr__, np.random.default_rng(self.seed)
        put(self, "census", public_covariates(self.domain, self.n_features, _CENSUS, rng, _SHIFT))
        own = self._scaled(self.census)
        put(self, "_center", own.mean(axis=0))
        own = own - self._center
        covariance, spread = own.T @ own / len(own), own.std(axis=0)
        known = spread > 1e-9 * spread.max(initial=0.0)
        if not known.any():
            raise DeclarationError("the domain leaves covariates no room to vary")
        # over its declared range every covariate matters as much as any other
        first, second = np.where(known, rng.standard_normal((2, len(spread))), 0.0)
        line = _unit(first, covariance)
        left = second - (second @ covariance @ line) * line
        put(self, "_line", line)
        put(self, "_other", line if np.sum(known) == 1 else _unit(left, covariance))
        along = self._along(self.census)[0]
        put(self, "_share", self._constant(along))
        slope, constant = np.polyfit(along, along**2, 1)
        left = float(np.std(along**2 - slope * along))
        put(self, "_square", (float(slope), float(constant), max(left, 1e-300)))

    def _scaled(self, X: Array) -> Array:
        columns = driver_columns(self.guess, self.domain, self.n_features)
        return self.domain.features(X)[:, [index + bool(self.domain.intercept) for index in columns]]

    def _along(self, X: Array) -> tuple[Array, Array]:
        """The two lines at raw covariates (n, k)."""
        own = self._scaled(X) - self._center
        return own @ self._line, own @ self._other

    def _constant(self, line: Array) -> float:
        """That of the log odds, by which the declared share is treated."""
        low, high = -60.0, 60.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = float(np.mean(expit(middle + self.guess.log_odds * line))) > self.guess.treated
            low, high = (low, middle) if above else (middle, high)
        return 0.5 * (low + high)

    def propensity(self, X: Array) -> Array:
        """P(A = 1 | x), (n,)."""
        return np.asarray(expit(self._share + self.guess.log_odds * self._along(X)[0]))

    def means(self, X: Array) -> Array:
        """Mean outcomes without and with treatment, (n, 2), before any cost."""
        guess, cost = self.guess, self.domain.treatment_cost
        assert guess.outcome_scale is not None
        assert guess.effect is not None
        assert guess.effect_spread is not None
        line, other = self._along(X)
        slope, constant, left = self._square
        square = (line**2 - slope * line - constant) / left
        bent = math.sqrt(1.0 - guess.curved) * line + math.sqrt(guess.curved) * square
        middle = self.domain.outcome_center + _OFF * guess.outcome_scale * (0.0 if guess.binary else 1.0)
        control = middle + guess.outcome_scale * math.sqrt(guess.explained) * bent
        effect = guess.effect + guess.effect_spread * other
        control = control - 0.5 * (effect - cost)
        found = np.column_stack([control, control + effect])
        if not guess.binary:
            return found
        low = self.domain.outcome_center - self.domain.outcome_bound
        room = 2.0 * self.domain.outcome_bound
        return low + room * np.clip((found - low) / room, _LEAST, 1.0 - _LEAST)

    def effects(self, X: Array) -> Array:
        """True effects (n,) net of the cost of treatment."""
        found = self.means(X)
        return np.asarray(found[:, 1] - found[:, 0] - self.domain.treatment_cost)

    def truth(self, estimand: str) -> float:
        """The mean net effect in the population that an estimand is about."""
        e, effects = self.propensity(self.census), self.effects(self.census)
        shares = {"ate": np.ones(len(e)), "att": e, "overlap": np.minimum(e, 1.0 - e)}
        return float(np.average(effects, weights=shares[estimand]))

    @property
    def confounded_by(self) -> float:
        """How far the plain difference of means is off, in units of the outcome."""
        e, means = self.propensity(self.census), self.means(self.census)
        naive = np.average(means[:, 1], weights=e) - np.average(means[:, 0], weights=1.0 - e)
        return float(naive - np.mean(means[:, 1] - means[:, 0]))

    def draw(self, n_samples: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64], Array]:
        """Independent raw records: covariates (n, k), treatments and outcomes (n,)."""
        X = public_covariates(self.domain, self.n_features, n_samples, rng, _SHIFT)
        a = (rng.random(n_samples) < self.propensity(X)).astype(np.int64)
        mean = self.means(X)[np.arange(n_samples), a]
        if self.guess.binary:
            bound = self.domain.outcome_bound
            low, room = self.domain.outcome_center - bound, 2.0 * bound
            high = (rng.random(n_samples) < (mean - low) / room).astype(np.float64)
            return X, a, low + room * high
        assert self.guess.outcome_scale is not None
        noise = math.sqrt(1.0 - self.guess.explained) * self.guess.outcome_scale
        return X, a, mean + noise * rng.standard_normal(n_samples)


def _unit(weights: Array, covariance: Array) -> Array:
    """The same direction, along which covariates have a standard deviation of 1."""
    return np.asarray(weights / math.sqrt(max(float(weights @ covariance @ weights), 1e-300)))
