"""What a program states: of its problem for CVXPY, and of how far its weights move."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from dp2erm_cvx.audit import Quantity, audit_stability
from dp2erm_cvx.audit.movement import movements
from dp2erm_cvx.audit.scouts import Scout
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.conformance.solutions import UNSOLVED, certified
from dp2erm_cvx.conformance.subject import (
    Check,
    Judgment,
    Subject,
    check_domain,
    check_universe,
    failed,
    neighbors,
    noted,
    passed,
    standard_records,
)
from dp2erm_cvx.errors import CalibrationError, DataError, ProgramError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, Kind, PrivateFirstStage, Program, SecondStage
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.separable import SeparableFirstStage
from dp2erm_cvx.universe import Universe


def kind(subject: Subject) -> Judgment:
    """What is proved about a program of its kind."""
    assert isinstance(subject.program, FirstStage)
    own = subject.program.kind
    return noted(f"{own.proved}: V = 2n at best") if own is Kind.DIRECT else passed(own.proved)


def declaration(subject: Subject) -> Judgment:
    """A problem that is DPP, of a loss with finite slopes and curvatures."""
    if wrong := _overflow(subject):
        return failed(wrong)
    instance = subject.bind(standard_records())
    try:
        compiled = Compiled(instance.program.declare, instance.data)
    except ProgramError as error:
        return failed(str(error))
    return passed(f"DPP, {len(compiled.problem.parameters())} parameters")


def _overflow(subject: Subject) -> str:
    """Of a loss that is unbounded over the set that its coefficient is searched in."""
    domain = check_domain()
    program = subject.program.resolve(domain)
    if isinstance(program, SeparableFirstStage):
        return _unbounded(program.loss, program.row_bound(domain) * program.ball(domain))
    if isinstance(program, SecondStage) and not program.squared:
        bounds, p = program.row_bounds(check_universe(domain)), subject.n_parameters(domain)
        return _unbounded(program.loss, bounds.reach(bounds.size(program.feasible(domain), p)))
    return ""


def _unbounded(loss: Curve, reach: float) -> str:
    """Reports a loss without a finite slope and curvature over ``|s| <= reach``."""
    bounds = loss.largest_slope(reach), loss.largest_curvature(reach)
    if all(math.isfinite(bound) for bound in bounds):
        return ""
    if math.isinf(reach):
        return (
            "the loss overflows without a ball: its slope or curvature is unbounded over all coefficients. "
            "Declare a radius"
        )
    return (
        f"the loss overflows within the ball: at margins up to {reach:.3g} its slope or curvature is {bounds}"
    )


#: Records of the datasets that the audit searches.
_AUDITED = 40


def movement(subject: Subject, unsolved: Callable[[str], Judgment] = failed) -> Judgment:
    """V and the largest weight over certified solves of random and clustered neighbors, with flips."""
    try:
        return _compared_movement(subject)
    except CalibrationError as error:
        if subject.program.relations:
            return failed(f"no bound: {error}; a program without one has relations = frozenset()")
        return noted(f"no bound: {error}")
    except UNSOLVED as error:
        return unsolved(f"a neighbor has no certified weights: {error}")


def _compared_movement(subject: Subject) -> Judgment:
    program = subject.program
    assert isinstance(program, FirstStage)
    if isinstance(program, PrivateFirstStage):
        return noted("the coefficient is private, so that weights of neighbors are never compared")
    largest, pairs, bound, compared = 0.0, 0, None, set[int]()
    larger = subject.larger[:1] if subject.paired else subject.larger
    for n in (*subject.sizes, *larger):
        bound = program.stability(check_universe(check_domain(n), n))
        universal = _universal(bound, n)
        if universal and n in subject.larger:
            continue
        compared.add(n)
        # what no weights of sum n exceed needs no search, only solves that are certified
        few = universal or n in subject.larger
        for pair in neighbors(3 if few else subject.pairs, n, subject.seed):
            one, two = (certified(subject, records) for records in pair)
            radii = one.certificate.output_radius, two.certificate.output_radius
            moved = movements(one.value, two.value, 0, *radii)
            for quantity, declared in ((Quantity.V, bound.V), (Quantity.LARGEST, bound.w_max)):
                reached = moved[quantity].low
                if reached > declared * (1 + 1e-9):
                    return failed(f"n = {n}: {quantity} = {reached:.4g}, declared {declared:.4g}")
            largest, pairs = max(largest, moved[Quantity.V].low / bound.V), pairs + 1
    assert bound is not None
    told = f"{pairs} pairs, n = {min(compared)} to {max(compared):,}"
    return passed(f"{told}: V at most {largest:.0%} of the bound of {bound.theorem}")


def _universal(bound: StabilityBound, n: int) -> bool:
    return bound.V >= 2 * n and bound.w_max >= n


def short_audit(subject: Subject) -> Judgment:
    """A short stability audit: neighbors searched for, not drawn."""
    program = subject.program
    assert isinstance(program, FirstStage)
    if isinstance(program, PrivateFirstStage):
        return noted("see movement")
    universe = check_universe(check_domain(_AUDITED), _AUDITED)
    try:
        bound = program.stability(universe)
        if _universal(bound, _AUDITED):
            return passed(f"V = 2n and w_max = n: no weights of sum n can move more, at n = {_AUDITED}")
        audit = audit_stability(program, None, universe, bounds=[bound], search=_plan(subject, universe))
    except (CalibrationError, DataError) as error:
        return noted(f"nothing to audit: {error}")
    worst = max(audit.verdicts, key=lambda verdict: verdict.ratio)
    if audit.violations:
        return failed(f"{worst.claim.quantity.value} reaches {worst.ratio:.4g} times what is declared")
    seen = f"{audit.scouted + audit.resolved:,} neighbors at n = {_AUDITED}"
    # the largest weight reaches its bound more easily, and sets no noise alone
    moved = next(one for one in audit.verdicts if one.claim.quantity is not Quantity.LARGEST)
    claim = moved.claim
    return passed(f"{seen}: {claim.quantity} at most {moved.ratio:.0%} of its bound {claim.bound:.4g}")


def _plan(subject: Subject, universe: Universe) -> SearchPlan:
    """Fewer neighbors where each takes two solves in full."""
    evaluations, program = subject.search.evaluations, subject.program
    assert isinstance(program, FirstStage)
    if evaluations is None or not Scout.of(program.resolve(universe.domain), universe).exact:
        return subject.search
    return replace(subject.search, evaluations=max(evaluations // 40, min(evaluations, 40)))


#: What is examined here, with the programs that it concerns.
CHECKS: dict[str, tuple[Check, type[Program]]] = {
    "kind": (kind, FirstStage),
    "declaration": (declaration, Program),
    "movement": (movement, FirstStage),
    "audit": (short_audit, FirstStage),
}
