"""Whether the loss and the weight of a margin are what a certificate takes them for."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.conformance.samples import N_FEATURES, edge_records, neighbors, standard_records
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.program import MarginLoss, MarginWeight, SeparableFirstStage

_STEP = 1e-4


def wrong_margin(program: SeparableFirstStage, domain: Domain, radius: float) -> str:
    """What is wrong about rows, loss or weight of a resolved program, or nothing."""
    reach = min(program.row_bound(domain) * radius, 30.0)
    return _wrong_rows(program) or wrong_loss(program.loss, reach) or _wrong_weight(program.log_weight, reach)


def wrong_loss(loss: MarginLoss, reach: float) -> str:
    """Slope, curvature and their bounds against differences over ``|s| <= reach``."""
    s = np.linspace(-reach, reach, 2001)
    slope, curvature = loss.slope(s), loss.curvature(s)
    scale = 1.0 + np.abs(slope)
    differences = (loss.value(s + _STEP) - loss.value(s - _STEP)) / (2 * _STEP)
    jumps = math.isinf(loss.concordance)
    if np.max(np.abs(differences - slope) / scale) > (1e-3 if jumps else 1e-5):
        return "the slope of the loss is not the derivative of its value"
    change = np.diff(slope)
    if np.min(change / scale[1:]) < -1e-9:
        return "the loss is not convex"
    if np.max(np.abs(slope)) > loss.largest_slope(reach) * (1 + 1e-9):
        return "largest_slope is less than a slope within reach"
    if np.max(curvature) > loss.largest_curvature(reach) * (1 + 1e-9):
        return "largest_curvature is less than a curvature within reach"
    if jumps:
        return ""
    # |phi'''| <= c phi'': the curvature changes by a factor of at most exp(c h) over h
    factor = np.expm1(loss.concordance * float(s[1] - s[0])) * (1 + 1e-6)
    if np.any(np.abs(np.diff(curvature)) > factor * curvature[1:] + 1e-12):
        return "the curvature changes faster than concordance allows"
    slopes = (loss.slope(s + _STEP) - loss.slope(s - _STEP)) / (2 * _STEP)
    if np.max(np.abs(slopes - curvature) / (1.0 + curvature)) > 1e-5:
        return "the curvature of the loss is not the derivative of its slope"
    return ""


def _wrong_weight(weight: MarginWeight, reach: float) -> str:
    s = np.linspace(-reach, reach, 2001)
    steep = np.max(np.abs(np.diff(weight.log(s)))) / (s[1] - s[0])
    if steep > weight.lipschitz * (1 + 1e-9):
        return f"the log weight has slope {steep:.4g}, lipschitz is declared {weight.lipschitz:g}"
    return ""


def _wrong_rows(program: SeparableFirstStage) -> str:
    pairs = neighbors(5, 25, seed=2)
    for records in [standard_records(), *edge_records().values(), *(one for pair in pairs for one in pair)]:
        domain, Z = records.domain, program.rows(records)
        known = program.n_rows(domain, N_FEATURES)
        if known is not None and Z.shape[1] != known:
            return f"rows have {Z.shape[1]} entries, n_rows says {known}"
        terms = program.linear_terms(records)
        for name, rows, bound in (
            ("row_bound", Z, program.row_bound(domain)),
            ("linear_bound", terms, program.linear_bound(domain)),
        ):
            longest = 0.0 if rows is None else float(np.max(np.linalg.norm(rows, axis=1)))
            if longest > bound * (1 + 1e-9):
                return f"{name} is declared {bound:.4g}, a row is {longest:.4g} long"
        order = np.random.default_rng(0).permutation(records.n_samples)
        shuffled = domain.records(records.X[order][:, 1:], records.a[order], records.y[order])
        if not np.allclose(program.rows(shuffled), Z[order], rtol=1e-12, atol=1e-12):
            return "a row depends on more than its own record"
        alone = np.vstack(
            [
                program.rows(domain.records(x[None, 1:], [a], [0.0]))
                for x, a in zip(records.X, records.a, strict=True)
            ]
        )
        if not np.allclose(alone, Z, rtol=1e-12, atol=1e-12):
            return "a row depends on more than its own record"
    return ""
