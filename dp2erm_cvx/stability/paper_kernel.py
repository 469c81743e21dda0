"""MMD weights: the paper's proposition as printed, under the relation it holds for."""

from __future__ import annotations

import math

from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import positive_ridge, sample_size, treatment_may_flip
from dp2erm_cvx.stability.paper import Statement, from_norm_bound
from dp2erm_cvx.stability.tilt import EXACT


def paper_kernel_balancing(
    n: int,
    kernel_bound: float,
    ridge: float,
    weight_cap: float,
    relation: Neighboring = Neighboring.REPLACE_ONE_KEEP_TREATMENT,
) -> StabilityBound:
    """Printed bound for three-way MMD weights (proposition on MMD).

    ``||w - w'||_2 <= 2 sqrt(2) (R + 1) C n / ridge``. The program is that of ``kernel_balancing``, with every
    weight at most ``weight_cap``.

    Parameters
    ----------
    n
        Number of records, at least 2.
    kernel_bound
        C > 0, ``|K| <= C``.
    ridge
        lambda_MMD > 0, factor of ``||p||^2`` with each arm's p of sum 1, in the units of K.
    weight_cap
        R >= 1, bound on every weight, on the scale where weights sum to ``n``. The cap may bind.
    relation
        Must be REPLACE_ONE_KEEP_TREATMENT.

    The feasible set depends on the treatments, so the argument needs a neighbor that keeps its treatment.
    When it does not, the statement is false: as the ridge grows the bound tends to 0 and the movement does
    not. Raises CalibrationError for that relation and for ``ridge = 0``, DeclarationError for an invalid
    number.
    """
    n = sample_size(n)
    C = public_number("kernel_bound", kernel_bound, above=0.0)
    mu = positive_ridge(ridge)
    cap = public_number("weight_cap", weight_cap, at_least=1.0, infinite=True)
    if treatment_may_flip(relation):
        raise CalibrationError(
            f"the paper's MMD proposition is false under {Neighboring.REPLACE_ONE.value}: with 100 records a "
            "change of treatment moves the weights by 0.7205 where it allows 0.0699; use the sharp bound"
        )
    return from_norm_bound(
        n,
        2.0 * math.sqrt(2.0) * (cap + 1.0) * (C / mu) * n,
        cap,
        Statement(
            "proposition on MMD",
            (f"kernel at most {C:g} in absolute value", f"every weight at most {cap:g}", EXACT),
            frozenset({Neighboring.REPLACE_ONE_KEEP_TREATMENT}),
        ),
    )
