"""The neighbors on which a mechanism of known noise loses most."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.audit.additive.audit import AdditiveAudit, audit_additive, judged
from dp2erm_cvx.audit.additive.stages import Staged
from dp2erm_cvx.audit.additive.walk import walk
from dp2erm_cvx.audit.blackbox.candidates import by_groups, far_record, leverages, opposed
from dp2erm_cvx.audit.declared import Declared
from dp2erm_cvx.audit.density.pair_makers import KindPair, Maker
from dp2erm_cvx.audit.pair_file import Columns, SavedPair
from dp2erm_cvx.audit.search import Progress, SearchPlan
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.universe import Universe

#: The name of this audit in a file.
_ADDITIVE = "additive"
#: Share of the steps that draw a new pair, and pairs that are kept.
_NEW, _KEPT = 0.35, 8


@dataclass(frozen=True, eq=False)
class AdditiveSearch:
    """The pair on which ``mechanism`` lost most, (X, a, y) each, and its exact ``audit``.

    ``screened`` pairs were looked at. A search without a violation is no proof.
    """

    name: str
    universe: Universe
    first: Columns
    second: Columns
    audit: AdditiveAudit
    screened: int
    private: bool = field(default=False, init=False)

    @property
    def exceeds(self) -> bool:
        """Whether the pair is a counterexample to what is declared."""
        return self.audit.exceeds

    def save(self, path: str | Path) -> None:
        """Write the pair to ``path``.npz and the finding to ``path``.json, for :func:`replay_additive`."""
        finding = {"mechanism": self.name, "screened": self.screened, "audit": self.audit.to_dict()}
        pair = SavedPair(
            self.first, self.second, False, self.universe.domain, {}, _ADDITIVE, finding, self.private
        )
        pair.save(path)

    def __str__(self) -> str:
        return f"{self.name}: the worst of {self.screened} pairs: {self.audit}"


@dataclass(frozen=True, eq=False)
class _Met:
    """A pair, its audit, and the groups of rows."""

    pair: KindPair
    audit: AdditiveAudit
    groups: tuple[list[np.ndarray], ...]

    @property
    def height(self) -> tuple[float, float]:
        """By loss; where one is infinite, or 0, by movement."""
        return self.audit.found, sum(one.loss for one in self.audit.losses)


def search_additive(
    mechanism: Staged,
    universe: Universe,
    declared: Declared,
    *,
    search: SearchPlan | None = None,
) -> AdditiveSearch:
    """Look for the neighbors on which a mechanism of known noise loses most.

    Pairs are of the families of every audit, further ones in which whole groups of a split are alike, and
    small changes of the best met so far. Each is judged by its exact loss (:func:`audit_additive`), on
    splits that are part of the search.

    Parameters
    ----------
    mechanism
        As for :func:`audit_additive`; its dataset is ``(X, a, y)`` in the units of the data: X (n, k),
        a (n,) of 0 and 1, y (n,).
    universe
        The datasets that the guarantee is declared for; its domain says which of them are neighbors.
    declared
        As for :func:`audit_additive`.
    search
        Its evaluations are pairs, in one process and without a checkpoint; default: 3,000.

    Raises what :func:`audit_additive` raises, and DeclarationError where an arm floor leaves no pair.
    """
    search = SearchPlan(evaluations=3000) if search is None else search
    maker = Maker(universe.domain, universe.n_samples, universe.n_features)
    clock, spent, best = search.start(), 0, list[_Met]()
    while clock.left(spent) != 0 or spent == 0:
        rng = np.random.default_rng([search.seed, spent])
        pair, seed = _candidate(maker, best, rng)
        found = walk(mechanism, *pair.raw(universe.domain), seed)
        met = _Met(pair, judged(found, declared, seed), found.groups)
        best = sorted([*best, met], key=lambda one: one.height, reverse=True)[:_KEPT]
        spent += 1
        if search.progress is not None and spent % 20 == 0:
            search.progress(Progress(clock.share(spent), spent, best[0].audit.found))
    name = getattr(mechanism, "__name__", type(mechanism).__name__)
    return AdditiveSearch(name, universe, *best[0].pair.raw(universe.domain), best[0].audit, spent)


def _candidate(maker: Maker, best: list[_Met], rng: np.random.Generator) -> tuple[KindPair, int]:
    """A new pair, or a change of one of the best, and what draws its splits and released values."""
    seed = int(rng.integers(2**31))
    if best and rng.random() > _NEW:
        known = best[min(int(rng.geometric(0.4)), len(best)) - 1]
        pair = maker.change(known.pair, rng)
        if rng.random() < 0.2:
            return pair, seed
        return (_regrouped(known, pair, maker, rng) if rng.random() < 0.2 else pair), known.audit.seed
    pair = maker.draw(rng)
    if rng.random() < 0.5:
        pair = opposed(pair, maker.domain.outcome_bound, rng)
    if rng.random() < 0.6:
        pair = (far_record if rng.random() < 0.5 else leverages)(pair, rng)
    if best and rng.random() < 0.7:
        known = best[int(rng.integers(len(best)))]
        return _regrouped(known, pair, maker, rng), known.audit.seed
    return pair, seed


def _regrouped(known: _Met, pair: KindPair, maker: Maker, rng: np.random.Generator) -> KindPair:
    """Kinds of records by the groups that a walk met, if it met any."""
    if not known.groups:
        return pair
    found = by_groups(pair, known.groups[int(rng.integers(len(known.groups)))], rng)
    return found if maker.admissible(found) else pair


def replay_additive(path: str | Path, mechanism: Staged, declared: Declared | None = None) -> AdditiveAudit:
    """Audit ``mechanism`` on a pair that a search saved, with the same splits and released values.

    ``declared`` is that of the file unless it is given.
    Raises DataError for files without a pair of this audit, and what :func:`audit_additive` raises.
    """
    pair = SavedPair.load(path)
    if pair.audit != _ADDITIVE:
        raise DataError(f"{path}: the pair of a {pair.audit} audit, not of one of known noise")
    try:
        finding: dict[str, Any] = pair.finding["audit"]
        declared = Declared(**finding["declared"]) if declared is None else declared
        seed = int(finding["seed"])
    except (KeyError, TypeError) as wrong:
        raise DataError(f"{path}: no finding of an audit of known noise ({wrong})") from None
    return audit_additive(mechanism, *pair.raw(), declared, seed=seed)
