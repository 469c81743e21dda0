"""What a density audit reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from dp2erm_cvx.audit.density.hockey_stick import HockeyStick
from dp2erm_cvx.calibration import Noise


class Direction(enum.StrEnum):
    """Which dataset's density is divided by which."""

    FIRST = "first over second"
    SECOND = "second over first"


@dataclass(frozen=True)
class DensityAudit:
    """The largest privacy loss found on one neighboring pair. It depends on the records: not private.

    ``loss`` is the largest log ratio of the exact output densities that was met, at theta = ``point`` (p,)
    with the subgradient ``multiplier`` (p,) of n R and Theta, in the ``direction`` given. It is the loss of
    theta together with its multiplier, which is what Theorems 1 and 2 bound and at least that of theta alone.
    After a private first stage it is that of its ``coefficient`` (d,) as well, which Theorem 9 bounds;
    otherwise ``coefficient`` is empty. ``theta_loss`` is the same where theta determines all of it, hence a
    loss of theta itself: -inf where no such point was met, and after a private first stage.
    ``numerical_error`` bounds the error of both from the certificates of the weights and from rounding.

    ``epsilon`` and ``delta`` are those of the calibrations: of the ideal output, without what a release adds
    for its arithmetic. Gamma and Laplace noise: the losses are to be compared with ``epsilon``. Gaussian
    noise in any stage: they are the largest of the draws only, and ``hockey_stick`` is to be compared with
    ``delta``. ``noise`` is that of theta. ``searched`` says how the loss was looked for. A supremum that was
    searched for is a lower bound: the audit can refute a guarantee, never establish it.
    """

    loss: float
    direction: Direction
    point: tuple[float, ...]
    multiplier: tuple[float, ...]
    coefficient: tuple[float, ...]
    theta_loss: float
    epsilon: float
    delta: float
    noise: Noise
    numerical_error: float
    searched: str
    hockey_stick: HockeyStick | None
    private: bool = field(default=False, init=False)

    @property
    def exceeds(self) -> bool:
        """Whether the bound of the theorem in force is violated, beyond the numerical or sampling error."""
        if self.hockey_stick is not None:
            return self.hockey_stick.low > self.delta
        return self.loss - self.numerical_error > self.epsilon

    @property
    def theta_exceeds(self) -> bool:
        """Whether the released theta alone violates (epsilon, delta), beyond those errors."""
        if self.hockey_stick is not None:
            return self.hockey_stick.theta_low > self.delta
        return self.theta_loss - self.numerical_error > self.epsilon

    def __str__(self) -> str:
        if self.hockey_stick is None:
            found = f"loss {self.loss:.4g} found, epsilon = {self.epsilon:g}"
        else:
            stick = self.hockey_stick
            found = (
                f"delta({self.epsilon:g}) in [{stick.low:.3g}, {stick.high:.3g}] with confidence "
                f"{stick.confidence:g}, delta = {self.delta:g}"
            )
        verdict = "EXCEEDED" if self.exceeds else "not exceeded"
        if self.hockey_stick is not None and self.hockey_stick.high > self.delta and not self.exceeds:
            verdict = "undecided (more draws would narrow it)"
        return f"{found}: {verdict} on this pair; {self.searched}; not private"
