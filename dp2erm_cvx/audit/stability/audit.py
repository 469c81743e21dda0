"""The stability audit: neighbors solved for again, their movements against every bound."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.audit.search import Progress, SearchPlan
from dp2erm_cvx.audit.stability.claims import Claim, checked_claims, claims_of
from dp2erm_cvx.audit.stability.given import (
    LARGEST_DECLARED,
    Data,
    Generator,
    Strategies,
    digest,
    records_of,
    refuse_whole,
    source_of,
    universe_of,
)
from dp2erm_cvx.audit.stability.resolve import Resolved, SolverCheck, check, resolve
from dp2erm_cvx.audit.stability.result import StabilityAudit, Verdict
from dp2erm_cvx.audit.stability.rounds import Searcher
from dp2erm_cvx.audit.stability.state import KEPT, KeptPair, State
from dp2erm_cvx.blocked import RecordBlocks
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, PrivateFirstStage
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
        Claims to audit, default: every one that :func:`~dp2erm_cvx.audit.stability.claims_of` knows for the
        program.
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
    solver = strategies.checker(program, few)
    pool = None if strategies.held_out is None else records_of(strategies.held_out, domain).covariates
    searcher = Searcher(program, universe, claims, names, source, pool, search.seed, solver, few)
    call = {
        "program": [program.name, program.settings()],
        "domain": domain.to_dict(),
        "size": [universe.n_samples, universe.n_features],
        "claims": [claim.to_dict() for claim in claims],
        "search": [*names, search.seed, solver],
        "data": digest(example),
    }
    state = State(SolverCheck(solver))
    if search.checkpoint is not None and Path(search.checkpoint).exists():
        state = State.load(Path(search.checkpoint), call)
    began = time.perf_counter()
    explore(searcher, state, search, call)
    verdicts, worst, checked = reported(searcher, state)
    return StabilityAudit(
        program=program,
        universe=universe,
        verdicts=verdicts,
        worst=worst,
        refused=refused,
        searched=names,
        scouted=state.scouted,
        resolved=state.resolved + len(worst),
        rounds=state.rounds,
        seconds=time.perf_counter() - began,
        seed=search.seed,
        check=checked,
        private=source is None or callable(data),
    )


def explore(searcher: Searcher, state: State, search: SearchPlan, call: dict[str, Any] | None = None) -> None:
    """Search on from ``state`` in waves of rounds, until a limit is reached.

    A checkpoint states the ``call`` and is written wherever the search could go on after a stop.
    """
    clock = search.start()
    whole = True
    while (left := clock.left(state.spent)) != 0:
        tasks = list(searcher.wave(state, left, clock.deadline))
        for gain in run_tasks(searcher.run, [(task,) for task in tasks], workers=search.workers):
            state.add(gain)
            whole = whole and gain.whole
            if search.progress is not None:
                highest = searcher.highest(state)
                search.progress(Progress(clock.share(state.spent), state.spent, highest))
        state.rounds += len(tasks)
        # nothing is gone on from a wave that was cut short, so that a stop does not change the result
        if search.checkpoint is not None and whole:
            state.save(Path(search.checkpoint), call)


def reported(
    searcher: Searcher, state: State
) -> tuple[tuple[Verdict, ...], tuple[Resolved, ...], SolverCheck]:
    """A verdict per claim, the pairs they rest on and the ten worst, all solved again by the other solver.

    Raises DataError where the search met no neighbor inside of the universe.
    """
    claims = searcher.claims
    everything = [candidate for best in state.kept.values() for candidate in best]
    everything.sort(key=lambda candidate: -candidate.ratio(claims))
    chosen: list[KeptPair] = []
    tops = [best[0] for claim in claims if (best := state.kept.get(claim.quantity))]
    # two datasets each: of many records only those that verdicts rest on
    kept = KEPT if searcher.few else 0
    for candidate in [*tops, *everything]:
        if candidate not in chosen and (len(chosen) < kept or candidate in tops):
            chosen.append(candidate)
    pairs = [pair for candidate in chosen if (pair := searcher.pair(candidate)) is not None]
    if not pairs:
        raise DataError("the search met no neighbors inside of the universe: give it a larger budget")
    resolved = resolve(searcher.program, pairs)
    verdicts = []
    for claim in claims:
        best_pair = max(resolved, key=lambda item: item.movements[claim.quantity].low)
        verdicts.append(Verdict(claim, best_pair.movements[claim.quantity], best_pair, state.spent))
    checked = state.check
    if searcher.few:  # else the solver is that which has just solved them
        checked = checked.plus(check(searcher.program, resolved, searcher.solver))
    return tuple(verdicts), tuple(resolved), checked
