"""Constants of a separable first stage (Theorem 3) and of what its certificate divides by, searched."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.conformance.samples import N_FEATURES, one_record
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.program import SeparableFirstStage
from dp2erm_cvx.stability import Report, Scheme, Search, ball, check_separable
from dp2erm_cvx.stability import record_domain as region_of


def separable_constants(program: SeparableFirstStage, domain: Domain, evaluations: int, seed: int) -> Report:
    """Of a resolved program, over all records of the domain and coefficients within the declared radius."""
    declared = program.constants(domain)

    def row(record: Array) -> tuple[Array, Array]:
        one = one_record(domain, record)
        z = program.rows(one)[0]
        linear = program.linear_terms(one)
        return z, np.zeros(len(z)) if linear is None else linear[0]

    def weight_row(record: Array) -> Array:
        rows = program.weight_rows(one_record(domain, record))
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
        Scheme(grad_psi, log_weight, clipped=math.isfinite(getattr(program.log_weight, "trim", math.inf))),
        {name: bound for name, bound in vars(declared).items() if name != "radius"},
        evaluations=evaluations,
        seed=seed,
    )
    # certificates and the public bound on the numerical error divide by these
    search = Search(evaluations, seed)
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
