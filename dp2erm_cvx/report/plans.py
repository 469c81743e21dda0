"""What is told of a plan before any data are read: what it spends, step by step, and what is
predicted.
"""

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
    from dp2erm_cvx.display import Block

#: What the interval of an effect by the weights of a scheme rests on.
MUST_HOLD = (
    "outcomes that are linear in the mapped covariates, arms that lie at most {:g} standard "
    "deviations apart (confounding), and covariates that are near normal along their difference"
)


def plan_blocks(
    plan: Plan[Any], name: str | None = None, unit: str = "the outcome"
) -> Iterator[Block]:
    """Blocks of text: what a plan spends, step by step, and the prediction, for a question of this
    name.

    ``unit`` is what widths are in units of.
    """
    study = plan.study
    whose = "records" if study.universe.domain.units is None else "persons"
    head = "Planned" if name is None else f"{name}: planned"
    yield heading(
        f"{head} for {study.universe.n_samples:,} {whose}. No data were read; nothing is spent."
    )
    rows = []
    for step in plan.steps:
        spent, before = step.guarantee, study.before.get(step.name)
        numbers = (
            digits_of(spent.epsilon, 4),
            digits_of(spent.delta, 3),
            f"{step.noise_law['scale']:.4g}",
        )
        why = step.theorem if before is None else f"as {before['of']} released it"
        rows.append((RELEASED.get(step.name, step.theorem), *numbers, why))
    yield grid("released", "epsilon", "delta", "noise scale", "theorem", left=0, rows=rows)
    yield f"Together: {law_text(plan.guarantee, zero=True)}."
    yield from standing_sentences(plan)
    book = study.universe.domain.codebook
    if book is not None and (cut := book.cut_columns()):
        yield f"Cut into levels: {'; '.join(cut)}. Each level is a covariate."
    if study.before:
        yield f"Beside what was released before: epsilon = {digits_of(plan.own.epsilon)}."
    yield from (sentence.format(value) for value, sentence in predicted_of(plan, unit).values())
    if not isinstance(study, EffectStudy):
        return
    asked = study.estimand, study.settings.propensity, study.confounding
    if misses_events(*asked, study.two_values is not None):
        yield EVENTS_FAR_APART.format(study.confounding)
    elif others_err_less(*asked, book):
        yield FAR_APART.format(study.confounding)
    if study.weights is not None:
        yield (
            f"Its weights, at equal shares of both arms, move by at most V = {plan.bound.V:.4g} "
            "when one record is replaced. The interval will rest on "
            f"{MUST_HOLD.format(study.confounding)}."
        )


def _at_scale(study: EffectStudy) -> str:
    """Sentence on the scale of the outcome that widths are predicted at, where it is to be
    released.
    """
    if study.opening is None or study.released_scale is not None:
        return ""
    return (
        f" That is for outcomes of standard deviation {study.scale:.3g}, half of their bound: "
        "theirs is released first, and widths are in proportion to it."
    )


def predicted_of(plan: Plan[Any], unit: str = "the outcome") -> dict[str, tuple[float, str]]:
    """Predictions of the release from public numbers, each with its sentence; widths in units of
    ``unit``.
    """
    if isinstance(plan.study, EffectStudy):
        half = 1.96 * math.sqrt(plan.study.predicted_error)
        text = f"Predicted 95 % half width: {{:.3g}}, in units of {unit}"
        return {"half_width": (half, f"{text}{_where_treated(plan.study)}.{_at_scale(plan.study)}")}
    if not isinstance(plan.study, Study):
        return {}
    facts = {
        "V": (plan.bound.V, "The weights move by at most V = {:.4g} when one record is replaced.")
    }
    share = residual_imbalance(plan)
    if share is not None:
        facts["residual_imbalance"] = (share, remains(share, "difference between the arms"))
    if plan.study.second.squared:
        moved = planned_range(plan)
        whose = "the effect" if moved.effect is not None else "a middle coefficient"
        half = float(sorted(moved.half_width)[len(moved.half_width) // 2])
        half = half if moved.effect is None else moved.effect
        facts["noise_half_width"] = (half, f"95 % of the noise in {whose} is within {{:.3g}}.")
        facts["shrinkage"] = (moved.shrinkage, "Its ridge draws it toward 0 by {:.0%}.")
    return facts


def _where_treated(study: EffectStudy) -> str:
    """The share of the treated that a half width is predicted at; nothing where it is public, or of
    arms.
    """
    if study.weights is not None:
        return ", where half are treated"
    if study.settings.known is not None or len(study.universe.domain.arms) > 2:
        return ""
    return ", where a third is treated"


register(Plan, plan_blocks)
