"""The rows of inverse probability tilting, private or not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.balance import BalanceFunctions, Moments, checked_balance, public_constant
from dp2erm_cvx.program.curves import EXPONENTIAL, Curve
from dp2erm_cvx.program.log_weights import INVERSE_PROPENSITY
from dp2erm_cvx.universe import Universe

#: The largest margin that a radius may allow for: the loss there is exp(12).
_LARGEST_MARGIN = 12.0


@dataclass(frozen=True)
class TiltingRows:
    """Rows ``b_i = e_{a_i} (x) g(x_i)``, linear terms ``c_i = e_{1 - a_i} (x) g(x_i)``, and their loss.

    A record's is ``exp(-<b_i, lam>) + <c_i, lam>``, its weight ``1 + exp(-<b_i, lam>)``, with g = (constant,
    balance(x)) and lam = (lam_0, lam_1). A mixin of a margin first stage.

    Parameters
    ----------
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of the constant balance function; default: the norm bound of ``balance``.
    """

    balance: Moments | BalanceFunctions = Moments()
    constant: float | None = None

    log_weight = INVERSE_PROPENSITY

    def __post_init__(self) -> None:
        checked_balance(self.balance)
        object.__setattr__(self, "constant", public_constant(self.constant))

    @property
    def loss(self) -> Curve:
        """exp(-s)."""
        return EXPONENTIAL

    def bounds(self, domain: Domain) -> tuple[float, float]:
        """(G_x, c_0): norm bound of the balance functions and value of the constant."""
        balance_bound = self.balance.bound(domain.features_bound)
        return balance_bound, balance_bound if self.constant is None else self.constant

    def row_bound(self, domain: Domain) -> float:
        """G: norm bound of b and c."""
        return math.hypot(*self.bounds(domain)) * (1 + 1e-12)

    def linear_bound(self, domain: Domain) -> float:
        """The same."""
        return self.row_bound(domain)

    def n_rows(self, universe: Universe) -> int:
        """2 (1 + k) for k balance functions."""
        return 2 * (1 + self.balance.size(universe.n_features))

    def rows(self, records: Records) -> Array:
        """The rows b_i."""
        return self._in_arm(records, records.a)

    def linear_terms(self, records: Records) -> Array:
        """The rows c_i."""
        return self._in_arm(records, 1 - records.a)

    def _in_arm(self, records: Records, arm: NDArray[np.int64]) -> Array:
        constant = np.full(records.n_samples, self.bounds(records.domain)[1])
        g = np.column_stack([constant, self.balance(records.covariates)])
        inside = arm[:, None]
        return np.hstack([(1 - inside) * g, inside * g])

    def within_reach(self, domain: Domain, radius: float) -> float:
        """The radius. Raises DeclarationError where the exponential loss would leave floating point."""
        G = self.row_bound(domain)
        if not G * radius <= _LARGEST_MARGIN:
            raise DeclarationError(
                f"radius = {radius:g}: weights of exp({G * radius:.3g}) are out of reach; declare a radius "
                f"of at most 12/G = {_LARGEST_MARGIN / G:.3g}"
            )
        return radius
