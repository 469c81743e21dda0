"""Entropy balancing: the paper's theorem as printed, with its scaling made public by an arm floor."""

from __future__ import annotations

import math

from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import declared_floor, sample_size
from dp2erm_cvx.stability.paper import Statement, curvature, exponential, from_norm_bound
from dp2erm_cvx.stability.tilt import EXACT


def paper_entropy_balancing(
    n: int,
    ridge: float,
    radius: float,
    arm_floor: int | None,
    base_measure_ratio: float = 1.0,
    eigenvalue_floor: float = 0.0,
) -> StabilityBound:
    """Printed bound for entropy balancing with the paper's scaling (theorem on the stability of EBW).

    ``||w - w'||_2 <= 2 r e (sqrt(2) + r e)/(rho sqrt(n)) + 2 R r^2 e^2/rho + 2 sqrt(2) r d exp(2 d)``, where
    e = exp(2R), d = min(R, (1 + sqrt(2))/rho) and rho = eigenvalue_floor/(r e) + ridge. The rows are
    ``b_i = (n / n_a) g(x_i)`` in the block of the record's arm a, ``||g|| <= arm_floor / n``; the target is
    ``(gbar, gbar)``.

    Parameters
    ----------
    n
        Number of records, at least 2.
    ridge
        >= 0, in the units where ``||b|| <= 1``.
    radius
        R > 0, 2-norm ball of the dual variable, in those units (``inf`` leaves the universal corollary).
    arm_floor
        Public lower bound on the *number* of records in each arm; it makes ``||b|| <= 1`` hold on every
        dataset of the universe.
    base_measure_ratio
        r >= 1, largest over smallest value of the public base measure.
    eigenvalue_floor
        Public lower bound, over the universe, of the smallest eigenvalue of the covariance of the rows b.

    Treatment flips within the universe are covered. Raises CalibrationError without an arm floor and where
    ridge and eigenvalue floor are both 0; DeclarationError for an invalid number.
    """
    n = sample_size(n)
    floor = declared_floor(n, arm_floor)
    R = public_number("radius", radius, above=0.0, infinite=True)
    ratio = public_number("base_measure_ratio", base_measure_ratio, at_least=1.0)
    tilted = ratio * exponential(2.0 * R)
    rho = curvature(ridge, eigenvalue_floor, 1.0 / tilted, 1.0)
    delta = min(R, (1.0 + math.sqrt(2.0)) / rho)
    norm_bound = (
        2.0 * tilted * (math.sqrt(2.0) + tilted) / rho / math.sqrt(n)
        + 2.0 * R * tilted * tilted / rho
        + 2.0 * math.sqrt(2.0) * ratio * delta * exponential(2.0 * delta)
    )
    assumptions = [
        f"each arm has at least {floor} records in every dataset of the universe",
        f"base measure varies by a factor of at most {ratio:g}",
        EXACT,
    ]
    if eigenvalue_floor > 0.0:
        assumptions.append(f"smallest eigenvalue of the covariance of b at least {eigenvalue_floor:g}")
    return from_norm_bound(
        n, norm_bound, tilted, Statement("theorem on the stability of EBW", tuple(assumptions))
    )
