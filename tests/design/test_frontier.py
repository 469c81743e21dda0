"""What V costs in balance: rows against direct solves, order that the theory has, proposals,
refusals.
"""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Dataset, Domain, PrivateEffect, Universe
from dp2erm_cvx.design import FrontierRequest, PublicData, frontier
from dp2erm_cvx.design.rehearsal import (
    REHEARSED,
    PublicBalance,
    largest_distance,
    largest_movement,
    rehearsed_size,
)
from dp2erm_cvx.design.trade_off import choices, paper_curve
from dp2erm_cvx.errors import CertificateError, DeclarationError, ProgramError
from dp2erm_cvx.inference.rehearsal import normal_arms, normal_records
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.problems.minimal_dispersion import minimal_dispersion
from dp2erm_cvx.problems.stable_balancing import stable_balancing
from dp2erm_cvx.program import FirstStage, scheme
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.registry import first_stages
from dp2erm_cvx.program.scheme import Scheme
from dp2erm_cvx.program.stage import family_of
from dp2erm_cvx.report.figures import frontier_plot
from dp2erm_cvx.solve import solve
from tests.plugins import weighting as literature

PLAIN = Domain(1.0, 1.0)
KNOWN = first_stages()
IN_THE_WEIGHTS = [
    name for name, made in KNOWN.items() if issubclass(family_of(made), WeightsProgram)
]


@scheme(rho=0.1)
def kinked(w, records, rho):
    """A norm of the imbalance, which has a kink."""
    return cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1) + rho * cp.norm(records.signed.T @ w)), [w <= 3]
    )


@scheme(price=1.0)
def of_sums(w, records, price):
    """A price of sums, which is another one per record at every n."""
    of_imbalance = price * cp.sum_squares(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + of_imbalance), [w <= 3])


@scheme(tolerance=9.0)
def with_tolerance(w, records, tolerance):
    """A sum of so many records costs nothing, however many there are."""
    beyond = cp.sum_squares(cp.pos(cp.abs(records.signed.T @ w) - tolerance))
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + beyond / records.n), [w <= 3])


@scheme()
def of_two_terms(w, records):
    """A dispersion that is nearer to squares the more records there are."""
    dispersion = records.n * cp.sum_squares(w - 1) - 4000 * cp.sum(cp.entr(w))
    return cp.Problem(cp.Minimize(dispersion + cp.sum_squares(records.signed.T @ w)), [w <= 3])


@scheme(cap=3.0)
def exact(w, records, cap):
    """Balance within a limit, whose weights have no bound on how far they move."""
    limits = [cp.norm_inf(records.signed.T @ w) <= 0.001 * records.n, w <= cap]
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1)), limits)


@scheme()
def per_record(w, records):
    """A price per record, times n."""
    price = cp.sum_squares(records.signed.T @ w)
    return cp.Problem(cp.Minimize(price + records.n * cp.sum_squares(w - 1)), [w <= 3])


def request(n=60, columns=2, domain=PLAIN, **others):
    return FrontierRequest(
        Universe(domain, n, columns), **{"treated": 0.4, "distance": 0.8, **others}
    )


def test_normal_arms_have_the_declared_distance_and_spread():
    x, a = normal_arms(1000, 3, 0.3, 0.9)
    assert np.sum(a) == 300
    apart = np.mean(x[a == 1], axis=0) - np.mean(x[a == 0], axis=0)
    assert np.linalg.norm(apart) == pytest.approx(0.9, rel=1e-12)
    assert np.allclose(apart, apart[0])
    assert np.allclose(np.mean(x, axis=0), 0.0)
    along = x @ np.ones(3) / math.sqrt(3)
    assert np.var(along) == pytest.approx(1.0, rel=0.05)
    assert np.array_equal(normal_arms(1000, 3, 0.3, 0.9)[0], x)
    assert 0.3 * 0.7 * largest_distance(0.3) ** 2 == pytest.approx(0.8)


def test_records_fill_their_domain():
    plain = normal_records(Universe(PLAIN, 2000, 5), 2000, 0.5, 1e-6)
    outside = np.mean(np.linalg.norm(plain.covariates, axis=1) > 1.0 - 1e-9)
    assert outside == pytest.approx(0.05, abs=0.015)
    ranges = {"age": (20.0, 80.0), "bmi": (15.0, 45.0)}
    mapped = normal_records(
        Universe(Domain(math.sqrt(2), 1.0, ranges=ranges), 2000, 2), 2000, 0.5, 1e-6
    )
    assert np.allclose(np.std(mapped.covariates, axis=0), 1 / 3, rtol=0.02)
    floored = normal_records(Universe(replace(PLAIN, arm_floor=1000), 4000, 2), 400, 0.5, 0.5)
    assert floored.space.arm_floor == 100


def test_what_is_left_is_that_of_a_direct_solve():
    wanted = request(grids={"ridge": [0.05], "cap": [1.5]})
    (row,) = frontier(["entropy_balancing"], wanted).rows
    records = normal_records(wanted.universe, 60, 0.4, 0.8)
    x, a, n = records.covariates, records.a, 60
    w = cp.Variable(n)
    g = np.column_stack([np.ones(n), x])  # the constant is the norm bound of the covariates, 1
    imbalance = (
        cp.hstack([(g * (a == arm)[:, None]).T @ w - np.sum(g, axis=0) / 2 for arm in (0, 1)]) / n
    )
    caps = np.where(a == 1, 1.5 / (2 * 0.4), 1.5 / (2 * 0.6))
    price = n / (2 * 0.05) * cp.sum_squares(imbalance) - cp.sum(cp.entr(w))
    cp.Problem(cp.Minimize(price), [cp.sum(w) == n, w >= 0, w <= caps]).solve(solver="CLARABEL")
    v = w.value
    means = [np.average(x[a == arm], axis=0, weights=v[a == arm]) for arm in (0, 1)]
    plain = [np.mean(x[a == arm], axis=0) for arm in (0, 1)]
    spread = np.std(x, axis=0)
    left = np.linalg.norm((means[1] - means[0]) / spread) / np.linalg.norm(
        (plain[1] - plain[0]) / spread
    )
    assert row.left == pytest.approx(left, abs=1e-5)
    assert row.largest == pytest.approx(np.max(v), abs=1e-4)
    squares = sum(np.sum(v[a == arm] ** 2) / np.sum(v[a == arm]) ** 2 for arm in (0, 1))
    assert row.effective == pytest.approx((1 / 24 + 1 / 36) / squares, abs=1e-5)
    assert row.treated == pytest.approx(np.sum(v[a == 1]) / n, abs=1e-5)
    program = entropy_balancing(ridge=0.05, cap=1.5, treated=0.4)
    assert row.V == program.stability(wanted.universe).V


@pytest.mark.slow
def test_V_rises_and_less_is_left_as_the_ridge_falls():
    ridges = [1.0, 0.3, 0.1, 0.03]
    rows = frontier([stable_balancing], request(grids={"ridge": ridges})).rows
    assert [row.settings["ridge"] for row in rows] == ridges
    V = [row.V for row in rows]
    left = [row.left for row in rows]
    assert V == sorted(V)
    assert left == sorted(left, reverse=True)
    assert all(0.0 < row.moved <= row.V for row in rows)
    assert all(row.efficient for row in rows)


def test_what_was_found_is_a_movement_of_a_neighbor():
    universe = Universe(replace(PLAIN, arm_floor=10), 40, 2)
    program = entropy_balancing(ridge=0.1, cap=2.0, treated=0.4).at(universe)
    records = normal_records(universe, 40, 0.4, 0.8)
    w = solve(program.instance(records)).value
    found = largest_movement(program, records, w)
    # one of the neighbors that are tried, by hand: the lightest control becomes treated, at an end
    j = np.flatnonzero(records.a == 0)[np.argmin(w[records.a == 0])]
    X, a = records.X.copy(), records.a.copy()
    apart = np.mean(X[a == 1], axis=0) - np.mean(X[a == 0], axis=0)
    X[j] = -apart / np.linalg.norm(apart) * (1.0 - 1e-12)
    a[j] = 1
    other = solve(program.instance(universe.domain.records(X, a, records.y))).value
    moved = np.sum(np.abs(np.delete(w - other, j))) + w[j] + other[j]
    assert moved <= found + 1e-6 <= program.stability(universe).V


def test_rows_that_are_beaten_are_not_efficient():
    rows = frontier(["entropy_balancing"], request(grids={"ridge": [0.5], "cap": [1.5, 3.0]})).rows
    assert rows[0].V < rows[1].V
    assert rows[0].left == pytest.approx(rows[1].left, abs=1e-4)
    assert [row.efficient for row in rows] == [True, False]


@pytest.mark.slow
def test_the_proposal_is_the_least_half_width_and_its_absence_is_no_error():
    result = frontier(
        ["entropy_balancing", "stable_balancing"], request(grids={"ridge": [1.0, 0.1]})
    )
    widths = [row.half_width for row in result.rows]
    assert result.proposed is result.rows[int(np.argmin(widths))]
    assert f"Take: {result.proposed.scheme} at ridge = " in str(result)
    apart = frontier(["ipw_logistic"], request(grids={"ridge": [0.1, 0.01, 0.001]}))
    assert all(math.isnan(row.half_width) for row in apart.rows)
    assert apart.proposed.left <= 0.5
    nothing = frontier(["mmd"], request(grids={"ridge": [0.1]}))
    assert nothing.proposed is None
    assert nothing.rows[0].refusal.startswith("no bound: ")
    assert "arm" in nothing.rows[0].refusal
    assert "nothing is proposed" in str(nothing)


@pytest.mark.slow
def test_a_half_width_is_that_of_the_effect_itself():
    """An effect by the same weights, of records like the rehearsed ones, has an interval as
    wide.
    """
    n = 3000
    wanted = request(
        n=n, treated=0.4, distance=0.8, epsilon=2.0, grids={"ridge": [0.1], "cap": [2.0]}
    )
    (row,) = frontier(["entropy_balancing"], wanted).rows
    domain = replace(PLAIN, outcome_bound=6.0)
    records = normal_records(Universe(domain, n, 2), n, 0.4, 0.8)
    along = records.X @ np.ones(2)
    widths = []
    for seed in range(3):
        noise = np.random.default_rng(seed).standard_normal(n)
        y = along / np.std(along) + records.a + noise
        model = PrivateEffect(
            domain,
            Budget(2.0),
            residual_scale=1.0,
            confounding=0.8,
            weights=entropy_balancing(ridge=0.1, cap=2.0),
            seed=seed,
        )
        low, high = model.fit(records.X, records.a, y).interval_
        widths.append(0.5 * (high - low))
    assert row.half_width == pytest.approx(np.median(widths), rel=0.15)
    assert row.effect_V == pytest.approx(model.release_.weighting.stability, rel=0.05)
    assert row.V == pytest.approx(row.effect_V, rel=0.1)
    assert row.left == pytest.approx(model.release_.weighting.left / 1.1, abs=0.05)


@pytest.mark.slow
def test_a_half_width_grows_with_V_and_with_what_is_left():
    V_rises = frontier(
        ["entropy_balancing"], request(n=3000, grids={"ridge": [0.5], "cap": [2.0, 3.0]})
    ).rows
    assert V_rises[0].effect_V < V_rises[1].effect_V
    assert V_rises[0].left == pytest.approx(V_rises[1].left, abs=1e-4)
    assert V_rises[0].half_width < V_rises[1].half_width
    # a distance that is larger leaves more
    far = frontier(
        ["entropy_balancing"], request(n=3000, distance=1.2, grids={"ridge": [0.5], "cap": [2.0]})
    )
    assert far.rows[0].effect_V == V_rises[0].effect_V
    assert far.rows[0].half_width > V_rises[0].half_width
    # of many records V is next to nothing: what stays is sampling and the regression
    many = frontier(
        ["entropy_balancing"], request(n=400_000, grids={"ridge": [0.5], "cap": [2.0]})
    ).rows
    bases = 1 / 0.4 + 1 / 0.6
    assert many[0].half_width > 1.96 * math.sqrt(0.9 * bases / 400_000)


def test_weights_that_answer_no_effect_say_why():
    """At a released share of one treated in fifty no weights of mean 1 are below a cap of 1.5 half
    masses.
    """
    grids = {"ridge": [0.1], "cap": [1.5], "bases": ["even", "by_arm"]}
    even, by_arm = frontier(["entropy_balancing"], request(n=400, grids=grids)).rows
    assert math.isnan(even.half_width)
    assert "where a share of 0.02 is treated" in even.no_effect
    assert by_arm.half_width > 0.0
    assert by_arm.no_effect == ""


def test_a_scheme_without_a_bound_is_shown_as_such():
    result = frontier([stable_balancing], request(grids={"ridge": [1e-3, 1e-4]}))
    assert [row.V for row in result.rows] == [120.0, 120.0]
    assert " 2n " in str(result)
    assert "none is worth its noise" in str(result)
    # what holds for any weights is no secret of theirs: its noise is that of any two datasets
    assert all(row.half_width > 1.0 for row in result.rows)
    assert all(row.effect_V == 120.0 for row in result.rows)


def test_weights_that_are_refused_leave_the_bound(monkeypatch):
    def refuse(instance):
        raise CertificateError("no certificate, whatever is tried")

    monkeypatch.setattr("dp2erm_cvx.design.trade_off.solve", refuse)
    result = frontier([stable_balancing], request(grids={"ridge": [1e-4]}))
    (row,) = result.rows
    assert row.V == 120.0
    assert row.refusal == "no certificate, whatever is tried"
    assert "stable_balancing (V = 2n): no certificate" in str(result)
    assert result.proposed is None


def test_exact_balance_has_no_bound():
    (row,) = frontier([exact], request(grids={"cap": [1.01]})).rows
    assert math.isnan(row.V)
    assert row.refusal.startswith("no bound: exact")


def test_grids_by_default():
    wanted = request()
    assert len(choices(entropy_balancing(), wanted)) == 15
    assert all(chosen["treated"] == 0.4 for chosen in choices(entropy_balancing(), wanted))
    assert len(choices(stable_balancing(), wanted)) == 5
    assert choices(kinked(), wanted) == [{}]
    chosen = replace(wanted, grids={"ridge": (0.1, 0.2)})
    assert choices(stable_balancing(), chosen) == [{"ridge": 0.1}, {"ridge": 0.2}]
    with pytest.raises(DeclarationError, match="choices of settings = 300: must be at most 200"):
        choices(stable_balancing(), replace(wanted, grids={"ridge": tuple(range(1, 301))}))


@pytest.mark.slow
def test_records_in_the_place_of_n_only_where_they_tell_the_same():
    universe = Universe(PLAIN, 12_000, 2)
    for alike in (entropy_balancing(), stable_balancing(), minimal_dispersion(), per_record()):
        assert rehearsed_size(alike.at(universe), universe) == REHEARSED
    assert rehearsed_size(with_tolerance().at(universe), universe) == 12_000
    assert rehearsed_size(of_two_terms().at(universe), universe) == 12_000
    assert rehearsed_size(of_sums().at(universe), universe) == 12_000
    assert rehearsed_size(kinked().at(universe), universe) == 12_000
    larger = Universe(PLAIN, 100_000, 2)
    with pytest.raises(
        DeclarationError, match="of_sums: at n = 100,000 its prices per record are not known"
    ):
        rehearsed_size(of_sums().at(larger), larger)


@pytest.mark.slow
def test_public_records_take_the_place_of_normal_ones():
    x, a = normal_arms(80, 2, 0.25, 1.0)
    data = Dataset.from_arrays(0.3 * x, a, np.zeros(80))
    public = PublicData(data, source="made up")
    wanted = FrontierRequest(Universe(PLAIN, 500, 2), grids={"ridge": [0.1]}, public=public)
    result = frontier([entropy_balancing], wanted)
    (row,) = result.rows
    assert row.settings["treated"] == 0.25
    records = PLAIN.records(0.3 * x, a, np.zeros(80))
    program = entropy_balancing(ridge=0.1, treated=0.25)
    w = solve(program.at(Universe(PLAIN, 80, 2)).instance(records)).value
    assert row.left == PublicBalance.of(records, w).left
    assert row.V == program.stability(Universe(PLAIN, 500, 2)).V
    assert "made up" in str(result)
    with pytest.raises(DeclarationError, match="public: has 2 covariates"):
        replace(wanted, universe=Universe(PLAIN, 500, 3))
    with pytest.raises(DeclarationError, match="public: an arm has 20 records, and needs 24"):
        replace(wanted, universe=Universe(replace(PLAIN, arm_floor=150), 500, 2))


def test_an_arm_that_is_matched_counts_as_it_is():
    records = normal_records(Universe(PLAIN, 100, 2), 100, 0.4, 0.8)
    w = np.where(records.a == 0, 100 / 60, 0.0)
    balance = PublicBalance.of(records, w)
    assert balance.left == pytest.approx(1.0)
    assert balance.effective == pytest.approx(1.0)
    assert balance.treated == 0.0


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"treated": 0.0}, "treated = 0"),
        ({"treated": 1.0}, "treated = 1"),
        ({"treated": 0.01}, "an arm has 1 of 60 records, and needs 2"),
        ({"distance": -1.0}, "distance = -1"),
        ({"distance": 3.0}, "lie at most 1.83 standard deviations apart"),
        ({"epsilon": 0.0}, "epsilon = 0"),
        ({"grids": {"ridge": 0.1}}, "must be a list of values"),
        ({"grids": {"ridge": []}}, "must be a list of values"),
        ({"domain": replace(PLAIN, arm_floor=30)}, "an arm has 24 of 60 records, and needs 30"),
    ],
)
def test_requests_that_are_refused(declared, text):
    with pytest.raises(DeclarationError, match=text):
        request(**declared)


@pytest.mark.parametrize(
    ("schemes", "text"),
    [
        ([], "name one at least"),
        (["itr"], "itr: is a second stage"),
        ([KNOWN["ipw_private"]], "ipw_private: adds noise to its weights"),
        (["mmd", "mmd"], "name every one once"),
    ],
)
def test_schemes_that_are_refused(schemes, text):
    with pytest.raises(DeclarationError, match=text):
        frontier(schemes, request())


def test_names_and_settings_that_nobody_knows():
    with pytest.raises(ProgramError, match="unknown program 'nosuch'"):
        frontier(["nosuch"], request())
    with pytest.raises(DeclarationError, match="no scheme has a setting 'rigde'"):
        frontier(["mmd"], request(grids={"rigde": [1.0]}))


@pytest.mark.slow
def test_a_figure_shows_every_scheme(tmp_path):
    pytest.importorskip("matplotlib")
    floored = request(domain=replace(PLAIN, arm_floor=20), grids={"ridge": [1.0, 0.1]})
    result = frontier(["entropy_balancing", "stable_balancing"], floored)
    figure = frontier_plot(result, tmp_path / "trade.svg", [(0.9, 120.0)])
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == [
        "entropy balancing",
        "stable balancing",
        "entropy, the paper's bound",
        "proposed",
    ]
    with pytest.raises(DeclarationError, match="nothing to draw"):
        frontier_plot(replace(result, rows=()), tmp_path / "none.svg")


def test_the_bound_of_the_paper_stands_beside():
    points = paper_curve(request(domain=replace(PLAIN, arm_floor=20)))
    assert points
    assert all(0.0 < left <= 1.0 + 1e-9 and V > 2.0 for left, V in points)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_THE_WEIGHTS)
def test_every_scheme_in_the_weights_goes_through(name):
    assert len(IN_THE_WEIGHTS) >= 12
    made = KNOWN[name]
    wanted = request(n=100, domain=replace(PLAIN, arm_floor=30))
    result = frontier([made], wanted)
    program = made()
    assert isinstance(program, FirstStage)
    assert [row.refusal for row in result.rows] == [""] * len(result.rows)
    for row in result.rows:
        assert 0.0 < row.moved <= row.V <= 200.0
        assert 0.0 <= row.left < 1.01
        assert 0.0 < row.effective < 1.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme_of", [made for made in vars(literature).values() if isinstance(made, Scheme)]
)
def test_every_scheme_of_the_literature_answers_or_says_why_not(scheme_of):
    """At 400 records each takes a few seconds; exact balance alone has no bound."""
    universe = Universe(replace(PLAIN, arm_floor=100), 400, 5)
    (row,) = frontier([scheme_of], FrontierRequest(universe, grids={"cap": (3.0,)})).rows
    if row.scheme == "approximate_balance":
        assert "a hard constraint of an imbalance depends on the data" in row.refusal
        return
    assert row.refusal == ""
    assert 0.0 < row.left < 1.0
    assert row.moved <= row.V < 800.0
