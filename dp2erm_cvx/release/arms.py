"""Risk difference, risk ratio and odds ratio from both released arm means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dp2erm_cvx.calibration import ArmNoise
from dp2erm_cvx.calibration.sums import sum_quantile
from dp2erm_cvx.release.interval import ScoreInterval, misses
from dp2erm_cvx.release.ratio import Fieller, RatioInterval, quadratic_norm

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
    """

    noise: ArmNoise
    released: Sequence[int]
    centers: tuple[float, float] = (0.5, 0.5)

    @property
    def risks(self) -> tuple[float, float]:
        """Released means, treated first; they may lie beyond 0 and 1."""
        first, second, *_ = self.noise.means(self.released)
        return self.centers[0] + first, self.centers[1] + second

    def difference(self, level: float = 0.95) -> ScoreInterval:
        """The risk difference, mean of the treated arm less mean of the untreated one.

        Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        share, tail = misses(level)
        risk_1, risk_0 = self.risks
        apart, law, scales = self._norm(share)(1.0, 0.0), self.noise.noise, self.noise.scales[:2]
        sampling, rounding = apart / math.sqrt(self.noise.n_samples), sum(self._roundings)
        half = (sum_quantile(law, tail, sampling, *scales) + rounding) * _ROUND_UP
        estimate = risk_1 - risk_0
        return ScoreInterval(
            estimate=estimate,
            low=estimate - half,
            high=estimate + half,
            level=float(level),
            standard_deviation=apart,
            noise_half_width=(sum_quantile(law, tail, 0.0, *scales) + rounding) * _ROUND_UP,
            sampling_half_width=sum_quantile(law, tail, sampling),
        )

    def ratio(self, level: float = 0.95) -> RatioInterval:
        """The risk ratio, treated over untreated.

        Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        share, tail = misses(level)
        low, high = self._ends(share, tail, complement=False)
        risk_1, risk_0 = self._inside()
        # risks beyond 0 and 1 are cut for the estimate alone
        estimate = risk_1 / risk_0
        return RatioInterval(estimate, min(low, estimate), max(high, estimate), float(level))

    def odds_ratio(self, level: float = 0.95) -> RatioInterval:
        """The odds ratio: the ratio of risks over the ratio of their complements, half of the misses each.

        Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        share, tail = misses(level)
        low, high = self._ends(share, 0.5 * tail, complement=False)
        least, most = self._ends(share, 0.5 * tail, complement=True)
        risk_1, risk_0 = self._inside()
        estimate = risk_1 * (1.0 - risk_0) / ((1.0 - risk_1) * risk_0)
        low = low / most if low > 0.0 else 0.0
        high = high / least if least > 0.0 else math.inf
        return RatioInterval(estimate, min(low, estimate), max(high, estimate), float(level))

    @property
    def _roundings(self) -> tuple[float, float]:
        """Half a step of the grid for each score, and what the noise may differ from its law."""
        first, second, *_ = (
            0.5 * self.noise.step + self.noise.integers.coupling * u for u in self.noise.units
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
        return quadratic_norm(variances[0], variances[1], (middle - off, middle + off))

    def _ends(self, share: float, tail: float, *, complement: bool) -> tuple[float, float]:
        """Interval of the ratio of the risks, or of their complements; no ratio is negative."""
        norm, root = self._norm(share), math.sqrt(self.noise.n_samples)
        risk_1, risk_0 = (1.0 - risk if complement else risk for risk in self.risks)
        # phi_1 - rho phi_0 = (1 + rho)/2 (phi_1 - phi_0) + (1 - rho)/2 (phi_1 + phi_0)
        test = Fieller(
            risk_1,
            risk_0,
            self.noise.noise,
            (self.noise.scales[0], self.noise.scales[1]),
            self._roundings,
            lambda rho: norm(0.5 * (1.0 + rho), 0.5 * (1.0 - rho)) / root,
            norm(0.5, -0.5) / root,
        )
        low, high = test.ends(tail)
        return max(low, 0.0), max(high, 0.0)
