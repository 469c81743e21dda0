"""Ratios of two private means, and risks of both arms.

An interval of a ratio inverts tests of every ratio (Fieller 1954).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dp2erm_cvx.arrays import ROUND_UP
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.base import bracketed, sum_tail
from dp2erm_cvx.calibration.sums import SHARE_BITS, GridSums, SumLaw
from dp2erm_cvx.inference.interval import ScoreInterval, linear_interval, misses
from dp2erm_cvx.inference.nuisances import NO_ERROR, TINY, NuisanceError, combined

#: What tests are rounded up by.
_TEST_ROUND_UP = 1.0 + 1e-9


@dataclass(frozen=True)
class Fieller:
    """Released means A and C whose ratio of population means is rho: ``A - rho C`` has mean 0.

    The symbols are those of "Ratios" on the page "Private effects".

    Parameters
    ----------
    numerator
        A.
    denominator
        C.
    noise
        Law of the two independent noises.
    scales
        Of the noise of A and of C.
    roundings
        What A and C may be moved by beyond the continuous law of their noise.
    deviation
        Convex in rho: at least the standard deviation of the sampling error of ``A - rho C``.
    slope
        Limit of ``deviation(rho) / |rho|`` at either infinity.
    biases
        What the means of A and of C may be off.
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
        """The least and the largest rho that no test rejects.

        Each test misses by ``tail`` either way. A test on the left rejects where ``A - rho C``
        exceeds a quantile that is convex in rho (page "Private effects"). Where the denominator is
        significant it rejects far out, hence everywhere from the end on. Else both ends are
        infinite.
        """
        if not self._rejected(self.denominator, self.slope, 0.0, 1.0, tail):
            return -math.inf, math.inf
        middle = self.numerator / self.denominator
        return self._end(middle, -1.0, tail), self._end(middle, 1.0, tail)

    def _end(self, middle: float, side: float, tail: float) -> float:
        """Where tests begin to reject beyond ``middle``, on the right (1.0) or left (-1.0)."""

        def rejects(rho: float) -> bool:
            gap = side * (rho * self.denominator - self.numerator)
            return self._rejected(gap, self.deviation(rho), 1.0, rho, tail)

        # a first guess of the half length, which is doubled until a test rejects
        step = self.deviation(middle) + self.biases[0] + self.scales[0]
        step += abs(middle) * (self.scales[1] + self.biases[1])
        step += sum(abs(of_A - middle * of_C) for of_A, of_C in self.shared)
        step = max(step / self.denominator, TINY)
        while not rejects(middle + side * step):
            step *= 2.0
            if not math.isfinite(step):
                return side * math.inf
        return bracketed(rejects, middle + side * step, middle)

    def _rejected(
        self, gap: float, deviation: float, first: float, rho: float, tail: float
    ) -> bool:
        """Whether a test rejects that the population mean of ``first A - rho C`` is 0.

        Parameters
        ----------
        gap
            How far the released combination lies off 0.
        deviation
            Standard deviation of its sampling error.
        first
            1, or 0 for C alone.
        rho
            The ratio that is tested.
        tail
            Probability to reject although the mean is 0, either way.
        """
        second = abs(rho)
        beyond_rounding = gap - first * self.roundings[0] - second * self.roundings[1]
        if not beyond_rounding > 0.0:
            return False
        shared_scales = (abs(first * of_A - rho * of_C) for of_A, of_C in self.shared)
        scales = (first * self.scales[0], second * self.scales[1], *shared_scales)
        bias = first * self.biases[0] + second * self.biases[1]
        rounded_up = deviation * _TEST_ROUND_UP
        near_tail = sum_tail(self.noise, beyond_rounding - bias, rounded_up, *scales)
        far_tail = sum_tail(self.noise, beyond_rounding + bias, rounded_up, *scales)
        return 0.5 * (near_tail + far_tail) < tail


def quadratic_norm(
    first: float, second: float, cross: tuple[float, float]
) -> Callable[[float, float], float]:
    """``(u, v) -> sqrt(u^2 E x^2 + v^2 E y^2 + 2 u v E x y)`` at the worst moments.

    Parameters
    ----------
    first
        Upper bound of ``E x^2``.
    second
        Upper bound of ``E y^2``.
    cross
        Bounds of ``E x y`` from below and above. They are clipped by the inequality of Cauchy and
        Schwarz, so that the result is the larger of two norms of (u, v).
    """
    largest = math.sqrt(first * second)
    low = min(max(cross[0], -largest), largest)
    high = min(max(cross[1], -largest), largest)

    def norm(u: float, v: float) -> float:
        product = 2.0 * u * v
        worst = max(product * low, product * high)
        return math.sqrt(max(u * u * first + v * v * second + worst, 0.0))

    return norm


def part_interval(
    noise: GridSums,
    released: Sequence[int],
    center: float = 0.0,
    level: float = 0.95,
    widening: float = 1.0,
    error: NuisanceError = NO_ERROR,
) -> ScoreInterval:
    """The effect in a part of the population, from released and public numbers alone.

    That part is the treated, or those for whom either treatment is likely.

    Parameters
    ----------
    noise
        What was calibrated.
    released
        The released integers.
    center
        The public c_0 whose multiple ``c_0 h`` was taken off the score, h what a record counts.
    level
        Coverage of the interval.
    widening
        What the score was divided by.
    error
        What the interval allows for beside noise and sampling.

    Returns
    -------
    ScoreInterval
        Infinite where the size of the part is within its noise.

    Raises
    ------
    DeclarationError
        Unless ``1/2 <= level < 1``.
    """
    moments_miss, tail = misses(level)
    test = part_test(noise, released, moments_miss)
    largest = _largest_part(noise)
    size = min(max(test.denominator, 0.0), largest) / widening
    by_sampling = test.deviation

    def with_error(more: float) -> Callable[[float], float]:
        """The deviation of sampling, and a further one of the effect."""
        return lambda psi: math.hypot(by_sampling(psi), size * more)

    def error_alone(psi: float) -> float:
        return math.hypot(0.0, size * error.noise)

    of_regressions = math.hypot(error.noise, error.sampling)
    with_all = replace(test, deviation=with_error(of_regressions), biases=(size * error.bias, 0.0))
    low, high = with_all.ends(tail)
    estimate = _estimate(test, noise)
    noise_alone = replace(test, deviation=error_alone, slope=0.0)
    sampling_alone = replace(
        test, deviation=with_error(error.sampling), scales=(0.0, 0.0), shared=()
    )
    return ScoreInterval(
        estimate=center + widening * estimate,
        # a denominator beyond its largest value is cut for the estimate alone
        low=center + widening * min(low, estimate),
        high=center + widening * max(high, estimate),
        level=float(level),
        standard_deviation=_deviation(test, noise, widening),
        noise_half_width=widening * _half_width(noise_alone, tail),
        sampling_half_width=widening * _half_width(sampling_alone, tail),
        bias=error.bias,
    )


def part_deviation(
    noise: GridSums, released: Sequence[int], level: float, widening: float
) -> float:
    """Standard deviation in a part of the population, as :func:`part_interval` states it.

    Parameters
    ----------
    noise, released, level, widening
        As in :func:`part_interval`.
    """
    moments_miss, _ = misses(level)
    return _deviation(part_test(noise, released, moments_miss), noise, widening)


def _deviation(test: Fieller, noise: GridSums, widening: float) -> float:
    """Deviation of sampling at the estimate, of one record."""
    return widening * math.sqrt(noise.n_samples) * test.deviation(_estimate(test, noise))


def _estimate(test: Fieller, noise: GridSums) -> float:
    """The ratio of both means, with a denominator that a part of the population can have."""
    size = min(max(test.denominator, 1.0 / noise.n_samples), _largest_part(noise))
    return test.numerator / size


def _largest_part(noise: GridSums) -> float:
    """Largest mean of h: 1/2 where h is a share, else 1."""
    return 0.5 if noise.law.has_shares else 1.0


def _half_width(test: Fieller, tail: float) -> float:
    """Half the length of the interval of a ratio."""
    start, end = test.ends(tail)
    return 0.5 * (end - start)


def part_test(noise: GridSums, released: Sequence[int], moments_miss: float) -> Fieller:
    """The ratio of the means of phi and h, with the spread of ``phi - psi h``.

    Parameters
    ----------
    noise
        What was calibrated.
    released
        The released integers.
    moments_miss
        Probability that sampling varies by more than is stated.
    """
    if noise.law.has_shares and not noise.law.whole:
        return _overlap_test(noise, released, moments_miss)
    return _whole_test(noise, released, moments_miss)


def _overlap_test(noise: GridSums, released: Sequence[int], moments_miss: float) -> Fieller:
    """The test where h is a share: of either treatment being likely, or by sampling weights.

    The standard deviation of ``phi - psi h`` is at most ``sqrt(E phi^2) + |psi| sqrt(E h / 2)``, as
    ``h <= 1/2``. Two events miss: the noise of either second moment.
    """
    score, size, square, *_ = noise.means(released)
    each = 0.5 * moments_miss
    largest_square = min(max(square + noise.margin(each, 2), 0.0), noise.bound**2)
    largest_size = min(max(size + noise.margin(each, 1), 0.0), 0.5)
    score_deviation = math.sqrt(largest_square)
    size_deviation = math.sqrt(0.5 * largest_size)
    root_n = math.sqrt(noise.n_samples)

    def deviation(psi: float) -> float:
        return (score_deviation + abs(psi) * size_deviation) * ROUND_UP / root_n

    # a share that is no whole number is rounded to its grid
    grid = math.ldexp(0.5, -SHARE_BITS)
    return Fieller(
        numerator=score,
        denominator=size,
        noise=noise.noise,
        scales=(noise.scales[0], noise.scales[1]),
        roundings=(
            0.5 * noise.step + noise.coupling * noise.units[0],
            grid + noise.coupling * noise.units[1],
        ),
        deviation=deviation,
        slope=size_deviation / root_n,
    )


def _whole_test(noise: GridSums, released: Sequence[int], moments_miss: float) -> Fieller:
    """The test where records count or do not.

    The variance of ``phi - psi h`` follows from the means of ``phi^2``, ``phi h`` and ``h^2``. Of
    both arms phi is their difference, which is ``phi h``. Where records are whole
    ``phi h = phi / 2`` and ``h^2 = h / 2``. Among the treated h is 0 or 1, and the mean of
    ``phi h`` is half of two sums. Three events miss: the noise of both second moments, and that of
    the mean of ``phi h`` in both directions.
    """
    score, size, square, *more = noise.means(released)
    law = noise.law
    place = 1
    largest = 1.0
    rounding = 0.5 * noise.step
    unit = noise.units[0]
    shared: tuple[tuple[float, float], ...] = ()
    cross_places: tuple[int, ...] = (0,)
    cross_part = 0.5
    if law.of_arms:
        # the noise of either arm is that of the difference
        score = score - size
        size = more[2]
        place = 5
        rounding = noise.step
        unit = noise.units[0] + noise.units[1]
        shared = ((noise.scales[1], 0.0),)
        cross = score
        cross_places = (0, 1)
        cross_part = 1.0
    elif law is SumLaw.TREATED:
        cross = 0.5 * (score + more[0])
        cross_places = (0, 3)
    else:
        largest = 0.5
        cross = 0.5 * score
    # bounds of the means of phi^2, h^2 and phi h
    third = moments_miss / 3.0
    largest_square = max(square + noise.margin(third, 2), 0.0)
    largest_square = min(largest_square, (noise.bound + noise.other_bound) ** 2) * ROUND_UP
    size_square = largest * min(max(size + noise.margin(third, place), 0.0), largest)
    cross_margin = cross_part * noise.margin(0.5 * third, *cross_places)
    cross_bounds = (cross - cross_margin, cross + cross_margin)
    norm = quadratic_norm(largest_square, size_square, cross_bounds)
    root_n = math.sqrt(noise.n_samples)

    def deviation(psi: float) -> float:
        return norm(1.0, -psi) / root_n

    return Fieller(
        numerator=score,
        denominator=size,
        noise=noise.noise,
        scales=(noise.scales[0], noise.scales[place]),
        roundings=(
            rounding + noise.coupling * unit,
            noise.coupling * noise.units[place],
        ),
        deviation=deviation,
        slope=norm(0.0, 1.0) / root_n,
        shared=shared,
    )


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
        treated, untreated, *_ = self.noise.means(self.released)
        size = self.size
        return (
            self.centers[0] + self.widening * treated / size,
            self.centers[1] + self.widening * untreated / size,
        )

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
        moments_miss, _ = misses(level)
        error = combined(*self.errors)
        if self.noise.law is SumLaw.COUNTED_ARMS:
            center_difference = self.centers[0] - self.centers[1]
            return part_interval(
                self.noise, self.released, center_difference, level, self.widening, error
            )
        deviation = self._norm(moments_miss)(1.0, 0.0) / math.sqrt(self.noise.n_samples)
        scales, roundings = self._noises
        treated, untreated = self.risks
        parts = (deviation, scales, sum(roundings))
        return linear_interval(self.noise, level, treated - untreated, parts, error)

    def ratio(self, level: float = 0.95) -> ScoreInterval | None:
        """The risk ratio, treated over untreated.

        It is None where the untreated risk is within its error. Raises DeclarationError unless
        ``1/2 <= level < 1``.
        """
        moments_miss, tail = misses(level)
        ends = self._ends(moments_miss, tail, complement=False)
        risk_1, risk_0 = self._inside
        return _stated(risk_1 / risk_0, ends, level)

    def odds_ratio(self, level: float = 0.95) -> ScoreInterval | None:
        """The odds ratio: the ratio of risks over the ratio of their complements.

        Either ratio has half of the misses. The odds ratio is None where a denominator is within
        its error. Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        moments_miss, tail = misses(level)
        risks = self._ends(moments_miss, 0.5 * tail, complement=False)
        complements = self._ends(moments_miss, 0.5 * tail, complement=True)
        if risks is None or complements is None or complements[0] <= 0.0:
            return None
        risk_1, risk_0 = self._inside
        estimate = risk_1 * (1.0 - risk_0) / ((1.0 - risk_1) * risk_0)
        return _stated(estimate, (risks[0] / complements[1], risks[1] / complements[0]), level)

    @property
    def _noises(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Scales of the noise of either risk, and what rounding adds to either.

        Rounding is half a step of the grid, and what noise may be off its continuous law.
        """
        half = 0.5 * self.noise.step
        scales = tuple(self.widening * scale for scale in self.noise.scales[:2])
        roundings = tuple(
            self.widening * (half + self.noise.coupling * unit) for unit in self.noise.units[:2]
        )
        return scales, roundings

    @property
    def _inside(self) -> tuple[float, float]:
        """The risks, at least half a record from 0 and 1."""
        least = 0.5 / self.noise.n_samples
        treated, untreated = self.risks
        return min(max(treated, least), 1.0 - least), min(max(untreated, least), 1.0 - least)

    def _norm(self, moments_miss: float) -> Callable[[float, float], float]:
        """Standard deviation at most of ``u (phi_1 - phi_0) + v (phi_1 + phi_0)``.

        It is larger with the probability ``moments_miss``. Five events miss, a fifth of it
        each: the noise of either second moment, of either mean and of the product, the last three
        in both directions.
        """
        noise = self.noise
        fifth = 0.2 * moments_miss
        treated, untreated, *moments, product = noise.means(self.released)
        difference = treated - untreated
        total = treated + untreated
        mean_margin = noise.margin(0.5 * fifth, 0, 1)
        moment_margin = noise.margin(fifth, 2)
        largest = (noise.bound + noise.other_bound) ** 2
        variances = []
        for mean, moment in zip((abs(difference), abs(total)), moments, strict=True):
            variance = moment + moment_margin - max(mean - mean_margin, 0.0) ** 2
            variances.append(min(max(variance, 0.0), largest) * ROUND_UP)
        covariance = product - difference * total
        by_means = mean_margin * (abs(difference) + abs(total) + mean_margin)
        margin = noise.margin(0.5 * fifth, 4) + by_means
        bounds = (covariance - margin, covariance + margin)
        norm = quadratic_norm(variances[0], variances[1], bounds)

        def widened(u: float, v: float) -> float:
            return self.widening * norm(u, v)

        return widened

    def _counted_norm(
        self, moments_miss: float, sign: float, first: float, second: float
    ) -> Callable[[float, float], float]:
        """The root of the mean square of ``u A + v B``, of a mean which is 0.

        It is larger with the probability ``moments_miss``. Six events miss: those of
        ``_norm``, and the noise of the mean of h.

        Parameters
        ----------
        moments_miss
            Probability to miss.
        sign
            A and B are difference and sum of ``sign phi_a + c_a h``.
        first
            c_1, the center of the treated.
        second
            c_0, the center of the untreated.
        """
        noise = self.noise
        sixth = moments_miss / 6.0
        W = self.widening
        treated, untreated, *moments, product, size = noise.means(self.released)
        mean_margin = noise.margin(0.5 * sixth, 0, 1)
        product_margin = noise.margin(0.5 * sixth, 4)
        moment_margin = noise.margin(sixth, 2)
        size_margin = noise.margin(0.5 * sixth, 5)
        difference = sign * (treated - untreated)
        total = sign * (treated + untreated)
        center_difference = first - second
        center_total = first + second
        largest_score = W * (noise.bound + noise.other_bound)

        def square(moment: float, mean: float, center: float) -> float:
            """At least the mean square of A or of B."""
            of_scores = W * W * (moment + moment_margin)
            of_both = 2.0 * W * (center * mean + abs(center) * mean_margin)
            of_centers = center * center * (size + size_margin)
            largest = (largest_score + abs(center)) ** 2
            return min(max(of_scores + of_both + of_centers, 0.0), largest) * ROUND_UP

        centers = abs(center_difference) + abs(center_total)
        both_centers = center_difference * center_total
        crossed = center_difference * total + center_total * difference
        cross = W * W * product + W * crossed + both_centers * size
        by_scores = W * W * product_margin + W * centers * mean_margin
        cross_margin = by_scores + abs(both_centers) * size_margin
        return quadratic_norm(
            square(moments[0], difference, center_difference),
            square(moments[1], total, center_total),
            (cross - cross_margin, cross + cross_margin),
        )

    def _ends(
        self, moments_miss: float, tail: float, *, complement: bool
    ) -> tuple[float, float] | None:
        """Interval of the ratio of the risks, or of their complements; no ratio is negative.

        None where the untreated one is not significantly above 0: no ratio is then rejected far
        out.
        """
        size = self.size
        root_n = math.sqrt(self.noise.n_samples)
        risk_1, risk_0 = self.risks
        center_1, center_0 = self.centers
        sign = 1.0
        if complement:
            risk_1 = 1.0 - risk_1
            risk_0 = 1.0 - risk_0
            center_1 = 1.0 - center_1
            center_0 = 1.0 - center_0
            sign = -1.0
        error_1, error_0 = self.errors
        of_regression_1 = size * math.hypot(error_1.noise, error_1.sampling)
        of_regression_0 = size * math.hypot(error_0.noise, error_0.sampling)
        scales, roundings = self._noises
        shared: tuple[tuple[float, float], ...] = ()
        if self.noise.law is SumLaw.ARMS:
            norm = self._norm(moments_miss)
        else:
            norm = self._counted_norm(moments_miss, sign, center_1, center_0)
            unit = self.noise.coupling * self.noise.units[5]
            roundings = (
                roundings[0] + abs(center_1) * unit,
                roundings[1] + abs(center_0) * unit,
            )
            scale = self.noise.scales[5]
            shared = ((center_1 * scale, center_0 * scale),)

        def deviation(rho: float) -> float:
            # phi_1 - rho phi_0 = (1 + rho)/2 (phi_1 - phi_0) + (1 - rho)/2 (phi_1 + phi_0)
            of_scores = norm(0.5 * (1.0 + rho), 0.5 * (1.0 - rho)) / root_n
            return math.hypot(of_scores, of_regression_1, rho * of_regression_0)

        test = Fieller(
            numerator=size * risk_1,
            denominator=size * risk_0,
            noise=self.noise.noise,
            scales=(scales[0], scales[1]),
            roundings=(roundings[0], roundings[1]),
            deviation=deviation,
            slope=math.hypot(norm(0.5, -0.5) / root_n, of_regression_0),
            biases=(size * error_1.bias, size * error_0.bias),
            shared=shared,
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
