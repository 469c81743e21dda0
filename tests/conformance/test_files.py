"""Files of programs: templates, what is no program, and what a release by one is covered by."""

import re
import types

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.conformance import load_program, program_template
from dp2erm_cvx.conformance.checks import check_universe, standard_records
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.problems.stable_balancing import stable_balancing
from dp2erm_cvx.program import BalanceFunctions, scheme, second_stage
from dp2erm_cvx.program.files import programs_of_file
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.solve import solve
from tests.helpers import penalized_rule

_CLASS = (
    "from dp2erm_cvx.problems.known_weights import Uniform\n\n\nclass Mine(Uniform):\n    name = "
    "'mine'\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "holds no program"),
        (
            "import cvxpy as cp\nw = cp.Variable(3)\n",
            "pass one that makes your problem for n records",
        ),
        ("def broken(:\n", "line 1: SyntaxError"),
        ("x = 1\ny = 1 / 0\n", "line 2: ZeroDivisionError"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
        (_CLASS, "Mine: classes of programs are the library's"),
    ],
)
def test_files_without_a_program_say_why(text, message, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProgramError, match=re.escape(message)):
        programs_of_file(path)


@pytest.mark.parametrize("base", [overlap, itr, stable_balancing, FirstStage])
def test_classes_of_ones_own_make_no_program(base):
    """What sets noise is derived: a class could state another thing than it solves."""
    with pytest.raises(DeclarationError, match="classes of programs are the library's"):
        types.new_class(
            "Mine", (base,), {}, lambda own: own.update(name="mine", __module__=__name__)
        )()


def test_a_file_that_is_edited_is_read_again(tmp_path):
    for name in ("mine", "yours"):
        (tmp_path / "mine.py").write_text(program_template(name, "direct"), encoding="utf-8")
        assert [cls.name for cls in programs_of_file(tmp_path / "mine.py")] == [name]


def test_unknown_names_and_kinds_are_refused(tmp_path):
    with pytest.raises(ProgramError, match="no file"):
        programs_of_file(tmp_path / "none.py")
    with pytest.raises(ProgramError, match="neither"):
        load_program("nobody")
    for name in ("3x", "Mine", "class", "a-b", "", "cp", "scheme"):
        with pytest.raises(DeclarationError, match="name"):
            program_template(name, "direct")
    with pytest.raises(DeclarationError, match="kind"):
        program_template("mine", "linear")


@scheme.separable(ridge=0.05, radius=0.5)
def odds(u, arm):
    """Odds weights for the effect on the treated: 1 for them, the odds exp(x'v) for controls."""
    return (cp.logistic(-u), 0) if arm else (cp.logistic(u), u)


def test_weights_that_depend_on_the_arm_are_expressible():
    records = standard_records(200)
    solution = solve(odds().instance(records))
    expected = np.where(records.a == 1, 1.0, np.exp(records.X @ solution.point))
    np.testing.assert_allclose(solution.value, 200 * expected / expected.sum(), rtol=1e-9)


@scheme.known(least=1.25, most=5.0, share=0.8)
def strata(x, a, share):
    """Inverse propensities of two strata by the first covariate."""
    treated = share if x[0] < 0 else 1 - share
    return 1 / (treated if a else 1 - treated)


def test_known_weights_are_those_of_their_function_within_the_interval():
    records = standard_records(50)
    program = strata()
    treated = np.where(records.covariates[:, 0] < 0, 0.8, 0.2)
    f = 1 / np.where(records.a == 1, treated, 1 - treated)
    np.testing.assert_allclose(solve(program.instance(records)).value, 50 * f / f.sum(), rtol=1e-12)
    universe = MappedUniverse(records.space, 50, records.n_features)
    # the largest weight where all others are least
    assert program.stability(universe).V == pytest.approx(2 * 50 * 5 / (5 + 49 * 1.25), rel=1e-9)
    narrow = strata(most=3.0)
    assert np.max(narrow.unnormalized(records)) == pytest.approx(3.0, rel=1e-12)
    assert narrow.stability(universe).V < program.stability(universe).V
    with pytest.raises(DeclarationError, match="is above most"):
        strata(least=9.0).stability(universe)
    assert program.own_data() == ("the weight",)


def test_what_a_function_of_one_record_remembers_or_breaks_on():
    seen = []

    def ranked(x, a):
        """Weights by the order in which records come."""
        seen.append(1)
        return 1 + len(seen) / 1e3

    with pytest.raises(DeclarationError, match="'ranked' reaches seen"):
        scheme.known(least=1.0, most=2.0)(ranked)

    @scheme.known(least=0.5, most=2.0)
    def broken(x, a):
        """No number for controls, a negative one for the treated: both are cut off."""
        return -1.0 if a else float("nan")

    np.testing.assert_allclose(broken().unnormalized(standard_records(9)), 0.5, rtol=1e-15)


@pytest.mark.slow
def test_balance_functions_of_an_author_are_those_of_stable_balancing():
    def squares(x):
        """Covariates and their squares."""
        return np.concatenate([x, x**2])

    balance = BalanceFunctions(squares, 2.0, "squares")

    @scheme(balance=balance, constant="G_x", ridge=3.0)
    def own(w, records, balance, constant, ridge):
        """Balance of both arms to the sample."""
        n, half = records.n, cp.sum(records.features(balance), axis=0) / 2
        missed = [records.features(balance, arm).T @ w - half for arm in ("controls", "treated")]
        mass = constant * (records.arms.T @ w - n / 2)
        imbalance = sum(cp.sum_squares(part) for part in [*missed, mass])
        return cp.Problem(cp.Minimize(imbalance + n * ridge * cp.sum_squares(w)), [cp.sum(w) == n])

    same = stable_balancing(balance=balance, ridge=3.0)
    records = standard_records(40)
    one, other = solve(own().instance(records)), solve(same.instance(records))
    np.testing.assert_allclose(one.value, other.value, rtol=1e-10)
    universe = MappedUniverse(records.space, 40, records.n_features)
    assert own().stability(universe).V == pytest.approx(same.stability(universe).V, rel=1e-12)


@pytest.mark.slow
def test_moments_of_a_function_are_those_of_stable_balancing():
    def squares(x):
        """Covariates and their squares."""
        return np.concatenate([x, x**2])

    own = scheme.moments(norm_bound=2.0, ridge=3.0)(squares)()
    same = stable_balancing(balance=BalanceFunctions(squares, 2.0, "squares"), ridge=3.0)
    records = standard_records(40)
    one, other = solve(own.instance(records)), solve(same.instance(records))
    np.testing.assert_allclose(one.value, other.value, rtol=1e-12)
    universe = MappedUniverse(records.space, 40, records.n_features)
    assert own.stability(universe) == same.stability(universe)
    assert own.own_data() == ("squares",)


@second_stage(treats=lambda effect, x: effect > 0.3 and x[0] < 0.5)
def cautious(theta, records):
    """The linear rule, for records that gain much and are no risk."""
    return cp.Problem(
        cp.Minimize(cp.sum_squares(records.x @ theta - records.y)), [cp.norm(theta) <= 1]
    )


def test_choices_are_positive_effects_or_the_authors_own():
    space, rng = check_universe().space, np.random.default_rng(0)
    X, theta = rng.uniform(-1, 1, (40, 3)), np.array([0.1, 1.0, -0.5, 0.2])
    plain, own = itr().resolve(space), cautious().resolve(space)
    effect = plain.effect(theta, space, X)
    assert np.array_equal(plain.choices(theta, space, X), effect > 0)
    assert np.array_equal(own.choices(theta, space, X), (effect > 0.3) & (X[:, 0] < 0.5))
    assert own.choices(theta, space, X[:1]).shape == (1,)


def test_weights_without_a_theorem_need_no_certificate_and_carry_the_noise_of_all_weights(tmp_path):
    """V = 2n covers whatever the solver returns; a second stage judged by its gap is not covered by
    it.
    """
    data = simulate("linear", 60, rng=0).dataset
    path = tmp_path / "mine.py"
    other = "cp.sum_squares(w - 1) / 2 + 1e-6 * cp.norm(w - 1)"
    text = program_template("mine", "direct").replace("cp.sum_squares(w - 1) / 2", other)
    path.write_text(text, encoding="utf-8")
    (cls,) = programs_of_file(path)
    assert cls().stability(MappedUniverse(check_universe(50).space, 50, 2)).V == 100
    domain, own = Domain(1.0, 2.0), penalized_rule(lambda theta: cp.norm(theta))
    for second, private in (("arm_means", True), (own(theta_set=L2Ball(1.0)), False)):
        model = PrivateTwoStageERM(domain, Budget(epsilon=2.0), cls(), second)
        release = model.fit(data.X, data.a, data.y, conditional=True).release_
        assert model.private_workings_.weights.certificate.basis == "duality gap"
        assert release.mechanism.stability == 2 * 60
        assert release.private is private
