"""What is known about the privacy of one release."""

from __future__ import annotations

from dataclasses import dataclass

from dp2erm_cvx.privacy import Budget, RenyiCurve


@dataclass(frozen=True)
class Cost:
    """One release: its (epsilon, delta), and a proven Renyi curve of the same release where there is one."""

    budget: Budget
    curve: RenyiCurve | None = None
