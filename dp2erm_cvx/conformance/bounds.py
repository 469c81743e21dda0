"""The bound that a program states: beside that of its base's theorem, and beside what weights move."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.audit import Quantity, audit_stability
from dp2erm_cvx.audit.movement import movements
from dp2erm_cvx.audit.scouts import known_scout
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.conformance.solutions import UNSOLVED, certified
from dp2erm_cvx.conformance.subject import (
    N_FEATURES,
    Judgment,
    Subject,
    check_domain,
    check_universe,
    failed,
    neighbors,
    noted,
    other_domains,
    passed,
)
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import ClosedFormWeights, FirstStage, PrivateFirstStage
from dp2erm_cvx.program.declared import DeclaredProgram
from dp2erm_cvx.program.weights import WeightsProgram
from dp2erm_cvx.universe import Universe

_SIZES = (8, 40, 400, 10_000)
_POINTS = 200
#: Records of the datasets that the audit searches.
_AUDITED = 40


def movement(subject: Subject) -> Judgment:
    """V and the largest weight over certified solves of random and clustered neighbors, with flips."""
    try:
        return compared_movement(subject)
    except CalibrationError as error:
        if subject.program.relations:
            return failed(f"no bound: {error}; a program without one has relations = frozenset()")
        return noted(f"no bound: {error}")
    except UNSOLVED as error:
        return failed(f"a neighbor has no certified weights: {error}")


def compared_movement(subject: Subject) -> Judgment:
    """The same. Raises CalibrationError without a bound, and what a solve raises without a certificate."""
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
    if evaluations is None or known_scout(program.resolve(universe.domain), universe) is not None:
        return subject.search
    return replace(subject.search, evaluations=max(evaluations // 40, min(evaluations, 40)))


def bound_of_theorem(subject: Subject) -> Judgment:
    """No smaller than Theorem 3, 5 or 6 at the program's own constants, unless it names another theorem.

    A search over neighbors sees a factor of two only where the theorem is nearly attained; an arithmetical
    slip in ``bound`` shows here whatever its size.
    """
    program = subject.program
    assert isinstance(program, FirstStage)
    if isinstance(program, DeclaredProgram) and program.own_data() is not None:
        proved = program.stability(check_universe(check_domain()))
        return passed(f"derived: {proved.theorem}; nothing to check")
    evaluated = False
    for n in _SIZES:
        for domain in (check_domain(n), *other_domains(n)):
            try:
                universe = check_universe(domain, n)
                stated = program.stability(universe)
                expected = _expected(program.resolve(domain), universe, stated)
            except (CalibrationError, DeclarationError) as error:
                if domain == check_domain(n):
                    return noted(str(error))
                continue  # a program may be declared for one scale
            if expected is None:
                continue
            evaluated = True
            if text := _less(stated, expected):
                text = f"n = {n}, M = {domain.covariate_bound:.3g}: {text}"
                if stated.theorem == expected.theorem:
                    return failed(f"{text} from the constants that the program declares")
                return noted(f"{text}: smaller, by {stated.theorem}, which is its author's word")
    if not evaluated:
        return noted("no base whose theorem could be evaluated beside it: its proof is the author's")
    return passed("at least what the theorem of its base gives, n = 8 to 10,000")


def _less(stated: StabilityBound, expected: StabilityBound) -> str:
    for what, found, least in (("V", stated.V, expected.V), ("w_max", stated.w_max, expected.w_max)):
        if not found >= least * (1 - 1e-9):
            return f"{what} = {found:.4g}, where {expected.theorem} gives {least:.4g}"
    return ""


def _expected(program: FirstStage, universe: Universe, stated: StabilityBound) -> StabilityBound | None:
    n = universe.n_samples
    if isinstance(program, WeightsProgram):
        return stated if _universal(stated, n) else None
    if isinstance(program, ClosedFormWeights):
        # what the records tried need already
        w_max = stability.largest_weight(n, _log_range(program, universe.domain) * (1 - 1e-12))
        return replace(stated, V=stability.tilt_lemma(n, 0.0, w_max), w_max=w_max)
    if _universal(stated, n):
        return stated  # the universal corollary, which any weights obey
    return _of_base(program, universe)


def _with_constants_of_base(program: FirstStage) -> FirstStage:
    """The program without constants of its own, where a base derives them from the settings.

    A theorem that reads the constants of the program would otherwise be compared with itself.
    """
    for base in type(program).__mro__:
        derived = vars(base).get("constants")
        if derived is not None and base.__module__.startswith("dp2erm_cvx.program."):
            if not getattr(derived, "__isabstractmethod__", False):
                program = copy.copy(program)
                object.__setattr__(program, "constants", functools.partial(derived, program))
            break
    return program


def _of_base(program: FirstStage, universe: Universe) -> StabilityBound | None:
    """What the nearest class of the library gives that states a theorem for the programs based on it."""
    program = _with_constants_of_base(program)
    known: list[tuple[type, StabilityBound]] = [
        (base, vars(base)["bound"](program, universe))
        for base in type(program).__mro__[1:]
        if base is not FirstStage and base.__module__.startswith("dp2erm_cvx.") and "bound" in vars(base)
    ]
    if not known:
        return None
    nearest, bound = known[0]
    # a program of the library that refuses some settings, and is otherwise bounded as its base is
    if any(other == bound for base, other in known if base.__module__.startswith("dp2erm_cvx.program.")):
        return bound
    return replace(bound, theorem=f"{bound.theorem} of {nearest.__name__}")


def _log_range(program: ClosedFormWeights, domain: Domain) -> float:
    """Length of the interval that log weights of records at the edge of the domain are found in."""
    X = _at_the_edge(domain.features_bound)
    both = np.repeat([0, 1], len(X))
    found = program.unnormalized(domain.records(np.vstack([X, X]), both, np.zeros(len(both))))
    return float(np.log(np.max(found)) - np.log(np.min(found)))


def _at_the_edge(features_bound: float) -> Array:
    X = np.random.default_rng(0).normal(size=(_POINTS, N_FEATURES))
    X *= features_bound / np.linalg.norm(X, axis=1)[:, None]
    return np.vstack([X, -X])
