"""The MMD proposition under a change of treatment, through the package's own program and certificate."""

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import BoundFamily, Neighboring
from dp2erm_cvx.problems.mmd import MMD
from dp2erm_cvx.program import Gaussian
from dp2erm_cvx.solve import solve
from dp2erm_cvx.stability import paper_kernel_balancing, usable
from dp2erm_cvx.universe import Universe


def certified(program, domain, X, a):
    """Weights, proven to be within 1e-9 per record of the exact minimizer in the 1-norm."""
    solution = solve(program.instance(domain.records(X, a, np.zeros(len(a)))))
    assert solution.certified
    assert solution.certificate.output_radius <= 1e-9 * len(a)
    return solution.value


def printed_norm_bound(n, ridge, cap):
    return 2 * np.sqrt(2) * (cap + 1) * n / ridge


@pytest.mark.parametrize(("ridge", "moved", "printed"), [(1e4, 0.7205, 0.0699), (1e3, 0.7204, 0.6994)])
def test_one_hundred_records(ridge, moved, printed):
    n = 100
    X = np.random.default_rng(0).normal(size=(n, 2))
    a = np.array([1] * 35 + [0] * 65)
    flipped = np.where(np.arange(n) == 0, 0, a)
    domain = Domain(10.0, 1.0, arm_floor=34)
    program = MMD(ridge=ridge / n, kernel=Gaussian(1.0))
    w, v = (certified(program, domain, X, arm) for arm in (a, flipped))
    claimed = printed_norm_bound(n, ridge, max(w.max(), v.max()))
    assert claimed == pytest.approx(printed, rel=2e-3)
    assert np.linalg.norm(w - v) == pytest.approx(moved, abs=2e-3)
    assert np.linalg.norm(w - v) > claimed
    # Theorem 5 covers the pair
    assert np.abs(w - v).sum() + 2 * min(w[0], v[0]) <= program.stability(Universe(domain, n, 2)).V


def test_four_equal_records():
    X = np.zeros((4, 1))
    domain = Domain(1.0, 1.0, arm_floor=2)
    program = MMD(ridge=1e4 / 4, kernel=Gaussian(1.0))
    w = certified(program, domain, X, np.array([0, 0, 0, 1]))
    v = certified(program, domain, X, np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(w, [2 / 3, 2 / 3, 2 / 3, 2], atol=1e-8)
    np.testing.assert_allclose(v, [1, 1, 1, 1], atol=1e-8)
    assert np.linalg.norm(w - v) == pytest.approx(1.1547, abs=1e-4)
    assert printed_norm_bound(4, 1e4, 2.0) == pytest.approx(0.0034, rel=2e-3)


def test_the_movement_does_not_fall_with_the_ridge_as_the_printed_bound_does():
    n = 40
    X = np.random.default_rng(1).normal(size=(n, 2))
    a = np.array([1] * 10 + [0] * 30)
    flipped = np.where(np.arange(n) == 0, 0, a)
    domain = Domain(10.0, 1.0, arm_floor=2)
    moved = []
    for ridge in (1e2, 1e4, 1e6):
        program = MMD(ridge=ridge / n, kernel=Gaussian(1.0))
        w, v = (certified(program, domain, X, arm) for arm in (a, flipped))
        moved.append(float(np.linalg.norm(w - v)))
    assert min(moved) > 0.9 * max(moved)
    assert printed_norm_bound(n, 1e6, 3.0) < 1e-3 * min(moved)


def test_it_is_refused_where_it_is_false_and_offered_where_it_is_true():
    program = MMD(ridge=1.0, cap=5.0)
    with pytest.raises(CalibrationError, match="false under replace"):
        program.stability(Universe(Domain(1.0, 1.0, arm_floor=20), 100, 2), BoundFamily.PAPER)
    keep = Domain(1.0, 1.0, arm_floor=20, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    bound = program.stability(Universe(keep, 100, 2), BoundFamily.PAPER)
    assert bound.relations == frozenset({Neighboring.REPLACE_ONE_KEEP_TREATMENT})
    assert bound == usable(100, paper_kernel_balancing(100, 1.0, 100.0, 5.0))
