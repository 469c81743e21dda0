"""A scheme holds what was read of it, and what sets noise is derived from that alone."""

import copy
import dataclasses
import itertools
import pickle
import sys
import tracemalloc
import types
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, Ledger, PrivateTwoStageERM, TwoStageERM, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.problems import itr as itr_module
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.itr import itr, itr_huber
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.problems.mmd import mmd_pooled
from dp2erm_cvx.program import (
    Ball,
    Bound,
    Gaussian,
    L2Ball,
    Moments,
    SecondStage,
    scheme,
    second_stage,
    trust,
)
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.program.scheme import Scheme
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.program.weights import describe

DOMAIN = Domain(1.0, 1.0)
BUDGET = Budget(1.0)
OWN = "classes of programs are the library's"


def plan(second="itr", first="uniform", n=200, p=2):
    return PrivateTwoStageERM(DOMAIN, BUDGET, first, second).plan(n, p)


def table(n=60, p=2):
    rng = np.random.default_rng(0)
    return rng.uniform(-0.5, 0.5, (n, p)), np.arange(n) % 2, rng.uniform(-1, 1, n)


def less_noise(self, universe):
    """Constants that nothing derives."""
    derived = SecondStage.loss_constants(self, universe)
    return dataclasses.replace(derived, gradient_radius=1e-3, gradient_bound=1e-3)


# classes of one's own


def test_a_class_on_a_scheme_is_refused_where_it_stands():
    with pytest.raises(DeclarationError, match=f"a class based on itr: {OWN}"):

        class Mine(itr):
            loss_constants = less_noise


CLAIMS = {
    "nothing": {},
    "an attribute": {"_made": True},
    "a module": {"__module__": "dp2erm_cvx.program.second_stage"},
    "a module and a name": {
        "__module__": "dp2erm_cvx.program.second_stage",
        "__qualname__": "SecondStage",
        "__name__": "SecondStage",
    },
    "another way to be read": {
        "read_at": lambda self, *place: self,
        "resolve": lambda self, domain: self,
    },
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("base", [type(itr()), type(ipw_logistic()), Uniform, type(mmd_pooled())])
def test_a_class_of_ones_own_is_refused_whatever_it_claims(base, claim, monkeypatch):
    mine = type("Mine", (base,), {**CLAIMS[claim]})
    monkeypatch.setattr(sys.modules["dp2erm_cvx.problems.itr"], "Mine", mine, raising=False)
    with pytest.raises(DeclarationError, match=OWN):
        mine()
    if base is SecondStage:
        parts = itr.settings, itr.formulas, itr.options
        with pytest.raises(DeclarationError, match=OWN):
            Scheme(itr.function, mine, *parts)()


@pytest.mark.parametrize("claim", CLAIMS)
def test_an_object_of_a_class_of_ones_own_is_refused_before_anything_is_charged(claim, tmp_path):
    mine = type("Mine", (SecondStage,), {**CLAIMS[claim], "loss_constants": less_noise})
    forged = object.__new__(mine)
    vars(forged).update(vars(itr()))
    ledger = Ledger(tmp_path / "book.db")
    ledger.declare("trial", BUDGET)
    model = PrivateTwoStageERM(DOMAIN, BUDGET, "uniform", forged, ledger=ledger, dataset="trial")
    with pytest.raises(DeclarationError, match=OWN):
        model.fit(*table())
    assert not ledger.account("trial").receipts


def test_the_classes_of_the_library_are_listed_by_hand_and_completely():
    made = [made for made in programs().values() if isinstance(made, type)]
    for module, names in trust.LIBRARY.items():
        assert all(isinstance(getattr(sys.modules[module], name), type) for name in names)
    assert made
    assert all(map(trust.of_library, made))
    assert all(
        trust.of_library(made.family) for made in programs().values() if isinstance(made, Scheme)
    )
    assert not trust.of_library(Program)


def test_schemes_of_the_library_are_known_by_the_object_and_its_function():
    parts = itr.function, itr.family, itr.settings, itr.formulas, itr.options
    assert itr.of_library
    assert not Scheme(*parts).of_library
    other = second_stage()(lambda theta, records: itr.function(theta, records))
    vars(other)["__module__"] = itr_module.__name__
    assert not other.of_library


# programs that are changed after they were made


def patched(program, name, value):
    object.__setattr__(program, name, value)
    return program


def forged_reading():
    program = itr()
    part = dataclasses.replace(program.loss.parts[0], coefficient=1e-6)
    curve = dataclasses.replace(program.loss, parts=(part,))
    term = dataclasses.replace(program.reading.form.term, curve=curve)
    form = dataclasses.replace(program.reading.form, term=term)
    return patched(program, "reading", dataclasses.replace(program.reading, form=form))


def forged_resolved_reading():
    program = forged_reading()
    return patched(program, "reading", dataclasses.replace(program.reading, space=DOMAIN.space))


def small_ball():
    ball = L2Ball(2.0)
    object.__setattr__(ball, "norm_bound", lambda p: 1e-6)
    return itr(theta_set=ball)


PATCHED = {
    "a method": lambda: patched(itr(), "loss_constants", partial(less_noise, itr())),
    "a bound of weights": lambda: patched(ipw_logistic(), "bound", lambda universe: None),
    "how it is resolved": lambda: patched(itr(), "resolve", lambda domain: itr()),
    "how it is read": lambda: patched(itr(), "read_at", lambda *place: itr()),
    "a name": lambda: patched(itr(), "name", "mine"),
    "what was read": forged_reading,
    "what was read in the space": forged_resolved_reading,
    "a number of its own that its check refuses": lambda: patched(
        itr_huber(), "own", {"threshold": np.nan}
    ),
    "a set that its check refuses": lambda: patched(itr(), "theta_set", "none"),
    "a scheme of another class": lambda: patched(itr(), "scheme", ipw_logistic),
    "what is no scheme": lambda: patched(itr(), "scheme", types.SimpleNamespace(**vars(itr))),
    "a method of a set": small_ball,
    "a number of a set": lambda: itr(theta_set=patched(L2Ball(2.0), "radius", -1.0)),
    "a ridge": lambda: patched(ipw_logistic(), "ridge", -1.0),
    "what was read of margins": lambda: patched(
        ipw_logistic(ridge=0.1), "reading", ipw_logistic(trim=2.0).reading
    ),
    "weights of the library": lambda: patched(Uniform(), "bound", lambda universe: None),
    "a kernel": lambda: mmd_pooled(kernel=patched(Gaussian(), "bound", lambda size: 1e-6)),
    "a number of balance functions": lambda: ipw_like(patched(Moments(2), "degree", -3)),
}


def ipw_like(balance):
    return programs()["inverse_probability_tilting"](balance=balance)


@pytest.mark.parametrize("what", PATCHED)
def test_a_program_that_was_changed_after_it_was_made_is_refused_before_the_charge(what, tmp_path):
    ledger = Ledger(tmp_path / "book.db")
    ledger.declare("trial", BUDGET)

    def fitted():
        program = PATCHED[what]()
        stages = ("uniform", program) if isinstance(program, SecondStage) else (program, "itr")
        return PrivateTwoStageERM(DOMAIN, BUDGET, *stages, ledger=ledger, dataset="trial").fit(
            *table()
        )

    with pytest.raises(DeclarationError) as refusal:
        fitted()
    assert "\n" not in str(refusal.value)
    assert not ledger.account("trial").receipts


def test_a_copy_cannot_be_given_another_reading():
    with pytest.raises(ValueError, match="reading"):
        dataclasses.replace(itr(), reading=itr_huber().reading)
    with pytest.raises(ValueError, match="place"):
        dataclasses.replace(itr(), place=(DOMAIN, 200, 2))
    with pytest.raises(DeclarationError, match="its own settings are threshold"):
        dataclasses.replace(itr(), scheme=itr_huber)
    other = dataclasses.replace(itr(), scheme=programs()["regression"])
    assert other.loss == programs()["regression"]().loss


def test_a_scheme_cannot_be_changed():
    for name in ("function", "family", "options", "loss_constants"):
        with pytest.raises(DeclarationError, match=f"itr.{name} cannot be set"):
            setattr(itr, name, None)
    with pytest.raises(TypeError):
        itr.options["treats"] = None


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
@pytest.mark.parametrize(
    "program", [itr_huber(threshold=0.5), ipw_logistic(trim=3.0), ipw_private()]
)
def test_a_copy_is_read_anew(program, again):
    universe = Universe(DOMAIN, 60, 2)
    for one in (program, program.at(universe)):
        other = again(one)
        assert other == one
        assert other.scheme is one.scheme
        assert other.place == one.place
        assert other.loss == one.loss
    forged = patched(again(program), "reading", None)
    assert again(forged).loss == program.loss


def test_a_rule_of_an_author_makes_a_scheme_and_no_class():
    @second_stage(treats=lambda effect, x: effect - 0.1)
    def careful(theta, records):
        """A rule with a margin."""
        return cp.Problem(
            cp.Minimize(cp.sum_squares(records.x @ theta - records.response)), [cp.norm(theta) <= 1]
        )

    assert isinstance(careful, Scheme)
    assert type(careful()) is SecondStage
    assert plan(careful()).bound.V < 2.1


# declarations that change with the sizes of the data


def huber(theta, records, threshold=1.0, *sets):
    loss = cp.sum(cp.huber(records.x @ theta - records.y, threshold))
    return cp.Problem(cp.Minimize(loss), [*sets, cp.norm(theta) <= 1])


def switched(small, large, is_large):
    return large if is_large else small


def squares(theta, records, ridge=0.0):
    loss = cp.sum_squares(records.x @ theta - records.y) + ridge * cp.sum_squares(theta)
    return cp.Problem(cp.Minimize(loss), [cp.norm(theta) <= 1])


def shifted(theta, records, number):
    loss = cp.sum(cp.logistic(records.x @ theta - number * records.y))
    return cp.Problem(cp.Minimize(loss), [cp.norm(theta) <= 1])


def mapped(theta, records, make, low=-1.0):
    u = records.numbers("u", make, low, 1.0)
    return cp.Problem(
        cp.Minimize(cp.sum(cp.logistic(records.x @ theta - u))), [cp.norm(theta) <= 1]
    )


def ball(theta, records, radius):
    return cp.Problem(
        cp.Minimize(cp.sum_squares(records.x @ theta - records.y)), [cp.norm(theta) <= radius]
    )


def tilted(theta, records, multiple):
    scores = records.x @ theta
    return cp.Problem(
        cp.Minimize(cp.sum(cp.logistic(scores)) - multiple * records.y @ scores),
        [cp.norm(theta) <= 1],
    )


def capped(x, a, y, most=1.0):
    return min(x[0], most)


def half(x, a, y):
    return x[0] / 2


CHANGING = {
    "a curve at 40": lambda t, r: huber(t, r, 1.0 if r.n < 40 else 9.0),
    "a curve at 5000": lambda t, r: huber(t, r, 1.0 if r.n < 5000 else 9.0),
    "a curve at one number": lambda t, r: huber(t, r, 1.0 if r.n != 6000 else 9.0),
    "by a remainder": lambda t, r: huber(t, r, 1.0 if r.n % 1000 else 9.0),
    "by the shape of the outcome": lambda t, r: huber(t, r, 1.0 if r.y.shape[0] < 5000 else 9.0),
    "by the size of theta": lambda t, r: huber(t, r, float(t.size)),
    "where theta is longer": lambda t, r: huber(t, r, 1.0 if t.size < 8 else 9.0),
    "by the columns": lambda t, r: huber(t, r, 1.0 if r.x.shape[1] < 8 else 9.0),
    "by the number of columns": lambda t, r: huber(t, r, 1.0 if r.n_columns < 8 else 9.0),
    "by the length of theta": lambda t, r: huber(t, r, 1.0 if len(range(t.shape[0])) < 8 else 9.0),
    "a smooth curve": lambda t, r: huber(t, r, 1.0 + 1.0 / r.n),
    "a set": lambda t, r: ball(t, r, 1.0 if r.n < 5000 else 3.0),
    "a set that grows": lambda t, r: ball(t, r, float(r.n)),
    "a set by columns": lambda t, r: ball(t, r, float(np.sqrt(t.size))),
    "another kind of set": lambda t, r: huber(
        t, r, 1.0, *([cp.norm1(t) <= 1] if r.n > 5000 else [])
    ),
    "an offset": lambda t, r: shifted(t, r, 1.0 if r.n < 5000 else 3.0),
    "an offset by n": lambda t, r: shifted(t, r, 1.0 / r.n),
    "a tilt": lambda t, r: tilted(t, r, 1.0 if r.n < 5000 else 3.0),
    "a ridge": lambda t, r: squares(t, r, float(r.n) if r.n < 5000 else 2.0 * r.n),
    "a ridge by n squared": lambda t, r: squares(t, r, 0.1 * r.n**2),
    "no data any more": lambda t, r: shifted(t, r, 0.0 if r.n > 5000 else 1.0),
    "a map": lambda t, r: mapped(t, r, capped if r.n < 5000 else half),
    "a map that holds n": lambda t, r: mapped(t, r, lambda x, a, y, n=r.n: min(x[0], 10.0 / n)),
    "a map by partial": lambda t, r: mapped(t, r, partial(capped, most=10.0 / r.n)),
    "an interval of a map": lambda t, r: mapped(t, r, capped, -1.0 if r.n < 5000 else -0.5),
    "a loss for another": lambda t, r: huber(t, r) if r.n < 5000 else squares(t, r),
}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", CHANGING)
def test_a_second_stage_that_changes_with_the_data_is_refused_where_it_stands_or_before_the_charge(
    name,
):
    with pytest.raises(DeclarationError) as refusal:
        plan(second_stage()(CHANGING[name])(), n=6000, p=9)
    assert "\n" not in str(refusal.value)


def test_a_refusal_shows_what_is_declared_and_what_is_read():
    made = second_stage()(CHANGING["a curve at 5000"])
    assert plan(made(), n=4999).bound.V < 2.1
    with pytest.raises(DeclarationError) as refusal:
        plan(made(), n=5000)
    text = str(refusal.value)
    assert "huber(x @ theta - y, 1)" in text
    assert "huber(x @ theta - y, 9)" in text
    assert "n = 5000, p = 2" in text


def test_constants_bounds_and_fits_in_the_clear_are_of_what_is_declared_as_well():
    program = second_stage()(CHANGING["a curve at 5000"])()
    universe = Universe(DOMAIN, 5000, 2)
    for ask in (
        program.loss_constants,
        program.constants,
        partial(program.certified_radius, gamma=1.0, noise_bound=1.0),
        partial(describe, program),
    ):
        with pytest.raises(DeclarationError, match="its loss changes with the records"):
            ask(universe)
    with pytest.raises(DeclarationError, match="its loss changes with the records"):
        TwoStageERM(DOMAIN, "uniform", program).fit(*table(5000))


def counted(function):
    """A function that returns another thing every time."""
    calls = itertools.count(1)
    return lambda theta, records: function(theta, records, float(next(calls)))


def test_a_function_that_remembers_is_refused():
    with pytest.raises(DeclarationError, match="changes with the records"):
        second_stage()(counted(huber))()
    generator = np.random.default_rng(0)
    with pytest.raises(DeclarationError, match="changes with the records"):
        second_stage()(lambda theta, records: huber(theta, records, generator.uniform(1, 2)))()


def test_a_function_that_returns_another_thing_than_when_the_program_was_made_is_refused():
    state = {"threshold": 1.0}
    program = second_stage()(lambda theta, records: huber(theta, records, state["threshold"]))()
    assert plan(program).bound.V < 2.1
    state["threshold"] = 9.0
    with pytest.raises(
        DeclarationError, match=r"its loss (changes|takes)|make what its loss takes"
    ):
        plan(program)
    made = second_stage()(lambda theta, records: huber(theta, records, state["threshold"]))
    resolved = made().resolve(DOMAIN.space)
    state["threshold"] = 1.0
    with pytest.raises(
        DeclarationError, match=r"its loss changes with the records: .*, 9.*, 1.* is read at"
    ):
        plan(resolved)


def test_a_loss_of_margins_that_remembers_is_refused():
    calls = itertools.count(1)
    with pytest.raises(DeclarationError, match="it must depend on its settings alone"):

        @scheme.separable(ridge=1.0)
        def counting(s):
            """Another weight every time."""
            return cp.logistic(-s), next(calls) * s

    generator = iter([1.0] * 8 + [2.0] * 1000)

    @scheme.separable(ridge=1.0)
    def late_weight(s):
        """Another weight after a while."""
        return cp.logistic(-s), next(generator) * s

    def used():
        for _ in range(12):
            plan(first=late_weight())

    with pytest.raises(DeclarationError, match="it must depend on its settings alone"):
        used()


# what stays allowed


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("n", [2, 7, 49, 1000, 6007])
@pytest.mark.parametrize("p", [1, 2, 9])
def test_a_factor_of_n_on_a_whole_term_is_a_scale(n, p):
    def declared(multiple, is_mean):
        @second_stage()
        def own(theta, records):
            """A sum or a mean of squares with both penalties."""
            scale = 1 / records.n if is_mean else 1.0
            penalty = multiple(records.n) * (0.2 * cp.sum_squares(theta) + 0.1 * cp.norm1(theta))
            loss = scale * cp.sum_squares(records.x @ theta - records.y)
            return cp.Problem(cp.Minimize(loss + penalty), [cp.norm(theta) <= 1])

        return own()

    universe = Universe(DOMAIN, n, p)
    of_sum, of_mean = declared(lambda n: n, False), declared(lambda n: 1, True)
    assert of_sum.loss_constants(universe) == of_mean.loss_constants(universe)
    net = of_sum.at(universe).regularizer
    assert (net.l1, net.l2) == pytest.approx((0.1, 0.4))


def test_reading_at_many_records_takes_no_memory_for_them():
    program = itr_huber().at(Universe(DOMAIN, 200, 50))
    tracemalloc.start()
    try:
        program.at(Universe(DOMAIN, 1_000_000, 50))
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()


# weights as the variable

WEIGHTS = {
    "a cap": lambda w, r: cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1)), [w <= (3 if r.n < 150 else 9)]
    ),
    "a cap of n": lambda w, r: cp.Problem(cp.Minimize(cp.sum_squares(w - 1)), [w <= 1 + r.n / 300]),
    "a floor": lambda w, r: cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1)), [w >= (0 if r.n < 150 else 0.5)]
    ),
    "a curve": lambda w, r: cp.Problem(
        cp.Minimize((1 if r.n < 150 else 9) * cp.sum_squares(w - 1))
    ),
    "by the shape of w": lambda w, r: cp.Problem(
        cp.Minimize((w.size % 7 + 1) * cp.sum_squares(w - 1))
    ),
    "by columns": lambda w, r: cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1) + r.x.shape[1] * cp.norm(r.x.T @ w))
    ),
    "another penalty": lambda w, r: cp.Problem(
        cp.Minimize(
            cp.sum_squares(w - 1) + (cp.norm(r.x.T @ w) if r.n < 150 else cp.norm1(r.x.T @ w))
        )
    ),
    "a map": lambda w, r: cp.Problem(
        cp.Minimize(
            cp.sum_squares(w - 1)
            + cp.square(r.numbers("u", capped if r.n < 150 else half, -1, 1) @ w)
        )
    ),
    "for solvers": lambda w, r: cp.Problem(
        cp.Minimize((9 if r.parameter is None else 1) * cp.sum_squares(w - 1))
    ),
    "by the domain": lambda w, r: cp.Problem(
        cp.Minimize(r.space.covariate_bound * cp.sum_squares(w - 1))
    ),
}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("stated", [False, True])
def test_weights_whose_problem_changes_are_refused_where_they_stand_or_before_the_charge(
    name, stated
):
    domain = Domain(2.0, 1.0)

    def fitted():
        made = scheme()(WEIGHTS[name])
        if stated:
            made.bound(lambda n: Bound.from_l2(1.0, w_max=3.0))
        model = PrivateTwoStageERM(domain, BUDGET, made(), "itr")
        model.plan(400, 2)
        return model.fit(*table(400))

    with pytest.raises(DeclarationError, match="its problem changes with the records"):
        fitted()


@pytest.mark.parametrize("power", [-1.0, -0.5, 0.5, 1.0])
@pytest.mark.slow
def test_weights_may_scale_a_term_by_a_power_of_n(power):
    @scheme()
    def scaled(w, records):
        """Balance at a scale of the records."""
        balance = cp.sum_squares((records.signed / np.sqrt(records.n)).T @ w)
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + records.n**power * balance), [w <= 3])

    for n in (10, 57, 400):
        assert 2 < plan(first=scaled(), n=n).bound.V <= 2 * n


def test_a_row_norm_of_an_author_is_part_of_the_declaration():
    def rows(theta, records):
        z = records.rows("z", lambda x, a, y: x, Ball(1.0 if records.n < 5000 else 2.0))
        return cp.Problem(cp.Minimize(cp.sum(cp.logistic(z @ theta))), [cp.norm(theta) <= 1])

    made = second_stage()(rows)
    assert plan(made(), n=4000).bound.V < 2.1
    with pytest.raises(DeclarationError, match="its loss changes with the records"):
        plan(made(), n=5000)


def test_a_norm_of_one_covariate_is_the_norm_that_is_declared():
    """CVXPY writes the norm of a single number as another norm."""

    @scheme(cap=3.0)
    def robust(w, records, cap):
        """Weights near 1 under the norm of the imbalance."""
        return cp.Problem(
            cp.Minimize(cp.sum_squares(w - 1) + cp.norm(records.signed.T @ w)), [w <= cap]
        )

    for columns in (1, 2, 5):
        universe = Universe(Domain(1.0, 1.0), 40, columns)
        assert robust().at(universe).stability(universe).V == pytest.approx(16.52, abs=0.01)


@pytest.mark.parametrize(
    "decorator",
    [scheme(cap=3.0), scheme.separable(ridge=0.1), scheme.known(least=1, most=2), second_stage()],
)
def test_what_is_no_function_is_refused_in_one_line(decorator):
    with pytest.raises(DeclarationError, match="partial: put the decorator on a function"):
        decorator(partial(lambda number, *arguments: number, 1.0))
