"""Declared constants searched for violations over the record domain."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.conformance.margins import wrong_loss, wrong_margin
from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import N_FEATURES, check_domain, edge_records, neighbors
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.program import (
    FirstStage,
    KernelFirstStage,
    LossConstants,
    SecondStage,
    SeparableFirstStage,
    WeightedMarginLoss,
)
from dp2erm_cvx.solve import solve
from dp2erm_cvx.stability import (
    Region,
    Report,
    Search,
    ball,
    check_kernel,
    check_second_stage,
    check_separable,
)
from dp2erm_cvx.stability import record_domain as region_of

_CHECK = "constants"
_EVALUATIONS = 600


def constants(subject: Subject) -> Outcome:
    """Part of the theorem that a program states itself: diameters, ranges, kernel bounds, loss constants."""
    program = subject.program
    domain = check_domain()
    try:
        if isinstance(program, WeightedMarginLoss):
            bounds, p = program.row_bounds(domain, N_FEATURES), subject.n_parameters(domain)
            reach = bounds.offset + bounds.norm * program.feasible(domain).norm_bound(p)
            if wrong := wrong_loss(program.resolve(domain).loss, min(reach, 30.0)):
                return failed(_CHECK, wrong)
        if isinstance(program, SecondStage):
            return _judged(_loss(program.resolve(domain), domain, subject))
        assert isinstance(program, FirstStage)
        resolved = program.resolve(domain)
        if isinstance(resolved, SeparableFirstStage):
            return _reached(resolved) or _judged(_separable(resolved, domain, subject.seed))
        if isinstance(resolved, KernelFirstStage):
            kernel, bound = resolved.kernel, resolved.kernel.bound(domain.features_bound)
            found = check_kernel(
                ball(N_FEATURES, domain.features_bound),
                lambda x, z: float(kernel.cross(x[None], z[None])[0, 0]),
                bound,
                signed=kernel.signed,
                evaluations=_EVALUATIONS,
                seed=subject.seed,
            )
            return _judged(found)
    except CalibrationError as error:
        return noted(_CHECK, str(error))
    return noted(_CHECK, "none that are the program's own: its theorem derives them from the domain")


def _judged(report: Report) -> Outcome:
    if report.violations:
        worst = max(report.violations, key=lambda finding: finding.ratio)
        return failed(_CHECK, f"{worst.constant} is declared {worst.declared:.4g}, found {worst.found:.4g}")
    told = ", ".join(f"{finding.constant} {finding.ratio:.0%}" for finding in report.findings)
    return passed(_CHECK, f"found of declared: {told}")


def _reached(program: SeparableFirstStage) -> Outcome | None:
    """What is wrong about a margin, or a fitted coefficient beyond the declared radius."""
    pairs = neighbors(10, 25, seed=1)
    wrong = wrong_margin(program, check_domain(), program.constants(check_domain()).radius)
    if wrong:
        return failed(_CHECK, wrong)
    for records in [*edge_records().values(), *(one for pair in pairs for one in pair)]:
        found = solve(program.instance(records), throw=False)
        length, declared = float(np.linalg.norm(found.point)), program.constants(records.domain).radius
        if length - found.certificate.radius > declared * (1 + 1e-9):
            return failed(_CHECK, f"radius is declared {declared:.4g}, a coefficient is {length:.4g} long")
    return None


def _separable(program: SeparableFirstStage, domain: Domain, seed: int) -> Report:
    declared = program.constants(domain)

    def row(record: Array) -> tuple[Array, Array]:
        one = _records(domain, record)
        z = program.rows(one)[0]
        linear = program.linear_terms(one)
        return z, np.zeros(len(z)) if linear is None else linear[0]

    def weight_row(record: Array) -> Array:
        rows = program.weight_rows(_records(domain, record))
        return row(record)[0] if rows is None else rows[0]

    def grad_psi(lam: Array, record: Array) -> Array:
        z, linear = row(record)
        return float(program.loss.slope(np.array([z @ lam]))[0]) * z + linear

    def log_weight(lam: Array, record: Array) -> float:
        return float(program.log_weight.log(np.array([weight_row(record) @ lam]))[0])

    region = region_of(N_FEATURES, domain.features_bound)
    k = len(row(np.zeros(N_FEATURES + 1))[0])
    found = check_separable(
        region,
        ball(k, declared.radius),
        grad_psi,
        log_weight,
        gradient_diameter=declared.gradient_diameter,
        log_weight_diameter=declared.log_weight_diameter,
        log_weight_range=declared.log_weight_range,
        clipped=math.isfinite(getattr(program.log_weight, "trim", math.inf)),
        evaluations=_EVALUATIONS,
        seed=seed,
    )
    # certificates and the public bound on the numerical error divide by these
    search = Search(_EVALUATIONS, seed)
    reach = max(program.row_bound(domain), program.weight_row_bound(domain)) * declared.radius
    margins = ball(1, reach if 0.0 < reach < 50.0 else 50.0)

    def steepness(s: Array, t: Array) -> float:
        far, change = float(abs(s[0] - t[0])), program.log_weight.log(s) - program.log_weight.log(t)
        return float(abs(change[0])) / far if far > 1e-6 else 0.0

    search.add("lipschitz", program.log_weight.lipschitz, steepness, (margins, margins), 1e-6)
    search.add("row_bound", program.row_bound(domain), lambda d: _norm(row(d)[0]), (region,))
    search.add(
        "weight_row_bound", program.weight_row_bound(domain), lambda d: _norm(weight_row(d)), (region,)
    )
    search.add("linear_bound", program.linear_bound(domain), lambda d: _norm(row(d)[1]), (region,))
    for fact, declared_size, derivative in (
        ("largest_slope", program.loss.largest_slope(reach), program.loss.slope),
        ("largest_curvature", program.loss.largest_curvature(reach), program.loss.curvature),
    ):
        search.add(fact, declared_size, lambda s, of=derivative: float(abs(of(s)[0])), (margins,))
    return Report((*found.findings, *search.report().findings), found.searched)


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))


def _loss(program: SecondStage, domain: Domain, subject: Subject) -> Report:
    declared: LossConstants = program.constants(domain, N_FEATURES)
    theta_set, p = program.feasible(domain), declared.n_parameters
    size = theta_set.norm_bound(p)
    scale = size / math.sqrt(p) if math.isfinite(size) else 10.0

    def at(theta: Array, record: Array) -> tuple[Array, float]:
        instance = program.instance(_records(domain, record), np.ones(1), gamma=0.0)
        model = instance.model or instance.smooth
        assert model is not None
        gradient = model.gradient(theta) - model.ridge * theta
        return gradient, float(np.trace(model.hessian(theta))) - p * model.ridge

    return check_second_stage(
        region_of(N_FEATURES, domain.features_bound, domain.outcome_bound),
        Region(p, theta_set.project, scale),
        lambda theta, record: at(theta, record)[0],
        declared,
        hessian_trace=lambda theta, record: at(theta, record)[1],
        evaluations=_EVALUATIONS,
        seed=subject.seed,
    )


def _records(domain: Domain, record: Array) -> Records:
    """One record (x, a) or (x, a, y - center)."""
    y = record[N_FEATURES + 1] if len(record) > N_FEATURES + 1 else 0.0
    return domain.records(record[None, :N_FEATURES], [int(record[N_FEATURES])], [y])
