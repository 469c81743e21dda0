"""What a release would cost in accuracy, predicted from public quantities alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.calibration import Calibration, GridNoise, OutputCalibration
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan import Study, TwoStagePlan, make_plan
from dp2erm_cvx.program import SecondStage, WeightedLeastSquares
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
        """Whether the effect, or half of the coordinates, moves by more than ``SHARE`` of ``bound``."""
        return self.exceeds(SHARE * self.bound)

    def exceeds(self, size: float) -> bool:
        """Whether the effect, or half of the coordinates, moves by more than ``size``, in units of theta."""
        moved = np.median(self.half_width) if self.effect is None else self.effect
        return bool(moved > size)


def noise_range(
    second: WeightedLeastSquares,
    universe: Universe,
    calibration: Calibration | OutputCalibration,
    *,
    grid: GridNoise | None = None,
    draws: int = 20_000,
    seed: int = 0,
) -> NoiseRange:
    """Simulate ``theta = -H^(-1) b / n`` with b the noise and H a public stand-in for the Hessian.

    H is the Hessian of the second stage at public records: weight n/2 in each arm, and covariates drawn by
    ``public_covariates``. The true Hessian is private. With share m of the weight in an arm, the noise in
    its mean is 1/(2m) times as large; covariates that vary less than assumed make that of their coefficients
    larger. ``grid`` is the noise that covers the arithmetic. ``seed`` is public: nothing drawn here is ever
    released.
    """
    rng, domain = np.random.default_rng(seed), universe.domain
    X = public_covariates(domain, universe.n_features, 4096, rng)
    arm = np.arange(len(X)) % 2
    design, _ = second.design(domain.records(X, arm, np.zeros(len(X))))
    p = design.shape[1]
    curvature = 2 * design.T @ design / len(X) + second.regularizer.strong_convexity * np.eye(p)
    if isinstance(calibration, OutputCalibration):
        gamma, hessian = 0.0, curvature
        theta = simulate_noise(calibration.law, draws, rng)
        grid = None  # its one draw covers both
    else:
        gamma = calibration.gamma
        hessian = curvature + gamma * np.eye(p)
        theta = -np.linalg.solve(hessian, simulate_noise(calibration, draws, rng).T).T / universe.n_samples
    if grid is not None:
        theta = theta + rng.laplace(scale=grid.scale, size=theta.shape)
    coefficients = _coefficients(second, domain, X, p)
    return NoiseRange(
        half_width=np.quantile(np.abs(theta), 0.95, axis=0),
        effect=None if coefficients is None else float(np.quantile(np.abs(theta @ coefficients), 0.95)),
        coefficients=coefficients,
        bound=second.feasible(domain).norm_bound(1),
        shrinkage=gamma * float(np.trace(np.linalg.inv(hessian))) / p,
    )


def _coefficients(second: SecondStage, domain: Domain, X: Array, n_parameters: int) -> Array | None:
    """Coefficients c (p,) with effect = <c, theta> for everybody; None where it depends on covariates."""
    effects = np.array([second.effect(unit, domain, X[:64]) for unit in np.eye(n_parameters)])
    return effects[:, 0] if np.all(effects == effects[:, :1]) else None


def public_covariates(domain: Domain, n_features: int, size: int, rng: np.random.Generator) -> Array:
    """Raw normal covariates (size, n_features) that stand in for the private ones.

    A declared range is 6 standard deviations wide, and the mean lies one of them off its middle, as nobody
    knows in advance where it lies. Without ranges, the same on a cube whose half diagonal is the bound.
    """
    drawn: Array = (1 + rng.standard_normal((size, n_features))) / 3
    if domain.ranges is None:
        cube: Array = drawn * (domain.features_bound / np.sqrt(n_features))
        return cube
    pairs = domain.ranges.values() if isinstance(domain.ranges, Mapping) else domain.ranges
    low, high = np.array(list(pairs)).T
    spread: Array = (low / 2 + high / 2) + (high / 2 - low / 2) * drawn
    return spread


AUTOMATIC = "auto"


@dataclass(frozen=True)
class GridRow:
    """A planned release: its settings, nan where the program lacks one, and its results.

    ``refusal`` says why nothing covers it; the results are then None. ``V`` is the bound on the coupled
    variation, ``scale`` the noise scale, ``noise`` the expected size of the noise in the averaged objective
    (``E||b||/n``) or, for output perturbation, in the release itself. ``spread`` is the half width of the
    2.5-97.5 % range of the second stage's noise, in units of theta: of the effect where the program has one
    for everybody, else of the median coordinate. ``shrinkage`` is the mean share by which gamma pulls theta
    toward 0. ``automatic`` names the theorem that calibration = "auto" would follow.
    """

    n_samples: int
    ridge: float
    radius: float
    trim: float
    epsilon: float
    delta: float
    V: float | None = None
    theorem: str | None = None
    scale: float | None = None
    gamma: float | None = None
    noise: float | None = None
    predicted_error: float | None = None
    refusal: str | None = None
    spread: float | None = None
    shrinkage: float | None = None
    automatic: str | None = None


def plan_row(study: Study) -> GridRow:
    """What a study would cost, as declared and as calibration = "auto" would have it.

    A private first stage is paid from the same epsilon; its noise is not part of the prediction.
    """
    settings = {name: float(getattr(study.first, name, math.nan)) for name in ("ridge", "radius", "trim")}
    row = GridRow(
        n_samples=study.universe.n_samples,
        epsilon=study.budget.epsilon,
        delta=study.budget.delta,
        **settings,  # type: ignore[arg-type]
    )
    made = automatic = _tried(dataclasses.replace(study, calibration=AUTOMATIC))
    if study.calibration != AUTOMATIC:
        made = _tried(study)
    if isinstance(automatic, TwoStagePlan):
        row = dataclasses.replace(row, automatic=automatic.theta.theorem)
    if isinstance(made, str):
        return dataclasses.replace(row, refusal=made)
    spread, shrinkage = _spread(made)
    return dataclasses.replace(_planned(row, made), spread=spread, shrinkage=shrinkage)


def _tried(study: Study) -> TwoStagePlan | str:
    try:
        return make_plan(study)
    except CalibrationError as error:
        return str(error)


def _planned(row: GridRow, made: TwoStagePlan) -> GridRow:
    theta = made.theta
    calibration, output = theta.calibration, isinstance(theta.calibration, OutputCalibration)
    return dataclasses.replace(
        row,
        V=made.bound.V,
        theorem=calibration.theorem,
        scale=calibration.scale,
        gamma=0.0 if isinstance(calibration, OutputCalibration) else calibration.gamma,
        noise=calibration.expected_noise / (1 if output else row.n_samples),
        predicted_error=theta.predicted_error,
    )


def _spread(made: TwoStagePlan) -> tuple[float | None, float | None]:
    second = made.theta.second
    if not isinstance(second, WeightedLeastSquares):
        return None, None
    moved = noise_range(second, made.study.universe, made.theta.calibration, grid=made.theta.grid)
    return float(np.median(moved.half_width)) if moved.effect is None else moved.effect, moved.shrinkage
