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


def of_a_flip(domain, ridge, X, a):
    """Weights before and after record 0 changes its arm, within 1e-9 per record in the 1-norm."""
    n, found = len(X), []
    program = MMD(ridge=ridge / n, kernel=Gaussian(1.0))
    for arms in (a, np.where(np.arange(n) == 0, 1 - a, a)):
        solution = solve(program.instance(domain.records(X, arms, np.zeros(n))))
        assert solution.certified
        assert solution.certificate.output_radius <= 1e-9 * n
        found.append(solution.value)
    return found


def printed_norm_bound(n, ridge, cap):
    return 2 * np.sqrt(2) * (cap + 1) * n / ridge


@pytest.mark.parametrize(("ridge", "moved", "printed"), [(1e4, 0.7205, 0.0699), (1e3, 0.7204, 0.6994)])
def test_one_hundred_records(ridge, moved, printed):
    n, domain = 100, Domain(10.0, 1.0, arm_floor=34)
    X = np.random.default_rng(0).normal(size=(n, 2))
    w, v = of_a_flip(domain, ridge, X, np.repeat([1, 0], [35, 65]))
    claimed = printed_norm_bound(n, ridge, max(w.max(), v.max()))
    assert claimed == pytest.approx(printed, rel=2e-3)
    assert np.linalg.norm(w - v) == pytest.approx(moved, abs=2e-3)
    assert np.linalg.norm(w - v) > claimed
    # Theorem 5 covers the pair
    stated = MMD(ridge=ridge / n, kernel=Gaussian(1.0)).stability(Universe(domain, n, 2)).V
    assert np.abs(w - v).sum() + 2 * min(w[0], v[0]) <= stated


def test_four_equal_records():
    w, v = of_a_flip(Domain(1.0, 1.0, arm_floor=2), 1e4, np.zeros((4, 1)), np.array([0, 0, 0, 1]))
    np.testing.assert_allclose(w, [2 / 3, 2 / 3, 2 / 3, 2], atol=1e-8)
    np.testing.assert_allclose(v, [1, 1, 1, 1], atol=1e-8)
    assert np.linalg.norm(w - v) == pytest.approx(1.1547, abs=1e-4)
    assert printed_norm_bound(4, 1e4, 2.0) == pytest.approx(0.0034, rel=2e-3)


def test_the_movement_does_not_fall_with_the_ridge_as_the_printed_bound_does():
    X, a = np.random.default_rng(1).normal(size=(40, 2)), np.repeat([1, 0], [10, 30])
    pairs = [of_a_flip(Domain(10.0, 1.0, arm_floor=2), ridge, X, a) for ridge in (1e2, 1e4, 1e6)]
    moved = [float(np.linalg.norm(w - v)) for w, v in pairs]
    assert min(moved) > 0.9 * max(moved)
    assert printed_norm_bound(40, 1e6, 3.0) < 1e-3 * min(moved)


def test_it_is_refused_where_it_is_false_and_offered_where_it_is_true():
    program = MMD(ridge=1.0, cap=5.0)
    with pytest.raises(CalibrationError, match="false under replace"):
        program.stability(Universe(Domain(1.0, 1.0, arm_floor=20), 100, 2), BoundFamily.PAPER)
    keep = Domain(1.0, 1.0, arm_floor=20, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    bound = program.stability(Universe(keep, 100, 2), BoundFamily.PAPER)
    assert bound.relations == frozenset({Neighboring.REPLACE_ONE_KEEP_TREATMENT})
    assert bound == usable(100, paper_kernel_balancing(100, 1.0, 100.0, 5.0))
