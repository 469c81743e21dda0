"""Constants of a second stage (Theorems 1 and 2) and of what its certificate rests on, searched."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dp2erm_cvx.conformance.noise_terms import smooth_of
from dp2erm_cvx.conformance.samples import N_FEATURES, check_universe, one_record, standard_records
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.program import SecondStage, WeightedLeastSquares, WeightedMarginLoss
from dp2erm_cvx.stability import Finding, Region, Report, Search, check_second_stage, record_domain

#: Records of the datasets whose weight is all on the one that is searched for, and the share of the points.
SIZES = ((1, 1.0), (6, 0.25))


def loss_constants(program: SecondStage, domain: Domain, evaluations: int, seed: int) -> Report:
    """Of a resolved program, for a record alone and beside others that have no weight.

    Raises CalibrationError where the gradient is unbounded over Theta.
    """
    declared = program.constants(check_universe(domain))
    theta_set, p = program.feasible(domain), declared.n_parameters
    size = theta_set.norm_bound(p)
    parameters = Region(p, theta_set.project, size / math.sqrt(p) if math.isfinite(size) else 10.0)
    region = record_domain(N_FEATURES, domain.features_bound, domain.outcome_bound)
    findings: list[Finding] = []
    searched = ""
    for n, share in SIZES:
        at = _loss_of_one(program, domain, n)
        found = check_second_stage(
            region,
            parameters,
            partial(_part, at, 0),
            declared,
            hessian_trace=partial(_part, at, 1),
            evaluations=max(int(share * evaluations), 20),
            seed=seed,
        )
        findings += found.findings
        searched = searched or found.searched
    search = Search(max(evaluations // 4, 20), seed)
    for constant, bound, value in _row_bounds(program, domain):
        search.add(constant, bound, value, (region,))
    return Report(largest_of([*findings, *search.report().findings]), searched)


def largest_of(findings: list[Finding]) -> tuple[Finding, ...]:
    """Of every constant the finding that is the largest part of what is declared."""
    largest: dict[str, Finding] = {}
    for finding in findings:
        kept = largest.setdefault(finding.constant, finding)
        if finding.ratio > kept.ratio:
            largest[finding.constant] = finding
    return tuple(largest.values())


def _loss_of_one(
    program: SecondStage, domain: Domain, n: int
) -> Callable[[Array, Array], tuple[Array, float]]:
    """Gradient and trace of the Hessian of one record's loss, n - 1 others beside it."""
    others = standard_records(n) if n > 1 else None
    weights = np.zeros(n)
    weights[0] = n

    def at(theta: Array, record: Array) -> tuple[Array, float]:
        model = smooth_of(program.instance(beside(one_record(domain, record), others), weights, gamma=0.0))
        gradient = model.gradient(theta) - model.ridge * theta
        # less what a large ridge leaves of rounding
        trace = float(np.trace(model.hessian(theta))) - len(theta) * model.ridge * (1 + 1e-15)
        return gradient / n, trace / n

    return at


def _part(at: Callable[[Array, Array], tuple[Array, float]], part: int, theta: Array, record: Array) -> Any:
    return at(theta, record)[part]


def beside(record: Records, others: Records | None) -> Records:
    """A record in place of the first of others, or alone."""
    if others is None:
        return record
    domain = record.domain
    X = np.vstack([record.covariates, others.covariates[1:]])
    return domain.records(X, np.r_[record.a, others.a[1:]], np.r_[record.y, others.y[1:]])


def _row_bounds(
    program: SecondStage, domain: Domain
) -> Iterator[tuple[str, float, Callable[[Array], float]]]:
    """Bounds that the public bound on the numerical error, and Theorems 7 and 8, take over."""
    declared = program.loss_constants(check_universe(domain))
    if isinstance(program, WeightedMarginLoss):
        bounds, margin = program.row_bounds(check_universe(domain)), program
        yield "row_bounds norm", bounds.norm, lambda d: _norm(margin.rows(one_record(domain, d)).Z)
        yield "row_bounds offset", bounds.offset, lambda d: _norm(margin.rows(one_record(domain, d)).offset)
        yield "row_bounds factor", bounds.factor, lambda d: _norm(margin.rows(one_record(domain, d)).factor)
    if isinstance(program, WeightedLeastSquares):
        squares = program
        if declared.covariate_bound is not None:
            yield (
                "covariate_bound",
                declared.covariate_bound,
                lambda d: _norm(squares.design(one_record(domain, d))[0]),
            )
        if declared.response_bound is not None:
            yield (
                "response_bound",
                declared.response_bound,
                lambda d: _norm(squares.design(one_record(domain, d))[1]),
            )
        if declared.is_mean:
            yield "is_mean (x = 1)", 0.0, lambda d: _norm(squares.design(one_record(domain, d))[0] - 1.0)


def _norm(values: Array) -> float:
    return float(np.linalg.norm(values))
