"""How tight the bounds of a first stage are at other sizes and ridges: short searches without data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dp2erm_cvx.audit.movement import Interval, Quantity, claims_of, resolve
from dp2erm_cvx.audit.rounds import BASE, Rounds
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class TightnessCell:
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
        return {**asdict(self), "violations": list(self.violations)}


#: Multiples of the declared n and of the declared ridge.
SIZES, RIDGES = (0.25, 0.5, 1.0, 2.0, 4.0), (0.01, 0.1, 1.0, 10.0)


def tightness(
    program: FirstStage,
    universe: Universe,
    *,
    sizes: Iterable[float] | None = None,
    ridges: Iterable[float] | None = None,
    search: SearchPlan | None = None,
) -> tuple[TightnessCell, ...]:
    """Search at several n with the declared ridge, and at several ridges with the declared n.

    No data are read. A public arm floor grows and shrinks with n, so that cells are comparable.

    Parameters
    ----------
    sizes, ridges
        Default: the multiples ``SIZES`` of n and ``RIDGES`` of the ridge; a program without a positive
        setting ``ridge`` is searched over n alone.
    search
        Limits for every cell; default: 4,000 neighbors.

    A cell that cannot be searched, such as a Gram matrix beyond the memory, says so in its ``refusal``.
    Raises DeclarationError for an invalid argument.
    """
    search = SearchPlan(evaluations=4000) if search is None else search
    program, n_samples = program.resolve(universe.domain), universe.n_samples
    declared = getattr(program, "ridge", None) or None
    if sizes is None:
        sizes = sorted({max(2, round(n_samples * share)) for share in SIZES})
    if ridges is None:
        ridges = [] if declared is None else [declared * factor for factor in RIDGES]
    elif declared is None:
        raise DeclarationError(f"ridges: {program.name} has no ridge to vary")
    places = [(whole_number("sizes", n, at_least=2), declared) for n in sizes]
    places += [(n_samples, public_number("ridges", ridge, above=0.0)) for ridge in ridges]
    alone = dataclasses.replace(search, workers=1, checkpoint=None, progress=None)
    tasks = [(program, universe, *place, alone) for place in dict.fromkeys(places)]
    cells: list[TightnessCell] = []
    for cell in run_tasks(_cell, tasks, workers=search.workers):
        cells.append(cell)
        if search.progress is not None:
            search.progress(len(cells) / len(tasks), len(cells), 0.0)
    return tuple(cells)


def _cell(
    program: FirstStage, universe: Universe, n: int, ridge: float | None, search: SearchPlan
) -> TightnessCell:
    domain = universe.domain
    if domain.arm_floor:
        # rounded down, so that two such arms fit into n records
        floor = max(1, math.floor(domain.arm_floor * n / universe.n_samples))
        domain = dataclasses.replace(domain, arm_floor=floor)
    if ridge is not None:
        changed: Any = program
        program = dataclasses.replace(changed, ridge=ridge)
    universe, bounds = Universe(domain, n, universe.n_features), dict[str, float]()
    try:
        claims, refused = claims_of(program, universe)
        # V <= W1, and a bound on V itself replaces the one on W1
        kinds = (Quantity.W1, Quantity.V)
        bounds = {one.name: one.bound for kind in kinds for one in claims if one.quantity is kind}
        if not bounds:
            return TightnessCell(n, ridge, {}, None, "; ".join(refused.values()))
        # every cell is small: comparing its scout with full solves would cost more than the search
        rounds = Rounds(program, universe, claims, (BASE,), seed=search.seed, compare=False)
        kept = rounds.explored(search).best.get(Quantity.V, [])
        pairs = [pair for _, one in kept if (pair := rounds.pair(one)) is not None]
        moved = resolve(program, pairs[:1])[0].movements[Quantity.V] if pairs else None
    except Dp2ermError as error:
        return TightnessCell(n, ridge, bounds, None, f"not searched: {error}" if bounds else str(error))
    return TightnessCell(n, ridge, bounds, moved)
