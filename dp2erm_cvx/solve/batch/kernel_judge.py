"""The certificate of many neighbors of a kernel-balancing problem at once."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.simplex import Simplices
from dp2erm_cvx.model.sums import UNIT, product_error
from dp2erm_cvx.program.schemes.kernel_model import KernelModel
from dp2erm_cvx.solve.batch.kernel_members import KernelMembers, KernelPoints


def judge_kernel(model: KernelModel, members: KernelMembers, points: KernelPoints) -> Array:
    """Bound (m,) on the l1 error of the weights at points that lie within their bounds.

    Half the gradient plus the multiplier of its group is an element of half the subdifferential, once the
    part that the normal cone takes up at a bound is left out; its norm over the declared ridge bounds the
    distance. Totals that rounding missed are charged as a step to the exact set along one free weight.
    """
    simplices = model.penalty.set
    assert isinstance(simplices, Simplices)
    n, m = model.n, len(members)
    V, t, rows = points.shared, points.new, np.arange(len(members))
    half = V @ model.Q
    half += members.coupling * t[:, None] - members.linear + model.half_ridge * V
    half += points.multipliers[:, simplices.group]
    half = _inside_cone(half, V, simplices.cap)
    half[rows, members.index] = 0.0
    own = np.sum(members.coupling * V, axis=1) + (members.diagonal + model.half_ridge) * t
    own += points.multipliers[rows, members.group] - members.own_linear
    own = _inside_cone(own, t, simplices.cap)
    residual = np.sqrt(np.sum(half * half, axis=1) + own * own) * (1 + 1e-12) + 1e-150

    size = np.sqrt(np.maximum(np.diag(model.Q), 0.0))
    new_size = np.sqrt(np.maximum(members.diagonal, 0.0))
    moment = V @ size + t * new_size + float(np.sum(size)) + new_size
    length = np.sqrt(float(size @ size) + members.diagonal)
    multiplier = np.sum(np.abs(points.multipliers), axis=1)
    total = np.sum(V, axis=1) + t
    # entries of the kernel are wrong by their share of sqrt(K_ii K_jj); sums over them by less, where most
    # are small: | |Q| v | is at most the largest row sum times |v|, and the new row and column come on top
    entries = (24 + model.entry_error) * UNIT * length * moment
    summed = float(np.max(model.row_sums)) * np.sqrt(np.sum(V * V, axis=1)) + float(np.linalg.norm(model.c))
    summed += new_size * (length * (t + 2) + moment) + length * float(np.max(size))
    linear = model.half_ridge * total + math.sqrt(n) * multiplier
    rounding = entries + product_error(n) * summed * (1 + 1e-9) + 8 * UNIT * linear

    pairwise = (64 + math.log2(n)) * UNIT  # numpy adds contiguous rows pairwise, from blocks of 128
    missed = np.zeros(m)
    roomy = np.ones(m, dtype=bool)
    for group in range(points.multipliers.shape[1]):
        inside = simplices.group == group
        mine = members.group == group
        mass = np.ascontiguousarray(V[:, inside])
        amount = np.sum(mass, axis=1) + np.where(mine, t, 0.0)
        gap = np.abs(amount - simplices.total) + pairwise * (amount + simplices.total)
        missed += gap
        room = mass if math.isinf(simplices.cap) else np.minimum(mass, simplices.cap - mass)
        roomy &= np.max(room, axis=1, initial=0.0) > 2 * gap
    # a bordered semidefinite matrix has at most the largest eigenvalue plus the new diagonal entry
    smoothness = 0.5 * model.smoothness + members.diagonal
    radius = (residual + rounding + smoothness * missed) / model.half_ridge + missed
    bound = model.scale * (math.sqrt(n) * radius + 8 * UNIT * total) * (1 + 1e-9)
    return np.where(roomy & np.isfinite(bound), bound, np.inf)


def _inside_cone(r: Array, v: Array, cap: float) -> Array:
    """What is left of r where the normal cone adds any amount: nonpositive at 0, nonnegative at the cap."""
    left: Array = np.where(v <= 0, np.minimum(r, 0.0), np.where(v >= cap, np.maximum(r, 0.0), r))
    return left
