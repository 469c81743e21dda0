"""Which sums and which caps of the weights: what they cost in V, and what imbalance they leave.

``python weight_caps.py`` prints a table as CSV. Entropy of the weights stands beside the squared
imbalance of each arm to all records, for treatments from rare to even, three sizes of confounding
and two numbers of covariates. Four rules are compared:

- ``cap 3``: all weights have one sum, none is above 3;
- ``caps by arm``: one sum; a weight is at most three times the mean of its arm, if each arm weighs
  half;
- ``half each``: the weights of each arm have sum n / 2, with the caps that the smallest arm needs;
- ``counts``: the weights of each arm have the number of its records as their sum, none is above 3.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.program import FirstStage, scheme
from dp2erm_cvx.solve import solve

SHARES = (0.04, 0.14, 0.4)
SHIFTS = (0.3, 0.6, 1.2)
COLUMNS = (3, 10)
RIDGES = (0.1, 0.03, 0.01, 0.003, 0.001)
RULES = ("cap 3", "caps by arm", "half each", "counts")
#: A weight is at most so many times the mean weight of its arm.
TIMES = 3.0
#: Arms are declared to have at least this part of the records that they are expected to have.
DECLARED = 0.75


@dataclass(frozen=True)
class Design:
    """Records of a table of the experiment.

    Parameters
    ----------
    n
        Number of records.
    columns
        Number of covariates.
    share
        Share of the treated.
    shift
        Distance of the means of the first covariate in both arms, in standard deviations.
    """

    n: int
    columns: int
    share: float
    shift: float

    @property
    def domain(self) -> Domain:
        """Covariates of norm at most 1, and a floor of both arms."""
        return Domain(1.0, 1.0, arm_floor=int(DECLARED * self.share * self.n))

    @property
    def universe(self) -> Universe:
        """All datasets of the domain."""
        return Universe(self.domain, self.n, self.columns)

    def drawn(self, seed: int = 0) -> Records:
        """Records of normal covariates, the longest of them shrunk to norm 1."""
        rng = np.random.default_rng(seed)
        a = np.zeros(self.n, dtype=np.int64)
        a[: round(self.share * self.n)] = 1
        X = rng.normal(size=(self.n, self.columns))
        X[:, 0] += self.shift * a
        X *= 0.25 * math.sqrt(3.0 / self.columns)
        X /= np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, None]
        return self.domain.records(X, a, np.zeros(self.n))


def boxes(rule: str, share: float) -> tuple[float, float]:
    """Caps of the controls and of the treated."""
    if rule in ("cap 3", "counts"):
        return TIMES, TIMES
    if rule == "half each":
        # either arm may be the one at its floor, and has to reach half of the weight
        largest = TIMES / (2.0 * DECLARED * share)
        return largest, largest
    return TIMES / (2.0 * (1.0 - share)), TIMES / (2.0 * share)


def declared(rule: str, share: float, ridge: float) -> FirstStage:
    """The program of a rule at a declared share of the treated."""
    caps = np.array(boxes(rule, share))
    of_arms = np.array([1.0 - share, share]) if rule == "counts" else np.array([0.5, 0.5])

    @scheme()
    def balanced(w: cp.Variable, records: Any) -> cp.Problem:
        means = cp.sum(records.x, axis=0)
        sizes = cp.sum(records.arms, axis=0)
        masses = sizes if rule == "counts" else records.n / 2 * np.ones(2)
        target = cp.hstack([masses[0], of_arms[0] * means, masses[1], of_arms[1] * means])
        imbalance = (records.by_arm(1.0).T @ w - target) / records.n
        price = records.n / (2 * ridge) * cp.sum_squares(imbalance)
        sums = cp.sum(w) == records.n
        if rule in ("half each", "counts"):
            sums = records.arms.T @ w == masses
        return cp.Problem(
            cp.Minimize(price - cp.sum(cp.entr(w))), [sums, w >= 0, w <= records.arms @ caps]
        )

    return balanced()


@dataclass(frozen=True)
class Balance:
    """What weights do to records.

    Parameters
    ----------
    left
        Distance of the weighted means of both arms, relative to that of the means.
    effective
        Effective share of the records of the treated.
    mass
        Share of the weight that the treated have.
    """

    left: float
    effective: float
    mass: float

    @classmethod
    def of(cls, records: Records, w: np.ndarray) -> Balance:
        """Balance at weights w (n,)."""
        treated = w * records.a
        controls = w - treated
        x = records.covariates
        apart = treated @ x / np.sum(treated) - controls @ x / np.sum(controls)
        before = np.mean(x[records.a == 1], axis=0) - np.mean(x[records.a == 0], axis=0)
        effective = np.sum(treated) ** 2 / np.sum(treated**2) / np.sum(records.a)
        left = float(np.linalg.norm(apart) / np.linalg.norm(before))
        return cls(left, float(effective), float(np.sum(treated) / len(w)))


def rows(designs: Sequence[Design], ridges: Sequence[float]) -> Iterator[str]:
    """Lines of the table."""
    for design, rule, ridge in product(designs, RULES, ridges):
        program = declared(rule, design.share, ridge)
        V = program.stability(design.universe).V
        records = design.drawn()
        w = np.asarray(solve(program.instance(records)).value)
        balance = Balance.of(records, w)
        # the noise of the mean of an arm is divided by the weight of the arm
        relative = V / (2.0 * min(balance.mass, 1.0 - balance.mass))
        shown = f"{V:.1f},{relative:.0f},{balance.left:.2f},{balance.effective:.2f},{np.max(w):.1f}"
        yield f"{design.columns},{design.share:g},{design.shift:g},{rule},{ridge:g},{shown}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="at 200 records and one design")
    parser.add_argument("--n", type=int, default=4000, help="number of records")
    options = parser.parse_args()
    every = [Design(options.n, *one) for one in product(COLUMNS, SHARES, SHIFTS)]
    used = every
    ridges = RIDGES
    if options.quick:
        used = [Design(200, 3, 0.4, 0.6)]
        ridges = RIDGES[:1]
    print(
        "covariates,treated,shift,rule,ridge,V,V by mass,imbalance left,effective treated,largest "
        "weight"
    )
    for line in rows(used, ridges):
        print(line, flush=True)
