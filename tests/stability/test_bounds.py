"""Bounds in closed form and as printed: their values, properties, counterexamples, and what is
refused.
"""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Domain
from dp2erm_cvx.calibration import Objective, calibrate
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.paper import (
    calibrate_paper,
    entropy_balancing_paper_scaling,
    fixed_weights,
    paper_entropy_balancing,
    paper_ipw_logistic,
    paper_kernel_balancing,
    paper_known_coefficient,
    paper_randomized_trial,
    universal_corollary,
    usable,
    usable_bound,
)
from dp2erm_cvx.privacy import Budget, Neighboring, StabilityBound
from dp2erm_cvx.program import registry
from dp2erm_cvx.stability import general_stability_theorem, separable, tilt_lemma, uniform_weights
from tests.helpers import (
    known_coefficient,
    logistic_diameter,
    logistic_propensity,
    randomized_trial,
)
from tests.stability.movement import INF, printed_quantities


def printed_forms():
    """Bounds, B as the paper prints it, the largest weight, and what B is multiplied by."""
    root = math.sqrt(2)
    for n, M, rho, R in ((50, 2.0, 3.0, 0.4), (1000, 0.5, 0.015, 3.0), (9, 1.0, 1e3, 9.0)):
        d = min(R, M / 2 / rho)
        B = 4 * M**2 * math.exp(M * R) / rho
        B += 2 * M * d * math.exp(M * d) * (1 + (1 + math.exp(M * d)) / (2 * n))
        yield n, paper_ipw_logistic(n, M, rho, R), B, min(n, math.exp(M * R)), math.sqrt(n)
    for n, rho, R, ratio in ((400, 1.0, 0.5, 1.0), (30, 40.0, 2.0, 3.0), (500, 0.09, 0.2, 1.5)):
        d, w_max = min(R, (1 + root) / rho), min(n, ratio * math.exp(2 * R))
        B = 2 * ratio * math.exp(2 * R) * (root + ratio * math.exp(2 * R)) / (rho * math.sqrt(n))
        B += 2 * R * ratio**2 * math.exp(4 * R) / rho + 2 * root * ratio * d * math.exp(2 * d)
        yield n, paper_entropy_balancing(n, rho, R, n // 4, ratio), B, w_max, math.sqrt(n)
    for n, propensity in ((2, 0.5), (10, 0.2), (400, 0.97)):
        low, high = min(propensity, 1 - propensity), max(propensity, 1 - propensity)
        B = root * (high - low) / low * n / (n - 1)
        yield n, paper_randomized_trial(n, propensity), B, min(n, high / low), 2.0
    yield 30, paper_known_coefficient(30, 2.0, 0.5), root * math.e, math.e, 2.0


@pytest.mark.parametrize(("n", "bound", "B", "w_max", "factor"), printed_forms())
def test_bounds_as_printed(n, bound, B, w_max, factor):
    assert pytest.approx(factor * B + 2 * w_max, rel=1e-8) == bound.W1
    assert pytest.approx(math.sqrt((B**2 + 2 * w_max**2) * (1 + n)), rel=1e-8) == bound.W2
    assert bound.V == bound.W1
    assert pytest.approx(w_max, rel=1e-9) == bound.w_max
    used = usable(n, bound)
    assert pytest.approx(min(bound.W1, 2 * n + 2 * w_max), rel=1e-9) == used.W1
    assert pytest.approx(min(bound.W2, math.sqrt(2 * n * w_max * (1 + n))), rel=1e-9) == used.W2


def light_and_heavy(n, rare, light, heavy):
    """Weights of neighbors: ``rare`` records are heavy, and the last one turns from light to
    heavy.
    """
    f = np.where(np.arange(n) < rare, heavy, light)
    return [n * one / one.sum() for one in (f, np.append(f[:-1], heavy))]


@pytest.mark.parametrize(("n", "propensity"), [(2, 0.5), (10, 0.2), (400, 0.97)])
def test_a_printed_trial_covers_every_assignment(n, propensity):
    low = min(propensity, 1 - propensity)
    bound = paper_randomized_trial(n, propensity)
    used, B = usable(n, bound), bound.W1 / 2 - bound.w_max
    for rare in range(n):
        w, v = light_and_heavy(n, rare, 1 / (1 - low), 1 / low)
        first, second = printed_quantities(w, v)
        assert np.linalg.norm(w - v) <= B + 1e-12
        assert first <= used.W1
        assert second <= used.W2


def test_without_a_radius_printed_bounds_are_that_of_the_universal_corollary():
    for printed in (
        paper_ipw_logistic(50, 1.0, 0.1, INF),
        paper_entropy_balancing(50, 0.1, INF, 10),
        paper_kernel_balancing(50, 1.0, 0.1, INF),
        paper_known_coefficient(50, 1e3, 1e3),
    ):
        assert pytest.approx(200) == usable(50, printed).W1
        assert "universal" in usable(50, printed).theorem


def test_printed_corollaries_are_attained():
    w, half = np.array([0.5, 0.5, 2.0]), np.where(np.arange(400) < 200, 2.0, 0.0)
    fixed = fixed_weights(3, 2.0)
    assert fixed.V == fixed.W1
    assert fixed.relations == frozenset(Neighboring)
    heavy = light_and_heavy(30, 0, 1 + math.exp(-1.0), 1 + math.e)
    for bound, pair, least in (
        (fixed, (w, w), (1 - 1e-9, 1 - 1e-9)),
        (universal_corollary(400, 2.0), (half, 2.0 - half), (0.99, 0.999999)),
        (paper_known_coefficient(30, 2.0, 0.5), heavy, (0.1, 0.1)),
    ):
        reached = np.array(printed_quantities(*pair)) / (bound.W1, bound.W2)
        assert np.all(reached <= 1.0)
        assert np.all(reached >= least)


def coupled_variation(w, v, j=-1):
    return np.abs(w - v).sum() + 2 * min(w[j], v[j])


def trial(n, p, trim):
    return (
        randomized_trial(n, p, trim),
        n,
        min(1 / max(p, 1 - p), trim),
        min(1 / min(p, 1 - p), trim),
    )


def coefficient(n, bound, norm, trim):
    light, heavy = (min(1 + math.exp(sign * bound * norm), trim) for sign in (-1, 1))
    return known_coefficient(n, bound, norm, trim), n, light, heavy


@pytest.mark.parametrize(
    ("bound", "n", "light", "heavy"),
    [
        *(
            trial(*case)
            for case in ((2, 0.5, INF), (10, 0.2, INF), (400, 0.97, INF), (50, 0.05, 4.0))
        ),
        *(
            coefficient(*case, trim)
            for case in ((3, 1.0, 0.5), (400, 2.0, 1.0), (1000, 0.5, 0.0))
            for trim in (INF, 5.0, 1.2, 1.001)
        ),
    ],
)
def test_weights_that_depend_on_no_other_record_attain_their_bound(bound, n, light, heavy):
    moved = coupled_variation(*light_and_heavy(n, 0, light, heavy))
    assert moved <= bound.V
    assert pytest.approx(moved, rel=1e-9) == bound.V
    assert pytest.approx(2 * bound.w_max, rel=1e-12) == bound.V


@pytest.mark.parametrize("lipschitz", [1.0, 0.5])
def test_the_general_theorem_is_attained_in_norm(lipschitz):
    """Squares and a linear term: weights ``1 - L (c - mean c) / rho``, where nothing is at an
    end.
    """
    rng = np.random.default_rng(3)
    n, rho = 12, 4.0
    c = rng.normal(size=n)
    c -= np.mean(c)
    other = c.copy()
    other[:2] += 0.3, -0.3
    moved = np.linalg.norm(c - other)
    bound = general_stability_theorem(
        n, gradient=moved, strong_convexity=rho, lipschitz=lipschitz, w_max=2.0
    )
    stated = lipschitz * moved / rho
    w, v = 1 - lipschitz * c / rho, 1 - lipschitz * other / rho
    assert np.linalg.norm(w - v) == pytest.approx(stated, rel=1e-9)
    V = np.sum(np.abs(w - v)) + 2 * min(w[0], v[0])
    assert V <= bound.V
    assert bound.V == pytest.approx(np.sqrt(n - 1) * stated + 4.0)
    assert "general stability theorem" in bound.theorem


@pytest.mark.parametrize(
    "wrong",
    [{"gradient": -1.0}, {"strong_convexity": 0.0}, {"lipschitz": -1.0}, {"w_max": 0.5}, {"n": 1}],
)
def test_constants_of_the_general_theorem_that_are_none(wrong):
    with pytest.raises(DeclarationError, match=next(iter(wrong))):
        general_stability_theorem(**({"n": 5, "gradient": 1.0, "strong_convexity": 1.0} | wrong))


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


KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT
powers = st.floats(-2, 2).map(lambda x: 10**x)
#: Settings of programs with printed bounds, at a ridge, a radius and a share.
PRINTED = {
    "uniform": lambda ridge, radius, share: {},
    "ipw_randomized": lambda ridge, radius, share: {"propensity": share},
    "ipw_known": lambda ridge, radius, share: {"coefficient": (radius, -radius)},
    "ipw_logistic": lambda ridge, radius, share: {"ridge": ridge, "radius": radius},
    "paper_entropy_balancing": lambda ridge, radius, share: {"ridge": ridge, "radius": radius},
    "mmd": lambda ridge, radius, share: {"ridge": ridge, "alpha": share},
}


@settings(max_examples=15)
@given(
    name=st.sampled_from([*PRINTED]),
    n=st.integers(8, 5000),
    ridge=powers,
    radius=st.floats(0.05, 3),
    share=st.floats(0.02, 0.98),
    floor=st.floats(0.3, 0.5),
    epsilon=st.floats(0.05, 5),
)
def test_sharp_is_at_most_the_papers_wherever_both_are_valid(
    name, n, ridge, radius, share, floor, epsilon
):
    domain = Domain(1.0, 1.0, arm_floor=max(2, int(floor * n)), relation=KEEP)
    program = registry.build(registry.first_stages(), name, **PRINTED[name](ridge, radius, share))
    sharp = program.stability(Universe(domain, n, 2))
    printed = usable_bound(program, Universe(domain, n, 2))
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
    return all(b.V <= a.V * (1 + rounding) for a, b in itertools.pairwise(bounds))


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("n", "ridge", "radius", "floor"), [(9, 0.5, 0.3, 2), (5000, 0.02, 2.0, 800)]
)
def test_more_ridge_less_radius_and_a_lower_trim_never_cost_stability(n, ridge, radius, floor):
    schemes = (
        lambda mu, r, trim=INF: logistic_propensity(n, 1.0, mu, r, trim),
        lambda mu, r: entropy_balancing_paper_scaling(n, mu, floor, r),
        lambda mu, r: logistic_propensity(n, 1.0, mu, r, trim=3.0),
        lambda mu, r: separable(n, mu, logistic_diameter(r), logistic_diameter(r), r, r),
    )
    for scheme in schemes:
        assert falls([scheme(ridge * f, radius) for f in (1.0, 1.5, 10.0)])
    for scheme in (*schemes[:2], lambda mu, r, trim=INF: known_coefficient(n, 1.0, r, trim)):
        assert falls([scheme(ridge, radius / f) for f in (1.0, 1.5, 10.0)])
    trimmed = schemes[0], scheme, lambda mu, r, trim: randomized_trial(n, 0.05, trim)
    for scheme in trimmed:
        assert falls([scheme(ridge, radius, trim) for trim in (INF, 10.0, 3.0, 1.5)])


C, D = CalibrationError, DeclarationError
GOOD = {"n": 10, "ridge": 1.0, "radius": 1.0}
FLOOR = GOOD | {"arm_floor": 2}
#: A bound, what it takes, and what its arguments must not be.
DECLARED = [
    (uniform_weights, {}, {"n": (1, True)}),
    (fixed_weights, {"n": 4, "w_max": 1.0}, {"n": (1,), "w_max": (0.5,)}),
    (universal_corollary, {"n": 4}, {"w_max": (0.0,)}),
    (tilt_lemma, {"n": 9, "log_change_range": 1, "w_max": 2}, {"log_change_range": (-1,),
    "w_max": (0,)}),
    (randomized_trial, {"n": 10, "propensity": 0.5}, {"propensity": (0.0, 1.0), "trim": (1.0,)}),
    (logistic_propensity, GOOD | {"bound": 1.0}, {"ridge": (-1.0,), "radius": (0,),
    "trim": (math.nan,)}),
    (partial(separable, gradient_diameter=1.0, log_weight_diameter=1.0, log_weight_range=1.0), GOOD,
     {"n": (1,), "gradient_diameter": (-1.0,), "log_weight_diameter": (INF,),
     "log_weight_range": (-1.0,),
      "radius": (0.0,)}),
    (entropy_balancing_paper_scaling, FLOOR, {"arm_floor": (6,), "radius": (0.0,)}),
    (partial(paper_kernel_balancing, kernel_bound=1.0, weight_cap=2.0), {"n": 9, "ridge": 1.0},
     {"weight_cap": (0.9,), "relation": ("none",)}),
    (paper_entropy_balancing, FLOOR, {"arm_floor": (6,), "base_measure_ratio": (0.5,)}),
    (partial(paper_ipw_logistic, covariate_bound=1.0), GOOD, {"radius": (0.0,)}),
    (paper_randomized_trial, {"n": 9}, {"propensity": (1.0,)}),
    (paper_known_coefficient, {"n": 9, "covariate_bound": 1.0}, {"coefficient_norm": (-1.0,)}),
]  # fmt: skip
#: What is declared right and has no finite bound.
UNBOUNDED = [
    *(
        (partial(bound, **good | one), C, name)
        for bound, good, _ in DECLARED
        for one, name in (({"ridge": 0.0}, "ridge = 0"), ({"arm_floor": None}, "arm_floor"))
        if {*one} <= {*good}
    ),
    (lambda: paper_kernel_balancing(9, 1.0, 1.0, 2.0, Neighboring.REPLACE_ONE), C, "treatment"),
    (lambda: known_coefficient(10, 1.0, INF), D, "coefficient"),
    (lambda: logistic_propensity(10, INF, 1.0), D, "row_norm"),
]
WRONG = [
    (partial(bound, **good | {name: value}), D, name)
    for bound, good, wrong in DECLARED
    for name, values in wrong.items()
    for value in values
]


@pytest.mark.parametrize(("call", "error", "names"), [*UNBOUNDED, *WRONG])
def test_what_is_refused_is_named_in_one_line(call, error, names):
    with pytest.raises(error, match=names) as caught:
        call()
    assert "\n" not in str(caught.value)


def extreme_bounds(n, ridge, radius, bound):
    """Every bound at numbers near the ends of what doubles hold."""
    yield logistic_propensity(n, bound, ridge, radius)
    yield logistic_propensity(n, bound, ridge, radius, trim=5.0)
    for refined in (True, False):
        yield entropy_balancing_paper_scaling(n, ridge, n // 4, radius, refined=refined)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    ("n", "ridge"), [(4, 1e-300), (10**7, 1e-12), (10**7, 1.0), (10**7, 1e300)]
)
def test_extreme_numbers_give_finite_bounds(n, ridge):
    with np.errstate(all="raise", under="ignore"):
        for radius, bound in itertools.product((1e-6, 1e3, math.inf), (1e-150, 1.0, 1e300)):
            for stated in extreme_bounds(n, ridge, radius, bound):
                assert isinstance(stated, StabilityBound)
                assert 2.0 <= stated.V <= 2 * n
                # without a ridge to speak of nothing holds the weights
                assert stated.V > 1.99 * n or ridge > 1e-200 or radius < math.inf or bound < 1.0
                assert 1.0 <= stated.w_max <= n * (1 + 1e-9)
    for radius, bound in itertools.product((1e-300, 1.0, 1e300, math.inf), (1e-300, 1.0, 1e300)):
        for printed in (
            usable(n, paper_ipw_logistic(n, bound, ridge, radius)),
            usable(n, paper_entropy_balancing(n, ridge, radius, 1, 1.0 + min(bound, 1e10))),
            usable(n, paper_kernel_balancing(n, bound, ridge, max(1.0, radius))),
        ):
            assert 2.0 <= printed.W1 <= 4 * n * (1 + 1e-9)
            assert math.sqrt(2.0) <= printed.W2 <= 2 * n * math.sqrt(1 + n)
