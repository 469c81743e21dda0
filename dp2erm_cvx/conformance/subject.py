"""A program under examination, what a check says of it, and the records that it is checked on."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.audit.pairs import Pairs, next_pair
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.program import FirstStage, Instance, Kind, Program, SecondStage
from dp2erm_cvx.universe import Universe


class CheckStatus(enum.StrEnum):
    """``NOTED``: nothing to pass or fail, but the reader should know; ``SKIPPED``: it is derived."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"
    NOTED = "noted"

    def __call__(self, detail: str) -> Judgment:
        """The judgment with its reason."""
        return self, detail


#: What a check says of a program: whether it passed, and the numbers or the reason in words.
Judgment = tuple[CheckStatus, str]


#: Covariates of all records here, an intercept apart.
N_FEATURES = 3
#: Sizes that checks look at once, beside the few records that they search: some errors begin at a size.
LARGER = (500, 5000)
#: Of the audit, and the seed of all searches, unless others are asked for.
SEARCH = SearchPlan(20_000)


@dataclass(frozen=True)
class Subject:
    """``program`` at one choice of settings; every search of it has the seed of ``search``.

    ``search`` limits the audit and, with it, all other searches; ``sizes`` are those of neighbors whose
    weights are compared, ``larger`` those at which a few of them are.
    """

    program: Program
    search: SearchPlan = SEARCH
    sizes: tuple[int, ...] = (8, 25)
    larger: tuple[int, ...] = LARGER

    @property
    def seed(self) -> int:
        """Seed of every search."""
        return self.search.seed

    @property
    def pairs(self) -> int:
        """Neighbors of each size whose weights are compared."""
        return min(max((self.search.evaluations or 400) // 10, 3), 40)

    @property
    def derived(self) -> bool:
        """True if all that sets noise follows from the declaration: no bound of an author's, none by hand.

        What a release calls its author's word is searched for, and so are the library's own classes.
        """
        return "_made" in vars(type(self.program)) and self.program.own_data() is not None

    @property
    def paired(self) -> bool:
        """True if pairs of records may make a matrix: thousands of records then take long."""
        return isinstance(self.program, FirstStage) and self.program.kind is Kind.QUADRATIC

    def bind(self, records: Records) -> Instance:
        """The program on records; a second stage with unequal weights, gamma = 0.05 and random noise."""
        if isinstance(self.program, FirstStage):
            return self.program.instance(records)
        assert isinstance(self.program, SecondStage)
        n = records.n_samples
        noise = np.random.default_rng(2).normal(size=self.program.n_parameters(check_universe(n)))
        raw = np.random.default_rng(1).uniform(0.2, 3.0, n)
        weights = raw * (n / math.fsum(raw))
        return self.program.instance(records, weights, gamma=0.05, noise=noise)


#: What the theorems assume of a program, searched for violations. May raise: a program may do anything.
Check = Callable[[Subject], Judgment]


def check_universe(n_samples: int = 60) -> Universe:
    """The universe of the checks: 3 covariates in [-1, 1], an intercept, an arm floor of a tenth.

    Not round, so that M^2 is not 2 M and no other slip of a formula goes unseen.
    """
    bound = math.hypot(math.sqrt(N_FEATURES), 1.2)
    domain = Domain(bound, 4.7, intercept=1.2, arm_floor=max(2, n_samples // 10))
    return Universe(domain, n_samples, N_FEATURES)


def standard_records(n_samples: int = 60, seed: int = 0) -> Records:
    """Confounded records: propensity and outcome depend on the first covariates."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n_samples, N_FEATURES))
    propensity = 1 / (1 + np.exp(-(0.6 * X[:, 0] - 0.8 * X[:, -1] + 0.1)))
    a = (rng.uniform(size=n_samples) < propensity).astype(int)
    y = X[:, 0] * (2 * a - 1) + 0.5 * X[:, -1] + rng.normal(size=n_samples)
    return check_universe(n_samples).domain.records(X, a, y)


def edge_records(domain: Domain | None = None) -> dict[str, Records]:
    """Datasets of the domain that break careless code, by name; not all of them keep the arm floor.

    Default: the domain of the checks.
    """
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (12, N_FEATURES))
    y = rng.normal(size=12)
    half = np.arange(12) % 2
    domain = domain or check_universe(12).domain
    constant, separable = X.copy(), X.copy()
    constant[:, 1] = 0.7
    separable[:, 0] = np.where(half == 1, 0.9, -0.9)
    return {
        "two records": domain.records(X[:2], [0, 1], y[:2]),
        "two records of one arm": domain.records(X[:2], [1, 1], y[:2]),
        "three records": domain.records(X[:3], [0, 1, 1], y[:3]),
        "constant column": domain.records(constant, half, y),
        "separable arms": domain.records(separable, half, y),
        "no treated": domain.records(X, np.zeros(12), y),
        "no control": domain.records(X, np.ones(12), y),
        "duplicate rows": domain.records(np.repeat(X[:1], 12, axis=0), half, np.full(12, y[0])),
        "zero covariates": domain.records(np.zeros((12, N_FEATURES)), half, y),
        "outcome at its bound": domain.records(X, half, np.where(half == 1, 99.0, -99.0)),
    }


def neighbors(count: int, n_samples: int, seed: int) -> Iterator[tuple[Records, Records]]:
    """Pairs as audits draw them: they differ in record 0, and each arm keeps the floor in both.

    In every third pair the other records are all different and well inside, and the changed one alone becomes
    the longest or the shortest, and that of the largest or the smallest outcome.
    """
    universe, rng = check_universe(n_samples), np.random.default_rng([seed, 7])
    domain = universe.domain
    for index in range(count):
        pair = next_pair(universe, None, rng)
        if index % 3 == 1:
            X, a, y, order = pair.kinds()
            kinds, side = np.concatenate([[0, 1], order]), 1 - 2 * (index % 2)
            X, y = 0.2 * X[kinds], 0.2 * y[kinds]
            X += 0.1 * domain.features_bound * rng.uniform(-1, 1, X.shape)
            X[1] = domain.features_bound / math.sqrt(N_FEATURES) if side < 0 else 0.0
            y[1] = side * domain.outcome_bound
            pair = Pairs.single(domain.inside(X), a[kinds], y, np.arange(2, n_samples + 1))
        first, second = (domain.records(*columns) for columns in pair.raw(domain))
        yield first, second
