"""Neighbors of a program whose variable is the weights, by the form that it was read as."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.neighbors.gradients import by_covariates
from dp2erm_cvx.neighbors.rows import Claims, FastPath, Replacements
from dp2erm_cvx.weighting.neighbors.many_datasets import release_factors
from dp2erm_cvx.weighting.neighbors.together import FormNeighbors


def weighting_path(model: WeightsModel, records: Records) -> FastPath | None:
    """Neighbors that are solved together in the dual; None where each has to be solved alone.

    Parameters
    ----------
    model
        The model of the base problem.
    records
        Its records.
    """
    if model.dual is None:
        return None
    form = model.form
    neighbors = FormNeighbors(form, records)
    if not neighbors.usable:
        return None
    derivatives = neighbors.derivatives

    def solved(part: Replacements, goal: float) -> Claims:
        """Common steps, and the factor that released weights have."""
        solutions = neighbors.together(part.index, part.records(), goal / form.n)
        n_treated = np.sum(part.base.a) + part.a - part.base.a[part.index]
        factor = release_factors(form, np.asarray(n_treated, dtype=np.float64))
        weights = factor[:, None] * solutions.weights
        rounding = 4.0 * UNIT * np.sum(weights, axis=1)
        radius = factor * solutions.claims * ROUND_UP + rounding
        radius = np.where(np.isfinite(solutions.claims), radius, np.inf)
        claims = Claims.held(weights, radius, solutions.steps, solutions.weights, part.index)
        if derivatives is None:
            return claims
        proved = np.flatnonzero(np.isfinite(radius))

        def gradients(base: Array) -> Array:
            """Gradients (m, p) of V in the covariates of the new records."""
            some = part[proved]
            at = derivatives(solutions.duals[proved], some.index, some.records())
            signs = np.sign(weights[proved] - base)
            signs[np.arange(len(some)), some.index] = 1.0
            partials = at.partials(factor[proved, None] * signs)

            def of_new_records(near: Replacements) -> Array:
                return at.of_new_records(near.index, near.records())

            of_all = np.full((len(part), records.n_features), np.nan)
            of_all[proved] = by_covariates(partials, some, of_new_records)
            return of_all

        return replace(claims, gradients=gradients)

    return FastPath(solved, holds_weights=True, knows_gradients=derivatives is not None)
