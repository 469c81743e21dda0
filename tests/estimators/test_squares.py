"""A square that drives treatment and outcome: effects by lines miss it, with a scheme or
without.
"""

import warnings

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect

N, P = 16_000, 5


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "bias"), [(None, 0.45), ("entropy_balancing", 0.39)])
def test_a_square_leaves_its_bias_with_the_weights_of_a_scheme_as_without(
    weights: str | None, bias: float
):
    """Log odds .65 (x + x^2 - 1), outcomes with .5 (x^2 - 1): no interval holds the effect of 1."""
    domain = Domain(1.5, 6.0, ranges={f"x{k}": (-3.0, 3.0) for k in range(P)})
    errors = []
    for seed in range(4):
        rng = np.random.default_rng([7, seed])
        X = rng.standard_normal((N, P))
        square = X[:, 0] ** 2 - 1.0
        a = (rng.random(N) < 1.0 / (1.0 + np.exp(-0.65 * (X[:, 0] + square)))).astype(int)
        y = a + X[:, 0] + 0.5 * square + rng.standard_normal(N) - 0.5
        model = PrivateEffect(domain, Budget(1.0), residual_scale=1.0, weights=weights, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # which says so to the data holder
            model.fit(X, a, y, accept=True)
        low, high = model.interval_
        errors.append(model.effect_ - 1.0)
        assert not low <= 1.0 <= high
    assert np.mean(errors) == pytest.approx(bias, abs=0.05)
