"""A folder with data, a domain and studies, and good command lines, for the tests of the command
line.
"""

import json
from pathlib import Path

import pandas as pd
from click.testing import CliRunner

from dp2erm_cvx.cli import main
from dp2erm_cvx.datasets import simulate

COLUMNS = ("x1", "x2", "x3")
#: One question of each kind, asked of the good data; a later run of it writes over its release.
FIT = ["run", "fit.toml", "data.csv", "--force"]
EFFECT = ["run", "effect.toml", "data.csv", "--force"]
RULE = ["run", "rule.toml", "data.csv", "--force"]
#: What stands in their files: records first, then the budget and the question.
RECORDS = (
    'covariate_bound = 2.0\noutcome_bound = 8.0\nintercept = 1.0\ntreatment = "a"\noutcome_column '
    '= "y"\n'
    "[ranges]\nx1 = [-1, 1]\nx2 = [-1, 1]\nx3 = [-1, 1]\n"
)
QUESTIONS = {
    "fit": '[[two_stage]]\nfirst_stage = "entropy_balancing"\nsecond_stage = "itr"\n',
    "effect": "[[effect]]\n",
    "rule": "[[rule]]\n",
}


def study_of(question, records=RECORDS, epsilon=1):
    """The text of a study file that asks this question."""
    return f"{records}[budget]\nepsilon = {epsilon}\n{question}"


def write_files():
    """Write data, a domain file and a study of each kind to the current folder.

    All records are of one person.
    """
    data = simulate("linear", 200, rng=0).dataset
    frame = pd.DataFrame(data.X[:, :3], columns=COLUMNS).assign(who="ann", a=data.a, y=data.y)
    frame.to_csv("data.csv", index=False)
    Path("domain.toml").write_text(RECORDS)
    for name, question in QUESTIONS.items():
        Path(f"{name}.toml").write_text(study_of(question))


def sets(*changes):
    """Words that put these changes over a study."""
    return [word for change in changes for word in ("--set", change)]


def run(*args, **kwargs):
    return CliRunner().invoke(main, [str(arg) for arg in args], **kwargs)


def done(*words, **kwargs):
    """Result of a command that ends well."""
    result = run(*words, **kwargs)
    assert result.exit_code == 0, result.output
    return result


def shown(*words, **kwargs):
    """What a command that ends well prints, in one line."""
    return " ".join(done(*words, **kwargs).stdout.split())


def facts(*words, **kwargs):
    """What a command that ends well says in JSON."""
    return json.loads(done(*words, "--json", **kwargs).stdout)


def refused(*words, **kwargs):
    """The one line of a command that is refused before anything is printed."""
    result = run(*words, **kwargs)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.output
    return result.stderr
