"""Record maps: one record and what was released make one record of another public space.

Theorem 10 is about them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import check_settings, one_of, setting
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records, cleaned
from dp2erm_cvx.data.space import Space

#: Rows are computed in floating point from covariates that were clipped from just below.
_ROUND_UP = 1.0 + 1e-12

#: Residuals are clipped to this many outcome bounds, which saturating losses do not notice.
RESIDUAL_BOUND = 4.0


#: K, the whole number that a record adds to sums where it may add a share; a power of two: K-ths
#: are exact.
UNIT = 2**20

#: A released rate of treatment counts as at least one in this many, of either arm.
RAREST = 50.0


def treated_share(released: Array, n_samples: int) -> float:
    """The treated share from a released rate, between 1/RAREST and 1 less that.

    So what divides by it is bounded.

    Parameters
    ----------
    released
        The number of treated records; or sums of weights, those of the treated of all groups before
        those of the untreated.
    n_samples
        The number of records.
    """
    if len(released) == 1:
        share = float(released[0]) / n_samples
    else:
        sums = np.reshape(released, (2, -1))
        treated = max(float(np.sum(sums[0])), 0.0)
        untreated = max(float(np.sum(sums[1])), 0.0)
        total = treated + untreated
        share = treated / total if total > 0.0 else 0.5
    return min(max(share, 1.0 / RAREST), 1.0 - 1.0 / RAREST)


class Rows(enum.StrEnum):
    """Rows of a linear outcome regression in the covariates x (k,) and the arm a.

    ``COMMON``: an intercept per arm and common slopes, (1-a, a, x). ``ARMS``: each arm on its own,
    ((1-a)(1, x), a (1, x)). ``POOLED``: no arms, (1, x). The arms, of any number, are numbered from
    0 on.
    """

    COMMON = "common"
    ARMS = "arms"
    POOLED = "pooled"

    def of(self, x: Array, a: ArrayLike, n_arms: int = 2) -> Array:
        """The rows (n, p) of covariates x (n, k) and treatments a (n,), numbers of arms."""
        treated = np.broadcast_to(np.asarray(a, dtype=np.float64), (len(x),))[:, None]
        arms = [1.0 - treated, treated]
        if n_arms > 2:
            arms = [(treated == arm).astype(np.float64) for arm in range(n_arms)]
        if self is Rows.POOLED:
            parts = [np.ones((len(x), 1)), x]
        elif self is Rows.ARMS:
            parts = []
            for arm in arms:
                parts.extend((arm, arm * x))
        else:
            parts = [*arms, x]
        return np.ascontiguousarray(np.hstack(parts))

    def predict(self, theta: ArrayLike, x: Array, a: ArrayLike, n_arms: int = 2) -> Array:
        """``<row, theta>`` (n,), row by row.

        A matrix product may round a row by where it stands.
        """
        number = np.broadcast_to(np.asarray(a, dtype=np.float64), (len(x),))
        if n_arms <= 2:
            number = (number == 1.0).astype(np.float64)
        coefficient = np.asarray(theta, dtype=np.float64)
        predicted = np.empty(len(x))
        with np.errstate(over="ignore", invalid="ignore"):
            for arm in range(n_arms):
                intercept, slopes = self._line_of(coefficient, arm, n_arms)
                rows = np.flatnonzero(number == arm)
                # Mostly all records are asked about one arm, and need no copy.
                of_arm = x if len(rows) == len(x) else x[rows]
                products = np.multiply(of_arm, slopes, order="C")
                predicted[rows] = np.sum(products, axis=1) + intercept
        return predicted

    def _line_of(self, theta: Array, arm: int, n_arms: int) -> tuple[float, Array]:
        """Intercept and slopes (k,) of an arm, from the coefficient theta (p,)."""
        if self is Rows.POOLED:
            return float(theta[0]), theta[1:]
        if self is Rows.COMMON:
            return float(theta[arm]), theta[n_arms:]
        of_arm = np.reshape(theta, (n_arms, -1))[arm]
        return float(of_arm[0]), of_arm[1:]

    def names(
        self, columns: tuple[str, ...], arms: tuple[str, ...] = ("control", "treated")
    ) -> tuple[str, ...]:
        """The name of every coordinate of theta."""
        if self is Rows.COMMON:
            return (*arms, *columns)
        own = ("intercept", *columns)
        if self is not Rows.ARMS:
            return own
        names: list[str] = []
        for arm in arms:
            names.extend(f"{name} | {arm}" for name in own)
        return tuple(names)

    def constants(self, n_features: int, n_arms: int = 2) -> NDArray[np.bool_]:
        """Where the rows (p,) hold no covariate: True for an intercept."""
        intercepts = n_arms if self is Rows.COMMON else 1
        is_constant = np.arange(intercepts + n_features) < intercepts
        return np.tile(is_constant, n_arms) if self is Rows.ARMS else is_constant

    def widths(self, bounds: tuple[float, ...] | None, n_arms: int = 2) -> tuple[float, ...] | None:
        """Bounds on the size of every entry of a row (p,), from those on the covariates (k,).

        Every entry is a constant or a multiple of one covariate, so that it is largest at their
        bounds.
        """
        if bounds is None:
            return None
        largest = np.array([bounds])
        widths = np.max([np.abs(self.of(largest, arm, n_arms)[0]) for arm in range(n_arms)], axis=0)
        return tuple(widths.tolist())

    def norm(self, bound: float) -> float:
        """Bound on the norm of a row for covariates of norm at most ``bound``."""
        return math.hypot(1.0, bound) * _ROUND_UP


@dataclass(frozen=True)
class Term:
    """One linear regression.

    Parameters
    ----------
    rows
        Its rows.
    source
        The step that released its coefficient, or a public one (p,).
    stretch
        What the coefficients of covariates count, which undoes a known shrinkage: (k,), or as many
        for every arm.
    n_arms
        Number of arms.
    """

    rows: Rows
    source: str | tuple[float, ...]
    stretch: tuple[float, ...] | None = None
    n_arms: int = 2

    def predict(self, x: Array, a: ArrayLike, released: Mapping[str, Array]) -> Array:
        """The regression (n,) at covariates x (n, k) and treatments a (n,)."""
        return self.rows.predict(self.coefficient(x.shape[1], released), x, a, self.n_arms)

    def coefficient(self, n_features: int, released: Mapping[str, Array]) -> Array:
        """The coefficient (p,) that predicts: its own array."""
        source = released[self.source] if isinstance(self.source, str) else self.source
        theta = np.array(source, dtype=float)
        if self.stretch is not None:
            slopes = ~self.rows.constants(n_features, self.n_arms)
            theta[slopes] *= np.resize(self.stretch, int(slopes.sum()))
        return theta


class Arms(enum.StrEnum):
    """How much a record counts in an outcome regression, by its arm and the rate p of treatment.

    ``ALIKE``: 1. ``BALANCED``: 1 in the smaller arm and, at a ``noise_ratio`` of 0, the squared
    odds of it in the larger one: common slopes then tend to ``(1 - p) beta_1 + p beta_0``, those
    that the bias of an average effect is measured from. A larger ratio r, the noise of a slope at
    equal counts over the spread of effects, trades that for more records: with q the share of the
    smaller arm all count ``(r^2 + q^2)/(q (1 - q))`` on average, where noise and bias are together
    least. ``CONTROLS``: slopes are those of the untreated, and the treated have an intercept alone.
    ``MATCHED``: ``h (1 - p)/p`` of the treated and ``h p/(1 - p)`` of the untreated,
    ``h = min(p, 1 - p)``: at a released propensity p of x, errors of both nuisances then multiply
    in the overlap population.
    """

    ALIKE = "alike"
    BALANCED = "balanced"
    CONTROLS = "controls"
    MATCHED = "matched"

    def weights(self, rate: Any, noise_ratio: float = 0.0) -> tuple[Any, Any]:
        """Weights of an untreated and a treated record in slopes, in [0, 1].

        Parameters
        ----------
        rate
            The rate of treatment, or many of them (n,).
        noise_ratio
            r, the noise of a slope over the spread of effects.
        """
        if self is Arms.MATCHED:
            other = 1.0 - rate
            untreated = rate * np.minimum(rate / np.maximum(other, 0.5), 1.0)
            treated = other * np.minimum(other / np.maximum(rate, 0.5), 1.0)
            return untreated, treated
        if self is Arms.CONTROLS:
            return 1.0, 0.0
        if self is Arms.ALIKE:
            return 1.0, 1.0
        smaller_arm = min(rate, 1.0 - rate)
        larger_arm = 1.0 - smaller_arm
        ratio = min(noise_ratio, 1.0)  # from .36 on all count alike
        mean_count = (ratio**2 + smaller_arm**2) / (smaller_arm * larger_arm)
        weight = (mean_count - smaller_arm) / larger_arm
        weight = min(max(weight, (smaller_arm / larger_arm) ** 2), 1.0)
        return (weight, 1.0) if rate <= 0.5 else (1.0, weight)


@dataclass(frozen=True)
class OutcomeRows:
    """A map of records by themselves to those that a regression is fitted to.

    Whoever changes one record changes one mapped record, and weights 1 stay weights 1. So whatever
    is private on the mapped records, with bounds fixed before anything was released, is private
    here (Theorem 10).

    Parameters
    ----------
    rows
        The rows of the regression.
    after
        The regression after which it comes, whose predictions are subtracted from the outcome
        before the residual is clipped; None for none.
    scale
        Public factor of the covariates. The norm bound of the rows follows it, and noise and
        shrinkage weigh on intercepts and slopes in the proportion that it declares.
    arms
        What records of either arm count. All those of more than two arms count alike.
    rate
        The rate of treatment that this follows: a number, or the step that released it.
    log_odds
        A released propensity on (1, x), which takes the place of the rate; None for none.
    noise_ratio
        The noise of a slope over the spread of effects, for balanced arms.
    n_arms
        Number of arms.
    """

    rows: Rows
    after: Term | None = None
    scale: float = 1.0
    arms: Arms = Arms.ALIKE
    rate: Any = 0.5
    log_odds: Term | None = None
    noise_ratio: float = 0.0
    n_arms: int = 2

    @property
    def factored(self) -> bool:
        """True if a record may count with a factor below 1, beside its sampling weight."""
        return self.arms not in (Arms.ALIKE, Arms.CONTROLS)

    @property
    def blocks(self) -> int:
        """Blocks of columns, as many in each, of which every row has entries in one alone."""
        return self.n_arms if self.n_arms > 2 and self.rows is Rows.ARMS else 1

    def at(self, released: Mapping[str, Array], n_samples: int) -> Self:
        """The map with the rate that was ``released`` for ``n_samples`` records worked out."""
        if not isinstance(self.rate, str) or not self.factored or self.log_odds is not None:
            return self
        return replace(self, rate=treated_share(released[self.rate], n_samples))

    def factors(self, records: Records, released: Mapping[str, Array]) -> Array:
        """Weight of every mapped record (n,), in [0, 1].

        It is a function of the record itself and of what was released alone.
        """
        if not self.factored:
            return records.counts
        rate: Any = self.rate
        if self.log_odds is not None:
            log_odds = self.log_odds.predict(records.covariates, records.a, released)
            rate = cleaned(expit(log_odds) - 0.5, 0.5) + 0.5  # as the score does
        untreated, treated = self.arms.weights(rate, self.noise_ratio)
        return np.asarray(np.where(records.a == 1, treated, untreated) * records.counts)

    def universe(self, universe: MappedUniverse) -> MappedUniverse:
        """The public datasets that those of ``universe`` are mapped into, whatever was released."""
        space = universe.space
        bounds = space.widths(universe.n_features)
        if bounds is not None:
            bounds = tuple(self.scale * bound for bound in bounds)
        largest = self.rows.widths(bounds, self.n_arms)
        mapped = replace(
            space,
            covariate_bound=self.rows.norm(self.scale * space.features_bound),
            outcome_bound=space.outcome_bound * self._outcomes,
            intercept=0.0,
            lower=None if largest is None else tuple(-width for width in largest),
            upper=largest,
            scale=None,
            columns=None,
        )
        width = len(self.rows.constants(universe.n_features, self.n_arms))
        return MappedUniverse(mapped, universe.n_samples, width)

    def records(self, records: Records, released: Mapping[str, Array]) -> Records:
        """The mapped records, each of its own and of ``released`` alone."""
        n_samples = max(records.n_samples, 2)
        where = self.universe(MappedUniverse(records.space, n_samples, records.n_features))
        made = partial(self._made, space=where.space)
        outcomes = partial(self.outcomes, released=released)
        return records.mapped(made, outcomes, where.space, where.n_columns)

    def _made(self, records: Records, space: Space) -> Records:
        x = records.covariates
        a = records.a
        rows = self.rows.of(x, a, self.n_arms)
        slopes = ~self.rows.constants(x.shape[1], self.n_arms)
        # in place: a scaled copy of all covariates would be one more table in memory
        np.multiply(rows, self.scale, out=rows, where=slopes)
        if self.arms is Arms.CONTROLS:  # the treated have an intercept alone
            np.multiply(rows, 1.0 - a[:, None], out=rows, where=slopes)
        return replace(records, X=rows, space=space)

    def outcomes(self, records: Records, released: Mapping[str, Array]) -> Array:
        """The mapped outcomes (n,)."""
        y = records.y
        with np.errstate(over="ignore", invalid="ignore"):
            if self.after is not None:
                y = y - self.after.predict(records.covariates, records.a, released)
        return cleaned(y, records.space.outcome_bound * self._outcomes)

    @property
    def _outcomes(self) -> float:
        """The bound on what is left of an outcome, in outcome bounds."""
        return 1.0 if self.after is None else RESIDUAL_BOUND

    def unscaled(self, theta: Array, n_features: int) -> Array:
        """A coefficient (p,) on the mapped rows as one on rows of the covariates themselves."""
        return theta * np.where(self.rows.constants(n_features, self.n_arms), 1.0, self.scale)


@dataclass(frozen=True)
class WithConstant(OutcomeRows):
    """The records with a column of ones in front, whatever constant they had."""

    rows: Rows = Rows.POOLED

    def universe(self, universe: MappedUniverse) -> MappedUniverse:
        space = universe.space
        widths = space.widths(universe.n_features)
        mapped = replace(
            space,
            covariate_bound=self.rows.norm(space.features_bound),
            intercept=1.0,
            lower=None if widths is None else tuple(-width for width in widths),
            upper=widths,
            scale=None,
            columns=None,
        )
        return universe.within(mapped)


class Balance(enum.StrEnum):
    """How much a record of arm a counts, so that both arms have the same mass.

    It follows from ``P = P(A = a | x)``. ``MATCHING``: min(P, 1 - P)/P, of all such factors in [0,
    1] those of the largest mass. ``OVERLAP``: 1 - P. ``INVERSE``: min(1/P, F)/F with a cap F, less
    than both and noisier.
    """

    MATCHING = "matching"
    OVERLAP = "overlap"
    INVERSE = "inverse"


@dataclass(frozen=True)
class Factors:
    """A factor in [0, 1] of every record, a function of it and of what was released (Theorem 13).

    They multiply the losses as they are. A public multiple of a perturbed objective has the same
    minimizer, so that factors of at most F, at F times the noise and gamma, are these. Dividing by
    their sum instead would move every factor with one record.

    Parameters
    ----------
    log_odds
        log(e/(1 - e)) on (1, x): the step that released its coefficient, or a public one.
    balance
        A :class:`~dp2erm_cvx.steps.record_map.Balance`, or its name.
    cap
        F of at least 2, for inverse propensities.

    Raises DeclarationError for an invalid argument.
    """

    log_odds: Term
    balance: Balance | str = setting(check=one_of, kind=Balance)
    cap: float = setting(10.0, at_least=2.0)

    def __post_init__(self) -> None:
        check_settings(self)

    def of(self, x: Array, a: ArrayLike, released: Mapping[str, Array]) -> Array:
        """The factors (n,) of covariates x (n, k) and treatments a (n,), row by row. Private."""
        margin = (2.0 * np.asarray(a) - 1.0) * self.log_odds.predict(x, a, released)
        # one scalar function for all of them: that of a vector may round a row by where it stands
        own, other = expit(margin), expit(-margin)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.balance is Balance.MATCHING:
                ratio = np.where(margin > 0.0, other / own, 1.0)
            elif self.balance is Balance.OVERLAP:
                ratio = other
            else:
                ratio = np.minimum(1.0 / own, self.cap) / self.cap
        return cleaned(np.where(np.isnan(margin), 0.0, ratio), 1.0)


@dataclass(frozen=True)
class RuleRows(OutcomeRows):
    """Records that a rule is fitted to, with the outcome less a center.

    Parameters
    ----------
    balance
        What each record counts; None: 1.
    response_bound
        B, with which inverse propensities are on the response in place of the loss:
        ``clip_B((2a - 1) f (y - m))`` (Theorem 14). Its mean given x is the effect, for squared
        loss whatever the law of the outcome. None for factors of the loss.
    """

    balance: Factors | None = None
    response_bound: float | None = None

    @property
    def factored(self) -> bool:
        return self.balance is not None and self.response_bound is None

    def factors(self, records: Records, released: Mapping[str, Array]) -> Array:
        if self.balance is None or self.response_bound is not None:
            return records.counts
        return self.balance.of(records.covariates, records.a, released) * records.counts

    def universe(self, universe: MappedUniverse) -> MappedUniverse:
        own = super().universe(universe)
        if self.response_bound is None:
            return own
        return own.within(replace(own.space, outcome_bound=self.response_bound))

    def outcomes(self, records: Records, released: Mapping[str, Array]) -> Array:
        left = super().outcomes(records, released)
        if self.balance is None or self.response_bound is None:
            return left
        inverse = self.balance.cap * self.balance.of(records.covariates, records.a, released)
        return cleaned((2.0 * records.a - 1.0) * inverse * left, self.response_bound)
