"""What is told of a plan before data are read: what it spends, and what is predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.display import digits_of, grid, heading, law_text
from dp2erm_cvx.hooks import register
from dp2erm_cvx.plan import EffectStudy, Plan, Study
from dp2erm_cvx.plan.predict import planned_range, residual_imbalance
from dp2erm_cvx.plan.standing import standing_sentences
from dp2erm_cvx.release.caveats import misses_events, others_err_less
from dp2erm_cvx.report.words import EVENTS_FAR_APART, FAR_APART, remains
from dp2erm_cvx.steps.step import RELEASED

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.display import Block

#: What the interval of an effect by the weights of a scheme rests on.
MUST_HOLD = (
    "outcomes that are linear in the mapped covariates, arms that lie at most {:g} standard "
    "deviations apart (confounding), and covariates that are near normal along their difference"
)


def plan_blocks(
    plan: Plan[Any], name: str | None = None, unit: str = "the outcome"
) -> Iterator[Block]:
    """Blocks of text on what a plan spends, step by step, and on what is predicted.

    Parameters
    ----------
    plan
        Of any kind.
    name
        Of its question.
    unit
        What widths are in units of.
    """
    study = plan.study
    domain = study.universe.domain
    whose = "records" if domain.units is None else "persons"
    head = "Planned" if name is None else f"{name}: planned"
    yield heading(
        f"{head} for {study.universe.n_samples:,} {whose}. No data were read; nothing is spent."
    )
    yield _spent(plan)
    yield f"Together: {law_text(plan.guarantee, zero=True)}."
    yield from standing_sentences(plan)
    if domain.codebook is not None:
        cut = domain.codebook.cut_columns()
        if cut:
            yield f"Cut into levels: {'; '.join(cut)}. Each level is a covariate."
    if study.before:
        yield f"Beside what was released before: epsilon = {digits_of(plan.own.epsilon)}."
    for value, sentence in predicted_of(plan, unit).values():
        yield sentence.format(value)
    if isinstance(study, EffectStudy):
        yield from _warned_of(study)
        if study.weights is not None:
            yield (
                f"Its weights, at equal shares of both arms, move by at most V = {plan.bound.V:.4g}"
                " when one record is replaced. The interval will rest on "
                f"{MUST_HOLD.format(study.confounding)}."
            )


def _spent(plan: Plan[Any]) -> Table:
    """Table of the steps of a plan, with what each spends and by which theorem."""
    rows = []
    for step in plan.steps:
        why = step.theorem
        before = plan.study.before.get(step.name)
        if before is not None:
            why = f"as {before['of']} released it"
        rows.append(
            (
                RELEASED.get(step.name, step.theorem),
                digits_of(step.guarantee.epsilon, 4),
                digits_of(step.guarantee.delta, 3),
                f"{step.noise_law['scale']:.4g}",
                why,
            )
        )
    return grid("released", "epsilon", "delta", "noise scale", "theorem", left=0, rows=rows)


def _warned_of(study: EffectStudy) -> Iterator[str]:
    """Sentence on an effect whose arms are declared to lie far apart."""
    propensity = study.settings.propensity
    apart = study.confounding
    book = study.universe.domain.codebook
    if misses_events(study.estimand, propensity, apart, study.two_values is not None):
        yield EVENTS_FAR_APART.format(apart)
    elif others_err_less(study.estimand, propensity, apart, book):
        yield FAR_APART.format(apart)


def predicted_of(plan: Plan[Any], unit: str = "the outcome") -> dict[str, tuple[float, str]]:
    """Predictions of the release from public numbers, each with its sentence.

    Parameters
    ----------
    plan
        Of any kind.
    unit
        What widths are in units of.
    """
    study = plan.study
    if isinstance(study, EffectStudy):
        half = 1.96 * math.sqrt(study.predicted_error)
        text = (
            f"Predicted 95 % half width: {{:.3g}}, in units of {unit}{_where_treated(study)}."
            f"{_at_distance(study)}{_at_scale(study)}"
        )
        return {"half_width": (half, text)}
    if isinstance(study, Study):
        return _predicted_of_two_stages(plan, study)
    return {}


def _predicted_of_two_stages(plan: Plan[Any], study: Study) -> dict[str, tuple[float, str]]:
    """Predictions of a two-stage release: how its weights move, and the noise of theta."""
    facts = {
        "V": (plan.bound.V, "The weights move by at most V = {:.4g} when one record is replaced.")
    }
    share = residual_imbalance(plan)
    if share is not None:
        facts["residual_imbalance"] = (share, remains(share, "difference between the arms"))
    if study.second.squared:
        moved = planned_range(plan)
        whose = "the effect"
        half = moved.effect
        if half is None:
            whose = "a middle coefficient"
            half = float(sorted(moved.half_width)[len(moved.half_width) // 2])
        facts["noise_half_width"] = (half, f"95 % of the noise in {whose} is within {{:.3g}}.")
        facts["shrinkage"] = (moved.shrinkage, "Its ridge draws it toward 0 by {:.0%}.")
    return facts


def _where_treated(study: EffectStudy) -> str:
    """The share of treated that a half width is predicted at; nothing where that is public."""
    if study.weights is not None:
        return ", where half are treated"
    if study.settings.known is not None or len(study.universe.domain.arms) > 2:
        return ""
    return ", where a third is treated"


def _at_distance(study: EffectStudy) -> str:
    """Sentence on the distance of several arms that widths are predicted at."""
    if study.settings.known is not None or len(study.universe.domain.arms) == 2:
        return ""
    return (
        f" That is for arms {study.confounding:g} standard deviations apart, as is declared "
        "(confounding): intervals follow the distances that are released."
    )


def _at_scale(study: EffectStudy) -> str:
    """Sentence on the scale that widths are predicted at, where it is to be released."""
    if study.opening is None or study.released_scale is not None:
        return ""
    return (
        f" That is for outcomes of standard deviation {study.scale:.3g}, half of their bound: "
        "theirs is released first, and widths are in proportion to it."
    )


register(Plan, plan_blocks)
