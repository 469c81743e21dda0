"""Movement of weights between neighbors: certified solves of the registered programs.

A dataset is a list of distinct records with multiplicities; the changed record is the last one,
alone.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.audit import Quantity
from dp2erm_cvx.audit.movement import NeighborPair, resolve
from dp2erm_cvx.audit.weighing import ProgramWeights
from dp2erm_cvx.program import registry
from dp2erm_cvx.program.kernels import Linear
from dp2erm_cvx.stability import separable
from tests.audit.stability.reference import Orthant
from tests.helpers import with_kernel

Array = NDArray[np.float64]
INF, DISK = math.inf, Domain(1.0, 1.0)


@dataclass(frozen=True)
class Pair:
    """Neighbors: the common records (arm, x_1, ...), their counts, and the changed one before and
    after.
    """

    common: Array
    count: Array
    before: Array
    after: Array

    @classmethod
    def of(cls, common, before, after):
        """From records with their counts."""
        points, count = zip(*common, strict=True)
        return cls(*(np.array(one, dtype=float) for one in (points, count, before, after)))

    @classmethod
    def of_rows(cls, rows):
        """The last two of n + 1 records (arm, x_1, ...) are the changed one."""
        return cls(rows[:-2], np.ones(len(rows) - 2), rows[-2], rows[-1])

    def records(self, domain):
        """Both datasets."""
        rows = np.repeat(self.common, self.count.astype(int), axis=0)
        ends = [np.vstack([rows, end]) for end in (self.before, self.after)]
        first, second = (
            domain.records(x[:, 1:], x[:, 0].astype(int), np.zeros(len(x))) for x in ends
        )
        return first, second


def solved(program, pair, domain=DISK):
    """The coupled variation, no more than it is, and both vectors of weights (n,)."""
    first, second = pair.records(domain)
    universe = Universe(domain, first.n_samples, first.n_features)
    weighing = ProgramWeights(program.at(universe))
    (result,) = resolve(
        weighing, [NeighborPair(first, second, len(first.a) - 1, "")], "first_certified"
    )
    (w, _), (v, _) = result.solved
    return result.movements[Quantity.V].low, w, v


def movement(program, pair, domain=DISK):
    """The coupled variation alone."""
    return solved(program, pair, domain)[0]


def program_of(name, **settings):
    """A registered first stage."""
    return registry.build(registry.first_stages(), name, **settings)


def balancing(n, ridge, pooled, *, signed=False, **settings):
    """Kernel weights of features in the ball, or in its nonnegative part."""
    name = "mmd_pooled" if pooled else "mmd"
    if signed:
        return program_of(name, ridge=ridge / n, kernel=Linear(), **settings)
    return with_kernel(registry.first_stages()[name], Orthant())(ridge=ridge / n, **settings)


def ipw(ridge, radius=INF, trim=INF):
    """A logistic propensity."""
    return program_of("ipw_logistic", ridge=ridge, radius=radius, trim=trim)


def scaled_entropy(ridge, radius=INF):
    """Entropy balancing of the paper; of a constant next to none, the ball is left to x."""
    return program_of("paper_entropy_balancing", ridge=ridge, radius=radius, constant=1e-9)


def four_clusters(n, shape):
    """Two clusters along the coefficient and two against it; one record jumps across with a flip.

    ``shape``: positions along, spreads across, share of the first two, and two angles of the jump.
    To a logistic propensity (x, 1) is (-x, 0).
    """
    along, against, spread, split, angle, share, angle_after = shape
    common = np.array([[along, split], [along, -split], [-against, spread], [-against, -spread]])
    common /= np.maximum(1.0, np.linalg.norm(common, axis=1))[:, None]
    half = round(share * (n - 1) / 2)
    rest = n - 1 - 2 * half
    counts = (half, half, rest // 2, rest - rest // 2)
    before, after = (
        (math.sin(angle), -math.cos(angle)),
        (-math.sin(angle_after), -math.cos(angle_after)),
    )
    return Pair.of(
        zip(((1, *row) for row in common), counts, strict=True), (0, *before), (1, *after)
    )


def extremes(share, n, after):
    """All records of an arm at one point, arms opposite; the changed one moves to ``after``."""
    treated = round(share * (n - 1))
    common = [((0, 1.0, 0.0), n - 1 - treated), ((1, -1.0, 0.0), treated)]
    return Pair.of(common, (1, *after[:2]), (0, *after[2:]))


def ridge_regression_movement(ridge, radius, tilt, pair):
    """Of psi = (<x, lam> - a)^2 / 2 and h = (1 - 2a) tilt <x, lam>.

    Records (a, x) have ``||x|| <= 1``.
    """
    count, weights = np.append(pair.count, 1.0), []
    for end in (pair.before, pair.after):
        arm, *x = np.vstack([pair.common, end]).T
        x, n = np.stack(x, axis=1), count.sum()
        values, axes = np.linalg.eigh((x.T * count) @ x / n)
        pull = axes.T @ ((count * arm) @ x) / n

        def size(more, values=values, pull=pull):
            return np.linalg.norm(pull / (values + ridge + more)) - radius

        # the multiplier of the ball
        more = brentq(size, 0.0, 1e6, xtol=1e-14) if size(0.0) > 0 else 0.0
        f = np.exp((1 - 2 * arm) * tilt * (x @ axes @ (pull / (values + ridge + more))))
        weights.append(n * f / (count @ f))
    w, v = weights
    return float(count @ np.abs(w - v) + 2 * min(w[-1], v[-1])), w, v


def ridge_regression_bound(n, ridge, radius, tilt):
    """The bound from the constants of psi and h over ``||lam|| <= r``.

    They are ``||grad psi|| <= 1 + r``, ``||grad h|| <= tilt`` and ``|h| <= tilt r``.
    """
    r = min(radius, 1.0 / ridge)
    return separable(n, ridge, 2 * (1 + r), 2 * tilt, 2 * tilt * r, r)


def printed_quantities(w, v):
    """(W1, W2) of a pair of weight vectors, as the paper defines them."""
    change = w - v
    first = np.abs(change).sum() + 2 * np.minimum(w, v).max()
    second = math.sqrt((change @ change + 2 * (w * v).max()) * (1 + np.count_nonzero(change)))
    return first, second


def norm_bound(bound, n):
    """The printed 2-norm bound, recovered from a figure without the universal corollary."""
    return (bound.W1 - 2 * bound.w_max) / math.sqrt(n)
