"""What an audit is given: data, a generator of data, or only the universe; and which neighbors it tries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.audit.stability.neighbors import STRATEGIES
from dp2erm_cvx.blocked import BlockedDataset, told_bytes
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.estimators.fitting import blocked_dataset
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve.solvers import ConicSolver, solver_by_name
from dp2erm_cvx.universe import Universe

#: Records up to which a declared CVXPY problem is solved for a check: seconds each.
LARGEST_DECLARED = 100_000
#: The name of the search over base datasets.
BASE = "base"

Raw = tuple[ArrayLike, ArrayLike, ArrayLike]
Data = Raw | Dataset | Records | BlockedDataset
Generator = Callable[[np.random.Generator], Data]
#: Draws a dataset.
Source = Callable[[np.random.Generator], Records]


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

    By default "ascent" is left out above ``LARGEST_DECLARED`` records: it differentiates through full solves.
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

    def checker(self, program: FirstStage, few: bool) -> str:
        """The name of the solver that neighbors are compared with: of few records, or of many."""
        return self.solver if few else program.usual_solver

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
        raise DeclarationError("search = 'ascent': differentiates through solves in memory: leave it out")
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
    found = hashlib.sha256()
    for one in records.blocks.map(_hashed):
        found.update(one)
    return found.hexdigest()


def _hashed(records: Records) -> bytes:
    found = hashlib.sha256()
    for part in (records.X, records.a, records.y):
        found.update(np.ascontiguousarray(part).data)
    return found.digest()
