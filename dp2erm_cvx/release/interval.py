"""Intervals as releases state them: plain numbers, None where an end is not finite."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.special import ndtri

from dp2erm_cvx.checks import Stated, json_types
from dp2erm_cvx.inference.interval import ScoreInterval


@dataclass(frozen=True)
class EffectInterval(Stated):
    """An interval as a release states it.

    Parameters
    ----------
    low
        Lower end; None where it is infinite.
    high
        Upper end; None where it is infinite.
    level
        Its level, such as 0.95.
    noise_half_width
        Half width that privacy noise alone would leave; None where it is not known.
    sampling_half_width
        Half width that sampling alone would leave; None where it is not known.
    bias
        Bias by the released nuisances that it allows for; None where it is not known.
    """

    low: float | None
    high: float | None
    level: float
    noise_half_width: float | None = None
    sampling_half_width: float | None = None
    bias: float | None = None

    @property
    def needed_to_treat(self) -> tuple[float, float] | None:
        """The ends of the interval of 1/difference, the smaller first, in size.

        How many have to be treated for one event more, or less. None where the interval of the
        difference holds 0, as no number of people is then enough. Altman, BMJ 317 (1998) 1309.
        """
        if self.low is None or self.high is None or self.low <= 0.0 <= self.high:
            return None
        first, second = sorted((1.0 / abs(self.low), 1.0 / abs(self.high)))
        return first, second

    @property
    def half_width(self) -> float | None:
        """Half of its width; None where an end is unbounded."""
        if self.low is None or self.high is None:
            return None
        return 0.5 * (self.high - self.low)

    @property
    def std_error(self) -> float | None:
        """Half width over the normal quantile of the level: the standard error of a meta-analysis.

        The interval of a normal estimate with this standard error is as wide as the stated one,
        whatever that counts: sampling, noise, and the allowed bias. None where an end is unbounded.
        """
        if self.half_width is None:
            return None
        return self.half_width / float(ndtri(0.5 + 0.5 * self.level))

    def withheld(self) -> EffectInterval:
        """What is stated where none holds at this level."""
        return EffectInterval(None, None, self.level)

    @classmethod
    def of(cls, score: ScoreInterval, unit: float = 1.0) -> EffectInterval:
        """An interval whose ends may be infinite; what is one there is ``unit`` here."""
        low, high, noise, sampling, bias = json_types(
            [
                unit * score.low,
                unit * score.high,
                unit * score.noise_half_width,
                unit * score.sampling_half_width,
                unit * score.bias,
            ]
        )
        return cls(low, high, score.level, noise, sampling, bias)
