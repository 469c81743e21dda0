"""Schemes and losses of the literature in a few lines: read, fitted, certified; wrong ones
refused.
"""

import inspect
import json
import math

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.sets import Box, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.problems.att_calibration import att_calibration
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.problems.odds_weights import odds_weights
from dp2erm_cvx.problems.overlap import overlap, overlap_private
from dp2erm_cvx.program import BalanceFunctions, Ball, Bound, FirstStage, form, scheme, second_stage
from dp2erm_cvx.program.declaration import with_n
from dp2erm_cvx.program.weights import describe
from dp2erm_cvx.solve import solve
from tests.plugins import literature
from tests.plugins.robust import robust
from tests.rows import one_of, slow

FIRST = [literature.matching, literature.tailored, literature.trimmed_ipw, literature.beta_weights]
STATED = [literature.penalized_balance, literature.entropy, robust]
FIRST += STATED
SECOND = [literature.pinball, literature.poisson, literature.expectile, literature.hinge_rule]
SECOND += [literature.bounded_influence, literature.group_lasso, literature.fused_lasso]
DOMAIN = Domain(1.5, 1.0, intercept=0.5)
N, P = 60, 3
UNIVERSE = Universe(DOMAIN, N, P)
GAMMA, NOISE = 0.3, np.array([0.5, -1.0, 2.0, 0.3])


def records(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return DOMAIN.records(rng.normal(size=(n, P)), rng.integers(0, 2, n), rng.uniform(-1, 1, n))


def every(programs, name="program"):
    return pytest.mark.parametrize(name, programs, ids=lambda one: one.name)


@pytest.mark.one_row_in(3)
@pytest.mark.filterwarnings("ignore:You are solving a parameterized problem")
@every(SECOND)
def test_theta_is_that_of_the_problem_as_it_is_declared(program):
    """CVXPY minimizes the function's own problem, with weights, gamma and noise written into its
    sum.
    """
    data, resolved, weights = records(), program().resolve(DOMAIN.space), np.linspace(0.5, 1.5, N)
    result = solve(resolved.instance(data, weights, gamma=GAMMA, noise=NOISE))
    declared, theta, problem = resolved.declared_problem(DOMAIN.space, N, P + 1)
    for datum in problem.parameters():
        datum.value = datum.of(data)
    objective, penalty = problem.objective.args[0], 0.0
    if type(objective).__name__ == "AddExpression":  # a sum of losses and a penalty
        objective, penalty = objective.args
    whole = cp.sum(cp.multiply(weights, objective.args[0])) + penalty
    whole += N * GAMMA / 2 * cp.sum_squares(theta) + NOISE @ theta
    cp.Problem(cp.Minimize(whole), problem.constraints).solve(solver="CLARABEL")
    np.testing.assert_allclose(result.value, theta.value, atol=2e-5)
    assert declared.n == N


@pytest.mark.one_row_in(4)
@every(FIRST)
def test_weights_move_by_no_more_than_their_bound(program):
    universe = Universe(DOMAIN, 40, P)
    placed = program().at(universe)
    bound = placed.stability(universe)
    rng, worst = np.random.default_rng(1), 0.0
    for seed in range(2):
        data, corner = records(seed, 40), rng.choice([-1.0, 1.0], P) * 1.4 / math.sqrt(P)
        other = data.replaced(0, np.array([0.5, *corner]), 1 - data.a[0])
        one, two = (solve(placed.instance(each)) for each in (data, other))
        worst = max(
            worst,
            float(np.sum(np.abs(one.value - two.value)) + 2 * min(one.value[0], two.value[0])),
        )
        assert max(one.value.max(), two.value.max()) <= bound.w_max * (1 + 1e-6)
    assert 0.02 * bound.V < worst <= bound.V


@pytest.mark.one_row_in(3)
@every(SECOND)
def test_gradients_stay_within_the_derived_constants(program):
    resolved = program().resolve(DOMAIN.space)
    constants = resolved.loss_constants(UNIVERSE)
    size = constants.theta_bound or 3.0
    rng, data = np.random.default_rng(2), records(3, 400)
    terms = resolved.rows(data)
    tilt = resolved.form(DOMAIN.space).term.numbers("tilt", data)
    tilt = 0.0 if tilt is None else tilt
    for _ in range(30):
        theta = rng.normal(size=P + 1)
        theta *= size * rng.uniform() / np.linalg.norm(theta)
        multiple = terms.multipliers * resolved.loss.slope(terms.margins(theta)) + tilt
        gradients = multiple[:, None] * terms.Z
        squared = np.sum(gradients**2, axis=1)
        apart = np.sqrt(np.max(squared[:, None] + squared[None, :] - 2 * gradients @ gradients.T))
        assert apart <= 2 * constants.gradient_radius
        assert np.sqrt(np.max(squared)) <= constants.gradient_bound


def released(first, second):
    data, model = records(n=200), PrivateTwoStageERM(DOMAIN, Budget(2.0), first, second)
    return model.fit(data.covariates, data.a, data.y, conditional=True)


@every(one_of(SECOND, len(SECOND)), "second")
@every([literature.tailored, slow(robust)], "first")
def test_a_release_rests_on_no_word_of_the_author_where_a_smaller_bound_is_derived(first, second):
    """The bound that the author of the second first stage states is above V, and is not used."""
    assumed = "; ".join(released(first(), second()).release_.guarantee.assumptions)
    assert "its author's word" not in assumed
    own = second().own_data()
    assert own is not None
    assert all(name in assumed for name in own)


@pytest.mark.slow
def test_a_release_stands_private_on_a_stated_bound():
    """Of a form, which has a public radius; below what is derived a stated bound is its author's
    word.
    """

    @scheme(rho=0.05)
    def near(w, records, rho):
        """Weights near 1 under a squared imbalance."""
        imbalance = cp.sum_squares(records.signed.T @ w) / records.n
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + rho * imbalance), [w <= 4.0])

    derived = near().at(Universe(DOMAIN, 200, P)).derived_bound(Universe(DOMAIN, 200, P))
    near.bound(lambda n: Bound.from_l2(1e-3, w_max=1.2))
    model = released(near(), "arm_means")
    plan = model.plan(200, P)
    assert plan.bound.V < derived.V
    said = " ".join(str(plan).split())
    assert f"near: V = {plan.bound.V:.4g} rests on the bound that its author states." in said
    stated = json.loads(model.release_.to_json())["guarantee"]
    assert (stated["standing"], stated["stability_theorem"]) == ("private", "stated bound")
    assert any("what the author of the program states" in one for one in stated["assumptions"])
    assert any("its author's word" in one for one in stated["assumptions"])
    weights = model.private_workings_.weights
    assert weights.certified
    assert np.ptp(weights.value) > 1e-4


@pytest.mark.one_row_in(3)
@every(one_of([*FIRST, *SECOND], 3))
def test_what_is_derived_is_on_one_screen(program):
    rows = dict(describe(program(), Universe(DOMAIN, 400, P)))
    assert rows["minimize"] == program.formula
    assert "Promote" not in rows["minimize"]
    assert inspect.getsource(program.function).count("\n") <= 8  # a scheme is a few lines
    if issubclass(program.family, FirstStage):
        assert "at n = 400" in rows["V"]
    own = program().own_data()
    assumed = f"{', '.join(own)} is made record by record" if own else "nothing"
    if program in STATED and "stated" not in rows:  # which says that it is not used
        assumed = "the bound as its author states it, and functions of one record alone"
    assert rows["assumed"] == assumed


def test_certificates_and_remedies_are_described_and_n_is_written_as_such():
    universe = Universe(DOMAIN, 400, P)
    both = literature.penalized_balance(), robust()
    read, kinked = (dict(describe(one, universe)) for one in both)
    assert "on every dataset" in read["certificate"]
    assert "half of the digits" in kinked["certificate"]
    assert "/ n)" in read["minimize"]
    assert with_n("5 x + 0.2 y + 5a - 3", "8 x + 0.125 y + 5a - 3") == "n x + 1/n y + 5a - 3"
    counts = of_theta(lambda v, r: cp.sum(cp.exp(r.x @ v)), lambda v, r: [])()
    told = "none: made: the gradient of its loss is unbounded over WholeSpace; choose an l1"
    assert dict(describe(counts(), universe))["theorem"].startswith(told)


def test_a_ridge_takes_the_place_of_a_ball_for_exponential_losses():
    def made(ridge):
        return of_margin(lambda s: cp.exp(-s) - s, cp.logistic, ridge=ridge)()()

    result = solve(made(1.0).resolve(DOMAIN.space).instance(records()))
    assert result.certified
    assert np.linalg.norm(result.point) <= 2 * 1.5
    with pytest.raises(
        DeclarationError, match="out of reach; declare a radius of at most 12/G = 8"
    ):
        made(0.1).stability(UNIVERSE)


def test_a_private_variant_is_one_call():
    program = literature.matching().private(share=0.4)
    assert program.name == "matching_private"
    assert program.share == 0.4
    bound = program.stability(Universe(Domain(1.0, 1.0), 500, 3))
    assert bound.V == pytest.approx(2 * bound.w_max)
    # the library's own variant is taken where there is one: a release knows it by its name
    assert overlap(radius=2).private(share=0.3) == overlap_private(radius=2, share=0.3)


def test_noise_and_gamma_enter_a_private_coefficient_as_theorem_9_has_them():
    data, program = records(), literature.matching().private().resolve(DOMAIN.space)
    result = solve(program.perturbed(data, GAMMA, NOISE))
    v = cp.Variable(P + 1)
    margins = ((2 * data.a - 1)[:, None] * data.X) @ v
    penalty = N * (program.ridge + GAMMA) / 2 * cp.sum_squares(v) + NOISE @ v
    ball = [cp.norm(v) <= program.radius]
    cp.Problem(cp.Minimize(cp.sum(cp.logistic(-margins)) + penalty), ball).solve(solver="CLARABEL")
    np.testing.assert_allclose(result.point, v.value, atol=2e-5)
    f = np.exp(np.minimum(-margins.value, 0))
    np.testing.assert_allclose(result.value, N * f / f.sum(), rtol=1e-4)


def of_margin(loss, weight=lambda s: -s, **settings):
    def made(s):
        """A scheme."""
        return loss(s), weight(s)

    return lambda: scheme.separable(**{"ridge": 1.0, **settings})(made)


def of_theta(objective, sets=lambda theta, records: [cp.norm(theta) <= 1]):
    def made(theta, records):
        """A loss."""
        return cp.Problem(cp.Minimize(objective(theta, records)), sets(theta, records))

    return lambda: second_stage(made)


def of_weights(objective, sets=lambda w, records: []):
    def made(w, records):
        """Weights."""
        return cp.Problem(cp.Minimize(objective(w, records)), sets(w, records))

    return lambda: scheme(made)


def residual(theta, records):
    return records.y - records.x @ theta


def squares(theta, records):
    return cp.sum_squares(residual(theta, records))


CHANGES, RIDGE = "its set of theta changes with the records", "records.n * R(theta)"
NO_SET, READ = "no set that is read", "one number per record"
#: By what an author declares: the part that is wrong, and what the refusal says.
OF_MARGIN = [
    ((lambda s: -cp.exp(s),), {}, "not convex by DCP: -exp(s)"),
    ((lambda s: cp.log(1 + cp.exp(-s)),), {}, "log(1 + exp(s)) is logistic(s)"),
    ((cp.abs,), {}, "abs(s): no curve is known"),
    ((lambda s: -s,), {}, "no curvature"),
    ((cp.logistic, cp.sqrt), {}, "no curve is known"),
    ((cp.logistic, lambda s: "s"), {}, "returns other values: return (loss, log weight)"),
    ((cp.logistic,), {"ridge": -1.0}, "ridge = -1.0"),
    ((cp.logistic,), {"ridge": "M +"}, "is no formula"),
    ((cp.logistic,), {"ridge": "1 << 2"}, "a formula has numbers, M"),
    ((cp.logistic,), {"ridge": "'1' + '2'"}, "a formula has numbers, M"),
    ((cp.logistic,), {"ridge": "9**9**9"}, "is no finite number"),
]
OF_THETA = [
    (
        (lambda v, r: cp.sum_squares(cp.Parameter(r.n, name="q") - r.x @ v),),
        "parameter q has no public set",
    ),
    ((lambda v, r: cp.sum(cp.logistic(cp.multiply(r.y, r.x @ v))),), READ),
    ((lambda v, r: cp.sum(cp.square(np.ones((r.n, r.n)) @ (r.x @ v))),), READ),
    (
        (lambda v, r: cp.norm(residual(v, r)),),
        "no sum over records, and a penalty of theta holds no data",
    ),
    ((lambda v, r: squares(v, r) + r.n * cp.norm(cp.sum(r.y) * v),), "holds no data"),
    ((lambda v, r: squares(v, r) + r.n * (1 + 1 / r.n) * cp.norm(v),), RIDGE),
    ((lambda v, r: squares(v, r) + cp.norm(v),), RIDGE),
    ((lambda v, r: squares(v, r) + r.n * cp.sum(cp.exp(v)),), "no penalty that is read"),
    ((lambda v, r: cp.sum_squares(r.z - r.x @ v),), "records have no 'z'"),
    (
        (lambda v, r: squares(v, r) + cp.sum(cp.logistic(r.signed @ v)),),
        "2 are written, of the rows",
    ),
    (
        (lambda v, r: squares(v, r) + cp.sum(cp.square(r.x @ v - r.treatment)),),
        "2 are written, of the rows",
    ),
    ((lambda v, r: squares(v, r) + r.n * v.size * cp.sum_squares(v),), RIDGE),
    ((lambda v, r: squares(v, r) + cp.sum_squares(v),), RIDGE),
    (
        (lambda v, r: cp.sum_squares(r.y - r.rows("z", lambda x, a, y: x, 1.0) @ v),),
        "1.0: must be Ball(r)",
    ),
    (
        (lambda v, r: cp.sum_squares(r.y - r.by_arm() @ v),),
        "one entry for every column of records.x",
    ),
    ((squares, lambda v, r: [cp.norm(v - 2) <= 1]), NO_SET),  # without 0
    ((squares, lambda v, r: [cp.norm(v) <= cp.sum(r.y)]), NO_SET),
    ((squares, lambda v, r: [cp.power(v, 3) <= 1]), NO_SET),
    ((squares, lambda v, r: [cp.norm(v) <= r.n / 4]), CHANGES),
    ((squares, lambda v, r: [cp.abs(v) <= 1 / v.size]), CHANGES),
]


def of_own_rows(margin):
    return cp.sum(cp.logistic(margin - 1) + cp.huber(2 * margin, 1.0))


#: Losses that are one margin, and the same ones as they are usually written, up to what moves no
#: minimizer.
ONE_MARGIN = {
    "two squares": (
        lambda v, r: cp.sum(cp.square(r.y - r.x @ v) + 3 * cp.square(r.x @ v - 2)),
        lambda v, r: 4 * cp.sum(cp.square(r.x @ v - r.y / 4 - 1.5)),
    ),
    "multiples of an outcome": (
        lambda v, r: cp.sum_squares(r.y - r.x @ v) + cp.sum_squares(2 * r.x @ v + r.y),
        lambda v, r: 5 * cp.sum(cp.square(r.x @ v + r.y / 5)),
    ),
    "a constant row": (
        lambda v, r: cp.sum_squares(r.y - r.x @ v - 2 * v[0]),
        lambda v, r: cp.sum_squares(
            r.y - r.rows("z", lambda x, a, y: x + 2 * np.eye(len(x))[0], Ball(9)) @ v
        ),
    ),
    "a constant row of any curve": (
        lambda v, r: cp.sum(cp.logistic(r.x @ v + v[1] - 1) + cp.huber(2 * (r.x @ v + v[1]), 1.0)),
        lambda v, r: of_own_rows(r.rows("z", lambda x, a, y: x + np.eye(len(x))[1], Ball(9)) @ v),
    ),
}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", ONE_MARGIN)
def test_a_loss_of_one_margin_is_read_as_one(name):
    """Both ways of writing it have one minimizer, and the bound of the rows counts the constant
    row.
    """
    first, second = (of_theta(loss)() for loss in ONE_MARGIN[name])
    one, two = (
        solve(made().instance(records(), np.ones(N), gamma=GAMMA, noise=NOISE))
        for made in (first, second)
    )
    np.testing.assert_allclose(one.value, two.value, atol=1e-9)
    program = first().at(UNIVERSE)
    size = np.max(np.linalg.norm(program.rows(records()).Z, axis=1))
    assert size <= program.row_bounds(UNIVERSE).norm <= 1.5 + 2.0 + 1e-9


def test_a_constant_row_counts_in_the_noise():
    """The gradient of a record is longer by the constant row: at most (M + 2) in place of M."""
    plain, shifted = (of_theta(loss)() for loss in (squares, ONE_MARGIN["a constant row"][0]))
    constants = [made().constants(UNIVERSE) for made in (plain, shifted)]
    assert constants[1].hessian_trace == pytest.approx(2 * 3.5**2)
    assert constants[1].gradient_radius > constants[0].gradient_radius


OF_WEIGHTS = [
    ((lambda w, r: cp.norm(r.signed.T @ w),), "no strong convexity"),
    (
        (lambda w, r: cp.sum(cp.exp(w)), lambda w, r: [r.signed.T @ w == 0]),
        "is not read here: write -cp.sum(cp.entr(w))",
    ),
    (
        (lambda w, r: cp.sum_squares(w), lambda w, r: [cp.mean(w) == 2]),
        "write cp.sum(w) == records.n, or leave it out",
    ),
    ((lambda w, r: cp.sum_squares(w - 1) + 0.0 * len(r.x.shape),), "'x' is asked for and no part"),
]
WRONG = [
    *((of_margin(*parts, **settings), why) for parts, settings, why in OF_MARGIN),
    *((of_theta(*parts), why) for parts, why in OF_THETA),
    *((of_weights(*parts), why) for parts, why in OF_WEIGHTS),
    (lambda: scheme.separable(of_margin), "as in @scheme.separable(ridge=1.0)"),
    (lambda: scheme.separable(radius=2.0), "as in @scheme.separable(ridge=1.0)"),
    (lambda: scheme.known(of_margin), "as in @scheme.known(least=0.1, most=10.0)"),
    (lambda: scheme.moments(of_margin), "as in @scheme.moments(norm_bound=1.0)"),
    (
        lambda: scheme.separable(ridge=1.0, power=2.0)(lambda s: (s, s)),
        "must be a keyword of the decorator",
    ),
]


@pytest.mark.parametrize(("declare", "why"), WRONG, ids=[why for _, why in WRONG])
def test_a_wrong_declaration_is_refused_in_one_line(declare, why):
    with pytest.raises(DeclarationError) as caught:
        declare()
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_stated_bound_is_what_its_author_returns():
    @scheme(cap=2.0)
    def even(w, records, cap):  # a docstring is not required
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + cp.sum(cp.exp(-w))), [w <= cap])

    universe = Universe(Domain(1.0, 1.0), 100, 2)
    assert even().stability(universe).V == 200

    @even.bound
    def _(n, cap):
        return Bound.from_l2(0.1 * cap, w_max=cap)

    assert even().stability(universe).V == pytest.approx(99**0.5 * 0.2 + 4.0, rel=1e-6)

    def stating(number):
        return lambda: Bound.from_l2(number)

    for number in (math.nan, -1.0):
        even.bound(stating(number))
        with pytest.raises(DeclarationError, match=f"even: its bound states l2 = {number}"):
            even().stability(universe)


def test_rows_of_an_author_are_shrunk_into_their_set_and_made_alone():
    @second_stage()
    def doubled(theta, records):
        """Rows twice as long as declared, of a record alone: of many records at once they would be
        0.
        """
        rows = records.rows("twice", lambda x, a, y: 2 * x if x.ndim == 1 else 0 * x, Ball(1.0))
        return cp.Problem(cp.Minimize(cp.sum(cp.logistic(rows @ theta))), [cp.norm(theta) <= 1])

    Z = doubled().resolve(DOMAIN.space).rows(records()).Z
    lengths = np.linalg.norm(Z, axis=1)
    assert np.max(lengths) <= 1.0
    assert np.min(lengths) > 0.0


@pytest.mark.parametrize("read", [L2Ball(2.0), L2Ball(0.5), L1Ball(1.0), Box(1.0), WholeSpace()])
def test_a_misread_set_is_caught_by_cvxpy(read, monkeypatch):
    monkeypatch.setattr(form, "_set", lambda constraints, v: read)
    with pytest.raises(DeclarationError, match=r"<= 1 was read as"):
        of_theta(squares)()


def test_a_declaration_is_compared_at_every_settings(monkeypatch):
    """A divisor of 1 would hide that it is not read."""

    @second_stage(width=1.0)
    def own(theta, records, width):
        return cp.Problem(cp.Minimize(cp.sum(cp.logistic(residual(theta, records) / width))))

    right = form._margin
    monkeypatch.setattr(form, "_margin", lambda e, v: right(e.args[0], v))
    with pytest.raises(DeclarationError, match="was read as something with other values"):
        own(width=0.5).resolve(DOMAIN.space)


@pytest.mark.parametrize("fault", ["sign", "threshold", "offset"])
def test_a_misread_loss_is_caught_by_cvxpy(fault, monkeypatch):
    right = form._margin
    wrong = {
        "threshold": ("atom", lambda kind, k=1.0: atom(kind, 1.1 * k)),
        "sign": ("_margin", lambda e, v: (-right(e, v)[0], *right(e, v)[1:])),
        "offset": ("_margin", lambda e, v: (*right(e, v)[:2], None, right(e, v)[3])),
    }
    monkeypatch.setattr(form, *wrong[fault])
    with pytest.raises(DeclarationError, match="was read as something with other values"):
        of_theta(lambda theta, r: cp.sum(cp.huber(residual(theta, r) + 0.3, 0.4)))()


def test_functions_of_an_author_that_are_broken_are_refused_in_public():
    def misspelt(x, a):
        return 1 / probability[a]  # noqa: F821

    def no_number(x, a):
        return math.nan

    for function, reason in (
        (misspelt, "'probability', which is not defined"),
        (no_number, "is no number"),
    ):
        with pytest.raises(DeclarationError, match=reason):
            scheme.known(least=0.5, most=2.0)(function)().stability(UNIVERSE)
    maps = (
        (lambda x, a, y: x * probability, "not defined"),  # noqa: F821
        (lambda x, a, y: x[1:], "returns 3 numbers"),
    )
    for make, reason in maps:
        own = of_weights(
            lambda w, r, make=make: (
                cp.sum_squares(w - 1) + cp.sum_squares(r.rows("own", make, Ball(1.0)).T @ w)
            )
        )
        with pytest.raises(DeclarationError, match=f"'own' .*{reason}"):
            own()().resolve(DOMAIN.space).certified_error(UNIVERSE)  # asked for when planned
    for rule in (0.5, lambda effect: effect > 0):
        with pytest.raises(DeclarationError, match="treats"):
            second_stage(treats=rule)


@pytest.mark.slow
def test_balance_functions_of_an_author_are_named_by_a_release():
    curves = BalanceFunctions(lambda x: np.append(x, x**2), 2.0, "curves")

    @scheme(balance=curves, ridge=10.0)
    def of_curves(w, records, balance, ridge):
        """Means of covariates and of their squares."""
        missed = records.features(balance, "signed").T @ w
        return cp.Problem(
            cp.Minimize(cp.sum_squares(missed) + records.n * ridge * cp.sum_squares(w))
        )

    long = BalanceFunctions(lambda x: 9.0 * x, 0.5)(np.ones((3, 2)))
    assert np.linalg.norm(long, axis=1) == pytest.approx(np.full(3, 0.5))
    sines = entropy_balancing(balance=BalanceFunctions(np.sin, 2.0, "sines"))
    for program, name in ((of_curves(), "curves"), (sines, "sines")):
        assert program.own_data() == (name,)
        assert f"{name} is made record by record" in dict(describe(program, UNIVERSE))["assumed"]
    assumed = released(of_curves(), SECOND[0]()).release_.guarantee.assumptions
    assert any("curves" in one and "that record alone" in one for one in assumed)


@pytest.mark.parametrize(
    "made", [odds_weights(ridge=1e-3, radius=3.0), att_calibration(ridge=1e-3, low=0.05)]
)
def test_weights_of_the_effect_on_the_treated_balance_the_controls_to_them(made):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (4000, 1))
    a = (rng.random(4000) < 1 / (1 + np.exp(-1.5 * X[:, 0]))).astype(int)
    domain = Domain(1.5, 1.0, intercept=1.0)
    weights = solve(made.resolve(domain.space).instance(domain.records(X, a, np.zeros(4000)))).value
    controls = np.average(X[a == 0, 0], weights=weights[a == 0])
    assert controls == pytest.approx(X[a == 1, 0].mean(), abs=0.05)
    assert np.ptp(weights[a == 1]) < 1e-12
