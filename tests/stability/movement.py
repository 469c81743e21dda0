"""Movement of weights between neighbors: certified solves of the registered programs.

A dataset is a list of distinct records with multiplicities; the changed record is the last one, alone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import Domain, registry
from dp2erm_cvx.audit import Quantity
from dp2erm_cvx.audit.movement import NeighborPair, resolve
from dp2erm_cvx.domain import Records
from dp2erm_cvx.program import FirstStage

Array = NDArray[np.float64]
INF, DISK = math.inf, Domain(1.0, 1.0)


@dataclass(frozen=True)
class Pair:
    """Neighbors: the common records (arm, x_1, ...), their counts, and the changed one before and after."""

    common: Array
    count: Array
    before: Array
    after: Array

    @classmethod
    def of(cls, common: Iterable[tuple[Any, int]], before: Sequence[float], after: Sequence[float]) -> "Pair":
        """From records with their counts."""
        points, count = zip(*common, strict=True)
        return cls(*(np.array(one, dtype=float) for one in (points, count, before, after)))

    def records(self, domain: Domain) -> tuple[Records, Records]:
        """Both datasets."""
        rows = np.repeat(self.common, self.count.astype(int), axis=0)
        ends = [np.vstack([rows, end]) for end in (self.before, self.after)]
        first, second = (domain.records(x[:, 1:], x[:, 0].astype(int), np.zeros(len(x))) for x in ends)
        return first, second


def solved(program: FirstStage, pair: Pair, domain: Domain = DISK) -> tuple[float, Array, Array]:
    """The coupled variation, no more than it is, and both vectors of weights (n,)."""
    first, second = pair.records(domain)
    (result,) = resolve(
        program.resolve(domain), [NeighborPair(first, second, len(first.a) - 1, "")], "first_certified"
    )
    (w, _), (v, _) = result.solved
    return result.movements[Quantity.V].low, w, v


def movement(program: FirstStage, pair: Pair, domain: Domain = DISK) -> float:
    """The coupled variation alone."""
    return solved(program, pair, domain)[0]


def program_of(name: str, **settings: Any) -> FirstStage:
    """A registered first stage."""
    return registry.build(registry.first_stages(), name, **settings)


def ipw(ridge: float, radius: float = INF, trim: float = INF) -> FirstStage:
    """A logistic propensity."""
    return program_of("ipw_logistic", ridge=ridge, radius=radius, trim=trim)


def scaled_entropy(ridge: float, radius: float = INF) -> FirstStage:
    """Entropy balancing in the paper's scaling; of a constant next to none, the ball is left to x."""
    settings = {"scaling": "paper", "arm_mass": "proportional", "constant": 1e-9}
    return program_of("entropy_balancing", ridge=ridge, radius=radius, **settings)


def four_clusters(n: int, shape: Sequence[float]) -> Pair:
    """Two clusters along the coefficient and two against it; one record jumps across with a flip.

    ``shape``: positions along, spreads across, share of the first two, and two angles of the jump. To a
    logistic propensity (x, 1) is (-x, 0).
    """
    along, against, spread, split, angle, share, angle_after = shape
    common = np.array([[along, split], [along, -split], [-against, spread], [-against, -spread]])
    common /= np.maximum(1.0, np.linalg.norm(common, axis=1))[:, None]
    half = round(share * (n - 1) / 2)
    rest = n - 1 - 2 * half
    counts = (half, half, rest // 2, rest - rest // 2)
    before, after = (math.sin(angle), -math.cos(angle)), (-math.sin(angle_after), -math.cos(angle_after))
    return Pair.of(zip(((1, *row) for row in common), counts, strict=True), (0, *before), (1, *after))


def printed_quantities(w: Array, v: Array) -> tuple[float, float]:
    """(W1, W2) of a pair of weight vectors, as the paper defines them."""
    change = w - v
    first = np.abs(change).sum() + 2 * np.minimum(w, v).max()
    second = math.sqrt((change @ change + 2 * (w * v).max()) * (1 + np.count_nonzero(change)))
    return first, second
