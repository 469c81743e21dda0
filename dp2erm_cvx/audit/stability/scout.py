"""Movements of many pairs of groups, for searching; solved in full for any program."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.audit.stability.claims import Quantity
from dp2erm_cvx.audit.stability.groups import Groups
from dp2erm_cvx.audit.stability.resolve import NeighborPair, of_groups, resolve, solved_together
from dp2erm_cvx.domain import Array
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.universe import Universe

Arms = NDArray[np.int64]


class Scout(abc.ABC):
    """Uncertified movements of pairs of groups. What a scout finds is solved again in full."""

    exact = False
    #: Programs that it reads its rows from.
    family: ClassVar[type] = FirstStage

    def __init__(self, program: FirstStage, universe: Universe, model: Any = None) -> None:
        self.program, self.universe = program, universe

    def movements(self, pairs: Groups) -> dict[Quantity, Array]:
        """Movements (b,), NaN where a pair lies outside of the universe or was not solved."""
        valid = np.flatnonzero(np.isfinite(pairs.count).all(axis=1))
        found = {quantity: np.full(len(pairs), np.nan) for quantity in Quantity}
        if len(valid):
            try:
                measured = self._movements(pairs.take(valid))
            except np.linalg.LinAlgError:  # hardly any ridge
                return found
            for quantity, values in measured.items():
                found[quantity][valid] = values
        return found

    def _movements(self, pairs: Groups) -> dict[Quantity, Array]:
        (x, a, count), (x_after, a_after, _) = pairs.dataset(False), pairs.dataset(True)
        both = self.weights(
            np.concatenate([x, x_after]), np.concatenate([a, a_after]), np.concatenate([count, count])
        )
        return of_groups(both[: len(pairs)], both[len(pairs) :], count)

    @abc.abstractmethod
    def weights(self, x: Array, arm: Arms, count: Array) -> Array:
        """Weights per record (b, m) of datasets of ``count`` (b, m) records with covariates (b, m, d)."""


class InFull(Scout):
    """Any program: all n records, one solve each."""

    exact = True

    def _movements(self, pairs: Groups) -> dict[Quantity, Array]:
        changed = self.universe.n_samples - 1
        whole = [NeighborPair(*pairs.expand(k, self.universe), changed, "") for k in range(len(pairs))]
        many = solved_together(self.program, [end for pair in whole for end in (pair.first, pair.second)])
        if many is not None and np.all(np.isfinite(many[1])):
            w, v = many[0][0::2], many[0][1::2]
            return of_groups(w, v, np.ones_like(w))
        found = {quantity: np.full(len(pairs), np.nan) for quantity in Quantity}
        place = {id(pair): index for index, pair in enumerate(whole)}
        for item in resolve(self.program, whole):
            for quantity, interval in item.movements.items():
                found[quantity][place[id(item.pair)]] = 0.5 * (interval.low + interval.high)
        return found

    def weights(self, x: Array, arm: Arms, count: Array) -> Array:
        """Not used: movements come from all records."""
        raise NotImplementedError
