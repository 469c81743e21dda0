"""What a released effect rests on, and what its public rules cut off, in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, expit

from dp2erm_cvx.display import grid
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.plan.effect_plan import NEGLIGIBLE
from dp2erm_cvx.release.guarantee_text import confounding
from dp2erm_cvx.steps import TreatmentRatePlan

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.release.effect import EffectRelease
    from dp2erm_cvx.release.nuisances import Nuisance

#: Share of propensities beyond the cap from which errors of the outcome regression are not negligible.
CAPPED = 0.05
#: What that is a share of, by the propensity of the settings; of all records elsewhere.
_OF = {"logistic": "covariates spread evenly over the public bounds", "cells": "the released counts"}


def capped_share(
    estimand: str, cap: float, features_bound: float, nuisances: Sequence[Nuisance], n_samples: int
) -> float:
    """How many propensities the cap cuts off, from what was released and public numbers alone.

    Of a logistic one the share beyond the cap of covariates spread evenly over the ball of radius
    ``features_bound``, whoever the records are; in cells that of the released counts. No factor of the
    overlap population needs a cap, and small odds need none among the treated.
    """
    if estimand == "overlap":
        return 0.0
    known = {f"{one.step}, {one.rows}": np.array(one.coefficient) for one in nuisances}
    high = math.log(cap - 1.0)
    low = -math.inf if estimand == "att" else -high
    if "propensity, log odds of treatment" in known:
        constant, *slopes = known["propensity, log odds of treatment"]
        reach = features_bound * float(np.linalg.norm(slopes))
        # the projection of an even ball onto a line is a scaled beta variable
        half = 0.5 * (len(slopes) + 1)
        ends = [
            float(np.clip(0.5 * (1.0 + (end - constant) / max(reach, 1e-300)), 0.0, 1.0))
            for end in (low, high)
        ]
        return float(betainc(half, half, ends[0]) + betainc(half, half, 1.0 - ends[1]))
    if "propensity, treated records" in known:
        share, count = known["propensity, treated records"] / n_samples, np.ones(1)
    elif "propensity, sampling weights over their bound" in known:
        both = known["propensity, sampling weights over their bound"]
        share, count = np.array([TreatmentRatePlan.rate(both, n_samples)]), np.ones(1)
    elif "cells, treated share" in known:
        share, count = known["cells, treated share"], np.maximum(known["cells, records"], 0.0)
    else:
        return 0.0
    beyond = (share < expit(low)) | (share > expit(high))
    return float(np.sum(count[beyond]) / max(float(np.sum(count)), 1.0))


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
        yield f"Noise of the nuisances: negligible beside the interval ({ratio}).{_uncounted(release)}"
    else:
        yield (
            f"Noise of the nuisances: NOT negligible beside the interval ({ratio}). The bias toward the "
            "naive difference of means may exceed the interval."
        )
    yield from confounding(release.kept_confounding, "this effect")
    if release.capped > CAPPED:
        whole = _OF.get(str(release.settings["propensity"]), "all records")
        yield (
            f"Overlap may be poor: of {whole}, {100 * release.capped:.0f} % have a released propensity "
            f"beyond the cap {float(release.settings['cap']):g} ({100 * CAPPED:g} % is the limit). There "
            "errors of the outcome regression count in full. A larger cap makes the interval wide enough to "
            "cover."
        )
    yield (
        "Not covered: bias where both nuisances are wrong, unmeasured confounding, and what the clips "
        "remove. Every other release from these data adds to epsilon."
    )


def _uncounted(release: EffectRelease) -> str:
    if release.estimand == "overlap" or not isinstance(release.settings["propensity"], str):
        return ""  # no cap removes anything
    return (
        " That does not count what the cap of the propensity removes: where overlap is poor, declare a "
        "larger one."
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
