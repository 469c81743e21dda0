"""What is solved: whether solvers agree, certificates are known in advance, and weights balance."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.conformance.outcome import Judgment, failed, noted, passed
from dp2erm_cvx.conformance.samples import check_domain, check_universe, edge_records, standard_records
from dp2erm_cvx.conformance.subject import Subject, check_named
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CalibrationError, CertificateError, InfeasibleError, SolverError
from dp2erm_cvx.program import FirstStage, Instance, PrivateFirstStage, SecondStage
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.solve import Solution, solve

#: What a solve raises that ends without a certified solution.
UNSOLVED = (InfeasibleError, SolverError, CertificateError)
#: Weights may miss their sum by this share.
_SUM = 1e-12
#: Records whose balance is compared, and whose certificate is asked for in advance.
_BALANCED, _REACHED = 200, 400


@check_named("solver agreement")
def agreement(subject: Subject) -> Judgment:
    """Every solver, polished or not; two solutions are no farther apart than their radii allow."""
    instance = subject.bind(standard_records())
    found: list[tuple[str, Solution]] = []
    for name in _solvers_for(instance):
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


@check_named("feasibility")
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


@check_named("certified by design")
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


@check_named("balance")
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


def _solvers_for(instance: Instance) -> list[str]:
    """Every solver that applies: conic ones always, OSQP for QPs, first-order and Newton with a model."""
    names = ["clarabel", "scs"]
    if Compiled(instance.program.declare, instance.data).problem.is_qp():
        names.append("osqp")
    if instance.model is not None:
        names += ["newton", "projected_gradient"]
    return names
