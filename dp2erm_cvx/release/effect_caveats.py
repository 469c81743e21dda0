"""What a released effect rests on, and what its public rules cut off, in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, expit

from dp2erm_cvx.display import grid
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.steps.record_map import treated_share

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.release.effect import EffectRelease
    from dp2erm_cvx.release.nuisances import Nuisance

#: What an interval is for.
_EFFECTS = {
    "ate": "the effect",
    "att": "the effect among the treated",
    "overlap": "the effect in the population that the released weights describe",
    "risks": "the effect on the risk",
}
#: Share of propensities beyond the cap from which errors of the outcome regression are not negligible.
CAPPED = 0.05
#: What a constant propensity is from, where records may count less than 1.
_BOTH_ARMS = ("propensity, records", "propensity, sampling weights over their bound")
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
    rates = [values for name, values in known.items() if name.startswith("rate, ")]
    if rates:
        sums = np.reshape(rates[0], (min(len(rates[0]), 2), -1))
        share = np.array([treated_share(column, n_samples) for column in sums.T])
        count = np.maximum(sums.sum(axis=0), 0.0)
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
    ):
        table.add_row(name, f"{middle - bound:.4g}", f"{middle + bound:.4g}")
    least = 1.0 / float(settings["cap"])
    if release.estimand != "overlap":  # whose factors need no cap
        low = 0.0 if release.estimand == "att" else least
        table.add_row("propensity of treatment", f"{low:.4g}", f"{1.0 - least:.4g}")
    table.add_row("norm of the scaled covariates", "0", f"{domain.features_bound:.4g}")
    return table


def caveats(release: EffectRelease) -> Iterator[str]:
    """What the interval covers, what that rests on, and what it does not cover."""
    if release.target == "effect":
        yield from _for_the_effect(release)
    else:
        yield (
            "The interval is for what the score averages to in the population, at the nuisances released "
            "here. In large samples that holds whatever those nuisances are."
        )
        yield f"That this is the effect is an assumption: {_assumed(release)}"
    if release.capped > CAPPED:
        whole = _OF.get(str(release.settings["propensity"]), "all records")
        yield (
            f"Overlap may be poor: of {whole}, {100 * release.capped:.0f} % have a released propensity "
            f"beyond the cap {float(release.settings['cap']):g} ({100 * CAPPED:g} % is the limit). There "
            "errors of the outcome regression count in full. A larger cap makes the interval wide enough to "
            "cover."
        )
    yield (
        "Not covered: unmeasured confounding, models that are wrong, and what the clips remove. Every other "
        "release from these data adds to epsilon."
    )


def _for_the_effect(release: EffectRelease) -> Iterator[str]:
    """What the interval for an effect allows for, and the declarations that this rests on."""
    settings = release.settings
    if not isinstance(settings["propensity"], str):
        yield f"The interval is for the effect. {_assumed(release)[:1].upper()}{_assumed(release)[1:]}"
        return
    bias = 0.0 if release.interval.bias is None else release.interval.bias
    yield (
        f"The interval is for {_EFFECTS[release.estimand]}. It allows for sampling, for privacy noise, and "
        f"for a bias of up to {bias:.2g}: what noise and ridge of the released regressions may leave of the "
        "confounding."
    )
    if release.estimand == "overlap":
        yield (
            "That population follows the propensity that was released here, with its noise: another release "
            "describes another one, and none of them is that of the true propensity."
        )
    names = [step.step for step in release.steps]
    yield (f"To first order it rests on {_right(release)}, and on no unmeasured confounder.")
    if "mean" not in names:
        yield "Means of covariates are taken to lie within a quarter of a standard deviation of their center."
    if "spread" not in names:
        yield "Standard deviations of covariates are taken to be a sixth of their ranges, within 1.5 times."
    yield (
        f"No combination of covariates is taken to lie more than {settings['confounding']:g} standard "
        "deviations apart between the arms (confounding), or to have less than "
        f"{settings['collinearity']:.3g} times the variance of independent ones (collinearity)."
    )
    exact = {"att": "controls"}.get(release.estimand, "matched")  # for effects that vary, whatever they do
    if settings["rows"] == "common" and settings["arms"] != exact:
        yield (
            "Effects are taken to vary with covariates by a standard deviation of at most "
            f"{settings['heterogeneity']:.3g} of that of residuals (heterogeneity)."
        )
    yield "All of these are declared, or at their defaults."
    if release.groups:
        yield (
            "All groups share the regression: its slopes are to hold in each, arms are to lie no farther "
            "apart there, and outcomes of a group on average within half a standard deviation of residuals "
            "from what it predicts."
        )


def _right(release: EffectRelease) -> str:
    """Which models have to be right."""
    if release.estimand == "att":
        return "outcomes of the untreated that are linear in the covariates"
    if release.settings["propensity"] == "logistic" and release.estimand == "overlap":
        return "log odds of treatment that are linear in the covariates, or outcomes that are"
    if release.risks or release.domain.get("binary_outcome"):
        return "an outcome of two values, whose probabilities are nearly linear in the covariates"
    return "outcomes that are linear in the covariates"


def _assumed(release: EffectRelease) -> str:
    known = release.settings["propensity"]
    if not isinstance(known, str):
        return (
            f"everybody was treated with the public probability {known:g}, whatever the covariates. The "
            "outcome regression may be wrong."
        )
    regression = "the outcome regression" + (" of the untreated" if release.estimand == "att" else "")
    right = f"{regression} or the propensity is right"
    if known == "cells":
        right = "within cells, the outcome of either arm or the propensity hardly varies"
    if known == "constant":
        right = f"{regression} is right, or treatment does not depend on the covariates"
    return f"{right}, and no confounder is unmeasured."
