"""Inverse probability weights: the three propositions of the paper as printed."""

from __future__ import annotations

import math

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import sample_size
from dp2erm_cvx.stability.paper import Statement, curvature, exponential, from_norm_bound
from dp2erm_cvx.stability.tilt import EXACT


def paper_randomized_trial(n: int, propensity: float) -> StabilityBound:
    """Printed bound for a trial with known treatment probability (proposition on randomized trials).

    ``||w - w'||_2 <= sqrt(2) |p_1 - p_0| / min(p_0, p_1) * n / (n - 1)``; the common weights move together.
    ``propensity`` = p_1 in (0, 1). Raises DeclarationError.
    """
    n = sample_size(n)
    p = public_number("propensity", propensity, above=0.0)
    if p >= 1.0:
        raise DeclarationError(f"propensity = {propensity!r}: must be below 1")
    low, high = min(p, 1.0 - p), max(p, 1.0 - p)
    return from_norm_bound(
        n,
        math.sqrt(2.0) * (high - low) / low * n / (n - 1),
        high / low,
        Statement("proposition on randomized trials", ("the propensity is public and not estimated",)),
        common_move_together=True,
    )


def paper_known_coefficient(n: int, covariate_bound: float, coefficient_norm: float) -> StabilityBound:
    """Printed bound for a public logistic coefficient (proposition on known regression parameters).

    ``||w - w'||_2 <= sqrt(2) exp(M R)``; the common weights move together. ``covariate_bound`` = M > 0 in the
    units of x, ``coefficient_norm`` = R >= 0 in their inverse. Raises DeclarationError.
    """
    n = sample_size(n)
    bound = public_number("covariate_bound", covariate_bound, above=0.0)
    norm = public_number("coefficient_norm", coefficient_norm, at_least=0.0)
    overlap = exponential(bound * norm)
    return from_norm_bound(
        n,
        math.sqrt(2.0) * overlap,
        overlap,
        Statement("proposition on known regression parameters", ("the coefficient is public",)),
        common_move_together=True,
    )


def paper_ipw_logistic(
    n: int, covariate_bound: float, ridge: float, radius: float, eigenvalue_floor: float = 0.0
) -> StabilityBound:
    """Printed bound for an estimated logistic propensity (proposition on estimated parameters).

    ``||w - w'||_2 <= 4 M^2 e^{MR}/rho + 2 M d e^{Md} (1 + (1 + e^{Md})/(2n))``, d = min(R, M/(2 rho)) and
    rho = eigenvalue_floor e^{-MR}/(1 + e^{-MR})^2 + ridge. The program is that of ``ipw_logistic``,
    untrimmed.

    Parameters
    ----------
    n
        Number of records, at least 2.
    covariate_bound
        M > 0 in the units of x.
    ridge
        >= 0, in squared units of x.
    radius
        R > 0, norm ball of the coefficient (``inf`` leaves the universal corollary).
    eigenvalue_floor
        Public lower bound of the smallest eigenvalue of the mean of ``x x'`` over every dataset of the
        universe, in squared units of x.

    Treatment flips are covered. Raises DeclarationError for an invalid number and CalibrationError where
    ridge and floor are both 0.
    """
    n = sample_size(n)
    M = public_number("covariate_bound", covariate_bound, above=0.0)
    R = public_number("radius", radius, above=0.0, infinite=True)
    odds = exponential(-M * R)
    rho = curvature(ridge, eigenvalue_floor, odds / (1.0 + odds) ** 2, M * M)
    overlap = exponential(M * R)
    delta = min(R, 0.5 * M / rho)
    growth = exponential(M * delta)
    # the ratio M^2/rho is taken first, so that it is not lost where M^2 underflows
    norm_bound = 4.0 * (M / rho * M) * overlap + 2.0 * (M * delta) * growth * (
        1.0 + (1.0 + growth) / (2.0 * n)
    )
    assumptions = [f"covariate norm at most {M:g}", EXACT]
    if eigenvalue_floor > 0.0:
        assumptions.append(f"smallest eigenvalue of mean x x' at least {eigenvalue_floor:g} on every dataset")
    statement = Statement("proposition on estimated parameters", tuple(assumptions))
    return from_norm_bound(n, norm_bound, overlap, statement)
