"""The black-box audit: many runs of anything on two datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dp2erm_cvx.audit.blackbox.attack import Attack
from dp2erm_cvx.audit.blackbox.events import (
    Choice,
    CountBound,
    EpsilonBound,
    Event,
    MuBound,
    Observations,
    bound_of,
)
from dp2erm_cvx.audit.blackbox.observation import Runner, run_all
from dp2erm_cvx.audit.blackbox.scores import scores
from dp2erm_cvx.audit.declared import Declared
from dp2erm_cvx.audit.density.audit import Direction
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.mechanism import random_source


@dataclass(frozen=True)
class Counted:
    """An event that was chosen first and then counted in ``runs`` other runs of each dataset.

    P is the law of the output on the dataset named first in ``direction``, Q that on the other. With the
    confidence of the audit P(event) is at least ``low`` and Q(event) at most ``high``, so that epsilon is at
    least ``epsilon_low`` = log((low - delta) / high), or 0, and mu at least ``mu_low`` = Phi^-1(low) -
    Phi^-1(high), or 0.
    """

    direction: Direction
    event: str
    hits: int
    other_hits: int
    runs: int
    low: float
    high: float
    epsilon_low: float
    mu_low: float

    def __str__(self) -> str:
        return (
            f"{self.direction}: {self.hits} against {self.other_hits} of {self.runs} runs with {self.event}, "
            f"epsilon >= {self.epsilon_low:.3g}, mu >= {self.mu_low:.3g}"
        )


@dataclass(frozen=True)
class BlackBoxAudit:
    """What runs of a mechanism on one pair of datasets say about its declared (``epsilon``, ``delta``).

    ``epsilon_low`` is a lower bound on the epsilon that the mechanism has at ``delta``, and ``mu_low`` on its
    mu, right with probability at least ``confidence`` if the runs are independent; ``counted`` holds both
    directions. Where ``mu`` is declared, ``epsilon`` is None, and the other way round. Events were chosen for
    the bound on what is declared, and ``ceiling`` is the most that so many runs can show of it, whatever the
    mechanism: a quiet audit says nothing about anything above it. ``runs`` are those of each dataset, half of
    which chose the events; ``raised`` counts, for both datasets, those that ended in an exception.
    ``looked_at`` events were compared, of what ``searched`` says. ``seed`` repeats the runs of a mechanism
    that takes a generator.
    """

    epsilon: float | None
    delta: float
    mu: float | None
    epsilon_low: float
    mu_low: float
    ceiling: float
    confidence: float
    counted: tuple[Counted, Counted]
    runs: int
    raised: tuple[int, int]
    looked_at: int
    searched: str
    seed: int
    private: bool = field(default=False, init=False)

    @property
    def declared(self) -> Declared:
        """What is declared."""
        return Declared(self.epsilon, self.delta, self.mu)

    @property
    def low(self) -> float:
        """The bound on what is declared."""
        return self.epsilon_low if self.mu is None else self.mu_low

    @property
    def best(self) -> Counted:
        """The direction and event with the larger bound."""
        return max(self.counted, key=lambda way: way.epsilon_low if self.mu is None else way.mu_low)

    @property
    def exceeds(self) -> bool:
        """Whether the declared guarantee is violated; wrong with probability at most 1 - ``confidence``."""
        return self.low > self.declared.number

    @property
    def able(self) -> bool:
        """Whether so many runs could show any violation at all."""
        return self.ceiling > self.declared.number

    def __str__(self) -> str:
        best = self.best
        name = self.declared.name
        bound = f"{name} >= {self.low:.4g} with confidence {self.confidence:g}, {self.declared}"
        if self.exceeds:
            verdict = f"VIOLATED by {best.event} ({best.hits} against {best.other_hits} of {best.runs} runs)"
        else:
            verdict = "no violation found, which is no proof"
        limit = f"{self.runs} runs a dataset can show at most {self.ceiling:.4g}"
        if not self.able:
            limit += f", hence NO violation of this {name}: more runs are needed"
        return f"{bound}: {verdict}; {limit}; looked at {self.searched}; not private"


def audit_blackbox(
    mechanism: Callable[..., Any],
    first: Any,
    second: Any,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    mu: float | None = None,
    attack: Attack | None = None,
) -> BlackBoxAudit:
    """Run ``mechanism`` on two neighboring datasets, and bound the epsilon or mu that it has from below.

    The mechanism is anything: of this package, of another, of yours. What it returns (numbers, arrays,
    text, None, or lists and dicts of those) or raises is the output, all of which an attacker is taken to
    see. A quarter of the runs learns scores that separate the datasets, a quarter picks the event with
    the largest bound for each direction, and half counts these two events. Epsilon is at least ``log((p -
    delta)/q)`` for the lower Clopper-Pearson bound p of one probability and the upper bound q of the other
    (Ding et al. 2018; Jagielski et al. 2020), and mu at least ``Phi^-1(p) - Phi^-1(q)`` (Dong, Roth and Su
    2022); four bounds share the risk ``1 - attack.confidence``.

    Parameters
    ----------
    mechanism
        ``mechanism(dataset)``, or ``mechanism(dataset, rng)`` where the attack says so. Its runs must be
        independent. It is given to worker processes by pickling.
    first, second
        Neighboring datasets, of whatever the mechanism takes; that they are neighbors is not checked.
    epsilon, delta, mu
        The guarantee that is declared: epsilon >= 0 and 0 <= delta < 1, or mu >= 0 alone.
    attack
        How often the mechanism runs, and what is looked at; default: ``Attack()``.

    Raises DeclarationError for an invalid argument, for an output of another type, and where every run
    raised.
    """
    declared = Declared(epsilon, delta, mu)
    attack = Attack() if attack is None else attack
    seed = random_source().getrandbits(53) if attack.seed is None else attack.seed
    runner = Runner(mechanism, (first, second), attack.takes_rng, seed, attack.statistics)
    one, other = run_all(runner, attack.runs, attack.workers)
    raised = _raised(one), _raised(other)
    if raised == (attack.runs, attack.runs):
        raise DeclarationError(f"mechanism: every run {one[0].key!s}")
    learned, picked = attack.runs // 4, attack.runs // 2
    risk = (1.0 - attack.confidence) / 4
    choice = Choice(one[learned:picked], other[learned:picked], bound_of(declared, picked - learned, risk))
    if "values" in attack.events:
        choice.offer_values()
    for score in scores(one[:learned], other[:learned], attack.events):
        choice.offer_tails(score)
    bounds = EpsilonBound(attack.runs - picked, declared.delta, risk), MuBound(attack.runs - picked, risk)
    counted = (
        _count(Direction.FIRST, choice.events[0], one[picked:], other[picked:], *bounds),
        _count(Direction.SECOND, choice.events[1], other[picked:], one[picked:], *bounds),
    )
    return BlackBoxAudit(
        epsilon=declared.epsilon,
        delta=declared.delta,
        mu=declared.mu,
        epsilon_low=max(way.epsilon_low for way in counted),
        mu_low=max(way.mu_low for way in counted),
        ceiling=bounds[0 if declared.mu is None else 1].ceiling,
        confidence=attack.confidence,
        counted=counted,
        runs=attack.runs,
        raised=raised,
        looked_at=choice.looked_at,
        searched=f"{choice.looked_at} events: {', '.join(attack.names)}",
        seed=seed,
    )


def _count(
    direction: Direction, event: Event, mine: Observations, theirs: Observations, *bounds: CountBound
) -> Counted:
    hits, other_hits = event.count(mine), event.count(theirs)
    low, high = float(bounds[0].low[hits]), float(bounds[0].high[other_hits])
    lows = [bound.of(hits, other_hits) for bound in bounds]
    return Counted(direction, event.description, hits, other_hits, bounds[0].runs, low, high, *lows)


def _raised(observations: Observations) -> int:
    return sum("the mechanism raised" in observation.marks for observation in observations)
