"""Whether a release says what follows from its own declarations: it is computed once more."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np

from dp2erm_cvx import __version__
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.display import Shown, heading
from dp2erm_cvx.errors import DeclarationError, Dp2ermError, brief
from dp2erm_cvx.inference.interval import misses
from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.plan.plan import plan_as_declared
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.release.declaration import (
    BY_GAP,
    UNKNOWN_SOLVER,
    NotAtHandError,
    guarantee_of,
    study_of,
)
from dp2erm_cvx.release.effect import EffectRelease, make_effect
from dp2erm_cvx.release.ranges import RangesRelease, make_ranges
from dp2erm_cvx.release.record import BaseRelease, Guarantee
from dp2erm_cvx.release.rule import RuleRelease, make_rule
from dp2erm_cvx.release.two_stage import Release, make_release
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.outcome_scale import CLASSES
from dp2erm_cvx.steps.step import Step

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block


R = TypeVar("R", bound=BaseRelease)


def plan_of(release: BaseRelease) -> Plan[Any]:
    """The plan of what a release declares, at the scale that it released first, if any.

    Raises DeclarationError or CalibrationError.
    """
    study = study_of(release)
    if isinstance(release, EffectRelease) and study.opening is not None:
        step, _ = study.opening
        counts = [part.coefficient for part in release.nuisances if part.step == step.name]
        if len(counts) != 1 or len(counts[0]) != CLASSES:
            raise DeclarationError(f"nuisances: the counts of the step {step.name} are not stated")
        study = study.after(np.array(counts[0]))
    return plan_as_declared(study)


def released_numbers(release: BaseRelease, plan: Plan[Any]) -> dict[str, Array]:
    """Released numbers of every step of a plan, as the file states it, by the name of the step."""
    numbers = {name: np.array(values) for _, name, values in _released(release)}
    for step in plan.steps:
        if step.integers is not None and step.name in numbers and step is not plan.main:
            numbers[step.name] = np.rint(numbers[step.name] / step.integers.unit)
    if isinstance(release, EffectRelease):
        numbers[plan.main.name] = np.array(release.released)
    elif isinstance(release, RangesRelease):
        numbers["ranges"] = np.array([one.chosen or one.pair for one in release.ranges])
    elif isinstance(release, RuleRelease) and plan.step("value") is not None:
        numbers["value"] = np.array(release.released)
    return numbers


def stated_again(release: R, plan: Plan[Any]) -> R:
    """The release that a plan makes of the numbers that were released: what follows from both.

    Of the run it takes over what no file can show: the standing, the study and the version.
    """
    released = released_numbers(release, plan)
    guarantee = _guarantee_again(release.guarantee, plan)
    missing = [step.name for step in plan.steps if step.name not in released]
    # A two-stage release does not state the coefficient of its weights.
    if missing and not isinstance(release, Release):
        raise DeclarationError(f"steps: nothing is stated that {missing[0]} released")
    again: BaseRelease
    if isinstance(release, EffectRelease):
        again = _effect_at(release, release.interval.level, plan, released, guarantee)
    elif isinstance(release, RuleRelease):
        again = make_rule(plan, released, release.columns, guarantee)
    elif isinstance(release, RangesRelease):
        again = make_ranges(plan, released, [one.column for one in release.ranges], guarantee)
    else:
        again = make_release(plan, released, release.columns, guarantee)
    return replace(again, study=release.study, version=release.version)  # type: ignore[return-value]


def _guarantee_again(promise: Guarantee, plan: Plan[Any]) -> Guarantee:
    """The guarantee of a run of a plan that ended as the ``promise`` says."""
    best = Standing.FITTED_BEFORE if promise.fitted_before else Standing.PRIVATE
    run = replace(
        plan,
        certifies=UNKNOWN_SOLVER not in promise.assumptions,
        seeded=promise.standing is Standing.NOT_PRIVATE,
    )
    return guarantee_of(
        run, certified=promise.standing is best, by_gap=BY_GAP in promise.assumptions
    )


def at_level(release: EffectRelease, level: float, plan: Plan[Any] | None = None) -> EffectRelease:
    """The release with intervals at another level, from the numbers that were released.

    Parameters
    ----------
    release
        An effect.
    level
        Coverage of its intervals.
    plan
        What was run, where it is at hand; else it is planned again from what the release declares.

    Raises
    ------
    DeclarationError
        Where the level is not between 0 and 1, or nothing follows from what is declared.
    """
    if plan is None:
        plan = plan_of(release)
    result = _effect_at(release, level, plan, released_numbers(release, plan), release.guarantee)
    return replace(result, study=release.study, version=release.version)


def _effect_at(
    release: EffectRelease,
    level: float,
    plan: Plan[Any],
    released: dict[str, Array],
    guarantee: Guarantee,
) -> EffectRelease:
    """An effect as it is stated at a level."""
    return make_effect(plan, released, release.columns, guarantee, level, release.target)


def taken_from(release: BaseRelease, name: str, owner: BaseRelease) -> Iterator[str]:
    """Faults of steps that a release says it took over from another question.

    Parameters
    ----------
    release
        The release that took them over.
    name
        Name of the question that released them.
    owner
        The release of that question, which has to state the same numbers and to have paid for them.
    """
    known = {part.step: part.coefficient for part in getattr(owner, "nuisances", ())}
    for part in getattr(release, "nuisances", ()):
        step = part.step
        entry = release.before.get(step)
        if entry is None or entry["of"] != name:
            continue
        was_paid_for = step not in owner.before and release.columns == owner.columns
        same_noise = release.step(step) == owner.step(step)
        same_numbers = part.coefficient == known.get(step)
        if not (was_paid_for and same_noise and same_numbers):
            yield f"before.{step}: is not as {brief(name)} released it: it was not paid for there"


#: What arithmetic raises on numbers that no plan has.
_NO_NUMBERS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
#: Relative difference of two numbers that are the same: searches for noise stop at rounding, where
#: an optimum is flat to the root of it, so that another machine's are 1e-8 apart.
_SAME = 1e-6
#: The same of shares that are predicted by solves and draws on synthetic records.
_PREDICTED = 0.02
#: Absolute difference of two such shares that are the same.
_NEAR = 1e-4
#: Names of such shares.
_PREDICTIONS = ("residual_bias", "residual_imbalance", "flipped_share")


@dataclass(frozen=True)
class Verification(Shown):
    """Result of a verification.

    That noise was drawn as stated, fresh and by the certified program, no file can show.

    Parameters
    ----------
    refuted
        One line for each entry that does not follow from declared and released numbers: its place
        in the file, what is stated there and what follows.
    """

    refuted: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True if nothing is refuted."""
        return not self.refuted

    def blocks(self) -> Iterator[Block]:
        """Report, for a screen."""
        yield heading("Verified" if self.holds else "REFUTED")
        yield from (f"- {line}" for line in self.refuted)
        if self.holds:
            yield (
                "Bounds, noise, guarantee, intervals and predictions were computed again from the "
                "declarations and the released numbers in the file, and agree. Not checked: "
                "whether the released numbers are those of a run, and the noise was drawn as "
                "stated."
            )


@np.errstate(all="ignore")
def verify(
    release: BaseRelease,
    domain: Domain | None = None,
    study: str | None = None,
    *,
    text: str | bytes | None = None,
) -> Verification:
    """Plan again what a release declares, state it again with its numbers, and compare every entry.

    Numbers may differ by a millionth, predicted shares by 2 %.

    Parameters
    ----------
    release
        What is verified.
    domain
        The domain that the reader expects; None for any.
    study
        Digest of the study file that was registered; None for any.
    text
        The JSON that was read: what it states beside the fields is then compared too.

    Raises
    ------
    NotAtHandError
        Where a program or a function of an author's own is not known here or is another one, so
        that nothing can be planned again.
    DeclarationError
        Where a file of another version of the package does not follow by this one.
    """
    refuted: list[str] = []
    if domain is not None and not _is_expected(release, domain):
        refuted.append("domain: is not the one expected")
    if study is not None and release.study != study:
        refuted.append(f"study: {brief(release.study)} stated, {brief(study)} expected")
    try:
        refuted += _refuted(release, text)
    except NotAtHandError:
        raise
    except Dp2ermError as error:
        refuted.append(f"nothing follows from what is declared: {error}")
    except _NO_NUMBERS as error:
        refuted.append(f"nothing follows from such released numbers: {error}")
    if refuted and release.version != __version__:
        raise DeclarationError(
            f"this release is of dp2erm-cvx {brief(release.version)}, and does not follow by "
            f"version {__version__}: verify it with its own version; first difference: {refuted[0]}"
        )
    return Verification(tuple(refuted))


def _is_expected(release: BaseRelease, domain: Domain) -> bool:
    """True if a release is of this domain, or of this domain with the columns that it names."""
    stated = release.public
    if _agree(stated, domain):
        return True
    known = domain.columns or ()
    if not set(release.columns) <= set(known):
        return False
    return _agree(stated, domain.restricted([known.index(name) for name in release.columns]))


def _refuted(release: BaseRelease, text: str | bytes | None) -> list[str]:
    """Entries that do not follow when it is planned and stated again."""
    plan = plan_of(release)
    lacking = list(_lacking(plan, release))
    if lacking:
        return lacking
    again = stated_again(release, plan)
    stated = release.to_dict(derived=False)
    follows = again.to_dict(derived=False)
    if _assumes_more(release, again):
        for name in ("standing", "assumptions"):
            follows["guarantee"][name] = stated["guarantee"][name]
    refuted = [
        f"{path}: {brief(fact)} stated, {brief(derived)} follows"
        for path, fact, derived in _unlike(stated, follows)
    ]
    refuted += _impossible(plan, release)
    if text is not None and not refuted:
        refuted += _wrongly_derived(release, json.loads(text))
    return refuted


def _wrongly_derived(release: BaseRelease, entries: Mapping[str, Any]) -> Iterator[str]:
    """Faults of the ``entries`` of a JSON that follow from the fields of the release.

    Another version of the package may not state all of them.
    """
    derived = json.loads(json.dumps(release.worked_out()))
    for name in release.derived:
        stated = entries.get(name)
        if stated is None and release.version != __version__:
            continue
        follows = derived.get(name)
        # Types are compared as well, because to Python true is 1.
        if stated != follows or any(_unlike(stated, follows)):
            yield f"{name} does not follow from what was released"


def _other_ranges(plan: Plan[Any], release: RangesRelease) -> Iterator[str]:
    """Faults of a table of ranges: other columns, or other choices, than are declared."""
    grids = plan.main.grids
    if len(release.ranges) != len(grids):
        yield f"ranges: {len(release.ranges)} stated for {len(grids)} columns"
        return
    for place, (one, grid) in enumerate(zip(release.ranges, grids, strict=True)):
        if (one.chosen is None) != (grid is None):
            yield (
                f"ranges.{place}.chosen: {one.chosen} stated, beside what is declared of the column"
            )
        elif grid is not None and one.chosen is not None and not np.all(np.isin(one.chosen, grid)):
            yield f"ranges.{place}.chosen: is off the public grid of candidates"


def _other_nuisances(plan: Plan[Any], release: EffectRelease | RuleRelease) -> Iterator[str]:
    """Faults of what is stated of the steps before the last one: other steps, or other numbers."""
    planned = [step.name for step in plan.steps]
    for place, part in enumerate(release.nuisances):
        if part.step not in planned:
            yield f"nuisances.{place}.step: {brief(part.step)} is no step of the plan"
        n_names = len(part.parameters)
        n_numbers = len(part.coefficient)
        if n_names != n_numbers:
            yield f"nuisances.{place}: {n_names} names for {n_numbers} numbers"
    known = released_numbers(release, plan)
    for name in planned:
        if name not in known:
            yield f"nuisances: nothing of the step {name} is stated"


def _lacking(plan: Plan[Any], release: BaseRelease) -> Iterator[str]:
    """Faults because of which no result can be computed from what is stated."""
    if isinstance(release, RangesRelease):
        yield from _other_ranges(plan, release)
    planned = [step.name for step in plan.steps]
    listed = [step.step for step in release.steps]
    if planned != listed:
        yield f"steps: {', '.join(listed)} stated, {', '.join(planned)} follow"
    if release.public.columns not in (None, release.columns):
        yield "columns: are not those of the domain, in their order"
    if isinstance(release, Release | RuleRelease) and len(release.theta) != len(release.parameters):
        yield (
            f"parameters: {len(release.parameters)} names for {len(release.theta)} numbers in theta"
        )
    if isinstance(release, EffectRelease | RuleRelease):
        yield from _other_nuisances(plan, release)
    if isinstance(release, EffectRelease):
        try:
            misses(release.interval.level)
        except DeclarationError as error:
            yield f"interval.level: {error}"


def _assumes_more(release: BaseRelease, again: BaseRelease) -> bool:
    """True if the guarantee assumes what follows and more, with a standing that says so.

    Such is the release of the last step of a Pipeline: who verifies it cannot know the steps
    before.
    """
    stated, follows = release.guarantee, again.guarantee
    standing = follows.standing
    if stated.fitted_before and follows.private:
        standing = Standing.FITTED_BEFORE
    return stated.standing is standing and set(follows.assumptions) < set(stated.assumptions)


def _unlike(
    first: Any, again: Any, path: str = "", size: float = 0.0
) -> Iterator[tuple[str, Any, Any]]:
    """The leaves where two trees differ: path, what the first states, what the other one states.

    Parameters
    ----------
    first, again
        Trees of dictionaries, lists and plain values.
    path
        Where they stand, with dots.
    size
        Size of the interval that a number ends, up to which ends may differ by a millionth.
    """
    if isinstance(first, dict) and isinstance(again, dict):
        yield from _unlike_entries(first, again, path)
    elif _are_lists(first, again):
        for place, (one, other) in enumerate(zip(first, again, strict=True)):
            yield from _unlike(one, other, f"{path}.{place}")
    elif not _same(first, again, path.rpartition(".")[2], size):
        yield path, first, again


def _unlike_entries(
    first: dict[str, Any], again: dict[str, Any], path: str
) -> Iterator[tuple[str, Any, Any]]:
    """The leaves where two dictionaries differ."""
    ends = [abs(again[name]) for name in ("low", "high") if isinstance(again.get(name), float)]
    size = max(ends, default=0.0)
    for name in dict.fromkeys((*first, *again)):
        inner = f"{path}.{name}" if path else str(name)
        if name in first and name in again:
            yield from _unlike(first[name], again[name], inner, size)
        else:
            yield inner, first.get(name, "nothing"), again.get(name, "nothing")


def _are_lists(first: object, again: object) -> bool:
    """True for two lists of the same length."""
    if not isinstance(first, list | tuple) or not isinstance(again, list | tuple):
        return False
    return len(first) == len(again)


def _same(first: object, again: object, name: str, size: float) -> bool:
    """True if two plain values of this ``name`` are the same, floats up to a millionth."""
    if not (_is_number(first) and _is_number(again)):
        return type(first) is type(again) and first == again
    if not (isinstance(first, float) or isinstance(again, float)):
        return type(first) is type(again) and first == again
    if name in _PREDICTIONS:
        return math.isclose(first, again, rel_tol=_PREDICTED, abs_tol=_NEAR)
    return math.isclose(first, again, rel_tol=_SAME, abs_tol=_SAME * size)


def _is_number(value: object) -> TypeGuard[int | float]:
    """True for a number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _agree(public: Domain, expected: Domain) -> bool:
    """True if both declare the same bounds, who is protected, how cells are read, and who counts.

    Names of treatment and outcome, records that a question is restricted to or grouped by, and
    units are compared where both declare them: a command may name them beside the file.
    """
    if replace(public, codebook=None).to_dict() != replace(expected, codebook=None).to_dict():
        return False
    own = public.codebook or Codebook()
    other = expected.codebook or Codebook()
    if own.treatment.column is None or other.treatment.column is None:
        own = replace(own, treatment=replace(own.treatment, column=None))
        other = replace(other, treatment=replace(other.treatment, column=None))
    for name, absent in _BESIDE.items():
        if absent in (getattr(own, name), getattr(other, name)):
            own = replace(own, **{name: absent})
            other = replace(other, **{name: absent})
    # Plain tables are compared, which have no order.
    return own.to_dict() == other.to_dict()


#: What a command may name beside the file of a domain, and what stands where it does not.
_BESIDE: dict[str, Any] = {"outcome": None, "where": {}, "group": None, "units": {}}


def _impossible(plan: Plan[Any], release: BaseRelease) -> Iterator[str]:
    """Released numbers that no run has: off the grid of their noise, or outside of their set."""
    reach = max(release.public.covariate_bound, 1.0)
    if not math.isfinite(sum(map(abs, getattr(release, "theta", ()))) * reach):
        yield "theta: is too large for finite effects"
    for path, name, values in _released(release):
        step = plan.step(name)
        if step is None:
            continue
        numbers = np.array(values)
        scale = np.ones(len(numbers))
        if step.regression is not None:
            scale = step.regression.unscaled(scale, plan.study.universe.n_features)
        if isinstance(step, Fit) and step.coefficient is None:
            allowed = step.second.feasible(step.universe.space)
            if not _inside(allowed, numbers / scale):
                yield f"{path}: lies outside of the public set {brief(allowed)}"
            if not _inside(allowed, numbers / scale * (1.0 + 1e-6)):
                # It is on the boundary, where what was on the grid was projected to.
                continue
        unit = _grid(step)
        if unit is not None and not _on_grid(numbers / (unit * scale)):
            yield f"{path}: is off the public grid of its noise, of step {unit:g}"


def _on_grid(steps: Array) -> bool:
    """True if numbers (p,), in steps of the grid, are integers but for rounding."""
    return not np.any(np.abs(steps - np.rint(steps)) > 2.0**-50 * np.abs(steps))


def _released(release: BaseRelease) -> Iterator[tuple[str, str, Sequence[float]]]:
    """The path, the step and the numbers of everything that noise was added to, but integers."""
    for place, part in enumerate(getattr(release, "nuisances", ())):
        yield f"nuisances.{place}.coefficient", part.step, part.coefficient
    if isinstance(release, Release):
        yield "theta", "theta", release.theta
    elif isinstance(release, RuleRelease):
        yield "theta", "rule", release.theta


def _inside(allowed: ConvexSet, numbers: Array) -> bool:
    """True if numbers (p,) lie in a set, but for rounding."""
    return np.allclose(allowed.project(numbers), numbers, rtol=1e-9, atol=0.0)


def _grid(step: Step) -> float | None:
    """Unit of the public grid that a step releases on; None where its noise is floating point."""
    if step.integers is not None:
        return step.integers.unit
    if step.precision is None:
        return None
    return math.ldexp(1.0, min(step.precision.grid.exponent, 1000))
