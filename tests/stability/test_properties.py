"""Properties of every bound: above a search for the worst neighbors, below the paper's, monotone."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Domain, Neighboring, registry
from dp2erm_cvx.calibration import Objective, calibrate, calibrate_paper
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants
from dp2erm_cvx.stability import (
    EntropyConstants,
    KernelConstants,
    entropy_balancing,
    entropy_balancing_paper_scaling,
    kernel_balancing,
    known_coefficient,
    logistic_diameter,
    logistic_propensity,
    pooled_kernel_balancing,
    randomized_trial,
    separable,
)
from dp2erm_cvx.universe import Universe
from tests.stability.movement import ipw_weights
from tests.stability.schemes import SCHEMES
from tests.stability.search_pairs import largest_movement, on_margins

INF = math.inf
KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT


def searched(scheme, index, starts, steps):
    rng = np.random.default_rng([index, *scheme.encode()])
    n = int(rng.choice([6, 15, 60, 400]))
    fit, bound, floor = SCHEMES[scheme](rng, n)
    return largest_movement(fit, n, floor, rng, starts, steps)[0] / bound.V


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_search_exceeds_a_bound(scheme):
    ratios = [searched(scheme, index, 20, 50) for index in range(4)]
    assert max(ratios) <= 1
    assert max(ratios) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("index", range(25))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_long_search_exceeds_a_bound(scheme, index):
    ratio = searched(scheme, 100 + index, 60, 300)
    print(f"{scheme} {index}: {ratio:.4f}")
    assert ratio <= 1


def test_the_search_exceeds_a_bound_that_is_too_small():
    # all of V but the weight of the changed record, at a setting where the bound is nearly attained
    found, pair = largest_movement(
        on_margins(ipw_weights(1.0)), 60, 0, np.random.default_rng(0), starts=40, steps=120
    )
    bound = logistic_propensity(60, 1.0, 1.0)
    assert bound.V - bound.w_max < found <= bound.V
    assert np.linalg.norm(pair.before[1:]) <= 1 + 1e-12


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


@settings(max_examples=60)
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


def rises(bounds, rounding=2e-4):
    assert all(b.V <= a.V * (1 + rounding) for a, b in pairwise(bounds))


@settings(max_examples=15)
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
        rises([scheme(ridge * f, radius) for f in factor])
    for scheme in (
        lambda mu, r: logistic_propensity(n, 1.0, mu, r),
        lambda mu, r: entropy_balancing(n, EntropyConstants(1.0, 1.0, mu, r)),
        lambda mu, r: entropy_balancing_paper_scaling(n, mu, floor, r),
        lambda mu, r: known_coefficient(n, 1.0, r),
    ):
        rises([scheme(ridge, radius / f) for f in factor])
    rises([logistic_propensity(n, 1.0, ridge, radius, trim) for trim in (INF, 10.0, 3.0, 1.5)])
    rises([known_coefficient(n, 1.0, radius, trim) for trim in (INF, 10.0, 3.0, 1.5)])
    rises([randomized_trial(n, 0.05, trim) for trim in (INF, 10.0, 3.0, 1.5)])
    rises([kernel_balancing(n, KernelConstants(1.0, ridge * n * f), floor) for f in factor])
    rises([pooled_kernel_balancing(n, KernelConstants(1.0, ridge * n * f)) for f in factor])
    rises(
        [
            entropy_balancing(n, EntropyConstants(1.0, 1.0, ridge, arm_floor=k))
            for k in (None, max(1, floor // 2), floor)
        ]
    )


@settings(max_examples=30)
@given(n=st.integers(2, 10_000), norm=st.floats(0.01, 5), p=st.floats(0.01, 0.99))
def test_weights_of_their_own_record_grow_with_n_up_to_a_limit(n, norm, p):
    # 2 n / (1 + (n - 1) e^-H) rises to 2 e^H; relative to n, every one falls
    for scheme, limit in (
        (lambda m: known_coefficient(m, 1.0, norm), 2 * math.exp(norm)),
        (lambda m: randomized_trial(m, p), 2 * max(p, 1 - p) / min(p, 1 - p)),
    ):
        small, large = scheme(n).V, scheme(3 * n).V
        assert small * (1 - 1e-9) <= large <= limit * (1 + 1e-9)
        assert large / (3 * n) <= small / n * (1 + 1e-9)
