"""What a released effect rests on, and what its public rules cut off, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dp2erm_cvx.display import grid
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.plan.effect_plan import NEGLIGIBLE

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.release.effect import EffectRelease


def clips(release: EffectRelease) -> Table:
    """Every bound that a record was clipped to."""
    domain, settings, unit = Domain.from_dict(release.domain), release.settings, release.outcome_unit
    center = release.ranges[-1].low + unit if release.normalized else domain.outcome_center
    table = grid("clipped by public rule", "from", "to")
    for name, middle, bound in (
        ("net outcome" if domain.treatment_cost else "outcome", center, unit * domain.outcome_bound),
        ("residual of the outcome regression", 0.0, unit * float(settings["residual_bound"])),
        ("score of one record, less its center", 0.0, unit * float(settings["score_bound"])),
        ("propensity of treatment", 0.5, 0.5 - 1.0 / float(settings["cap"])),
    ):
        table.add_row(name, f"{middle - bound:.4g}", f"{middle + bound:.4g}")
    table.add_row("norm of the scaled covariates", "0", f"{domain.features_bound:.4g}")
    return table


def caveats(release: EffectRelease) -> Iterator[str]:
    """What the interval covers always, what it assumes, and what it does not cover."""
    yield (
        "The interval is for what the score averages to in the population, at the nuisances released here. "
        "In large samples that holds whatever those nuisances are."
    )
    yield _assumed(release)
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


def _assumed(release: EffectRelease) -> str:
    known = release.settings["propensity"]
    if not isinstance(known, str):
        return (
            "That this is the effect is an assumption: everybody was treated with the public "
            f"probability {known:g}, whatever the covariates. The outcome regression may be wrong."
        )
    regression = "the outcome regression" + (" of the untreated" if release.estimand == "att" else "")
    right = f"{regression} or the propensity is right"
    if known == "cells":
        right = "within cells, the outcome of either arm or the propensity hardly varies"
    if known == "constant":
        right = f"{regression} is right, or treatment does not depend on the covariates"
    return f"That this is the effect is an assumption: {right}, and no confounder is unmeasured."
