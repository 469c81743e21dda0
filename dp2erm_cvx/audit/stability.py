"""The stability audit: neighbors solved for again, their movements against every bound, at one n or many."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.audit.movement import Claim, Quantity, checked_claims, claims_of, resolve
from dp2erm_cvx.audit.neighbors import STRATEGIES
from dp2erm_cvx.audit.rounds import BASE, Rounds, Source
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.audit.verdicts import StabilityAudit, TightnessCell
from dp2erm_cvx.blocked import BlockedDataset, RecordBlocks, told_bytes
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.errors import DeclarationError, Dp2ermError, ProgramError
from dp2erm_cvx.estimators.fitting import blocked_dataset
from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, PrivateFirstStage
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.solve.solvers import ConicSolver, solver_by_name
from dp2erm_cvx.universe import Universe


def audit_stability(
    program: FirstStage,
    data: Data | Generator | None,
    universe: Universe | Domain,
    *,
    bounds: Iterable[Claim | StabilityBound] | None = None,
    strategies: Strategies | None = None,
    search: SearchPlan | None = None,
) -> StabilityAudit:
    """Search for neighbors whose weights move more than a bound allows.

    Parameters
    ----------
    program
        A first stage without noise of its own.
    data
        Raw records (X, a, y), which are mapped into the domain, or a
        :class:`~dp2erm_cvx.blocked.BlockedDataset`; a function of a random generator that returns such
        records; or None, to search over datasets of the universe alone.
    universe
        What the bounds are about. Data have their own size, so that a domain is enough for them.
    bounds
        Claims to audit, default: every one that is known for the program.
    strategies
        Which neighbors are tried, and the solver that checks them; default: ``Strategies()``.
    search
        Its evaluations are neighbors solved for; default: 60 seconds. The final certified solves and those of
        the checking solver come on top.

    Raises DeclarationError for an invalid argument, CalibrationError where no family states a finite bound,
    DataError for invalid records or a checkpoint of another audit. Where records come in blocks, ProgramError
    for a program that needs all of them in memory at once.
    """
    if isinstance(program, PrivateFirstStage):
        raise DeclarationError(f"{program.name} adds noise to its weights: its bound is about no re-solve")
    search = SearchPlan(seconds=60.0) if search is None else search
    strategies = Strategies() if strategies is None else strategies
    domain = universe.domain if isinstance(universe, Universe) else universe
    program = program.resolve(domain)
    source = source_of(data, domain)
    example = None if source is None else source(np.random.default_rng([search.seed, 0]))
    universe = universe_of(universe, example)
    claims, refused = claims_of(program, universe) if bounds is None else (checked_claims(bounds), {})
    blocked = isinstance(example, RecordBlocks)
    if blocked:
        refuse_whole(program, universe, search, strategies)
    few = universe.n_samples <= LARGEST_DECLARED and not blocked
    names = strategies.chosen(source is not None, few=few, blocked=blocked)
    solver = strategies.solver if few else program.usual_solver
    pool = None if strategies.held_out is None else records_of(strategies.held_out, domain).covariates
    began = time.perf_counter()
    rounds = Rounds(
        program, universe, claims, names, source, pool, search.seed, solver, few, digest=digest(example)
    )
    state = rounds.explored(search)
    verdicts, worst, checked = rounds.reported(state)
    return StabilityAudit(
        program=program,
        universe=universe,
        verdicts=verdicts,
        worst=worst,
        refused=refused,
        searched=names,
        scouted=int(state.counts.get("scouted", 0)),
        resolved=int(state.counts.get("resolved", 0)) + len(worst),
        rounds=state.rounds,
        seconds=time.perf_counter() - began,
        seed=search.seed,
        check=checked,
        private=source is None or callable(data),
    )


#: Records up to which a declared CVXPY problem is solved for a check: seconds each.
LARGEST_DECLARED = 100_000
Raw = tuple[ArrayLike, ArrayLike, ArrayLike]
Data = Raw | Dataset | Records | BlockedDataset
Generator = Callable[[np.random.Generator], Data]


@dataclass(frozen=True)
class Strategies:
    """Which neighbors a stability audit tries, and the solver that checks them.

    Parameters
    ----------
    names
        Any of "random", "held-out", "extreme", "flips", "each", "ascent" (neighbors of the given data) and
        "base" (a search over datasets of few distinct records); default: all that apply.
    held_out
        Records whose covariates replace those of a record; default: those of the data themselves.
    solver
        The conic solver of the declared CVXPY problem that at least 1 % of the neighbors solved in full, and
        all those reported, are compared with. Above ``LARGEST_DECLARED`` records, where each of its solves
        would take minutes, neighbors are compared with solves of their own by the program's usual solver.

    By default "ascent" is left out above ``LARGEST_DECLARED`` records: it passes over them for every few.
    Records in blocks are treated like many; "base", whose datasets are in memory, is left out as well.

    Raises DeclarationError for anything else.
    """

    names: Sequence[str] | None = None
    held_out: Data | None = field(default=None, repr=False)
    solver: str = "clarabel"

    def __post_init__(self) -> None:
        if not isinstance(solver_by_name(self.solver), ConicSolver):
            raise DeclarationError(
                f"solver = {self.solver!r}: must reach the declared problem, such as 'clarabel'"
            )

    def chosen(self, has_data: bool, *, few: bool = True, blocked: bool = False) -> tuple[str, ...]:
        """The strategies in force. Raises DeclarationError for one that does not apply."""
        known = (*STRATEGIES, BASE) if has_data else (BASE,)
        if self.names is None:
            left_out = (set() if few else {"ascent"}) | ({BASE} if blocked else set())
            return tuple(name for name in known if name not in left_out)
        names = (self.names,) if isinstance(self.names, str) else tuple(self.names)
        for name in names:
            if name not in known:
                hint = "" if has_data else " without data or a generator"
                raise DeclarationError(f"search = {name!r}: must be one of {', '.join(known)}{hint}")
        if not names:
            raise DeclarationError("search: nothing to search")
        return tuple(dict.fromkeys(names))


def source_of(given: Data | Generator | None, domain: Domain) -> Source | None:
    """Draws datasets from what is given; None where nothing is. Raises DataError."""
    if given is None:
        return None
    if callable(given):
        draw = given
        return lambda rng: records_of(draw(rng), domain)
    records = records_of(given, domain)
    return lambda rng: records


def records_of(given: Data, domain: Domain) -> Records:
    """Records of the domain. Raises DataError, and DeclarationError for those of another domain."""
    if isinstance(given, Records):
        if given.domain != domain:
            raise DeclarationError("the records were mapped into another domain")
        return given
    if isinstance(given, BlockedDataset):
        return blocked_dataset(domain, given).records(partial(_inside, domain=domain), domain)
    data = given if isinstance(given, Dataset) else Dataset.from_arrays(*given)
    return domain.records(data.X, data.a, data.y)


def _inside(data: Dataset, domain: Domain) -> Records:
    return domain.records(data.X, data.a, data.y)


def refuse_whole(program: FirstStage, universe: Universe, search: SearchPlan, strategies: Strategies) -> None:
    """Refuse what cannot be audited on records in blocks.

    Raises ProgramError for a program that needs all records at once, DeclarationError for what else does.
    """
    if not program.takes_blocks(universe):
        size = told_bytes(8 * universe.n_samples * (universe.n_features + 2))
        raise ProgramError(
            f"{program.name} needs all records in memory at once, {size} of them and more to work on, and "
            "this dataset is read in blocks: audit a program of sums over records, or a Dataset"
        )
    if "ascent" in (strategies.names or ()):
        raise DeclarationError("search = 'ascent': passes over all blocks for every few: leave it out")
    if search.workers != 1:
        raise DeclarationError("workers: those of the engine pass over the blocks; leave one to the search")


def universe_of(declared: Universe | Domain, example: Records | None) -> Universe:
    """The universe that the data belong to or that is declared. Raises DeclarationError."""
    domain = declared.domain if isinstance(declared, Universe) else declared
    if example is not None:
        own = Universe(domain, example.n_samples, example.n_features)
        if isinstance(declared, Universe) and declared != own:
            size = f"{own.n_samples} records, {own.n_features} covariates"
            raise DeclarationError(f"universe = {declared}: the data have {size}")
        return own
    if not isinstance(declared, Universe):
        raise DeclarationError("n_samples: needed where no data are given: declare a Universe")
    if 2 * (domain.arm_floor or 0) > declared.n_samples:
        raise DeclarationError(
            f"arm_floor = {domain.arm_floor:g}: {declared.n_samples} records cannot hold two such arms"
        )
    return declared


def digest(records: Records | None) -> str | None:
    """A fingerprint of the records, by which a checkpoint knows its data."""
    if records is None:
        return None
    return hashlib.sha256(b"".join(records.blocks.map(_hashed))).hexdigest()


def _hashed(records: Records) -> bytes:
    found = hashlib.sha256()
    for part in (records.X, records.a, records.y):
        found.update(np.ascontiguousarray(part).data)
    return found.digest()


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
    universe = Universe(domain, n, universe.n_features)
    try:
        claims, refused = claims_of(program, universe)
    except Dp2ermError as error:
        return TightnessCell(n, ridge, {}, None, str(error))
    # V <= W1, and a bound on V itself replaces the one on W1
    kinds = (Quantity.W1, Quantity.V)
    bounds = {one.name: one.bound for kind in kinds for one in claims if one.quantity is kind}
    if not bounds:
        return TightnessCell(n, ridge, {}, None, "; ".join(refused.values()))
    # every cell is small: comparing its scout with full solves would cost more than the search
    rounds = Rounds(program, universe, claims, (BASE,), seed=search.seed, compare=False)
    try:
        kept = rounds.explored(search).best.get(Quantity.V, [])
        pairs = [pair for _, one in kept if (pair := rounds.pair(one)) is not None]
        moved = resolve(program, pairs[:1])[0].movements[Quantity.V] if pairs else None
    except Dp2ermError as error:
        return TightnessCell(n, ridge, bounds, None, f"not searched: {error}")
    return TightnessCell(n, ridge, bounds, moved)
