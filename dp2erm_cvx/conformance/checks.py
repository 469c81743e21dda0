"""Checks of a program: what its author states by hand is searched for violations, the rest is derived."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from dp2erm_cvx.audit import Quantity, SearchPlan, audit_stability
from dp2erm_cvx.audit.movement import movements
from dp2erm_cvx.audit.surrogates import Surrogate
from dp2erm_cvx.conformance.subject import (
    Check,
    CheckStatus,
    Judgment,
    Subject,
    check_universe,
    edge_records,
    neighbors,
    standard_records,
)
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import (
    CalibrationError,
    CertificateError,
    DataError,
    Dp2ermError,
    InfeasibleError,
    SolverError,
)
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, Program, SecondStage
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.solve import Solution, solve
from dp2erm_cvx.universe import Universe

passed, failed, noted = CheckStatus.PASSED, CheckStatus.FAILED, CheckStatus.NOTED

#: What a solve raises that ends without a certified solution.
UNSOLVED = (InfeasibleError, SolverError, CertificateError)
#: Weights may miss their sum by this share.
_SUM = 1e-12
#: Records whose balance is compared, and whose certificate is asked for in advance.
_BALANCED, _REACHED = 200, 400


def _derived(detail: str = "") -> Judgment:
    return CheckStatus.SKIPPED, "derived: nothing to check" + (f" ({detail})" if detail else "")


def declaration(subject: Subject) -> Judgment:
    """A theorem and finite constants, from public numbers: where they are derived no more is to check."""
    program, universe = subject.program, check_universe()
    try:
        text = "Theorems 1 and 2"
        if isinstance(program, SecondStage):
            program.constants(universe)
        if isinstance(program, PrivateFirstStage):
            program.resolve(universe.domain).loss_constants(universe)
        if isinstance(program, FirstStage):
            bound = program.stability(universe)
            text = f"V = {bound.V:.4g} at n = {universe.n_samples} by {bound.theorem}"
    except CalibrationError as error:
        return (failed if program.relations else noted)(f"no bound: {error}")
    return _derived(text) if subject.derived else passed(text)


def assumed(subject: Subject) -> Judgment:
    """Assumption that no program can be examined for: that a function of one record remembers no other."""
    own = subject.program.own_data()
    if own is None:
        return noted("the bound as its author states it, and functions of one record alone")
    return noted(f"{', '.join(own)} is made record by record") if own else _derived("no data of its own")


def feasibility(subject: Subject) -> Judgment:
    """Every dataset of the universe has a certified solution: a refusal would depend on private records."""
    first, error = isinstance(subject.program, FirstStage), _public_error(subject.program)
    if error is not None and math.isfinite(error):
        return _derived("every dataset is certified by design")
    private = bool(subject.program.relations)
    missed = []
    samples = _samples()
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
    program = subject.program
    if isinstance(program, FirstStage) and _covers_all_weights(program, _REACHED):
        return passed("V = 2n covers all weights of sum n: they need no certificate")
    error = _public_error(program)
    if error is None or not math.isfinite(error):
        return noted("no public bound on the numerical error: releases are conditional")
    return passed(f"error at most {error:.1e} on every dataset, at n = {_REACHED}")


def _public_error(program: Program) -> float | None:
    """Public bound of weights or of a parameter; None or ``inf`` where nothing is sure."""
    universe = check_universe(_REACHED)
    domain, resolved = universe.domain, program.resolve(universe.domain)
    if isinstance(resolved, SecondStage | PrivateFirstStage):
        return resolved.certified_radius(universe, domain.covariate_bound**2, 0.0)
    assert isinstance(resolved, FirstStage)
    return resolved.certified_error(universe)


def _covers_all_weights(program: FirstStage, n_samples: int) -> bool:
    """True if the bound is that of any weights of sum n."""
    try:
        return program.stability(check_universe(n_samples)).V >= 2 * n_samples
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


def eigenvalue_floor(subject: Subject) -> Judgment:
    """The stated floor of every argument of log_det, at the weights of ordinary and adversarial datasets."""
    floor, least = getattr(subject.program, "eigenvalue_floor", None), math.inf
    if floor is None:
        return _derived("none is stated")
    rng = np.random.default_rng(subject.seed)
    for records in _samples().values():
        instance = subject.bind(records)
        compiled = Compiled(instance.program.declare, instance.data)
        compiled.load(instance.data)
        (w,) = compiled.declaration.variables.values()
        atoms = [e for e in _parts(compiled.declaration.objective) if type(e).__name__ == "log_det"]
        for _ in range(10):  # near corners: the least eigenvalue is concave in the weights
            w.value = instance.composite.penalty.set.project(records.n_samples * rng.normal(size=w.size))
            least = min([least, *(float(np.linalg.eigvalsh(e.args[0].value)[0]) for e in atoms)])
    text = f"stated {floor:.4g}, least eigenvalue found {least:.4g}"
    return passed(text) if least >= floor * (1 - 1e-9) else failed(text)


def _parts(e: Any) -> Iterator[Any]:
    yield e
    for part in e.args:
        yield from _parts(part)


def _samples() -> dict[str, Records]:
    return {**edge_records(), **{f"random {seed}": standard_records(25, seed) for seed in range(5)}}


#: Records of the datasets that the audit searches.
_AUDITED = 40


def movement(subject: Subject, unsolved: CheckStatus = failed) -> Judgment:
    """V and the largest weight over certified solves of random and clustered neighbors, with flips."""
    if subject.derived:
        return _derived()
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
    largest, pairs, bound, compared = 0.0, 0, None, set[int]()
    larger = subject.larger[:1] if subject.paired else subject.larger
    for n in (*subject.sizes, *larger):
        bound = program.stability(check_universe(n))
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
    text = f"{pairs} pairs, n = {min(compared)} to {max(compared):,}"
    return passed(f"{text}: V at most {largest:.0%} of the bound of {bound.theorem}")


def _universal(bound: StabilityBound, n: int) -> bool:
    return bound.V >= 2 * n and bound.w_max >= n


def short_audit(subject: Subject) -> Judgment:
    """A short stability audit: neighbors searched for, not drawn."""
    program = subject.program
    assert isinstance(program, FirstStage)
    if subject.derived:
        return _derived()
    universe = check_universe(_AUDITED)
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
    """Fewer neighbors where each takes two solves in full, or as many small ones as a kink does."""
    evaluations, program = subject.search.evaluations, subject.program
    assert isinstance(program, FirstStage)
    exact = Surrogate.of(program.resolve(universe.domain), universe).exact
    slow = 40 if exact else 8 if _public_error(program) is None else 1
    if evaluations is None or slow == 1:
        return subject.search
    return replace(subject.search, evaluations=max(evaluations // slow, min(evaluations, 40)))


#: In place of a setting that is infinite, which cannot be halved.
_FINITE = 1.5


def other_settings(subject: Subject) -> Judgment:
    """Movement of weights with every number among the settings halved and doubled, one at a time.

    A bound may be right at the defaults and wrong elsewhere.
    """
    program, tried = subject.program, dict[str, list[str]]()
    assert isinstance(program, FirstStage)
    if subject.derived:
        return _derived()
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
    universe = check_universe(40)
    resolved = program.resolve(universe.domain)
    for field in fields(program):  # type: ignore[arg-type]
        value = getattr(resolved, field.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for other in (_FINITE,) if math.isinf(value) else (value / 2, 2 * value) if value else (0.5,):
            try:
                changed: FirstStage = replace(program, **{field.name: other})  # type: ignore[type-var]
                changed.stability(universe)
            except (Dp2ermError, TypeError, ValueError):
                continue  # a setting that the program refuses
            yield field.name, other, changed


#: Every check by name, with the programs that it concerns.
CHECKS: dict[str, tuple[Check, type[Program]]] = {
    "declaration": (declaration, Program),
    "assumed": (assumed, Program),
    "movement": (movement, FirstStage),
    "audit": (short_audit, FirstStage),
    "eigenvalue floor": (eigenvalue_floor, WeightsProgram),
    "feasibility": (feasibility, Program),
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
