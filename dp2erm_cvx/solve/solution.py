"""The outcome of a solve, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field

from dp2erm_cvx.domain import Array
from dp2erm_cvx.solve.certificate import Certificate
from dp2erm_cvx.solve.solvers import Status


@dataclass(frozen=True)
class Stats:
    """Who solved it and at what cost; ``raw`` judges the solver's own point before polishing."""

    solver: str
    iterations: int
    seconds: float = field(repr=False)
    polish_iterations: int = 0
    raw: Certificate | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Solution:
    """A point with its certificate.

    ``value`` is the weights (n,) or theta (p,), ``point`` the variable of the composite model. ``certified``
    is what counts; ``status`` is only what the solver claimed. ``within`` is the absolute bound on the radius
    that was asked for in place of the relative ``tolerance``. Values are private and do not appear in the
    repr.
    """

    value: Array = field(repr=False)
    point: Array = field(repr=False)
    status: Status
    certificate: Certificate = field(repr=False)
    tolerance: float
    stats: Stats = field(repr=False)
    within: float | None = None

    @property
    def certified(self) -> bool:
        """Whether the radius is within what was asked for: ``within``, or else the relative tolerance."""
        if self.within is not None:
            return self.certificate.radius <= self.within
        return self.certificate.certifies(self.tolerance)

    @property
    def substituted(self) -> bool:
        """Whether no solver returned a point, and where a solver begins stands in its place."""
        return self.certificate.basis == "none"

    def advice(self) -> str:
        """What to try next, in words that hold no private number."""
        if self.certified:
            return "certified"
        if self.substituted:
            return (
                "no solver found a solution on these records, and the point where solvers begin stands in "
                "its place, such as weights 1: relax the constraints before the next release, and do not "
                "publish this warning, which tells of the records"
            )
        asked = f"{self.tolerance:g} relative" if self.within is None else f"within {self.within:g}"
        return (
            f"{self.stats.solver} ended with status {self.status.value} and the point is not certified to "
            f"{asked}: raise the ridge, loosen the tolerance, or try another solver"
        )
