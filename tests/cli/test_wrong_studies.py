"""Study files that are wrong: each is refused in one line that names the place, and nothing is
charged.
"""

from pathlib import Path

import pandas as pd
import pytest

from dp2erm_cvx import Budget
from dp2erm_cvx.conformance import program_template
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.ledger import Ledger
from tests.command_line import COLUMNS, done, refused, run

GOOD = """outcome_bound = 8.0
outcome_column = "y"

[treatment]
column = "a"

[ranges]
x1 = [-1, 1]
x2 = [-1, 1]
x3 = [-1, 1]

[budget]
epsilon = 1.0

[ledger]
file = "book.db"
dataset = "trial"

[[effect]]
name = "average"
share = 0.5
residual_scale = 1.0

[[two_stage]]
first_stage = { name = "own.py", ridge = 0.3 }
second_stage = "arm_means"
"""
#: A line of the good file, what stands there instead, and what is told.
WRONG = [
    # no TOML, or no table where one is needed
    ("[ranges]", "[ranges", "is not a TOML file"),
    ("outcome_bound", "rule = 3\noutcome_bound", "rule = 3: must be a table [rule]"),
    ("[budget]", "[[budget]]", "must be a table [budget]"),
    ("[ledger]", "[[ledger]]", "must be a table [ledger]"),
    # unknown names
    ("outcome_bound", "outcome_bund", "unknown name 'outcome_bund'; did you mean outcome_bound?"),
    ("epsilon = 1.0", "epsilom = 1.0", "budget: unknown name 'epsilom'; did you mean epsilon?"),
    ("dataset =", "data =", "ledger: unknown name 'data'; did you mean dataset?"),
    ("residual_scale =", "residual_scal =", "average: unknown name 'residual_scal'; did you mean"),
    ("[[effect]]", "[[efect]]", "[[efect]]: no question; did you mean effect?"),
    ("[[two_stage]]", "[[weights]]", "[[weights]]: no question"),
    ("ridge = 0.3", "rigde = 0.3", "two_stage: first_stage: own_weights has no setting 'rigde'"),
    ("residual_scale = 1.0", "settings = { propensty = 0.5 }", "average: propensty: is no setting"),
    ('"arm_means"', '"arm_mean"', "two_stage: unknown program 'arm_mean'"),
    ("[budget]", "[csv]\nseparater = ';'\n[budget]", "csv: unknown name 'separater'"),
    # wrong types and values
    ("outcome_bound = 8.0", 'outcome_bound = "much"', "outcome_bound = 'much'"),
    ("x2 = [-1, 1]", "x2 = [1, -1]", "x2"),
    ("x2 = [-1, 1]", "x2 = 3", "x2"),
    ("epsilon = 1.0", "epsilon = 0", "budget: epsilon = 0"),
    ("epsilon = 1.0", 'epsilon = "1"', "budget: epsilon = '1': must be a number"),
    ("share = 0.5", 'share = "half"', "average: share = 'half'"),
    ("share = 0.5", "share = 1.5", "share: 1.5 of the budget is asked for"),
    ("residual_scale = 1.0", "residual_scale = -1", "average: residual_scale = -1"),
    ("residual_scale = 1.0", 'estimand = "atc"', "average: estimand = 'atc'"),
    ("residual_scale = 1.0", "where = 3", "average: where"),
    ("residual_scale = 1.0", 'prognostic = ["x9"]', "average: prognostic: unknown"),
    ("residual_scale = 1.0", "level = 2", "average: level = 2"),
    ("residual_scale = 1.0", 'covariates = ["x9"]',
    "average: covariates: 'x9' has no public range"),
    ("ridge = 0.3", 'ridge = "much"', "two_stage: first_stage: ridge = 'much'"),
    ('second_stage = "arm_means"', "second_stage = 3", "two_stage: second_stage: needs a name"),
    ('first_stage = { name = "own.py", ridge = 0.3 }', "first_stage = { ridge = 0.3 }",
    "needs a name"),
    # paths that are not there
    ('"own.py"', '"absent.py"', "two_stage: absent.py: cannot be read"),
    ('"own.py", ridge = 0.3', '"kernel_mean_matching", target = "no.csv"',
    "no.csv: cannot be read"),
    # a program that raises, holds nothing, or is of the other stage
    ('"own.py"', '"raises.py"', "raises.py, line 2: ZeroDivisionError"),
    ('"own.py"', '"empty.py"', "empty.py: holds no program"),
    ('second_stage = "arm_means"', 'second_stage = "own.py"', "holds no second stage"),
    # names of questions
    ('name = "average"', 'name = "two_stage"', "name = 'two_stage': is taken"),
    ('name = "average"', 'name = "Two_Stage"', "name = 'two_stage': is taken"),
    ('name = "average"', 'name = "../up"', "letters, digits, - and _ alone"),
    ('name = "average"', 'name = "budget"', "name = 'budget': is taken"),
    # nothing to pay with, and a gap
    ("[budget]\nepsilon = 1.0", "", "no [budget] is declared"),
    ("epsilon = 1.0", 'epsilon = "EDIT"', 'budget: epsilon still says "EDIT"'),
    ("residual_scale = 1.0", 'residual_scale = "EDIT"',
    'average: residual_scale still says "EDIT"'),
    ("outcome_column = \"y\"", "",
    "the column of the outcome is not declared: give outcome_column"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Data, programs, a good study and 4 of epsilon for its data set."""
    monkeypatch.chdir(tmp_path)
    data = simulate("linear", 200, rng=0).dataset
    frame = pd.DataFrame(data.X[:, :3], columns=COLUMNS).assign(a=data.a, y=data.y)
    frame.to_csv("data.csv", index=False)
    Path("own.py").write_text(program_template("own_weights", "exponential"), encoding="utf-8")
    Path("raises.py").write_text("x = 1\n1 / 0\n", encoding="utf-8")
    Path("empty.py").write_text("x = 1\n", encoding="utf-8")
    Path("study.toml").write_text(GOOD, encoding="utf-8")
    Ledger("book.db").declare("trial", Budget(4.0))
    return tmp_path


def test_the_good_file_is_answered_and_charged(folder):
    done("run", "study.toml", "data.csv")
    assert len(Ledger("book.db").account("trial").receipts) == 1


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(("old", "new", "told"), WRONG)
def test_a_wrong_study_is_one_line_and_nothing_is_charged(folder, old, new, told):
    assert GOOD.count(old) == 1
    Path("study.toml").write_text(GOOD.replace(old, new), encoding="utf-8")
    message = refused("run", "study.toml", "data.csv")
    assert told in message
    assert message.startswith("error: ")
    assert Ledger("book.db").account("trial").receipts == ()
    assert not list(Path().glob("releases/*"))


def test_a_ledger_that_is_not_there_is_told_before_anything_is_released(folder):
    Path("study.toml").write_text(GOOD.replace('"book.db"', '"no/where/book.db"'), encoding="utf-8")
    result = run("run", "study.toml", "data.csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no/where/book.db: there is no such ledger: declare a total first" in result.stderr
    assert not list(Path().glob("releases/*.json"))
