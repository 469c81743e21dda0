"""Measured movement of weights between neighboring datasets, solved to high accuracy without the package.

A dataset is a list of distinct points with multiplicities (``count``); the changed record is the last point,
with multiplicity 1, so n = count.sum().
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

Array = NDArray[np.float64]
Fit = Callable[[Array, Array], Array]
Smooth = Callable[[Array], tuple[float, Array, Array]]


@dataclass(frozen=True)
class Pair:
    """Neighbors: the common points with their counts, and the two values of the changed record."""

    common: Array
    count: Array
    before: Array
    after: Array


def movement(fit: Fit, pair: Pair) -> float:
    """Coupled variation: summed movement of the common records plus both weights of the changed one."""
    count = np.append(pair.count, 1.0)
    w = fit(np.vstack([pair.common, pair.before]), count)
    v = fit(np.vstack([pair.common, pair.after]), count)
    return float(pair.count @ np.abs(w[:-1] - v[:-1]) + w[-1] + v[-1])


def ipw_weights(
    ridge: float, radius: float = math.inf, trim: float = math.inf, bound: float = 1.0
) -> Callable[[Array, Array], Array]:
    """Fit on points z = (2a - 1) x, scaled so that the unit disc is the universe."""

    def fit(z: Array, count: Array) -> Array:
        z, n = z * bound, count.sum()

        def objective(curvature: float) -> Smooth:
            def at(lam: Array) -> tuple[float, Array, Array]:
                s = z @ lam
                e = expit(-s)
                value = count @ np.logaddexp(0.0, -s) / n + curvature / 2 * lam @ lam
                hessian = (z.T * (count * e * (1 - e))) @ z / n + curvature * np.eye(len(lam))
                return value, -(count * e) @ z / n + curvature * lam, hessian

            return at

        lam = minimize_in_ball(objective, ridge, radius, z.shape[1])
        f = np.minimum(1.0 + np.exp(-(z @ lam)), trim)
        return n * f / (count @ f)

    return fit


def tilted(b: Array, count: Array, target: Array, ridge: float, radius: float) -> Array:
    """Weights (m,) of points with rows b (m, d): the dual of entropy balancing towards a target (d,)."""
    n = count.sum()

    def objective(curvature: float) -> Smooth:
        def at(lam: Array) -> tuple[float, Array, Array]:
            s = b @ lam
            total = log_total(s, count)
            p = count * np.exp(s - total)
            m = p @ b
            value = total - math.log(n) - lam @ target + curvature / 2 * lam @ lam
            hessian = (b.T * p) @ b - np.outer(m, m) + curvature * np.eye(len(lam))
            return value, m - target + curvature * lam, hessian

        return at

    lam = minimize_in_ball(objective, ridge, radius, b.shape[1])
    s = b @ lam
    return n * np.exp(s - log_total(s, count))


def entropy_weights(
    balance: float, constant: float, ridge: float, radius: float = math.inf, arm_mass: str = "equal"
) -> Callable[[Array, Array], Array]:
    """Fit on points (a, x_1, ...), x in the unit ball and scaled by ``balance``."""

    def fit(points: Array, count: Array) -> Array:
        arm, n = points[:, 0], count.sum()
        g = np.column_stack([np.full(len(arm), constant), balance * points[:, 1:]])
        b = np.column_stack([g * (1 - arm)[:, None], g * arm[:, None]])
        mean, treated = count @ g / n, count @ arm / n
        share = (0.5, 0.5) if arm_mass == "equal" else (1 - treated, treated)
        target = np.concatenate([share[0] * mean, share[1] * mean])

        return tilted(b, count, target, ridge, radius)

    return fit


def scaled_entropy_weights(ridge: float, floor: int, radius: float = math.inf) -> Fit:
    """Fit on points (a, g), g in the unit ball; rows are scaled by the arm sizes."""

    def fit(points: Array, count: Array) -> Array:
        arm, n = points[:, 0], count.sum()
        g = points[:, 1:] * (floor / n)
        size = np.array([count[arm == 0].sum(), count[arm == 1].sum()])
        scale = n / np.maximum(size, floor)
        b = np.column_stack([scale[0] * g * (1 - arm)[:, None], scale[1] * g * arm[:, None]])
        target = np.tile(count @ g / n, 2)

        return tilted(b, count, target, ridge, radius)

    return fit


def log_total(s: Array, count: Array) -> float:
    """``log(count @ exp(s))``."""
    top = float(np.max(s))
    return top + math.log(count @ np.exp(s - top))


def minimize_in_ball(objective: Callable[[float], Smooth], ridge: float, radius: float, dim: int) -> Array:
    """Exact minimizer over a norm ball: where the ball binds, its multiplier is one more ridge."""
    lam = newton(objective(ridge), np.zeros(dim))
    low, extra, high = 0.0, 0.0, math.inf
    size = float(np.linalg.norm(lam))
    while size > radius * (1 + 1e-12) or (extra > 0.0 and size < radius * (1 - 1e-12)):
        low, high = (extra, high) if size > radius else (low, extra)
        # Newton's step on 1 / ||lam||, which is linear in the extra ridge where the loss is quadratic
        shrinks = lam @ np.linalg.solve(objective(ridge + extra)(lam)[2], lam) / size**2
        trial = extra + (size / radius - 1) / shrinks
        extra = trial if low < trial < high else (low + high) / 2 if high < math.inf else 4 * extra + 1
        if extra in (low, high):  # no double is nearer
            break
        lam = newton(objective(ridge + extra), lam)
        size = float(np.linalg.norm(lam))
    return lam


def newton(smooth: Smooth, lam: Array) -> Array:
    """Damped Newton to a gradient of at most 1e-11; full steps once the decrement is below rounding."""
    value, gradient, hessian = smooth(lam)
    for _ in range(100):
        step = np.linalg.solve(hessian, gradient)
        decrement = gradient @ step
        if decrement < 1e-24:
            break
        t = 1.0
        while True:
            trial = smooth(lam - t * step)
            if decrement < 1e-10 or trial[0] <= value - 0.25 * t * decrement:
                break
            t /= 2
        lam = lam - t * step
        value, gradient, hessian = trial
    assert np.linalg.norm(gradient) < 1e-11
    return lam


def four_clusters(n: int, shape: Sequence[float]) -> Pair:
    """Two clusters along the coefficient and two against it; one record jumps across with a flip.

    ``shape``: positions along, spreads across, share of the first two, and two angles of the jump.
    """
    along, against, spread, split, angle, share, angle_after = shape
    common = np.array([[along, split], [along, -split], [-against, spread], [-against, -spread]])
    common /= np.maximum(1.0, np.linalg.norm(common, axis=1))[:, None]
    half = round(share * (n - 1) / 2)
    rest = n - 1 - 2 * half
    return Pair(
        common,
        np.array([half, half, rest // 2, rest - rest // 2], dtype=np.float64),
        np.array([-math.sin(angle), math.cos(angle)]),
        np.array([-math.sin(angle_after), -math.cos(angle_after)]),
    )


def lone_record(n: int, z: Sequence[float], before: Sequence[float], after: Sequence[float]) -> Pair:
    """All other records at one point."""
    return Pair(np.array([z]), np.array([n - 1.0]), np.array(before), np.array(after))


def printed_quantities(w: Array, v: Array) -> tuple[float, float]:
    """(W1, W2) of a pair of weight vectors, as the paper defines them."""
    change = w - v
    first = np.abs(change).sum() + 2 * np.minimum(w, v).max()
    second = math.sqrt((change @ change + 2 * (w * v).max()) * (1 + np.count_nonzero(change)))
    return first, second


def scaled_by_the_data(points: Array, ridge: float, radius: float) -> Array:
    """Entropy balancing whose rows are divided by the largest norm in the data at hand."""
    arm, g, n = points[:, 0], points[:, 1:], len(points)
    size = np.bincount(arm.astype(int))
    g = g / (np.linalg.norm(g, axis=1).max() * n / size.min())
    scale = n / size
    b = np.column_stack([scale[0] * g * (1 - arm)[:, None], scale[1] * g * arm[:, None]])
    target = np.tile(g.mean(axis=0), 2)

    def objective(curvature: float) -> Smooth:
        def at(lam: Array) -> tuple[float, Array, Array]:
            s = b @ lam
            p = np.exp(s - float(logsumexp(s)))
            m = p @ b
            value = float(logsumexp(s)) - lam @ target + curvature / 2 * lam @ lam
            return (
                value,
                m - target + curvature * lam,
                (b.T * p) @ b - np.outer(m, m) + curvature * np.eye(len(lam)),
            )

        return at

    s = b @ minimize_in_ball(objective, ridge, radius, b.shape[1])
    return n * np.exp(s - float(logsumexp(s)))
