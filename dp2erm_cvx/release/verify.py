"""Whether a release says what follows from its own declarations: what is public is computed again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.calibration import Calibration, MarginCalibration, privacy_loss
from dp2erm_cvx.calibration.joint import joint_delta
from dp2erm_cvx.display import heading
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.plan import Plan, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.release.effect import EffectRelease, estimated
from dp2erm_cvx.release.record import BaseRelease, NumericalNoise, Standing, StepStatement
from dp2erm_cvx.release.replanned import studies_of
from dp2erm_cvx.release.rule_release import RuleRelease, gains
from dp2erm_cvx.release.statement import state_steps
from dp2erm_cvx.steps import Precision, PropensityPlan, StepPlan, ThetaPlan
from dp2erm_cvx.steps.step import exact_budget

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

# what is refuted, and what merely differs
_Compared = tuple[list[str], list[str]]

_SAME = 1e-6
#: Stated facts of which a smaller one than what was declared gives claims too much.
_BOUNDS = ("stability", "weight_bound", "sensitivity", "gradient_radius", "hessian_trace", "gamma", "scale")
#: Words and numbers of which none may differ.
_FACTS = ("step", "perturbed", "noise", "strong_convexity", "box")
_PROVEN = tuple(f"Theorem {number} " for number in (1, 2, 7, 8, 9, 10, 12, 15, 16, 17, 19))


@dataclass(frozen=True)
class Verification:
    """What was found: nothing in ``refuted`` means that every public number follows from the declarations.

    ``noted`` are differences that leave the guarantee true, such as those of an earlier version. That noise
    was drawn as stated, fresh and by the certified program, no file can show.
    """

    refuted: tuple[str, ...]
    noted: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing is refuted."""
        return not self.refuted

    def blocks(self) -> Iterator[Block]:
        """What it says, for a screen."""
        yield heading("Verified" if self.holds else "REFUTED")
        yield from (f"- {line}" for line in self.refuted)
        yield from (f"- {line}" for line in self.noted)
        if self.holds:
            yield (
                "Bounds, noise and guarantee were computed again from the declarations in the file, and "
                "agree. Whether the noise was drawn as stated cannot be seen in a file."
            )


def verify(release: BaseRelease, domain: Domain | None = None) -> Verification:
    """Plan again what a release declares, and compare everything that it states.

    Where a step states other noise than today's plan, the theorems are asked about the noise that it states.
    ``domain`` is that which the reader expects. Raises DeclarationError where the file does not hold all
    declarations: private ranges, functions and programs of a user's own.
    """
    refuted = []
    stated_domain = Domain.from_dict(release.domain)  # type: ignore[attr-defined]
    if domain is not None:
        expected = map(_bounds, (domain, _of_columns(domain, release)))
        if _bounds(stated_domain) not in expected:
            refuted.append("domain: is not the one given")
    plan, (found, noted) = _nearest(release)
    refuted += found
    guarantee = release.guarantee
    for name, stated, planned in (
        ("relation", guarantee.relation, stated_domain.relation),
        ("theorem", guarantee.theorem, plan.theorem),
        ("stability_theorem", guarantee.stability_theorem, plan.bound.theorem),
    ):
        if stated != planned:
            # steps by other theorems make another one of the whole
            known = name == "theorem" and all(step.theorem in stated for step in release.steps)
            (noted if known else refuted).append(f"guarantee: {name}: {stated!r} stated, {planned!r} planned")
    if guarantee.standing is not Standing.UNPROVEN and not plan.proven:
        refuted.append("guarantee: standing: no theorem certifies what is declared")
    if guarantee.standing is Standing.PRIVATE and not plan.certified_by_design:
        refuted.append("guarantee: standing: private, where certification is conditional")
    return Verification((*refuted, *_results(plan, release)), tuple(noted))


def _of_columns(domain: Domain, release: Any) -> Domain:
    """The domain of the columns that a release names, all of them where it names others."""
    known = domain.columns or ()
    if not set(release.columns) <= set(known):
        return domain
    return domain.restricted([known.index(name) for name in release.columns])


def _bounds(domain: Domain) -> tuple[Any, ...]:
    """What sets noise: not the names of treatment and outcome."""
    book, sampling = domain.codebook, domain.sampling
    coded = ({}, {}) if book is None else (dict(book.levels), dict(book.missing))
    counted = None if sampling is None else (sampling.largest, sampling.missing)
    return (replace(domain, codebook=None), *coded, counted)


def _nearest(release: BaseRelease) -> tuple[Plan, _Compared]:
    """The plan of what is declared that comes nearest to what is stated, and how it compares."""
    found: list[tuple[Plan, _Compared]] = []
    for study in studies_of(release):
        try:
            plan: Plan = make_plan(study)
        except Dp2ermError as error:
            complaint = error
            continue
        found.append((plan, _compared(plan, release)))
        if not any(found[-1][1]):
            return found[-1]
    if not found:
        raise DeclarationError(f"nothing can be planned from what the file declares: {complaint}")
    return min(found, key=lambda one: tuple(map(len, one[1])))


def _compared(plan: Plan, release: BaseRelease) -> _Compared:
    """What is refuted, and what merely differs."""
    planned = state_steps(plan)
    if [step.step for step in planned] != [step.step for step in release.steps]:
        names = ", ".join(step.step for step in planned)
        return [f"steps: what is declared has {names}"], []
    refuted: list[str] = []
    noted: list[str] = []
    as_stated: list[StepPlan] = []
    for step, own, stated in zip(plan.steps, planned, release.steps, strict=True):
        lines = list(_differences(own, stated))
        found = _as_stated(step, own, stated) if lines else step
        as_stated.append(found or step)
        (refuted if found is None else noted).extend(f"{stated.step}: {line}" for line in lines)
    if noted and not refuted and not _together(as_stated, release):
        refuted.append("guarantee: the steps spend more together, with the noise that they state")
    return refuted, noted


def _differences(own: StepStatement, stated: StepStatement) -> Iterator[str]:
    for field in fields(StepStatement):
        if field.name in ("reason", "numerical"):
            continue
        one, other = getattr(own, field.name), getattr(stated, field.name)
        if one != other and not _close(one, other):
            yield f"{field.name} = {other}, where what is declared gives {one}"
    hidden, told = own.numerical, stated.numerical
    if hidden is None or told is None:
        if hidden is not told:
            yield "numerical: counted arithmetic is declared in one of two places"
        return
    for field in fields(told):
        one, other = getattr(hidden, field.name), getattr(told, field.name)
        if one != other and not _close(one, other):
            yield f"numerical: {field.name} = {other}, where what is declared gives {one}"


def _close(one: object, other: object) -> bool:
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=_SAME)


def _as_stated(step: StepPlan, own: StepStatement, stated: StepStatement) -> StepPlan | None:
    """The step with the noise that it states; None unless that is as private as it says, by a theorem."""
    if any(getattr(own, name) != getattr(stated, name) for name in _FACTS) or not _proven(stated.theorem):
        return None
    found, told = step.calibration, stated.numerical
    solved = type(found) in (Calibration, MarginCalibration) and isinstance(step, ThetaPlan | PropensityPlan)
    for name in _BOUNDS[:3] if solved else _BOUNDS:
        if not _at_least(getattr(stated, name), getattr(own, name)):
            return None
    if not solved:
        spent = _at_least(stated.epsilon, own.epsilon) and _at_least(stated.delta, own.delta)
        return step if spent and _hidden(told, step.precision) else None
    assert isinstance(found, Calibration)
    assert isinstance(step, ThetaPlan | PropensityPlan)
    assert step.loss is not None
    left = stated.epsilon - (0.0 if told is None else 2.0 * told.epsilon)
    delta = stated.delta * (1.0 if told is None else math.exp(-told.epsilon))
    if left <= 0.0 or stated.gamma <= 0.0:
        return None
    changed = replace(found, scale=stated.scale, gamma=stated.gamma)
    if isinstance(changed, MarginCalibration):
        public = step.loss.strong_convexity
        flatter = (found.gamma + public) / (stated.gamma + public)
        changed = replace(changed, curvature=changed.curvature * flatter)
    again = step.perturbed_by(changed, None if told is None else told.epsilon)
    spent_delta = privacy_loss(changed, step.loss, step.universe.n_samples, left * (1.0 + _SAME))
    return again if spent_delta <= delta * (1.0 + _SAME) and _hidden(told, again.precision) else None


def _at_least(stated: float | None, needed: float | None) -> bool:
    return needed is None or (stated is not None and stated >= needed * (1.0 - _SAME))


def _hidden(told: NumericalNoise | None, needed: Precision | None) -> bool:
    """Whether a grid and its noise cover the arithmetic at the epsilon that they state."""
    if told is None or needed is None:
        return told is None and needed is None
    step = math.ldexp(1.0, min(told.grid_exponent, 1000))
    shift = needed.grid.l1_sensitivity + needed.grid.n_parameters * step
    return _at_least(told.epsilon * told.scale, shift)


def _together(steps: Sequence[StepPlan], release: BaseRelease) -> bool:
    """Whether the guarantee is that of these steps, by adding what they state or by their joint delta."""
    budget = Budget(release.guarantee.epsilon, release.guarantee.delta)
    epsilon = math.fsum(step.epsilon for step in release.steps)
    delta = math.fsum(step.delta for step in release.steps)
    if _at_least(budget.epsilon, epsilon) and _at_least(budget.delta, delta):
        return True
    laws = [step.loss_law for step in steps if step.loss_law is not None]
    if len(laws) < len(steps):
        return False
    left = exact_budget(budget, steps)
    return joint_delta(laws, left.epsilon * (1.0 + _SAME)) <= left.delta * (1.0 + _SAME)


def _proven(theorem: str) -> bool:
    return theorem.startswith(_PROVEN) or theorem.endswith("noise on integers")


def _results(plan: Plan, release: BaseRelease) -> Iterator[str]:
    """Whether the results are what the released integers say."""
    if isinstance(release, EffectRelease):
        center, level = float(release.settings["effect_center"]), release.interval.level
        found, _, _ = estimated(plan.steps[-1], release.released, center, level)  # type: ignore[arg-type]
        stated = (release.estimate, release.interval.low, release.interval.high)
        if not _all_close((found.estimate, found.low, found.high), stated):
            yield "estimate and interval: are not what the released integers say"
    if isinstance(release, RuleRelease) and release.gains:
        again = gains(plan.steps[-1], release.released)  # type: ignore[arg-type]
        pairs = zip(again, release.gains, strict=True)
        if not all(_all_close((one.estimate,), (other.estimate,)) for one, other in pairs):
            yield "gains: are not what the released integers say"


def _all_close(found: tuple[float, ...], stated: tuple[float | None, ...]) -> bool:
    return all(
        (other is None and math.isinf(one)) or (other is not None and math.isclose(one, other, rel_tol=_SAME))
        for one, other in zip(found, stated, strict=True)
    )
