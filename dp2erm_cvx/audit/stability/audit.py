"""The stability audit: neighbors solved for again, their movements against every bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from dp2erm_cvx.audit.stability.claims import Claim, checked_claims, claims_of
from dp2erm_cvx.audit.stability.explore import explore
from dp2erm_cvx.audit.stability.given import Data, Generator, digest, records_of, source_of, universe_of
from dp2erm_cvx.audit.stability.neighbors import STRATEGIES
from dp2erm_cvx.audit.stability.report import reported
from dp2erm_cvx.audit.stability.resolve import SolverCheck
from dp2erm_cvx.audit.stability.result import StabilityAudit
from dp2erm_cvx.audit.stability.rounds import BASE, Searcher
from dp2erm_cvx.audit.stability.search import Progress, ResolveBudget, State
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import whole_workers
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, PrivateFirstStage
from dp2erm_cvx.public import whole_number
from dp2erm_cvx.solve.solvers import ConicSolver, solver_by_name
from dp2erm_cvx.universe import Universe


def audit_stability(
    program: FirstStage,
    data_or_generator: Data | Generator | None,
    domain: Domain,
    *,
    bounds: Iterable[Claim | StabilityBound] | None = None,
    search: Sequence[str] | None = None,
    n_samples: int | None = None,
    n_features: int | None = None,
    held_out: Data | None = None,
    budget: ResolveBudget | None = None,
    seed: int = 0,
    solver: str = "clarabel",
    checkpoint: str | Path | None = None,
    workers: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> StabilityAudit:
    """Search for neighbors whose weights move more than a bound allows.

    Parameters
    ----------
    program
        A first stage without noise of its own.
    data_or_generator
        Raw records (X, a, y), which are mapped into ``domain``; a function of a random generator that returns
        such records; or None, to search over datasets of the universe alone.
    bounds
        Claims to audit, default: every one that :func:`~dp2erm_cvx.audit.stability.claims_of` knows for the
        program.
    search
        Any of "random", "held-out", "extreme", "flips", "each", "ascent" (neighbors of the given data) and
        "base" (a search over datasets of few distinct records); default: all that apply.
    n_samples, n_features
        Size of the universe; default: those of the data, and 2 covariates.
    held_out
        Records whose covariates replace those of a record; default: those of the data themselves.
    budget
        Default: 60 seconds. The final certified solves and those of ``solver`` come on top.
    seed
        Repeats an audit whose budget is in solves; it has nothing to do with a release.
    solver
        The conic solver of the declared CVXPY problem that at least 1 % of the neighbors solved in full, and
        all those reported, are compared with.
    checkpoint
        File to save the search in as it goes, and to go on from where it exists.
    workers
        Processes, -1 for all cores, through joblib and so through any backend of it
        (:func:`~dp2erm_cvx.parallel.run_tasks`). What is found does not depend on them.
    progress
        Called after every round.

    Raises DeclarationError for an invalid argument, CalibrationError where no family states a finite bound,
    DataError for invalid records or a checkpoint of another audit.
    """
    if isinstance(program, PrivateFirstStage):
        raise DeclarationError(f"{program.name} adds noise to its weights: its bound is about no re-solve")
    seed, workers = whole_number("seed", seed, at_least=0), whole_workers(workers)
    if not isinstance(solver_by_name(solver), ConicSolver):
        raise DeclarationError(f"solver = {solver!r}: must reach the declared problem, such as 'clarabel'")
    budget = ResolveBudget(seconds=60.0) if budget is None else budget
    program = program.resolve(domain)
    source = source_of(data_or_generator, domain)
    example = None if source is None else source(np.random.default_rng([seed, 0]))
    universe = universe_of(domain, example, n_samples, n_features)
    claims, refused = _claims(program, universe, bounds)
    names = _search(search, source is not None)
    pool = None if held_out is None else records_of(held_out, domain).covariates
    searcher = Searcher(program, universe, claims, names, source, pool, seed, solver)
    call = {
        "program": [program.name, program.settings()],
        "domain": domain.to_dict(),
        "size": [universe.n_samples, universe.n_features],
        "claims": [claim.to_dict() for claim in claims],
        "search": [*names, seed, solver],
        "data": digest(example),
    }
    path = None if checkpoint is None else Path(checkpoint)
    state = State(SolverCheck(solver))
    if path is not None and path.exists():
        state = State.load(path, call)
    began = time.perf_counter()
    save = None if path is None else lambda: state.save(path, call)
    explore(searcher, state, budget, workers=workers, progress=progress, save=save)
    verdicts, worst, check = reported(searcher, state, claims, solver)
    return StabilityAudit(
        program=program,
        universe=universe,
        verdicts=verdicts,
        worst=worst,
        refused=refused,
        searched=tuple(names),
        scouted=state.scouted,
        resolved=state.resolved + len(worst),
        rounds=state.rounds,
        seconds=time.perf_counter() - began,
        seed=seed,
        check=check,
        private=source is None or callable(data_or_generator),
    )


def _claims(
    program: FirstStage, universe: Universe, bounds: Iterable[Claim | StabilityBound] | None
) -> tuple[tuple[Claim, ...], dict[str, str]]:
    if bounds is not None:
        return checked_claims(bounds), {}
    return claims_of(program, universe)


def _search(search: Sequence[str] | None, has_data: bool) -> tuple[str, ...]:
    known = (*STRATEGIES, BASE) if has_data else (BASE,)
    if search is None:
        return known
    names = (search,) if isinstance(search, str) else tuple(search)
    for name in names:
        if name not in known:
            hint = "" if has_data else " without data or a generator"
            raise DeclarationError(f"search = {name!r}: must be one of {', '.join(known)}{hint}")
    if not names:
        raise DeclarationError("search: nothing to search")
    return tuple(dict.fromkeys(names))
