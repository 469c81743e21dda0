"""The black-box audit over searched pairs: the neighbors on which runs of anything differ most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.audit.blackbox.attack import Attack
from dp2erm_cvx.audit.blackbox.audit import BlackBoxAudit, audit_blackbox
from dp2erm_cvx.audit.blackbox.screening import Screening
from dp2erm_cvx.audit.declared import Declared
from dp2erm_cvx.audit.density.pair_makers import Maker
from dp2erm_cvx.audit.pair_file import Columns, SavedPair
from dp2erm_cvx.audit.search import Progress, SearchPlan
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.universe import Universe

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
    declared: Declared,
    *,
    attack: Attack | None = None,
    search: SearchPlan | None = None,
) -> BlackBoxSearch:
    """Look for neighbors on which runs of ``mechanism`` differ most, and audit the worst of them.

    A few runs on each of two datasets put pairs into an order. Some are new ones of structured families:
    clusters, ends, antipodes, nearly empty arms, one record far from all others. Others are small changes of
    the best met so far, and the steepest places on paths between datasets far apart. The best are looked at
    with more runs, and one is audited by runs that had no part in the choice.

    Parameters
    ----------
    mechanism
        ``mechanism((X, a, y))``, or ``mechanism((X, a, y), rng)`` where the attack says so: X (n, k) and y
        (n,) in the units of the data, a (n,) of 0 and 1. What it returns is as for :func:`audit_blackbox`.
    universe
        The datasets that the guarantee is declared for; its domain says which of them are neighbors.
    declared
        The guarantee, as epsilon with delta, or as mu.
    attack
        How the worst pair is audited; default: ``Attack()``.
    search
        Its evaluations are screened pairs; default: 60. Its workers are those of the attack.

    Raises what :func:`audit_blackbox` raises, and DeclarationError where an arm floor leaves no pair.
    """
    search = SearchPlan(evaluations=60) if search is None else search
    attack = Attack() if attack is None else attack
    maker = Maker(universe.domain, universe.n_samples, universe.n_features)
    screening = Screening(mechanism, maker, attack, declared)
    clock, spent = search.start(), 0
    while clock.left(spent) != 0 or spent == 0:
        rng = np.random.default_rng([search.seed, spent])
        spent += screening.step(rng)
        if search.progress is not None:
            search.progress(Progress(clock.share(spent), spent, 0.0))
    pair = screening.worst(search.seed)
    first, second = pair.raw(universe.domain)
    audit = audit_blackbox(mechanism, first, second, **asdict(declared), attack=attack)
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
        known = finding["audit"]
        declared = {"epsilon": known["epsilon"], "delta": known["delta"], "mu": known.get("mu")}
    except (KeyError, TypeError) as wrong:
        raise DataError(f"{path}: no finding of a black-box audit ({wrong})") from None
    attack = saved if attack is None else attack
    return audit_blackbox(mechanism, *pair.raw(), attack=attack, **declared)
