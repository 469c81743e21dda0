"""Pairs of neighbors under prices of every shape, which are solved together: none moves farther
than V.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.bounds import constants
from dp2erm_cvx.weighting.bounds.constants import weighting_constants
from dp2erm_cvx.weighting.bounds.public_radius import StepConstants, public_radius
from dp2erm_cvx.weighting.forms.form import (
    ImbalancePenalty,
    LogSumExpPenalty,
    Penalty,
    SumKind,
    WeightingForm,
    WeightSums,
)
from dp2erm_cvx.weighting.neighbors.together import FormNeighbors
from dp2erm_cvx.weighting.solving.dual import DualProblem
from tests.weighting.examples import BOTH, covariates, form_of, imbalance, moments_by_arm, part

N = 40
M = 24
INF = math.inf
SHAPES: dict[str, Penalty] = {
    "one side": ImbalancePenalty(2 / N, sided=True),
    "huber of one side": ImbalancePenalty(20 / N, knee=0.01 * N, sided=True),
    "kinks of one side": ImbalancePenalty(INF, price=0.2, sided=True),
    "largest entry": ImbalancePenalty(INF, price=0.4, norm=INF),
    "smoothed largest entry": ImbalancePenalty(INF, price=0.8, norm=INF, envelope=0.02 * N),
    "smoothed square of the largest entry": ImbalancePenalty(5 / N, norm=INF, envelope=0.02 * N),
    "3-norm": ImbalancePenalty(INF, price=0.4, norm=3.0),
    "1.5-norm": ImbalancePenalty(INF, price=0.4, norm=1.5),
    "squared 3-norm": ImbalancePenalty(2 / N, norm=3.0),
    "huber of a 4-norm": ImbalancePenalty(20 / N, norm=4.0, tolerance=0.01 * N, knee=0.02 * N),
    "smoothed square of the 1.5-norm": ImbalancePenalty(2 / N, norm=1.5, envelope=0.02 * N),
    "log_sum_exp": LogSumExpPenalty(2.0),
    "small log_sum_exp": LogSumExpPenalty(0.3),
}
SUMS = {"one": WeightSums(SumKind.ALL), "public": WeightSums(SumKind.PUBLIC, (0.5 * N, 0.5 * N))}
FLOOR = 12


def shape_form(name: str, sums: str) -> WeightingForm:
    """A form whose rows are covariates, or moments by arm where sums are."""
    penalty = SHAPES[name]
    if sums == "public":
        return form_of(N, moments_by_arm(penalty, 2), cap=(4.0, 4.0), sums=SUMS[sums])
    rows = imbalance(penalty, part(covariates(2), BOTH, 0.0 * BOTH))
    return form_of(N, rows, cap=(INF, INF) if "log" in name else (4.0, 4.0))


def drawn_rows(rng: np.random.Generator, count: int) -> Array:
    """Rows on the sphere, inside of it, or near 0 in one direction."""
    rows = rng.normal(size=(count, 2))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    kind = rng.integers(3)
    if kind == 1:
        rows *= rng.uniform(0.0, 1.0, (count, 1))
    if kind == 2:
        rows *= 10.0 ** rng.uniform(-2, 0)
    return 0.999 * rows


def pairs(name: str, sums: str, seed: int, datasets: int) -> list[tuple[float, float]]:
    """V that is found over its bound, and the largest weight over its own, of pairs of drawn
    datasets.
    """
    form = shape_form(name, sums)
    floor = FLOOR if sums == "public" else 0
    stated = weighting_constants(form, (floor, floor), False)
    rng = np.random.default_rng(seed)
    domain = Domain(1.0, 1.0)
    found = []
    for _ in range(datasets):
        a = (np.arange(N) < N // 2).astype(int)
        base = domain.records(drawn_rows(rng, N), a, np.zeros(N))
        new = domain.records(drawn_rows(rng, M), rng.integers(0, 2, M), np.zeros(M))
        index = rng.integers(0, N, M)
        found += moved(form, base, index, new, (stated.V, np.array(stated.largest)))
    return found


def moved(
    form: WeightingForm, base: Records, index: Array, new: Records, stated: tuple[float, Array]
) -> list[tuple[float, float]]:
    V, largest = stated
    before = DualProblem(form, base).newton()
    after = FormNeighbors(form, base).solve(index, new)
    found = []
    for k, place in enumerate(index):
        apart = np.abs(after.weights[k] - before.weights)
        apart[place] = after.weights[k, place] + before.weights[place]
        treatment = base.a.copy()
        treatment[place] = new.a[k]
        slack = before.claim + after.claims[k]
        assert slack <= 1e-4 * N
        weights = (after.weights[k] - after.claims[k]) / largest[treatment]
        found.append(((float(np.sum(apart)) - slack) / V, float(np.max(weights))))
    return found


@pytest.mark.one_row_in(26)
@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("name", SHAPES)
def test_no_pair_moves_farther_than_stated(name: str, sums: str) -> None:
    found = np.array(pairs(name, sums, seed=1, datasets=2))
    assert np.max(found) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("name", SHAPES)
def test_no_pair_of_thousands_moves_farther_than_stated(name: str, sums: str) -> None:
    found = np.array(pairs(name, sums, seed=2, datasets=60))
    assert len(found) == 60 * M
    assert np.max(found) <= 1.0


def test_a_slope_at_zero_that_is_forgotten_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """``log_sum_exp`` pulls on weights where the imbalance is 0 as well: W1 and W2 have to say
    so.
    """
    rows = imbalance(LogSumExpPenalty(2.0), part(covariates(1), BOTH, 0.0 * BOTH))
    form = form_of(N, rows)
    X = np.where(np.arange(N) == 0, -0.99, 0.99)[:, None]
    records = Domain(1.0, 1.0).records(X, np.arange(N) % 2, np.zeros(N))
    largest = np.max(DualProblem(form, records).newton().weights)
    assert 2.0 < largest <= np.max(weighting_constants(form, (0, 0), False).largest)
    monkeypatch.setattr(constants, "_pull_at_zero", lambda imbalance: 0.0)
    assert largest > np.max(weighting_constants(form, (0, 0), False).largest)


#: Shapes whose steps are many.
_MANY_STEPS = ("huber of a 4-norm", "smoothed square of the 1.5-norm")


@pytest.mark.one_row_in(5)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in _MANY_STEPS else ())
        for name, penalty in SHAPES.items()
        if penalty.smooth
    ],
)
def test_public_steps_reach_their_radius(name: str) -> None:
    form = shape_form(name, "one")
    steps = StepConstants.of(form)
    radius = public_radius(form, steps)
    assert radius is not None
    assert radius <= 1e-6 * N
    rng = np.random.default_rng(3)
    for _ in range(4):
        records = Domain(1.0, 1.0).records(drawn_rows(rng, N), np.arange(N) % 2, np.zeros(N))
        problem = DualProblem(form, records)
        newton = problem.newton()
        proved = problem.by_public_steps(steps)
        assert np.sum(np.abs(newton.weights - proved.weights)) <= radius + newton.claim
        assert newton.claim <= 1e-9 * N
