"""Adversarial neighbors for audits: clusters, nearly empty arms, one record that jumps to -u and
flips.
"""

from functools import partial

import numpy as np

from dp2erm_cvx import Codebook, Domain


def of_persons(count=1, number=8):
    """The domain of this number of persons, who count as this many records."""
    unit = {"column": "id", "number": number, "count": count}
    book = Codebook(unit=unit, treatment={"column": "arm"}, outcome="y")
    return Domain(1.8, 2.0, ranges=book.ranges({"x": (-1, 1)}), codebook=book)


def changed_record(first, second, rest=(0.0, 0, 0.0), n=8):
    """Datasets of one covariate whose first record (x, a, y) is the one or the other, beside n - 1
    others.
    """
    pair = []
    for record in (first, second):
        x, a, y = (
            np.append(own, np.broadcast_to(one, n - 1))
            for own, one in zip(record, rest, strict=True)
        )
        pair.append((x[:, None].astype(float), a.astype(int), y.astype(float)))
    return tuple(pair)


def neighbors(rng, n=12, k=2):
    """Raw datasets (X, a, y) of n records that differ in the first; covariates and outcomes at
    their ends.
    """
    centers = rng.normal(size=(2, k))
    centers /= np.linalg.norm(centers, axis=1)[:, None]
    centers[1] *= rng.choice([0.0, 1.0])
    X = centers[(rng.random(n) < rng.uniform()).astype(int)] * rng.choice([-1.0, 1.0], size=(n, 1))
    a = (rng.random(n) < rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])).astype(int)
    y = np.where(a == 1, *rng.choice([-1.0, 1.0], size=2))
    other = X.copy(), a.copy(), y.copy()
    X[0], other[0][0] = centers[0], -centers[0]
    a[0] = rng.integers(2)
    other[1][0] = 1 - a[0]
    y[0], other[2][0] = rng.choice([-1.0, 1.0], size=2)
    return (X, a, y), other


def aligned(rng, n=12, k=2, margins=False):
    """The worst case of a squared loss: one covariate, extreme outcomes, one effect reversed by a
    flip.

    With ``margins``: all margins and effects are alike, and then the changed record has the
    opposite of both. Under a coefficient far along its margin it has the largest weight: the most
    that Theorem 9 allows.
    """
    u = rng.normal(size=k)
    u /= np.linalg.norm(u)
    a, side = rng.integers(2, size=n), float(rng.choice([-1.0, 1.0]))
    sign = 2 * a - 1.0
    X = -sign[:, None] * u if margins else np.tile(u, (n, 1))
    other = X.copy(), a.copy(), side * sign
    other[1][0] = 1 - a[0]
    return (X, a, side * sign), other


heavy = partial(aligned, margins=True)


def lone(rng, n=12, k=2):
    """The record is alone in its arm and leaves it, or moves into an empty one."""
    arm = int(rng.integers(2))
    X = rng.uniform(-0.5, 0.5, (n, k))
    a = np.full(n, arm)
    y = np.full(n, float(rng.choice([-1.0, 1.0])))
    other = X.copy(), a.copy(), y.copy()
    a[0] = 1 - arm
    return (X, a, y), other


KINDS = (neighbors, aligned, lone, heavy)


def drawn(kind, n=12, k=2, seed=0):
    return kind(np.random.default_rng(seed), n, k)
