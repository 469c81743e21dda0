"""Fixed weights and the universal corollary."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.stability import fixed_weights, universal_corollary


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


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: fixed_weights(1, 1.0), DeclarationError, "n = 1"),
        (lambda: fixed_weights(4, 0.5), DeclarationError, "w_max"),
        (lambda: universal_corollary(4, 0.0), DeclarationError, "w_max"),
    ],
)
def test_refusals(call, error, names):
    with pytest.raises(error, match=names) as caught:
        call()
    assert "\n" not in str(caught.value)
