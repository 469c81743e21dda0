"""What the choice of calibration buys on NHEFS: one weighting, calibrated in three ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.calibration import Objective, calibrate_paper
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.demo import settings
from dp2erm_cvx.demo.comparison import DemoComparison, compare_schemes
from dp2erm_cvx.diagnostics import balance_table
from dp2erm_cvx.mechanism import draw
from dp2erm_cvx.plan import Study, make_plan
from dp2erm_cvx.plan.noise_range import NoiseRange, noise_range
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import PrivateFirstStage
from dp2erm_cvx.solve import solve
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True, eq=False)
class Calibrations:
    """The releases of :func:`composed`, and at their budgets what the propensity alone and the paper add."""

    composed: DemoComparison
    plug_in: DemoComparison
    first_noise: tuple[PropensityNoise, ...]
    by_paper: tuple[tuple[float, NoiseRange], ...]


def calibrations(data: Dataset, seeds: Iterator[int | None]) -> Calibrations:
    """All that stands beside the direct calibration. Not private: see :func:`propensity_noise`."""
    budgets = [one.budget for one in settings.COMPOSED_SPENDING]
    n, k = data.X.shape
    return Calibrations(
        *composed(data, seeds),
        tuple(propensity_noise(data, budget) for budget in budgets),
        tuple(paper_noise(n, k, budget) for budget in budgets),
    )


def composed(data: Dataset, seeds: Iterator[int | None]) -> tuple[DemoComparison, DemoComparison]:
    """Effects from a private propensity (Theorem 9): by arm means, and by the plug-in (Theorem 8)."""
    domain, schemes = settings.effect_domain(), [settings.composed_scheme()]
    pairs = (settings.arm_means(), settings.COMPOSED_SPENDING), (settings.plug_in(), settings.OUTPUT_SPENDING)
    means, plug_in = (
        next(compare_schemes(data, domain, schemes, second, spending, seeds)) for second, spending in pairs
    )
    return means, plug_in


@dataclass(frozen=True)
class PropensityNoise:
    """What the noise in a private propensity does to the fit: mean and standard deviation of the effect.

    ``imbalance`` is the mean absolute standardized difference. Not private.
    """

    effect: float
    deviation: float
    imbalance: float


def propensity_noise(data: Dataset, budget: Budget, draws: int = 40) -> PropensityNoise:
    """Simulate the first stage of :func:`composed` with seeded noise, and no noise after it. Not private."""
    domain, second = settings.effect_domain(), settings.arm_means()
    first = settings.composed_scheme().program.resolve(domain)
    assert isinstance(first, PrivateFirstStage)
    records = domain.records(data.X, data.a, data.y)
    planned = make_plan(Study(first, second, Universe(domain, *data.X.shape), budget)).propensity
    assert planned is not None
    calibration = planned.calibration
    effect, imbalance = [], []
    for seed in range(draws):
        weights = solve(first.perturbed(records, calibration.gamma, draw(calibration, seed=seed))).value
        control, treated = (
            np.average(records.y[records.a == arm], weights=weights[records.a == arm]) for arm in (0, 1)
        )
        balance = balance_table(records.covariates, records.a, weights, data.columns)
        effect.append(treated - control)
        imbalance.append(np.mean(np.abs(balance.smd_after)))
    return PropensityNoise(float(np.mean(effect)), float(np.std(effect)), float(np.mean(imbalance)))


def paper_noise(n_samples: int, n_features: int, budget: Budget) -> tuple[float, NoiseRange]:
    """V and the noise by the paper's calibration of the last scheme, from public quantities.

    The paper's proposition does not cover the trim, so the universal corollary is what it offers.
    """
    domain, second = settings.effect_domain(), settings.arm_means()
    universe = Universe(domain, n_samples, n_features)
    w_max = settings.schemes()[-1].program.stability(universe).w_max
    bound = stability.universal_corollary(n_samples, w_max)
    loss = second.constants(universe)
    calibration = calibrate_paper(Objective(bound, loss, n_samples), budget)
    return bound.V, noise_range(second, universe, calibration)
