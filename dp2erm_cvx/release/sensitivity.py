"""How much unmeasured confounding a released effect withstands, and what it counts for, for no epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dp2erm_cvx.errors import DeclarationError, shown

if TYPE_CHECKING:
    from dp2erm_cvx.release.effect import EffectRelease
    from dp2erm_cvx.release.interval import EffectInterval

#: Of a difference of means in standard deviations, as a log risk ratio (VanderWeele and Ding 2017).
_LOG_RATIO = 0.91
#: Standard deviations that no arms lie apart.
FAR = 10.0


def e_value(ratio: float) -> float:
    """``RR + sqrt(RR (RR - 1))`` of a risk ratio, or of its inverse if that is larger.

    The least risk ratio that an unmeasured confounder has with both treatment and outcome, given covariates,
    if it alone explains the ratio. VanderWeele and Ding, Ann. Intern. Med. 167 (2017) 268.

    Raises DeclarationError unless ``ratio > 0``.
    """
    if not ratio > 0.0:
        raise DeclarationError(f"ratio = {shown(ratio)}: must be above 0")
    larger = max(ratio, 1.0 / ratio)
    return larger + math.sqrt(larger * (larger - 1.0))


def nearer_limit(low: float, high: float, null: float) -> float:
    """The end of an interval on the side of ``null``, or that itself where the interval holds it."""
    return min(max(null, low), high)


def tipping_point(release: EffectRelease) -> float | None:
    """The ``confounding`` D at which the interval reaches 0: ``b = |T| - q`` solved for D.

    T is the estimate, b the allowed bias, in proportion to D, and q what is left of the half width without
    it. None where no bias is allowed for, and where the interval holds 0 already.
    """
    low, high, bias = release.interval.low, release.interval.high, release.interval.bias
    if low is None or high is None or not bias or low <= 0.0 <= high:
        return None
    rest = 0.5 * (high - low) - bias
    declared = float(release.settings["confounding"])
    return declared * (abs(0.5 * (low + high)) - rest) / bias


def needed_to_treat(interval: EffectInterval) -> tuple[float, float] | None:
    """The ends of the interval of 1/difference, the smaller first, in size.

    How many have to be treated for one event more, or less. None where the interval of the difference holds
    0, as no number of people is then enough. Altman, BMJ 317 (1998) 1309.
    """
    if interval.low is None or interval.high is None or interval.low <= 0.0 <= interval.high:
        return None
    first, second = sorted((1.0 / abs(interval.low), 1.0 / abs(interval.high)))
    return first, second


def sensitivity(release: EffectRelease) -> Iterator[str]:
    """What follows from an average effect or from risks, in words."""
    if release.estimand not in ("ate", "risks"):
        return
    two_values = bool(release.domain.get("binary_outcome", False))
    yield from _e_values(release, two_values)
    if release.risks or (two_values and release.domain["outcome_bound"] == 0.5):
        yield _number_needed(release)
    tipping = tipping_point(release)
    if tipping is not None:
        apart = f"{tipping:.3g}" if tipping < FAR else f"more than {FAR:g}"
        yield (
            f"Tipping point: the interval reaches 0 where the arms lie {apart} standard deviations apart "
            f"(confounding; {float(release.settings['confounding']):g} is declared or the default)."
        )


def _e_values(release: EffectRelease, two_values: bool) -> Iterator[str]:
    """Of the risk ratio; of a difference of means where the standard deviation of residuals was declared."""
    ratio = next((one for one in release.ratios if one.name == "risk ratio"), None)
    if ratio is not None and ratio.interval.low is not None and ratio.interval.high is not None:
        low, high, of = ratio.interval.low, ratio.interval.high, "risk ratio"
        estimate = ratio.estimate
    else:
        bound = float(release.domain["outcome_bound"])
        scale = float(release.settings["residual_scale"])
        low, high = (
            math.nan if end is None else end for end in (release.interval.low, release.interval.high)
        )
        assumed = scale == bound / 3.0  # where none is declared
        if release.risks or two_values or assumed or release.normalized or not math.isfinite(low + high):
            return
        ends = (_LOG_RATIO * one / scale for one in (release.estimate, low, high))
        estimate, low, high = (math.exp(min(max(one, -300.0), 300.0)) for one in ends)
        of = "effect in standard deviations of residuals, as an approximate risk ratio"
    limit = e_value(max(nearer_limit(low, high, 1.0), 1e-300))
    yield (
        f"E-value of the {of}: {e_value(estimate):.3g}, of the nearer limit {limit:.3g}. A confounder that "
        "was not measured needs risk ratios of that size with treatment and outcome both to explain it away."
    )


def _number_needed(release: EffectRelease) -> str:
    """How many have to be treated for one event more or less, with its interval."""
    ends = needed_to_treat(release.interval)
    if ends is None:
        return "Number needed to treat: no finite one, as the interval of the risk difference holds 0."
    more = "more" if release.estimate > 0.0 else "less"
    low, high = ends
    level = 100 * release.interval.level
    return (
        f"Number needed to treat for one event {more}: {1.0 / abs(release.estimate):.3g}, "
        f"{level:g} % interval {low:.3g} to {high:.3g}."
    )
