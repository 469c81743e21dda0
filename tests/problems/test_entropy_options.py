"""Trim and base measure of entropy balancing: what they solve, what covers them, what is refused."""

import math

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Domain, PrivateTwoStageERM, stability
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import BoundFamily, Budget
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.solve import certify, solve
from dp2erm_cvx.universe import Universe

DOMAIN = Domain(covariate_bound=1.0, outcome_bound=1.0, arm_floor=5)


def records(n: int, seed: int = 0, domain: Domain = DOMAIN):
    rng = np.random.default_rng(seed)
    a = (np.arange(n) % 3 == 0).astype(int)
    return domain.records(rng.normal(size=(n, 2)), a, rng.normal(size=n))


def test_a_base_measure_gives_the_weights_of_the_relative_entropy_to_it() -> None:
    data = records(40)
    q = np.random.default_rng(1).uniform(0.2, 3.0, 40)
    program = EntropyBalancing(ridge=0.3, base_measure=tuple(q)).resolve(DOMAIN)
    found = {name: solve(program.instance(data), solver=name).value for name in ("newton", "clarabel", "scs")}
    B, target = program.moments(data)
    p = cp.Variable(40)
    penalty = cp.sum_squares(B.T @ p - target) / (2 * 0.3)
    cp.Problem(cp.Minimize(cp.sum(cp.rel_entr(p, q / q.sum())) + penalty), [cp.sum(p) == 1]).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    for weights in found.values():
        np.testing.assert_allclose(weights, found["newton"], atol=1e-8)
        np.testing.assert_allclose(weights / 40, p.value, atol=1e-6)
    uniform = solve(EntropyBalancing(ridge=0.3, base_measure=(2.0,) * 40).instance(data)).value
    np.testing.assert_allclose(uniform, solve(EntropyBalancing(ridge=0.3).instance(data)).value, atol=1e-9)


def test_a_trim_caps_the_weights_before_they_are_normalized() -> None:
    data = records(60)
    program = EntropyBalancing(ridge=0.02, trim=1.1).resolve(DOMAIN)
    solution = solve(program.instance(data))
    B, _ = program.moments(data)
    f = np.minimum(np.exp(B @ solution.point), 1.1)
    assert np.sum(f == 1.1) > 3
    np.testing.assert_allclose(solution.value, 60 * f / f.sum(), rtol=1e-12)
    # the certificate covers what a wrong dual does to trimmed weights
    rng = np.random.default_rng(2)
    instance = program.instance(data)
    for size in (1e-2, 1e-5, 1e-8):
        point = solution.point + size * rng.normal(size=len(solution.point))
        claimed = certify(instance, point).output_radius
        assert np.sum(np.abs(instance.model.output(point) - solution.value)) <= claimed


@pytest.mark.parametrize("seed", range(8))
def test_trimmed_weights_move_within_their_bound(seed) -> None:
    """Clusters, one record that jumps from one end to the other and may change its arm."""
    rng = np.random.default_rng(seed)
    free = Domain(covariate_bound=1.0, outcome_bound=1.0)
    largest = 0.0
    for _ in range(15):
        n, ridge = int(rng.integers(4, 40)), float(rng.choice([0.1, 0.5, 2.0]))
        radius, trim = float(rng.choice([0.3, 1.0, 2.0])), float(rng.choice([0.1, 0.5, 1.0, 1.5]))
        program = EntropyBalancing(ridge=ridge, radius=radius, trim=trim)
        X = np.sign(rng.normal(size=(n, 1))) * rng.choice([1.0, 0.5], size=(n, 1))
        a = rng.integers(0, 2, n)
        other, arm = X.copy(), a.copy()
        other[0], arm[0] = -X[0], rng.integers(0, 2)
        y = np.zeros(n)
        w, v = (
            solve(program.instance(free.records(x, t, y)), tolerance=1e-7).value
            for x, t in ((X, a), (other, arm))
        )
        moved = float(np.sum(np.abs(w - v)[1:])) + w[0] + v[0]
        largest = max(largest, moved / program.stability(Universe(free, n, 2)).V)
    assert 0.3 < largest <= 1.0


def test_the_trimmed_bound_is_not_the_untrimmed_one_with_a_smaller_weight() -> None:
    # a movement of 57.3 is known here; a bound with the trimmed weight inside the KL identity says 11.2
    trim = 3 * math.exp(-2 * math.sqrt(2))
    assert (
        stability.entropy_balancing(1000, stability.EntropyConstants(1.0, 1.0, 0.5, radius=2.0, trim=trim)).V
        >= 57.3
    )
    # a trim below every weight makes them all equal
    low = stability.entropy_balancing(1000, stability.EntropyConstants(1.0, 1.0, 0.5, radius=0.1, trim=0.5))
    assert low.V == pytest.approx(2.0, rel=1e-9)
    without_ball = stability.entropy_balancing(50, stability.EntropyConstants(1.0, 1.0, 0.5, trim=2.0))
    assert without_ball.V == pytest.approx(100.0)


def test_what_no_theorem_covers_is_refused() -> None:
    uneven = EntropyBalancing(ridge=1.0, radius=1.0, base_measure=(1.0,) * 39 + (2.0,))
    with pytest.raises(CalibrationError, match="base_measure"):
        uneven.stability(Universe(DOMAIN, 40, 2))
    paper = {"ridge": 1.0, "radius": 1.0, "scaling": "paper", "arm_mass": "proportional"}
    with pytest.raises(CalibrationError, match="trim"):
        EntropyBalancing(**paper, trim=2.0).stability(Universe(DOMAIN, 40, 2))
    with pytest.raises(CalibrationError, match="trim"):
        EntropyBalancing(**paper, trim=2.0).stability(Universe(DOMAIN, 40, 2), BoundFamily.PAPER)
    even = EntropyBalancing(**paper).stability(Universe(DOMAIN, 40, 2), BoundFamily.PAPER)
    q = EntropyBalancing(**paper, base_measure=(1.0,) * 39 + (2.0,))
    printed = stability.paper_entropy_balancing(40, 1.0, 1.0, 5, base_measure_ratio=2.0)
    assert printed.W1 > stability.paper_entropy_balancing(40, 1.0, 1.0, 5).W1
    assert q.stability(Universe(DOMAIN, 40, 2), BoundFamily.PAPER).V >= even.V
    with pytest.raises(DeclarationError, match="one of them"):
        EntropyBalancing(trim=2.0, base_measure=(1.0, 2.0))
    with pytest.raises(DeclarationError, match="3 entries for 60"):
        EntropyBalancing(base_measure=(1.0, 2.0, 1.0)).instance(records(60))
    with pytest.raises(DeclarationError, match="trim"):
        EntropyBalancing(trim=0.0)


def test_a_trimmed_release() -> None:
    data = np.random.default_rng(0)
    X, a, y = data.normal(size=(200, 2)), data.integers(0, 2, 200), data.normal(size=200)
    free = Domain(covariate_bound=1.0, outcome_bound=1.0)
    program = EntropyBalancing(ridge=0.5, radius=0.5, trim=1.2)
    release = PrivateTwoStageERM(free, Budget(1.0), program, "arm_means").fit(X, a, y).release_
    assert release.private
    assert "trimmed" in release.guarantee.stability_theorem
    assert release.first_stage["settings"]["trim"] == 1.2
