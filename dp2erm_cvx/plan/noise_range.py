"""What the noise does to theta, predicted from public quantities alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.calibration import Calibration, OutputCalibration
from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan.weighted import TwoStagePlan
from dp2erm_cvx.program import SecondStage, WeightedLeastSquares
from dp2erm_cvx.steps.covariates import MISSING
from dp2erm_cvx.universe import Universe

#: The noise dominates where it reaches beyond this share of the largest value that Theta allows.
SHARE = 0.5


@dataclass(frozen=True, eq=False)
class NoiseRange:
    """The 2.5-97.5 % range of the noise in theta: plus or minus ``half_width`` (p,), before Theta cuts in.

    Where the program has one effect ``<coefficients, theta>`` for everybody, ``effect`` is the half width of
    its noise; else both are None. ``bound`` is the largest value of one coordinate of theta over Theta
    (``inf`` where unbounded); ``shrinkage`` is the mean share by which gamma pulls theta toward 0. All but
    the last are in the units of theta.
    """

    half_width: Array
    effect: float | None
    coefficients: Array | None
    bound: float
    shrinkage: float

    @property
    def dominates(self) -> bool:
        """Whether the effect, or half of the coordinates, moves by more than ``SHARE`` of ``bound``.

        Of what gamma leaves of ``bound``, as it shrinks noise and signal alike.
        """
        return self.exceeds(SHARE * (1.0 - self.shrinkage) * self.bound)

    def exceeds(self, size: float) -> bool:
        """Whether the effect, or half of the coordinates, moves by more than ``size``, in units of theta."""
        moved = np.median(self.half_width) if self.effect is None else self.effect
        return bool(moved > size)


def noise_range(
    second: WeightedLeastSquares,
    universe: Universe,
    calibration: Calibration | OutputCalibration,
    *,
    grid_scale: float = 0.0,
    draws: int = 20_000,
    seed: int = 0,
) -> NoiseRange:
    """Simulate ``theta = -H^(-1) b / n`` with b the noise and H a public stand-in for the Hessian.

    H is the Hessian of the second stage at public records: weight n/2 in each arm, and covariates drawn by
    ``public_covariates``. The true Hessian is private. With share m of the weight in an arm, the noise in
    its mean is 1/(2m) times as large; covariates that vary less than assumed make that of their coefficients
    larger. ``grid_scale`` is that of the Laplace noise that covers the arithmetic of a perturbed objective.
    ``seed`` is public: nothing drawn here is ever released.
    """
    rng, domain = np.random.default_rng(seed), universe.domain
    X = public_covariates(domain, universe.n_features, 4096, rng)
    arm = np.arange(len(X)) % 2
    design, _ = second.design(domain.records(X, arm, np.zeros(len(X))))
    p = design.shape[1]
    curvature = 2 * design.T @ design / len(X) + second.regularizer.strong_convexity * np.eye(p)
    if isinstance(calibration, OutputCalibration):
        gamma, hessian = 0.0, curvature
        theta = simulate_noise(calibration.law, draws, rng)  # its one draw covers the arithmetic as well
    else:
        gamma = calibration.gamma
        hessian = curvature + gamma * np.eye(p)
        theta = -np.linalg.solve(hessian, simulate_noise(calibration, draws, rng).T).T / universe.n_samples
        theta = theta + rng.laplace(scale=grid_scale, size=theta.shape)
    coefficients = _coefficients(second, domain, X, p)
    return NoiseRange(
        half_width=np.quantile(np.abs(theta), 0.95, axis=0),
        effect=None if coefficients is None else float(np.quantile(np.abs(theta @ coefficients), 0.95)),
        coefficients=coefficients,
        bound=second.feasible(domain).norm_bound(1),
        shrinkage=gamma * float(np.trace(np.linalg.inv(hessian))) / p,
    )


def planned_range(plan: TwoStagePlan) -> NoiseRange:
    """That of a plan, whose second stage is least squares."""
    theta, second = plan.theta, plan.study.second
    assert isinstance(second, WeightedLeastSquares)
    scale = 0.0 if theta.precision is None else theta.precision.grid.scale
    return noise_range(second, plan.study.universe, theta.calibration, grid_scale=scale)


def _coefficients(second: SecondStage, domain: Domain, X: Array, n_parameters: int) -> Array | None:
    """Coefficients c (p,) with effect = <c, theta> for everybody; None where it depends on covariates."""
    effects = np.array([second.effect(unit, domain, X[:64]) for unit in np.eye(n_parameters)])
    return effects[:, 0] if np.all(effects == effects[:, :1]) else None


def public_covariates(
    domain: Domain, n_features: int, size: int, rng: np.random.Generator, offset: float = 1.0
) -> Array:
    """Raw normal covariates (size, n_features) that stand in for the private ones.

    A declared range is 6 standard deviations wide, and the mean lies ``offset`` of them off what scales to 0,
    as nobody knows in advance where it lies. Without ranges, the same on a cube whose half diagonal is the
    bound. Levels are alike, and of numbers whose gaps are marked a share of ``MISSING`` is.
    """
    drawn: Array = (offset + rng.standard_normal((size, n_features))) / 3
    if domain.ranges is None:
        cube: Array = drawn * (domain.features_bound / np.sqrt(n_features))
        return cube
    low, high = np.array(domain.range_pairs).T
    spread: Array = np.array(domain.middles(n_features)) + (high / 2 - low / 2) * drawn
    return spread if domain.codebook is None else _coded(spread, domain, domain.codebook, rng)


def _coded(X: Array, domain: Domain, book: Codebook, rng: np.random.Generator) -> Array:
    """The covariates that a codebook makes of levels and gaps put in the place of normal ones."""
    names = list(domain.columns or ())
    for column in (*book.levels, *book.missing):
        own = [names.index(name) for name in book.covariates_of(column) if name in names]
        if column in book.levels:
            level = rng.integers(max(len(own), 1), size=(len(X), 1))
            X[:, own] = level == np.arange(len(own))
        elif len(own) == 2:
            absent = rng.random(len(X)) < MISSING
            X[:, own[1]] = absent
            X[absent, own[0]] = book.missing[column]
    return X
