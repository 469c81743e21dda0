"""From what a search kept to verdicts: full solves with certificates, and the second solver."""

from __future__ import annotations

from collections.abc import Sequence

from dp2erm_cvx.audit.stability.claims import Claim
from dp2erm_cvx.audit.stability.resolve import Resolved, SolverCheck, check, resolve
from dp2erm_cvx.audit.stability.result import Verdict
from dp2erm_cvx.audit.stability.rounds import Searcher
from dp2erm_cvx.audit.stability.search import KEPT, Candidate, State
from dp2erm_cvx.errors import DataError


def reported(
    searcher: Searcher, state: State, claims: Sequence[Claim], solver: str
) -> tuple[tuple[Verdict, ...], tuple[Resolved, ...], SolverCheck]:
    """A verdict per claim, the pairs they rest on and the ten worst, all solved again by ``solver``.

    Raises DataError where the search met no neighbor inside of the universe.
    """
    everything = [candidate for best in state.kept.values() for candidate in best]
    everything.sort(key=lambda candidate: -candidate.ratio(claims))
    chosen: list[Candidate] = []
    tops = [best[0] for claim in claims if (best := state.kept.get(claim.quantity))]
    for candidate in [*tops, *everything]:
        if candidate not in chosen and (len(chosen) < KEPT or candidate in tops):
            chosen.append(candidate)
    pairs = [pair for candidate in chosen if (pair := searcher.pair(candidate)) is not None]
    if not pairs:
        raise DataError("the search met no neighbors inside of the universe: give it a larger budget")
    found = resolve(searcher.program, pairs)
    verdicts = []
    for claim in claims:
        best_pair = max(found, key=lambda item: item.movements[claim.quantity].low)
        verdicts.append(Verdict(claim, best_pair.movements[claim.quantity], best_pair, state.spent))
    checked = state.check.plus(check(searcher.program, found, solver))
    return tuple(verdicts), tuple(found), checked
