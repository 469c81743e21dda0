"""Hard moment targets of weights, in the form in which a linear program can say how far they are missed."""

from __future__ import annotations

from dataclasses import dataclass, field

from dp2erm_cvx.domain import Array


@dataclass(frozen=True, eq=False)
class MomentTargets:
    """Weights ``w >= 0`` (n,) with ``totals.T @ w = total_values`` and ``moments.T @ w`` near ``values``.

    ``moments`` (n, m) are in units in which one ``tolerance`` is meant for all of them; ``names`` say which
    covariate and arm each belongs to. The data are private, and so is what is computed from them.
    """

    totals: Array = field(repr=False)
    total_values: Array = field(repr=False)
    moments: Array = field(repr=False)
    values: Array = field(repr=False)
    names: tuple[str, ...]
    tolerance: float
