"""Weights as the variable, from a file to a verified release, and what is told to who writes them
wrong.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.kernels import Gaussian
from dp2erm_cvx.program.registry import known_meanwhile
from dp2erm_cvx.program.weights import describe
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.weighting.forms.form import WeightingForm
from tests.command_line import done, run, shown
from tests.weighting import second_door

N, P = 120, 3
FILE = Path(second_door.__file__)
#: Domain, program, and the theorem that gives its V.
DOMAIN = Domain(1.0, 2.0)
FLOORED = Domain(1.0, 2.0, arm_floor=40)
RELEASED = {
    "least dispersion": (DOMAIN, second_door.least_dispersion(), "Theorem 5 (one sum)"),
    "kernel": (DOMAIN, second_door.alike(), "Theorem 5 (one sum)"),
    "smoothed": (
        DOMAIN,
        second_door.robust(smoothing=0.02),
        "Theorem 5 (one sum), gradients bounded",
    ),
    "treated": (
        FLOORED,
        second_door.of_treated(),
        "Theorem 5 (controls that weigh as many as the treated)",
    ),
    "kinked": (DOMAIN, second_door.robust(), "Theorem 5 (one sum) with Theorem 29 (kinks)"),
}


def drawn() -> tuple[Any, Any, Any]:
    """Confounded records with covariates in the unit ball and at least 40 in each arm."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (N, P)) / np.sqrt(P)
    a = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(int)
    return X, a, np.clip(X[:, 0] + 0.5 * a + 0.3 * rng.normal(size=N), -2.0, 2.0)


@pytest.mark.one_row_in(5)
@pytest.mark.parametrize("name", RELEASED)
def test_a_release_states_the_bound_of_its_form(name: str) -> None:
    domain, program, theorem = RELEASED[name]
    bound = program.stability(Universe(domain, N, P))
    X, a, y = drawn()
    model = PrivateTwoStageERM(domain, Budget(4.0), program, "arm_means")
    model.fit(X, a, y, conditional=True)
    release = model.release_
    assert release.private == (name != "kinked")
    assert release.guarantee.stability_theorem == theorem == bound.theorem
    (step,) = json.loads(release.to_json())["steps"]
    # the error of certified weights counts twice in what is stated
    assert bound.V <= step["stability"] <= bound.V * 1.001
    weights = model.private_workings_.weights
    assert weights.certified
    assert np.sum(weights.value) == pytest.approx(N)
    assert np.ptp(weights.value) > 1e-3
    assert np.max(weights.value) <= bound.w_max * (1 + 1e-9)
    with known_meanwhile(program.scheme):
        assert verify(release).refuted == ()


def test_a_bound_that_an_arm_floor_lowers_assumes_it() -> None:
    """Without a cap the largest weight is one at the worst arm sizes, whatever has a sum of its
    own.
    """

    @scheme()
    def halves(w: Any, records: Any) -> cp.Problem:
        by_arm = records.by_arm(0.5)
        half = cp.hstack([cp.sum(records.ones) / 4, cp.sum(records.x, axis=0) / 2])
        imbalance = by_arm.T @ w - cp.hstack([half, half])
        return cp.Problem(cp.Minimize(-cp.sum(cp.entr(w)) + 0.02 * cp.sum_squares(imbalance)))

    free = halves().stability(Universe(DOMAIN, N, P))
    floored = halves().stability(Universe(FLOORED, N, P))
    assert floored.V < 0.9 * free.V
    assert "each arm has at least 40 records" in floored.assumptions
    assert not any("each arm" in one for one in free.assumptions)


@pytest.mark.slow
def test_weights_for_the_treated_keep_theirs_and_balance() -> None:
    X, a, y = drawn()
    domain, program, _ = RELEASED["treated"]
    model = PrivateTwoStageERM(domain, Budget(4.0), program, "arm_means").fit(X, a, y)
    w = model.private_workings_.weights.value
    # both arms have half of the sum n, so that treated records weigh n / (2 n_1) each
    assert np.ptp(w[a == 1]) <= 1e-6
    assert np.sum(w[a == 0]) == pytest.approx(N / 2, abs=1e-5)
    before = np.mean(X[a == 1], axis=0) - np.mean(X[a == 0], axis=0)
    after = np.mean(X[a == 1], axis=0) - np.average(X[a == 0], axis=0, weights=w[a == 0])
    assert np.linalg.norm(after) < 0.6 * np.linalg.norm(before)


def rows_of(program: Any, domain: Domain = DOMAIN) -> dict[str, str]:
    return {label: text for label, text in describe(program, Universe(domain, N, P)) if label}


@pytest.mark.slow
def test_what_is_derived_is_described() -> None:
    rows = rows_of(second_door.least_dispersion())
    assert rows["theorem"] == "Theorem 5 (one sum)"
    assert "response R = 1, diameter of rows D = 6.325" in rows["derived"]
    assert rows["certificate"].startswith("by the dual: weights within")
    assert rows["V"].startswith("15.4868 at n = 120")
    assert rows["assumed"] == "nothing"
    assert "on every solve" in rows_of(second_door.robust())["certificate"]
    assert "on every dataset" in rows_of(second_door.robust(smoothing=0.02))["certificate"]


def test_a_product_of_data_is_refused_and_what_makes_it_is_named() -> None:
    def products(w: Any, records: Any) -> cp.Problem:
        product = cp.multiply(records.x[:, 0], records.x[:, 1])
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + cp.square(product @ w)))

    with pytest.raises(
        DeclarationError, match=r"^x\[:, 0\] \* x\[:, 1\]: a product of data"
    ) as caught:
        scheme()(products)
    assert "make the product by records.rows or records.numbers" in str(caught.value)


@pytest.mark.parametrize(
    "arm", [lambda r: r.treatment, lambda r: 1 - r.treatment, lambda r: r.arms[:, 1]]
)
def test_covariates_of_one_arm_are_rows_by_arm(arm: Any) -> None:
    with pytest.raises(
        DeclarationError, match=r"covariates times treatment are records\.by_arm\(1\.0\)"
    ):
        scheme()(priced(lambda w, r: cp.sum_squares(r.x.T @ cp.multiply(arm(r), w)) / r.n))


def test_columns_are_described_as_they_are_written() -> None:
    function = priced(lambda w, r: cp.sum_squares(r.signed[:, [0, 2]].T @ w) + (r.x[:, 1] @ w) ** 2)
    program = scheme()(function)()
    assert "transpose(signed[:, [0, 2]]) @ w" in program.formula
    assert "square(x[:, 1] @ w)" in program.formula


def priced(price: Any, *constraints: Any) -> Any:
    """A function of weights and records: squares, a price, and constraints."""

    def made(w: Any, records: Any) -> cp.Problem:
        limits = [one(w, records) for one in constraints]
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + price(w, records)), limits)

    return made


def balance(w: Any, r: Any) -> Any:
    return cp.sum_squares(r.signed.T @ w) / r.n


FRAME = pd.DataFrame(np.zeros((400, 5)), columns=list("abcde"))
#: By what a newcomer writes: what the refusal says to write.
MISTAKES = {
    "no problem": (
        lambda w, r: cp.sum_squares(w),
        "return cp.Problem(cp.Minimize(sum_squares(w)), constraints)",
    ),
    "no dispersion": (
        lambda w, r: cp.Problem(cp.Minimize(balance(w, r))),
        "add cp.sum_squares(w - 1)",
    ),
    "sum of 1": (priced(balance, lambda w, r: cp.sum(w) == 1), "write cp.sum(w) == records.n"),
    "sum of an arm": (
        priced(
            balance, lambda w, r: r.treatment @ w == r.n, lambda w, r: (1 - r.treatment) @ w == r.n
        ),
        "write one of these",
    ),
    "another variable": (
        priced(lambda w, r: cp.sum(v := cp.Variable(3, name="v")) + cp.sum_squares(v - r.x.T @ w)),
        "write the problem in w alone",
    ),
    "entries of a kernel": (
        priced(lambda w, r: cp.norm1(r.features(Gaussian(1.0), "signed").T @ w)),
        "write cp.sum_squares of all of them or cp.norm",
    ),
    "one feature of a kernel": (
        priced(lambda w, r: cp.square(r.features(Gaussian(1.0))[:, 0] @ w)),
        "known by inner products alone",
    ),
    "name of a kernel": (
        priced(lambda w, r: cp.sum_squares(r.features("rbf").T @ w)),
        "such as Gaussian",
    ),
    "arm of a kernel": (
        priced(lambda w, r: cp.sum_squares(r.features(Gaussian(1.0), "sign").T @ w)),
        "did you mean signed?",
    ),
    "a data frame": (
        priced(lambda w, r: cp.sum_squares(FRAME.to_numpy().T @ w)),
        "take all data from records, such as records.x[:, 0]",
    ),
    "a column by name": (priced(lambda w, r: r.x["age"] @ w), "such as records.x[:, 0]"),
    "a public target of five columns": (
        priced(lambda w, r: cp.sum_squares(r.x.T @ w / r.n - np.zeros(5))),
        "the problem is read at several numbers of records and columns",
    ),
    "covariates": (
        priced(lambda w, r: cp.sum_squares(r.covariates.T @ w)),
        "records have no 'covariates'",
    ),
    "values of data": (
        priced(lambda w, r: cp.sum_squares(r.x.value.T @ w)),
        "data have no values yet: write records.x",
    ),
    "a parameter": (
        priced(lambda w, r: cp.Parameter(nonneg=True, value=3.0) * balance(w, r)),
        "make it a setting, or write its number",
    ),
    "records of one arm": (
        priced(lambda w, r: cp.sum_squares(r.x[r.treatment == 1].T @ w)),
        "records.by_arm(1.0) has a block of columns for each arm",
    ),
    "a mean of NumPy": (
        priced(lambda w, r: cp.sum_squares(r.x.T @ w - np.mean(r.x, axis=0))),
        "write functions of CVXPY, such as cp.sum(records.x, axis=0)",
    ),
    "a size of NumPy": (priced(lambda w, r: cp.sum(np.abs(r.x.T @ w))), "write functions of CVXPY"),
    "a length": (priced(lambda w, r: cp.sum_squares(r.x.T @ w) / len(r.x)), "sizes from records.n"),
    "a ridge of 0": (
        priced(lambda w, r: r.n / 0 * balance(w, r)),
        "ZeroDivisionError: division by zero",
    ),
    "the eighth column": (
        priced(lambda w, r: cp.square(r.x[:, 7] @ w)),
        "such as records.numbers('age', lambda x, a, y: x[7], -1, 1)",
    ),
    "a loop over columns": (
        priced(
            lambda w, r: sum(cp.square(r.signed[:, k] @ w) for k in range(r.signed.shape[1])) / r.n
        ),
        "state one for all, without loops over records or columns",
    ),
    "a shape of other data": (
        priced(lambda w, r: cp.sum_squares(r.by_arm(1.0)[:, 1 : 1 + r.x.shape[1]].T @ w)),
        "take shapes from data that are a part",
    ),
    "a largest weight of Python": (
        priced(balance, lambda w, r: max(w) <= 3),
        "w <= cap for the largest",
    ),
    "solved": (
        lambda w, r: cp.Problem(cp.Minimize(cp.sum_squares(w) + balance(w, r))).solve(),
        "return the problem, which is solved later",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_write(name: str) -> None:
    function, instead = MISTAKES[name]
    with pytest.raises(DeclarationError) as caught:
        scheme()(function)
    assert instead in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_smoothing_that_smooths_nothing_is_refused() -> None:
    """Weights of another problem than was asked for would be released in its place."""

    @scheme()
    def largest(w: Any, records: Any) -> cp.Problem:
        price = cp.norm_inf(records.signed.T @ w)
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + price), [w <= 3])

    form = largest(smoothing=0.1).form(Universe(DOMAIN, 20, 3))
    assert isinstance(form, WeightingForm)
    assert form.smoothed
    with pytest.raises(DeclarationError, match=r"smoothing = 0.1: no price .* has a kink"):
        second_door.of_treated(smoothing=0.1)


@pytest.mark.slow
def test_a_file_goes_from_a_draft_to_a_verified_release(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(FILE, "mine.py")
    X, a, y = drawn()
    columns = [f"x{k}" for k in range(P)]
    pd.DataFrame(X, columns=columns).assign(a=a, y=y).to_csv("data.csv", index=False)
    chosen = "mine.py:least_dispersion"
    done("check", "data.csv", "--treatment", "a", "--outcome", "y", "--draft", "study.toml",
         "--program", chosen)  # fmt: skip
    text = Path("study.toml").read_text(encoding="utf-8")
    assert f'first_stage = {{ name = "{chosen}" }}' in text
    filled = {
        "outcome_center": "0",
        "outcome_bound": "2",
        "treated": '"1"',
        "control": '"0"',
        "epsilon": "2",
    } | dict.fromkeys(columns, "[-1, 1]")
    for key, value in filled.items():
        for gap in ('["EDIT", "EDIT"]', '"EDIT"'):
            text = text.replace(f"\n{key} = {gap}", f"\n{key} = {value}")
    Path("study.toml").write_text(text, encoding="utf-8")
    assert f"planned for {N} records" in shown("run", "study.toml", "--plan", N)
    done("run", "study.toml", "data.csv", "--yes")
    release = ("verify", "releases/two_stage.json")
    assert "Verified" in shown(*release, "--program", "mine.py")
    assert "Verified" in shown(*release, "--study", "study.toml")
    assert "give its file, of SHA-256" in run(*release).stderr
    # another cap is another program: the release by the first one is refuted
    Path("mine.py").write_text(
        FILE.read_text(encoding="utf-8").replace("cap=3.0", "cap=2.0"), encoding="utf-8"
    )
    assert run(*release, "--program", "mine.py").exit_code != 0


def test_check_program_has_nothing_to_search_for(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    first = FILE.read_text(encoding="utf-8").partition("@scheme(ridge=0.5, cap=3.0)")[0]
    Path("mine.py").write_text(first, encoding="utf-8")
    told = shown("check-program", "mine.py", "--solves", "20")
    assert "all checks passed" in told
    assert "skipped audit: derived: nothing to check" in told
