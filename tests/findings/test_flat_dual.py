"""The dual of entropy balancing at ridge 0 is constant along a line: concave, not strictly."""

import numpy as np
import pytest
from scipy.special import logsumexp

from dp2erm_cvx import Domain
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing


def test_dual_is_flat_along_the_arm_constants():
    rng = np.random.default_rng(3)
    n = 60
    a = (np.arange(n) < 21).astype(np.int64)
    X, y = rng.uniform(-0.5, 0.5, (n, 2)), np.zeros(n)
    domain = Domain(1.0, 1.0, arm_floor=10)
    program = EntropyBalancing(scaling="paper", arm_mass="proportional", ridge=0.0).resolve(domain)
    B, target = program.moments(domain.records(X, a, y))
    constant = B[a == 0][0, 0] * np.mean(a == 0)  # the constant function in the scaled rows
    k = B.shape[1] // 2
    along = np.zeros(2 * k)
    along[0], along[k] = np.mean(a == 0) / constant, np.mean(a == 1) / constant

    def dual(lam):
        return float(logsumexp(B @ lam)) - np.log(n) - target @ lam

    lam = rng.normal(size=2 * k)
    values = [dual(lam + step * along) for step in (-10.0, -1.0, 0.0, 1.0, 10.0)]
    assert values == pytest.approx([values[2]] * 5, abs=1e-12)
    assert dual(lam + np.eye(2 * k)[0]) != pytest.approx(dual(lam), abs=1e-6)
