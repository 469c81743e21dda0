"""How weights of neighbors answer to the covariates of their new records.

By the implicit function theorem: no neighbor is solved again (docs/audits.md, *Gradients*).
"""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.inverse_slope import InverseSlope
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.neighbors.data import NeighboringData, ReplacedRows
from dp2erm_cvx.weighting.neighbors.joint_steps import JointSteps
from dp2erm_cvx.weighting.neighbors.many_datasets import Numbers
from dp2erm_cvx.weighting.solving.dataset import (
    boxes_of_records,
    rows_of_records,
    vectors_of_records,
)


class NeighborDerivatives:
    """Derivatives of the weights of m neighbors by what they have of their new records.

    Weights are ``w_i = h_i(-<r_i, p> - l_i - mu)`` with prices p = p(y) and the multiplier mu of
    the block. The dual point u = (y, mu) solves ``F(u) = 0``: imbalances ``sum w_i r_i - t`` are
    the proximal points of y, and sums of blocks are as they are declared.

    Parameters
    ----------
    steps
        Common steps of the neighbors.
    neighboring
        The dataset that they are neighbors of.
    duals
        Their dual points u (m, K + B).
    index
        Numbers (m,) of the replaced records.
    new_records
        The m new records.
    """

    def __init__(
        self,
        steps: JointSteps[ReplacedRows],
        neighboring: NeighboringData,
        duals: Array,
        index: Numbers,
        new_records: Records,
    ) -> None:
        self.steps = steps
        self.neighboring = neighboring
        self.outer: Array = duals[:, : steps.K]
        self.multipliers: Array = duals[:, steps.K :]
        self.part = neighboring.replaced(index, new_records)
        self.state = steps.state(self.outer, self.multipliers, self.part)

    def of_new_records(self, index: Numbers, new_records: Records) -> Array:
        """What new records bring at the dual points: weights, rows and targets (m, 1 + 2 K).

        Parameters
        ----------
        index
            Numbers (m k,) of the replaced records, k for each neighbor.
        new_records
            The m k new records, in the arms of those of the neighbors.
        """
        neighboring = self.neighboring
        form = neighboring.form
        arms = new_records.a
        each = np.repeat(np.arange(len(self.part)), len(index) // max(len(self.part), 1))
        vectors = vectors_of_records(form, new_records)
        rows = rows_of_records(form, vectors, arms)
        targets, _, _ = neighboring.targets_of(index, vectors, arms)
        level = neighboring.own_levels(self.multipliers, self.part)
        argument = -np.sum(self.state.points.prices[each] * rows, axis=1) - level[each]
        if form.linear is not None:
            argument -= form.linear.row(vectors[form.linear.features.name], arms)[:, 0]
        low, cap = boxes_of_records(form, arms, vectors)
        base = None if form.base is None else vectors[form.base.name][:, 0]
        weights, _ = InverseSlope(form.dispersion, low, cap, base).at(argument, slice(None))
        return np.hstack([weights[:, None], rows, targets])

    def partials(self, signs: Array) -> Array:
        """Partial derivatives (m, 1 + 2 K) of ``sum_i c_i w_i`` by :meth:`of_new_records`.

        Where the new record brings dw, dr and dt at a fixed dual point, F moves by
        ``dF = -(r dw + w dr - dt)`` for imbalances and by dw for the sum of its block. The dual
        point answers by ``du = -J^-1 dF`` with the Jacobian J of F. One solve
        ``J' q = d(sum_i c_i w_i) / du`` serves all coordinates.

        Parameters
        ----------
        signs
            The numbers c_i (m, n).
        """
        part = self.part
        places = part.places
        rates = self.state.rates
        K = self.steps.K
        neighboring = self.neighboring
        lined = neighboring.lined_of(part)
        risen = signs * rates
        own = risen[places]
        risen[places] = 0.0
        by_argument = risen @ neighboring.lined + own[:, None] * lined
        _, through = self.steps.price_slopes(self.outer, neighboring.n_blocks)
        by_dual = -np.einsum("mij,mi->mj", through, by_argument)
        jacobians = self.steps.jacobians(self.outer, neighboring.moments(rates.copy(), part))
        adjoint = np.linalg.solve(np.swapaxes(jacobians, 1, 2), by_dual[:, :, None])[:, :, 0]
        of_imbalances = adjoint[:, :K]
        of_sums = np.sum(adjoint[:, K:] * lined[:, K:], axis=1)
        by_weight = signs[places] + np.sum(of_imbalances * part.rows, axis=1) - of_sums
        weight = self.state.points.weights[places]
        by_row = weight[:, None] * of_imbalances
        return np.hstack([by_weight[:, None], by_row, -of_imbalances])
