"""A certificate is never below the true error, and a wrong one would be caught here."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import ElasticNet, L2Ball, UserRegularizer
from dp2erm_cvx.program import Box, ClosedFormWeights, Instance, L1Ball, Moments, WholeSpace, scheme
from dp2erm_cvx.program.entropy import EntropyFirstStage
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import OSQP, SCS, Clarabel, ProjectedGradient, certify, conic, solve
from tests import exact
from tests.every_program import label
from tests.helpers import make_records, make_weights, output_distance

N, P = 30, 3
GAMMA = 0.03
RECORDS: Records = make_records(N, P, seed=11)
NOISE: Array = 0.7 * np.random.default_rng(12).normal(size=P + 1)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("uniform", {}),
    ("ipw_randomized", {"propensity": 0.3}),
    ("ipw_known", {"coefficient": (0.2, 1.5, 0.0, -3.0), "trim": 6.0}),
    ("ipw_logistic", {"ridge": 0.02}),
    ("ipw_logistic", {"ridge": 0.02, "radius": 0.3}),
    ("ipw_logistic", {"ridge": 0.003, "radius": 3.0, "trim": 1.6}),
    ("ipw_logistic", {"ridge": 0.0}),
    ("ipw_logistic", {"ridge": 0.0, "radius": 0.5}),
    ("entropy_balancing", {"ridge": 0.02}),
    ("entropy_balancing", {"ridge": 0.02, "radius": 0.1}),
    ("entropy_balancing", {"ridge": 0.05, "arm_mass": "proportional"}),
    ("entropy_balancing", {"ridge": 0.05, "radius": 0.05, "arm_mass": "proportional"}),
    ("entropy_balancing", {"ridge": 0.05, "arm_mass": "proportional", "scaling": "paper"}),
    ("entropy_balancing", {"ridge": 0.05, "balance": Moments(2), "constant": 0.4}),
    ("entropy_balancing", {"ridge": 1e-5}),
    ("entropy_balancing", {"ridge": 1e-5, "radius": 0.1, "balance": Moments(2)}),
    ("entropy_balancing_primal", {"ridge": 0.02}),
    ("entropy_balancing_primal", {"ridge": 0.02, "radius": 0.1}),
    ("itr", {"theta_set": L1Ball(0.5)}),
    ("itr", {"theta_set": L1Ball(0.9), "regularizer": ElasticNet(0.1, 0.2)}),
    ("itr", {"theta_set": L1Ball(50.0)}),
    ("itr", {"theta_set": L2Ball(0.4)}),
    ("itr", {"theta_set": L2Ball(0.4), "regularizer": ElasticNet(0.3, 0.1)}),
    ("itr", {"theta_set": Box(0.2)}),
    ("itr", {"theta_set": Box(0.3), "regularizer": ElasticNet(0.3, 0.0)}),
    ("itr", {"theta_set": WholeSpace(), "regularizer": ElasticNet(0.2, 0.3)}),
    ("itr", {"theta_set": WholeSpace()}),
]
every_case = pytest.mark.parametrize(
    "case", range(len(CASES)), ids=lambda k: f"{CASES[k][0]}-{label(CASES[k][1])}"
)


@dataclasses.dataclass(frozen=True)
class Reference:
    """An instance, its polished point and its exact minimizer: of the model's variable, and of the output."""

    instance: Instance
    model: Composite
    polished: Array
    variable: list[Any]
    output: list[Any]

    def errors(self, point: Array) -> tuple[float, float]:
        """True distance of a point, and of its output in the norm that a certificate bounds."""
        order = 2 if getattr(self.instance.program, "squared", False) else 1
        return exact.distance(self.variable, point), exact.distance(
            self.output, self.model.output(point), order
        )


@functools.cache
def reference(case: int) -> Reference:
    name, settings = CASES[case]
    program: Any = programs()[name](**settings)
    if getattr(program, "squared", False):
        weights = make_weights(RECORDS)
        instance = program.instance(RECORDS, weights, gamma=GAMMA, noise=NOISE)
        polished = solve(instance).point
        variable = exact.second_stage(program, RECORDS, weights, GAMMA, NOISE, polished)
        output = variable
    else:
        instance = program.instance(RECORDS)
        polished = solve(instance).point
        if isinstance(program, ClosedFormWeights):
            factors = exact.to_mp(program.unnormalized(RECORDS))
            total = mp.fsum(factors)
            output = [N * f / total for f in factors]
            # the one multiplier nu of w = nu f / 2, with f up to the factor that the model chose
            variable = [2 * N / mp.fsum(f / max(factors) for f in factors)]
        elif isinstance(program, EntropyFirstStage):
            variable, output = exact.entropy(program, RECORDS, program.ridge, program.radius, polished)
        else:
            variable, output = exact.logistic(RECORDS, program.ridge, program.radius, program.trim, polished)
    assert instance.model is not None
    return Reference(instance, instance.model, polished, variable, output)


def points(found: Reference, *, solvers: bool = True) -> list[Array]:
    """The polished point, every solver's own, and random ones 1e-14 to 1 away."""
    rng = np.random.default_rng(13)
    scale = max(float(np.linalg.norm(found.polished)), 1e-3)
    many = [found.polished]
    for exponent in np.linspace(-14, 0, 22):
        direction = rng.normal(size=len(found.polished))
        many.append(found.polished + scale * 10**exponent * direction / np.linalg.norm(direction))
    if solvers:
        listed = [
            Clarabel(),
            Clarabel(tol=1e-5),
            SCS(),
            SCS(eps=1e-4),
            ProjectedGradient(),
            ProjectedGradient(7),
        ]
        if isinstance(found.instance.program, ClosedFormWeights):
            listed.append(OSQP())
        elif getattr(found.instance.program, "squared", False):
            listed += [OSQP()] * (not isinstance(found.instance.program.theta_set, L2Ball))
        many += [solve(found.instance, solver=s, polish=False, throw=False).point for s in listed]
    return many


def uncovered(found: Reference, many: list[Array]) -> list[tuple[float, float]]:
    """True errors above what the certificate says, as (claimed, true)."""
    below = []
    for point in many:
        certificate = certify(found.instance, point)
        distance, output = found.errors(point)
        below += [(certificate.radius, distance)] * (certificate.radius < distance)
        below += [(certificate.output_radius, output)] * (certificate.output_radius < output)
    return below


@every_case
def test_radius_is_never_below_the_true_error(case):
    found = reference(case)
    assert uncovered(found, points(found)) == []


@every_case
def test_radius_is_not_absurd(case):
    """Within 1,000 times the true error wherever that is well above rounding."""
    found = reference(case)
    for point in points(found, solvers=False):
        certificate = certify(found.instance, point)
        distance, _ = found.errors(point)
        tight = 1e3 * max(1.0, 1e-2 / (found.model.ridge / N or 1.0))  # a tiny ridge says little about lambda
        if distance > 1e-10 and np.isfinite(certificate.radius):
            assert certificate.radius <= tight * distance
    polished = certify(found.instance, found.polished)
    assert polished.relative_radius <= 1e-10
    assert polished.primal_residual <= 1e-15


@every_case
def test_duality_gap_covers_the_objective(case):
    """Where a gap is reported, it is at least half the strong convexity times the squared true distance."""
    found = reference(case)
    for point in points(found, solvers=False):
        inside = found.model.penalty.set.project(point)
        gap = certify(found.instance, point).duality_gap
        if gap is None:
            assert found.model.ridge == 0
            continue
        distance = exact.distance(found.variable, inside)
        size = abs(found.model.value(inside)) + 1.0
        assert gap + 1e-13 * size * (1 + found.model.smoothness) >= 0.5 * found.model.ridge * distance**2


def _reported() -> bool:
    """Whether the check of this file reports any case."""
    return any(uncovered(found, points(found, solvers=False)) for found in map(reference, range(len(CASES))))


def _planted(monkeypatch, wrong: Any) -> bool:
    """Whether a wrong ``certificate._distance`` is reported."""
    certificates = sys.modules["dp2erm_cvx.solve.certificate"]
    right = certificates._distance
    monkeypatch.setattr(certificates, "_distance", lambda *arguments: wrong(right, *arguments))
    return _reported()


def test_a_strong_convexity_a_hundred_times_too_large_is_caught(monkeypatch):
    def wrong(right, model, point, residual):
        distance, strong_convexity = right(model, point, residual)
        return distance / 100, strong_convexity

    assert _planted(monkeypatch, wrong)


def test_a_missing_rounding_term_is_caught(monkeypatch):
    for kind in {type(reference(case).model) for case in range(len(CASES))}:
        monkeypatch.setattr(kind, "rounding", lambda self, v: 0.0)
    assert _reported()


def test_a_local_metric_that_is_too_steep_is_caught(monkeypatch):
    certificates = sys.modules["dp2erm_cvx.solve.certificate"]
    right = certificates._local_error

    def wrong(*arguments):
        local = right(*arguments)
        return local and dataclasses.replace(local, energy=local.energy / 100)

    monkeypatch.setattr(certificates, "_local_error", wrong)
    assert _reported()


def test_a_missing_rounding_term_of_the_output_is_caught(monkeypatch):
    found = reference(4)
    monkeypatch.setattr(type(found.model), "output_radius", lambda self, v, radius, local=None: 0.0)
    assert uncovered(found, [found.polished])


@pytest.mark.parametrize("theta_set", [None, L1Ball(0.5), L2Ball(0.4), Box(0.2), WholeSpace()], ids=str)
@pytest.mark.parametrize(("l1", "l2"), [pytest.param(0.2, 0.0, marks=pytest.mark.slow), (0.1, 0.3)])
def test_gap_certificate_of_a_user_regularizer_covers_the_distance(theta_set, l1, l2):
    """The same regularizer, once as an expression that only a gap can judge and once in its prox form."""
    itr: Any = programs()["itr"]
    user = UserRegularizer(
        lambda theta: l1 * cp.norm(theta, 1) + l2 / 2 * cp.sum_squares(theta), "elastic net"
    )
    weights = make_weights(RECORDS)
    known = itr(theta_set=theta_set, regularizer=ElasticNet(l1, l2))
    truth = solve(known.instance(RECORDS, weights, gamma=GAMMA, noise=NOISE))
    instance = itr(theta_set=theta_set, regularizer=user).instance(RECORDS, weights, gamma=GAMMA, noise=NOISE)
    assert instance.model is None
    rng = np.random.default_rng(14)
    for solver in ("clarabel", "scs"):
        solution = solve(instance, solver=solver)
        assert solution.certificate.basis == "duality gap"
        for exponent in (-np.inf, -8, -6, -4, -2, -1):
            point = solution.point + 10.0**exponent * rng.normal(size=P + 1)
            certificate = certify(instance, point)
            distance = output_distance(itr(), point, truth.value)
            assert certificate.radius >= distance - truth.certificate.radius
            # a gap grows linearly in the distance along an active bound, so half of the digits are lost
            assert certificate.radius <= 50 * np.sqrt(max(distance, 1e-10))


def test_no_dual_point_proves_more_than_the_optimum():
    """What a dual point leaves of stationarity is charged: not even a random one is a bound above it."""
    itr = programs()["itr"](L2Ball(0.4), UserRegularizer(lambda theta: cp.norm(theta, 1)))
    instance = itr.instance(RECORDS, make_weights(RECORDS), gamma=GAMMA, noise=NOISE)
    problem, rng = conic.compiled_for(instance, "clarabel").problem, np.random.default_rng(15)
    data, chain, _ = problem.get_problem_data("CLARABEL")
    raw, optimum = chain.solve_via_data(problem, data), problem.solve(solver="CLARABEL")
    x, z = np.asarray(raw.x), np.asarray(raw.z)
    assert optimum - conic._lower_bound(x, z, data) <= 1e-5 * abs(optimum)
    for size in np.geomspace(1e-3, 10, 40):
        assert conic._lower_bound(x, z + size * rng.normal(size=len(z)), data) <= optimum


@scheme(size=0.5)
def near_one(w, records, size):
    """Weights in a small ball around 1 under the norm of the imbalance."""
    imbalance = cp.norm(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + 5 * imbalance), [cp.norm(w - 1) <= size])


def test_a_point_beyond_a_constraint_pays_its_price():
    """The objective lies below the optimum there: a gap alone would call the point exact."""
    bound, (tight, free) = near_one(), (solve(near_one(size=s).instance(RECORDS)) for s in (0.5, 50.0))
    apart = float(np.linalg.norm(tight.point - free.point))
    assert apart > 0.2
    assert certify(bound.instance(RECORDS), free.point).radius >= apart - tight.certificate.radius
