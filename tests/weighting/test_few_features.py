"""Few features of a kernel: the proved error of their products, and problems of many records with
them.
"""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.kernels import Gaussian, Linear, RandomFourier
from dp2erm_cvx.solve import solve
from dp2erm_cvx.weighting.solving import pivoted
from dp2erm_cvx.weighting.solving.dataset import MOST_PAIRS
from dp2erm_cvx.weighting.solving.pivoted import FewFeatures, few_features

N = 300


def covariates(n: int, p: int) -> np.ndarray:
    X = np.random.default_rng(3).normal(size=(n, p))
    return np.asarray(X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None])


def gaussian(bandwidth: float, X: np.ndarray) -> np.ndarray:
    """The kernel in long doubles."""
    long = X.astype(np.longdouble)
    squares = np.sum((long[:, None, :] - long[None, :, :]) ** 2, axis=2)
    return np.asarray(np.exp(-squares / (2 * np.longdouble(bandwidth) ** 2)))


def errors_of_records(values: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Largest error of a product of features, by record (n,), in long doubles."""
    long = values.astype(np.longdouble)
    return np.asarray(np.max(np.abs(kernel - long @ long.T), axis=1), dtype=np.float64)


@pytest.mark.parametrize(("bandwidth", "p"), [(1.0, 1), (1.0, 2), (0.3, 2), (1.0, 3), (2.0, 4)])
def test_the_error_of_features_covers_every_pair(bandwidth: float, p: int) -> None:
    X = covariates(N, p)
    found = few_features(Gaussian(bandwidth), X, N, 256.0)
    assert found is not None
    off = errors_of_records(found.values, gaussian(bandwidth, X))
    assert np.all(off <= found.entry_errors)
    assert np.max(found.entry_errors) <= pivoted.SIMILARITY_ERROR
    # Without the pivots that are left out, the bound would say nothing.
    assert np.max(off) > 0


@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e-6, 1e-3])
def test_the_error_of_features_that_are_off_is_measured(scale: float) -> None:
    """Whatever the features are, the bound covers what they lack: it does not ask how they were
    found.
    """
    X = covariates(N, 2)
    kernel = Gaussian(1.0)
    diagonal = kernel.diagonal(X)
    factored = pivoted._pivoted(kernel, X, N, diagonal)
    assert factored is not None
    generator = np.random.default_rng(4)
    free = np.setdiff1d(np.arange(N), factored.pivots)
    factored.factor[:, free] *= 1.0 + scale * generator.normal(
        size=(len(factored.factor), len(free))
    )
    measured = pivoted._measured(factored, diagonal, 256.0)
    off = errors_of_records(measured.values, gaussian(1.0, X))
    assert np.all(off <= measured.entry_errors)
    assert np.max(off) > 0.1 * scale


def test_the_error_of_pivots_that_are_left_out_is_measured() -> None:
    X = covariates(N, 2)
    kernel = Gaussian(1.0)
    diagonal = kernel.diagonal(X)
    factored = pivoted._pivoted(kernel, X, N, diagonal)
    assert factored is not None
    for rank in (5, 15, 30):
        of_first = pivoted._Factored(
            factored.factor[:rank], factored.columns[:rank], factored.pivots[:rank]
        )
        measured = pivoted._measured(of_first, diagonal, 256.0)
        off = errors_of_records(measured.values, gaussian(1.0, X))
        assert np.all(off <= measured.entry_errors)


@pytest.mark.parametrize("kernel", [Linear(2.0), RandomFourier(1.0, 12, 3)])
def test_a_kernel_of_few_features_has_its_own(kernel: Any) -> None:
    X = covariates(N, 3)
    found = few_features(kernel, X, 40, kernel.entry_error(1.0, 3))
    assert isinstance(found, FewFeatures)
    assert found.values.shape[1] == kernel.n_features(3)
    long = X.astype(np.longdouble)
    if isinstance(kernel, Linear):
        exact = 2.0 + long @ long.T
    else:
        angles = long @ kernel._omega(3).astype(np.longdouble).T
        differences = angles[:, None, :] - angles[None, :, :]
        exact = np.mean(np.cos(differences), axis=2)
    assert np.all(errors_of_records(found.values, exact) <= found.entry_errors)
    # Of fewer features than a kernel has, pivots are tried.
    fewer = few_features(kernel, X, kernel.n_features(3) - 1, kernel.entry_error(1.0, 3))
    assert fewer is None or fewer.values.shape[1] < kernel.n_features(3)


@scheme(rho=0.5)
def alike(w: Any, records: Any, rho: float) -> cp.Problem:
    """Weights under which both arms look alike to a kernel."""
    imbalance = records.features(Gaussian(1.0), "signed").T @ w
    price = rho * cp.sum_squares(imbalance) / records.n
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) / 2 + price))


def instance_of(n: int) -> Any:
    X = covariates(n, 1)
    a = (np.random.default_rng(5).uniform(size=n) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    return alike().instance(Domain(1.0, 1.0).records(X, a, np.zeros(n)))


def test_more_records_than_pairs_serve_are_solved_by_features() -> None:
    """No radius is public there, and every solve is certified all the same."""
    n = MOST_PAIRS + 200
    solution = solve(instance_of(n))
    assert solution.certified
    assert np.sum(solution.value) == pytest.approx(n)
    assert np.ptp(solution.value) > 1e-3


def test_a_claim_above_the_tolerance_is_told_and_not_raised() -> None:
    """No solver of CVXPY applies to features of a kernel: the best point of the dual comes back."""
    solution = solve(instance_of(120), tolerance=1e-16, throw=False)
    assert not solution.certified
    assert not solution.substituted
    assert solution.certificate.radius <= 1e-9 * 120
