"""What is declared for a mechanism: epsilon with delta, or mu."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import erfinv

from dp2erm_cvx.calibration.numbers import analytic_delta, analytic_ratio
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_number


@dataclass(frozen=True)
class Declared:
    """A guarantee: ``epsilon`` with ``delta``, or ``mu`` of Gaussian differential privacy.

    A mechanism is mu-GDP where no test tells neighbors apart better than N(0, 1) from N(mu, 1): a test of
    level alpha has power at most ``Phi(Phi^-1(alpha) + mu)`` (Dong, Roth and Su 2022). It is then
    (epsilon, delta)-private for every pair of :func:`epsilon_at`.

    Raises DeclarationError unless exactly one of ``epsilon`` and ``mu`` is given, with ``delta`` only beside
    ``epsilon``.
    """

    epsilon: float | None = None
    delta: float = 0.0
    mu: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.mu is None):
            raise DeclarationError("declare epsilon or mu, and not both")
        for name in ("epsilon", "mu"):  # 0 is a guarantee, too, though no budget
            if getattr(self, name) is not None:
                object.__setattr__(self, name, public_number(name, getattr(self, name), at_least=0.0))
        object.__setattr__(self, "delta", Budget(1.0, self.delta).delta)
        if self.mu is not None and self.delta:
            raise DeclarationError("delta goes with epsilon, and mu stands for all deltas")

    @property
    def name(self) -> str:
        """Which number is declared."""
        return "epsilon" if self.mu is None else "mu"

    @property
    def number(self) -> float:
        """What it is."""
        return self.epsilon if self.epsilon is not None else self.mu or 0.0

    @property
    def gaussian_mu(self) -> float:
        """The mu of a Gaussian mechanism that keeps the guarantee and no more; delta > 0 or a mu needed."""
        if self.mu is not None:
            return self.mu
        if not self.number:  # delta at epsilon = 0 is erf(mu / sqrt(8))
            return float(math.sqrt(8.0) * erfinv(self.delta))
        return analytic_ratio(self.number, self.delta)

    def __str__(self) -> str:
        delta = "" if self.mu is not None else f", delta = {self.delta:g}"
        return f"{self.name} = {self.number:g}{delta}"


def epsilon_at(mu: float, delta: float) -> float:
    """The least epsilon at which a Gaussian mechanism of this mu has ``delta`` > 0, to 1e-9 from below."""
    if not math.isfinite(mu):
        return math.inf
    if mu == 0.0 or math.erf(mu / math.sqrt(8.0)) <= delta:  # its delta at epsilon = 0
        return 0.0
    low, high = 0.0, 1.0
    while analytic_delta(mu, high) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if analytic_delta(mu, middle) > delta else (low, middle)
    return low
