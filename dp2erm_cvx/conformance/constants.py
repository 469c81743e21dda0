"""Declared constants searched for violations over the record domain."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.conformance.coefficient_constants import coefficient_constants
from dp2erm_cvx.conformance.loss_constants import loss_constants
from dp2erm_cvx.conformance.margins import wrong_loss, wrong_margin
from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.regularizer import undeclared_curvature
from dp2erm_cvx.conformance.samples import (
    N_FEATURES,
    check_domain,
    check_universe,
    edge_records,
    neighbors,
    other_domains,
)
from dp2erm_cvx.conformance.separable_constants import separable_constants
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.program import (
    FirstStage,
    KernelFirstStage,
    PrivateFirstStage,
    Program,
    SecondStage,
    SeparableFirstStage,
    WeightedMarginLoss,
)
from dp2erm_cvx.solve import solve
from dp2erm_cvx.stability import Report, ball, check_kernel

_CHECK = "constants"


def constants(subject: Subject) -> Outcome:
    """Part of the theorem that a program states itself: diameters, ranges, kernel bounds, loss constants.

    In universes of two scales, because a formula may be right at one of them only.
    """
    domain = check_domain()
    try:
        program = subject.program.resolve(domain)
        if wrong := _wrong(program, subject, domain):
            return failed(_CHECK, wrong)
        report = _searched(program, domain, subject.evaluations, subject.seed)
    except CalibrationError as error:
        return noted(_CHECK, str(error))
    if report is None:
        return passed(_CHECK, "none that are the program's own: its theorem derives them from the domain")
    if wrong := _refuted(report):
        return failed(_CHECK, wrong)
    if wrong := _at_another_scale(subject):
        return failed(_CHECK, wrong)
    told = ", ".join(f"{finding.constant} {finding.ratio:.0%}" for finding in report.findings)
    return passed(_CHECK, f"found of declared: {told}")


def _at_another_scale(subject: Subject) -> str:
    # an error of scale is found at once: a part of the points will do
    few = max(subject.evaluations // 6, 20)
    for domain in other_domains():
        try:
            report = _searched(subject.program.resolve(domain), domain, few, subject.seed)
        except (CalibrationError, DeclarationError):
            continue  # a program may be declared for one scale
        if report is not None and (wrong := _refuted(report)):
            return f"{wrong}, in a domain of M = {domain.covariate_bound:g}"
    return ""


def _searched(program: Program, domain: Domain, evaluations: int, seed: int) -> Report | None:
    if isinstance(program, SecondStage):
        return loss_constants(program, domain, evaluations, seed)
    if isinstance(program, SeparableFirstStage):
        return separable_constants(program, domain, evaluations, seed)
    if isinstance(program, KernelFirstStage):
        kernel = program.kernel
        return check_kernel(
            ball(N_FEATURES, domain.features_bound),
            lambda x, z: float(kernel.cross(x[None], z[None])[0, 0]),
            kernel.bound(domain.features_bound),
            signed=kernel.signed,
            evaluations=evaluations,
            seed=seed,
        )
    if isinstance(program, PrivateFirstStage):
        return coefficient_constants(program, domain, evaluations, seed)
    assert isinstance(program, FirstStage)
    return None


def _refuted(report: Report) -> str:
    if not report.violations:
        return ""
    worst = max(report.violations, key=lambda finding: finding.ratio)
    return f"{worst.constant} is declared {worst.declared:.4g}, found {worst.found:.4g}"


def _wrong(program: Program, subject: Subject, domain: Domain) -> str:
    """What is wrong apart from the sizes of constants."""
    if isinstance(program, SeparableFirstStage):
        radius = program.constants(domain).radius
        return wrong_margin(program, domain, radius) or _beyond_radius(program)
    if isinstance(program, WeightedMarginLoss):
        bounds, p = program.row_bounds(check_universe(domain)), subject.n_parameters(domain)
        reach = bounds.offset + bounds.norm * program.feasible(domain).norm_bound(p)
        if wrong := wrong_loss(program.loss, min(reach, 30.0)):
            return wrong
    if isinstance(program, SecondStage | PrivateFirstStage):
        return undeclared_curvature(program, domain, subject.seed)
    return ""


def _beyond_radius(program: SeparableFirstStage) -> str:
    """A fitted coefficient beyond the declared radius."""
    pairs = neighbors(10, 25, seed=1)
    for records in [*edge_records().values(), *(one for pair in pairs for one in pair)]:
        found = solve(program.instance(records), throw=False)
        length, declared = float(np.linalg.norm(found.point)), program.constants(records.domain).radius
        if length - found.certificate.radius > declared * (1 + 1e-9):
            return f"radius is declared {declared:.4g}, a coefficient is {length:.4g} long"
    return ""
