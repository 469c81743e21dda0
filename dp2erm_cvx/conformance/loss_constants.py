"""Constants of the loss that sets noise (Theorems 1, 2 and 9), and of what certificates rest on, searched."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np

from dp2erm_cvx.audit.search import remembered
from dp2erm_cvx.conformance import samples
from dp2erm_cvx.conformance.objective import points_of
from dp2erm_cvx.conformance.search import Finding, Region, Report, Search, check_second_stage, record_domain
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.program import (
    ConvexSet,
    PrivateFirstStage,
    SecondStage,
    WeightedLeastSquares,
    WeightedMarginLoss,
)
from dp2erm_cvx.program.stage import smooth_of

#: Records of the datasets whose weight is all on the one that is searched for, and the share of the points.
_SIZES = ((1, 1.0), (6, 0.25))
_STEP = 1e-4
#: Differences of gradients over such a step are good to about this much of the largest curvature.
_ROUNDING = 1e-6

#: What is perturbed: a second stage with its weights, or a first stage that weighs all records alike.
_Perturbed = SecondStage | PrivateFirstStage


def loss_constants(program: _Perturbed, domain: Domain, evaluations: int, seed: int) -> Report:
    """Of a resolved program, for a record alone and for one among others.

    In a second stage these have no weight. Raises CalibrationError where the gradient is unbounded.
    """
    own, universe = isinstance(program, SecondStage), samples.check_universe(domain)
    if isinstance(program, SecondStage):
        declared = program.constants(universe)
    else:
        # theta_bound is what a budget is split by: it sets no noise
        declared = dataclasses.replace(program.loss_constants(universe), theta_bound=None)
    region = record_domain(samples.N_FEATURES, domain.features_bound, domain.outcome_bound if own else None)
    parameters = _parameters(program, domain, declared.n_parameters, region.vertices[0])
    findings: list[Finding] = []
    for n, share in _SIZES:
        model = _of_record(program, domain, n)

        def gradient(theta: Array, record: Array, n: int = n, model: _OfRecord = model) -> Array:
            total = model(record).gradient(theta) - model(record).ridge * theta
            return total / n if own else total

        def trace(theta: Array, record: Array, n: int = n, model: _OfRecord = model) -> float:
            # of the mean record, less what a large ridge leaves of rounding
            ridge = len(theta) * model(record).ridge * (1 + 1e-15)
            return (float(np.trace(model(record).hessian(theta))) - ridge) / n

        findings += check_second_stage(
            region,
            parameters,
            gradient,
            # the norm of a sum of gradients is no record's own, a difference of two sums is
            declared
            if own or n == 1
            else dataclasses.replace(declared, gradient_bound=None, saturation=None, box=None),
            hessian_trace=trace,
            evaluations=max(int(share * evaluations), 20),
            seed=seed,
        ).findings
    search = Search(max(evaluations // 4, 20), seed)
    for constant, bound, value in _row_bounds(program, domain):
        search.add(constant, bound, value, (region,))
    return Report(_largest([*findings, *search.report().findings]), search.report().searched)


#: The model at a record.
_OfRecord = Callable[[Array], Composite]


def _parameters(program: _Perturbed, domain: Domain, p: int, record: Array) -> Region:
    """Theta, or the set of coefficients."""
    model = _model(program, samples.one_record(domain, record))
    within = program.feasible(domain) if isinstance(program, SecondStage) else model.penalty.set
    size = within.norm_bound(p) if isinstance(within, ConvexSet) else math.inf
    return Region(p, within.project, size / math.sqrt(p) if math.isfinite(size) else 10.0)


def _of_record(program: _Perturbed, domain: Domain, n: int) -> _OfRecord:
    return remembered(lambda record: _model(program, _beside(samples.one_record(domain, record), n)))


def _model(program: _Perturbed, records: Records) -> Composite:
    """Without noise; in a second stage with all weight on the first record."""
    if isinstance(program, PrivateFirstStage):
        none = np.zeros(smooth_of(program.instance(records)).dimension)
        return smooth_of(program.perturbed(records, 0.0, none))
    weights = np.zeros(records.n_samples)
    weights[0] = records.n_samples
    return smooth_of(program.instance(records, weights, gamma=0.0))


def _beside(record: Records, n: int) -> Records:
    """A record in place of the first of n others, or alone."""
    if n == 1:
        return record
    domain, others = record.domain, samples.standard_records(n)
    X = np.vstack([record.covariates, others.covariates[1:]])
    return domain.records(X, np.r_[record.a, others.a[1:]], np.r_[record.y, others.y[1:]])


def _largest(findings: list[Finding]) -> tuple[Finding, ...]:
    """Of every constant the finding that is the largest part of what is declared."""
    largest: dict[str, Finding] = {}
    for finding in findings:
        kept = largest.setdefault(finding.constant, finding)
        if finding.ratio > kept.ratio:
            largest[finding.constant] = finding
    return tuple(largest.values())


def _row_bounds(program: _Perturbed, domain: Domain) -> Iterator[tuple[str, float, Callable[[Array], float]]]:
    """Bounds that the public bound on the numerical error, and Theorems 7 and 8, take over."""
    if isinstance(program, WeightedMarginLoss):
        bounds = program.row_bounds(samples.check_universe(domain))
        rows = remembered(lambda record: program.rows(samples.one_record(domain, record)))
        yield "row_bounds norm", bounds.norm, lambda d: norm(rows(d).Z)
        yield "row_bounds offset", max(map(abs, bounds.offset)), lambda d: norm(rows(d).offsets)
        yield "row_bounds factor", bounds.factor[1], lambda d: norm(rows(d).times(None))
    if isinstance(program, WeightedLeastSquares):
        declared = program.loss_constants(samples.check_universe(domain))
        design = remembered(lambda record: program.design(samples.one_record(domain, record)))
        if declared.covariate_bound is not None:
            yield "covariate_bound", declared.covariate_bound, lambda d: norm(design(d)[0])
        if declared.response_bound is not None:
            yield "response_bound", declared.response_bound, lambda d: norm(design(d)[1])
        if declared.is_mean:
            yield "is_mean (x = 1)", 0.0, lambda d: norm(design(d)[0] - 1.0)


def norm(values: Array) -> float:
    """Of all entries, as a plain float."""
    return float(np.linalg.norm(values))


def undeclared_curvature(program: _Perturbed, domain: Domain, seed: int) -> str:
    """What is wrong about mu_R, which is credited against gamma, or nothing.

    With gamma = 0 and all weight on one record the loss curves in few directions: what is left in the others
    is the regularizer's, and no more may be declared.
    """
    declared = program.loss_constants(samples.check_universe(domain)).strong_convexity
    if declared == 0.0:
        return ""
    for model, n in _lonely(program, domain, seed):
        for theta in points_of(model, seed):
            least = min(_curvatures(model, theta)) / n
            if not least >= declared * (1 - _ROUNDING) - _ROUNDING * model.smoothness / n:
                return (
                    f"strong_convexity (mu_R) is declared {declared:.4g}, and with gamma = 0 and all "
                    f"weight on one record the curvature is {max(least, 0.0):.4g}: the regularizer's "
                    "counts, not the loss's"
                )
    return ""


def turning_gradient(program: _Perturbed, domain: Domain, seed: int) -> str:
    """What is wrong about a declared ``is_margin``, or nothing: gradients of one record at several theta."""
    if not program.loss_constants(samples.check_universe(domain)).is_margin:
        return ""
    for model, n in _lonely(program, domain, seed):
        found = [(model.gradient(theta) - model.ridge * theta) / n for theta in points_of(model, seed)]
        longest = max(found, key=norm)
        size = norm(longest)
        for gradient in found if size else []:
            beside = norm(gradient - longest * float(gradient @ longest) / size**2)
            if not beside <= _ROUNDING * (size + model.smoothness / n):
                return "is_margin is declared, and gradients of one record are not all in one direction"
    return ""


def _lonely(program: _Perturbed, domain: Domain, seed: int) -> Iterator[tuple[Composite, int]]:
    """Models of datasets whose first record has all weight, with their number of records."""
    region = record_domain(samples.N_FEATURES, domain.features_bound, domain.outcome_bound)
    rng = np.random.default_rng([seed, 19])
    for record in (*map(region.project, region.vertices[::5]), *(region.draw(rng) for _ in range(4))):
        yield _model(program, samples.one_record(domain, record)), 1
    if not isinstance(program, PrivateFirstStage):  # which weighs all records alike
        for records in (samples.standard_records(6), samples.edge_records()["duplicate rows"]):
            yield _model(program, records), records.n_samples


def _curvatures(model: Composite, theta: Array) -> Iterator[float]:
    """Least eigenvalue of the Hessian, and the same by differences of the gradient along its directions."""
    values, directions = np.linalg.eigh(model.hessian(theta))
    yield float(values[0])
    for direction in directions.T:
        step = _STEP * direction
        change = model.gradient(theta + step) - model.gradient(theta - step)
        yield float(change @ direction) / (2 * _STEP)
