"""How much of a bound is used up, over the number of records and over the ridge."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dp2erm_cvx.audit.stability.claims import Claim, Quantity, claims_of
from dp2erm_cvx.audit.stability.explore import explore
from dp2erm_cvx.audit.stability.movement import Interval
from dp2erm_cvx.audit.stability.resolve import SolverCheck, resolve
from dp2erm_cvx.audit.stability.rounds import BASE, Searcher
from dp2erm_cvx.audit.stability.search import ResolveBudget, State
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.universe import Universe

#: Multiples of the declared n and of the declared ridge.
SIZES, RIDGES = (0.25, 0.5, 1.0, 2.0, 4.0), (0.01, 0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Cell:
    """The largest V that a short search met with ``n_samples`` records and a ``ridge``.

    ``bounds`` are the finite bounds on V by name, those on W1 >= V among them. ``ridge`` is None where the
    program has none; ``movement`` is None where there is no bound or no search, which ``refusal`` explains,
    or where the search met no neighbors.
    """

    n_samples: int
    ridge: float | None
    bounds: dict[str, float]
    movement: Interval | None
    refusal: str | None = None

    @property
    def violations(self) -> tuple[str, ...]:
        """The bounds that the certified movement exceeds, whatever the numerical error is."""
        low = 0.0 if self.movement is None else self.movement.low
        return tuple(name for name, bound in self.bounds.items() if low > bound)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        moved = None if self.movement is None else self.movement.to_dict()
        return {**dataclasses.asdict(self), "movement": moved, "violations": list(self.violations)}


def tightness(
    program: FirstStage,
    domain: Domain,
    n_samples: int,
    *,
    n_features: int = 2,
    sizes: Iterable[float] | None = None,
    ridges: Iterable[float] | None = None,
    budget: ResolveBudget | None = None,
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[float], None] | None = None,
) -> tuple[Cell, ...]:
    """Search at several n with the declared ridge, and at several ridges with the declared n.

    No data are read. A public arm floor grows and shrinks with n, so that cells are comparable.

    Parameters
    ----------
    sizes, ridges
        Default: the multiples ``SIZES`` of ``n_samples`` and ``RIDGES`` of the ridge; a program
        without a positive setting ``ridge`` is searched over n alone.
    budget
        For every cell; default 4,000 neighbors.
    progress
        Called with the share that is done.

    A cell that cannot be searched, such as a Gram matrix beyond the memory, says so in its ``refusal``.
    Raises DeclarationError for an invalid argument.
    """
    n_samples = whole_number("n_samples", n_samples, at_least=2)
    n_features = whole_number("n_features", n_features, at_least=1)
    program = program.resolve(domain)
    declared = getattr(program, "ridge", None) or None
    if sizes is None:
        sizes = sorted({max(2, round(n_samples * share)) for share in SIZES})
    if ridges is None:
        ridges = [] if declared is None else [declared * factor for factor in RIDGES]
    elif declared is None:
        raise DeclarationError(f"ridges: {program.name} has no ridge to vary")
    places = [(whole_number("sizes", n, at_least=2), declared) for n in sizes]
    places += [(n_samples, public_number("ridges", ridge, above=0.0)) for ridge in ridges]
    chosen = list(dict.fromkeys(places))
    budget = ResolveBudget(solves=4000) if budget is None else budget
    tasks = [(program, domain, n_samples, place, n_features, budget, seed) for place in chosen]
    cells = []
    for cell in run_tasks(_cell, tasks, workers=workers):
        cells.append(cell)
        if progress is not None:
            progress(len(cells) / len(tasks))
    return tuple(cells)


def _cell(
    program: FirstStage,
    domain: Domain,
    declared_n: int,
    place: tuple[int, float | None],
    n_features: int,
    budget: ResolveBudget,
    seed: int,
) -> Cell:
    n, ridge = place
    if domain.arm_floor:
        # rounded down, so that two such arms fit into n records
        floor = max(1, math.floor(domain.arm_floor * n / declared_n))
        domain = dataclasses.replace(domain, arm_floor=floor)
    if ridge is not None:
        changed: Any = program
        program = dataclasses.replace(changed, ridge=ridge)
    universe = Universe(domain, n, n_features)
    try:
        claims, refused = claims_of(program, universe)
    except Dp2ermError as error:
        return Cell(n, ridge, {}, None, str(error))
    # V <= W1, and a bound on V itself replaces the one on W1
    bounds = {
        claim.name: claim.bound
        for kind in (Quantity.W1, Quantity.V)
        for claim in claims
        if claim.quantity is kind
    }
    if not bounds:
        return Cell(n, ridge, {}, None, "; ".join(refused.values()))
    try:
        moved = _largest(program, universe, claims, budget, seed)
    except Dp2ermError as error:
        return Cell(n, ridge, bounds, None, f"not searched: {error}")
    return Cell(n, ridge, bounds, moved)


def _largest(
    program: FirstStage, universe: Universe, claims: Sequence[Claim], budget: ResolveBudget, seed: int
) -> Interval | None:
    # every cell is small: comparing its scout with full solves would cost more than the search
    searcher = Searcher(program, universe, claims, (BASE,), None, None, seed, "", compare=False)
    state = State(SolverCheck(""))
    explore(searcher, state, budget)
    for candidate in state.kept.get(Quantity.V, []):
        pair = searcher.pair(candidate)
        if pair is not None:
            (found,) = resolve(program, [pair])
            return found.movements[Quantity.V]
    return None
