"""Whether the loss of a margin is what a certificate takes it for."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.conformance.samples import N_FEATURES, standard_records
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.program import MarginLoss, SeparableFirstStage

_STEP = 1e-4


def wrong_margin(program: SeparableFirstStage, domain: Domain, radius: float) -> str:
    """What is wrong about the rows or the loss of a resolved program, or nothing."""
    reach = min(program.row_bound(domain) * radius, 30.0)
    return _wrong_rows(program) or wrong_loss(program.loss, reach)


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


def _wrong_rows(program: SeparableFirstStage) -> str:
    records = standard_records()
    Z, U = program.rows(records), program.weight_rows(records)
    known = program.n_rows(records.domain, N_FEATURES)
    if known is not None and Z.shape[1] != known:
        return f"rows have {Z.shape[1]} entries, n_rows says {known}"
    if U is not None and U.shape != Z.shape:
        return f"weight_rows have the shape {U.shape}, rows {Z.shape}"
    return ""
