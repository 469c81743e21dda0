"""Declared constants searched for violations over the record domain."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dp2erm_cvx.audit.search import remembered
from dp2erm_cvx.conformance import samples
from dp2erm_cvx.conformance.loss_constants import (
    loss_constants,
    norm,
    turning_gradient,
    undeclared_curvature,
)
from dp2erm_cvx.conformance.outcome import Judgment, failed, noted, passed
from dp2erm_cvx.conformance.search import Report, Search, ball, check_kernel, record_domain
from dp2erm_cvx.conformance.subject import Subject, check_named
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.program import (
    FirstStage,
    Kernel,
    PrivateFirstStage,
    PrivateSeparable,
    Program,
    SecondStage,
    SeparableFirstStage,
)
from dp2erm_cvx.program.declared import DeclaredProgram
from dp2erm_cvx.program.schemes.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.schemes.margin_stage import MarginFirstStage
from dp2erm_cvx.program.stage import smooth_of

_Row = Callable[[Array], tuple[Array, Array]]


@check_named("constants")
def constants(subject: Subject) -> Judgment:
    """Part of the theorem that a program states itself: diameters, ranges, kernel bounds, loss constants.

    In universes of two scales, because a formula may be right at one of them only.
    """
    domain = samples.check_domain()
    try:
        program = subject.program.resolve(domain)
        if wrong := _wrong(program, subject, domain):
            return failed(wrong)
        report = _searched(program, domain, subject.evaluations, subject.seed)
    except CalibrationError as error:
        return noted(str(error))
    if report is None:
        return passed("derived from the declaration and the domain: nothing to check")
    if wrong := _refuted(report):
        return failed(wrong)
    if wrong := _at_another_scale(subject):
        return failed(wrong)
    text = ", ".join(f"{finding.constant} {finding.ratio:.0%}" for finding in report.findings)
    return passed(f"found of declared: {text}")


def _at_another_scale(subject: Subject) -> str:
    # an error of scale is found at once: a part of the points will do
    few = max(subject.evaluations // 6, 20)
    for domain in samples.other_domains():
        try:
            report = _searched(subject.program.resolve(domain), domain, few, subject.seed)
        except (CalibrationError, DeclarationError):
            continue  # a program may be declared for one scale
        if report is not None and (wrong := _refuted(report)):
            return f"{wrong}, in a domain of M = {domain.covariate_bound:g}"
    return ""


def _searched(program: Program, domain: Domain, evaluations: int, seed: int) -> Report | None:
    if isinstance(program, SecondStage | PrivateFirstStage):
        if _is_derived(program):
            return None
        found = loss_constants(program, domain, evaluations, seed)
        if isinstance(program, PrivateSeparable):
            return _joined(found, _row_sizes(program, domain, evaluations, seed))
        return found
    if isinstance(program, SeparableFirstStage):
        return None if _is_derived(program) else _row_sizes(program, domain, evaluations, seed)
    if isinstance(program, KernelFirstStage):
        return _kernel_constants(program.kernel, domain.features_bound, evaluations, seed)
    assert isinstance(program, FirstStage)
    return None


@samples.shared
def _kernel_constants(kernel: Kernel, features_bound: float, evaluations: int, seed: int) -> Report:
    return check_kernel(
        ball(samples.N_FEATURES, features_bound),
        lambda x, z: float(kernel.cross(x[None], z[None])[0, 0]),
        kernel.bound(features_bound),
        signed=kernel.negative_within(features_bound),
        evaluations=evaluations,
        seed=seed,
    )


def _refuted(report: Report) -> str:
    if not report.violations:
        return ""
    worst = max(report.violations, key=lambda finding: finding.ratio)
    return f"{worst.constant} is declared {worst.declared:.4g}, found {worst.found:.4g}"


def _wrong(program: Program, subject: Subject, domain: Domain) -> str:
    """What is wrong apart from the sizes of constants."""
    if isinstance(program, SeparableFirstStage):
        return _wrong_rows(program)
    if isinstance(program, PrivateSeparable) and (
        wrong := _wrong_rows(program) or _larger_set(program, domain)
    ):
        return wrong
    if isinstance(program, SecondStage | PrivateFirstStage):
        return undeclared_curvature(program, domain, subject.seed) or turning_gradient(
            program, domain, subject.seed
        )
    return ""


def _is_derived(program: Program) -> bool:
    return isinstance(program, DeclaredProgram) and program.own_data() is not None


def _wrong_rows(program: MarginFirstStage) -> str:
    records = samples.standard_records()
    Z, U = program.rows(records), program.weight_rows(records)
    known = program.n_rows(samples.check_universe(records.domain))
    if known is not None and Z.shape[1] != known:
        return f"rows have {Z.shape[1]} entries, n_rows says {known}"
    if U is not None and U.shape != Z.shape:
        return f"weight_rows have the shape {U.shape}, rows {Z.shape}"
    return ""


def _larger_set(program: PrivateSeparable, domain: Domain) -> str:
    """A coefficient may lie outside the ball that bounds the weights (Theorem 9)."""
    for records in samples.edge_records().values():
        model = smooth_of(program.instance(records))
        ball = program.ball(domain)
        if math.isinf(ball):
            return ""
        far = norm(model.penalty.set.project(np.full(model.dimension, 1e3 * ball)))
        if far > ball * (1 + 1e-9):
            return f"weights are bounded within {ball:.4g}, a coefficient may be {far:.4g} long"
    return ""


def _rows(program: MarginFirstStage, domain: Domain) -> tuple[_Row, Callable[[Array], Array]]:
    """Functions of a record: its row with its linear term, and the row of its weight."""

    @remembered
    def row(record: Array) -> tuple[Array, Array]:
        one = samples.one_record(domain, record)
        z = program.rows(one)[0]
        linear = program.linear_terms(one)
        return z, np.zeros(len(z)) if linear is None else linear[0]

    @remembered
    def weight_row(record: Array) -> Array:
        rows = program.weight_rows(samples.one_record(domain, record))
        return row(record)[0] if rows is None else rows[0]

    return row, weight_row


def _row_sizes(program: MarginFirstStage, domain: Domain, evaluations: int, seed: int) -> Report:
    """Bounds on rows, which every derived constant starts from."""
    row, weight_row = _rows(program, domain)
    region = record_domain(samples.N_FEATURES, domain.features_bound)
    search = Search(evaluations, seed)
    search.add("row_bound", program.row_bound(domain), lambda d: norm(row(d)[0]), (region,))
    search.add("weight_row_bound", program.weight_row_bound(domain), lambda d: norm(weight_row(d)), (region,))
    search.add("linear_bound", program.linear_bound(domain), lambda d: norm(row(d)[1]), (region,))
    return search.report()


def _joined(one: Report, other: Report) -> Report:
    return Report((*one.findings, *other.findings), one.searched)
