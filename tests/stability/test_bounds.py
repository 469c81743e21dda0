"""Bounds in closed form and as printed: their values, properties, counterexamples, and what is refused."""

import itertools
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Domain, registry
from dp2erm_cvx.calibration import Objective, calibrate, calibrate_paper
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants, Neighboring, StabilityBound
from dp2erm_cvx.stability import (
    EntropyConstants,
    KernelConstants,
    entropy_balancing,
    entropy_balancing_paper_scaling,
    fixed_weights,
    kernel_balancing,
    paper_entropy_balancing,
    paper_ipw_logistic,
    paper_kernel_balancing,
    paper_known_coefficient,
    paper_randomized_trial,
    pooled_kernel_balancing,
    separable,
    tilt_lemma,
    uniform_weights,
    universal_corollary,
    usable,
)
from tests.helpers import known_coefficient, logistic_diameter, logistic_propensity, randomized_trial
from tests.stability.movement import INF, norm_bound, printed_quantities


@pytest.mark.parametrize(
    ("n", "M", "rho", "R"), [(50, 2.0, 3.0, 0.4), (1000, 0.5, 0.015, 3.0), (9, 1.0, 1e3, 9.0)]
)
def test_estimated_propensity_as_printed(n, M, rho, R):
    d = min(R, M / 2 / rho)
    B = 4 * M**2 * math.exp(M * R) / rho
    B += 2 * M * d * math.exp(M * d) * (1 + (1 + math.exp(M * d)) / (2 * n))
    w_max = min(n, math.exp(M * R))
    bound = paper_ipw_logistic(n, M, rho, R)
    assert pytest.approx(math.sqrt(n) * B + 2 * w_max, rel=1e-9) == bound.W1
    assert pytest.approx(math.sqrt((B**2 + 2 * w_max**2) * (1 + n)), rel=1e-9) == bound.W2
    assert bound.V == bound.W1
    used = usable(n, paper_ipw_logistic(n, M, rho, R))
    assert pytest.approx(min(bound.W1, 2 * n + 2 * w_max), rel=1e-9) == used.W1
    assert pytest.approx(min(bound.W2, math.sqrt(2 * n * w_max * (1 + n))), rel=1e-9) == used.W2


@pytest.mark.parametrize(
    ("n", "rho", "R", "ratio"), [(400, 1.0, 0.5, 1.0), (30, 40.0, 2.0, 3.0), (500, 0.09, 0.2, 1.5)]
)
def test_entropy_balancing_as_printed(n, rho, R, ratio):
    d = min(R, (1 + math.sqrt(2)) / rho)
    B = 2 * ratio * math.exp(2 * R) * (math.sqrt(2) + ratio * math.exp(2 * R)) / (rho * math.sqrt(n))
    B += 2 * R * ratio**2 * math.exp(4 * R) / rho + 2 * math.sqrt(2) * ratio * d * math.exp(2 * d)
    bound = paper_entropy_balancing(n, rho, R, n // 4, ratio)
    assert pytest.approx(B, rel=1e-8) == norm_bound(bound, n)
    assert pytest.approx(min(n, ratio * math.exp(2 * R)), rel=1e-9) == bound.w_max
    assert usable(n, paper_entropy_balancing(n, rho, R, n // 4, ratio)).W1 <= bound.W1


@pytest.mark.parametrize(("n", "propensity"), [(2, 0.5), (10, 0.2), (400, 0.97)])
def test_randomized_trial_covers_every_assignment(n, propensity):
    low, high = min(propensity, 1 - propensity), max(propensity, 1 - propensity)
    bound = paper_randomized_trial(n, propensity)
    B = math.sqrt(2) * (high - low) / low * n / (n - 1)
    assert pytest.approx(2 * B + 2 * min(n, high / low), rel=1e-9) == bound.W1
    used = usable(n, paper_randomized_trial(n, propensity))
    for rare in range(n):
        f = np.where(np.arange(n) < rare, 1 / low, 1 / high)
        w = n * f / f.sum()
        f[-1] = 1 / low
        v = n * f / f.sum()
        first, second = printed_quantities(w, v)
        assert np.linalg.norm(w - v) <= B + 1e-12
        assert first <= used.W1
        assert second <= used.W2


def test_known_coefficient_as_printed_and_covered():
    n, M, R = 30, 2.0, 0.5
    bound = paper_known_coefficient(n, M, R)
    assert pytest.approx(2 * math.sqrt(2) * math.e + 2 * math.e, rel=1e-9) == bound.W1
    assert pytest.approx(math.sqrt(4 * math.e**2 * (1 + n)), rel=1e-9) == bound.W2
    f = 1 + np.exp(-np.append(np.full(n - 1, M * R), -M * R))
    w = n * f / f.sum()
    f[-1] = f[0]
    first, second = printed_quantities(w, n * f / f.sum())
    assert first <= bound.W1
    assert second <= bound.W2


def test_no_radius_leaves_the_universal_corollary():
    for bound in (
        usable(50, paper_ipw_logistic(50, 1.0, 0.1, INF)),
        usable(50, paper_entropy_balancing(50, 0.1, INF, 10)),
        usable(50, paper_kernel_balancing(50, 1.0, 0.1, INF)),
        usable(50, paper_known_coefficient(50, 1e3, 1e3)),
    ):
        assert pytest.approx(200) == bound.W1
        assert "universal" in bound.theorem


def coupled_variation(w, v, j=-1):
    return np.abs(w - v).sum() + 2 * min(w[j], v[j])


@pytest.mark.parametrize(
    ("n", "propensity", "trim"),
    [(2, 0.5, math.inf), (10, 0.2, math.inf), (400, 0.97, math.inf), (50, 0.05, 4.0)],
)
def test_randomized_trial_is_attained(n, propensity, trim):
    def weights(a):
        f = np.minimum(1 / np.where(a == 1, propensity, 1 - propensity), trim)
        return n * f / f.sum()

    rare = int(propensity < 0.5)
    others = np.full(n - 1, 1 - rare)
    moved = coupled_variation(weights(np.append(others, rare)), weights(np.append(others, 1 - rare)))
    bound = randomized_trial(n, propensity, trim)
    assert moved <= bound.V
    assert pytest.approx(moved, rel=1e-9) == bound.V
    assert pytest.approx(2 * bound.w_max, rel=1e-12) == bound.V


@pytest.mark.parametrize("trim", [math.inf, 5.0, 1.2, 1.001])
@pytest.mark.parametrize(("n", "bound", "norm"), [(3, 1.0, 0.5), (400, 2.0, 1.0), (1000, 0.5, 0.0)])
def test_known_coefficient_is_attained(n, bound, norm, trim):
    def weights(s):
        f = np.minimum(1 + np.exp(-s), trim)
        return n * f / f.sum()

    others = np.full(n - 1, bound * norm)
    moved = coupled_variation(
        weights(np.append(others, -bound * norm)), weights(np.append(others, bound * norm))
    )
    stated = known_coefficient(n, bound, norm, trim)
    assert moved <= stated.V
    assert pytest.approx(moved, rel=1e-9) == stated.V


def test_tilt_lemma_formula_and_cap():
    assert tilt_lemma(100, 0.0, 3.0) == pytest.approx(6.0)
    assert tilt_lemma(100, 0.8, 3.0) == pytest.approx(6 + 2 * 97 * math.tanh(0.2))
    assert tilt_lemma(100, math.inf, 3.0) == pytest.approx(200.0)
    assert tilt_lemma(2, math.inf, 50.0) == 4.0


def test_tilt_lemma_is_nearly_attained_and_never_exceeded():
    rng = np.random.default_rng(3)
    sharpest = 0.0
    for trial in range(400):
        n = int(rng.integers(2, 60))
        spread = rng.uniform(0, 3)
        h = rng.normal(size=n)
        step = rng.uniform(0, spread, n)
        if trial % 2:
            # half of the mass of the common records moves up, half down; a light record j
            h = np.zeros(n)
            h[-1] = -20.0
            step = np.where(np.arange(n) % 2 == 0, spread, 0.0)
            h[:-1] -= step[:-1] / 2
        moved = h + step
        moved[-1] = h[-1] if trial % 2 else rng.normal()
        w, v = (n * np.exp(u - np.logaddexp.reduce(u)) for u in (h, moved))
        common = step[:-1]
        limit = tilt_lemma(n, float(np.ptp(common)), max(w[-1], v[-1]))
        assert coupled_variation(w, v) <= limit * (1 + 1e-12)
        sharpest = max(sharpest, coupled_variation(w, v) / limit)
    assert sharpest > 0.99


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


KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT
powers = st.floats(-2, 2).map(lambda x: 10**x)
PRINTED = ("uniform", "ipw_randomized", "ipw_known", "ipw_logistic", "entropy_balancing", "mmd")


def printed_settings(name, ridge, radius, share):
    return {
        "uniform": {},
        "ipw_randomized": {"propensity": share},
        "ipw_known": {"coefficient": (radius, -radius)},
        "ipw_logistic": {"ridge": ridge, "radius": radius},
        "entropy_balancing": {
            "ridge": ridge,
            "radius": radius,
            "scaling": "paper",
            "arm_mass": "proportional",
        },
        "mmd": {"ridge": ridge, "alpha": share},
    }[name]


@settings(max_examples=40)
@given(
    name=st.sampled_from(PRINTED),
    n=st.integers(8, 5000),
    ridge=powers,
    radius=st.floats(0.05, 3),
    share=st.floats(0.02, 0.98),
    floor=st.floats(0.3, 0.5),
    epsilon=st.floats(0.05, 5),
)
def test_sharp_is_at_most_the_papers_wherever_both_are_valid(name, n, ridge, radius, share, floor, epsilon):
    domain = Domain(1.0, 1.0, arm_floor=max(2, int(floor * n)), relation=KEEP)
    program = registry.build(registry.first_stages(), name, **printed_settings(name, ridge, radius, share))
    sharp = program.stability(Universe(domain, n, 2))
    printed = program.stability(Universe(domain, n, 2), BoundFamily.PAPER)
    assert KEEP in sharp.relations & printed.relations
    assert sharp.V <= printed.W1 * (1 + 1e-9)
    assert sharp.V <= math.sqrt(2) * printed.W2 * (1 + 1e-9)
    # so is the noise, at the paper's split and with the centered gradient
    loss, budget = LossConstants(3, 2.0, 2.0, 0.0, 1.0, 1.0, gradient_bound=3.0), Budget(epsilon)
    ours = calibrate(Objective(sharp, loss, n, KEEP), budget, split=0.5)
    theirs = calibrate_paper(Objective(printed, loss, n, KEEP), budget)
    assert ours.scale <= theirs.scale
    assert ours.gamma <= theirs.gamma


def falls(bounds, rounding=2e-4):
    return all(b.V <= a.V * (1 + rounding) for a, b in pairwise(bounds))


@settings(max_examples=4)
@given(n=st.integers(4, 10_000), ridge=powers, radius=st.floats(0.05, 3), share=st.floats(0.1, 0.5))
def test_more_ridge_less_radius_and_a_lower_trim_never_cost_stability(n, ridge, radius, share):
    floor = max(2, int(share * n))
    factor = np.array([1.0, 1.5, 10.0])
    for scheme in (
        lambda mu, r: logistic_propensity(n, 1.0, mu, r),
        lambda mu, r: logistic_propensity(n, 1.0, mu, r, trim=3.0),
        lambda mu, r: entropy_balancing(n, EntropyConstants(1.0, 1.0, mu, r)),
        lambda mu, r: entropy_balancing(n, EntropyConstants(1.0, 1.0, mu, r, "proportional", floor)),
        lambda mu, r: entropy_balancing_paper_scaling(n, mu, floor, r),
        lambda mu, r: separable(n, mu, logistic_diameter(r), logistic_diameter(r), r, r),
    ):
        assert falls([scheme(ridge * f, radius) for f in factor])
    for scheme in (
        lambda mu, r: logistic_propensity(n, 1.0, mu, r),
        lambda mu, r: entropy_balancing(n, EntropyConstants(1.0, 1.0, mu, r)),
        lambda mu, r: entropy_balancing_paper_scaling(n, mu, floor, r),
        lambda mu, r: known_coefficient(n, 1.0, r),
    ):
        assert falls([scheme(ridge, radius / f) for f in factor])
    assert falls([logistic_propensity(n, 1.0, ridge, radius, trim) for trim in (INF, 10.0, 3.0, 1.5)])
    assert falls([known_coefficient(n, 1.0, radius, trim) for trim in (INF, 10.0, 3.0, 1.5)])
    assert falls([randomized_trial(n, 0.05, trim) for trim in (INF, 10.0, 3.0, 1.5)])
    assert falls([kernel_balancing(n, KernelConstants(1.0, ridge * n * f), floor) for f in factor])
    assert falls([pooled_kernel_balancing(n, KernelConstants(1.0, ridge * n * f)) for f in factor])
    assert falls(
        [
            entropy_balancing(n, EntropyConstants(1.0, 1.0, ridge, arm_floor=k))
            for k in (None, max(1, floor // 2), floor)
        ]
    )


C, D, E, K = CalibrationError, DeclarationError, EntropyConstants, KernelConstants
REFUSED = [
    (lambda: uniform_weights(1), D, "n = 1"),
    (lambda: uniform_weights(True), D, "n = True"),
    (lambda: randomized_trial(10, 0.0), D, "propensity"),
    (lambda: randomized_trial(10, 1.0), D, "propensity"),
    (lambda: randomized_trial(10, 0.5, trim=1.0), D, "trim"),
    (lambda: known_coefficient(10, 1.0, math.inf), D, "coefficient"),
    (lambda: logistic_propensity(10, 1.0, 0.0), C, "ridge = 0"),
    (lambda: logistic_propensity(10, 1.0, -1.0), D, "ridge"),
    (lambda: logistic_propensity(10, 1.0, 1.0, radius=0.0), D, "radius"),
    (lambda: logistic_propensity(10, 1.0, 1.0, trim=math.nan), D, "trim"),
    (lambda: logistic_propensity(10, math.inf, 1.0), D, "row_norm"),
    (lambda: entropy_balancing(10, E(1.0, 1.0, 0.0)), C, "ridge = 0"),
    (lambda: entropy_balancing(10, E(0.0, 1.0, 1.0)), D, "balance_bound"),
    (lambda: entropy_balancing(10, E(1.0, -1.0, 1.0)), D, "constant"),
    (lambda: entropy_balancing(10, E(1.0, 1.0, 1.0, arm_mass="half")), D, "arm_mass"),
    (lambda: entropy_balancing(10, E(1.0, 1.0, 1.0, arm_floor=0.2)), D, "arm_floor"),
    (lambda: entropy_balancing(10, E(1.0, 1.0, 1.0, arm_floor=6)), D, "arm_floor"),
    (lambda: tilt_lemma(10, -1.0, 2.0), D, "log_change_range"),
    (lambda: tilt_lemma(10, 1.0, 0.0), D, "w_max"),
    (lambda: entropy_balancing_paper_scaling(10, 1.0, None), C, "arm_floor"),
    (lambda: entropy_balancing_paper_scaling(10, 0.0, 2), C, "ridge = 0"),
    (lambda: entropy_balancing_paper_scaling(10, 1.0, 6), D, "arm_floor"),
    (lambda: entropy_balancing_paper_scaling(10, 1.0, 2, radius=0.0), D, "radius"),
    (lambda: kernel_balancing(200, K(1.0, 500.0), None), C, "arm_floor"),
    (lambda: kernel_balancing(200, K(1.0, 500.0), 20, weight_cap=5.0), C, "weight_cap"),
    (lambda: kernel_balancing(200, K(1.0, 0.0), 20), C, "ridge = 0"),
    (lambda: pooled_kernel_balancing(200, K(1.0, 0.0)), C, "ridge = 0"),
    (lambda: kernel_balancing(3, K(1.0, 1.0), 2), D, "n = 3"),
    (lambda: kernel_balancing(200, K(1.0, 500.0), 1), D, "arm_floor"),
    (lambda: kernel_balancing(200, K(1.0, 500.0), 101), D, "arm_floor"),
    (lambda: kernel_balancing(200, K(0.0, 500.0), 20), D, "kernel_bound"),
    (lambda: kernel_balancing(200, K(1.0, 500.0, alpha=1.5), 20), D, "alpha"),
    (lambda: pooled_kernel_balancing(200, K(1.0, 500.0, alpha=-0.1)), D, "alpha"),
    (lambda: kernel_balancing(200, K(1.0, 500.0), 20, relation="none"), D, "relation"),
    (lambda: kernel_balancing(200, K(1.0, 500.0), 20, weight_cap=math.nan), D, "weight_cap"),
    (lambda: paper_kernel_balancing(9, 1.0, 1.0, 2.0, Neighboring.REPLACE_ONE), C, "treatment"),
    (lambda: paper_kernel_balancing(9, 1.0, 0.0, 2.0), C, "ridge = 0"),
    (lambda: paper_kernel_balancing(9, 1.0, 1.0, 0.9), D, "weight_cap"),
    (lambda: paper_kernel_balancing(9, 1.0, 1.0, 2.0, "none"), D, "relation"),
    (lambda: paper_entropy_balancing(9, 1.0, 1.0, None), C, "arm_floor"),
    (lambda: paper_entropy_balancing(9, 0.0, 1.0, 2), C, "ridge = 0"),
    (lambda: paper_entropy_balancing(9, 1.0, 1.0, 5), D, "arm_floor"),
    (lambda: paper_entropy_balancing(9, 1.0, 1.0, 2, 0.5), D, "base_measure_ratio"),
    (lambda: paper_ipw_logistic(9, 1.0, 0.0, 1.0), C, "ridge = 0"),
    (lambda: paper_ipw_logistic(9, 1.0, 1.0, 0.0), D, "radius"),
    (lambda: paper_randomized_trial(9, 1.0), D, "propensity"),
    (lambda: paper_known_coefficient(9, 1.0, -1.0), D, "coefficient_norm"),
    (lambda: separable(1, 1.0, 1.0, 1.0, 1.0), D, "n = 1"),
    (lambda: separable(10, 0.0, 1.0, 1.0, 1.0), C, "ridge = 0"),
    (lambda: separable(10, 1.0, -1.0, 1.0, 1.0), D, "gradient_diameter"),
    (lambda: separable(10, 1.0, 1.0, INF, 1.0), D, "log_weight_diameter"),
    (lambda: separable(10, 1.0, 1.0, 1.0, -1.0), D, "log_weight_range"),
    (lambda: separable(10, 1.0, 1.0, 1.0, 1.0, 0.0), D, "radius"),
    (lambda: fixed_weights(1, 1.0), D, "n = 1"),
    (lambda: fixed_weights(4, 0.5), D, "w_max"),
    (lambda: universal_corollary(4, 0.0), D, "w_max"),
]


@pytest.mark.parametrize(("call", "error", "names"), REFUSED)
def test_what_is_refused_is_named_in_one_line(call, error, names):
    with pytest.raises(error, match=names) as caught:
        call()
    assert "\n" not in str(caught.value)


def extreme_bounds(n, ridge, radius, bound):
    """Every bound at numbers near the ends of what doubles hold."""
    yield logistic_propensity(n, bound, ridge, radius)
    yield logistic_propensity(n, bound, ridge, radius, trim=5.0)
    yield entropy_balancing(n, EntropyConstants(bound, bound, ridge, radius))
    yield entropy_balancing(n, EntropyConstants(bound, bound / 1e3, ridge, radius, "proportional"))
    for refined in (True, False):
        yield entropy_balancing_paper_scaling(n, ridge, n // 4, radius, refined=refined)
    for alpha in (0.0, 1e-300, 0.5, 1.0):
        yield kernel_balancing(n, KernelConstants(bound, ridge, alpha=alpha), 2)
        yield pooled_kernel_balancing(n, KernelConstants(bound, ridge, alpha=alpha, signed=True))


@pytest.mark.parametrize("n", [4, 10**7])
@pytest.mark.parametrize("ridge", [1e-300, 1e-12, 1.0, 1e300])
def test_extreme_numbers_give_finite_bounds(n, ridge):
    with np.errstate(all="raise", under="ignore"):
        for radius, bound in itertools.product((1e-6, 1e3, math.inf), (1e-150, 1.0, 1e300)):
            for stated in extreme_bounds(n, ridge, radius, bound):
                assert isinstance(stated, StabilityBound)
                assert 2.0 <= stated.V <= 2 * n
                assert 1.0 <= stated.w_max <= n * (1 + 1e-9)
    for radius, bound in itertools.product((1e-300, 1.0, 1e300, math.inf), (1e-300, 1.0, 1e300)):
        for printed in (
            usable(n, paper_ipw_logistic(n, bound, ridge, radius)),
            usable(n, paper_entropy_balancing(n, ridge, radius, 1, 1.0 + min(bound, 1e10))),
            usable(n, paper_kernel_balancing(n, bound, ridge, max(1.0, radius))),
        ):
            assert 2.0 <= printed.W1 <= 4 * n * (1 + 1e-9)
            assert math.sqrt(2.0) <= printed.W2 <= 2 * n * math.sqrt(1 + n)
