"""What is solved: the objective as model and declaration have it, solvers, certificates, and balance."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.conformance.subject import (
    Check,
    Judgment,
    Subject,
    check_domain,
    check_universe,
    edge_records,
    failed,
    noted,
    passed,
    standard_records,
)
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CalibrationError, CertificateError, InfeasibleError, SolverError
from dp2erm_cvx.program import FirstStage, Instance, PrivateFirstStage, Program, SecondStage
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.solve import Solution, solve

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
    """Whether the bound is that of any weights of sum n."""
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


#: What is examined here, with the programs that it concerns.
CHECKS: dict[str, tuple[Check, type[Program]]] = {
    "solver agreement": (agreement, Program),
    "feasibility": (feasibility, Program),
    "strong convexity": (strong_convexity, Program),
    "declaration and model": (model_and_declaration, Program),
    "balance": (balance, FirstStage),
    "certified by design": (certified_in_advance, Program),
}
