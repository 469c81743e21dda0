"""Gradients of the movement V in the covariates of replaced records.

They follow from the implicit function theorem where the weights are smooth in a record
(docs/audits.md, *Gradients*).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.neighbors.rows import VARIATION, Index, Reading, Replacements


class SignedWeights(Reading):
    """Reads the weights with the signs of their movement from the weights ``base`` (n,)."""

    def __init__(self, base: Array) -> None:
        self.beside = (base,)

    def of(self, weights: Array, *beside: Array) -> tuple[Array, Array]:
        """Sums (m, 1) of the signed weights; no maxima."""
        (base,) = beside
        signed = np.sum(np.sign(weights - base) * weights, axis=1, keepdims=True)
        return signed, np.zeros((len(weights), 0))


def mean_signs(
    read: Callable[[Reading], tuple[Array, Array, Array]], base: Array, index: Index
) -> Array:
    """Means (m,) of the signs in V by the weights of m neighbors: that of the new record is 1.

    Parameters
    ----------
    read
        What a reading says of the weights of the neighbors.
    base
        The weights (n,) from which they move.
    index
        Numbers (m,) of the replaced records.
    """
    signed, _, own = read(SignedWeights(base))
    turned = 1.0 - np.sign(own - base[index])
    return np.asarray((signed[:, 0] + turned * own) / len(base))


def by_covariates(
    partials: Array, part: Replacements, of_new_records: Callable[[Replacements], Array]
) -> Array:
    """Gradients (m, p) of V in covariates, by the chain rule.

    Parameters
    ----------
    partials
        Partial derivatives (m, P) of V by what neighbors have of their new records.
    part
        The m neighbors.
    of_new_records
        What neighbors have of their new records. It is differentiated by differences, which cost no
        solve.
    """
    values = of_new_records(part.varied()).reshape(len(part), -1, partials.shape[1])
    distance = VARIATION * part.base.space.features_bound
    slopes = (values[:, 1:] - values[:, :1]) / distance
    return np.asarray(np.einsum("mpk,mk->mp", slopes, partials))
