"""Tests of noise: drawn noise against its stated law, and repeated releases against fresh noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.spatial import cKDTree
from scipy.special import gammaln
from sklearn.base import clone

from dp2erm_cvx.calibration import Calibration, Noise, Perturbed
from dp2erm_cvx.display import Shown
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.model.sets import ElasticNet
from dp2erm_cvx.public import public_fraction, public_number, whole_number
from dp2erm_cvx.steps.step import Step


def log_peak_density(calibration: Calibration) -> float:
    """Log of the largest density of the noise vector b (p,), which is that at 0."""
    p = calibration.n_parameters
    if calibration.noise is Noise.GAUSSIAN:
        shape = -p / 2 * math.log(2 * math.pi)
    elif calibration.box is not None:
        shape = -math.fsum(math.log(2 * width) for width in calibration.box) - float(gammaln(p + 1))
    else:  # radius Gamma(p), direction uniform: Gamma(p/2) / (2 pi^(p/2) Gamma(p) scale^p)
        shape = float(gammaln(p / 2)) - math.log(2) - p / 2 * math.log(math.pi) - float(gammaln(p))
    return shape - p * math.log(calibration.scale)


def closest(draws: Array, *, mirrored: bool) -> float:
    """Smallest distance between two of the rows (m, p); ``mirrored`` also between one and minus another."""
    distances = np.asarray(cKDTree(draws).query(draws, k=2)[0], dtype=np.float64)
    if not mirrored:
        return float(np.min(distances[:, 1]))
    across, whose = map(np.asarray, cKDTree(-draws).query(draws, k=2))
    # a row and its own mirror image are no pair
    return float(min(np.min(distances[:, 1]), np.min(across[whose != np.arange(len(draws))[:, None]])))


def chance_of_pair(distance: float, log_density: float, draws: int, dimension: int, ways: int) -> float:
    """Bound on the probability that any two of ``draws`` vectors (p,) are within ``distance``.

    Given one vector, another is in a ball of that radius with probability at most its volume times the
    largest density; ``ways`` counts the balls of a pair, and the union bound runs over all pairs.
    """
    if draws < 2 or math.isinf(distance):
        return 1.0
    if distance == 0.0:
        return 0.0
    ball = dimension / 2 * math.log(math.pi) - float(gammaln(dimension / 2 + 1))
    volume = ball + dimension * math.log(distance)
    pairs = math.log(ways * draws * (draws - 1) / 2)
    return math.exp(min(volume + log_density + pairs, 0.0))  # what is no number stays none


@dataclass(frozen=True)
class NoiseAudit(Shown):
    """Tests of noise, or of releases of the same data: they depend on secret noise and are not private.

    ``p_values`` by test: of noise ``repeats`` (how close two draws came, up to a sign), ``radius`` and
    ``direction``; of releases ``repeats`` alone. ``closest`` is the smallest distance of two of the
    ``counted`` ones among ``size``, and ``median_radius`` relative to the median it should have. For fresh
    noise of the stated law an ``alarm`` has a probability of at most ``level``; no alarm is no proof.
    Releases count inside Theta and off the kinks of R, where theta has a density.
    """

    p_values: Mapping[str, float]
    closest: float
    counted: int
    size: int
    level: float
    median_radius: float | None = None
    private: bool = field(default=False, init=False)

    @property
    def alarm(self) -> bool:
        """True if a p-value is below its share of ``level``."""
        return not np.min(list(self.p_values.values())) >= self.level / len(self.p_values)

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value:.2g}" for name, value in self.p_values.items())
        counted, wrong = f"{self.size} draws", "NOT the stated law"
        if self.median_radius is None:
            wrong = "noise was REUSED"
            counted = f"{self.counted} of {self.size} releases counted, closest pair {self.closest:.3g}"
        verdict = wrong if self.alarm else "no alarm, which is no proof"
        return f"{counted}: p-values: {values}; {verdict} at level {self.level:g}; not private"


def audit_noise(
    draw: Callable[[], ArrayLike], calibration: Calibration, *, size: int = 1000, level: float = 1e-3
) -> NoiseAudit:
    """Test that ``draw()`` returns independent noise vectors b (p,) of the law of ``calibration``.

    - repeats: the closest pair of draws, up to a sign, against a union bound for the stated density.
    - radius: Kolmogorov-Smirnov test of ``||b||``, or ``max |b_j| / m_j`` of box noise.
    - direction: the same of ``b / ||b||`` along every coordinate and, up to 12, the diagonals of every pair;
      of box noise, of each coordinate over the largest one, with sign tests. Joined by Bonferroni.

    Raises DeclarationError for an invalid argument, or where a draw is not a finite vector (p,).
    """
    size, level = whole_number("size", size, at_least=20), public_fraction("level", level)
    p = calibration.n_parameters
    vectors = [np.asarray(draw(), dtype=np.float64) for _ in range(size)]
    if any(vector.shape != (p,) or not np.all(np.isfinite(vector)) for vector in vectors):
        raise DeclarationError(f"draw: every draw must be a finite vector of shape ({p},)")
    draws = np.array(vectors)
    radii = calibration.norms(draws)
    # distributions of the length at unit scale
    law = stats.gamma(p) if calibration.noise.pure else stats.chi(p)
    near, directions = closest(draws, mirrored=True), list(_directions(draws, radii, calibration.box))
    p_values = {
        "repeats": chance_of_pair(near, log_peak_density(calibration), size, p, ways=2),
        "radius": float(stats.kstest(radii / calibration.scale, law.cdf).pvalue),
        "direction": min(1.0, min(directions) * len(directions)),
    }
    median = float(np.median(radii) / (calibration.scale * law.median()))
    return NoiseAudit(p_values, near, size, size, level, median)


def _directions(draws: Array, radii: Array, box: Sequence[float] | None) -> Iterator[float]:
    """The p-values of uniform directions: of unit vectors, or from 0 to the surface of a box."""
    size, p = draws.shape
    pairs = list(itertools.combinations(range(p), 2)) if p <= 12 else []
    if box is None and p > 1:
        # a vector of length 0 has no direction, and no law here draws one
        unit = draws / np.maximum(radii, math.ulp(0.0))[:, None]
        diagonals = (unit[:, j] + side * unit[:, k] for j, k in pairs for side in (1, -1))
        law = stats.beta((p - 1) / 2, (p - 1) / 2)  # one coordinate of a uniform direction
        for along in (*unit.T, *(both / math.sqrt(2) for both in diagonals)):
            yield float(stats.kstest(np.clip((along + 1) / 2, 0, 1), law.cdf).pvalue)
        return
    draws = draws / np.array(box or 1.0)
    largest = np.argmax(np.abs(draws), axis=1)
    shares = draws / np.maximum(np.max(np.abs(draws), axis=1), math.ulp(0.0))[:, None]
    for k in range(p):
        top = largest == k
        yield _even(draws[:, k] > 0)
        if p > 1:
            yield float(stats.binomtest(int(np.sum(top)), size, 1 / p).pvalue)
        if not top.all():
            yield float(stats.kstest(shares[~top, k], stats.uniform(-1, 2).cdf).pvalue)
    for j, k in pairs:
        yield _even(draws[:, j] * draws[:, k] > 0)


def _even(signs: NDArray[np.bool_]) -> float:
    return float(stats.binomtest(int(np.sum(signs)), len(signs)).pvalue)


#: A theta this close to the boundary, relative to its size, counts as on it: atoms repeat by design.
_MARGIN = 1e-3


def audit_repeats(
    model: PrivateTwoStageERM,
    X: ArrayLike,
    a: ArrayLike,
    y: ArrayLike,
    *,
    size: int = 64,
    level: float = 1e-3,
) -> NoiseAudit:
    """Release theta ``size`` times from the raw data X (n, k), a (n,), y (n,), and look for reused noise.

    The density of theta is at most that of the noise at 0 times the determinant of the Hessian (proof of
    Theorem 1), which the public trace bound limits, so that the chance of a close pair has a public bound.
    No ledger is charged: use synthetic data, or keep all of it with the data holder.

    Raises DeclarationError for a seeded model, an invalid argument, or a second stage other than weighted
    least squares with an elastic net.
    """
    size, level = whole_number("size", size, at_least=2), public_number("level", level, above=0.0)
    second = model.resolved_second_stage()
    if model.seed is not None:
        raise DeclarationError("a seeded model repeats its noise by design: leave the seed out")
    if not (second.squared and isinstance(second.regularizer, ElasticNet)):
        raise DeclarationError(f"{second.name}: audit_repeats needs weighted least squares, an elastic net")
    fresh: PrivateTwoStageERM = clone(model).set_params(ledger=None, dataset=None)
    thetas = np.array([fresh.fit(X, a, y).theta_ for _ in range(size)])
    n, theta_set = fresh.release_.n_samples, second.feasible(model.domain)
    step = fresh.plan(n, fresh.n_features_in_).main
    # noise on a grid carries an atom this far into the inside, and hardly ever farther
    reach = 0.0 if step.precision is None else 50 * step.precision.grid.scale
    sizes = np.linalg.norm(thetas, axis=1, keepdims=True)
    outward = thetas * (1 + _MARGIN + np.divide(reach, sizes, out=np.zeros_like(sizes), where=sizes > 0))
    counted = thetas[[np.array_equal(theta_set.project(far), far) for far in outward]]
    if second.regularizer.l1 > 0:
        smallest = _MARGIN * np.max(np.abs(counted), axis=1, initial=0.0) + reach
        counted = counted[np.min(np.abs(counted), axis=1, initial=math.inf) > smallest]
    near, rounding = closest(counted, mirrored=False) if len(counted) > 1 else math.inf, 0.0
    if step.precision is not None:  # and the error of a solve, of both
        steps = math.sqrt(thetas.shape[1]) * math.ldexp(1.0, step.precision.grid.exponent)
        rounding = 2 * (step.precision.tolerance + steps)
    density = _log_largest_density(step, n)
    chance = chance_of_pair(near + rounding, density, len(counted), thetas.shape[1], ways=1)
    return NoiseAudit({"repeats": chance}, near, len(counted), size, level)


def _log_largest_density(step: Step, n: int) -> float:
    """Log of a bound on the density of theta, given whatever weights of sum n: public."""
    calibration = step.calibration
    assert isinstance(calibration, Calibration)
    if calibration.perturbed is Perturbed.OUTPUT:
        return log_peak_density(calibration)
    assert step.loss is not None
    p = calibration.n_parameters  # the determinant is at most the mean eigenvalue to this power
    mean = n * (step.loss.hessian_trace / p + calibration.gamma + step.loss.strong_convexity)
    return log_peak_density(calibration) + p * math.log(mean)
