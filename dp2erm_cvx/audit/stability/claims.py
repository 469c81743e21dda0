"""What is audited: numbers that are claimed to bound a movement, each with the quantity it bounds."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dp2erm_cvx import stability
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import BoundFamily, Neighboring, StabilityBound
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.public import public_number
from dp2erm_cvx.universe import Universe


class Quantity(enum.StrEnum):
    """A movement of weights w, w' (n,) of neighbors that differ in record j.

    ``V`` is ``sum_{i != j} |w_i - w'_i| + w_j + w'_j``; ``L1``, ``L2`` norms of ``w - w'``; ``L0`` the number
    of weights that differ. The paper's are ``W1 = ||w - w'||_1 + 2 max_i min(w_i, w'_i)`` and
    ``W2 = sqrt((||w - w'||_2^2 + 2 max_i w_i w'_i) (1 + ||w - w'||_0))``. ``LARGEST`` is the largest weight.
    """

    V = "V"
    L1 = "||w - w'||_1"
    L2 = "||w - w'||_2"
    L0 = "||w - w'||_0"
    W1 = "W1"
    W2 = "W2"
    LARGEST = "largest weight"


@dataclass(frozen=True)
class Claim:
    """``quantity <= bound`` for all neighbors of the universe; raises DeclarationError below 0."""

    name: str
    quantity: Quantity
    bound: float
    theorem: str = ""

    def __post_init__(self) -> None:
        bound = public_number(f"bound {self.name!r}", self.bound, at_least=0.0)
        object.__setattr__(self, "bound", bound)
        object.__setattr__(self, "quantity", Quantity(self.quantity))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**dataclasses.asdict(self), "quantity": self.quantity.value}


def claims_of(program: FirstStage, universe: Universe) -> tuple[tuple[Claim, ...], dict[str, str]]:
    """Every finite claim about a first stage, and the reasons of those families that make none.

    The sharp theorem (V and the largest weight), which is called stated where the program is an author's
    own and nothing here proves what it states; the paper's statement as printed (its norm bound, W1, W2)
    and as it can be used (its minimum with the universal corollary), and the universal corollary. Public
    quantities only. Raises DeclarationError for a setting that is not valid in itself.
    """
    resolved = program.resolve(universe.domain)
    n = universe.n_samples
    found: list[Claim] = []
    refused: dict[str, str] = {}

    def collect(name: str, compute: Callable[[], StabilityBound]) -> StabilityBound | None:
        try:
            bound = compute()
        except CalibrationError as error:
            refused[name] = str(error)
            return None
        found.extend(claims_from(name, bound))
        return bound

    sharp = collect("stated" if is_authored(resolved) else "sharp", lambda: resolved.stability(universe))
    alone = None
    if type(resolved).printed_bound is not FirstStage.printed_bound:
        # as it stands, without an exception for a flipped treatment, under which it can be false
        kept = dataclasses.replace(universe.domain, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
        stated = dataclasses.replace(universe, domain=kept)
        alone = collect("paper, printed", lambda: resolved.paper_bound(stated, usable=False))
    if alone is not None and alone.L2 is not None and math.isfinite(alone.L2):
        found.append(Claim("paper, printed", Quantity.L2, alone.L2, alone.theorem))
    collect("paper, usable", lambda: resolved.stability(universe, BoundFamily.PAPER))
    largest = min((known.w_max for known in (sharp, alone) if known is not None), default=math.inf)
    collect("universal", lambda: stability.universal_corollary(n, max(1.0, largest)))
    return tuple(dict.fromkeys(found)), refused


def is_authored(program: FirstStage) -> bool:
    """Whether what the program states is its author's word: neither this package's nor derived."""
    return program.own_data() is None


def claims_from(name: str, bound: StabilityBound) -> list[Claim]:
    """The finite claims that one :class:`~dp2erm_cvx.privacy.StabilityBound` makes.

    A bound on W1 states no more about V than that V <= W1.
    """
    stated: list[tuple[Quantity, float | None]] = [
        (Quantity.V, None if bound.V == bound.W1 else bound.V),
        (Quantity.W1, bound.W1),
        (Quantity.W2, bound.W2),
        (Quantity.LARGEST, bound.w_max),
    ]
    return [
        Claim(name, quantity, value, bound.theorem)
        for quantity, value in stated
        if value is not None and math.isfinite(value)
    ]


def checked_claims(bounds: Iterable[Claim | StabilityBound]) -> tuple[Claim, ...]:
    """Claims from what a user passes. Raises DeclarationError for anything else, and for nothing at all."""
    found: list[Claim] = []
    for bound in bounds:
        if isinstance(bound, StabilityBound):
            found.extend(claims_from(bound.theorem, bound))
        elif isinstance(bound, Claim):
            found.append(dataclasses.replace(bound))
        else:
            raise DeclarationError(f"bounds: {type(bound).__name__} is neither a Claim nor a StabilityBound")
    if not found:
        raise DeclarationError("bounds: nothing to audit")
    return tuple(found)
