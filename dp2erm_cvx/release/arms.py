"""Risk difference, risk ratio and odds ratio from both released arm means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dp2erm_cvx.calibration import ArmNoise
from dp2erm_cvx.calibration.sums import sum_quantile
from dp2erm_cvx.release.interval import ScoreInterval, misses
from dp2erm_cvx.release.ratio import Fieller, RatioInterval

_ROUND_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class ArmRisks:
    """Both arm means of an outcome between 0 and 1, as released, and what follows from them.

    Parameters
    ----------
    noise
        What was calibrated.
    released
        The four integers.
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
        apart, _ = self._deviations(share)
        risk_1, risk_0 = self.risks
        sampling, law, scales = (
            apart / math.sqrt(self.noise.n_samples),
            self.noise.noise,
            self.noise.scales[:2],
        )
        rounding = sum(self._roundings)
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
        return RatioInterval(risk_1 / risk_0, low, high, float(level))

    def odds_ratio(self, level: float = 0.95) -> RatioInterval:
        """The odds ratio: the ratio of risks over the ratio of their complements, half of the misses each.

        Raises DeclarationError unless ``1/2 <= level < 1``.
        """
        share, tail = misses(level)
        low, high = self._ends(share, 0.5 * tail, complement=False)
        least, most = self._ends(share, 0.5 * tail, complement=True)
        risk_1, risk_0 = self._inside()
        estimate = risk_1 * (1.0 - risk_0) / ((1.0 - risk_1) * risk_0)
        return RatioInterval(
            estimate,
            low / most if low > 0.0 else 0.0,
            high / least if least > 0.0 else math.inf,
            float(level),
        )

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

    def _deviations(self, share: float) -> tuple[float, float]:
        """At least the sample standard deviations of ``phi_1 - phi_0`` and of ``phi_1 + phi_0``.

        Four events miss, a quarter of the ``share`` each: the noise of either second moment and of either
        mean, that of the means in both directions.
        """
        noise = self.noise
        first, second, *squares = noise.means(self.released)
        aside = noise.margin(0.125 * share, 0, 1)
        largest = noise.bound + noise.other_bound
        found = []
        for mean, square, place in ((first - second, squares[0], 2), (first + second, squares[1], 3)):
            least = max(abs(mean) - aside, 0.0)
            variance = (square + noise.margin(0.25 * share, place) - least**2) * _ROUND_UP
            found.append(math.sqrt(min(max(variance, 0.0), largest**2)))
        return found[0], found[1]

    def _ends(self, share: float, tail: float, *, complement: bool) -> tuple[float, float]:
        """Interval of the ratio of the risks, or of their complements; no ratio is negative."""
        apart, together = (sd / math.sqrt(self.noise.n_samples) for sd in self._deviations(share))
        risk_1, risk_0 = (1.0 - risk if complement else risk for risk in self.risks)
        # phi_1 - rho phi_0 = (1 + rho)/2 (phi_1 - phi_0) + (1 - rho)/2 (phi_1 + phi_0)
        test = Fieller(
            risk_1,
            risk_0,
            self.noise.noise,
            (self.noise.scales[0], self.noise.scales[1]),
            self._roundings,
            lambda rho: 0.5 * (abs(1.0 + rho) * apart + abs(1.0 - rho) * together),
            0.5 * (apart + together),
        )
        low, high = test.ends(tail)
        return max(low, 0.0), max(high, 0.0)
