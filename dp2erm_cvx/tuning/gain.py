"""How private rules are scored on private records: whole numbers of a public range.

The gain of a rule d over a coin toss on record i is ``(1{a_i = d(x_i)} - 1/2) y_i / p_{a_i}``, y the
centered net outcome and p_a the declared probability of treatment a. Under that probability its mean is the
value of d less the mean value of treat-all and treat-none. Counted in units of ``B / (2 LEVELS)``,
``B = M' / min(p_a)``, and rounded record by record, it is a whole number between -LEVELS and LEVELS, so that
sums are exact and replacing one record moves the sum of any rule by at most 2 LEVELS.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import public_number

#: Half the range of one record's score: rounding costs less than one part in a million of it.
LEVELS = 2**20

#: The most a sum of scores moves when one record is replaced, treatment flips included.
SENSITIVITY = 2 * LEVELS


def declared_propensity(value: object) -> float:
    """The public probability of treatment, in (0, 1). Raises DeclarationError otherwise."""
    propensity = public_number("propensity", value, above=0.0)
    if propensity >= 1.0:
        raise DeclarationError(f"propensity = {value!r}: must be below 1")
    return propensity


def total_gain(chosen: NDArray[np.int64], a: NDArray[np.int64], net: Array, domain: Domain, p: float) -> int:
    """Sum of the scores of a rule that recommends ``chosen`` (m,) to records treated by ``a`` (m,).

    ``net`` (m,) is the net outcome of the domain, within [-M', M']; ``p`` the probability of treatment.
    """
    rarest = min(p, 1.0 - p)
    relative = np.where(a == 1, rarest / p, rarest / (1.0 - p)) * (net / domain.outcome_bound)
    # the range is what privacy rests on: it must hold whatever is passed in, and nan has no place in it
    units = np.rint(LEVELS * np.clip(np.nan_to_num(relative), -1.0, 1.0)).astype(np.int64)
    return int(np.sum(np.where(chosen == a, units, -units)))


def unit(domain: Domain, p: float, n_scored: int) -> float:
    """What one unit of a sum is worth, in units of the outcome, on average over ``n_scored`` records."""
    return domain.outcome_bound / min(p, 1.0 - p) / (2.0 * LEVELS * n_scored)
