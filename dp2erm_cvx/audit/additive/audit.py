"""Declared guarantees beside the exact losses of one pair of neighbors."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from dp2erm_cvx.audit.additive.stages import Staged
from dp2erm_cvx.audit.additive.walk import StageLoss, Walk, walk
from dp2erm_cvx.audit.declared import Declared, epsilon_at
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.errors import DeclarationError

#: A loss above what is declared by less than this share is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class AdditiveAudit:
    """Exact losses of one pair of neighbors beside what is ``declared``; nothing is sampled.

    ``losses`` has every noised value, given those before. Splits count as known, as do all noised values: a
    guarantee that is proven split by split and stage by stage covers them, and what the last output says
    alone may be less. ``leak`` says what has no noise that could hide it. ``seed`` draws the splits and the
    released values.
    """

    declared: Declared
    losses: tuple[StageLoss, ...]
    leak: str | None
    seed: int
    private: bool = field(default=False, init=False)

    @property
    def pure(self) -> bool:
        """Whether losses are epsilons; otherwise they are mus."""
        return self.declared.mu is None and not self.declared.delta

    @property
    def found(self) -> float:
        """The epsilon, or mu, that this pair has: of all stages together, or of the largest if Gaussian.

        The epsilon of pure noise is the log density ratio of everything released. A mu is that of the first
        stage that the changed record moves, if no other does; of later ones it is a mu given what was
        released before. That is drawn from its own noise: what only a release rarer than delta brings about
        proves nothing, and is met as seldom.
        """
        if self.leak:
            return math.inf
        every = [one.loss for one in self.losses]
        return sum(every) if self.pure else max(every, default=0.0)

    @property
    def allowed(self) -> float:
        """What is declared, as an epsilon or, beside Gaussian noise, as a mu."""
        return self.declared.number if self.pure else self.declared.gaussian_mu

    @property
    def epsilon_found(self) -> float:
        """The epsilon of this pair, at the declared delta if there is one; nan where mu is declared."""
        if self.declared.mu is not None:
            return math.nan
        return self.found if self.pure else epsilon_at(self.found, self.declared.delta)

    @property
    def exceeds(self) -> bool:
        """Whether this pair is a counterexample to what is declared."""
        return self.found > self.allowed * (1.0 + _ROUNDING)

    @property
    def reached(self) -> float:
        """The largest movement over the sensitivity that the mechanism itself states."""
        return max((one.reached for one in self.losses), default=0.0)

    @property
    def stated(self) -> float:
        """The largest loss that a stage has by its own stated sensitivity, an epsilon or a mu."""
        return max((one.stated for one in self.losses), default=0.0)

    @property
    def uncovered(self) -> bool:
        """Whether a stage adds less noise than its own sensitivity asks for: then no proof is left."""
        return self.stated > self.allowed * (1.0 + _ROUNDING)

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain JSON types; what is infinite or unknown is None."""
        names = ("found", "allowed", "epsilon_found", "exceeds", "reached", "stated", "uncovered")
        numbers = {name: getattr(self, name) for name in names}
        known = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {**asdict(self), **known}

    def __str__(self) -> str:
        name = "epsilon" if self.pure else "mu"
        told = f"{name} = {self.found:.6g} on this pair"
        if self.declared.delta:
            told += f", epsilon = {self.epsilon_found:.4g} at this delta"
        verdict = "VIOLATED" if self.exceeds else "no violation found, which is no proof"
        parts = [f"{told}; declared {self.declared}: {verdict}" + (f" ({self.leak})" if self.leak else "")]
        if self.reached:
            over = " EXCEEDED" if self.reached > 1.0 + _ROUNDING else ""
            parts.append(f"{self.reached:.1%} of a stated sensitivity reached{over}")
        if self.uncovered:
            parts.append(f"NOT COVERED: by its own sensitivity a stage has {name} = {self.stated:.4g}")
        return "; ".join([*parts, f"{len(self.losses)} noised values; not private"])


def judged(found: Walk, declared: Declared, seed: int) -> AdditiveAudit:
    """What a walk says. Raises DeclarationError where its noise is not of the kind that is declared."""
    audit = AdditiveAudit(declared, found.losses, found.leak, seed)
    wanted = Noise.GAMMA if audit.pure else Noise.GAUSSIAN
    if any(one.noise is not wanted for one in found.losses):
        kind = "pure" if audit.pure else "Gaussian"
        raise DeclarationError(f"mechanism: {declared} is declared, which needs {kind} noise at every stage")
    return audit


def audit_additive(
    mechanism: Staged,
    first: Any,
    second: Any,
    declared: Declared,
    *,
    seed: int = 0,
) -> AdditiveAudit:
    """The exact loss of a mechanism on two neighbors, by the values that it adds noise to.

    For noise of density ``exp(-|b| / s)`` on a value that moves by d the log density ratio is at most d/s,
    and is that on a ray. For Gaussian noise of deviation s the pair is exactly (d/s)-GDP, hence
    (epsilon, delta) by Balle and Wang (2018). Both datasets go through the stages with the same splits and
    the same released values. An output that still differs, or a scale that does, has no finite loss.

    Parameters
    ----------
    mechanism
        A generator function of one dataset: it yields every :class:`Split` of rows and every
        :class:`Noised` value, is sent what was drawn, and returns its output. Nothing else may be random.
    first, second
        Neighboring datasets, of whatever it takes; that they are neighbors is not checked.
    declared
        Epsilon alone for pure noise, epsilon with delta or mu for Gaussian noise.
    seed
        Draws the splits, and what is released, and repeats the audit.

    Raises DeclarationError for noise of another kind.
    """
    return judged(walk(mechanism, first, second, seed), declared, seed)
