"""A released effect in plain words: what it is, how sure, for whom, and what was spent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.display import grid, pairs
from dp2erm_cvx.release.effect_caveats import caveats, clips
from dp2erm_cvx.release.guarantee_text import guaranteed, sampled, spent_by_step, stood_for, titled, warned
from dp2erm_cvx.release.ranges import range_blocks
from dp2erm_cvx.release.sensitivity import sensitivity

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.release.effect import EffectRelease
    from dp2erm_cvx.release.interval import EffectInterval

#: What is estimated, and for whom.
ESTIMANDS = {
    "ate": ("Private average effect", "treated and untreated alike"),
    "att": ("Private effect among the treated", "the treated alone"),
    "overlap": (
        "Private effect where either treatment is likely",
        "each counted by min(e, 1 - e) of the released propensity e",
    ),
    "risks": ("Private risks under both treatments", "treated and untreated alike"),
}


def effect_blocks(release: EffectRelease) -> Iterator[Block]:
    """Everything that the release says, from what was released and public numbers alone."""
    title, whom = ESTIMANDS[release.estimand]
    yield titled(f"{title} by {release.by}" if release.by else title, release)
    yield from estimate_lines(release)
    yield from group_blocks(release)
    yield f"Population: {stood_for(release)}, {whom}. Adjusted for: {', '.join(release.columns)}."
    yield from sampled(release, interval=True)
    yield ""
    yield from range_blocks(release)
    yield clips(release)
    units = ", in units of the released range" if release.normalized else ""
    yield (
        f"Fixed before the data were read{units}. What lies beyond is clipped, never refused: where that is "
        "much, the clips move the estimate."
    )
    yield ""
    yield from caveats(release)
    yield from sensitivity(release)
    yield ""
    yield spent_by_step(release)
    yield ""
    yield pairs(guaranteed(release))
    yield from warned(release)


def estimate_lines(release: EffectRelease) -> Iterator[str]:
    """The estimate, its interval, what that counts, and risks with their ratios."""
    interval, net = release.interval, release.domain.get("treatment_cost")
    half = _half(interval)
    unit = "risk difference" if release.risks else f"in {outcome_unit_name(release)}"
    estimate = signed(release.estimate, half)
    yield f"estimate: {estimate}, {unit}{', net of the treatment cost' if net else ''}"
    yield f"{100 * interval.level:g} % interval: {_ends(interval, half)}"
    noise, sampling = interval.noise_half_width, interval.sampling_half_width
    if half is None or noise is None or sampling is None:
        yield "An end is unbounded: the size of that population, as it was released, is within its noise."
    else:
        told = [signed(width, half).lstrip("+") for width in (half, noise, sampling)]
        parts = f"Privacy noise alone would leave {told[1]}, sampling alone {told[2]}"
        bias = f", bias at most {signed(interval.bias, half).lstrip('+')}" if interval.bias else ""
        yield f"The half width is {told[0]}. {parts}{bias}."
    if release.risks:
        treated, untreated = (f"{risk:.3g}" for risk in release.risks)
        yield f"risks: {treated} treated, {untreated} untreated"
        if len(release.ratios) < 2:
            which = "odds ratio" if release.ratios else "ratio"
            yield f"No {which}: what it would divide by is within its own error of 0 at this level."
    for ratio in release.ratios:
        ends = " to ".join("unbounded" if end is None else f"{end:.3g}" for end in _pair(ratio.interval))
        yield f"{ratio.name}: {ratio.estimate:.3g}, {100 * ratio.interval.level:g} % interval: {ends}"


def group_blocks(release: EffectRelease) -> Iterator[Block]:
    """The effects in groups, if any, and their contrasts to the first."""
    if not release.groups:
        return
    level, first = release.interval.level, release.groups[0].group or "missing"
    table = grid(str(release.by), "records", "treated", "effect", "interval", "all together", f"less {first}")
    for one in release.groups:
        half, apart = _half(one.interval), one.contrast
        treated = "public" if one.treated is None else f"{100.0 * one.treated:.0f} %"
        effect = signed(one.estimate, half) if half is not None else "unknown"
        less = "" if apart is None else _ends(apart.interval, _half(apart.interval))
        ends = (_ends(interval, _half(interval)) for interval in (one.interval, one.joint))
        table.add_row(one.group or "missing", f"{max(one.counted, 0.0):,.0f}", treated, effect, *ends, less)
    yield ""
    yield table
    yield (
        "Records and treated shares are about those of the group, noise included. Intervals are at "
        f"{100 * level:g} %: for the group by itself, for all groups together (Bonferroni), and for its "
        f"effect less that of {first}. The estimate above is of the records of all groups."
    )
    yield ""


def _half(interval: EffectInterval) -> float | None:
    low, high = _pair(interval)
    return None if low is None or high is None else 0.5 * (high - low)


def outcome_unit_name(release: Any) -> str:
    """What the outcome is measured in, as it was declared."""
    book = release.domain.get("codebook") or {}
    return str(book.get("units", {}).get(book.get("outcome"), "units of the outcome"))


def _pair(interval: EffectInterval) -> tuple[float | None, float | None]:
    return interval.low, interval.high


def _ends(interval: EffectInterval, half: float | None) -> str:
    return " to ".join("unbounded" if end is None else signed(end, half) for end in _pair(interval))


def signed(number: float, half: float | None) -> str:
    """A number with a sign, to two digits of the half width."""
    places = 1 - math.floor(math.log10(half)) if half is not None and half > 0.0 else -1
    return f"{number:+.{places}f}" if 0 <= places <= 9 and abs(number) < 1e9 else f"{number:+.4g}"
