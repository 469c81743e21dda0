"""Newton from any start; reused problems give the solution of new data; infeasible balance is
named.
"""

import contextlib
import dataclasses
import math
import re
import sys
from collections import OrderedDict
from collections.abc import Iterator
from inspect import signature
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from dp2erm_cvx import Domain
from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import Curve, Part
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.neighbors import Neighborhood, NeighborSolutions, Reading, Replacements
from dp2erm_cvx.neighbors import neighborhood as batch
from dp2erm_cvx.program import BalanceFunctions, Moments
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.solve import certify, solve, solving
from dp2erm_cvx.solve.solvers import FirstCertified
from dp2erm_cvx.solve.solving import minimize_by_newton
from tests.every_program import SETTINGS, edge_records
from tests.helpers import make_records, output_distance, placed

#: Rows, offsets, multipliers, ridge, slope: a search that takes any halved residual, and any
#: descent, in turn walks in circles on these.
CIRCLES = [
    ([0.5, 0.1], [10.0, 1.0], [50, 1], 1.0, 1.0),
    ([0.5, 1.0], [-5.0, -10.0], [1, 10], 0.1, 0.1),
    ([0.1, 0.5, -0.1], [-10.0, -1.0, 5.0], [10, 1, 50], 0.01, 0.1),
]


def hostile_sums(count: int) -> Iterator[tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    for _ in range(count):
        rows, offset = (
            rng.choice([-1.0, -0.5, -0.1, 0.1, 0.5, 1.0], 4),
            rng.choice([-10.0, -1.0, 0.0, 1.0, 10.0], 4),
        )
        ridge, start = float(rng.choice([0.01, 1.0])), rng.choice([-500.0, 0.0, 500.0])
        yield rows, offset, rng.choice([1, 10, 50], size=4), ridge, 0.1, start


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("sums", "most"), [([(*one, 0.0) for one in CIRCLES], 40), ([*hostile_sums(100)], 60)]
)
def test_newton_ends_at_the_root_on_flat_tails_and_from_a_far_start(sums, most):
    """One coefficient, of a sum of extremal losses, in a ball that is not felt."""
    for rows, offset, multipliers, ridge, slope, start in sums:
        rows, offset, multipliers = (
            np.array(one, dtype=float) for one in (rows, offset, multipliers)
        )
        loss, ball = Curve((Part(1.0, atom("saturating", slope)),)), Penalty(L2Ball(1000.0))
        model = MarginModel(
            MarginRows(rows[:, None], offset),
            loss,
            ridge,
            ball,
            multipliers=multipliers,
            linear=np.zeros(1),
        )
        root = brentq(
            lambda v, model=model: float(model.gradient(np.array([v]))[0]), -900, 900, xtol=1e-13
        )
        point, iterations = minimize_by_newton(model, np.array([start]))
        assert iterations < most
        assert point[0] == pytest.approx(root, rel=1e-9, abs=1e-9)


PROGRAMS: dict[str, Any] = dict(programs())
FLIPPED = 7


@pytest.fixture
def cache(monkeypatch):
    """An empty store of compiled problems, put aside afterwards."""
    store: OrderedDict[Any, Compiled] = OrderedDict()
    monkeypatch.setattr(sys.modules["dp2erm_cvx.solve.solvers"], "_COMPILED", store)
    return store


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("solver", ["clarabel", "scs"])
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ipw_logistic", {"ridge": 0.05, "radius": 0.3}),
        ("paper_entropy_balancing", {"ridge": 0.1}),
    ],
)
def test_a_flipped_arm_gives_the_new_weights(cache, name, changes, solver):
    """The problem that was compiled for the old data serves the new ones, and the old ones
    again.
    """
    records, program = make_records(60, 3), PROGRAMS[name](**changes)
    # two records trade arms, so that arm sizes and the count of nonzeros stay the same
    other = int(np.nonzero(records.a != records.a[FLIPPED])[0][0])
    a = records.a.copy()
    a[[FLIPPED, other]] = a[[other, FLIPPED]]
    old = program.instance(records)
    new = program.instance(Records(records.X, a, records.y, records.space))
    for key, value in old.data.items():
        assert np.count_nonzero(value) == np.count_nonzero(new.data[key])
    if name != "ipw_logistic":
        assert np.any((np.asarray(old.data["B"]) != 0) != (np.asarray(new.data["B"]) != 0))
    truth, stale = solve(new).value, solve(old).value
    apart = output_distance(program, stale, truth)
    for instance, right in ((old, stale), (new, truth), (old, stale)):
        result = solve(instance, solver=solver, polish=False, throw=False).value
        assert len(cache) == 1, "the compiled problem was not reused, so this test shows nothing"
        assert output_distance(program, result, right) < 0.01 * apart


DOMAIN = Domain(2.0, 1.0, ranges={"age": (0, 100), "weight": (0, 200)})
HARD = ("stable_balancing_hard", "entropy_balancing_hard")


def records(what: str = "separated"):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 100, (40, 2))
    a = (X[:, 0] > 50).astype(int) if what == "separated" else np.arange(40) % 2
    if what == "constant":
        X[a == 1, 1] = 70.0
    return DOMAIN.records(X, 0 * a if what == "empty" else a, np.zeros(40))


def weights(name, data, **settings):
    return solve(PROGRAMS[name](**settings).instance(data)).value


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", HARD)
def test_the_error_names_the_covariate_and_its_arm(name):
    told = r"age \((control|treated)\).*(Allow|tolerance of) (?P<least>0\.\d+) or more"
    with pytest.raises(InfeasibleError, match=told) as caught:
        weights(name, records())
    printed = re.search(told, str(caught.value))
    # what is printed is taken up, so it must not be rounded below what is feasible
    assert 1.0 <= float(printed["least"]) / caught.value.smallest_tolerance < 1.02
    assert ("Allow" in str(caught.value)) == ("tolerance" in signature(PROGRAMS[name]).parameters)
    assert caught.value.covariates[0].startswith("age")
    assert 0.01 < caught.value.smallest_tolerance < 1.0
    for what, told in (("constant", r"weight \(treated\)"), ("empty", "arm without records")):
        with pytest.raises(InfeasibleError, match=told):
            weights(name, records(what))


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    "balance", [Moments(2), BalanceFunctions(lambda x: x * x[0], 4.0, "products")]
)
def test_the_smallest_tolerance_is_the_smallest(balance):
    data = records()
    with pytest.raises(InfeasibleError) as caught:
        weights("stable_balancing_hard", data, balance=balance, tolerance=1e-3)
    least = caught.value.smallest_tolerance
    with pytest.raises(InfeasibleError):
        weights("stable_balancing_hard", data, balance=balance, tolerance=0.99 * least)
    result = weights("stable_balancing_hard", data, balance=balance, tolerance=2 * least)
    g = balance(data.covariates)
    for arm in (0, 1):
        rows = data.a == arm
        mean = result[rows] @ g[rows] / result[rows].sum()
        assert np.max(np.abs(mean - g.mean(axis=0))) <= 2 * least * (1 + 1e-9)
    names = {name.split(" (")[0] for name in caught.value.covariates}
    assert names <= {"age", "weight", "age^2", "weight^2", "products[0]", "products[1]"}


CLOSED = ("uniform", "ipw_known", "ipw_randomized")
MARGINS = (
    "ipw_logistic",
    "overlap",
    "inverse_probability_tilting",
    "odds_weights",
    "att_calibration",
)
KERNELS = ("mmd", "mmd_pooled", "energy_balancing", "stable_balancing", "entropy_balancing")


def replacements(records, m):
    """Random records over the whole universe, half of them on its boundary, any index, any arm."""
    rng = np.random.default_rng(3)
    domain, p = records.space, records.covariates.shape[1]
    direction = rng.normal(size=(m, p))
    direction /= np.linalg.norm(direction, axis=1)[:, None]
    length = np.where(rng.random(m) < 0.5, 1.0, rng.random(m)) * domain.features_bound
    X = np.column_stack([np.full(m, domain.intercept), direction * length[:, None] * (1 - 1e-12)])
    return Replacements(
        records, rng.integers(records.n_samples, size=m), X, rng.integers(2, size=m)
    )


def solved(made, records, chosen):
    chunks = Neighborhood(made, records).solve(chosen)
    parts = [(c.radius, c.certified, c.iterations, c.by_single, *c.values) for c in chunks]
    *columns, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    return NeighborSolutions(0, *columns, (weights,))


def every(*names):
    """Programs at the settings that all tests share."""
    made = [PROGRAMS[name](**row) for name in names for row in SETTINGS[name]]
    return pytest.mark.parametrize("made", made, ids=lambda one: one.name)


@pytest.mark.one_row_in(24)
@every(*MARGINS, *KERNELS, *CLOSED)
def test_weights_and_radii_are_those_of_single_solves(made):
    records = make_records(90, 3)
    made = placed(made, records)
    chosen, base = replacements(records, 12), made.instance(records)
    result = solved(made, records, chosen)
    path = batch.fast_path(base, records, solve(base).point)
    fast = path.solve(chosen, 1e-13)
    assert np.all(result.certified)
    assert not np.any(result.by_single)
    assert np.allclose(result.values[0].sum(axis=1), 90, rtol=1e-12)
    for k in range(len(chosen)):
        instance = made.instance(chosen.neighbor(k))
        single = solve(instance)
        distance = output_distance(made, single.value, result.values[0][k])
        assert distance <= result.radius[k] + single.certificate.output_radius
        if made.name not in CLOSED:
            judged = certify(instance, fast.points[k])
            assert 0.25 * judged.output_radius <= fast.radius[k] <= 25 * judged.output_radius


def test_a_wrong_fast_path_is_found_out(monkeypatch):
    made, records = PROGRAMS["ipw_logistic"](ridge=0.05), make_records(60, 3)
    chosen = replacements(records, 12)
    right = solved(made, records, chosen)
    rows = type(made).row_neighbors

    def forgets_flips(self, base):
        given = rows(self, base)
        return lambda old, new: given(old, dataclasses.replace(new, a=1 - new.a))

    monkeypatch.setattr(type(made), "row_neighbors", forgets_flips)
    result = solved(made, records, chosen)
    assert np.all(result.by_single)
    assert np.all(
        np.sum(np.abs(result.values[0] - right.values[0]), axis=1) <= result.radius + right.radius
    )


@pytest.mark.one_row_in(4)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "ridge"),
    [
        ("ipw_logistic", 1e-5),
        ("entropy_balancing", 1e-3),
        ("mmd", 1e-4),
        ("mmd_pooled", 1e6),
    ],
)
def test_extreme_ridges_and_datasets_give_sound_radii(name, ridge):
    made, certified = PROGRAMS[name](ridge=ridge), 0
    # kernel weights of two arms have no certificate where one of them is empty
    for label in ("no control", "three records", "separable arms"):
        records = edge_records()[label]
        chosen, program = replacements(records, 2), placed(made, records)
        result = solved(program, records, chosen)
        for k in np.flatnonzero(result.certified):
            single = solve(program.instance(chosen.neighbor(int(k))), throw=False)
            distance = output_distance(made, single.value, result.values[0][k])
            assert distance <= result.radius[k] + single.certificate.output_radius
            certified += 1
    assert certified > 0  # at ridges below the least none is


def test_invalid_replacements_and_settings_are_refused_and_results_hide_the_records():
    records, made = make_records(30, 3), PROGRAMS["uniform"]()
    right: dict[str, Any] = {"index": [0], "X": records.X[:1].copy(), "a": [1]}
    wrong = [{"index": [one]} for one in (0.5, 30, -1)] + [{"a": one} for one in ([2], [0, 1])]
    rows = (np.full((1, 4), np.nan), np.zeros((1, 4)), [[1.0, 9.0, 0.0, 0.0]], np.zeros((1, 3)))
    for change in [{}, *wrong, *({"X": one} for one in rows)]:
        arrays = {name: np.array(value) for name, value in (right | change).items()}
        told = pytest.raises(
            DeclarationError, match=r"index must be .* from 0 to 29, a .* 0 or 1, X"
        )
        with told if change else contextlib.nullcontext():
            assert len(Replacements(records, **arrays)) == 1
    chosen = replacements(records, 2)
    for tolerance in (0.0, "x"):
        with pytest.raises(DeclarationError):
            Neighborhood(made, records).solve(chosen, tolerance=tolerance)
    with pytest.raises(DeclarationError, match="other records"):
        Neighborhood(made, make_records(30, 3)).solve(chosen)
    assert list(Neighborhood(made, records).solve(chosen.take(0, 0))) == []
    assert repr(solved(made, records, chosen)) == "NeighborSolutions(first=0)"
    assert repr(chosen) == "Replacements(n_neighbors=2)"


class Moved(Reading):
    """How far the weights are from given ones (n,), and the largest; keeps all weights of the last
    chunk.
    """

    def __init__(self, base):
        self.beside, self.parts = (base, np.arange(float(len(base)))), {}

    def of(self, weights, *beside):
        base, numbers = beside
        self.parts[numbers[0], len(weights)] = weights.copy()
        gap = np.abs(weights - base)
        return np.sum(gap, axis=1, keepdims=True), np.max(
            weights, axis=1, keepdims=True, initial=0.0
        )

    def kept(self, m):
        return np.hstack([self.parts[key] for key in sorted(self.parts) if key[1] == m])


@pytest.mark.one_row_in(10)
@pytest.mark.parametrize("heights", [(1, 7), (16, 16)])
@every(*MARGINS)
def test_readings_are_those_of_the_held_weights(made, heights, monkeypatch):
    monkeypatch.setattr("dp2erm_cvx.neighbors.rows._SHORTEST", heights[0])
    monkeypatch.setattr("dp2erm_cvx.neighbors.rows._TALLEST", heights[1])
    records = make_records(90, 3)
    chosen, reading = replacements(records, 30), Moved(np.ones(90))
    (result,) = Neighborhood(made, records).solve(chosen, reading)
    held = solved(made, records, chosen)
    weights, both = reading.kept(30), result.radius + held.radius
    assert np.all(result.certified)
    assert not np.any(result.by_single)
    assert np.all(np.sum(np.abs(weights - held.values[0]), axis=1) <= both)
    assert np.allclose(weights.sum(axis=1), 90, rtol=1e-12)
    sums, largest, own = result.values
    assert np.allclose(sums[:, 0], np.sum(np.abs(weights - 1), axis=1), rtol=1e-12)
    assert np.array_equal(largest[:, 0], weights.max(axis=1))
    assert np.array_equal(own, weights[np.arange(30), chosen.index])


def test_what_is_not_certified_is_solved_alone_and_read(monkeypatch):
    records = make_records(60, 3)
    chosen, made = replacements(records, 12), PROGRAMS["ipw_logistic"](ridge=0.02)
    (right,) = Neighborhood(made, records).solve(chosen, Moved(np.ones(60)))
    monkeypatch.setattr("dp2erm_cvx.neighbors.row_batch._MAX_SWEEPS", 1)
    (result,) = Neighborhood(made, records).solve(chosen, Moved(np.ones(60)))
    assert np.any(result.by_single)
    assert np.all(result.certified)
    assert np.all(np.abs(result.values[0] - right.values[0])[:, 0] <= result.radius + right.radius)
    assert np.all(np.abs(result.values[2] - right.values[2]) <= result.radius + right.radius)


@pytest.mark.parametrize("errors", [(1e-3, math.nan), (math.nan, 1e-3), (math.nan, math.inf)])
def test_a_solution_whose_error_is_no_number_is_never_the_best(monkeypatch, errors):
    # a comparison with what is no number is false, so that the order of solvers would decide
    def solution(_, candidate, __):
        error = errors[candidate.place]
        return SimpleNamespace(error=error, certified=False, certificate=SimpleNamespace())

    monkeypatch.setattr(solving, "_solve_one", solution)
    composite = SimpleNamespace(refuse_infeasible=lambda: None)
    instance = SimpleNamespace(model=object(), composite=composite)
    solvers = FirstCertified(tuple(SimpleNamespace(place=place) for place in (0, 1)))
    best, failures = solving._best_solution(instance, solvers, None, refused=False)
    assert best.error == np.nanmin(errors)
    assert failures == ()
