"""What was declared for a release, as far as its file tells, and the release that follows from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dp2erm_cvx import registry
from dp2erm_cvx.calibration import NAMES, Noise, Perturbed
from dp2erm_cvx.calibration.registry import calibrator
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import (
    EffectPlan,
    EffectStudy,
    Pipeline,
    Plan,
    RulePlan,
    RuleStudy,
    Study,
    TwoStagePlan,
    make_plan,
)
from dp2erm_cvx.plan.pipeline import NUMERICAL_SHARE
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.private_ranges import Known, PrivateRanges, Within
from dp2erm_cvx.release.effect import ASSUMED, EffectRelease, make_effect
from dp2erm_cvx.release.rebuilt import rebuilt_settings
from dp2erm_cvx.release.record import BaseRelease, Release
from dp2erm_cvx.release.rule_release import RuleRelease, make_rule
from dp2erm_cvx.release.statement import guarantee_again, make_release
from dp2erm_cvx.steps import LinearNuisances, Rows, Term, placed, score_of
from dp2erm_cvx.universe import Universe


def studies_of(release: BaseRelease) -> Iterator[Pipeline[Any]]:
    """What may have been declared for a release, the likeliest first: it does not state its calibration.

    Raises DeclarationError where the file does not hold all declarations.
    """
    budget = Budget(release.guarantee.epsilon, release.guarantee.delta)
    counted = [step.numerical for step in release.steps if step.numerical is not None]
    # beside box noise numbers have Laplace noise, which is called gamma
    noises = [step.noise for step in release.steps]
    common = {
        "noise": next((kind for kind in (Noise.BOX, Noise.GAUSSIAN) if kind in noises), Noise.GAMMA),
        "arithmetic": "counted" if counted else "assumed",
    }
    for share in dict.fromkeys([NUMERICAL_SHARE, *_shares(release)]):
        if isinstance(release, Release):
            yield from _two_stage(release, budget, {**common, "numerical_share": share})
        elif isinstance(release, EffectRelease):
            yield _effect(release, budget, {**common, "numerical_share": share})
        elif isinstance(release, RuleRelease):
            settings = dict(release.settings)
            scale, expected = settings.pop("outcome_scale"), settings.pop("expected")
            settings.pop("mass")
            for name in ("norm_bound", "mean_share", "spread_share"):
                settings.setdefault(name, None)  # files that were written before there were any
            yield RuleStudy(
                _universe(release), budget, scale, expected, settings, **common, numerical_share=share
            )


def _shares(release: BaseRelease) -> Iterator[float]:
    for step in release.steps:
        if step.numerical is not None and step.perturbed is not Perturbed.OUTPUT:
            yield min(2.0 * step.numerical.epsilon / step.epsilon, 0.5)


def _universe(release: Any) -> Universe:
    return Universe(Domain.from_dict(release.domain), release.n_samples, len(release.columns))


def released_numbers(release: BaseRelease, plan: Plan) -> dict[str, Array]:
    """What every step of a plan released, as far as the file states it, by the name of the step."""
    found: dict[str, Array] = {}
    for part in getattr(release, "nuisances", ()):
        step = plan.step(part.step)
        if step is not None and step.integers is not None:
            # the first entry of cells holds what noise was added to
            found.setdefault(part.step, np.rint(np.array(part.coefficient) / step.integers.unit))
        elif step is not None:
            found[part.step] = np.array(part.coefficient)
    if isinstance(release, EffectRelease):
        found["score"] = np.array(release.released)
        if release.ranges:
            found["ranges"] = np.array([(one.low, one.high) for one in release.ranges])
        return found
    found["theta" if isinstance(release, Release) else "rule"] = np.array(release.theta)  # type: ignore[attr-defined]
    stated = release.value if isinstance(release, Release) else release
    if plan.step("value") is not None:
        found["value"] = np.array(stated.released)  # type: ignore[union-attr]
    return found


def stated_again(release: BaseRelease, plan: Plan) -> BaseRelease:
    """The release that a plan makes of the numbers that were released: what follows from both."""
    released, guarantee = released_numbers(release, plan), guarantee_again(plan, release.guarantee)
    if isinstance(release, EffectRelease):
        assert isinstance(plan, EffectPlan)
        # the name of the outcome is stated with its range, and nowhere else
        names = (*release.columns, release.ranges[-1].column if release.ranges else "")
        found = make_effect(plan, released, names, guarantee, release.interval.level, release.target)
        return found if release.declared_center is not None else replace(found, declared_center=None)
    if isinstance(release, RuleRelease):
        assert isinstance(plan, RulePlan)
        return make_rule(plan, released, release.columns, guarantee)
    assert isinstance(release, Release)
    assert isinstance(plan, TwoStagePlan)
    again = make_release(plan, released, release.columns, guarantee)
    return again if release.declared_delta is not None else replace(again, declared_delta=None)


def public_center(release: EffectRelease) -> Term:
    """The outcome regression in force, of the centered outcome on the scaled covariates of the domain.

    It is public from now on: a released mean, a smaller ball and the shrinkage that is undone are counted in.
    Raises DeclarationError where its parts have different rows, or are cells.
    """
    plan = make_plan(next(studies_of(release)))
    assert isinstance(plan, EffectPlan)
    released, step = released_numbers(release, plan), plan.score
    nuisances = score_of(step).at(step.universe, released).nuisances
    if not isinstance(nuisances, LinearNuisances):
        raise DeclarationError("public_center: cells are no regression")
    rows = {term.rows for term in nuisances.terms}
    if len(rows) != 1:
        raise DeclarationError("public_center: the released regressions have no common rows")
    (own,), k = rows, len(release.columns)
    theta = np.sum([term.coefficient(k, released) for term in nuisances.terms], axis=0)
    slopes = ~own.constants(k)
    mean, scale = placed(plan.steps, released)
    theta[slopes] *= scale
    if mean is not None:
        middle = mean[None]
        for arm in (0.0, 1.0) if own is not Rows.POOLED else (0.0,):
            place = int(np.argmax(own.of(0.0 * middle, arm)[0]))
            theta[place] -= float(own.of(middle, arm)[0][slopes] @ theta[slopes])
    return Term(own, tuple(theta.tolist()))


def _effect(release: EffectRelease, budget: Budget, common: Mapping[str, Any]) -> EffectStudy:
    settings, universe, ranges = dict(release.settings), _universe(release), None
    guesses = {name: settings.pop(name) for name in ("residual_scale", *ASSUMED)}
    center = settings.pop("effect_center")
    if release.declared_center is False or release.risks:
        center = None
    public = next((part for part in release.nuisances if part.step == "public center"), None)
    term = None if public is None else Term(Rows(public.rows), public.coefficient)
    if release.ranges:
        ranges = _ranges(release, universe.domain)
        universe = replace(universe, domain=ranges.domain(universe.n_features))
    return EffectStudy(
        universe,
        budget,
        release.estimand,
        **guesses,
        effect_center=center,
        public_center=term,
        declared=settings,
        **common,
        ranges=ranges,
    )


def _ranges(release: EffectRelease, domain: Domain) -> PrivateRanges:
    """What was public about the raw records."""
    known: list[Known] = []
    for one in release.ranges:
        wide = None if one.within is None else Within(*one.within)
        known.append(wide if one.released else (one.low, one.high))
    step = release.step("ranges")
    assert step is not None  # the reader has seen that they stand together
    return PrivateRanges(
        step.epsilon / release.guarantee.epsilon,
        dict(zip(release.columns, known[:-1], strict=True)),
        known[-1],
        domain.covariate_bound,
        domain.relation,
        domain.codebook,
    )


def _two_stage(release: Release, budget: Budget, common: Mapping[str, Any]) -> Iterator[Study]:
    one, other = release.first_stage, release.second_stage
    first = registry.build(registry.first_stages(), str(one["name"]), **rebuilt_settings(one["settings"]))
    second = registry.build(
        registry.second_stages(), str(other["name"]), **rebuilt_settings(other["settings"])
    )
    told = re.search(r"certified to (\S+) relative", " ".join(release.guarantee.assumptions))
    value = release.step("value")
    theta = release.mechanism
    if release.declared_delta is not None:
        budget = Budget(budget.epsilon, release.declared_delta)
    for name in NAMES:
        yield Study(
            first,
            second,
            _universe(release),
            budget,
            name,
            theta.noise if name != "output" else common["noise"],
            theta.split if calibrator(name).splits and theta.split not in (None, 1.0) else None,
            float(told[1]) if told else 0.0,
            common["arithmetic"],
            common["numerical_share"],
            None if value is None else value.epsilon / budget.epsilon,
            "cells" if release.value is None else release.value.statistic,
        )
