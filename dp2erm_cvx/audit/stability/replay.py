"""A saved pair of neighbors, solved again: another solver shows the same movement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp2erm_cvx import registry
from dp2erm_cvx.audit.pair_file import SavedPair
from dp2erm_cvx.audit.stability.claims import Claim, Quantity
from dp2erm_cvx.audit.stability.resolve import Interval, NeighborPair, Resolved, resolve
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.program import FirstStage, Moments, PrivateFirstStage
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.solve import Solver
from dp2erm_cvx.text import written_members
from dp2erm_cvx.universe import Universe

#: The name of this audit in a file.
STABILITY = "stability"


@dataclass(frozen=True)
class Replay:
    """A saved pair, solved again and certified: ``movement`` holds the exact movement.

    ``saved`` is the interval in the file, None where another audit wrote it.
    """

    claim: Claim
    movement: Interval
    saved: Interval | None
    resolved: Resolved

    @property
    def violated(self) -> bool:
        """Whether the movement exceeds the bound whatever the numerical error is."""
        return self.movement.low > self.claim.bound

    @property
    def agrees(self) -> bool | None:
        """Whether both intervals have a point in common, as two right certificates must."""
        if self.saved is None:
            return None
        return self.movement.low <= self.saved.high and self.saved.low <= self.movement.high


def save_claim(
    path: str | Path, program: FirstStage, claim: Claim, resolved: Resolved, private: bool
) -> tuple[Path, Path]:
    """Save the pair of ``resolved`` with the claim that it is about; the two paths."""
    pair = resolved.pair
    finding = {
        "claim": claim.to_dict(),
        "movement": resolved.movements[claim.quantity].to_dict(),
        "origin": pair.origin,
    }
    first, second = ((end.X, end.a, end.y) for end in (pair.first, pair.second))
    weights = {"name": program.name, "settings": program.settings()}
    return SavedPair(first, second, True, pair.first.domain, weights, STABILITY, finding, private).save(path)


def replay(path: str | Path, *, solver: str | Solver = "newton", program: FirstStage | None = None) -> Replay:
    """Solve a saved pair again with ``solver`` and certify it.

    The claim is the saved one, or the sharp bound on V for a pair that another audit saved. ``program`` is
    needed where the settings hold a function of the user's own. Raises DataError for files that hold no pair
    of neighbors, DeclarationError for a program other than the saved one, SolverError where the solver
    returns no point.
    """
    pair = SavedPair.load(path)
    first, second = pair.records()
    try:
        name, settings = str(pair.first_stage["name"]), dict(pair.first_stage["settings"])
        claim, saved, origin = None, None, f"{pair.audit} audit"
        if pair.audit == STABILITY:
            stated = pair.finding["claim"]
            claim = Claim(**{**stated, "quantity": Quantity(stated["quantity"])})
            saved, origin = Interval(**pair.finding["movement"]), str(pair.finding["origin"])
    except (KeyError, ValueError, TypeError) as wrong:
        raise DataError(f"{path}: not a saved pair ({type(wrong).__name__})") from None
    if program is None:
        program = registry.build(
            registry.first_stages(), name, **{key: _value(key, value) for key, value in settings.items()}
        )
    if (program.name, program.settings()) != (name, settings):
        raise DeclarationError(f"program: the pair was saved for {name} with {settings}")
    if isinstance(program, PrivateFirstStage):
        raise DeclarationError(f"{program.name} adds noise to its weights: its bound is about no re-solve")
    if claim is None:
        bound = program.stability(Universe(pair.domain, first.n_samples, first.covariates.shape[1]))
        claim = Claim("sharp", Quantity.V, bound.V, bound.theorem)
    (resolved,) = resolve(program, [NeighborPair(first, second, pair.changed, origin)], solver)
    return Replay(claim, resolved.movements[claim.quantity], saved, resolved)


def _value(name: str, value: Any) -> Any:
    """A setting from its plain JSON form. Raises DeclarationError where it stands for a function."""
    if value == "inf":
        return math.inf
    if isinstance(value, list):
        return tuple(value)
    kernels = {kernel.__name__: kernel for kernel in written_members(Kernel)}
    if isinstance(value, str) and value in kernels:
        return kernels[value]()
    if isinstance(value, dict):
        ((kind, inner), *rest) = value.items()
        if kind in kernels and not rest:
            return kernels[kind](**inner)
        if kind == "moments" and not rest:
            return Moments(inner)
        raise DeclarationError(f"{name}: pass the program, because {kind!r} is not stored")
    return value
