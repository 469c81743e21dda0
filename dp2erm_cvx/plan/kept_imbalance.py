"""How much of an imbalance a first stage leaves: from public quantities alone, before it is paid for."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import Calibration
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan.noise_range import public_covariates
from dp2erm_cvx.plan.weighted import TwoStagePlan
from dp2erm_cvx.program import FirstStage, PrivateFirstStage
from dp2erm_cvx.solve import solve

#: Difference of the arms' means of one covariate that is declared, in its standard deviations.
DIFFERENCE = 0.5
#: What may stay without a warning.
HARDLY = 0.5
_RECORDS, _DRAWS, _TOLERANCE = 200, 8, 1e-4
#: What a prediction on synthetic records may fail by, singular matrices included: it is then not known.
UNPREDICTED = (Dp2ermError, ArithmeticError, ValueError)


def kept_imbalance(plan: TwoStagePlan) -> float | None:
    """The share of a difference of ``DIFFERENCE`` in the first covariate that varies which the weights leave.

    Solved on synthetic records: covariates as the domain makes one expect, arms of one size. At a private
    coefficient it is averaged over draws of its noise, sizes of the difference without their signs. A
    prediction, without any data: stronger or other imbalance leaves other shares. None where the weights are
    not for balancing arms, or cannot be had on these records. A release that is paid for never fails by it.
    """
    first, universe, step = plan.study.first, plan.study.universe, plan.propensity
    if not first.balances_arms:
        return None
    noise = None
    if isinstance(first, PrivateFirstStage) and step is not None:
        assert isinstance(step.calibration, Calibration)
        noise = step.calibration, universe.n_samples
    asked = first, universe.domain, universe.n_features, noise
    try:
        return _kept(*asked)  # the same at every epsilon, unless the coefficient is private
    except TypeError:  # a user's program need not be hashable
        return _kept.__wrapped__(*asked)


@lru_cache(maxsize=256)
def _kept(
    first: FirstStage, domain: Domain, n_features: int, noise: tuple[Calibration, int] | None
) -> float | None:
    rng = np.random.default_rng(n_features)
    X = public_covariates(domain, n_features, _RECORDS, rng)
    arm = np.arange(_RECORDS) % 2
    column, records = varying(X), domain.records(shifted(X, arm), arm, np.zeros(_RECORDS))
    try:
        found = [_difference(records, one, column) for one in _weights(first, records, noise, rng)]
        share = float(np.mean(np.abs(found))) / abs(_difference(records, np.ones(_RECORDS), column))
    except UNPREDICTED:
        return None
    return share if math.isfinite(share) else None


def varying(X: Array) -> int:
    """The first of the covariates (n, k) that varies: a level may be that of all records, or of none."""
    return int(np.argmax(X.std(axis=0) > 0.0))


def shifted(X: Array, arm: NDArray[np.int64]) -> Array:
    """Covariates (n, k) of which the first that varies differs between arms (n,) in {0, 1}, in public."""
    moved, column = X.copy(), varying(X)
    moved[:, column] += DIFFERENCE * (arm - 0.5) * X[:, column].std()
    return moved


def _weights(
    first: FirstStage, records: Records, noise: tuple[Calibration, int] | None, rng: np.random.Generator
) -> list[Array]:
    """Weights (n,) of the synthetic records, for every draw of the noise if they have any."""
    if noise is None:
        return [solve(first.instance(records), solver=first.usual_solver, tolerance=_TOLERANCE).value]
    assert isinstance(first, PrivateFirstStage)
    calibration, n_samples = noise
    # noise is divided by n
    drawn = simulate_noise(calibration, _DRAWS, rng) * (_RECORDS / n_samples)
    return [
        solve(first.perturbed(records, calibration.gamma, one), solver="newton", tolerance=_TOLERANCE).value
        for one in drawn
    ]


def _difference(records: Records, weights: Array, column: int) -> float:
    x, treated = records.covariates[:, column], records.a == 1
    means = [np.average(x[one], weights=weights[one]) for one in (treated, ~treated)]
    return float(means[0] - means[1])
