"""A program under examination, bound to records as the checks need it, and what a check of it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.conformance.outcome import CheckOutcome, Judgment
from dp2erm_cvx.conformance.samples import LARGER, N_FEATURES, unequal_weights
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.program import FirstStage, Instance, Kind, Program, SecondStage

#: Of the audit, and the seed of all searches, unless others are asked for.
SEARCH = SearchPlan(20_000)
#: Records of the largest matrix of pairs.
_PAIRED = 2500


@dataclass(frozen=True)
class Subject:
    """``program`` at one choice of settings; every search of it has the seed of ``search``.

    ``search`` limits the audit and, with it, all other searches; ``sizes`` are those of neighbors whose
    weights are compared, ``larger`` those at which a few of them are, and what is a record's own.
    """

    program: Program
    search: SearchPlan = SEARCH
    sizes: tuple[int, ...] = (8, 25)
    larger: tuple[int, ...] = LARGER

    @property
    def seed(self) -> int:
        """Of every search."""
        return self.search.seed

    @property
    def evaluations(self) -> int:
        """Points that each declared constant is searched at."""
        return min(self.search.evaluations or 600, 600)

    @property
    def pairs(self) -> int:
        """Neighbors of each size whose weights are compared."""
        return min(max(self.evaluations // 10, 3), 40)

    @property
    def paired(self) -> bool:
        """Whether pairs of records may make a matrix: thousands of records then take long."""
        return isinstance(self.program, FirstStage) and self.program.kind is Kind.QUADRATIC

    @property
    def many(self) -> tuple[int, ...]:
        """Sizes at which what is a record's own is looked at once."""
        return tuple(min(n, _PAIRED) for n in self.larger) if self.paired else self.larger

    def bind(self, records: Records) -> Instance:
        """The program on records; a second stage with unequal weights, gamma = 0.05 and random noise."""
        if isinstance(self.program, FirstStage):
            return self.program.instance(records)
        assert isinstance(self.program, SecondStage)
        noise = np.random.default_rng(2).normal(size=self.n_parameters(records.domain))
        weights = unequal_weights(records.n_samples)
        return self.program.instance(records, weights, gamma=0.05, noise=noise)

    def n_parameters(self, domain: Domain) -> int:
        """Length of theta."""
        assert isinstance(self.program, SecondStage)
        columns = domain.columns or tuple(f"x{k + 1}" for k in range(N_FEATURES))
        return len(self.program.parameter_names(columns, domain))

    def distance(self, first: Array, second: Array) -> float:
        """In the norm that certificates are stated in: l1 for weights, l2 for theta."""
        return float(np.linalg.norm(first - second, 1 if isinstance(self.program, FirstStage) else 2))


@dataclass(frozen=True)
class Check:
    """What the theorems assume of a program, searched for violations; ``name`` stands in every report."""

    name: str
    examine: Callable[[Subject], Judgment]

    def __call__(self, subject: Subject) -> CheckOutcome:
        """Run it."""
        return CheckOutcome(self.name, *self.examine(subject))


def check_named(name: str) -> Callable[[Callable[[Subject], Judgment]], Check]:
    """A decorator: the check of this name that runs the function."""
    return lambda examine: Check(name, examine)
