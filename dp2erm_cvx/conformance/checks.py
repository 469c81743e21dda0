"""Checks of a program: what it states of its problem and its weights, and what is solved of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import numpy as np

from dp2erm_cvx.audit import Quantity, SearchPlan, audit_stability
from dp2erm_cvx.audit.movement import movements
from dp2erm_cvx.audit.scouts import Scout
from dp2erm_cvx.conformance.subject import (
    Check,
    CheckStatus,
    Judgment,
    Subject,
    check_domain,
    check_universe,
    edge_records,
    failed,
    neighbors,
    noted,
    passed,
    standard_records,
)
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import (
    CalibrationError,
    CertificateError,
    DataError,
    Dp2ermError,
    InfeasibleError,
    ProgramError,
    SolverError,
)
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, Instance, Kind, PrivateFirstStage, Program, SecondStage
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.separable import SeparableFirstStage
from dp2erm_cvx.solve import Solution, solve
from dp2erm_cvx.universe import Universe

#: What a solve raises that ends without a certified solution.
UNSOLVED = (InfeasibleError, SolverError, CertificateError)
#: Weights may miss their sum by this share.
_SUM = 1e-12
#: Records whose balance is compared, and whose certificate is asked for in advance.
_BALANCED, _REACHED = 200, 400


def agreement(subject: Subject) -> Judgment:
    """Every solver, polished or not; two solutions are no farther apart than their radii allow."""
    instance = subject.bind(standard_records())
    found: list[tuple[str, Solution]] = []
    for name in solver_names(instance):
        for polish in (False, True):
            try:
                solution = solve(instance, solver=name, polish=polish, throw=False)
            except InfeasibleError as error:
                return failed(f"infeasible on ordinary records: {error}")
            except SolverError as error:
                return failed(str(error))
            if polish and not solution.certified:
                relative = solution.certificate.relative_radius
                return failed(f"{name}: relative radius {relative:.1e} is not certified")
            found.append((name, solution))
    for name, first in found:
        for other, second in found:
            allowed = first.certificate.output_radius + second.certificate.output_radius
            apart = subject.distance(first.value, second.value)
            if not apart <= allowed:
                return failed(f"{name} and {other} are {apart:.1e} apart, certified to {allowed:.1e}")
    largest = max(solution.certificate.relative_radius for name, solution in found[1::2])
    return passed(f"{', '.join(dict.fromkeys(n for n, _ in found))}; relative radius <= {largest:.1e}")


def feasibility(subject: Subject) -> Judgment:
    """Every dataset of the universe has a certified solution: a refusal would depend on private records."""
    first = isinstance(subject.program, FirstStage)
    private = bool(subject.program.relations)
    missed = []
    samples = {**edge_records(), **{f"random {seed}": standard_records(25, seed) for seed in range(5)}}
    for name, records in samples.items():
        try:
            solution = certified(subject, records)
        except UNSOLVED as error:
            if private:
                return failed(f"{name}: {error}")
            missed.append(name)
            continue
        if first and (complaint := _not_weights(solution.value, records.n_samples)):
            return failed(f"{name}: {complaint}")
    if missed:
        return noted(f"no weights on {', '.join(missed)}: not private, whether they exist depends on data")
    what = "certified, weights >= 0 with sum n" if first else "certified"
    return passed(f"{len(samples)} ordinary and adversarial datasets: {what}")


def _not_weights(w: Array, n: int) -> str:
    if w.shape != (n,) or not np.all(np.isfinite(w)):
        return f"weights have shape {w.shape} or are not finite"
    if np.min(w) < 0:
        return f"a weight is {np.min(w):.3g}"
    total = math.fsum(w)
    return "" if abs(total / n - 1) <= _SUM else f"weights sum to {total!r}, not {n}"


def certified_in_advance(subject: Subject) -> Judgment:
    """The public bound on the numerical error over all datasets, or what a release says without one."""
    domain = check_domain(_REACHED)
    program = subject.program.resolve(domain)
    if isinstance(program, FirstStage) and not isinstance(program, PrivateFirstStage):
        if _covers_all_weights(program, _REACHED):
            return passed("V = 2n covers all weights of sum n: they need no certificate")
        error = program.certified_error(check_universe(domain, _REACHED))
    else:
        assert isinstance(program, SecondStage | PrivateFirstStage)
        error = program.certified_radius(check_universe(domain, _REACHED), domain.covariate_bound**2, 0.0)
    if error is None or not math.isfinite(error):
        return noted("no public bound on the numerical error: releases are conditional")
    return passed(f"error at most {error:.1e} on every dataset, at n = {_REACHED}")


def _covers_all_weights(program: FirstStage, n_samples: int) -> bool:
    """True if the bound is that of any weights of sum n."""
    try:
        return program.stability(check_universe(check_domain(n_samples), n_samples)).V >= 2 * n_samples
    except CalibrationError:
        return False


def balance(subject: Subject) -> Judgment:
    """Largest difference of the arms' mean covariates before and after: a wrong sign makes it larger.

    Noted only: it is no matter of privacy, and a scheme may have another target.
    """
    records = standard_records(_BALANCED)
    w = certified(subject, records).value
    if min(float(np.sum(w[records.a == arm])) for arm in (0, 1)) < 1e-9 * _BALANCED:
        return noted("one arm has no weight")
    before, after = _difference(records, np.ones(_BALANCED)), _difference(records, w)
    text = f"largest difference of covariate means between arms: {before:.3f} before, {after:.3f} after"
    return passed(text) if after <= before * (1 + 1e-9) else noted(f"{text}: a wrong sign?")


def _difference(records: Records, w: Array) -> float:
    X, a = records.covariates, records.a
    control, treated = (np.average(X[a == arm], axis=0, weights=w[a == arm]) for arm in (0, 1))
    return float(np.max(np.abs(treated - control)))


def certified(subject: Subject, records: Records) -> Solution:
    """By whatever solver certifies first. Raises InfeasibleError, SolverError and CertificateError."""
    return solve(subject.bind(records), solver="first_certified")


def solver_names(instance: Instance) -> list[str]:
    """Every solver that applies: conic ones always, OSQP for QPs, first-order and Newton with a model."""
    names = ["clarabel", "scs"]
    if Compiled(instance.program.declare, instance.data).problem.is_qp():
        names.append("osqp")
    if instance.model is not None:
        names += ["newton", "projected_gradient"]
    return names


_ROUNDING = 1e-7


def strong_convexity(subject: Subject) -> Judgment:
    """Declared against measured: the least curvature of the objective over random feasible segments."""
    instance = subject.bind(standard_records())
    declared = instance.strong_convexity
    if not declared > 0:
        return noted("none is declared, so that no stability bound can rest on it")
    measured = _by_model(instance) if instance.model is not None else _by_segments(instance)
    text = f"declared {declared:.4g}, least measured {measured:.4g}"
    if measured < declared * (1 - _ROUNDING):
        return failed(f"{text}: every bound and certificate divides by the declared number")
    return passed(text)


def model_and_declaration(subject: Subject) -> Judgment:
    """At the certified minimizer of the model the declared objective is least, as conic solvers find it."""
    instance = subject.bind(standard_records())
    if instance.model is None:
        return noted("no smooth form: the duality gap of the declaration is the only judge")
    ours = solve(instance, solver="newton", throw=False)
    theirs = solve(instance, solver="clarabel", polish=False, throw=False)
    apart = subject.distance(ours.value, theirs.value)
    scale = instance.model.output_scale(ours.point)
    # Clarabel alone is good to some 1e-4 of the scale; a wrong term moves the minimizer by more
    if not apart <= 1e-3 * scale:
        return failed(f"minimizers differ by {apart / scale:.1e} of the scale: a term differs")
    return passed(f"one minimizer, to {apart / scale:.0e} of the scale")


def _by_model(instance: Instance) -> float:
    model = instance.model
    assert model is not None
    rng = np.random.default_rng(3)
    least = np.inf
    for size in (1e-3, 0.1, 1.0):
        point = model.penalty.set.project(model.start() + size * rng.normal(size=model.dimension))
        for _ in range(5):
            other = model.penalty.set.project(point + size * rng.normal(size=model.dimension))
            move = other - point
            if (length := float(move @ move)) > 1e-12:
                change = model.gradient(other) - model.gradient(point)
                least = min(least, float(change @ move) / length)
        if model.dimension <= 500:
            least = min(least, float(np.linalg.eigvalsh(model.hessian(point))[0]) + 1e-9 * model.smoothness)
    return least


def _by_segments(instance: Instance) -> float:
    """``4 (f(u) + f(v) - 2 f((u+v)/2)) / ||u - v||^2`` over random points of the feasible set."""
    compiled = Compiled(instance.program.declare, instance.data)
    compiled.load(instance.data)
    (variable,) = compiled.declaration.variables.values()
    feasible, rng, least = instance.composite.penalty.set, np.random.default_rng(3), np.inf

    def value(point: Array) -> float:
        variable.value = point
        return float(compiled.problem.objective.value)

    for size in (0.01, 0.3, 3.0):
        for _ in range(10):
            u, v = (feasible.project(1.0 + size * rng.normal(size=variable.shape)) for _ in range(2))
            length = float(np.sum((u - v) ** 2))
            if length > 1e-9:
                least = min(least, 4 * (value(u) + value(v) - 2 * value((u + v) / 2)) / length)
    return least


def kind(subject: Subject) -> Judgment:
    """The theorem about programs of its kind."""
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
    """Complaint about a loss that is unbounded over the set that its coefficient is searched in."""
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


#: In place of a setting that is infinite, which cannot be halved.
_FINITE = 1.5


def other_settings(subject: Subject) -> Judgment:
    """Movement of weights with every number among the settings halved and doubled, one at a time.

    A bound may be right at the defaults and wrong elsewhere.
    """
    program, tried = subject.program, dict[str, list[str]]()
    assert isinstance(program, FirstStage)
    for name, value, other in _variations(program):
        few = replace(subject.search, evaluations=min(subject.search.evaluations or 60, 60))
        smaller = replace(subject, program=other, sizes=(8,), larger=(), search=few)
        # settings that nobody asked for may be hard to solve
        status, detail = movement(smaller, unsolved=noted)
        if status is CheckStatus.FAILED:
            return failed(f"{name} = {value:.4g}: movement: {detail}")
        tried.setdefault(name, []).append(f"{value:.4g}")
    text = "; ".join(f"{name} = {', '.join(values)}" for name, values in tried.items())
    text = f"{text}: nothing found" if text else "no other values were tried"
    alone = [field.name for field in fields(program) if field.name not in tried]  # type: ignore[arg-type]
    return noted(f"{text}. {', '.join(alone)}: not varied") if alone else passed(text)


def _variations(program: FirstStage) -> Iterator[tuple[str, float, FirstStage]]:
    """A setting, another value of it, and the program with that: those that can be used at all."""
    domain = check_domain(40)
    resolved = program.resolve(domain)
    for field in fields(program):  # type: ignore[arg-type]
        value = getattr(resolved, field.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for other in (_FINITE,) if math.isinf(value) else (value / 2, 2 * value) if value else (0.5,):
            try:
                changed: FirstStage = replace(program, **{field.name: other})  # type: ignore[type-var]
                changed.stability(check_universe(domain, 40))
            except (Dp2ermError, TypeError, ValueError):
                continue  # a setting that the program refuses
            yield field.name, other, changed


#: Every check by name, with the programs that it concerns.
CHECKS: dict[str, tuple[Check, type[Program]]] = {
    "kind": (kind, FirstStage),
    "declaration": (declaration, Program),
    "movement": (movement, FirstStage),
    "audit": (short_audit, FirstStage),
    "solver agreement": (agreement, Program),
    "feasibility": (feasibility, Program),
    "strong convexity": (strong_convexity, Program),
    "declaration and model": (model_and_declaration, Program),
    "balance": (balance, FirstStage),
    "certified by design": (certified_in_advance, Program),
    "other settings": (other_settings, FirstStage),
}
#: The check that is run once, beside the first example.
BESIDE = "other settings"


def checks_of(cls: type[Program], *, first: bool = False) -> dict[str, Check]:
    """All that a program of this class is examined by at each example of its settings, or at the first."""
    concerned = {name: check for name, (check, base) in CHECKS.items() if issubclass(cls, base)}
    return {name: check for name, check in concerned.items() if first or name != BESIDE}
