"""First stages certify within a public error on every dataset; where that is not sure, V is at its cap."""

import math

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, registry
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.model.composite import Sizes
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing, EntropyBalancingHard
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.kernel_mean_matching import KernelMeanMatching
from dp2erm_cvx.problems.mmd import PooledMMD
from dp2erm_cvx.problems.overlap import overlap as Overlap
from dp2erm_cvx.program import BalanceFunctions, Moments, kernel_stage
from dp2erm_cvx.program.kernels import Linear, PublicSample
from dp2erm_cvx.solve import FirstCertified, private_solver, solve
from tests.solve.test_certificate_exact import first_stage

SOLVER = private_solver("newton")
MORE = ["overlap", "inverse_probability_tilting", "energy_balancing", "stable_balancing"]
MORE.append("kernel_mean_matching")


def hostile(rng, n, p):
    """Separated, duplicated, one-armed, collinear and plain records in the unit ball."""
    X = rng.uniform(-1, 1, (n, p)) * rng.choice([1.0, 1.0, 1e-3, 1e-9])
    kind = rng.integers(6)
    if kind == 0:
        X[:] = X[0]
    elif kind == 1:
        X = np.outer(rng.choice([-1.0, 1.0], n), X[0])
    elif kind == 2:
        X[: n // 2] = 0.0
    a = rng.integers(0, 2, n)
    if kind == 4:
        a = np.full(n, int(rng.integers(2)))
    separated, alone = (X[:, 0] > 0).astype(int), np.eye(n, dtype=int)[0]
    return X, {1: separated, 3: separated, 5: alone}.get(int(kind), a)


def settings(rng, domain, n):
    ridge = 10.0 ** rng.uniform(-7, 1)
    radius = float(rng.choice([0.1, 1.0, 4.0, math.inf]))
    trim = float(rng.choice([1.5, 5.0, math.inf]))
    kind = rng.integers(5)
    if kind == 0:
        return ipw_logistic(ridge=ridge, radius=radius, trim=trim)
    if kind == 1:
        mass = str(rng.choice(["equal", "proportional"]))
        balance = Moments(int(rng.integers(1, 4)))
        return EntropyBalancing(arm_mass=mass, balance=balance, ridge=ridge, radius=radius, trim=trim)
    if kind == 2:
        return EntropyBalancing(scaling="paper", ridge=ridge, radius=radius)
    if kind == 3:
        spread = float(rng.choice([1.0, 30.0, 290.0]))
        base = tuple(10.0 ** rng.uniform(-spread, 0, n))
        return EntropyBalancing(scaling="paper", ridge=ridge, radius=radius, base_measure=base)
    kernels = PooledMMD(ridge=max(ridge, 1e-5)), PooledMMD(ridge=max(ridge, 1e-5), kernel=Linear())
    return kernels[int(rng.integers(2))]


def worst_ratio(cases, seed, largest_n, name=None):
    """Largest certified error over the public reach, where that is at most 1e-6; and how many there were."""
    rng = np.random.default_rng(seed)
    ratios = []
    while len(ratios) < cases:
        n, p = int(rng.integers(2, largest_n)), int(rng.integers(1, 8))
        domain = Domain(float(rng.choice([0.1, 1.0, 30.0])), 1.0, arm_floor=1)
        program = (
            settings(rng, domain, n).resolve(domain)
            if name is None
            else first_stage(rng, name, domain, p, least=-5)
        )
        reach = program.certified_error(Universe(domain, n, p))
        if not reach <= 1e-6:
            continue
        X, a = hostile(rng, n, p)
        records = domain.records(X, a, np.zeros(n))
        result = solve(program.instance(records), solver=SOLVER, tolerance=1e-9 + reach, throw=False)
        assert result.certificate.relative_radius <= reach, (program, n, p, result.solver)
        ratios.append(result.certificate.relative_radius / reach)
    return max(ratios)


def test_every_dataset_is_certified_within_the_reach() -> None:
    assert 1e-3 < worst_ratio(45, seed=0, largest_n=40) <= 1.0


@pytest.mark.parametrize("name", MORE)
def test_every_dataset_of_the_other_programs_is_certified_within_the_reach(name) -> None:
    assert 1e-3 < worst_ratio(10, seed=2, largest_n=40, name=name) <= 1.0


def sizes_of(program, domain, n, p, monkeypatch):
    """What a program hands to the bound on where Newton's method stops."""
    seen, radius = [], Sizes.radius

    def noted(sizes):
        seen.append(sizes)
        return radius(sizes)

    monkeypatch.setattr(Sizes, "radius", noted)
    program.certified_error(Universe(domain, n, p))
    monkeypatch.undo()
    return seen[-1] if seen else None


@pytest.mark.parametrize("name", [*MORE, "same point"])
def test_the_sizes_that_a_reach_rests_on_cover_every_model(name, monkeypatch) -> None:
    """Rounding, smoothness and slope of hostile models are within their public bounds."""
    rng = np.random.default_rng(4)
    closest = 0.0
    for _ in range(25):
        n, p = int(rng.integers(2, 60)), int(rng.integers(1, 5))
        domain = Domain(float(rng.choice([0.1, 1.0, 30.0])), 1.0, arm_floor=1)
        X, a = hostile(rng, n, p)
        if name == "same point":
            # every entry of the kernel is then as large as it can be, and nothing averages out
            X, made = 0 * X, KernelMeanMatching((None, PublicSample(np.zeros((1, p))))[rng.integers(2)])
        else:
            made = first_stage(rng, name, domain, p, least=-5)
        program = made.resolve(domain)
        sizes = sizes_of(program, domain, n, p, monkeypatch)
        model = program.instance(domain.records(domain.covariate_bound * X, a, np.zeros(n))).model
        start = model.start()
        v = model.penalty.set.project(start + (1 + abs(start).max()) * 10 * rng.normal(size=model.dimension))
        size = np.linalg.norm(v)
        allowed = sizes.rounding + sizes.rounding_growth * size
        assert model.rounding(v) <= allowed
        assert model.smoothness <= sizes.smoothness * (1 + 1e-8)
        assert np.linalg.norm(model.gradient(np.zeros(model.dimension))) <= sizes.slope * (1 + 1e-9)
        assert model.ridge >= sizes.strong_convexity * (1 - 1e-9)
        assert model.penalty.set.rounding(model.dimension) <= sizes.set_rounding
        closest = max(closest, model.rounding(v) / allowed)
    assert closest > 0.05


def test_a_trim_breaks_the_common_shift_of_scores_and_counts_in_the_reach(monkeypatch) -> None:
    rng, closest = np.random.default_rng(5), 0.0
    for _ in range(20):
        n, p, domain = int(rng.integers(5, 60)), int(rng.integers(1, 5)), Domain(1.0, 1.0, arm_floor=1)
        program = EntropyBalancing(ridge=0.01, radius=float(rng.choice([0.3, 2.0])), trim=1.5).resolve(domain)
        sizes = sizes_of(program, domain, n, p, monkeypatch)
        X, a = hostile(rng, n, p)
        model = program.model(domain.records(X, a, np.zeros(n)))
        v = rng.normal(size=model.dimension)
        v *= sizes.minimizer_norm / np.linalg.norm(v)
        reach = program.certified_error(Universe(domain, n, p))
        claimed = model.output_radius(v, sizes.radius()) / n
        assert claimed <= reach
        closest = max(closest, claimed / reach)
    assert closest > 0.3


@pytest.mark.parametrize(
    "name", [name for name, cls in registry.first_stages().items() if cls.relations and name != "ipw_private"]
)
def test_ordinary_settings_are_far_within_the_tolerance(name, monkeypatch) -> None:
    # however large the Gram matrix of a kernel is: here only its numerical error is asked for
    monkeypatch.setattr(kernel_stage, "_memory", lambda: math.inf)
    domain = Domain(2.0, 1.0, arm_floor=50)
    settings = {"coefficient": (0.5,) * 10} if name == "ipw_known" else {}
    program = registry.build(registry.first_stages(), name, **settings).resolve(domain)
    for n in (100, 4000, 100_000):
        assert program.certified_error(Universe(domain, n, 10)) < 1e-8


@pytest.mark.parametrize(
    "first",
    [
        EntropyBalancing(ridge=1e-7, radius=3.0, trim=5.0),
        EntropyBalancing(ridge=1e-8, radius=0.1, trim=5.0),
        EntropyBalancing(balance=Moments(10), ridge=1e-12, radius=0.1),
        ipw_logistic(ridge=1e-12, radius=1.0),
    ],
)
def test_where_floating_point_is_not_sure_v_is_at_its_cap_and_standing_does_not_depend_on_data(first) -> None:
    model = PrivateTwoStageERM(Domain(1.0, 1.0), Budget(1.0), first, "arm_means")
    plan = model.plan(60, 2)
    assert plan.bound.V == 120
    assert plan.main.weights.covers_all
    rng = np.random.default_rng(0)
    for _ in range(2):
        X, a = hostile(rng, 60, 2)
        assert model.fit(X, a, rng.uniform(-1, 1, 60)).release_.private


@pytest.mark.parametrize("first", [EntropyBalancing, ipw_logistic, Overlap])
def test_without_a_ball_the_reach_is_lost_only_where_v_is_useless_anyway(first) -> None:
    domain = Domain(1.0, 1.0)
    for n in (50, 1000, 100_000):
        programs = [first(ridge=ridge).resolve(domain) for ridge in np.geomspace(1e-9, 1.0, 10)]
        lost = [one for one in programs if not one.certified_error(Universe(domain, n, 10)) <= 1e-6]
        # V falls with the ridge: the largest ones are nearest to the claim; 2n is what it is at most
        assert min(one.bound(Universe(domain, n, 2)).V for one in lost[-2:]) >= 0.28 * 2 * n


@pytest.mark.parametrize("radius", [0.5, 30.0])
def test_weights_at_a_given_coefficient_are_within_the_reach(radius) -> None:
    rng = np.random.default_rng(3)
    domain = Domain(2.0, 1.0)
    program = ipw_private(radius=radius, trim=math.inf).resolve(domain)
    reach = program.certified_error(Universe(domain, 40, 4))
    assert ipw_private(radius=math.inf).resolve(domain).certified_error(Universe(domain, 40, 4)) is None
    assert reach < 1e-10
    for _ in range(30):
        X, a = hostile(rng, 40, 4)
        model = program.model(domain.records(2 * X, a, np.zeros(40)))
        v = rng.normal(size=4)
        v *= radius / np.linalg.norm(v)
        assert 0.0 < model.output_radius(v, 0.0) / 40 <= reach


def test_what_is_not_known_is_said_to_be_so() -> None:
    domain = Domain(1.0, 1.0)
    universe = Universe(domain, 50, 3)
    own = EntropyBalancing(balance=BalanceFunctions(np.sin, 1.0), ridge=1.0).resolve(domain)
    assert 0.0 < (own.certified_error(universe) or 0.0) < 1e-8
    assert EntropyBalancingHard().resolve(domain).certified_error(universe) is None
    unridged = EntropyBalancing(ridge=0.0, radius=1.0).resolve(domain)
    assert unridged.certified_error(universe) == math.inf
    assert isinstance(SOLVER, FirstCertified)
