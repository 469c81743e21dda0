"""Entropy balancing in its dual: rows b_i, targets t and the model that finds weights."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, UNIT, Array
from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import Curve, Part
from dp2erm_cvx.curves.log_weights import LogWeight
from dp2erm_cvx.data.blocks import VIEW, Blocks, tree_sum, whole
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.model.composite import LocalError, Penalty
from dp2erm_cvx.model.sets import L2Ball, WholeSpace
from dp2erm_cvx.model.sums import column_sums, compensated_sum, rounded_sum
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.first_stage import BalancedStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.program.scheme import Setting
from dp2erm_cvx.program.stage import Kind


@dataclass(frozen=True)
class EntropyFirstStage(BalancedStage):
    """Entropy balancing of ``g = (constant, balance(x))`` within each arm, solved in its dual."""

    kind: ClassVar[Kind] = Kind.EXPONENTIAL
    formulas: ClassVar[Mapping[str, Setting]] = MappingProxyType({"constant": "G_x"})

    @abc.abstractmethod
    def of_arms(self, size: Array, space: Space) -> tuple[Array, Array]:
        """What rows and targets of the arms are multiplied by.

        Parameters
        ----------
        size
            (..., 2): number of records of the controls and of the treated.
        space
            The space of the records.

        Returns
        -------
        tuple
            Factor of the rows of each arm, (..., 2), and the share of the weight it is to have,
            (..., 2).
        """

    def moments(self, records: Records) -> tuple[Array, Array]:
        """Rows B (n, 2k) and targets t (2k,).

        Weights meet ``B.T @ w / n = t`` where balance is exact.
        """
        rows, target = self.balanced(records)
        return np.concatenate(rows.each()), target

    def balanced(self, records: Records) -> tuple[Blocks[Array], Array]:
        """The rows in blocks, and the targets."""
        n = records.n_samples
        totals = records.rows(self._totals).each()
        treated = sum(count for count, _ in totals)
        mean = rounded_sum([total for _, total in totals]) / n
        scale, share = self.of_arms(np.array([n - treated, treated]), records.space)
        target = np.concatenate([scale[0] * share[0] * mean, scale[1] * share[1] * mean])
        return records.rows(partial(self._rows, scale=scale)), target

    def _totals(self, records: Records) -> tuple[int, tuple[Array, Array]]:
        """The number of treated records, and the sums of g."""
        return int(np.sum(records.a)), compensated_sum(self.functions(records))

    def _rows(self, records: Records, scale: Array) -> Array:
        """Rows ``scale_a e_a (x) g`` of the records, (n, 2k)."""
        return self.in_arm(records, records.a, scale)

    def data(self, records: Records) -> dict[str, Value]:
        B, target = self.moments(records)
        return {"B": B, "target": target}


class ExponentialModel(MarginModel):
    """f(v) = n (log mean_i exp(<b_i, v>) - <target, v> + ridge/2 ||v||^2) over ``||v|| <= radius``.

    The output is the weights ``w_i = n exp(<b_i, v>) / sum`` (Proposition entropy_weight_duality).
    Sums of exponentials are those of :class:`~dp2erm_cvx.program.margin_model.MarginModel`,
    normalized.

    Parameters
    ----------
    rows
        B (n, d), or blocks of it.
    target
        t (d,).
    ridge
        The ridge, per record.
    radius
        Bound on ``||v||``; ``inf`` for none.
    log_base
        ``log(n q_i)`` (n,) of a base measure q, added to every score; None for 0.
    """

    shifted = True

    def __init__(
        self,
        rows: Array | Blocks[Array],
        target: Array,
        ridge: float,
        radius: float,
        *,
        log_base: Array | None = None,
    ) -> None:
        blocks = rows if isinstance(rows, Blocks) else whole(rows, len(rows))
        n = blocks.n_samples
        self.log_base = log_base
        # log mean exp(<b, v>) - <t, v> is unchanged by a common shift of b and t, which is chosen
        # to lose no digits
        self.center: Array = blocks.total(column_sums, tree_sum) / n
        self.target: Array = target - self.center
        beside = () if log_base is None else (log_base,)
        centered: MarginRows | Blocks[MarginRows]
        centered = blocks.then(partial(_centered, center=self.center), *beside)
        if blocks.here and n <= VIEW:
            centered = whole(MarginRows.whole(centered), n)
        super().__init__(
            centered,
            Curve((Part(1.0, atom("exp")),)),
            n * ridge,
            Penalty(WholeSpace() if math.isinf(radius) else L2Ball(radius)),
            linear=-n * self.target,
            weight=LogWeight(),
        )

    def _bend(self, gram: Array) -> None:
        # what centering rounds against
        self.size = self.spread + 2 * float(np.linalg.norm(self.center))
        self.smoothness = self.n * self.spread**2 + self.ridge
        # third central moments are at most the range 2 * spread * ||v|| times the variance
        self.self_concordance = 2 * self.spread

    def value(self, v: Array) -> float:
        sums = self._at(v)
        log_mean = sums.top + math.log(sums.value / self.n)
        return self.n * (log_mean - float(self.target @ v)) + 0.5 * self.ridge * float(v @ v)

    def gradient(self, v: Array) -> Array:
        sums = self._at(v)
        return self.n * (sums.gradient / sums.value - self.target) + self.ridge * v

    def hessian(self, v: Array) -> Array:
        sums = self._at(v, curved=True)
        assert sums.hessian is not None
        mean = sums.gradient / sums.value
        covariance: Array = sums.hessian / sums.value - np.outer(mean, mean)
        return self.n * covariance + self.ridge * np.eye(self.dimension)

    def rounding(self, v: Array) -> float:
        _, mean_error = self._mean_error(v)
        shift = 4 * UNIT * (float(np.linalg.norm(self.target)) + self.size)
        of_ridge = 4 * UNIT * self.ridge * float(np.linalg.norm(v))
        return self.n * (mean_error + shift) + of_ridge

    def hessian_rounding(self, v: Array) -> float:
        sums = self._at(v, curved=True)
        assert sums.hessian is not None
        mean, mean_error = self._mean_error(v)
        second_moment = float(np.trace(sums.hessian)) / sums.value
        share = sums.value_rounding / sums.value
        error = _ratio_error(sums.hessian_rounding / sums.value, second_moment, share)
        # of the square of the mean, and what both moments round beside
        error += 2 * mean * mean_error + mean_error**2 + 32 * UNIT * second_moment
        return self.n * error + 4 * UNIT * self.ridge

    def _mean_error(self, v: Array) -> tuple[float, float]:
        """The norm of the tilted mean of rows, and a bound on its error."""
        sums = self._at(v)
        mean = float(np.linalg.norm(sums.gradient)) / sums.value
        share = sums.value_rounding / sums.value
        return mean, _ratio_error(sums.rounding / sums.value, mean, share)

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        # tilt lemma without a changed record: the range of <b_i, error> is at most 2 kappa
        kappa = self.spread * radius
        if local is not None:
            kappa = min(kappa, self.largest_move(local))
        kappa += self._at(v).margin_error
        return 2 * self.n * math.tanh(kappa / 2) + 16 * UNIT * self.n

    def lowest_within(self, v: Array, distance: float) -> float:
        return self.ridge


def _ratio_error(error: float, size: float, share: float) -> float:
    """Bound on the error of a sum M over the sum T of exponentials.

    M and T are off by at most ``error`` and ``share`` times the computed T':
    ``|M'/T' - M/T| <= error + |M/T| share``, and ``|M/T|`` is at most the size of the computed
    ratio plus what is sought.

    Parameters
    ----------
    error, share
        As above.
    size
        The norm of the computed ratio.
    """
    if not share < 0.5:
        return math.inf
    return (error + size * share) / (1.0 - share) * ROUND_UP_SUMS


def _centered(rows: Array, log_base: Array | None = None, *, center: Array) -> MarginRows:
    """Rows less their mean, whose offsets are minus the log base."""
    return MarginRows(rows - center, None if log_base is None else -log_base)
