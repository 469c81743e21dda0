"""The largest weight that regularized entropy balancing can give a record (Theorem 4 (a))."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.stability.one_sided import last_true

Array = NDArray[np.float64]

ArmMass = Literal["equal", "proportional"]

_CELLS = 4096


@dataclass(frozen=True)
class ArmCells:
    """Intervals [low, high] that cover every admissible share of one arm."""

    low: Array
    high: Array


def arm_cells(n: int, arm_floor: int) -> ArmCells:
    """Shares k/n of the arm that holds the heavy record, k from ``max(1, arm_floor)`` to ``n - arm_floor``.

    Up to a few thousand records every share is a cell of its own; beyond, shares are grouped.
    """
    first, last = max(1, arm_floor), n - arm_floor
    if last - first < _CELLS:
        share = np.arange(first, last + 1) / n
        return ArmCells(share, share)
    edge = np.linspace(first / n, last / n, _CELLS + 1)
    return ArmCells(edge[:-1], edge[1:])


@dataclass(frozen=True)
class EntropyConstants:
    """What Theorem 4 asks for.

    Attributes
    ----------
    balance_bound : G_x > 0, ``||g~(x)|| <= G_x``, in the units of the balance functions
    constant : c_0 >= 0, the constant balance function, in the same units
    ridge : > 0, in squared units of the balance functions
    radius : norm ball of lam, > 0 (``inf``: none), in their inverse units
    arm_mass : "equal" or "proportional"
    arm_floor : public lower bound on the *number* of records in each arm, if the universe is so restricted
    trim : public cap on ``exp(<lam, b_i>)`` before the weights are normalized (``inf``: none)
    """

    balance_bound: float
    constant: float
    ridge: float
    radius: float = math.inf
    arm_mass: ArmMass = "equal"
    arm_floor: int | None = None
    trim: float = math.inf


def log_odds_excess(n: int, unit: EntropyConstants, cells: ArmCells) -> float:
    """Upper bound xi of ``logit p_j - logit(1/n)`` over all records and datasets; ``inf`` if p_j may be 1.

    The ridge mu may be 0 where the radius is finite; all constants are in the same units. For each cell the
    largest xi is sought with (n-1)/n xi <= min(ctr + cf sqrt(rad - (p - 1/n) xi / mu), radius cf). The code
    multiplies by mu, so its ``center`` is mu ctr and its ``squared`` mu^2 rad. The right side falls with xi:
    the set of such xi is an interval from 0, and so is the union over cells. In a cell each coefficient takes
    its largest value. cf^2 and, for equal mass, ctr and rad are convex in the share, hence largest at an end;
    for proportional mass ctr and rad grow with pi_0 pi_1, which is largest at the share nearest 1/2.
    """
    ends = np.stack([cells.low, cells.high])
    other = 1.0 - ends
    mu, radius, balance, constant = unit.ridge, unit.radius, unit.balance_bound, unit.constant
    G2, c2 = balance**2, constant**2
    form = np.sqrt(np.max(G2 * ((1.0 + ends) ** 2 + other**2) + 2.0 * c2 * other**2, axis=0))
    if unit.arm_mass == "equal":
        center = np.max(G2 + c2 * other * (other - ends), axis=0) / 2.0
        squared = np.max(G2 + c2 * (other - ends) ** 2, axis=0) / 8.0
    else:
        middle = np.clip(0.5, cells.low, cells.high)
        rho = 2.0 * balance * middle * (1.0 - middle)
        center, squared = rho * balance, rho**2 / 2.0

    def possible(xi: float) -> bool:
        gap = -(n - 1) * math.expm1(-xi) / (n * (1.0 + (n - 1) * math.exp(-xi)))
        left = xi * (n - 1) / n
        room = squared - mu * gap * xi
        inside = mu * left <= center + form * np.sqrt(np.maximum(room, 0.0))
        return bool(np.any(inside & (room >= 0.0) & (left <= radius * form)))

    # beyond this exp(-xi) leaves no weight for the others in floating point
    certain = math.log(n) + 700.0
    found = last_true(possible, 0.0, certain)
    return math.inf if found == certain else found
