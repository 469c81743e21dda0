"""A smooth function plus a prox-friendly term, and how near its minimizer solves come.

A multinomial loss and programs over products of simplices are such functions.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, UNIT, Array, dot_error
from dp2erm_cvx.data.blocks import Blocks, tree_sum
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.model.sets import ConvexSet, Simplices, WholeSpace
from dp2erm_cvx.model.sums import blocked_rmatvec, product_error, sum_error


@dataclass(frozen=True, eq=False)
class Penalty:
    """The penalty ``h(v) = sum_k l1_k |v_k| + indicator(v in set)``.

    ``l1`` is one price, or one for each coordinate (d,).
    """

    set: ConvexSet | Simplices = WholeSpace()
    l1: float | Array = 0.0

    @property
    def priced(self) -> bool:
        """True if every coordinate has a price of its own."""
        return isinstance(self.l1, np.ndarray)

    def value(self, v: Array) -> float:
        """The priced sizes of the coordinates at a point of the set."""
        if isinstance(self.l1, np.ndarray):
            return float(self.l1 @ np.abs(v))
        return self.l1 * float(np.sum(np.abs(v)))

    def prox(self, v: Array, step: float) -> Array:
        """argmin_u h(u) + ||u - v||^2 / (2 step): soft threshold, then projection.

        Exact, because the l1 norm is positively homogeneous (balls) or separable (box).
        """
        return self.set.project(self._shrink(v, step))

    def jacobian(self, v: Array, step: float) -> Array:
        """A symmetric element of the generalized Jacobian of :meth:`prox`."""
        outer = self.set.jacobian(self._shrink(v, step))
        if not self.priced and self.l1 == 0.0:
            return outer
        active = (np.abs(v) > step * self.l1).astype(np.float64)
        return outer * active[None, :] * active[:, None]

    def _shrink(self, v: Array, step: float) -> Array:
        if not self.priced and self.l1 == 0.0:
            return v
        return np.sign(v) * np.maximum(np.abs(v) - step * self.l1, 0.0)


@dataclass(frozen=True)
class LocalError:
    """The error of a point as ``e + s``, e bounded in the metric of a Hessian H.

    ``e'He <= energy^2`` and ``||s|| <= step``.

    ``inverse_root`` (d, d) is ``H^(-1/2)``, not smaller than the exact one.
    """

    inverse_root: Array
    energy: float
    step: float

    def largest(self, rows: Array) -> float:
        """Bound on the largest ``|<row, error>|`` over rows (n, d)."""
        steep = np.linalg.norm(rows @ self.inverse_root, axis=1)
        lengths = np.linalg.norm(rows, axis=1)
        return float(np.max(steep * self.energy + lengths * self.step, initial=0.0)) * ROUND_UP_SUMS


class PointClaim(NamedTuple):
    """What a model proves of a point by itself.

    Parameters
    ----------
    two, one
        Bounds on the distance to the minimizer in the Euclidean norm and in the 1-norm.
    residual
        What the point misses, in the model's own measure.
    found
        False where the records admit no solution, and nothing is proved of what stands in its
        place.
    backward
        Under constraints of the imbalance, what part of n the point may be off to solve exactly a
        problem whose targets and sums are off by as much; None where a distance is proved.
    """

    two: float
    one: float
    residual: float
    found: bool = True
    backward: float | None = None


class Composite(abc.ABC):
    """minimize f(v) + h(v) over R^d, d the ``dimension``, f smooth and convex, h the ``penalty``.

    Attributes
    ----------
    dimension
        The number d of entries of v.
    ridge
        The declared m with ``f - m/2 ||.||^2`` convex.
    smoothness
        An upper bound on the Lipschitz constant of the gradient of f.
    self_concordance
        A number c with ``|D^3 f[u, u, v]| <= c ||v|| D^2 f[u, u]``: 0 for a quadratic, ``inf``
        where the Hessian jumps.
    penalty
        The penalty h.
    """

    dimension: int
    ridge: float
    smoothness: float
    self_concordance: float
    penalty: Penalty = Penalty()

    def prepare(self, v: Array) -> None:  # noqa: B027
        """Hint that value, gradient and Hessian at ``v`` follow: one pass may find all of them."""

    @abc.abstractmethod
    def value(self, v: Array) -> float:
        """f(v)."""

    @abc.abstractmethod
    def gradient(self, v: Array) -> Array:
        """Gradient of f, (d,), summed in blocks."""

    @abc.abstractmethod
    def hessian(self, v: Array) -> Array:
        """Hessian of f, (d, d)."""

    def newton_direction(self, trial: Array, move: Array, step: float) -> Array | None:
        """Newton's direction (d,) on ``v - prox(trial)``, ``move = prox(trial) - v``, or None."""
        return None

    def spectrum(self, v: Array) -> tuple[float, float]:
        """Lower and upper bound on the eigenvalues of the Hessian at ``v``."""
        eigenvalues = np.linalg.eigvalsh(self.hessian(v))
        error = 64 * self.dimension * UNIT * float(eigenvalues[-1]) + self.hessian_rounding(v)
        return float(eigenvalues[0]) - error, float(eigenvalues[-1]) + error

    def lowest_within(self, v: Array, distance: float) -> float:
        """Lower bound on the eigenvalues of Hessians within ``distance`` of v; here the ridge."""
        return self.ridge

    def hessian_rounding(self, v: Array) -> float:
        """Bound on the spectral norm of the error of :meth:`hessian`, here units of its trace."""
        return 64 * UNIT * float(np.trace(self.hessian(v)))

    @abc.abstractmethod
    def rounding(self, v: Array) -> float:
        """Bound on the 2-norm of the floating-point error of ``gradient`` at ``v``."""

    def rounding_by_coordinate(self, v: Array) -> Array:
        """The bound for every coordinate (d,), where it is known."""
        return np.full(self.dimension, self.rounding(v))

    def start(self) -> Array:
        """Where a solver begins: the origin."""
        return np.zeros(self.dimension)

    @property
    def solves_itself(self) -> bool:
        """Whether it has methods and a certificate of its own, no gradient steps or residual."""
        return False

    @property
    def half_digits(self) -> bool:
        """Whether its certificate loses half of the digits, as at a kink."""
        return False

    @property
    def constrained(self) -> bool:
        """Whether constraints depend on the data, so that there may be no solution."""
        return False

    def refuse_infeasible(self) -> None:  # noqa: B027
        """Raise InfeasibleError where it is proved that no point meets the constraints."""

    def claimed(self, point: Array) -> PointClaim | None:
        """Its own certificate of a point (d,), with the distance to the set; None without one."""
        return None

    def minimized(self, start: Array, limit: int) -> tuple[Array, int] | None:
        """The point (d,) of its own Newton method in at most ``limit`` steps, and their number.

        None where it has no such method.
        """
        return None

    def by_gradient(self, start: Array) -> tuple[Array, int] | None:
        """The point (d,) of its own method of first order, and the number of its steps; or None."""
        return None

    def output(self, v: Array) -> Array:
        """Output of the program: weights (n,) in a first stage, theta in a second."""
        return v

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        """Bound on the distance of ``output(v)`` to the exact output, given that of ``v``."""
        return radius

    def output_scale(self, v: Array) -> float:
        """Denominator of a relative radius: the norm of the output."""
        norm = float(np.linalg.norm(v))
        return norm if norm > 0 else 1.0


class SimplexModel(Composite):
    """A program over a product of simplices, weights ``scale * v``: nothing but its set."""

    ridge = 0.0
    smoothness = 1.0
    self_concordance = 0.0
    scale = 1.0

    def __init__(self, feasible: Simplices) -> None:
        self.n = len(feasible.group)
        self.dimension = self.n
        self.feasible = feasible
        self.penalty = Penalty(feasible)

    def value(self, v: Array) -> float:
        return 0.0

    def gradient(self, v: Array) -> Array:
        return np.zeros(self.n)

    def hessian(self, v: Array) -> Array:
        return np.zeros((self.n, self.n))

    def rounding(self, v: Array) -> float:
        return 0.0

    def spectrum(self, v: Array) -> tuple[float, float]:
        # the eigenvalues of a Hessian of this size would cost more than the solve
        return self.ridge, self.smoothness

    def start(self) -> Array:
        return self.penalty.set.project(np.zeros(self.n))

    def output(self, v: Array) -> Array:
        return self.scale * v

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        return self.scale * (math.sqrt(self.n) * radius + 4 * UNIT * float(np.sum(np.abs(v))))

    def output_scale(self, v: Array) -> float:
        return float(self.n)


#: The step of Newton's method over 1 / L. The envelope has the minimizers of the problem for steps
#: shorter than 1 / L, and the room that is left takes what L and a Hessian are rounded by.
NEWTON_STEP = 0.95
#: Newton's method runs until its residual is at most
#: ``FLOOR * rounding + FLOOR_RELATIVE * L * ||v||``.
FLOOR = 8.0
FLOOR_RELATIVE = 1e-13

#: Covers weights whose sum is n, and rows whose norm is M, to within a few units of roundoff only.
_SLACK = 1.0 + 1e-6


@dataclass(frozen=True)
class Sizes:
    """Bounds on one solve that hold for every dataset of the universe and every noise in its bound.

    Parameters
    ----------
    strong_convexity
        A number m > 0 with ``f - m/2 ||.||^2`` convex.
    smoothness
        The largest eigenvalue L of any Hessian.
    slope
        Norm of the gradient of f at 0.
    rounding, rounding_growth
        The error of a computed gradient at v is at most ``rounding + rounding_growth * ||v||``.
    minimizer_norm, set_norm
        Bounds on the norms of the minimizer and of every feasible point.
    set_rounding
        Error of a projection, in units of roundoff times the norm of what is projected.
    """

    strong_convexity: float
    smoothness: float
    slope: float
    rounding: float
    rounding_growth: float
    minimizer_norm: float
    set_norm: float
    set_rounding: float

    def radius(self) -> float | None:
        """Bound on ``Certificate.radius`` where Newton's method stopped of its own accord.

        ``(26 rho + 9 pi + 2e-13 L a) / m``, rho and pi the rounding of a gradient and of a
        projection and a the norm of the point. None where the rounding is not small against m, so
        that nothing is known.
        """
        m = self.strong_convexity
        L = self.smoothness
        if not m > 0:
            return None
        # a projection of v - grad/L, in units of the gradient; NEWTON_STEP / L is Newton's step
        projection = self.set_rounding * UNIT
        # 1e-140 is what a certificate adds for underflow, and more
        fixed = (2 * FLOOR + 10) * self.rounding + 9 * projection * self.slope + 1e-140
        growing = (2 * FLOOR + 10) * self.rounding_growth
        growing += 2 * FLOOR_RELATIVE * L + 9 * projection * (1 + 1 / NEWTON_STEP) * L
        if not growing <= 0.5 * m:
            return None
        norm = (self.minimizer_norm + fixed / m) / (1 - growing / m)
        norm = min(norm, self.set_norm * ROUND_UP_SUMS)
        radius = (fixed + growing * norm) / m * _SLACK
        return radius if math.isfinite(radius) else None


_ROOT_2 = math.sqrt(2.0)


def contrasts(n_arms: int) -> Array:
    """Orthonormal columns (K, K - 1) that are each orthogonal to ones: arms by their numbers."""
    basis = np.zeros((n_arms, n_arms - 1))
    for j in range(n_arms - 1):
        basis[: j + 1, j] = 1.0
        basis[j + 1, j] = -(j + 1.0)
        basis[:, j] /= math.sqrt((j + 1.0) * (j + 2.0))
    return basis


class MultinomialModel(Composite):
    """A multinomial loss of records with a ridge and a linear term.

    It is
    ``sum w_i (log sum_a exp(<z_i, theta_a>) - <z_i, theta_{A_i}>) + ridge/2 ||v||^2 + <noise, v>``
    with ``theta = Q v`` (K, p) for the :func:`contrasts` Q: its arms add up to 0, and its norm is
    that of v. Sums over blocks of records are added in a tree.

    Parameters
    ----------
    blocks
        The records; their counts w lie in [0, 1].
    p
        Number of entries of a row z.
    ridge
        Of the sum.
    noise
        The linear term ((K - 1) p,).
    row_bound
        Bound on the norm of the rows.
    """

    def __init__(
        self, blocks: Blocks[Records], p: int, ridge: float, noise: Array, row_bound: float
    ) -> None:
        self.blocks = blocks
        self.p = p
        self.ridge = ridge
        self.noise = noise
        self.dimension = len(noise)
        self.row_bound = row_bound
        self.basis = contrasts(self.dimension // p + 1)
        # in the space of the contrasts no Hessian of a log of exponentials exceeds one half
        self.mass = float(sum(blocks.map(_mass))) * ROUND_UP_SUMS
        self.smoothness = 0.5 * self.mass * row_bound**2 + ridge
        self.self_concordance = _ROOT_2 * row_bound

    def coefficients(self, v: Array) -> Array:
        """Theta (K, p)."""
        theta: Array = self.basis @ v.reshape(len(self.basis) - 1, -1)
        return theta

    def _sum(self, function: Callable[..., Array], v: Array) -> Array:
        """The total of a function of the blocks, of theta and of the contrasts."""
        ask = partial(function, theta=self.coefficients(v), basis=self.basis)
        return self.blocks.total(ask, tree_sum)

    def value(self, v: Array) -> float:
        losses = self._sum(_losses, v)
        return float(losses + 0.5 * self.ridge * (v @ v) + self.noise @ v)

    def gradient(self, v: Array) -> Array:
        of_losses = (self.basis.T @ self._sum(_pull, v)).ravel()
        gradient: Array = of_losses + self.ridge * v + self.noise
        return gradient

    def hessian(self, v: Array) -> Array:
        return self._sum(_curvature, v) + self.ridge * np.eye(self.dimension)

    def rounding(self, v: Array) -> float:
        norm = float(np.linalg.norm(v))
        n_arms = len(self.basis)
        n = self.blocks.n_samples
        fixed, growing = rounding_of(n, self.p, n_arms, self.row_bound, self.mass)
        linear = self.ridge * norm + float(np.linalg.norm(self.noise))
        return fixed + growing * norm + 4.0 * UNIT * linear

    def hessian_rounding(self, v: Array) -> float:
        norm = float(np.linalg.norm(v))
        n_arms = len(self.basis)
        error = product_error(self.blocks.n_samples) + (8.0 * n_arms + 64.0) * UNIT
        error += 16.0 * (dot_error(self.p) + (n_arms + 2) * UNIT) * self.row_bound * norm
        return n_arms * error * self.mass * self.row_bound**2 + 4.0 * UNIT * self.ridge


def _mass(block: Records) -> float:
    """What the records of a block count together."""
    return float(np.sum(block.counts))


def _logits(block: Records, theta: Array) -> Array:
    """Logits less the largest of a record (n, K)."""
    logits: Array = block.X @ theta.T
    logits -= np.max(logits, axis=1, keepdims=True)
    return logits


def _probabilities(block: Records, theta: Array) -> Array:
    """Probabilities of the arms of every record (n, K)."""
    parts = np.exp(_logits(block, theta))
    p: Array = parts / np.sum(parts, axis=1, keepdims=True)
    return p


def _losses(block: Records, theta: Array, basis: Array) -> Array:
    """The sum of the losses of a block."""
    logits = _logits(block, theta)
    own = np.take_along_axis(logits, block.a[:, None], axis=1)[:, 0]
    normalizer = np.log(np.sum(np.exp(logits), axis=1))
    return np.asarray(block.counts @ (normalizer - own))


def _pull(block: Records, theta: Array, basis: Array) -> Array:
    """The gradient in theta (K, p): sums of rows times probabilities less the own arm."""
    pull = _probabilities(block, theta)
    pull[np.arange(len(pull)), block.a] -= 1.0
    pull *= block.counts[:, None]
    return np.array([blocked_rmatvec(block.X, np.ascontiguousarray(column)) for column in pull.T])


def _curvature(block: Records, theta: Array, basis: Array) -> Array:
    """The Hessian in the contrasts ((K - 1) p, (K - 1) p).

    The curvature of a record between two contrasts is their covariance under its probabilities.
    """
    probabilities = _probabilities(block, theta)
    means = probabilities @ basis
    p = block.X.shape[1]
    k = len(basis) - 1
    hessian = np.zeros((k, p, k, p))
    for i in range(k):
        for j in range(i + 1):
            products = basis[:, i] * basis[:, j]
            covariance = probabilities @ products - means[:, i] * means[:, j]
            weighted_rows = block.X * (block.counts * covariance)[:, None]
            part = weighted_rows.T @ block.X
            hessian[i, :, j] = part
            hessian[j, :, i] = part.T
    return hessian.reshape(k * p, k * p)


def rounding_of(n: int, p: int, n_arms: int, row_bound: float, mass: float) -> tuple[float, float]:
    """Bound on the rounding of a gradient: what is fixed, and what grows with the norm of v.

    A logit is off by at most ``delta = (dot_error + (K + 2) u) M ||v||``, so a probability by at
    most ``4 delta + (K + 16) u`` of itself; pulls of norm at most the root of 2 are summed in
    blocks and turned into contrasts.
    """
    sums = _ROOT_2 * (sum_error(n) + (2 * n_arms + 8) * UNIT)
    fixed = mass * row_bound * ((n_arms + 16) * UNIT + sums)
    growing = 4.0 * (dot_error(p) + (n_arms + 2) * UNIT) * mass * row_bound**2
    return 1.01 * fixed, 1.01 * growing


def multinomial_sizes(
    n: int, n_rows: int, p: int, n_arms: int, row_bound: float, ridge: float, noise_bound: float
) -> Sizes:
    """Sizes of every such sum over at most ``n_rows`` of mass n, for noise of at most this norm."""
    fixed, growing = rounding_of(n_rows, p, n_arms, row_bound, n * ROUND_UP_SUMS)
    steep = n * _ROOT_2 * row_bound + noise_bound
    # at the minimizer ridge/2 ||v||^2 <= n log K + ||noise|| ||v||: the loss is n log K at 0, where
    # the objective is no smaller, and at least 0 anywhere
    far = math.sqrt(2.0 * n * math.log(n_arms) / ridge) + 2.0 * noise_bound / ridge
    return Sizes(
        strong_convexity=ridge,
        smoothness=0.5 * n * ROUND_UP_SUMS * row_bound**2 + ridge,
        slope=steep,
        rounding=fixed + 4.0 * UNIT * noise_bound,
        rounding_growth=growing + 4.0 * UNIT * ridge,
        minimizer_norm=min(far, steep / ridge),
        set_norm=math.inf,
        set_rounding=0.0,
    )
