"""How much of an imbalance a first stage leaves: from public quantities alone, before it is paid for."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.calibration import Calibration
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan.noise_range import public_covariates
from dp2erm_cvx.plan.two_stage import TwoStagePlan
from dp2erm_cvx.program import PrivateFirstStage
from dp2erm_cvx.solve import solve

#: Difference of the arms' means of one covariate that is declared, in its standard deviations.
DIFFERENCE = 0.5
#: What may stay without a warning.
HARDLY = 0.5
_RECORDS, _DRAWS, _TOLERANCE = 200, 8, 1e-4


def kept_imbalance(plan: TwoStagePlan) -> float | None:
    """The share of a difference of ``DIFFERENCE`` in the first covariate that the weights leave.

    Solved on synthetic records: covariates as the domain makes one expect, arms of one size. At a private
    coefficient it is averaged over draws of its noise, sizes of the difference without their signs. A
    prediction, without any data: stronger or other imbalance leaves other shares. None where the weights are
    not for balancing arms, or cannot be had on these records.
    """
    first, universe = plan.study.first, plan.study.universe
    if not first.balances_arms:
        return None
    rng = np.random.default_rng(universe.n_features)
    X = public_covariates(universe.domain, universe.n_features, _RECORDS, rng)
    arm = np.arange(_RECORDS) % 2
    X[:, 0] += DIFFERENCE * (arm - 0.5) * X[:, 0].std()
    records = universe.domain.records(X, arm, np.zeros(_RECORDS))
    try:
        found = [_difference(records, weights) for weights in _weights(plan, records, rng)]
    except Dp2ermError:
        return None
    return float(np.mean(np.abs(found)) / abs(_difference(records, np.ones(_RECORDS))))


def _weights(plan: TwoStagePlan, records: Records, rng: np.random.Generator) -> list[Array]:
    """Weights (n,) of the synthetic records, for every draw of the noise if they have any."""
    first = plan.study.first
    if not isinstance(first, PrivateFirstStage) or plan.propensity is None:
        return [solve(first.instance(records), tolerance=_TOLERANCE).value]
    calibration = plan.propensity.calibration
    assert isinstance(calibration, Calibration)
    # noise is divided by n
    drawn = simulate_noise(calibration, _DRAWS, rng) * (_RECORDS / plan.study.universe.n_samples)
    return [
        solve(first.perturbed(records, calibration.gamma, noise), tolerance=_TOLERANCE).value
        for noise in drawn
    ]


def _difference(records: Records, weights: Array) -> float:
    x, treated = records.covariates[:, 0], records.a == 1
    means = [np.average(x[one], weights=weights[one]) for one in (treated, ~treated)]
    return float(means[0] - means[1])
