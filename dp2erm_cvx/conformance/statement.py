"""What a program states: of itself, of its problem for CVXPY and for all datasets, and of its bound."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.audit import Quantity, audit_stability
from dp2erm_cvx.audit.movement import movements
from dp2erm_cvx.audit.scouts import Scout
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.conformance.files import executed_anew
from dp2erm_cvx.conformance.solutions import UNSOLVED, certified
from dp2erm_cvx.conformance.subject import (
    N_FEATURES,
    Check,
    Judgment,
    Subject,
    check_domain,
    check_universe,
    failed,
    neighbors,
    noted,
    other_domains,
    passed,
    standard_records,
)
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, InfeasibleError, ProgramError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import (
    ClosedFormWeights,
    FirstStage,
    Instance,
    Kind,
    PrivateFirstStage,
    Program,
    SecondStage,
)
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.separable import SeparableFirstStage
from dp2erm_cvx.program.stage import DeclaredProgram
from dp2erm_cvx.program.weights import WeightsProgram
from dp2erm_cvx.universe import Universe

_FACTS = ("name", "formula", "cone", "citation", "theorem")


def statement(subject: Subject) -> Judgment:
    """Name, formula, cone, citation and theorem; docstrings; settings that a release can print."""
    cls = type(subject.program)
    missing = [fact for fact in _FACTS if not str(getattr(cls, fact, "")).strip()]
    if missing:
        return failed(f"state {', '.join(missing)} as class attributes")
    if not all(isinstance(getattr(cls, fact), str) for fact in _FACTS):
        return failed(f"{', '.join(_FACTS)} must be text")
    if not isinstance(subject.program, DeclaredProgram) and not any(
        "minimize" in text for text in _docstrings(cls)
    ):
        return failed("the docstring of neither the file nor the class says what is minimized")
    if not cls.__doc__:
        return failed("the class has no docstring")
    settings = subject.program.settings()
    if json.loads(json.dumps(settings)) != settings:
        return failed("settings() are not plain JSON types: give what they hold a describe()")
    return passed(f"{cls.citation}; {cls.theorem}")


def _docstrings(cls: type) -> list[str]:
    """Of a class and its file, and of what it is based on outside of the library's own bases."""
    own = [base for base in cls.__mro__ if not base.__module__.startswith(("dp2erm_cvx.program", "builtins"))]
    modules = [sys.modules.get(base.__module__) for base in own]
    return [getattr(one, "__doc__", None) or "" for one in (*own, *modules)]


def kind(subject: Subject) -> Judgment:
    """What is proved about a program of its kind."""
    assert isinstance(subject.program, FirstStage)
    own = subject.program.kind
    return noted(f"{own.proved}: V = 2n at best") if own is Kind.DIRECT else passed(own.proved)


def declaration(subject: Subject) -> Judgment:
    """DPP; every datum a Parameter that enters the problem; names that agree."""
    if wrong := _overflow(subject):
        return failed(wrong)
    instance = subject.bind(standard_records())
    try:
        compiled = Compiled(instance.program.declare, instance.data)
    except ProgramError as error:
        return failed(str(error))
    inside = {parameter.name() for parameter in compiled.problem.parameters()}
    if unused := set(compiled.parameters) - inside:
        return failed(f"{', '.join(sorted(unused))} is asked for and enters nowhere: it would go stale")
    if _constants_of_records(subject):
        return failed(
            "a number in the problem is not a Parameter and differs between neighbors: use leaf(name)"
        )
    for name, leaf in [*compiled.parameters.items(), *compiled.declaration.variables.items()]:
        if leaf.name() != name:
            return failed(f"{name!r} is called {leaf.name()!r} in the problem")
    return passed(f"DPP, {len(inside)} parameters")


def _constants_of_records(subject: Subject) -> bool:
    """Whether records come into the declaration past its leaves, where a re-solve would not replace them."""
    # ordinary records, which programs with hard constraints have weights for, and one of them mirrored
    first, sides = standard_records(24, seed=3), np.where(np.arange(24) == 0, -1.0, 1.0)
    second = first.domain.records(sides[:, None] * first.covariates, first.a, sides * first.y)
    bound = [Compiled(one.program.declare, one.data) for one in map(subject.bind, (first, second))]
    found = [[np.asarray(one.value) for one in compiled.problem.constants()] for compiled in bound]
    shapes = [[one.shape for one in constants] for constants in found]
    # other shapes where a record brings or takes a variable of its own
    return shapes[0] == shapes[1] and not all(map(_equal, *found))


def _equal(one: object, other: object) -> bool:
    first, second = np.asarray(one), np.asarray(other)
    return first.shape == second.shape and bool(np.all(np.asarray(first == second)))


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
            "State ball(domain), a radius that no minimizer exceeds, or declare a radius"
        )
    return (
        f"the loss overflows within the ball: at margins up to {reach:.3g} its slope or curvature is {bounds}"
    )


def fixed_set(subject: Subject) -> Judgment:
    """Leaves of the constraints compared between neighbors, and the set of one with that of the other."""
    program = subject.program
    kind = program.kind if isinstance(program, FirstStage) else None
    moved: set[str] = set()
    for first, second in neighbors(6, 40, subject.seed):
        try:
            here, there = subject.bind(first), subject.bind(second)
        except InfeasibleError:
            continue  # which the check of feasibility judges
        moved |= _moved_leaves(here, there)
        if not moved and _leaves_the_set(here, there):
            moved.add("the set of the model")
    extra = sorted(moved - program.moving)
    if extra and not (program.moving and extra == ["the set of the model"]):
        text = f"{', '.join(extra)} in the constraints differs between neighbors"
        if kind is Kind.DIRECT:
            return noted(f"{text}: {kind.proved}")
        if kind is None:
            return failed(f"{text}: Theorems 1 and 2 need one Theta for all datasets")
        return failed(f"{text}: no theorem of kind {kind.value!r} covers that; declare 'direct'")
    return _allowed(program, ", ".join(sorted(moved & program.moving)))


def _allowed(program: Program, leaves: str) -> Judgment:
    if not leaves:
        return passed("the same for all neighbors tried")
    # what may move is stated by a class of the library, whose theorem is proved for it, or by the author
    stated = next(base for base in type(program).__mro__ if "moving" in vars(base))
    if stated.__module__.startswith("dp2erm_cvx."):
        return passed(f"{leaves} may differ under {program.theorem}")
    return noted(f"{leaves} differs between neighbors: that {program.theorem} allows it is its author's word")


def _moved_leaves(here: Instance, there: Instance) -> set[str]:
    compiled = Compiled(here.program.declare, here.data)
    leaves = {p.name() for c in compiled.declaration.constraints.values() for p in c.parameters()}
    moved = {name for name in leaves if not _equal(here.data[name], there.data[name])}
    shapes = {v.shape for v in compiled.declaration.variables.values()}
    other = Compiled(there.program.declare, there.data).declaration.variables.values()
    return moved | (set() if shapes == {v.shape for v in other} else {"weights"})


def _leaves_the_set(here: Instance, there: Instance) -> bool:
    if here.model is None or there.model is None or here.model.dimension != there.model.dimension:
        return False
    point = here.model.penalty.set.project(here.model.start())
    return bool(np.max(np.abs(there.model.penalty.set.project(point) - point)) > 1e-9)


def public_numbers(subject: Subject) -> Judgment:
    """Scalar leaves, curvature and penalty compared between datasets of one size; then what a file remembers.

    In some neighbors the changed record alone is the longest, the shortest, or that of the largest outcome.
    """
    kind = subject.program.kind if isinstance(subject.program, FirstStage) else None
    compared: set[str] = set()
    for n in (12, min(2000, max(subject.larger, default=12))):  # what is off by 1/n shows at few
        found: dict[str, float] = {}
        for records in (one for pair in neighbors(6 if n < 100 else 2, n, subject.seed) for one in pair):
            try:
                numbers = _numbers(subject.bind(records), closed_form=kind is Kind.CLOSED_FORM)
            except InfeasibleError:
                continue  # which the check of feasibility judges
            moved = [name for name, value in numbers.items() if found.setdefault(name, value) != value]
            if moved:
                text = f"{', '.join(sorted(moved))} differs between datasets of one size"
                told = noted if kind is Kind.DIRECT else failed
                return told(f"{text}: what bounds or noise rest on has to be public")
        compared |= found.keys()
    if _remembers(subject):
        return failed("what is bound to one dataset depends on the dataset before it")
    return passed(f"{', '.join(sorted(compared))}: the same for all datasets tried" if compared else "none")


def _numbers(instance: Instance, *, closed_form: bool) -> dict[str, float]:
    scalars = {name: float(value) for name, value in instance.data.items() if np.ndim(value) == 0}
    found = {f"leaf {name}": value for name, value in scalars.items()}
    if closed_form:
        return found  # whose curvature no theorem rests on
    found["strong convexity"] = float(instance.strong_convexity)
    if instance.model is not None:
        found |= {"ridge": float(instance.model.ridge), "l1": float(np.sum(instance.model.penalty.l1))}
    return found


def _remembers(subject: Subject) -> bool:
    """Whether the class, after all that it was bound to, binds records otherwise than a new copy does."""
    anew = executed_anew(type(subject.program))
    if anew is None:
        return False  # the library's own classes keep nothing between datasets
    records = standard_records(24, seed=subject.seed + 1)
    names = [one.name for one in dataclasses.fields(anew) if one.init]  # type: ignore[arg-type]
    settings = {name: getattr(subject.program, name) for name in names}
    used, new = (subject.bind(records), dataclasses.replace(subject, program=anew(**settings)).bind(records))
    return any(not _equal(used.data[name], new.data[name]) for name in used.data)


_SIZES = (8, 40, 400, 10_000)
_POINTS = 200
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
    for n in _SIZES if subject.larger else (40, 400):  # a slip that depends on n shows at the examples
        for domain in (check_domain(n), *other_domains(n)):
            try:
                universe = check_universe(domain, n)
                stated = program.stability(universe)
                expected = _least(program.resolve(domain), universe, stated)
            except (CalibrationError, DeclarationError) as error:
                if domain == check_domain(n):
                    return noted(str(error))
                continue  # a program may be declared for one scale
            if expected is None:
                continue
            evaluated = True
            for what in ("V", "w_max"):
                found, least = getattr(stated, what), getattr(expected, what)
                if found >= least * (1 - 1e-9):
                    continue
                text = f"n = {n}, M = {domain.covariate_bound:.3g}: {what} = {found:.4g}, where "
                text += f"{expected.theorem} gives {least:.4g}"
                if stated.theorem == expected.theorem:
                    return failed(f"{text} from the constants that the program declares")
                return noted(f"{text}: smaller, by {stated.theorem}, which is its author's word")
    if not evaluated:
        return noted("no base whose theorem could be evaluated beside it: its proof is the author's")
    return passed("at least what the theorem of its base gives, n = 8 to 10,000")


def _least(program: FirstStage, universe: Universe, stated: StabilityBound) -> StabilityBound | None:
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
    """Length of the interval that log weights of records at the edge of the domain are met in."""
    X = np.random.default_rng(0).normal(size=(_POINTS, N_FEATURES))
    X *= domain.features_bound / np.linalg.norm(X, axis=1)[:, None]
    both = np.repeat([0, 1], 2 * len(X))
    f = program.unnormalized(domain.records(np.vstack([X, -X, X, -X]), both, np.zeros(len(both))))
    return float(np.log(np.max(f)) - np.log(np.min(f)))


#: What is examined here, with the programs that it concerns.
CHECKS: dict[str, tuple[Check, type[Program]]] = {
    "kind": (kind, FirstStage),
    "statement": (statement, Program),
    "declaration": (declaration, Program),
    "fixed feasible set": (fixed_set, Program),
    "public numbers": (public_numbers, Program),
    "stated bound": (bound_of_theorem, FirstStage),
    "movement": (movement, FirstStage),
    "audit": (short_audit, FirstStage),
}
