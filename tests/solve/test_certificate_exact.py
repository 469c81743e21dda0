"""Certified radius against the true one, to 50 digits, over every program and adversarial data."""

import dataclasses
import math
import sys
from collections import Counter

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest

from dp2erm_cvx.curves.curves import LOGISTIC
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import ElasticNet, L2Ball
from dp2erm_cvx.program import Box, ClosedFormWeights, L1Ball, SecondStage, WholeSpace, scheme
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.report.tables import fenchel_gap
from dp2erm_cvx.solve import Newton, certify, solve
from dp2erm_cvx.solve.gap import rounded_norm
from tests import exact, exact_kernel
from tests.drawn import PROGRAMS, hostile_records, instance_of
from tests.helpers import kinked_net, make_records, make_weights, output_distance, penalized_rule

#: Programs without an exact counterpart here: tests/problems/test_literature.py compares them with
#: CVXPY.
WITHOUT = {
    # which hostile records of one arm have no weights of: tests/problems/test_att_balancing.py
    "att_balancing",
    *("empirical_likelihood", "landmark_balancing", "logit_calibration"),
    *("minimal_dispersion", "raking", "residual_balancing"),
    # whose certificate is a backward error: tests/weighting/test_residuals.py
    *("entropy_balancing_hard", "stable_balancing_hard"),
}
NAMES = sorted(set(PROGRAMS) - WITHOUT)


def minimizer(instance, records, bound, near):
    """(variable, output), exact; the variable is None where the model chose its own coordinates."""
    program = instance.program
    if isinstance(program, SecondStage):
        theta = exact.second_stage(
            program, records, bound["weights"], bound["gamma"], bound["noise"], near
        )
        return theta, theta
    if isinstance(program, ClosedFormWeights):
        factors = exact.to_mp(program.unnormalized(records))
        total = mp.fsum(factors)
        return None, [len(factors) * f / total for f in factors]
    if program.name in exact_kernel.BALANCING:
        return None, exact_kernel.kernel(program, records, near)
    if program.name == "entropy_balancing":
        return None, exact.capped_entropy(program, records, instance.model.output(near))
    if program.name == "paper_entropy_balancing":
        return exact.paper_entropy(program, records, near)
    if program.name == "kernel_mean_matching":
        return None, exact_kernel.matching(program, records, near)
    ridge, noise = mp.mpf(bound["ridge"]) if bound else program.ridge, bound.get("noise")
    if program.name in ("inverse_probability_tilting", "tilting_private"):
        return exact.tilting(program, records, near, ridge, noise)
    if program.name in ("overlap", "overlap_private"):
        return exact.overlap(records, ridge, program.radius, near, noise)
    if program.name == "odds_weights":
        return exact.odds(records, ridge, program.radius, program.trim, near)
    if program.name == "att_calibration":
        return exact.calibrated(program, records, near)
    return exact.logistic(records, ridge, program.radius, program.trim, near, noise)


def ratios(seed, count):
    """Program and true error over certified error, for every solve whose exact minimizer was
    proved.
    """
    rng = np.random.default_rng(seed)
    for k in range(count):
        name = NAMES[k % len(NAMES)]
        records = hostile_records(rng, int(rng.integers(2, 9)), int(rng.integers(1, 4)))
        try:
            instance, bound = instance_of(rng, name, records)
            polished = solve(instance, solver="first_certified", throw=False)
            variable, output = minimizer(instance, records, bound, polished.point)
        except (AssertionError, ZeroDivisionError):
            yield "undecided", 0.0  # which bounds are active is too close to tell from doubles
            continue
        early = solve(instance, solver=Newton(int(rng.integers(1, 6))), throw=False).point
        order = 2 if isinstance(instance.program, SecondStage) else 1
        size = 1e-3 + float(np.linalg.norm(polished.point))
        away = []
        for e in (-13, -9, -5, -1):
            direction = np.random.default_rng(-e).normal(size=len(early))
            away.append(polished.point + size * 10.0**e * direction / np.linalg.norm(direction))
        for point in (polished.point, early, *away):
            certificate = certify(instance, point)
            error = exact.distance(output, instance.model.output(point), order)
            if math.isfinite(certificate.output_radius):
                yield name, error / certificate.output_radius
            if variable is not None and math.isfinite(certificate.radius):
                yield name, exact.distance(variable, point) / certificate.radius
            if variable is not None and instance.model.ridge > 0:
                model, inside = instance.model, instance.model.penalty.set.project(point)
                rounding = 1e-13 * (abs(model.value(inside)) + 1.0) * (1 + model.smoothness)
                half = 0.5 * model.ridge * exact.distance(variable, inside) ** 2
                yield f"gap of {name}", half / (fenchel_gap(model, point) + rounding)


def test_no_true_error_exceeds_its_certificate():
    count, seen, largest = 2 * len(NAMES), Counter(), {}
    for name, ratio in ratios(31, count):
        seen[name] += 1
        largest[name] = max(largest.get(name, 0.0), ratio)
    assert max(largest.values()) <= 1.0, largest
    assert seen["undecided"] <= 0.06 * count
    assert all(seen[name] >= count / len(NAMES) / 2 for name in NAMES), seen
    # and the certificates are not so wide that nothing could exceed them
    assert min(largest[name] for name in NAMES) > 1e-3
    assert max(ratio for name, ratio in largest.items() if name.startswith("gap")) > 0.1


CERTIFICATE = sys.modules["dp2erm_cvx.solve.certificate"]
DISTANCE, LOCAL = CERTIFICATE._distance, CERTIFICATE._local_error


def steep(*arguments):
    local = LOCAL(*arguments)
    return local and dataclasses.replace(local, energy=local.energy / 100)


#: Errors of a certificate: what is put in the place of what.
PLANTED = {
    "a strong convexity a hundred times too large": (
        *(CERTIFICATE, "_distance"),
        lambda *one: (DISTANCE(*one)[0] / 100, DISTANCE(*one)[1]),
    ),
    "no rounding": (MarginModel, "rounding", lambda self, v: 0.0),
    "a local metric that is too steep": (CERTIFICATE, "_local_error", steep),
    "no radius of the output": (
        MarginModel,
        "output_radius",
        lambda self, v, radius, local=None: 1e-300,
    ),
}


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_error_of_a_certificate_is_exceeded(bug, monkeypatch):
    monkeypatch.setattr(*PLANTED[bug])
    assert any(ratio > 1.0 for _, ratio in ratios(seed=31, count=66))


def test_no_computed_hessian_is_farther_off_than_it_says():
    """Flat tails of the logistic loss, where the curvature itself is of the size of its
    rounding.
    """
    rng = np.random.default_rng(33)
    closest = 0.0
    for _ in range(30):
        Z = np.column_stack([rng.uniform(1, 2, 20), rng.normal(size=20)])
        v = np.array([rng.uniform(0, 35), rng.normal()])
        model = MarginModel(MarginRows(Z), LOGISTIC, 0.0, Penalty())
        slopes = [
            1 / (1 + mp.exp(-mp.fdot(zip(z, exact.to_mp(v), strict=True)))) for z in exact.to_mp(Z)
        ]
        true = exact._second_moment(exact.to_mp(Z), [s * (1 - s) for s in slopes], mp.mpf(0))
        error = exact.spectral_distance(true, model.hessian(v))
        assert error <= model.hessian_rounding(v)
        closest = max(closest, error / model.hessian_rounding(v))
    assert closest > 1e-3  # and what it says is not so wide that nothing could exceed it


def test_a_residual_too_small_to_be_squared_is_not_lost():
    assert rounded_norm(np.array([1e-170, 0.0])) >= 1e-170
    assert rounded_norm(np.full(4, 3.0)) >= 6.0


RECORDS = make_records(30, 3, seed=11)
PERTURBED = {"gamma": 0.03, "noise": 0.7 * np.random.default_rng(12).normal(size=4)}
WEIGHTS = make_weights(RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "theta_set", [None, L1Ball(0.5), L2Ball(0.4), Box(0.2), WholeSpace()], ids=str
)
@pytest.mark.parametrize(("l1", "l2"), [pytest.param(0.2, 0.0, marks=pytest.mark.slow), (0.1, 0.3)])
def test_gap_certificate_of_a_declared_penalty_covers_the_distance(theta_set, l1, l2):
    """The same regularizer, once as an expression that only a gap can judge and once in its prox
    form.
    """
    user = penalized_rule(kinked_net(l1, l2))
    known = PROGRAMS["itr"](theta_set, ElasticNet(l1, l2))
    truth = solve(known.instance(RECORDS, WEIGHTS, **PERTURBED))
    instance = user(theta_set=theta_set).instance(RECORDS, WEIGHTS, **PERTURBED)
    assert instance.model is None
    rng = np.random.default_rng(14)
    for solver in ("clarabel", "scs"):
        solution = solve(instance, solver=solver)
        assert solution.certificate.basis == "duality gap"
        for exponent in (-np.inf, -8, -6, -4, -2, -1):
            point = solution.point + 10.0**exponent * rng.normal(size=4)
            certificate = certify(instance, point)
            distance = output_distance(known, point, truth.value)
            assert certificate.radius >= distance - truth.certificate.radius
            # a gap grows linearly in the distance along an active bound, so half of the digits are
            # lost
            assert certificate.radius <= 50 * np.sqrt(max(distance, 1e-10))


@scheme(size=0.5)
def near_one(w, records, size):
    """Weights in a small ball around 1 under the norm of the imbalance."""
    imbalance = cp.norm(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + 5 * imbalance), [cp.norm(w - 1) <= size])


def test_a_point_beyond_a_constraint_pays_its_price():
    """The objective lies below the optimum there: a gap alone would call the point exact."""
    bound, (tight, free) = (
        near_one(),
        (solve(near_one(size=s).instance(RECORDS)) for s in (0.5, 50.0)),
    )
    apart = float(np.linalg.norm(tight.point - free.point))
    assert apart > 0.2
    assert certify(bound.instance(RECORDS), free.point).radius >= apart - tight.certificate.radius
