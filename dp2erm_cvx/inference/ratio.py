"""Ratios of two private means, by inverting tests of every ratio (Fieller 1954), and risks of both
arms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.base import bracketed, sum_tail
from dp2erm_cvx.calibration.sums import SHARE_BITS, GridSums, SumLaw
from dp2erm_cvx.inference.interval import ScoreInterval, linear_interval, misses
from dp2erm_cvx.inference.nuisances import NO_ERROR, NuisanceError, combined

#: What tests and bounds of moments are rounded up by.
_ROUND_UP, _MOMENT_UP = 1.0 + 1e-9, 1.0 + 1e-12


@dataclass(frozen=True)
class Fieller:
    """Released means A and D whose ratio of population means is rho: ``A - rho D`` has mean 0.

    Attributes
    ----------
    numerator, denominator
        A and D.
    noise
        Law of the two independent noises.
    scales, roundings
        Of the noise of A and D; what each may be moved by beyond its continuous law.
    deviation
        Convex in rho: at least the standard deviation of the sampling error of ``A - rho D``.
    slope
        Limit of ``deviation(rho) / |rho|`` at either infinity.
    biases
        What the means of A and of D may be off.
    shared
        Scales of further independent noises, as they move A and D in the same direction.
    """

    numerator: float
    denominator: float
    noise: Noise
    scales: tuple[float, float]
    roundings: tuple[float, float]
    deviation: Callable[[float], float]
    slope: float
    biases: tuple[float, float] = (0.0, 0.0)
    shared: tuple[tuple[float, float], ...] = ()

    def ends(self, tail: float) -> tuple[float, float]:
        """The least and the largest rho that no test rejects, each test missing by ``tail`` either
        way.

        A test on the left rejects where ``A - rho D`` exceeds a quantile that is convex in rho
        (page "Private effects"). Where the denominator is significant it rejects far out, hence
        everywhere from the end on. Else both ends are infinite.
        """
        if not self._rejected(self.denominator, self.slope, 0.0, 1.0, tail):
            return -math.inf, math.inf
        middle = self.numerator / self.denominator
        return self._end(middle, -1.0, tail), self._end(middle, 1.0, tail)

    def _end(self, middle: float, side: float, tail: float) -> float:
        def rejects(rho: float) -> bool:
            gap = side * (rho * self.denominator - self.numerator)
            return self._rejected(gap, self.deviation(rho), 1.0, rho, tail)

        reach = self.deviation(middle) + self.biases[0] + self.scales[0]
        reach += abs(middle) * (self.scales[1] + self.biases[1])
        reach += sum(abs(one - middle * other) for one, other in self.shared)
        reach = max(reach / self.denominator, 1e-300)
        while not rejects(middle + side * reach):
            reach *= 2.0
            if not math.isfinite(reach):
                return side * math.inf
        return bracketed(rejects, middle + side * reach, middle)

    def _rejected(
        self, gap: float, deviation: float, first: float, rho: float, tail: float
    ) -> bool:
        second = abs(rho)
        left = gap - first * self.roundings[0] - second * self.roundings[1]
        if not left > 0.0:
            return False
        both = (abs(first * one - rho * other) for one, other in self.shared)
        scales = first * self.scales[0], second * self.scales[1], *both
        bias = first * self.biases[0] + second * self.biases[1]
        ends = (
            sum_tail(self.noise, one, deviation * _ROUND_UP, *scales)
            for one in (left - bias, left + bias)
        )
        return 0.5 * sum(ends) < tail


def quadratic_norm(
    first: float, second: float, cross: tuple[float, float]
) -> Callable[[float, float], float]:
    """``(u, v) -> sqrt(u^2 E x^2 + v^2 E y^2 + 2 u v E x y)`` at the worst moments within their
    bounds.

    ``first`` and ``second`` are upper bounds of ``E x^2`` and ``E y^2``, ``cross`` bounds of ``E x
    y`` from below and above. They are clipped by the inequality of Cauchy and Schwarz, so that this
    is the larger of two norms of (u, v).
    """
    most = math.sqrt(first * second)
    low, high = (min(max(value, -most), most) for value in cross)

    def norm(u: float, v: float) -> float:
        product = 2.0 * u * v
        return math.sqrt(
            max(u * u * first + v * v * second + max(product * low, product * high), 0.0)
        )

    return norm


def part_interval(
    noise: GridSums,
    released: Sequence[int],
    center: float = 0.0,
    level: float = 0.95,
    widening: float = 1.0,
    error: NuisanceError = NO_ERROR,
) -> ScoreInterval:
    """The effect in a part of the population from the ``released`` integers and public numbers
    alone.

    That is the treated, or where either treatment is likely. ``center`` is the public c_0 whose
    multiple ``c_0 h`` was taken off the score, h what a record counts. Where the size of that part
    is within its noise the interval is infinite. ``widening`` is what the score was divided by,
    ``error`` what the interval allows for beside noise and sampling. Raises DeclarationError unless
    ``1/2 <= level < 1``.
    """
    share, tail = misses(level)
    test, largest, n = (
        part_test(noise, released, share),
        0.5 if noise.law.counts else 1.0,
        noise.n_samples,
    )
    size, of = min(max(test.denominator, 0.0), largest) / widening, test.deviation

    def allowed(deviation: Callable[[float], float], more: float, **changes: Any) -> Fieller:
        return replace(
            test, deviation=lambda psi: math.hypot(deviation(psi), size * more), **changes
        )

    whole = allowed(of, math.hypot(error.noise, error.sampling), biases=(size * error.bias, 0.0))
    low, high = whole.ends(tail)
    estimate = test.numerator / min(max(test.denominator, 1.0 / n), largest)
    alone = (
        allowed(lambda _: 0.0, error.noise, slope=0.0),
        allowed(of, error.sampling, scales=(0.0, 0.0), shared=()),
    )
    noise_half, sampling_half = (
        0.5 * (end - start) for start, end in (one.ends(tail) for one in alone)
    )
    return ScoreInterval(
        estimate=center + widening * estimate,
        # a denominator beyond its largest value is cut for the estimate alone
        low=center + widening * min(low, estimate),
        high=center + widening * max(high, estimate),
        level=float(level),
        standard_deviation=widening * math.sqrt(n) * of(estimate),
        noise_half_width=widening * noise_half,
        sampling_half_width=widening * sampling_half,
        bias=error.bias,
    )


def part_test(noise: GridSums, released: Sequence[int], share: float) -> Fieller:
    """The ratio of the means of phi and h, with the spread of ``phi - psi h`` but with probability
    ``share``.

    Where either treatment is likely that is at most ``sqrt(E phi^2) + |psi| sqrt(E h / 2)``, as ``h
    <= 1/2``. Of both arms phi is their difference, which is ``phi h``. Where records are whole
    ``phi h = phi / 2`` and ``h^2 = h / 2``, so that its square is ``E phi^2 - psi E phi + psi^2 E h
    / 2``. Among the treated h is 0 or 1, and the mean of ``phi h`` half of two sums.
    """
    score, size, square, *more = noise.means(released)
    law, place, half, units = noise.law, 1, 0.5 * noise.step, noise.units[:2]
    largest, cross = 1.0, 0.5 * score
    places, shared = tuple[int, ...]((0,)), tuple[tuple[float, float], ...]()
    if law.of_arms:  # the noise of either arm is that of the difference
        cross, size, place, half = score - size, more[2], 5, noise.step
        score, places, shared = cross, (0, 1), ((noise.scales[1], 0.0),)
        units = units[0] + units[1], noise.units[5]
    elif law is SumLaw.TREATED:
        cross, places = 0.5 * (score + more[0]), (0, 3)
    else:
        largest = 0.5
    root, grid = math.sqrt(noise.n_samples), 0.0
    if law.counts and not law.whole:
        most = math.sqrt(min(max(square + noise.margin(0.5 * share, 2), 0.0), noise.bound**2))
        spread = math.sqrt(0.5 * min(max(size + noise.margin(0.5 * share, place), 0.0), 0.5))
        deviation, slope = (
            (lambda psi: (most + abs(psi) * spread) * _MOMENT_UP / root),
            spread / root,
        )
        grid = math.ldexp(
            0.5, -SHARE_BITS
        )  # a share that is no whole number is rounded to its grid
    # three events miss: the noise of both second moments, and that of ``cross`` in both directions
    else:
        third = share / 3.0
        most = max(square + noise.margin(third, 2), 0.0)
        most = min(most, (noise.bound + noise.other_bound) ** 2) * _MOMENT_UP
        rate = largest * min(max(size + noise.margin(third, place), 0.0), largest)
        aside = (1.0 if law.of_arms else 0.5) * noise.margin(0.5 * third, *places)
        norm = quadratic_norm(most, rate, (cross - aside, cross + aside))
        deviation, slope = (lambda psi: norm(1.0, -psi) / root), norm(0.0, 1.0) / root
    roundings = half + noise.coupling * units[0], grid + noise.coupling * units[1]
    scales = noise.scales[0], noise.scales[place]
    return Fieller(score, size, noise.noise, scales, roundings, deviation, slope, shared=shared)


@dataclass(frozen=True)
class ArmRisks:
    """Both arm means of an outcome between 0 and 1, as released, and what follows from them.

    Where records may be silent the means are ratios, of the same count.

    Parameters
    ----------
    noise
        What was calibrated.
    released
        The five integers, or six.
    centers
        Public centers of the scores of the treated and of the untreated arm.
    errors
        What both risks may be off beside noise and sampling of their scores, the treated first.
    widening
        What the scores were divided by.
    """

    noise: GridSums
    released: Sequence[int]
    centers: tuple[float, float] = (0.5, 0.5)
    errors: tuple[NuisanceError, NuisanceError] = (NO_ERROR, NO_ERROR)
    widening: float = 1.0

    @property
    def risks(self) -> tuple[float, float]:
        """Released means, treated first; they may lie beyond 0 and 1."""
        first, second, *_ = (
            self.widening * mean / self.size for mean in self.noise.means(self.released)
        )
        return self.centers[0] + first, self.centers[1] + second

    @property
    def size(self) -> float:
        """The share of the records that count, as released; 1 where all of them do."""
        if self.noise.law is SumLaw.ARMS:
            return 1.0
        return min(max(self.noise.means(self.released)[5], 1.0 / self.noise.n_samples), 1.0)

    def difference(self, level: float = 0.95) -> ScoreInterval:
        """The risk difference, mean of the treated arm less mean of the untreated one.

        Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        error, share = combined(*self.errors), misses(level)[0]
        if self.noise.law is SumLaw.COUNTED_ARMS:
            apart = self.centers[0] - self.centers[1]
            return part_interval(self.noise, self.released, apart, level, self.widening, error)
        deviation, (scales, roundings) = self._norm(share)(1.0, 0.0), self._noises
        parts = deviation / math.sqrt(self.noise.n_samples), scales, sum(roundings)
        return linear_interval(self.noise, level, self.risks[0] - self.risks[1], parts, error)

    def ratio(self, level: float = 0.95) -> ScoreInterval | None:
        """The risk ratio, treated over untreated; None where the untreated risk is within its
        error.

        Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        share, tail = misses(level)
        ends, (risk_1, risk_0) = self._ends(share, tail, complement=False), self._inside
        return _stated(risk_1 / risk_0, ends, level)

    def odds_ratio(self, level: float = 0.95) -> ScoreInterval | None:
        """The odds ratio: the ratio of risks over the ratio of their complements, half of the
        misses each.

        None where a denominator is within its error. Raises DeclarationError unless ``1/2 <= level
        < 1``.
        """
        share, tail = misses(level)
        ends, odds = (self._ends(share, 0.5 * tail, complement=which) for which in (False, True))
        if ends is None or odds is None or odds[0] <= 0.0:
            return None
        risk_1, risk_0 = self._inside
        estimate = risk_1 * (1.0 - risk_0) / ((1.0 - risk_1) * risk_0)
        return _stated(estimate, (ends[0] / odds[1], ends[1] / odds[0]), level)

    @property
    def _noises(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Scales of the noise of either risk; half a step of the grid, and what noise may be off
        its law.
        """
        W, half = self.widening, 0.5 * self.noise.step
        scales, units = self.noise.scales[:2], self.noise.units[:2]
        return tuple(W * one for one in scales), tuple(
            W * (half + self.noise.coupling * one) for one in units
        )

    @property
    def _inside(self) -> tuple[float, float]:
        """The risks, at least half a record from 0 and 1."""
        least = 0.5 / self.noise.n_samples
        first, second = (min(max(risk, least), 1.0 - least) for risk in self.risks)
        return first, second

    def _norm(self, share: float) -> Callable[[float, float], float]:
        """Standard deviation at most of ``u (phi_1 - phi_0) + v (phi_1 + phi_0)``, but with
        ``share``.

        Five events miss, a fifth of it each: the noise of either second moment, of either mean and
        of the product, the last three in both directions.
        """
        noise, fifth = self.noise, 0.2 * share
        first, second, *moments, product = noise.means(self.released)
        apart, both = abs(first - second), abs(first + second)
        aside, above = noise.margin(0.5 * fifth, 0, 1), noise.margin(fifth, 2)
        largest = (noise.bound + noise.other_bound) ** 2
        variances = []
        for mean, moment in zip((apart, both), moments, strict=True):
            variance = moment + above - max(mean - aside, 0.0) ** 2
            variances.append(min(max(variance, 0.0), largest) * _MOMENT_UP)
        middle = product - (first - second) * (first + second)
        off = noise.margin(0.5 * fifth, 4) + aside * (apart + both + aside)
        norm = quadratic_norm(variances[0], variances[1], (middle - off, middle + off))
        return lambda u, v: self.widening * norm(u, v)

    def _counted_norm(
        self, share: float, sign: float, first: float, second: float
    ) -> Callable[[float, float], float]:
        """The root of the mean square of ``u A + v B``, but with ``share``: that of a mean which is
        0.

        A and B are difference and sum of ``sign phi_a + c_a h``, c_a the ``first`` and the
        ``second`` center. Six events miss: those of ``_norm``, and the noise of the mean of h.
        """
        noise, sixth, W = self.noise, share / 6.0, self.widening
        treated, untreated, *moments, product, size = noise.means(self.released)
        aside, off = noise.margin(0.5 * sixth, 0, 1), noise.margin(0.5 * sixth, 4)
        above, more = noise.margin(sixth, 2), noise.margin(0.5 * sixth, 5)
        apart, both = sign * (treated - untreated), sign * (treated + untreated)
        d, s, reach = first - second, first + second, W * (noise.bound + noise.other_bound)
        squares = []
        for square, mean, c in ((moments[0], apart, d), (moments[1], both, s)):
            most = (
                W * W * (square + above)
                + 2.0 * W * (c * mean + abs(c) * aside)
                + c * c * (size + more)
            )
            squares.append(min(max(most, 0.0), (reach + abs(c)) ** 2) * _MOMENT_UP)
        middle = W * W * product + W * (d * both + s * apart) + d * s * size
        off = W * W * off + W * (abs(d) + abs(s)) * aside + abs(d * s) * more
        return quadratic_norm(squares[0], squares[1], (middle - off, middle + off))

    def _ends(self, share: float, tail: float, *, complement: bool) -> tuple[float, float] | None:
        """Interval of the ratio of the risks, or of their complements; no ratio is negative.

        None where the untreated one is not significantly above 0: no ratio is then rejected far
        out.
        """
        size, root = self.size, math.sqrt(self.noise.n_samples)
        treated, untreated = (size * math.hypot(one.noise, one.sampling) for one in self.errors)
        risk_1, risk_0 = (size * (1.0 - risk if complement else risk) for risk in self.risks)
        scales, roundings = self._noises
        shared: tuple[tuple[float, float], ...] = ()
        if self.noise.law is SumLaw.ARMS:
            norm = self._norm(share)
        else:
            middles = [1.0 - center if complement else center for center in self.centers]
            scale, unit = self.noise.scales[5], self.noise.coupling * self.noise.units[5]
            norm = self._counted_norm(share, -1.0 if complement else 1.0, *middles)
            roundings = roundings[0] + abs(middles[0]) * unit, roundings[1] + abs(middles[1]) * unit
            shared = ((middles[0] * scale, middles[1] * scale),)
        # phi_1 - rho phi_0 = (1 + rho)/2 (phi_1 - phi_0) + (1 - rho)/2 (phi_1 + phi_0)
        test = Fieller(
            risk_1,
            risk_0,
            self.noise.noise,
            (scales[0], scales[1]),
            (roundings[0], roundings[1]),
            lambda rho: math.hypot(
                norm(0.5 * (1.0 + rho), 0.5 * (1.0 - rho)) / root, treated, rho * untreated
            ),
            math.hypot(norm(0.5, -0.5) / root, untreated),
            (size * self.errors[0].bias, size * self.errors[1].bias),
            shared,
        )
        low, high = test.ends(tail)
        if not math.isfinite(high):
            return None
        return max(low, 0.0), max(high, 0.0)


def _stated(
    estimate: float, ends: tuple[float, float] | None, level: float
) -> ScoreInterval | None:
    """Ratio with its ends: risks beyond 0 and 1 are cut for the estimate alone."""
    if ends is None:
        return None
    return ScoreInterval(estimate, min(ends[0], estimate), max(ends[1], estimate), float(level))
