"""Private estimators of an effect, and rules, that others published.

They are written from their public descriptions. Instances are settings, which are public. A call
``method(records, budget, rng)`` is a function of its arguments alone, so that it can be audited
from outside. It simulates: noise is seeded, in floating point, and nothing that it returns may be
published. All but the package dpate yield what is random in them as ``stages``, so that
``dp2erm_cvx.audit`` computes their losses exactly.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import ClassVar, Literal

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.additive import Noised, Split, Stages, run_stages
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.numbers import analytic_ratio
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.diagnostics import Estimate
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.privacy import Budget


def ridge_logistic(X: Array, a: Array, ridge: float | Array, weight: Array | float = 1.0) -> Array:
    """The minimizer (p,) of the mean logistic loss and ``ridge/2 |w|^2``, by Newton's method.

    ``ridge`` > 0 is one number, or one per column; ``weight`` >= 0 is one number, or one per
    record.
    """
    n, p = X.shape
    sign: Array = 2.0 * a - 1.0
    w: Array = np.zeros(p)

    def objective(w: Array) -> float:
        return float(np.mean(weight * np.logaddexp(0.0, -sign * (X @ w)))) + 0.5 * float(
            np.sum(ridge * w * w)
        )

    for _ in range(100):
        share = 0.5 * (1.0 - np.tanh(0.5 * sign * (X @ w)))
        gradient = ridge * w - X.T @ (weight * sign * share) / n
        hessian = (X.T * (weight * share * (1.0 - share))) @ X / n + np.diag(np.full(p, ridge))
        step = np.linalg.solve(hessian, gradient)
        decrement, size = float(gradient @ step), 1.0
        # below this the objective is rounding, and a whole step is as good as any
        if decrement > 1e-12:
            at = objective(w)
            while size > 1e-6 and objective(w - size * step) > at - 0.1 * size * decrement:
                size /= 2.0
        w -= size * step
        if decrement < 1e-16:
            break
    return w


def ridge_line(X: Array, y: Array, ridge: float | Array) -> Array:
    """The minimizer (p,) of the mean squared error and ``ridge |w|^2``; 0 without records."""
    squares = X.T @ X + max(len(y), 1) * np.diag(np.full(X.shape[1], ridge))
    return np.asarray(np.linalg.solve(squares, X.T @ y), dtype=np.float64)


def probability(logit: Array, clip: float) -> Array:
    """Probability of treatment, at least ``clip`` and at most 1 - ``clip``."""
    p: Array = np.clip(0.5 * (1.0 + np.tanh(0.5 * logit)), clip, 1.0 - clip)
    return p


def noisy(value: float | Array, sensitivity: float, budget: Budget) -> Noised:
    """Noise for a Euclidean sensitivity.

    Its density is ``exp(-epsilon |b| / sensitivity)``, or it is Gaussian. For a number that is
    Laplace noise. Gaussian noise is of the smallest scale (Balle and Wang 2018), which is mu-GDP
    for the mu that has this delta at this epsilon.
    """
    if budget.delta == 0.0:
        return Noised(value, sensitivity / budget.epsilon, Noise.GAMMA, sensitivity)
    scale = sensitivity / analytic_ratio(budget.epsilon, budget.delta)
    return Noised(value, scale, Noise.GAUSSIAN, sensitivity)


def deviation(noised: Noised) -> float:
    """Root mean square of a coordinate of the noise, which is public."""
    pure = noised.noise is Noise.GAMMA
    return noised.scale * (math.sqrt(noised.center.size + 1.0) if pure else 1.0)


@dataclass(frozen=True)
class Effect:
    """An estimator of an average effect from records inside their space.

    Neighbors differ in one record. ``source`` says whose it is, ``assumes`` what a bound on every
    record is needed for; ``treated_only`` asks for the effect among the treated, where
    ``serves_treated``. With ``budget.delta`` = 0 noise is pure, else Gaussian.
    """

    source: ClassVar[str]
    assumes: ClassVar[str]
    serves_treated: ClassVar[bool] = False

    treated_only: bool = False

    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """Everything random in a call, in its order, and the estimate.

        The call may read nothing else at random.
        """
        raise NotImplementedError

    def __call__(self, records: Records, budget: Budget, rng: np.random.Generator) -> Estimate:
        """The estimate; its error is nan where no interval is public."""
        return run_stages(self.stages(records, budget), rng)


@dataclass(frozen=True)
class Rule:
    """A linear treatment rule, called in the same way as an effect.

    ``propensity`` (n,) is P(A = 1 | x), as of a trial.
    """

    source: ClassVar[str]
    assumes: ClassVar[str]

    def stages(self, records: Records, propensity: Array, budget: Budget | None) -> Stages[Array]:
        """Everything random in a call; nothing without a budget."""
        raise NotImplementedError

    def __call__(
        self, records: Records, propensity: Array, budget: Budget | None, rng: np.random.Generator
    ) -> Array:
        """Coefficients (p,) of a rule that treats where ``X theta`` > 0.

        Without a budget there is no noise.
        """
        return run_stages(self.stages(records, propensity, budget), rng)


def group_count(n: int, columns: int, per_column: float) -> int:
    """The number of groups that leaves enough records to each.

    A group has ``per_column`` records a column, and at least 20; there are at least two groups.
    """
    return max(2, int(n // max(20.0, per_column * columns)))


@dataclass(frozen=True)
class PrivatePropensity(Effect):
    """Half of the records fit the propensity, and the other half are weighted by it.

    Either half spends the budget. Output perturbation (Chaudhuri, Monteleoni and Sarwate 2011): for
    rows of norm at most 1 the minimizer moves by at most ``2/(m ridge)``. A mean of m terms
    ``a y/e - (1 - a) y/(1 - e)`` with e in [clip, 1 - clip] moves by at most ``2 B/(clip m)``. A
    record is in one half, so that nothing adds up.

    Parameters
    ----------
    ridge
        Of the logistic loss, for rows scaled to norm 1.
    clip
        The least probability of either arm that weights are computed from.
    """

    source: ClassVar[str] = "Lee, Gresele, Park & Muandet (2019), arXiv 1905.12592"
    assumes: ClassVar[str] = "norms of covariates, outcomes"

    ridge: float = 0.003
    clip: float = 0.1

    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """Stages of :class:`Effect`."""
        n, space = records.n_samples, records.space
        X = records.X / space.covariate_bound
        fit, rest = yield Split(n, 2)
        exact = ridge_logistic(X[fit], records.a[fit].astype(np.float64), self.ridge)
        w = yield noisy(exact, 2.0 / (len(fit) * self.ridge), budget)
        e = probability(X[rest] @ w, self.clip)
        a, y = records.a[rest], records.y[rest]
        value = float(np.mean(np.where(a == 1, y / e, -y / (1.0 - e))))
        released = yield noisy(value, 2.0 * space.outcome_bound / (self.clip * len(rest)), budget)
        return Estimate(released, math.nan)


@dataclass(frozen=True)
class SubsampleAggregate(Effect):
    """Weighted means by a logistic propensity in each of M random groups.

    Noise is added to their average. An effect is in [-2B, 2B], and so is the estimate of a group;
    one record is in one group, so that the average moves by at most ``4 B/M``: 2/M for outcomes of
    two values, which the paper is about.

    Parameters
    ----------
    per_column
        Records in a group for every column of the propensity, which fixes M.
    ridge
        Of the logistic loss within a group.
    """

    source: ClassVar[str] = "Guha & Reiter (2024), arXiv 2408.14766"
    assumes: ClassVar[str] = "outcomes"
    serves_treated: ClassVar[bool] = True

    per_column: float = 8.0
    ridge: float = 1e-3

    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """Stages of :class:`Effect`."""
        n, p = records.X.shape
        members = yield Split(n, group_count(n, p, self.per_column))
        largest = 2.0 * records.space.outcome_bound
        effects = [np.clip(self._of_group(records, rows), -largest, largest) for rows in members]
        sensitivity = 2.0 * largest / len(members)
        released = yield noisy(float(np.mean(effects)), sensitivity, budget)
        return Estimate(released, math.nan)

    def _of_group(self, records: Records, rows: Array) -> float:
        X, a, y = records.X[rows], records.a[rows], records.y[rows]
        if np.all(a == a[0]):
            return 0.0  # a group without one of the arms says nothing
        e = probability(X @ ridge_logistic(X, a.astype(np.float64), self.ridge), 1e-6)
        treated, control = (
            (a == 1, e / (1.0 - e)) if self.treated_only else ((a == 1) / e, 1.0 / (1.0 - e))
        )
        control = (a == 0) * control
        return float(treated @ y / np.sum(treated) - control @ y / np.sum(control))


@dataclass(frozen=True)
class FoldNuisances(Effect):
    """K folds fit nuisances without noise; a record's are the means of those of the other folds.

    Regressions are clipped to the outcomes' interval and inverse probabilities to [1/(1 - clip),
    1/clip] before they are averaged. A replaced record moves its own term by at most ``own``, and
    one of K - 1 models in the terms of n - n/K others by at most ``others``: the mean by
    ``own/n + others/K``.

    Parameters
    ----------
    estimator
        "g" (regressions alone), "ipw" or "aipw".
    per_column
        Records in a fold for every column, which fixes K.
    ridge
        Of both nuisances, but for their constants.
    clip
        The least probability of either arm.
    """

    source: ClassVar[str] = "Lebeda, Even, Bellet & Josse (2025), arXiv 2505.19589"
    assumes: ClassVar[str] = "outcomes"

    estimator: Literal["g", "ipw", "aipw"] = "aipw"
    per_column: float = 8.0
    ridge: float = 0.01
    clip: float = 0.1

    def __post_init__(self) -> None:
        if self.estimator not in ("g", "ipw", "aipw"):
            raise DeclarationError(f"estimator = {self.estimator!r}: must be g, ipw or aipw")

    def sensitivity(self, records: Records, folds: int) -> float:
        """How far the mean moves at most; folds of different sizes count as the smallest.

        With w in [1/(1 - clip), 1/clip] and regressions in [-B, B] a term of "aipw" is
        ``w y - (w - 1) m_1 - m_0`` in the first arm, at most 2 B w. It moves by
        ``(w' - w)(y - m_1) - (w' - 1)(m_1' - m_1) - (m_0' - m_0)`` if a model of each is replaced.
        """
        B, high = records.space.outcome_bound, 1.0 / self.clip
        spread = high - 1.0 / (1.0 - self.clip)
        own, other = {
            "g": (4.0 * B, 4.0 * B),
            "ipw": (2.0 * B * high, B * spread),
            "aipw": (4.0 * B * high, 2.0 * B * (spread + high)),
        }[self.estimator]
        n = records.n_samples
        return own / n + other * (n - n // folds) / (n * (folds - 1))

    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """Stages of :class:`Effect`."""
        n, p = records.X.shape
        members = yield Split(n, group_count(n, p, self.per_column))
        total = np.zeros((4, n))
        for rows in members:
            part = self._of_fold(records, rows)
            total += part
            total[:, rows] -= part[:, rows]
        m_0, m_1, inverse_0, inverse_1 = total / (len(members) - 1)
        y, treated = records.y, records.a == 1
        if self.estimator == "g":
            terms = m_1 - m_0
        elif self.estimator == "ipw":
            terms = np.where(treated, inverse_1 * y, -inverse_0 * y)
        else:
            terms = m_1 - m_0 + np.where(treated, inverse_1 * (y - m_1), -inverse_0 * (y - m_0))
        sensitivity = self.sensitivity(records, len(members))
        released = yield noisy(float(np.mean(terms)), sensitivity, budget)
        return Estimate(released, math.nan)

    def _of_fold(self, records: Records, rows: Array) -> Array:
        """Regressions and inverse probabilities (4, n) of all records, by one fold's models."""
        X, a, B = records.X, records.a[rows], records.space.outcome_bound
        lines = np.zeros((4, len(X)))
        ridge = np.full(X.shape[1], self.ridge)
        if records.space.intercept:
            ridge[0] = 1e-6
        if self.estimator != "ipw":
            for arm in (0, 1):
                own = rows[a == arm]
                lines[arm] = np.clip(X @ ridge_line(X[own], records.y[own], ridge), -B, B)
        if self.estimator != "g":
            logit = X @ ridge_logistic(X[rows], a.astype(np.float64), ridge)
            odds = np.exp(np.clip(logit, -50.0, 50.0))
            lines[2:] = np.clip(
                [1.0 + odds, 1.0 + 1.0 / odds], 1.0 / (1.0 - self.clip), 1.0 / self.clip
            )
        return lines


@dataclass(frozen=True)
class NoisyLeastSquares(Effect):
    """The coefficient of treatment, from noisy second moments.

    These are of covariates, treatment and outcome. Rows are scaled to ``|x| <= 1``, ``a`` in {-1/2,
    1/2} times ``treatment_scale`` and ``|y| <= 1``: so that ``|z|^2 <= R^2`` = 2 +
    treatment_scale^2/4 for ``z = (x, a, y)``. ``z z'`` moves by at most sqrt(2) R^2 in Frobenius
    norm, which is the Euclidean norm of its upper triangle with the sides times sqrt(2) (Dwork,
    Talwar, Thakurta and Zhang 2014). A ridge of the size of the noise keeps the equations solvable.

    Parameters
    ----------
    treatment_scale
        Of the treatment beside covariates of norm 1.
    ridge
        In units of the noise's standard deviation times the root of the number of columns.
    """

    source: ClassVar[str] = "sufficient statistics: Vu & Slavkovic (2009), Dwork et al. (2014)"
    assumes: ClassVar[str] = "norms of covariates, outcomes"
    serves_treated: ClassVar[bool] = True

    treatment_scale: float = 1.0
    ridge: float = 1.0

    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """Stages of :class:`Effect`."""
        space = records.space
        arm = self.treatment_scale * (records.a - 0.5)
        z = np.column_stack(
            [records.X / space.covariate_bound, arm, records.y / space.outcome_bound]
        )
        w = yield from _solved(
            z, 2.0 + 0.25 * self.treatment_scale**2, self.ridge, z.shape[1] - 2, budget
        )
        return Estimate(float(w[-1]) * self.treatment_scale * space.outcome_bound, math.nan)


@dataclass(frozen=True)
class NoisyInteractions(Rule):
    """The sign of the effect by the noisy least squares of y on x and (a - 1/2) x.

    Rows ``(x, (a - 1/2) treatment_scale x, y)`` are in the same ball as above, because
    ``|x| <= 1``.
    """

    source: ClassVar[str] = "sufficient statistics: Vu & Slavkovic (2009), Dwork et al. (2014)"
    assumes: ClassVar[str] = "norms of covariates, outcomes"

    treatment_scale: float = 2.0
    ridge: float = 1.0

    def stages(self, records: Records, propensity: Array, budget: Budget | None) -> Stages[Array]:
        """Stages of :class:`Rule`."""
        x, p = records.X / records.space.covariate_bound, records.X.shape[1]
        arm = self.treatment_scale * (records.a - 0.5)[:, None] * x
        z = np.column_stack([x, arm, records.y / records.space.outcome_bound])
        if budget is None:
            return np.asarray(np.linalg.lstsq(z[:, :-1], z[:, -1])[0][p:], dtype=np.float64)
        # the constant of the effect has no ridge, as the treatment above has none
        w = yield from _solved(z, 2.0 + 0.25 * self.treatment_scale**2, self.ridge, p, budget)
        return w[p:]


def _solved(z: Array, largest: float, ridge: float, free: int, budget: Budget) -> Stages[Array]:
    """Coefficients of the last column of z (n, m) on the others.

    The column of number ``free`` has no ridge. ``largest`` bounds the squared norm of a row.
    """
    squares, columns = z.T @ z, z.shape[1]
    sides = np.triu_indices(columns)
    weight = np.where(sides[0] == sides[1], 1.0, math.sqrt(2.0))
    moves = math.sqrt(2.0) * largest
    noised = noisy(squares[sides] * weight, moves, budget)
    released = yield noised
    squares[sides] = released / weight
    squares.T[sides] = squares[sides]
    size = ridge * deviation(noised) * math.sqrt(columns)
    penalized = np.ones(columns - 1)
    penalized[free] = 0.0
    left = squares[:-1, :-1] + size * np.diag(penalized)
    lowest = float(np.linalg.eigvalsh(left)[0])
    left += max(0.0, 0.1 * size - lowest) * np.eye(columns - 1)
    return np.asarray(np.linalg.solve(left, squares[:-1, -1]), dtype=np.float64)


#: Without noise: as little as keeps a minimizer.
_LEAST_RIDGE = 1e-5


@dataclass(frozen=True)
class WeightedLearning(Rule):
    """Classify the treatment, each record weighted by its outcome over the probability of its arm.

    Outcomes count from the lower end of their interval, probabilities are at least ``clip``:
    weights are in [0, 1] in units of ``2 B/clip``. For rows of norm 1 and the logistic loss a
    term's gradient is at most its weight, so that the minimizer moves by at most ``2/(n ridge)``,
    to which noise is added.

    Parameters
    ----------
    ridge
        For rows scaled to norm 1 and weights of at most 1.
    clip
        The least probability of an arm.
    """

    source: ClassVar[str] = "Giddens, Zhou, Krull, Brinkman, Song & Liu (2023), arXiv 2307.13127"
    assumes: ClassVar[str] = "norms of covariates, outcomes; a known propensity"

    ridge: float = 0.01
    clip: float = 0.1

    def stages(self, records: Records, propensity: Array, budget: Budget | None) -> Stages[Array]:
        """Stages of :class:`Rule`."""
        space = records.space
        X, a = records.X / space.covariate_bound, records.a.astype(np.float64)
        share = np.maximum(np.where(records.a == 1, propensity, 1.0 - propensity), self.clip)
        weight = (records.y + space.outcome_bound) / (2.0 * space.outcome_bound) * self.clip / share
        if budget is None:
            return ridge_logistic(X, a, _LEAST_RIDGE, weight)
        theta = ridge_logistic(X, a, self.ridge, weight)
        released: Array = yield noisy(theta, 2.0 / (len(X) * self.ridge), budget)
        return released


@dataclass(frozen=True)
class Dpate(Effect):
    """One function of dpate (MIT) at its defaults.

    Covariates are in the unit ball, as it asks for. Nothing of it is changed but where its random
    numbers come from, so that a seed decides. Its guarantee is what it states, and of several
    functions it is refuted (page "Audited methods"). Raises DataError where the package is missing,
    and what its function raises.
    """

    source: ClassVar[str] = "dpate 0.0.1, github.com/dstewtes/dpate"
    assumes: ClassVar[str] = "norms of covariates, outcomes"

    function: str = "dp_ipw_split"

    def __call__(self, records: Records, budget: Budget, rng: np.random.Generator) -> Estimate:
        """Estimate of :class:`Effect`."""
        if find_spec("dpate") is None:
            raise DataError(
                "the package dpate is not installed: pip install dpate (Python 3.12 or later)"
            )
        space = records.space
        kind = "gaussian" if budget.delta else "laplacian"
        call = getattr(import_module("dpate"), self.function)
        # arrays of its own: records cannot be written
        x, a, y = (
            records.covariates / space.features_bound,
            np.array(records.a),
            np.array(records.y),
        )
        with _seeded(import_module("dpate.utils"), rng):
            estimate = call(
                x, a, y, space.outcome_bound, budget.epsilon, delta=budget.delta, distr=kind
            )
        return Estimate(float(np.squeeze(estimate)), math.nan)


@contextmanager
def _seeded(utils: ModuleType, rng: np.random.Generator):
    """Draw the noise from this generator, and numpy's permutations from a seed of it."""
    own, state = utils.np, np.random.get_state()  # noqa: NPY002
    utils.np = SimpleNamespace(random=SimpleNamespace(default_rng=lambda: rng))
    np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002
    try:
        yield
    finally:
        utils.np = own
        np.random.set_state(state)  # noqa: NPY002


#: Effects, by the names of designs.
EFFECTS = {
    "dpate": Dpate,
    "folds": FoldNuisances,
    "noisy_least_squares": NoisyLeastSquares,
    "private_propensity": PrivatePropensity,
    "subsample_aggregate": SubsampleAggregate,
}
#: Rules, in the same way.
RULES = {"noisy_interactions": NoisyInteractions, "weighted_learning": WeightedLearning}
