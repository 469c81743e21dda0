"""What was declared for a release, as far as its file tells: the studies that it may be the run of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dp2erm_cvx import registry
from dp2erm_cvx.calibration import NAMES, Noise, Perturbed
from dp2erm_cvx.calibration.registry import calibrator
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import EffectStudy, Pipeline, RuleStudy, Study
from dp2erm_cvx.plan.pipeline import NUMERICAL_SHARE
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.rebuilt import rebuilt_settings
from dp2erm_cvx.release.record import BaseRelease, Release
from dp2erm_cvx.release.rule_release import RuleRelease
from dp2erm_cvx.steps import Rows, Term
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
            yield RuleStudy(
                _universe(release), budget, scale, expected, settings, **common, numerical_share=share
            )


def _shares(release: BaseRelease) -> Iterator[float]:
    for step in release.steps:
        if step.numerical is not None and step.perturbed is not Perturbed.OUTPUT:
            yield min(2.0 * step.numerical.epsilon / step.epsilon, 0.5)


def _universe(release: Any) -> Universe:
    return Universe(Domain.from_dict(release.domain), release.n_samples, len(release.columns))


def _effect(release: EffectRelease, budget: Budget, common: Mapping[str, Any]) -> EffectStudy:
    if release.ranges:
        raise DeclarationError("ranges were released: what was public about them is not in the file")
    settings = dict(release.settings)
    scale, _ = settings.pop("residual_scale"), settings.pop("effect_center")
    public = next((part for part in release.nuisances if part.step == "public center"), None)
    center = None if public is None else Term(Rows(public.rows), public.coefficient)
    return EffectStudy(_universe(release), budget, release.estimand, scale, None, center, settings, **common)


def _two_stage(release: Release, budget: Budget, common: Mapping[str, Any]) -> Iterator[Study]:
    one, other = release.first_stage, release.second_stage
    first = registry.build(registry.first_stages(), str(one["name"]), **rebuilt_settings(one["settings"]))
    second = registry.build(
        registry.second_stages(), str(other["name"]), **rebuilt_settings(other["settings"])
    )
    told = re.search(r"certified to (\S+) relative", " ".join(release.guarantee.assumptions))
    value = release.step("value")
    theta = release.mechanism
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
