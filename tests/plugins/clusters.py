"""Neighbors of clustered datasets, which move the weights of a separable scheme most."""

from collections.abc import Iterable, Iterator

import numpy as np

from dp2erm_cvx import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import solve


def clustered(domain: Domain, n: int = 40, count: int = 60) -> Iterator[tuple[Records, Records]]:
    """Datasets of one covariate, each with one whose first record is replaced by one at the far
    end.
    """
    rng = np.random.default_rng(5)
    for _ in range(count):
        far = float(rng.uniform(0.3, 1.0))
        x = np.where(rng.uniform(size=n) < 0.9, -far, far)[:, None]
        a = np.where(rng.uniform(size=n) < rng.uniform(), 1, 0)
        data = domain.records(x, a, np.zeros(n))
        yield (
            data,
            data.replaced(0, np.array([float(rng.choice([-1.0, 1.0]))]), int(rng.integers(2))),
        )


def largest_movement(
    program: FirstStage, bound: StabilityBound, pairs: Iterable[tuple[Records, Records]]
) -> float:
    """The largest V of pairs that differ in the first record; no weight may be above its bound."""
    worst = 0.0
    for data, other in pairs:
        one, two = (solve(program.instance(each)).value for each in (data, other))
        worst = max(worst, float(np.sum(np.abs(one - two)) + 2 * min(one[0], two[0])))
        assert max(one.max(), two.max()) <= bound.w_max * (1 + 1e-9)
    return worst
