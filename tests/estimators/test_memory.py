"""What fits hold beside the records: in tables of covariates, counted by allocation and not by a
clock.
"""

import gc
import tracemalloc
from functools import partial

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.data.dataset import Dataset

N, P = 100_000, 20
DOMAIN = Domain(covariate_bound=4.5, outcome_bound=4.0)


@pytest.fixture(scope="module")
def raw():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, P))
    a = (rng.random(N) < 1 / (1 + np.exp(-X[:, 0]))).astype(np.int64)
    return X, a, X[:, 0] + a * X[:, 1] + 0.5 * rng.standard_normal(N)


def held(call) -> float:
    """The most that is allocated at once while it runs, over the size of the covariates."""
    gc.collect()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / (8 * N * P)
    finally:
        tracemalloc.stop()


def read(data, **changed):
    """Memory that records take which are scaled and clipped."""
    domain = Domain(**{"covariate_bound": 4.5, "outcome_bound": 4.0, **changed})

    def call() -> None:
        rows = Dataset.from_arrays(*data)
        domain.records(rows.X, rows.a, rows.y)

    return held(call)


def fitted(data, kind, stages=()):
    """Memory that a fit takes beside the records."""
    model = kind(DOMAIN, Budget(2.0), *stages, seed=1)
    rows, execution, plan = Dataset.from_arrays(*data), model.execution(), model.plan(N, P)
    return held(lambda: plan.run(rows, execution))


@pytest.mark.one_row_in(8)
@pytest.mark.parametrize(
    ("call", "most"),
    [
        # arms, outcomes and net outcomes are 1/20 each; what is scaled or clipped is a table of its
        # own
        (read, 0.3),
        (partial(read, covariate_bound=2.0), 1.8),
        (partial(read, ranges=[(-1.0, 1.0)] * P), 1.5),
        (partial(read, intercept=0.5), 1.5),
        (partial(fitted, kind=PrivateTwoStageERM, stages=("ipw_private", "arm_means")), 0.9),
        # problems in the weights hold the rows of both arms, and copies of them
        (partial(fitted, kind=PrivateTwoStageERM, stages=("entropy_balancing", "arm_means")), 12.5),
        # covariates less their mean and in a smaller ball, the rows of a regression, and what a
        # solve adds
        (partial(fitted, kind=PrivateRule), 3.0),
        (partial(fitted, kind=PrivateEffect), 3.0),
    ],
)
def test_few_tables_are_held(call, most, raw):
    assert call(raw) < most
