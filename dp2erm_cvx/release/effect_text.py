"""A released effect in plain words: what it is, how sure, for whom, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dp2erm_cvx.display import grid, pairs
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.plan.effect_plan import NEGLIGIBLE
from dp2erm_cvx.release.guarantee_text import guaranteed, titled, warned

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.display import Block
    from dp2erm_cvx.release.effect import EffectRelease

#: What each step of an effect releases.
_RELEASED = {
    "center": "outcome regression",
    "refit": "outcome regression of what the center left",
    "propensity": "propensity of treatment",
    "score": "mean and second moment of the score",
}


def effect_blocks(release: EffectRelease) -> Iterator[Block]:
    """Everything that the release says, from what was released and public numbers alone."""
    yield titled("Private average effect", release)
    yield from _estimate(release)
    yield ""
    yield _clips(release)
    yield (
        "Fixed before the data were read. What lies beyond is clipped, never refused: where that is much, "
        "the clips move the estimate."
    )
    yield ""
    yield from _caveats(release)
    yield ""
    yield _spent(release)
    yield ""
    yield pairs(guaranteed(release))
    yield from warned(release)


def _estimate(release: EffectRelease) -> Iterator[Block]:
    interval, net = release.interval, release.domain.get("treatment_cost")
    estimate, low, high, half, noise, sampling = _aligned(
        release.estimate,
        interval.low,
        interval.high,
        interval.high - release.estimate,
        interval.noise_half_width,
        interval.sampling_half_width,
    )
    yield f"estimate: {estimate}, in units of the outcome{', net of the treatment cost' if net else ''}"
    yield f"{100 * interval.level:g} % interval: {low} to {high}"
    yield (
        f"The half width is {half.lstrip('+')}. Noise alone would leave {noise.lstrip('+')}, sampling alone "
        f"{sampling.lstrip('+')}."
    )
    yield (
        f"Population: that of the {release.n_samples:,} records, treated and untreated alike. Adjusted for: "
        f"{', '.join(release.columns)}."
    )


def _clips(release: EffectRelease) -> Table:
    domain, settings = Domain.from_dict(release.domain), release.settings
    cap, center = float(settings["cap"]), float(settings["effect_center"])
    net = "net outcome" if domain.treatment_cost else "outcome"
    table = grid("clipped by public rule", "from", "to")
    for name, middle, bound in (
        (net, domain.outcome_center, domain.outcome_bound),
        ("residual of the outcome regression", 0.0, float(settings["residual_bound"])),
        ("score of one record", center, float(settings["score_bound"])),
        ("propensity of treatment", 0.5, 0.5 - 1.0 / cap),
    ):
        table.add_row(name, f"{middle - bound:.4g}", f"{middle + bound:.4g}")
    table.add_row("norm of the scaled covariates", "0", f"{domain.features_bound:.4g}")
    return table


def _caveats(release: EffectRelease) -> Iterator[str]:
    known = release.settings.get("propensity")
    yield (
        "The interval is for the mean of the score in the population, at the nuisances released here. That "
        "holds in large samples whatever those nuisances are."
    )
    if isinstance(known, str):
        yield (
            "That this mean is the effect is an assumption: the outcome regression or the propensity is "
            "right, and no confounder is unmeasured."
        )
    else:
        yield (
            f"That this mean is the effect is an assumption: everybody was treated with the public "
            f"probability {known:g}, whatever the covariates. The outcome regression may be wrong."
        )
    ratio = f"public ratio {release.nuisance_ratio:.2g}, where {NEGLIGIBLE:g} is the limit"
    if release.negligible:
        yield f"Noise of the nuisances: negligible beside the interval ({ratio})."
    else:
        yield (
            f"Noise of the nuisances: NOT negligible beside the interval ({ratio}). The bias toward the "
            "naive difference of means may exceed the interval."
        )
    yield (
        "Not covered: bias where both nuisances are wrong, unmeasured confounding, and what the clips "
        "remove. Every other release from these data adds to epsilon."
    )


def _spent(release: EffectRelease) -> Table:
    table = grid("step", "releases", "noise", "scale", "epsilon", "delta", left=3)
    for step in release.steps:
        told = f"{step.epsilon:.4g}", f"{step.delta:.2g}"
        noise = str(step.noise) if step.gamma else {"gamma": "Laplace"}.get(step.noise, str(step.noise))
        table.add_row(step.step, _RELEASED.get(step.step, step.theorem), noise, f"{step.scale:.3g}", *told)
    return table


def _aligned(*numbers: float) -> list[str]:
    """Numbers with a sign, to two or three digits of the fourth, which is a half width."""
    half = abs(numbers[3])
    places = 1 - math.floor(math.log10(half)) if half > 0.0 else 4
    if not 0 <= places <= 9 or max(map(abs, numbers)) >= 1e9:
        return [f"{number:+.4g}" for number in numbers]
    return [f"{number:+.{places}f}" for number in numbers]
