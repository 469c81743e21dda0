"""The black-box audit over searched pairs: the neighbors on which runs of anything differ most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.audit.blackbox.attack import Attack
from dp2erm_cvx.audit.blackbox.audit import BlackBoxAudit, audit_blackbox
from dp2erm_cvx.audit.blackbox.events import Choice, EpsilonBound
from dp2erm_cvx.audit.blackbox.observation import Runner, run_all
from dp2erm_cvx.audit.blackbox.scores import scores
from dp2erm_cvx.audit.density.pair_makers import KindPair, Maker
from dp2erm_cvx.audit.pair_file import Columns, SavedPair
from dp2erm_cvx.audit.search import Progress, SearchPlan
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.universe import Universe

#: Runs on each dataset of a pair that is screened, and how many times as many in a second look.
SCREENING, _AGAIN = 40, 5
#: Share of the screened pairs that are new ones, pairs that are kept and refined, and those looked at again.
_FRESH, _KEPT = 0.6, 6
#: Risk of the bounds of a few runs: pairs are only put into an order by them.
_RISK = 0.25
#: The name of this audit in a file.
_BLACKBOX = "blackbox"


@dataclass(frozen=True, eq=False)
class BlackBoxSearch:
    """The pair on which ``mechanism`` differed most, (X, a, y) each, and its ``audit`` by runs of its own.

    ``screened`` pairs were looked at. The bound of ``audit`` is right with its stated confidence however the
    pair was found, because none of its runs had a part in the search. A search without a violation is no
    proof: another pair or event may show one.
    """

    name: str
    universe: Universe
    first: Columns
    second: Columns
    audit: BlackBoxAudit
    attack: Attack
    screened: int
    seed: int
    private: bool = field(default=False, init=False)

    @property
    def exceeds(self) -> bool:
        """Whether the declared guarantee is violated; wrong with probability at most 1 - confidence."""
        return self.audit.exceeds

    @property
    def records(self) -> list[dict[str, Any]]:
        """The pair in words: the record before and after, and how often each of the others comes."""
        (X, a, y), (X2, a2, y2) = self.first, self.second
        rows, counts = np.unique(np.column_stack([X, a, y])[1:], axis=0, return_counts=True)
        changed = [np.concatenate([X[0], [a[0], y[0]]]), np.concatenate([X2[0], [a2[0], y2[0]]])]
        told = [("first only", 1, changed[0]), ("second only", 1, changed[1])]
        told += [("both", int(count), row) for row, count in zip(rows, counts, strict=True)]
        return [
            {"in": where, "times": times, "x": row[:-2].tolist(), "a": int(row[-2]), "y": float(row[-1])}
            for where, times, row in told
        ]

    def save(self, path: str | Path) -> None:
        """Write the pair to ``path``.npz and the finding to ``path``.json, for :func:`replay_blackbox`."""
        repeated = ("runs", "confidence", "events", "takes_rng")
        kinds = self.records
        if len(kinds) > 20:  # where all records differ, the arrays alone hold them
            kinds = kinds[:2]
        finding = {
            "mechanism": self.name,
            "violated": self.exceeds,
            "attack": {name: getattr(self.attack, name) for name in repeated},
            "audit": asdict(self.audit),
            "screened": self.screened,
            "search_seed": self.seed,
            "records": kinds,
        }
        pair = SavedPair(
            self.first, self.second, False, self.universe.domain, {}, _BLACKBOX, finding, self.private
        )
        pair.save(path)

    def __str__(self) -> str:
        return f"{self.name}: the worst of {self.screened} pairs screened: {self.audit}"


def search_blackbox(
    mechanism: Callable[..., Any],
    universe: Universe,
    *,
    epsilon: float,
    delta: float = 0.0,
    attack: Attack | None = None,
    search: SearchPlan | None = None,
) -> BlackBoxSearch:
    """Look for neighbors on which runs of ``mechanism`` differ most, and audit the worst of them.

    A few runs on each of two datasets put pairs into an order: new ones of structured families (clusters,
    ends, antipodes, nearly empty arms, one record far from all others) and small changes of the best met so
    far. The best are looked at with more runs, and one is audited by runs that had no part in the choice.

    Parameters
    ----------
    mechanism
        ``mechanism((X, a, y))``, or ``mechanism((X, a, y), rng)`` where the attack says so: X (n, k) and y
        (n,) in the units of the data, a (n,) of 0 and 1. What it returns is as for :func:`audit_blackbox`.
    universe
        The datasets that the guarantee is declared for; its domain says which of them are neighbors.
    epsilon, delta
        The guarantee that is declared.
    attack
        How the worst pair is audited; default: ``Attack()``.
    search
        Its evaluations are screened pairs; default: 60. Its workers are those of the attack.

    Raises what :func:`audit_blackbox` raises, and DeclarationError where an arm floor leaves no pair.
    """
    search = SearchPlan(evaluations=60) if search is None else search
    attack = Attack() if attack is None else attack
    found = _Found(mechanism, Maker(universe.domain, universe.n_samples, universe.n_features), attack)
    short = EpsilonBound(SCREENING, delta, _RISK)
    clock, spent = search.start(), 0
    while clock.left(spent) != 0 or spent == 0:
        rng = np.random.default_rng([search.seed, spent])
        found.meet(found.next_pair(rng), short, rng)
        spent += 1
        if search.progress is not None:
            search.progress(Progress(clock.share(spent), spent, found.best[0][0] / max(epsilon, 1e-12)))
    pair = found.worst(EpsilonBound(_AGAIN * SCREENING, delta, _RISK), search.seed)
    first, second = pair.raw(universe.domain)
    audit = audit_blackbox(mechanism, first, second, epsilon=epsilon, delta=delta, attack=attack)
    name = getattr(mechanism, "__name__", type(mechanism).__name__)
    return BlackBoxSearch(name, universe, first, second, audit, attack, spent, search.seed)


def replay_blackbox(
    path: str | Path, mechanism: Callable[..., Any], *, attack: Attack | None = None
) -> BlackBoxAudit:
    """Audit ``mechanism`` on a pair that a search saved, by new runs that choose an event of their own.

    ``attack`` overrides the saved one. Raises DataError for files without a pair of a black-box audit, and
    what :func:`audit_blackbox` raises.
    """
    pair = SavedPair.load(path)
    if pair.audit != _BLACKBOX:
        raise DataError(f"{path}: the pair of a {pair.audit} audit, not of a black-box one")
    try:
        finding = pair.finding
        saved = Attack(**finding["attack"])
        epsilon, delta = finding["audit"]["epsilon"], finding["audit"]["delta"]
    except (KeyError, TypeError) as wrong:
        raise DataError(f"{path}: no finding of a black-box audit ({wrong})") from None
    attack = saved if attack is None else attack
    return audit_blackbox(mechanism, *pair.raw(), epsilon=epsilon, delta=delta, attack=attack)


class _Found:
    """The pairs that were met, best first, by how far a few runs on both sides are apart."""

    def __init__(self, mechanism: Callable[..., Any], maker: Maker, attack: Attack) -> None:
        self.mechanism, self.maker, self.attack = mechanism, maker, attack
        self.best: list[tuple[float, KindPair]] = []

    def next_pair(self, rng: np.random.Generator) -> KindPair:
        """A new pair, or a change of one of the best."""
        if self.best and rng.random() >= _FRESH:
            rank = min(int(rng.geometric(0.5)), len(self.best)) - 1
            return self.maker.change(self.best[rank][1], rng)
        drawn = self.maker.draw(rng)
        if rng.random() < 0.5:
            drawn = _opposed(drawn, self.maker.domain.outcome_bound, rng)
        return _apart(drawn, rng) if rng.random() < 0.5 else drawn

    def meet(self, pair: KindPair, bound: EpsilonBound, rng: np.random.Generator) -> None:
        """Look at a pair, and keep it where it is among the best."""
        self.best.append((self._height(pair, bound, rng), pair))
        self.best.sort(key=lambda one: -one[0])
        del self.best[_KEPT:]

    def worst(self, bound: EpsilonBound, seed: int) -> KindPair:
        """The best of those kept, by more runs: the highest of many short looks is partly luck."""
        heights = [
            self._height(pair, bound, np.random.default_rng([seed, rank, 1]))
            for rank, (_, pair) in enumerate(self.best)
        ]
        return self.best[int(np.argmax(heights))][1]

    def _height(self, pair: KindPair, bound: EpsilonBound, rng: np.random.Generator) -> float:
        datasets = pair.raw(self.maker.domain)
        attack = self.attack
        runner = Runner(
            self.mechanism, datasets, attack.takes_rng, int(rng.integers(2**53)), attack.statistics
        )
        one, other = run_all(runner, bound.runs, attack.workers)
        choice = Choice(one, other, bound)
        choice.offer_values()
        ranks = 0.0
        # learned scores would separate the very runs that they learned from
        for score in scores(one, other, ("tails",)):
            choice.offer_tails(score)
            ranks = max(ranks, _rank_distance(score(one), score(other)))
        # bounds of so few runs are 0 for small shifts, which ranks see, and ranks miss what is rare
        return max(choice.heights) + 2 * ranks


def _rank_distance(one: Array, other: Array) -> float:
    """``|2 P(one > other) - 1|`` of two samples, 0 where either has no values."""
    one, other = one[~np.isnan(one)], np.sort(other[~np.isnan(other)])
    if not (one.size and other.size):
        return 0.0
    below = np.searchsorted(other, one, side="left") + np.searchsorted(other, one, side="right")
    return float(abs(below.mean() / len(other) - 1.0))


def _opposed(pair: KindPair, bound: float, rng: np.random.Generator) -> KindPair:
    """The outcome of the changed record goes from one end to the other, often within its arm."""
    y, a = pair.y.copy(), pair.a.copy()
    y[:2] = bound * rng.choice([-1.0, 1.0]) * np.array([1.0, -1.0])
    if rng.random() < 0.5:
        a[1] = a[0]
    return replace(pair, a=a, y=y)


def _apart(pair: KindPair, rng: np.random.Generator) -> KindPair:
    """Everybody but the changed record nearer to 0, so that one record is far from all others."""
    X, y = pair.X.copy(), pair.y.copy()
    X[2:] *= 10.0 ** rng.uniform(-4, 0)
    if rng.random() < 0.5:
        y[2:] *= 10.0 ** rng.uniform(-4, 0)
    return replace(pair, X=X, y=y)
