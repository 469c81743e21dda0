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
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.program import BalanceFunctions, Moments, kernel_stage
from dp2erm_cvx.program.kernels import PublicSample
from dp2erm_cvx.solve import private_solver, solve
from tests.drawn import first_stage, hostile_records

MORE = (
    "overlap",
    "inverse_probability_tilting",
    "energy_balancing",
    "stable_balancing",
    "kernel_mean_matching",
)


def paper_balancing(rng, domain, n):
    """In the paper's scaling, with a base measure over up to 290 powers of ten."""
    base = tuple(10.0 ** rng.uniform(-float(rng.choice([1.0, 30.0, 290.0])), 0, n))
    settings = {"ridge": 10.0 ** rng.uniform(-7, 1), "radius": float(rng.choice([0.1, 1.0, 4.0, math.inf]))}
    base_measure = (None, base)[rng.integers(2)]
    return EntropyBalancing(scaling="paper", base_measure=base_measure, **settings).resolve(domain)


@pytest.mark.parametrize("name", ["ipw_logistic", "entropy_balancing", "paper", "mmd_pooled", *MORE])
def test_every_dataset_is_certified_within_the_reach(name) -> None:
    rng, ratios = np.random.default_rng(0), []
    while len(ratios) < 10:
        n, p = int(rng.integers(2, 40)), int(rng.integers(1, 8))
        records = hostile_records(rng, n, p, arm_floor=1)
        domain, columns = records.domain, records.X.shape[1]
        made = paper_balancing(rng, domain, n) if name == "paper" else None
        program = made or first_stage(rng, name, domain, columns, least=-5)
        reach = program.certified_error(Universe(domain, n, p))
        if reach <= 1e-6:
            tolerance = 1e-9 + reach
            result = solve(
                program.instance(records), solver=private_solver("newton"), tolerance=tolerance, throw=False
            )
            ratios.append(result.certificate.relative_radius / reach)
    assert 1e-3 < max(ratios) <= 1.0


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
        records = hostile_records(rng, n, p, arm_floor=1)
        domain = records.domain
        if name == "same point":
            # every entry of the kernel is then as large as it can be, and nothing averages out
            records = domain.records(np.zeros((n, p)), records.a, records.y)
            target = (None, PublicSample(np.zeros((1, p))))[rng.integers(2)]
            program = KernelMeanMatching(target).resolve(domain)
        else:
            program = first_stage(rng, name, domain, records.X.shape[1], least=-5)
        sizes = sizes_of(program, domain, n, p, monkeypatch)
        model = program.instance(records).model
        start = model.start()
        v = model.penalty.set.project(start + (1 + abs(start).max()) * 10 * rng.normal(size=model.dimension))
        allowed = sizes.rounding + sizes.rounding_growth * np.linalg.norm(v)
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
        n, p = int(rng.integers(5, 60)), int(rng.integers(1, 5))
        records = hostile_records(rng, n, p, orders=0, arm_floor=1)
        domain = records.domain
        program = EntropyBalancing(ridge=0.01, radius=float(rng.choice([0.3, 2.0])), trim=1.5).resolve(domain)
        sizes = sizes_of(program, domain, n, p, monkeypatch)
        model = program.model(records)
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
        drawn = hostile_records(rng, 60, 2, orders=0)
        assert model.fit(drawn.covariates, drawn.a, drawn.y).release_.private


@pytest.mark.parametrize("first", [EntropyBalancing, ipw_logistic, overlap])
def test_without_a_ball_the_reach_is_lost_only_where_v_is_useless_anyway(first) -> None:
    domain = Domain(1.0, 1.0)
    for n in (50, 1000, 100_000):
        programs = [first(ridge=ridge).resolve(domain) for ridge in np.geomspace(1e-9, 1.0, 10)]
        lost = [one for one in programs if not one.certified_error(Universe(domain, n, 10)) <= 1e-6]
        # V falls with the ridge: the largest ones are nearest to the claim; 2n is what it is at most
        assert min(one.bound(Universe(domain, n, 2)).V for one in lost[-2:]) >= 0.28 * 2 * n


@pytest.mark.parametrize("radius", [0.5, 30.0])
def test_weights_at_a_given_coefficient_are_within_the_reach(radius) -> None:
    rng, program = np.random.default_rng(3), ipw_private(radius=radius, trim=math.inf)
    for _ in range(30):
        records = hostile_records(rng, 40, 4)
        universe = Universe(records.domain, 40, 4)
        reach = program.resolve(records.domain).certified_error(universe)
        model = program.resolve(records.domain).model(records)
        v = rng.normal(size=model.dimension)
        v *= radius / np.linalg.norm(v)
        assert 0.0 < model.output_radius(v, 0.0) / 40 <= reach < 1e-9
        assert ipw_private(radius=math.inf).resolve(records.domain).certified_error(universe) is None


def test_what_is_not_known_is_said_to_be_so() -> None:
    domain = Domain(1.0, 1.0)
    universe = Universe(domain, 50, 3)
    own = EntropyBalancing(balance=BalanceFunctions(np.sin, 1.0), ridge=1.0).resolve(domain)
    assert 0.0 < (own.certified_error(universe) or 0.0) < 1e-8
    assert EntropyBalancingHard().resolve(domain).certified_error(universe) is None
    unridged = EntropyBalancing(ridge=0.0, radius=1.0).resolve(domain)
    assert unridged.certified_error(universe) == math.inf
