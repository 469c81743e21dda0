"""Programs of the literature have the weights of their CVXPY problems, which are written out here
in arrays.

Nothing of the library's reading or solving is used. And no pair of neighbors moves its weights
beyond V.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Universe
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import BalanceFunctions, Landmarks, Moments
from dp2erm_cvx.program.balance import balance_from_text
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.release.declaration import rebuilt
from dp2erm_cvx.solve import solve

#: Number of records, of covariates, and of records of the pairs.
N, P, FEW = 80, 3, 12
#: Weights of about 1 agree to this: Clarabel's own at tolerances that it hardly reaches.
AGREE = 2e-6
DOMAIN = Domain(1.0, 1.0, arm_floor=5)


def records_of(seed: int, n: int = N) -> Records:
    """Confounded records in the unit ball."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, P)) / math.sqrt(P)
    a = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))).astype(np.int64)
    a[:10] = np.arange(10) % 2
    return DOMAIN.records(X, a, np.zeros(n))


def minimized(w: cp.Variable, objective: Any, constraints: list[Any]) -> Array:
    """Weights by Clarabel at tolerances that it hardly reaches, in units of the objective near
    1.
    """
    problem = cp.Problem(cp.Minimize(objective / N), [*constraints, w >= 0])
    tight = {"tol_gap_abs": 1e-14, "tol_gap_rel": 1e-14, "tol_feas": 1e-14, "tol_ktratio": 1e-12}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", **tight)
    return np.asarray(w.value)


@dataclass(frozen=True)
class Arms:
    """Means of both arms under weights w, written by record.

    Parameters
    ----------
    g
        Values (n, k) of what is balanced.
    a
        Treatment (n,).
    constant
        Value of the constant.
    """

    g: Array
    a: Array
    constant: float

    def missed(self, w: cp.Variable) -> list[Any]:
        """Imbalances over n, one expression each."""
        n = len(self.a)
        found: list[Any] = []
        for arm in (1.0 - self.a, self.a):
            found.append(self.constant * (arm @ w / n - 0.5))
            for column in self.g.T:
                found.append((arm * column) @ w / n - float(np.mean(column)) / 2.0)
        return found

    def caps(self, cap: float, treated: float) -> Array:
        """Caps (n,) of the weights."""
        return np.where(self.a == 1, cap / (2.0 * treated), cap / (2.0 * (1.0 - treated)))


def squares(arms: Arms, w: cp.Variable, ridge: float) -> Any:
    """The price of squares: n |mean imbalance|^2 / (2 ridge)."""
    return len(arms.a) / (2.0 * ridge) * sum(cp.square(one) for one in arms.missed(w))


def logit(arms: Arms, ridge: float, cap: float, treated: float, low: float) -> Array:
    w = cp.Variable(N)
    caps = arms.caps(cap, treated)
    top = max(cap / (2.0 * treated), cap / (2.0 * (1.0 - treated)))
    # (w - L) log (w - L) + (U - w) log (U - w), whose slope at 1 is made 0
    slope = math.log((1.0 - low) / (top - 1.0))
    distance = cp.sum(-cp.entr(w - low) - cp.entr(top - w) - slope * w)
    scale = (1.0 - low) * (top - 1.0) / (top - low)
    return minimized(
        w, scale * distance + squares(arms, w, ridge), [cp.sum(w) == N, w >= low, w <= caps]
    )


def likelihood(arms: Arms, ridge: float, cap: float, treated: float, low: float) -> Array:
    w = cp.Variable(N)
    box = [cp.sum(w) == N, w >= low, w <= arms.caps(cap, treated)]
    return minimized(w, squares(arms, w, ridge) - cp.sum(cp.log(w)), box)


def dispersion(arms: Arms, ridge: float, cap: float, treated: float, tolerance: float) -> Array:
    w = cp.Variable(N)
    # what is beyond the tolerance, as variables of its own
    beyond = [cp.Variable(nonneg=True) for _ in arms.missed(w)]
    limits = []
    for one, more in zip(arms.missed(w), beyond, strict=True):
        limits += [one <= tolerance / 2.0 + more, -one <= tolerance / 2.0 + more]
    price = N / (2.0 * ridge) * sum(cp.square(more) for more in beyond)
    box = [cp.sum(w) == N, w <= arms.caps(cap, treated)]
    return minimized(w, cp.sum_squares(w - 1.0) / 2.0 + price, [*box, *limits])


def largest(arms: Arms, ridge: float, cap: float, treated: float, smoothing: float) -> Array:
    w = cp.Variable(N)
    missed = arms.missed(w)
    # the Moreau envelope by its definition, over what is compared in place of the imbalances
    other = cp.Variable(len(missed))
    parameter = smoothing * (arms.constant**2 + 1.0)
    apart = sum(cp.square(one - other[k]) for k, one in enumerate(missed))
    price = N * (cp.square(cp.norm_inf(other)) / (2.0 * ridge) + apart / (2.0 * parameter))
    box = [cp.sum(w) == N, w <= arms.caps(cap, treated)]
    return minimized(w, cp.sum_squares(w - 1.0) / 2.0 + price, box)


def raked(arms: Arms, ridge: float, cap: float, treated: float) -> Array:
    w = cp.Variable(N)
    missed: list[Any] = []
    for arm in (1.0 - arms.a, arms.a):
        missed.append(arms.constant * (arm @ w / N - 0.5))
        missed += [(arm * column) @ w / N for column in arms.g.T]
    price = N / (2.0 * ridge) * sum(cp.square(one) for one in missed)
    return minimized(w, price - cp.sum(cp.entr(w)), [cp.sum(w) == N, w <= arms.caps(cap, treated)])


def entropy(arms: Arms, ridge: float, cap: float, treated: float) -> Array:
    w = cp.Variable(N)
    box = [cp.sum(w) == N, w <= arms.caps(cap, treated)]
    return minimized(w, squares(arms, w, ridge) - cp.sum(cp.entr(w)), box)


#: Statements by program, with settings at which both are solved; the default ridge is 2.
STATED: dict[str, tuple[Callable[..., Array], list[dict[str, float]]]] = {
    "logit_calibration": (
        logit,
        [{}, {"ridge": 0.02, "cap": 1.6}, {"ridge": 0.01, "treated": 0.3, "low": 0.4}],
    ),
    "empirical_likelihood": (
        likelihood,
        [{}, {"ridge": 0.02, "cap": 1.6}, {"ridge": 0.01, "treated": 0.3, "low": 0.0}],
    ),
    "minimal_dispersion": (
        dispersion,
        [{}, {"ridge": 0.01, "cap": 1.5}, {"ridge": 0.005, "treated": 0.3, "tolerance": 0.01}],
    ),
    "residual_balancing": (
        largest,
        [
            {},
            {"ridge": 0.01, "smoothing": 0.05},
            {"ridge": 0.02, "treated": 0.3, "smoothing": 0.02},
        ],
    ),
    "raking": (raked, [{}, {"ridge": 0.02, "cap": 1.6}, {"ridge": 0.01, "treated": 0.3}]),
}
DEFAULTS = {
    "ridge": 2.0,
    "cap": 3.0,
    "treated": 0.5,
    "low": 0.1,
    "tolerance": 0.05,
    "smoothing": 1.0,
}
CASES = [
    pytest.param(name, settings, id=f"{name} {place}")
    for name, (_, several) in STATED.items()
    for place, settings in enumerate(several)
]


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_weights_are_those_of_the_problem_in_arrays(name, settings):
    stated, _ = STATED[name]
    own = programs()[name].settings
    whole = {key: value for key, value in DEFAULTS.items() if key in own} | settings
    program = programs()[name](**settings).at(Universe(DOMAIN, N, P))
    for seed in (0, 1):
        records = records_of(seed)
        arms = Arms(records.covariates, records.a, 1.0)
        found = solve(program.instance(records)).value
        np.testing.assert_allclose(found, stated(arms, **whole), atol=AGREE)


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", STATED)
def test_balance_functions_and_the_constant_are_those_of_the_problem(name):
    stated, _ = STATED[name]
    own = programs()[name].settings
    whole = {key: value for key, value in DEFAULTS.items() if key in own} | {"ridge": 0.05}
    records = records_of(2)
    X = records.covariates
    arms = Arms(np.hstack([X, X**2]), records.a, 0.3)
    if "smoothing" in whole:
        # its unit is the largest norm of a row: of both powers and the constant
        whole["smoothing"] = (2.0 + 0.3**2) / (1.0 + 0.3**2)
    program = programs()[name](ridge=0.05, balance=Moments(2), constant=0.3)
    np.testing.assert_allclose(
        solve(program.instance(records)).value, stated(arms, **whole), atol=AGREE
    )


@pytest.mark.one_row_in(12)
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_no_pair_of_neighbors_moves_beyond_the_bound(name, settings):
    """Pairs of few records, at the ends of their set: V counts the replaced record twice."""
    universe = Universe(DOMAIN, FEW, P)
    program = programs()[name](**settings).at(universe)
    stability = program.stability(universe)
    rng = np.random.default_rng(5)
    largest_found = 0.0
    for _ in range(4):
        X = rng.normal(size=(FEW, P))
        X /= np.linalg.norm(X, axis=1)[:, None]
        a = np.arange(FEW) % 2
        before = solve(program.instance(DOMAIN.records(X, a, np.zeros(FEW)))).value
        neighbor = X.copy()
        neighbor[0] = -X[0]
        changed = a.copy()
        changed[0] = rng.integers(2)
        after = solve(program.instance(DOMAIN.records(neighbor, changed, np.zeros(FEW)))).value
        moved = float(np.sum(np.abs(after - before)[1:]) + before[0] + after[0])
        largest_found = max(largest_found, moved)
        assert max(np.max(before), np.max(after)) <= stability.w_max * (1.0 + 1e-9)
    # some pair comes near enough to show that the pairs move at all
    assert 0.1 * stability.V < largest_found <= stability.V


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", STATED)
def test_a_rare_treatment_has_caps_of_its_own(name):
    """At a declared share of 20 % the treated may weigh four times what controls may."""
    settings = {"ridge": 0.005, "treated": 0.2, "cap": 2.0}
    if name == "residual_balancing":
        settings["smoothing"] = 0.005
    records = records_of(3)
    weights = solve(programs()[name](**settings).instance(records)).value
    controls = weights[records.a == 0]
    assert np.max(controls) == pytest.approx(1.25, abs=1e-6)
    assert np.max(weights) <= 5.0
    plain = {key: value for key, value in settings.items() if key not in ("treated", "cap")}
    free = solve(programs()[name](**plain).instance(records)).value
    assert np.max(free[records.a == 0]) > 1.3


def test_landmarks_are_public_points_whose_kernels_are_balanced():
    """Kernels at the points, without the half that is taken off and the root of their number."""
    landmarks = Landmarks(count=7, bandwidth=0.8, reach=0.6, seed=4)
    records = records_of(4)
    points = landmarks.points(P)
    assert points.shape == (7, P)
    assert np.max(np.abs(points)) <= 0.6
    apart = np.linalg.norm(records.covariates[:, None] - points[None], axis=2)
    kernels = np.exp(-(apart**2) / (2.0 * 0.8**2))
    values = landmarks(records.covariates)
    np.testing.assert_allclose(values * math.sqrt(7.0), kernels - 0.5, atol=1e-15)
    assert np.max(np.linalg.norm(values, axis=1)) <= landmarks.bound(1.0)
    program = programs()["landmark_balancing"](balance=landmarks, ridge=0.005, constant=0.5)
    stated = entropy(Arms((kernels - 0.5) / math.sqrt(7.0), records.a, 0.5), 0.005, 3.0, 0.5)
    np.testing.assert_allclose(solve(program.instance(records)).value, stated, atol=AGREE)
    # a point alone says nothing of other records
    np.testing.assert_array_equal(landmarks(records.covariates[5:6]), values[5:6])


def test_landmarks_are_written_in_a_study_and_read_from_a_release():
    landmarks = Landmarks(count=7, bandwidth=0.8)
    assert balance_from_text("landmarks:7:0.8") == landmarks
    assert balance_from_text(" Landmarks ") == Landmarks()
    assert balance_from_text("moments:2") == Moments(2)
    with pytest.raises(DeclarationError, match="COUNT:BANDWIDTH"):
        balance_from_text("landmarks:7:0.8:1:0:3")
    with pytest.raises(DeclarationError, match="whole number"):
        Landmarks(count=2.5)
    stated = programs()["landmark_balancing"](balance=landmarks).settings()["balance"]
    assert rebuilt(stated) == landmarks


def test_margins_of_raking_are_public():
    """Functions less their margins: both arms have the margins of the population, whatever the
    records.
    """
    margins = (0.1, -0.05, 0.2)
    centered = BalanceFunctions(lambda x: x - margins, 2.0, "margins")
    program = programs()["raking"](balance=centered, ridge=1e-5, cap=math.inf)
    records = records_of(6)
    weights = solve(program.instance(records)).value
    for arm in (0, 1):
        own = weights * (records.a == arm)
        np.testing.assert_allclose(own @ records.covariates / np.sum(own), margins, atol=1e-3)
