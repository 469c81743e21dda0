"""Problems whose exact weights are known to 40 digits, because they were made from their prices."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.forms.features import BallSet, Features, IntervalSet
from dp2erm_cvx.weighting.forms.form import (
    FeatureRows,
    Imbalance,
    ImbalancePenalty,
    LogSumExpPenalty,
    Penalty,
    SumKind,
    WeightingForm,
    WeightSums,
)
from dp2erm_cvx.weighting.solving.certificate import Point
from dp2erm_cvx.weighting.solving.dataset import WeightingData, weighting_data
from dp2erm_cvx.weighting.solving.multipliers import met_sums
from tests.weighting.exact_slopes import exact_slope
from tests.weighting.examples import BOTH, DISPERSIONS, records_of

Number = mpmath.mpf
#: Ends of boxes that each dispersion is drawn with.
CAPS = (1.0 + 1e-9, 1.0 + 1e-4, 1.2, 2.0, 4.0, 100.0)


def exact_weight(name: str, x: Number) -> Number:
    """The inverse slope of a dispersion of the examples, beside its box."""
    if name == "square":
        return 1 + x
    if name == "entropy":
        return mpmath.exp(min(x, Number(500)))
    if name == "log":
        return -1 / x if x < 0 else Number(1e30)
    if name == "logit":
        odds = mpmath.exp(max(min(x, Number(500)), Number(-500)))
        return (Number(0.1) + 4 * odds) / (1 + odds)
    if name == "mixed":
        root = mpmath.sqrt(x * x + 4 * Number(0.3))
        # The other root of the same equation, where this one would cancel.
        return (x + root) / 2 if x > 0 else 2 * Number(0.3) / (root - x)
    kink = Number(0.4)
    if abs(x - 1) <= kink:
        return Number(1)
    return x - kink if x > 1 else x + kink


@dataclass(frozen=True)
class Exact:
    """A problem with its exact weights.

    ``imbalance`` and ``multipliers`` are the doubles nearest to the point that solves it.
    """

    name: str
    data: WeightingData
    weights: list[Number]
    imbalance: Array
    multipliers: Array

    def distance(self, computed: Array) -> float:
        """The 1-norm of computed less exact weights."""
        return float(
            sum(abs(Number(float(w)) - e) for w, e in zip(computed, self.weights, strict=True))
        )

    def at(self, imbalance: Array, multipliers: Array) -> Point:
        """The point at an imbalance, with its prices."""
        prices = np.zeros_like(imbalance)
        for one in self.data.priced:
            prices[one.columns] = one.price(imbalance[one.columns], prices[one.columns])
        return Point(imbalance, prices, multipliers)


def drawn_rows(generator: np.random.Generator, n: int, K: int) -> Array:
    """Rows around 0, repeated, of extreme scales, or far from 0."""
    rows = generator.normal(size=(n, K))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    kind = generator.integers(4)
    if kind == 1:
        rows = rows[generator.integers(0, max(1, n // 3), n)]
    if kind == 2:
        rows = rows * 10.0 ** generator.uniform(-6, 3)
    if kind == 3:
        rows = rows * 10.0 ** generator.uniform(-2, 0)
        rows[:, 0] += 10.0 ** generator.uniform(-1, 3)
    return rows


def drawn_penalty(generator: np.random.Generator, factor: float, size: float) -> ImbalancePenalty:
    """Squares, beyond a tolerance, with a knee, of entries or of the norm."""
    kind = generator.integers(5)
    if kind == 0:
        return ImbalancePenalty(factor)
    norm = 2 if kind >= 3 else None
    if kind in (1, 3):
        return ImbalancePenalty(factor, tolerance=size * generator.uniform(0.1, 2.0), norm=norm)
    knee = size * generator.uniform(0.1, 2.0)
    return ImbalancePenalty(factor, tolerance=0.3 * size, knee=knee, norm=norm)


def drawn_shape(generator: np.random.Generator, factor: float, size: float) -> Penalty:
    """Other shapes: one side, norms of other orders, envelopes and logarithms of sums."""
    kind = generator.integers(8)
    knee = size * generator.uniform(0.1, 2.0)
    order = float(generator.choice([2.5, 3.0, 6.0]))
    shapes = (
        ImbalancePenalty(factor, sided=True),
        ImbalancePenalty(factor, knee=knee, sided=True),
        ImbalancePenalty(factor, norm=order),
        ImbalancePenalty(factor, tolerance=0.3 * size, knee=knee, norm=order),
        ImbalancePenalty(math.inf, price=2.0 * factor * knee, norm=math.inf, envelope=0.5 / factor),
        ImbalancePenalty(factor * 10.0 * size / knee, norm=math.inf, envelope=0.5 / factor),
        LogSumExpPenalty(factor * size),
        LogSumExpPenalty(10.0 * factor * size),
    )
    return shapes[kind]


def drawn_problem(
    generator: np.random.Generator, name: str, drawn: Callable[..., Penalty] = drawn_penalty
) -> Exact | None:
    """A problem made from its point; None where its sums cannot be met to 30 digits."""
    n = int(generator.choice([2, 3, 5, 9, 16]))
    K = int(generator.integers(1, 4))
    rows = drawn_rows(generator, n, K)
    records = records_of(n, seed=int(generator.integers(1000)))
    cap = 4.0 if name == "logit" else float(generator.choice(CAPS))
    low = 0.1 if name == "logit" else float(generator.choice([0.0, 0.0, 0.05, 0.5]))
    by_arm = bool(generator.integers(2))
    with_base = name in ("square", "entropy") and generator.integers(3) == 0 and cap > 2.0
    # Prices that move weights by some units, whatever the scale of rows.
    spread = float(np.max(np.abs(rows - np.mean(rows, axis=0)))) + 1e-9 * float(
        np.max(np.abs(rows))
    )
    steepness = 10.0 ** generator.uniform(-6, 8)
    s = generator.normal(size=K) * 10.0 ** generator.uniform(-2, 1) / spread / steepness
    penalty = drawn(generator, steepness / 2.0, float(np.max(np.abs(s))))
    if isinstance(penalty, LogSumExpPenalty):
        # Shares of such prices depend on the imbalance itself, whatever their factor is.
        s = s / float(np.max(np.abs(s))) * 10.0 ** generator.uniform(-2, 1)
    base = generator.uniform(0.5, 2.0, size=(n, 1))
    mean = generator.uniform(-2.0, 2.0, 2) * (generator.integers(3) == 0)
    problem = _Problem(name, rows, s, penalty, records, base if with_base else None, mean)
    return problem.solved(low, cap, by_arm)


@dataclass(frozen=True)
class _Problem:
    name: str
    rows: Array
    s: Array
    penalty: Penalty
    records: Records
    base: Array | None
    mean: Array

    def form(self, shift: Array, low: float, cap: float, by_arm: bool) -> WeightingForm:
        K = self.rows.shape[1]
        radius = float(np.max(np.linalg.norm(self.rows, axis=1)))
        features = Features("rows", BallSet(radius), K, lambda records: self.rows)
        part = FeatureRows(features, np.eye(K), BOTH, 0.0 * BOTH, self.mean)
        sums = WeightSums(SumKind.COUNTS if by_arm else SumKind.ALL)
        imbalance = Imbalance(((part,),), shift, self.penalty)
        measure = None
        if self.base is not None:
            measure = Features("base", IntervalSet(0.5, 2.0), 1, lambda records: self.base)
        ends = np.array([low, low]), np.array([cap, cap])
        dispersion = DISPERSIONS[self.name]
        return WeightingForm(len(self.rows), dispersion, *ends, sums, (imbalance,), base=measure)

    def solved(self, low: float, cap: float, by_arm: bool) -> Exact | None:
        K = self.rows.shape[1]
        first = weighting_data(self.form(np.zeros(K), low, cap, by_arm), self.records)
        prices = exact_slope(self.penalty, self.s)
        scores = [self.score(row, prices) for row in self.rows]
        _, _, start = met_sums(
            first, -np.array([float(x) for x in scores]), np.zeros(len(first.blocks))
        )
        weights: list[Number] = [Number(0)] * len(self.rows)
        for block, guess in zip(first.blocks, start, strict=True):
            members = np.arange(len(self.rows))[block.members]
            nu = self.multiplier(first, scores, members, Number(float(guess)), block.total)
            if nu is None:
                return None
            for i in members:
                weights[i] = self.weight(first, i, -scores[i] - nu)
        target = []
        for k in range(K):
            column = [w * Number(float(z)) for w, z in zip(weights, self.rows[:, k], strict=True)]
            target.append(sum(column) - Number(float(self.s[k])) - self.means(k))
        shift = np.array([float(t) for t in target])
        data = weighting_data(self.form(shift, low, cap, by_arm), self.records)
        return Exact(self.name, data, weights, self.s, start)

    def means(self, k: int) -> Number:
        """What n times the means of arms are in a target."""
        arms = self.records.a
        total = Number(0)
        for arm in (0, 1):
            column = [Number(float(z)) for z in self.rows[arms == arm, k]]
            total += Number(float(self.mean[arm])) * len(arms) * sum(column) / len(column)
        return total

    def score(self, row: Array, prices: list[Number]) -> Number:
        return sum(
            (Number(float(z)) * price for z, price in zip(row, prices, strict=True)), Number(0)
        )

    def weight(self, data: WeightingData, i: int, x: Number) -> Number:
        scale = Number(1) if self.base is None else Number(float(self.base[i, 0]))
        w = scale * exact_weight(self.name, x)
        return min(max(w, Number(float(data.curve.low[i]))), Number(float(data.curve.cap[i])))

    def multiplier(
        self, data: WeightingData, scores: list[Number], members: Array, guess: Number, total: float
    ) -> Number | None:
        """The multiplier by bisection and secants, from a guess in doubles."""

        def off(nu: Number) -> Number:
            return sum(self.weight(data, i, -scores[i] - nu) for i in members) - Number(total)

        width = (abs(guess) + 1) * Number(2) ** -40
        low, high = guess - width, guess + width
        low_off, high_off = off(low), off(high)
        if low_off < 0 or high_off > 0:
            return None
        for step in range(120):
            if low_off == high_off or step % 3 == 2:
                nu = (low + high) / 2
            else:
                nu = low + (high - low) * low_off / (low_off - high_off)
            here = off(nu)
            if abs(here) < Number(10) ** -32:
                return nu
            if here > 0:
                low, low_off = nu, here
            else:
                high, high_off = nu, here
        return None
