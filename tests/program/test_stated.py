"""What a release states of an author's program: its files, what was read of it, and its numbers."""

import ast
import hashlib
import importlib.util
import json
import math
import types
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.program import (
    BalanceFunctions,
    Ball,
    Bound,
    registry,
    scheme,
    second_stage,
    setting,
)
from dp2erm_cvx.program.declaration import numbers_in, stated
from dp2erm_cvx.program.stated import assumed_public, stated_program
from dp2erm_cvx.release.declaration import NotAtHandError
from dp2erm_cvx.release.verify import verify

UNIVERSE = Universe(Domain(1.5, 1.0), 60, 2)
NUMBER = 0.1 + 0.2
SPACE = types.SimpleNamespace(scale=0.83)


def facts(program):
    return assumed_public(program.at(UNIVERSE), UNIVERSE)


def read(program):
    return stated_program(program.at(UNIVERSE), UNIVERSE)["read"]


def robust(number):
    """Huber's loss at a number that is closed over."""

    @second_stage()
    def robust(theta, records):
        loss = cp.sum(cp.huber(records.signed @ theta - records.y, number))
        return cp.Problem(cp.Minimize(loss), [cp.norm(theta) <= 2])

    return robust


def test_a_number_that_a_loss_closes_over_is_stated_in_full_and_named():
    program = robust(NUMBER)()
    assert read(program)["minimize"] == "sum(huber(signed @ theta - y, 0.30000000000000004))"
    assert facts(program) == ("robust: number = 0.30000000000000004 is public",)
    assert read(robust(0.3)()) != read(program)


def test_a_number_of_an_object_is_named_by_its_value():
    @second_stage()
    def robust(theta, records):
        loss = cp.sum(cp.huber(records.signed @ theta - records.y, SPACE.scale))
        return cp.Problem(cp.Minimize(loss), [cp.norm(theta) <= 2])

    assert "robust: 0.83 is public" in facts(robust())


def test_a_number_that_stands_in_the_code_is_named_too():
    @second_stage()
    def robust(theta, records):
        loss = cp.sum(cp.huber(records.signed @ theta - records.y, 0.83))
        return cp.Problem(cp.Minimize(loss), [cp.norm(theta) <= 2])

    assert facts(robust()) == ("robust: 0.83 is public",)


def test_settings_and_what_is_computed_of_them_are_not_named():
    @second_stage(level=0.8, scale="outcome_bound / 2")
    def pinball(theta, records, level, scale):
        residual = records.y - records.x @ theta
        loss = scale * cp.logistic(residual / scale) - (1 - level) * residual
        return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= records.outcome_bound])

    assert facts(pinball()) == ()
    assert read(pinball(level=0.7)) != read(pinball())


def test_a_log_weight_that_is_cut_off_at_a_number_of_the_data_names_it():
    cut = NUMBER

    @scheme.separable(ridge=0.1, radius=2.0)
    def capped(s):
        return cp.logistic(-s), cp.minimum(-s, cut)

    assert read(capped()) == {
        "loss": "logistic(-s)",
        "log weight": "minimum(-s, 0.30000000000000004)",
    }
    assert facts(capped()) == ("capped: cut = 0.30000000000000004 is public",)
    assert facts(capped().private(share=0.3))[0].endswith("cut = 0.30000000000000004 is public")


def test_what_functions_of_one_record_reach_is_stated_and_named():
    def steps(number):
        @second_stage(coordinates=("low", "high"), column=0)
        def steps(theta, records, column):
            cells = records.cells("cell", lambda x, a, y: x[int(column)] >= number, 2)
            return cp.Problem(
                cp.Minimize(cp.sum_squares(cells @ theta - records.y)), [cp.abs(theta) <= 1]
            )

        return steps

    program = steps(NUMBER)()
    reaches = stated_program(program.at(UNIVERSE), UNIVERSE)["reaches"]
    assert reaches == {"cell": {"column": "0.0", "number": "0.30000000000000004"}}
    # the column is a setting, which the release states already
    assert facts(program) == ("steps: number = 0.30000000000000004 is public",)

    @scheme.known(least=0.5, most=2.0)
    def weighing(x, a):
        return NUMBER + x[0] * a

    assert facts(weighing()) == ("weighing: NUMBER = 0.30000000000000004 is public",)

    @second_stage(treats=lambda effect, x: effect > NUMBER)
    def rule(theta, records):
        return cp.Problem(
            cp.Minimize(cp.sum(cp.logistic(-records.favored @ theta))), [cp.norm(theta) <= 1]
        )

    assert "rule: NUMBER = 0.30000000000000004 is public" in facts(rule())


def test_the_numbers_of_weights_and_of_their_stated_bound_are_stated():
    @scheme(cap=3.0)
    def near(w, records, cap):
        goal = SPACE.scale * cp.sum_squares(records.signed.T @ w) / records.n
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + goal), [w <= cap])

    @near.bound
    def _(n, cap):
        return Bound.from_l2(NUMBER, w_max=cap)

    program = near().at(UNIVERSE)
    text = stated_program(program, UNIVERSE)
    assert "0.83 * sum_squares(transpose(signed) @ w) / 60.0" in text["read"]["minimize"]
    assert text["reaches"] == {"the bound of near": {"NUMBER": "0.30000000000000004"}}
    sentences = assumed_public(program, UNIVERSE)
    assert "near: 0.83 is public" in sentences
    assert "near: NUMBER = 0.30000000000000004 is public" in sentences


def test_a_constant_of_many_numbers_is_stated_by_its_digest():
    v, one = cp.Variable(30, name="v"), np.linspace(0.0, 1.0, 30)
    other = one.copy()
    other[7] = math.nextafter(other[7], 1.0)
    (text,), (apart,) = stated(one @ v), stated(other @ v)
    assert text.startswith("[30 numbers, sha256 ")
    assert text != apart
    assert list(numbers_in(one @ v)) == [text.removesuffix(" @ v")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda v: cp.norm(v, 3), lambda v: cp.norm(v, 4)),
        (lambda v: cp.power(v, 1.7), lambda v: cp.power(v, 1.7000000000000002)),
        (lambda v: cp.sum_largest(v, 2), lambda v: cp.sum_largest(v, 1)),
        (lambda v: v[0], lambda v: v[1]),
        (lambda v: v[[0, 1]], lambda v: v[[0, 2]]),
        (
            lambda v: cp.sum(cp.reshape(v, (3, 1), order="F"), axis=0),
            lambda v: cp.sum(cp.reshape(v, (3, 1), order="F")),
        ),
        (lambda v: cp.huber(v, 0.83), lambda v: cp.huber(v, 0.8300000000000001)),
        (lambda v: cp.quad_form(v, np.eye(3)), lambda v: cp.quad_form(v, np.diag([1.0, 1.0, 2.0]))),
        (lambda v: cp.sum_squares(v) / 3, lambda v: cp.sum_squares(v) / 3.0000000000000004),
        (lambda v: cp.norm(v) <= 0.83, lambda v: cp.norm(v) <= 0.8300000000000001),
        (lambda v: cp.geo_mean(v, [1, 2, 3]), lambda v: cp.geo_mean(v, [1, 3, 2])),
    ],
)
def test_two_expressions_that_differ_in_one_number_have_different_texts(one, other):
    v = cp.Variable(3, name="v")
    assert stated(one(v)) != stated(other(v))
    assert stated(one(v)) == stated(one(v))


def test_variables_without_a_name_are_numbered():
    def within(v):
        return [cp.norm(v) <= cp.Variable(nonneg=True), v <= cp.Variable()]

    v = cp.Variable(3, name="v")
    assert stated(*within(v)) == stated(*within(v))


def test_a_penalty_and_balance_functions_of_an_author_are_stated():
    weight = NUMBER

    @second_stage()
    def sparse(theta, records):
        loss = cp.sum_squares(records.y - records.x @ theta) / records.n
        return cp.Problem(cp.Minimize(loss + weight * cp.norm(theta)), [cp.norm(theta) <= 1])

    assert "0.30000000000000004" in read(sparse())["minimize"]
    assert facts(sparse()) == ("sparse: weight = 0.30000000000000004 is public",)
    balance = BalanceFunctions(lambda x: x * NUMBER, 1.0, "scaled")
    first = registry.build(registry.first_stages(), "stable_balancing", balance=balance)
    assert facts(first) == ("stable_balancing: NUMBER = 0.30000000000000004 is public",)
    assert stated_program(itr().at(UNIVERSE), UNIVERSE) == {}


def declared_in(path, text):
    """The module of a file."""
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOSS = """
import os

import cvxpy as cp

from dp2erm_cvx.program import second_stage
from numbers_of_mine import scaled

SCALE = float(os.environ["SCALE"])


@second_stage()
def environed(theta, records):
    loss = cp.sum(cp.huber(records.signed @ theta - records.y, scaled(SCALE)))
    return cp.Problem(cp.Minimize(loss), [cp.norm(theta) <= 2])
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SCALE", "0.83")
    helper = tmp_path / "numbers_of_mine.py"
    helper.write_text("def scaled(number):\n    return number\n", encoding="utf-8")
    monkeypatch.delitem(__import__("sys").modules, "numbers_of_mine", raising=False)
    return tmp_path


def test_the_files_of_helpers_of_the_same_author_count(files):
    program = declared_in(files / "environed.py", LOSS).environed()
    source = stated_program(program.at(UNIVERSE), UNIVERSE)["source"]
    digests = {name: hashlib.sha256((files / name).read_bytes()).hexdigest() for name in source}
    assert sorted(source) == ["environed.py", "numbers_of_mine.py"]
    assert source == digests


def test_a_function_in_no_file_is_stated_by_its_code():
    def made(text):
        space = {"cp": cp, "scheme": scheme}
        exec(f"def own(s):\n    return cp.logistic(-s), {text}", space)
        program = scheme.separable(ridge=0.1, radius=2.0)(space["own"])()
        return stated_program(program.at(UNIVERSE), UNIVERSE)["source"]

    ((name, digest),) = made("-s").items()
    assert name.startswith("own, in no file: code of Python 3.")
    assert made("-s") == {name: digest}
    assert made("-2.5 * s") != {name: digest}


def released(second):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (UNIVERSE.n_samples, 2))
    a = rng.integers(0, 2, len(X))
    y = rng.uniform(-1, 1, len(X))
    model = PrivateTwoStageERM(UNIVERSE.domain, Budget(4.0), "uniform", second)
    return model.fit(X, a, y).release_


def test_a_file_that_reads_another_number_is_refuted_when_a_release_is_verified(files, monkeypatch):
    first = declared_in(files / "environed.py", LOSS).environed
    release = released(first())
    assert release.private
    assert "environed: SCALE = 0.83 is public" in release.guarantee.assumptions
    declared = json.loads(release.to_json())["declared"]
    assert "huber(signed @ theta - y, 0.83)" in declared["second"]["read"]["minimize"]
    with registry.known_meanwhile(first):
        assert verify(release).holds
    monkeypatch.setenv("SCALE", "0.84")
    other = declared_in(files / "environed.py", LOSS).environed
    assert json.loads(released(other()).to_json())["declared"] != declared
    with registry.known_meanwhile(other):
        refuted = verify(release).refuted
    assert any(line.startswith("declared.second.read.minimize: ") for line in refuted)
    changed = declared_in(files / "environed.py", LOSS.replace("<= 2", "<= 2.0")).environed
    with (
        registry.known_meanwhile(changed),
        pytest.raises(NotAtHandError, match="and the one known here is of"),
    ):
        verify(release)


def forgetful(**settings):
    """Functions that forget their setting, under every decorator of a function that has some."""

    def of_margin(s, trimm):
        return cp.logistic(-s), -s

    def of_arms(s, t, trimm):
        return cp.exp(-s) + t, -s

    def of_one_arm(u, arm, trimm):
        return cp.logistic(u), u if arm else 0

    def of_record(x, a, trimm):
        return 1.0

    def of_weights(w, records, trimm):
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1)))

    def of_theta(theta, records, trimm):
        return cp.Problem(
            cp.Minimize(cp.sum(cp.logistic(-records.favored @ theta))), [cp.norm(theta) <= 1]
        )

    yield scheme.separable(ridge=0.1, radius=2.0, **settings), of_margin
    yield scheme.separable(ridge=0.1, radius=2.0, **settings), of_one_arm
    yield scheme.separable(ridge="G**2", radius="1 / G", by_arm=True, **settings), of_arms
    yield scheme.known(least=0.5, most=2.0, **settings), of_record
    yield scheme(**settings), of_weights
    yield second_stage(**settings), of_theta


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    "trimm",
    [5.0, "M**2 / 10", math.inf, setting(2.0, above=1)],
    ids=["number", "formula", "inf", "checked"],
)
def test_a_setting_that_a_function_forgets_is_refused_by_name(trimm):
    for decorate, function in forgetful(trimm=trimm):
        with pytest.raises(
            DeclarationError, match="its function never uses 'trimm': use it, or leave it out"
        ):
            decorate(function)


def test_a_setting_that_is_taken_and_changes_nothing_is_refused_by_name():
    def assigned(s, trimm):
        known = max(trimm, 0.0)
        known = 1.0
        return cp.logistic(-s), -known * s

    def times_nothing(s, trimm):
        return cp.logistic(-s), -s * (1.0 + 0.0 * trimm)

    for function in (assigned, times_nothing):
        with pytest.raises(
            DeclarationError, match="'trimm' changes nothing that its function returns"
        ):
            scheme.separable(ridge=0.1, radius=2.0, trimm=5.0)(function)


def test_a_setting_that_acts_in_some_range_or_by_a_map_is_used():
    @scheme.separable(ridge=0.1, radius=2.0, trim=math.inf)
    def capped(s, trim):
        return cp.logistic(-s), cp.minimum(-s, trim)

    @scheme.separable(ridge=0.1, radius=2.0, power=1.0)
    def from_ten(s, power):
        return cp.logistic(-s), -s if power < 10 else -2 * s

    @second_stage(coordinates=("low", "high"), column=0)
    def steps(theta, records, column):
        cells = records.cells("cell", lambda x, a, y: x[int(column)] >= 0, 2)
        return cp.Problem(
            cp.Minimize(cp.sum_squares(cells @ theta - records.y)), [cp.abs(theta) <= 1]
        )

    @scheme(width=1.0)
    def within(w, records, width):
        rows = records.rows("own", lambda x, a, y: x, Ball(width))
        return cp.Problem(
            cp.Minimize(cp.sum_squares(w - 1) + cp.sum_squares(rows.T @ w) / records.n)
        )

    assert [one.name for one in (capped, from_ten, steps, within)] == [
        "capped",
        "from_ten",
        "steps",
        "within",
    ]


def test_numbers_of_the_assumptions_are_those_of_the_text():
    """A sentence holds a number as the text does, so that a reader finds it there."""
    program = robust(NUMBER)()
    (sentence,) = facts(program)
    number = sentence.partition(" = ")[2].removesuffix(" is public")
    assert ast.literal_eval(number) == NUMBER
    assert number in read(program)["minimize"]
    assert Path(__file__).name in stated_program(program.at(UNIVERSE), UNIVERSE)["source"]
