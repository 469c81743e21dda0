"""The paper's general principle for weights that are a smooth map of a strongly convex minimizer."""

from __future__ import annotations

import math

from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import sample_size
from dp2erm_cvx.stability.paper import Statement, from_norm_bound
from dp2erm_cvx.stability.tilt import EXACT


def general_principle(
    n: int,
    weight_lipschitz: float,
    strong_convexity: float,
    gradient_change: float,
    *,
    fixed_set: bool,
    w_max: float = math.inf,
) -> StabilityBound:
    """``||w - w'||_2 <= (2 L_F / rho) sup ||grad E - grad E'||`` (general stability theorem).

    For ``w = F(lam)``, lam the minimizer over one closed convex set of ``E(.; data)``, with F one and the
    same map for every dataset.

    Parameters
    ----------
    n
        Number of records, at least 2.
    weight_lipschitz
        L_F >= 0, Lipschitz constant of F in Euclidean norms.
    strong_convexity
        rho > 0 on every dataset of the universe.
    gradient_change
        Largest ``||grad E - grad E'||_2`` over the set and over all neighbors.
    fixed_set
        Whether neither the set nor F depends on the data. Weights that must sum to a value per arm live on a
        set that changes with a treatment; weights evaluated at the records' own covariates are a map that
        does.
    w_max
        Public bound on every weight, >= 1.

    Raises CalibrationError where ``fixed_set`` is False, DeclarationError for an invalid number.
    """
    n = sample_size(n)
    lipschitz = public_number("weight_lipschitz", weight_lipschitz, at_least=0.0)
    rho = public_number("strong_convexity", strong_convexity, above=0.0)
    change = public_number("gradient_change", gradient_change, at_least=0.0)
    largest = public_number("w_max", w_max, at_least=1.0, infinite=True)
    if fixed_set is not True:
        raise CalibrationError(
            "the general stability theorem needs one feasible set and one weight map for all datasets; here "
            "they change with the records"
        )
    return from_norm_bound(
        n,
        2.0 * lipschitz / rho * change,
        largest,
        Statement(
            "general stability theorem", ("one feasible set and one weight map for all datasets", EXACT)
        ),
    )
