"""What fits hold beside the records: in tables of covariates, counted by allocation and not by a clock."""

import gc
import tracemalloc

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.data import Dataset

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


@pytest.mark.parametrize(
    ("changed", "most"),
    # arms, outcomes and net outcomes are 1/20 each; what is scaled or clipped is a table of its own
    [
        ({}, 0.3),
        ({"covariate_bound": 2.0}, 1.8),
        ({"ranges": [(-1.0, 1.0)] * P}, 1.5),
        ({"intercept": 0.5}, 1.5),
    ],
    ids=str,
)
def test_records_are_held_once(changed, most, raw):
    domain = Domain(**{"covariate_bound": 4.5, "outcome_bound": 4.0, **changed})

    def read() -> None:
        data = Dataset.from_arrays(*raw)
        domain.records(data.X, data.a, data.y)

    assert held(read) < most


@pytest.mark.parametrize(
    ("model", "most"),
    [
        (PrivateTwoStageERM(DOMAIN, Budget(2.0), "ipw_private", "arm_means", seed=1), 0.9),
        (PrivateTwoStageERM(DOMAIN, Budget(2.0), "entropy_balancing", "arm_means", seed=1), 0.9),
        # covariates less their mean and in a smaller ball, the rows of a regression, and what a solve adds
        (PrivateRule(DOMAIN, Budget(2.0), seed=1), 3.0),
        (PrivateEffect(DOMAIN, Budget(2.0), seed=1), 3.0),
    ],
    ids=["ipw", "entropy", "rule", "effect"],
)
def test_fits_hold_few_more_tables(model, most, raw):
    data, execution = Dataset.from_arrays(*raw), model.execution()
    plan = model.plan(N, P)
    assert held(lambda: plan.run(data, execution)) < most
