"""Whether a release says what follows from its own declarations: what is public is computed again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.calibration import Calibration, GridNoise, MarginCalibration, privacy_loss
from dp2erm_cvx.calibration.profiles import joint_delta
from dp2erm_cvx.display import heading
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError, Dp2ermError, shown
from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.plan import Plan, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.release.record import BaseRelease, NumericalNoise, Release, StepStatement
from dp2erm_cvx.release.replanned import stated_again, studies_of
from dp2erm_cvx.release.rule_release import RuleRelease
from dp2erm_cvx.release.statement import state_steps
from dp2erm_cvx.steps import Fit, Planned, Precision
from dp2erm_cvx.steps.step import exact_budget

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

# what is refuted, and what merely differs
_Compared = tuple[list[str], list[str]]
# what arithmetic raises on numbers that no plan has
_NO_NUMBERS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)

#: Relative difference of two numbers that are the same: searches for noise stop at rounding, where an optimum
#: is flat to the root of it, so that another machine's are 1e-8 apart.
_SAME = 1e-6
#: The same, and an absolute one, of shares that are predicted by solves and draws on synthetic records.
_PREDICTED, _NEAR = 0.02, 1e-4
_PREDICTIONS = ("kept_confounding", "kept_imbalance", "flipped_share")
#: Stated facts of which a smaller one than what was declared gives claims too much.
_BOUNDS = ("stability", "weight_bound", "sensitivity", "gradient_radius", "hessian_trace", "gamma", "scale")
#: Words and numbers of which none may differ.
_FACTS = ("step", "perturbed", "noise", "strong_convexity", "box")
_PROVEN = tuple(f"Theorem {number} " for number in (1, 2, 7, 8, 9, 10, 12, 15, 16, 17, 19))


@dataclass(frozen=True)
class Verification:
    """What was found: nothing in ``refuted`` means that all of it follows from declared and released numbers.

    Every line names the place in the file, what is stated there and what follows. ``noted`` are differences
    that leave the guarantee true, such as those of an earlier version. That noise was drawn as stated, fresh
    and by the certified program, no file can show.
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
                "Bounds, noise, guarantee, intervals and predictions were computed again from the "
                "declarations and the released numbers in the file, and agree. Not checked: whether the "
                "released numbers are those of a run, and the noise was drawn as stated."
            )


@np.errstate(all="ignore")
def verify(release: BaseRelease, domain: Domain | None = None) -> Verification:
    """Plan again what a release declares, state it again with its numbers, and compare every entry.

    Numbers may differ by a millionth, predicted shares by 2 %. Where a step states other noise than today's
    plan, the theorems are asked about the noise that it states.
    ``domain`` is that which the reader expects. Raises DeclarationError where the file does not hold all
    declarations: functions and programs of a user's own.
    """
    stated_domain = Domain.from_dict(release.domain)  # type: ignore[attr-defined]
    refuted: list[str] = []
    noted: list[str] = []
    if domain is not None:
        expected = map(_bounds, (domain, _of_columns(domain, release)))
        if _bounds(stated_domain) not in expected:
            refuted.append("domain: is not the one given")
    try:
        plan, (found, noted) = _nearest(release)
        refuted += found
        for path, stated, again in _unlike(release.to_dict(), stated_again(release, plan).to_dict()):
            if path.startswith("steps."):
                continue  # compared already, by what they leave true
            earlier = path in _PREDICTIONS and stated is None  # files that were written before it was stated
            if path == "guarantee.theorem" and noted:
                earlier = all(step.theorem in stated for step in release.steps)
            (noted if earlier else refuted).append(_line(path, stated, again))
        refuted += _impossible(plan, release)
    except _NO_NUMBERS as error:
        refuted.append(f"nothing can be computed again from what the file declares: {error}")
    return Verification(tuple(refuted), tuple(noted))


def _line(path: str, stated: object, again: object) -> str:
    return f"{path}: {shown(stated)} stated, {shown(again)} follows"


def _unlike(stated: Any, again: Any, path: str = "", size: float = 0.0) -> Iterator[tuple[str, Any, Any]]:
    """The leaves where two trees differ, by path; ``size`` is that of the interval that a number ends."""
    if isinstance(stated, dict) and isinstance(again, dict):
        ends = [abs(again[name]) for name in ("low", "high") if isinstance(again.get(name), float)]
        for name in dict.fromkeys((*stated, *again)):
            inner = f"{path}.{name}" if path else str(name)
            yield from _unlike(stated.get(name), again.get(name), inner, max(ends, default=0.0))
    elif isinstance(stated, list | tuple) and isinstance(again, list | tuple) and len(stated) == len(again):
        for place, (one, other) in enumerate(zip(stated, again, strict=True)):
            yield from _unlike(one, other, f"{path}.{place}")
    elif not _same(stated, again, path.rpartition(".")[2], size):
        yield path, stated, again


def _same(stated: object, again: object, name: str, size: float) -> bool:
    numbers = [one for one in (stated, again) if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < 2 or not any(isinstance(one, float) for one in numbers):
        return type(stated) is type(again) and stated == again
    if name in _PREDICTIONS:
        return math.isclose(*numbers, rel_tol=_PREDICTED, abs_tol=_NEAR)
    return math.isclose(*numbers, rel_tol=_SAME, abs_tol=_SAME * size)


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
    """The plan of what is declared that comes nearest to the steps that are stated, and how it compares."""
    found: list[tuple[Plan, _Compared]] = []
    for study in studies_of(release):
        try:
            plan: Plan = make_plan(study)
        except Dp2ermError as error:
            complaint = error
            continue
        found.append(_compared(plan, release))
        if not any(found[-1][1]):
            return found[-1]
    if not found:
        raise DeclarationError(f"nothing can be planned from what the file declares: {complaint}")
    # of as many differences the fewest that are refuted: some other noise than is stated would do for most
    return min(found, key=lambda one: (len(one[1][0]) + len(one[1][1]), len(one[1][0])))


def _compared(plan: Plan, release: BaseRelease) -> tuple[Plan, _Compared]:
    """The plan with the noise that is stated where that is as private; what is refuted, what differs."""
    planned = state_steps(plan)
    if [step.step for step in planned] != [step.step for step in release.steps]:
        names = ", ".join(step.step for step in planned)
        return plan, ([f"steps: what is declared has {names}"], [])
    refuted: list[str] = []
    noted: list[str] = []
    as_stated: list[Planned] = []
    for place, (step, own, stated) in enumerate(zip(plan.steps, planned, release.steps, strict=True)):
        one, other = (json.loads(json.dumps(asdict(statement))) for statement in (stated, own))
        unlike = list(_unlike(one, other, f"steps.{place}"))
        if getattr(release, "declared_delta", 0.0) is None:  # which reasons of earlier files may rest on
            noted += [_line(*leaf) for leaf in unlike if leaf[0].endswith(".reason")]
            unlike = [leaf for leaf in unlike if not leaf[0].endswith(".reason")]
        # a step with today's noise states all else as today
        noise = {f"steps.{place}.{name}" for name in ("scale", "gamma", "numerical.scale")}
        other = any(path in noise for path, _, _ in unlike)
        found = _as_stated(step, own, stated) if other else None if unlike else step
        as_stated.append(found or step)
        (refuted if found is None else noted).extend(_line(*leaf) for leaf in unlike)
    if noted and not refuted and not _together(as_stated, release):
        refuted.append("guarantee: the steps spend more together, with the noise that they state")
    return replace(plan, steps=tuple(as_stated)), (refuted, noted)


def _as_stated(step: Planned, own: StepStatement, stated: StepStatement) -> Planned | None:
    """The step with the noise that it states; None unless that is as private as it says, by a theorem."""
    if any(getattr(own, name) != getattr(stated, name) for name in _FACTS) or not _proven(stated.theorem):
        return None
    if step.numbers or _states(own) != _states(stated):
        return None  # what follows from such numbers follows from today's noise
    found, told = step.calibration, stated.numerical
    solved = type(found) in (Calibration, MarginCalibration) and isinstance(step.declared, Fit)
    for name in _BOUNDS[:3] if solved else _BOUNDS:
        if not _at_least(getattr(stated, name), getattr(own, name)):
            return None
    if not solved:
        spent = _at_least(stated.epsilon, own.epsilon) and _at_least(stated.delta, own.delta)
        return step if spent and _hidden(told, step.precision) else None
    assert isinstance(found, Calibration)
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


def _states(step: StepStatement) -> set[str]:
    """What it states at all, but words."""
    return {name for name, value in asdict(step).items() if value is not None and name != "reason"}


def _at_least(stated: float | None, needed: float | None) -> bool:
    return needed is None or (stated is not None and stated >= needed * (1.0 - _SAME))


def _hidden(told: NumericalNoise | None, needed: Precision | None) -> bool:
    """Whether a grid and its noise cover the arithmetic at the epsilon that they state."""
    if told is None or needed is None:
        return told is None and needed is None
    step = math.ldexp(1.0, min(told.grid_exponent, 1000))
    shift = needed.grid.l1_sensitivity + needed.grid.n_parameters * step
    return _at_least(told.epsilon * told.scale, shift)


def _together(steps: Sequence[Planned], release: BaseRelease) -> bool:
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


def _impossible(plan: Plan, release: BaseRelease) -> Iterator[str]:
    """Released numbers that no run has: off the public grid of their noise, or out of their public set."""
    for path, name, stated in _released(release):
        step, numbers = plan.step(name), np.array(stated)
        if step is None:
            continue
        scaled = np.ones(len(numbers))
        if step.regression is not None:
            scaled = step.regression.unscaled(scaled, plan.study.universe.n_features)
        if isinstance(step.declared, Fit) and step.declared.coefficient is None:
            allowed = step.declared.second.feasible(step.universe.domain)
            if not _inside(allowed, numbers / scaled):
                yield f"{path}: lies outside of the public set {shown(allowed)}"
            if not _inside(allowed, numbers / scaled * (1.0 + 1e-6)):
                continue  # on its boundary, where what was on the grid was projected to
        if (unit := _grid(step)) is not None:
            steps = numbers / (unit * scaled)
            if np.any(np.abs(steps - np.rint(steps)) > 2.0**-50 * np.abs(steps)):
                yield f"{path}: is off the public grid of its noise, of step {unit:g}"


def _released(release: BaseRelease) -> Iterator[tuple[str, str, Sequence[float]]]:
    """The path, the step and the numbers of everything that noise was added to, but integers."""
    seen = set()
    for place, part in enumerate(getattr(release, "nuisances", ())):
        if part.step not in seen:  # the first entry of cells
            yield f"nuisances.{place}.coefficient", part.step, part.coefficient
        seen.add(part.step)
    if isinstance(release, Release | RuleRelease):
        yield "theta", "theta" if isinstance(release, Release) else "rule", release.theta
    if isinstance(release, Release) and release.value is not None:
        yield "value.released", "value", release.value.released


def _inside(allowed: ConvexSet, numbers: Array) -> bool:
    return np.allclose(allowed.project(numbers), numbers, rtol=1e-9, atol=0.0)


def _grid(step: Planned) -> float | None:
    """The step of the public grid that a step releases on; None where it has floating-point noise."""
    if step.integers is not None:
        return step.integers.unit
    grid = None if step.precision is None else step.precision.grid
    if isinstance(step.calibration, GridNoise):
        grid = step.calibration if step.counted else None
    return None if grid is None else math.ldexp(1.0, min(grid.exponent, 1000))
