"""Fixed weights, the universal corollary and the general principle."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.stability import fixed_weights, general_principle, universal_corollary, usable
from tests.stability.kernel_movement import minimize_on_simplices


def printed_quantities(w, v):
    """(W1, W2) of a pair of weight vectors, as the paper defines them."""
    change = w - v
    first = np.abs(change).sum() + 2 * np.minimum(w, v).max()
    second = math.sqrt((change @ change + 2 * (w * v).max()) * (1 + np.count_nonzero(change)))
    return first, second


def test_fixed_weights_are_attained():
    w = np.array([0.5, 0.5, 2.0])
    bound = fixed_weights(3, 2.0)
    first, second = printed_quantities(w, w)
    assert pytest.approx(first, rel=1e-9) == bound.W1
    assert pytest.approx(second, rel=1e-9) == bound.W2
    assert first <= bound.W1
    assert second <= bound.W2
    assert bound.V == bound.W1
    assert bound.relations == frozenset(Neighboring)


def test_universal_corollary_is_attained_by_disjoint_supports():
    n, cap = 400, 2.0
    w = np.where(np.arange(n) < n // 2, cap, 0.0)
    bound = universal_corollary(n, cap)
    first, second = printed_quantities(w, cap - w)
    assert 0.99 * bound.W1 < first <= bound.W1
    assert 0.999999 * bound.W2 < second <= bound.W2


def test_universal_corollary_covers_random_weights():
    rng = np.random.default_rng(5)
    largest = np.zeros(2)
    for _ in range(500):
        n = int(rng.integers(2, 12))
        w, v = n * rng.dirichlet(np.full(n, 10 ** rng.uniform(-2, 1)), 2)
        bound = universal_corollary(n, max(1.0, w.max(), v.max()))
        seen = np.array(printed_quantities(w, v)) / np.array([bound.W1, bound.W2])
        largest = np.maximum(largest, seen)
    assert (largest <= 1.0).all()
    assert (largest > 0.65).all()


def test_unconditional_figures():
    bound = universal_corollary(100)
    assert pytest.approx(400) == bound.W1
    assert pytest.approx(math.sqrt(2) * 100 * math.sqrt(101)) == bound.W2
    assert bound.w_max == pytest.approx(100)


def test_general_principle_on_projections():
    # weights n p, p the projection of a statistic of the data onto the simplex: L_F = n, rho = 1
    rng = np.random.default_rng(8)
    largest = 0.0
    for _ in range(100):
        n = int(rng.integers(2, 8))
        centers = rng.normal(size=(2, n)) / n
        centers[1] = centers[0] + rng.normal(size=n) * 10 ** rng.uniform(-4, -1)
        none = np.full(n, np.inf)
        w, v = (n * minimize_on_simplices(np.eye(n), c, np.ones((1, n)), none) for c in centers)
        change = float(np.linalg.norm(centers[0] - centers[1]))
        bound = general_principle(n, n, 1.0, change, fixed_set=True)
        first, second = printed_quantities(w, v)
        assert first <= bound.W1
        assert second <= bound.W2
        moved = float(np.linalg.norm(w - v))
        assert moved <= 2 * n * change
        largest = max(largest, moved / (n * change))
    assert largest > 0.9


def test_general_principle_formula():
    alone = general_principle(100, 3.0, 0.5, 0.01, fixed_set=True, w_max=4.0)
    assert pytest.approx(10 * 0.12 + 8) == alone.W1
    assert pytest.approx(math.sqrt((0.12**2 + 32) * 101)) == alone.W2
    far = usable(100, general_principle(100, 3.0, 0.5, 100.0, fixed_set=True, w_max=4.0))
    assert pytest.approx(208) == far.W1
    assert "universal" in far.theorem


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: fixed_weights(1, 1.0), DeclarationError, "n = 1"),
        (lambda: fixed_weights(4, 0.5), DeclarationError, "w_max"),
        (lambda: universal_corollary(4, 0.0), DeclarationError, "w_max"),
        (
            lambda: usable(4, general_principle(4, -1.0, 1.0, 1.0, fixed_set=True)),
            DeclarationError,
            "weight_lipschitz",
        ),
        (
            lambda: usable(4, general_principle(4, 1.0, 0.0, 1.0, fixed_set=True)),
            DeclarationError,
            "strong_convexity",
        ),
        (
            lambda: usable(4, general_principle(4, 1.0, 1.0, -1.0, fixed_set=True)),
            DeclarationError,
            "gradient_change",
        ),
        (
            lambda: usable(4, general_principle(4, 1.0, 1.0, 1.0, fixed_set=False)),
            CalibrationError,
            "one feasible set",
        ),
    ],
)
def test_refusals(call, error, names):
    with pytest.raises(error, match=names) as caught:
        call()
    assert "\n" not in str(caught.value)
