"""What the value of a rule is computed from: weighted outcomes and masses by choice and treatment."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DataError


def value_contrasts(records: Records, weights: ArrayLike, chosen: ArrayLike) -> Array:
    """``(1/n) sum w_i t_i``, shape (2,): against all, against none. Not private.

    ``weights`` (n,) are nonnegative of sum n, ``chosen`` (n,) in {0, 1} is what the rule chooses at each
    record, a function of that record and of public numbers alone.
    ``t_i = 2 (1{a_i = d_i} - 1{a_i = 1}, 1{a_i = d_i} - 1{a_i = 0}) y_i`` with y the centered net outcome.
    The l1 error of the result is at most ``calibration.value.SUM_ERROR`` times 2 M'.

    Raises DataError on a wrong shape, a weight that is no finite number, an outcome beyond the domain's
    bound, and a choice other than 0 and 1. Solved weights and records of a domain raise none of these.
    """
    w, d = _checked(records, weights, chosen)
    # a rule that treats gains on treating none where it treats, and on treating all where it does not
    follows = np.where(records.a == d, 1.0, -1.0)
    terms = w * (follows * records.y)
    sums = [math.fsum(terms[d == choice]) for choice in (0, 1)]
    return np.array([2.0 * total / records.n_samples for total in sums])


def value_cells(records: Records, weights: ArrayLike, chosen: ArrayLike) -> Array:
    """``(1/n) sum w_i t_i``, shape (8,), ``t_i = e_cell (x) (y_i, M'/2)``. Not private.

    Four sums of outcomes, then four masses times M'/2, of the cells (choice, treatment) = (0, 0), (0, 1),
    (1, 0), (1, 1). The l1 error is at most ``calibration.value.SUM_ERROR`` times 1.5 M'. Arguments and
    errors are those of :func:`value_contrasts`.
    """
    w, d = _checked(records, weights, chosen)
    terms, n = w * records.y, records.n_samples
    cells = [(d == choice) & (records.a == arm) for choice in (0, 1) for arm in (0, 1)]
    outcomes = [math.fsum(terms[cell]) / n for cell in cells]
    half = 0.5 * records.domain.outcome_bound
    return np.array(outcomes + [half * math.fsum(w[cell]) / n for cell in cells])


def _checked(records: Records, weights: ArrayLike, chosen: ArrayLike) -> tuple[Array, Array]:
    n = records.n_samples
    try:
        w, d = np.asarray(weights, dtype=np.float64), np.asarray(chosen, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("weights and chosen: must be arrays of numbers") from None
    if w.shape != (n,) or d.shape != (n,):
        raise DataError(f"weights {w.shape} and chosen {d.shape} must have shape ({n},)")
    if not np.all(np.isfinite(w)):
        raise DataError("weights: must be finite numbers")
    if not np.all(np.abs(records.y) <= records.domain.outcome_bound):
        raise DataError("records: an outcome lies beyond the outcome_bound of the domain")
    if not np.all((d == 0) | (d == 1)):
        raise DataError("chosen: must be 0 or 1")
    return w, d
