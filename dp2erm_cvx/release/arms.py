"""Risk difference, risk ratio and odds ratio from both released arm means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dp2erm_cvx.calibration.sums import GridSums
from dp2erm_cvx.plan.effect_error import NO_ERROR, NuisanceError, combined
from dp2erm_cvx.release.interval import ScoreInterval, linear_interval, misses
from dp2erm_cvx.release.ratio import Fieller, quadratic_norm

_ROUND_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class ArmRisks:
    """Both arm means of an outcome between 0 and 1, as released, and what follows from them.

    Parameters
    ----------
    noise
        What was calibrated.
    released
        The five integers.
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
        first, second, *_ = self.noise.means(self.released)
        return self.centers[0] + self.widening * first, self.centers[1] + self.widening * second

    def difference(self, level: float = 0.95) -> ScoreInterval:
        """The risk difference, mean of the treated arm less mean of the untreated one.

        Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        error, (share, tail) = combined(*self.errors), misses(level)
        deviation = self._norm(share)(1.0, 0.0) / math.sqrt(self.noise.n_samples)
        errors = error.noise, math.hypot(deviation, error.sampling), error.bias
        public = self.risks[0] - self.risks[1], level, tail
        return linear_interval(self.noise, public, (deviation, self._scales, sum(self._roundings)), errors)

    def ratio(self, level: float = 0.95) -> ScoreInterval | None:
        """The risk ratio, treated over untreated; None where the untreated risk is within its error.

        Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        share, tail = misses(level)
        ends = self._ends(share, tail, complement=False)
        if ends is None:
            return None
        risk_1, risk_0 = self._inside()
        # risks beyond 0 and 1 are cut for the estimate alone
        estimate = risk_1 / risk_0
        return ScoreInterval(estimate, min(ends[0], estimate), max(ends[1], estimate), float(level))

    def odds_ratio(self, level: float = 0.95) -> ScoreInterval | None:
        """The odds ratio: the ratio of risks over the ratio of their complements, half of the misses each.

        None where a denominator is within its error. Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        share, tail = misses(level)
        ends = self._ends(share, 0.5 * tail, complement=False)
        others = self._ends(share, 0.5 * tail, complement=True)
        if ends is None or others is None or others[0] <= 0.0:
            return None
        risk_1, risk_0 = self._inside()
        estimate = risk_1 * (1.0 - risk_0) / ((1.0 - risk_1) * risk_0)
        low, high = ends[0] / others[1], ends[1] / others[0]
        return ScoreInterval(estimate, min(low, estimate), max(high, estimate), float(level))

    @property
    def _scales(self) -> tuple[float, float]:
        """Of the noise of either risk."""
        return self.widening * self.noise.scales[0], self.widening * self.noise.scales[1]

    @property
    def _roundings(self) -> tuple[float, float]:
        """Half a step of the grid for each score, and what the noise may differ from its law."""
        first, second, *_ = (
            self.widening * (0.5 * self.noise.step + self.noise.integers.coupling * unit)
            for unit in self.noise.units
        )
        return first, second

    def _inside(self) -> tuple[float, float]:
        """The risks, at least half a record from 0 and 1."""
        least = 0.5 / self.noise.n_samples
        first, second = (min(max(risk, least), 1.0 - least) for risk in self.risks)
        return first, second

    def _norm(self, share: float) -> Callable[[float, float], float]:
        """Standard deviation at most of ``u (phi_1 - phi_0) + v (phi_1 + phi_0)``, but with ``share``.

        Five events miss, a fifth of it each: the noise of either second moment, of either mean and of the
        product, the last three in both directions.
        """
        noise, fifth = self.noise, 0.2 * share
        first, second, *moments, product = noise.means(self.released)
        apart, both = abs(first - second), abs(first + second)
        aside, above = noise.margin(0.5 * fifth, 0, 1), noise.margin(fifth, 2)
        largest = (noise.bound + noise.other_bound) ** 2
        variances = []
        for mean, moment in zip((apart, both), moments, strict=True):
            variance = moment + above - max(mean - aside, 0.0) ** 2
            variances.append(min(max(variance, 0.0), largest) * _ROUND_UP)
        middle = product - (first - second) * (first + second)
        off = noise.margin(0.5 * fifth, 4) + aside * (apart + both + aside)
        norm = quadratic_norm(variances[0], variances[1], (middle - off, middle + off))
        return lambda u, v: self.widening * norm(u, v)

    def _ends(self, share: float, tail: float, *, complement: bool) -> tuple[float, float] | None:
        """Interval of the ratio of the risks, or of their complements; no ratio is negative.

        None where the untreated one is not significantly above 0: no ratio is then rejected far out.
        """
        norm, root = self._norm(share), math.sqrt(self.noise.n_samples)
        treated, untreated = (math.hypot(one.noise, one.sampling) for one in self.errors)
        risk_1, risk_0 = (1.0 - risk if complement else risk for risk in self.risks)
        # phi_1 - rho phi_0 = (1 + rho)/2 (phi_1 - phi_0) + (1 - rho)/2 (phi_1 + phi_0)
        test = Fieller(
            risk_1,
            risk_0,
            self.noise.noise,
            self._scales,
            self._roundings,
            lambda rho: math.hypot(
                norm(0.5 * (1.0 + rho), 0.5 * (1.0 - rho)) / root, treated, rho * untreated
            ),
            math.hypot(norm(0.5, -0.5) / root, untreated),
            (self.errors[0].bias, self.errors[1].bias),
        )
        low, high = test.ends(tail)
        if not math.isfinite(high):
            return None
        return max(low, 0.0), max(high, 0.0)
