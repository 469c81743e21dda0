"""Claims at the prices of weights themselves (Theorem 36), against numbers of 50 digits."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.problems.mmd import energy_balancing, mmd, mmd_pooled
from dp2erm_cvx.program.kernels import Gaussian, Laplace
from dp2erm_cvx.weighting.solving.dual import DualProblem
from dp2erm_cvx.weighting.solving.pairs import PairsProblem
from tests import exact_kernel
from tests.helpers import make_records

N = 24
RECORDS = make_records(N, 3)
PROGRAMS = {
    "mmd": mmd(ridge=1e-3),
    "mmd, narrow": mmd(ridge=1e-5, kernel=Gaussian(0.2)),
    "mmd, cap": mmd(alpha=1.0, ridge=1e-3, cap=1.9, kernel=Laplace(0.5)),
    "pooled, narrow": mmd_pooled(ridge=1e-5, kernel=Gaussian(0.2)),
    "energy": energy_balancing(ridge=1e-4),
}


def pairs_of(program: Any, records: Any = RECORDS) -> tuple[DualProblem, PairsProblem]:
    universe = MappedUniverse(records.space, records.n_samples, records.n_features)
    problem = DualProblem(program.at(universe).form(universe), records)
    assert problem.pairs is not None
    return problem, problem.pairs


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_weights_are_farther_from_the_exact_ones_than_claimed(name: str) -> None:
    program = PROGRAMS[name]
    problem, pairs = pairs_of(program)
    solution = problem.newton()
    with mpmath.workdps(50):
        exact = exact_kernel.kernel(program, RECORDS, solution.weights)
        generator = np.random.default_rng(5)
        curve = problem.data.curve
        for scale in (0.0, 1e-14, 1e-11, 1e-8, 1e-4, 1e-1):
            moved = solution.weights * (1.0 + scale * generator.normal(size=N))
            weights = np.clip(moved, curve.low, curve.cap)
            multipliers = solution.multipliers * (
                1.0 + scale * generator.normal(size=len(solution.multipliers))
            )
            claim = pairs._claimed_at_own_prices(
                weights, multipliers, math.sqrt(pairs.largest) * (1.0 + 1e-12)
            )
            distance = mpmath.fsum(abs(w - one) for w, one in zip(weights, exact, strict=True))
            assert distance <= claim
    # Theorem 33 claims 1e-7 n and more at the smaller ridges
    assert solution.claim <= 1e-9 * N


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_eigenvalue_of_the_exact_products_is_below_its_bound(name: str) -> None:
    program = PROGRAMS[name]
    _, pairs = pairs_of(program)
    with mpmath.workdps(30):
        gram = exact_kernel.gram(exact_kernel.kernel_of(program), RECORDS.covariates)
        arms = RECORDS.a
        alpha = mpmath.mpf(program.alpha)
        products = mpmath.zeros(N, N)
        for i in range(N):
            for j in range(N):
                products[i, j] = 2 * gram[i][j] * (1 if arms[i] == arms[j] else alpha - 1)
        least = min(mpmath.eigsy(products, eigvals_only=True))
        assert 0 <= pairs.least_eigenvalue <= least
        assert pairs.least_eigenvalue >= 0.99 * least - mpmath.mpf(10) ** -9


def test_records_that_are_alike_have_no_eigenvalue_above_0() -> None:
    twice = Records.within(
        RECORDS.space,
        np.repeat(RECORDS.covariates[: N // 2], 2, axis=0),
        np.repeat(RECORDS.a[: N // 2], 2),
        RECORDS.y,
    )
    _, pairs = pairs_of(mmd(kernel=Gaussian(0.2)), twice)
    assert pairs.least_eigenvalue == 0.0
