"""``dp2erm frontier``: a table, JSON, a study, a figure, files of schemes, and refusals in one
line.
"""

import json
import tomllib
from pathlib import Path

import pytest

from dp2erm_cvx.study import read_study
from tests.command_line import facts, refused, run, sets, shown

SMALL = ["frontier", "entropy_balancing", "--n", "60", "--n-features", "2", "--treated", "0.4"]
FEW = [*SMALL, *sets("ridge=1,.1", "cap=2")]
OWN = '''"""Two schemes."""
import cvxpy as cp

from dp2erm_cvx.program import scheme


@scheme(ridge=0.1)
def squares(w, records, ridge):
    """Squares, and a price of the imbalance of the arms."""
    price = cp.sum_squares(records.signed.T @ w) / (2 * ridge * records.n)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) / 2 + price), [w <= 3])


@scheme.separable(ridge=0.1, radius=2.0)
def matching(s):
    """Matching weights."""
    return cp.logistic(-s), cp.minimum(-s, 0)
'''


@pytest.mark.slow
def test_json_has_every_number_and_the_study():
    found = facts(*FEW)
    assert {
        "n_samples",
        "n_features",
        "epsilon",
        "treated",
        "distance",
        "rows",
        "proposed",
        "study",
    } <= set(found)
    assert [row["settings"] for row in found["rows"]] == [
        {"treated": 0.4, "ridge": 1, "cap": 2},
        {"treated": 0.4, "ridge": 0.1, "cap": 2},
    ]
    for row in found["rows"]:
        assert row["refusal"] == ""
        numbers = (
            "V",
            "left",
            "effective",
            "largest",
            "treated",
            "moved",
            "half_width",
            "effect_V",
        )
        assert all(row[name] > 0 for name in numbers)
        assert row["theorem"].startswith("Theorem 5")
    best = found["rows"][found["proposed"]]
    (table,) = tomllib.loads(found["study"])["effect"]
    # the share of the treated is that which the effect releases
    chosen = {name: value for name, value in best["settings"].items() if name != "treated"}
    assert table == {"confounding": 1.0, "weights": {"name": "entropy_balancing", **chosen}}


@pytest.mark.slow
def test_the_study_that_is_printed_is_read_as_one(folder):
    study = facts(*FEW)["study"]
    Path("study.toml").write_text(
        Path("domain.toml").read_text() + "[budget]\nepsilon = 1\n" + study
    )
    (model,) = read_study("study.toml").models().values()
    assert model.weights.name == "entropy_balancing"
    assert model.weights.value("cap") == 2
    assert model.plan(60, ("x", "z")).main.program.name == "entropy_balancing"


def test_the_table_fits_and_names_the_proposal():
    text = run(*FEW, env={"COLUMNS": "80"}).stdout
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert "ridge 0.1, cap 2" in text
    assert "treated 0.4" not in text
    assert "Take: entropy_balancing at ridge" in text
    assert text.rstrip().endswith("}")


@pytest.mark.slow
def test_files_of_schemes_and_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    small = ["--n", "60", "--n-features", "2"]
    both = facts("frontier", "own.py", *small, *sets("ridge=0.1"))
    assert [row["scheme"] for row in both["rows"]] == ["matching", "squares"]
    assert both["rows"][0]["half_width"] is None
    assert "have no proof" in both["rows"][0]["no_effect"]
    assert 'name = "own.py:squares"' in both["study"]
    one = facts("frontier", "own.py:matching", *small, *sets("ridge=0.1"))
    assert [row["scheme"] for row in one["rows"]] == ["matching"]
    (table,) = tomllib.loads(one["study"])["two_stage"]
    assert table["first_stage"]["name"] == "own.py:matching"


@pytest.mark.slow
def test_settings_that_are_texts(folder):
    found = facts(
        "frontier",
        "entropy_balancing",
        "--n",
        "40",
        *sets("balance=1,2", "ridge=1"),
        "--study",
        "fit.toml",
    )
    assert found["n_features"] == 3
    assert len(found["rows"]) == 2
    assert json.loads(json.dumps(found["rows"][1]["settings"]["balance"])).startswith("Moments")
    (table,) = tomllib.loads(found["study"])["effect"]
    assert table["weights"]["balance"] in (1, 2)


@pytest.mark.slow
def test_a_table_of_public_records(folder):
    few = sets("ridge=1", "cap=2")
    words = ["frontier", "entropy_balancing", "--study", "fit.toml", "--public", "data.csv", *few]
    found = facts(*words, "--source", "made up")
    assert found["public"] == "made up"
    assert found["n_samples"] == 4000
    assert found["n_features"] == 3
    assert "--source is missing" in refused(*words)


@pytest.mark.slow
def test_a_plot_of_the_frontier_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    text = shown(*FEW, *sets("arm_floor=10"), "--plot", str(tmp_path / "trade.svg"))
    assert "trade.svg" in text
    assert (tmp_path / "trade.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["frontier", "nosuch"], "unknown program 'nosuch'"),
        (["frontier", "itr"], "itr: is a second stage"),
        (["frontier", "tilting_private"], "adds noise to its weights"),
        ([*SMALL, "--treated", "0"], "treated = 0"),
        ([*SMALL, "--distance", "-1"], "distance = -1"),
        ([*SMALL, "--epsilon", "0"], "epsilon = 0"),
        ([*SMALL, "--n", "1"], "--n = 1"),
        ([*SMALL, *sets("rigde=1")], "no scheme has a setting 'rigde'"),
        ([*SMALL, *sets("ridge")], "must look like NAME=VALUE"),
        ([*SMALL, *sets("ridge=")], "must look like NAME=VALUE"),
        ([*SMALL, "--plot", "figure.txt"], "figures are .png, .svg or .pdf"),
        ([*SMALL, *sets("arm_floor=50")], "an arm has 24 of 60 records, and needs 50"),
        (["frontier", "nosuch.py"], "nosuch.py: is no file"),
    ],
)
def test_refused_in_one_line(words, text):
    assert text in refused(*words)
