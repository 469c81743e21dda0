"""Constants of the loss that a private first stage is calibrated by, searched."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import numpy as np

from dp2erm_cvx.conformance.loss_constants import SIZES, beside, largest_of
from dp2erm_cvx.conformance.noise_terms import smooth_of
from dp2erm_cvx.conformance.samples import N_FEATURES, check_universe, one_record, standard_records
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.program import Composite, ConvexSet, PrivateFirstStage
from dp2erm_cvx.stability import Finding, Region, Report, check_second_stage, record_domain


def coefficient_constants(program: PrivateFirstStage, domain: Domain, evaluations: int, seed: int) -> Report:
    """Of a resolved program, for a record alone and for one among others; both arms are searched.

    Raises CalibrationError where the gradient is unbounded over the coefficients.
    """
    # theta_bound is what a budget is split by: it sets no noise
    declared = dataclasses.replace(program.loss_constants(check_universe(domain)), theta_bound=None)
    region = record_domain(N_FEATURES, domain.features_bound)
    p = declared.n_parameters
    lam_set = _model(program, domain, 1, region.vertices[0]).penalty.set
    size = lam_set.norm_bound(p) if isinstance(lam_set, ConvexSet) else math.inf
    parameters = Region(p, lam_set.project, size / math.sqrt(p) if math.isfinite(size) else 10.0)
    findings: list[Finding] = []
    searched = ""
    for n, share in SIZES:
        # the norm of a sum of gradients is no record's own, a difference of two sums is
        found = check_second_stage(
            region,
            parameters,
            partial(_gradient, program, domain, n),
            declared if n == 1 else dataclasses.replace(declared, gradient_bound=None),
            hessian_trace=partial(_trace, program, domain, n),
            evaluations=max(int(share * evaluations), 20),
            seed=seed,
        )
        findings += found.findings
        searched = searched or found.searched
    return Report(largest_of(findings), searched)


def _model(program: PrivateFirstStage, domain: Domain, n: int, record: Array) -> Composite:
    records = beside(one_record(domain, record), standard_records(n) if n > 1 else None)
    return smooth_of(program.perturbed(records, 0.0, np.zeros(records.X.shape[1])))


def _gradient(program: PrivateFirstStage, domain: Domain, n: int, lam: Array, record: Array) -> Any:
    model = _model(program, domain, n, record)
    return model.gradient(lam) - model.ridge * lam


def _trace(program: PrivateFirstStage, domain: Domain, n: int, lam: Array, record: Array) -> float:
    """Of the mean record, which is no more than that of the worst."""
    model = _model(program, domain, n, record)
    # less what a large ridge leaves of rounding
    return (float(np.trace(model.hessian(lam))) - len(lam) * model.ridge * (1 + 1e-15)) / n
