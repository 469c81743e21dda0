"""The black-box audit: many runs of anything on two datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dp2erm_cvx.audit.blackbox.binomial import EpsilonBound
from dp2erm_cvx.audit.blackbox.events import Choice, Event, Outcomes
from dp2erm_cvx.audit.blackbox.outcome import Runner, run_all
from dp2erm_cvx.audit.blackbox.result import BlackBoxAudit, Counted
from dp2erm_cvx.audit.blackbox.scores import FAMILIES, scores
from dp2erm_cvx.audit.density.result import Direction
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import whole_workers
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_number, whole_number

#: What each family is called in a report.
_TOLD = {
    "values": "marks and repeated values",
    "tails": "tails of coordinates and norms",
    "learned": "learned scores",
    "bits": "the lowest bits of coordinates",
}


def audit_blackbox(
    mechanism: Callable[..., Any],
    first: Any,
    second: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    runs: int = 2000,
    seed: int | None = None,
    confidence: float = 0.99,
    events: Iterable[str] = FAMILIES,
    statistics: Mapping[str, Callable[[Any], float]] | None = None,
    takes_rng: bool = False,
    workers: int = 1,
) -> BlackBoxAudit:
    """Run ``mechanism`` on two neighboring datasets, and bound the epsilon that it has from below.

    The mechanism is anything: of this package, of another, of yours. What it returns (numbers, arrays,
    text, None, or lists and dicts of those) or raises is the output, all of which an attacker is taken to
    see. A quarter of the runs learns scores that tell the datasets apart, a quarter picks the event with
    the largest bound for each direction, and half counts these two events. Epsilon is at least ``log((p -
    delta)/q)`` for the lower Clopper-Pearson bound p of one probability and the upper bound q of the other
    (Ding et al. 2018; Jagielski et al. 2020); four bounds share the risk ``1 - confidence``.

    Parameters
    ----------
    mechanism
        ``mechanism(dataset)``, or ``mechanism(dataset, rng)`` where it ``takes_rng``. Its runs must be
        independent. It is given to worker processes by pickling.
    first, second
        Neighboring datasets, of whatever the mechanism takes; that they are neighbors is not checked.
    epsilon, delta
        The guarantee that is declared: epsilon >= 0, 0 <= delta < 1.
    runs
        On each dataset, at least 40.
    seed
        Seeds the generators of a mechanism that takes one; drawn and reported if None.
    confidence
        Probability at least which the bound is right with, in (0, 1).
    events
        Families to look at: "values", "tails", "learned", "bits"; may be empty if there are ``statistics``.
    statistics
        Functions from an output to a number of your own, whose tails are looked at as well.
    workers
        Processes, -1 for all cores, or what ``joblib.parallel_config`` says. They do not change the result.

    Raises DeclarationError for an invalid argument, for an output of another type, and where every run
    raised.
    """
    # 0 is a guarantee, too, though no budget
    epsilon = public_number("epsilon", epsilon, at_least=0.0)
    delta = Budget(1.0, delta).delta
    runs = whole_number("runs", runs, at_least=40)
    confidence = public_number("confidence", confidence, above=0.0)
    if confidence >= 1.0:
        raise DeclarationError(f"confidence = {confidence!r}: must be between 0 and 1")
    families = _families(events, own=bool(statistics))
    workers = whole_workers(workers)
    if seed is None:
        seed = int(np.random.default_rng().integers(2**63))
    seed = whole_number("seed", seed, at_least=0)
    one, other = run_all(
        Runner(mechanism, first, second, takes_rng, seed, dict(statistics or {})), runs, workers
    )
    raised = _raised(one), _raised(other)
    if raised == (runs, runs):
        raise DeclarationError(f"mechanism: every run {one[0].key!s}")
    learned, picked = runs // 4, runs // 2
    risk = (1.0 - confidence) / 4
    choice = Choice(one[learned:picked], other[learned:picked], EpsilonBound(picked - learned, delta, risk))
    if "values" in families:
        choice.offer_values()
    for score in scores(one[:learned], other[:learned], families):
        choice.offer_tails(score)
    bound = EpsilonBound(runs - picked, delta, risk)
    counted = (
        _count(Direction.FIRST, choice.events[0], one[picked:], other[picked:], bound),
        _count(Direction.SECOND, choice.events[1], other[picked:], one[picked:], bound),
    )
    told = [_TOLD[family] for family in families] + [f"{len(statistics or {})} own statistics"] * bool(
        statistics
    )
    return BlackBoxAudit(
        epsilon=epsilon,
        delta=delta,
        epsilon_low=max(way.epsilon_low for way in counted),
        ceiling=bound.ceiling,
        confidence=confidence,
        counted=counted,
        runs=runs,
        raised=raised,
        looked_at=choice.looked_at,
        searched=f"{choice.looked_at} events: {', '.join(told)}",
        seed=seed,
    )


def _count(
    direction: Direction, event: Event, mine: Outcomes, theirs: Outcomes, bound: EpsilonBound
) -> Counted:
    hits, other_hits = event.count(mine), event.count(theirs)
    low, high = float(bound.low[hits]), float(bound.high[other_hits])
    return Counted(
        direction, event.description, hits, other_hits, bound.runs, low, high, bound.of(hits, other_hits)
    )


def _raised(outcomes: Outcomes) -> int:
    return sum("the mechanism raised" in outcome.marks for outcome in outcomes)


def _families(events: Iterable[str], *, own: bool) -> tuple[str, ...]:
    chosen = (events,) if isinstance(events, str) else tuple(events)
    for family in chosen:
        if family not in FAMILIES:
            raise DeclarationError(f"events: {family!r} is unknown: choose from {', '.join(FAMILIES)}")
    if not chosen and not own:
        raise DeclarationError("events: choose at least one family, or give statistics")
    return tuple(family for family in FAMILIES if family in chosen)
