"""A folder with data and a domain, and one good command line, for the tests of the command line."""

import json
from pathlib import Path

import pandas as pd
from click.testing import CliRunner

from dp2erm_cvx.cli import main
from dp2erm_cvx.datasets import simulate

COLUMNS = ("x1", "x2", "x3")
FIT = ["fit", "data.csv", "--treatment", "a", "--outcome", "y", "--domain", "domain.toml", "--epsilon", "1"]
EFFECT = ["effect", *FIT[1:]]


def write_files():
    """Write data and a domain file to the current folder; all records are of one person."""
    data = simulate("linear", 200, rng=0).dataset
    frame = pd.DataFrame(data.X[:, :3], columns=COLUMNS).assign(who="ann", a=data.a, y=data.y)
    frame.to_csv("data.csv", index=False)
    Path("domain.toml").write_text(
        "covariate_bound = 2.0\noutcome_bound = 8.0\nintercept = 1.0\n"
        "[ranges]\nx1 = [-1, 1]\nx2 = [-1, 1]\nx3 = [-1, 1]\n"
    )


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
