"""What a private comparison spends as a whole, and what it guarantees."""

from __future__ import annotations

from collections.abc import Iterable

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.ledger.decimals import sums, up
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.release import Guarantee, Release, Standing

#: What the total rests on, beyond what the candidates assume.
_THEOREM = "the larger of basic composition of the candidates and of permute-and-flip, on disjoint parts"
_ASSUMPTION = "records are divided at random, independently of the data, before anything is fitted"


def total_budget(parts: Iterable[Budget], score: Budget) -> Budget:
    """The candidates add up, as the decimals that the ledger adds up; the choice reads other records."""
    epsilon, delta = sums(parts)
    return Budget(max(up(epsilon), score.epsilon), up(delta))


def total_guarantee(total: Budget, releases: list[Release], domain: Domain, *, seeded: bool) -> Guarantee:
    """The guarantee of the choice and of all ``releases`` together."""
    parts = [release.guarantee for release in releases]
    if seeded:
        standing = Standing.NOT_PRIVATE
    else:
        standing = Standing.PRIVATE if all(part.private for part in parts) else Standing.CONDITIONAL
    assumed = dict.fromkeys(text for part in parts for text in part.assumptions)
    return Guarantee(
        epsilon=total.epsilon,
        delta=total.delta,
        relation=domain.relation,
        theorem="; ".join(dict.fromkeys([_THEOREM, *(part.theorem for part in parts)])),
        stability_theorem="; ".join(dict.fromkeys(part.stability_theorem for part in parts)),
        assumptions=(*assumed, _ASSUMPTION),
        standing=standing,
    )
