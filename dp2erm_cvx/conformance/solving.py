"""Whether solvers agree within their certificates, on ordinary and adversarial records."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import edge_records, standard_records
from dp2erm_cvx.conformance.subject import Subject, solvers_for
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CertificateError, InfeasibleError, SolverError
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import Solution, solve

#: Weights may miss their sum by this share.
_SUM = 1e-12


def agreement(subject: Subject) -> Outcome:
    """Every solver, polished or not; two solutions are no farther apart than their radii allow."""
    check, instance = "solver agreement", subject.bind(standard_records())
    found: list[tuple[str, Solution]] = []
    for name in solvers_for(instance):
        for polish in (False, True):
            try:
                solution = solve(instance, solver=name, polish=polish, throw=False)
            except InfeasibleError as error:
                return failed(check, f"infeasible on ordinary records: {error}")
            except SolverError as error:
                return failed(check, str(error))
            if polish and not solution.certified:
                relative = solution.certificate.relative_radius
                return failed(check, f"{name}: relative radius {relative:.1e} is not certified")
            found.append((name, solution))
    for name, first in found:
        for other, second in found:
            allowed = first.certificate.output_radius + second.certificate.output_radius
            apart = subject.distance(first.value, second.value)
            if not apart <= allowed:
                return failed(check, f"{name} and {other} are {apart:.1e} apart, certified to {allowed:.1e}")
    largest = max(solution.certificate.relative_radius for name, solution in found[1::2])
    return passed(check, f"{', '.join(dict.fromkeys(n for n, _ in found))}; relative radius <= {largest:.1e}")


def feasibility(subject: Subject) -> Outcome:
    """Every dataset of the universe has a certified solution: a refusal would depend on private records."""
    check, first = "feasibility", isinstance(subject.program, FirstStage)
    private = bool(subject.program.relations)
    missed = []
    samples = {**edge_records(), **{f"random {seed}": standard_records(25, seed) for seed in range(5)}}
    for name, records in samples.items():
        try:
            solution = subject.solve(records)
        except (InfeasibleError, SolverError, CertificateError) as error:
            if private:
                return failed(check, f"{name}: {error}")
            missed.append(name)
            continue
        if first and (complaint := _not_weights(solution.value, records.n_samples)):
            return failed(check, f"{name}: {complaint}")
    if missed:
        return noted(
            check, f"no weights on {', '.join(missed)}: not private, whether they exist depends on data"
        )
    what = "certified, weights >= 0 with sum n" if first else "certified"
    return passed(check, f"{len(samples)} ordinary and adversarial datasets: {what}")


def _not_weights(w: Array, n: int) -> str:
    if w.shape != (n,) or not np.all(np.isfinite(w)):
        return f"weights have shape {w.shape} or are not finite"
    if np.min(w) < 0:
        return f"a weight is {np.min(w):.3g}"
    total = math.fsum(w)
    return "" if abs(total / n - 1) <= _SUM else f"weights sum to {total!r}, not {n}"
