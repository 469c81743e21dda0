"""``dp2erm audit``: what it prints, saves, replays and refuses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx.data.counts import Unit
from tests.audit.bugs import whole
from tests.command_line import done, facts, refused, run, sets, shown

MMD = [
    "audit",
    "--program",
    "mmd",
    *sets("cap=4", "ridge=100", "covariate_bound=1", "arm_floor=25"),
]
MMD += ["--n", "100", "--solves", "400"]
IPW = ["audit", "--program", "ipw_logistic", *sets("ridge=1", "covariate_bound=1"), "--n", "40"]


def test_a_violated_bound_is_shown_saved_and_replayed_by_another_solver(folder):
    result = run(*MMD, "--save", "pair")
    assert result.exit_code == 1
    (row,) = [line for line in result.stdout.splitlines() if "VIOLATED" in line]
    assert "paper, printed" in row
    assert "a search, not a proof" in result.stdout
    again = run("audit", "--replay", "pair", "--solver", "osqp")
    assert again.exit_code == 1
    assert "violated by this pair" in again.stdout
    assert "both intervals meet" in again.stdout
    replayed = json.loads(run("audit", "--replay", "pair", "--json").stdout)
    assert replayed["violated"] is replayed["agrees"] is True
    assert replayed["movement"]["low"] > replayed["claim"]["bound"]


def test_a_search_repeats_in_json_and_on_a_page(folder):
    words = [*IPW, "--solves", "100"]
    result = done(*words, "--output-dir", "report")
    assert "Report: report/audit.html, report/audit.json" in result.stdout
    kept = json.loads(Path("report/audit.json").read_text())
    assert kept["command"] == "dp2erm " + " ".join([*words, "--output-dir", "report"])
    assert kept["command"] in Path("report/audit.html").read_text()
    told, other = facts(*words, "--output-dir", "bare", "--no-page"), facts(*words, "--no-page")
    told.pop("seconds"), other.pop("seconds")
    assert told == other
    assert [path.name for path in Path("bare").iterdir()] == ["audit.json"]
    assert (told["private"], told["proof"]) == (True, False)
    assert not any(verdict["violated"] for verdict in told["verdicts"])


def test_nothing_is_searched_where_a_report_could_not_be_written(folder, monkeypatch):
    monkeypatch.setattr(
        "dp2erm_cvx.audit.audit_stability", lambda *_, **__: pytest.fail("was searched")
    )
    Path("taken/audit.html").mkdir(parents=True)
    for words in (["--output-dir", "taken"], ["--save", "output/audit"]):
        assert "audit." in refused(*IPW, "--solves", "60", *words)
    monkeypatch.setattr("dp2erm_cvx.report.page.find_spec", lambda name: None)
    missing = refused(*IPW, "--solves", "60")
    assert "pip install 'dp2erm-cvx[reports]'" in missing
    assert "--no-page" in missing


def test_data_are_read_and_it_says_so(folder):
    words = [
        "audit",
        "data.csv",
        "--program",
        "ipw_logistic",
        "--study",
        "domain.toml",
        "--solves",
        "100",
    ]
    result = done(*words, "--json")
    assert "NOT PRIVATE" in result.stderr
    plain = json.loads(result.stdout)
    assert (plain["private"], plain["n_samples"], plain["n_features"]) == (False, 200, 3)


def test_sums_over_whole_persons_are_audited_without_a_program(folder, monkeypatch):
    Path("persons.toml").write_text(
        'outcome_column = "y"\noutcome_bound = 2\n[treatment]\ncolumn = "arm"\n[unit]\ncolumn = '
        '"id"\n'
        "number = 8\n[ranges]\nx = [-1, 1]\n"
    )
    words = ("audit", "--study", "persons.toml", "--solves", "50")
    assert "no violation found, which is no proof" in shown(*words, "--save", "pair")
    assert re.search("(first|second) only", Path("output/audit.html").read_text())
    with np.load("pair.npz") as held:
        assert max(np.bincount(held["person_first"])) > 1
    # planted: three records of a person count fully, at the noise of their mean
    monkeypatch.setattr(Unit, "shared", whole)
    wrong = run(*words, "--no-page", "--json")
    assert wrong.exit_code == 1
    assert json.loads(wrong.stdout)["audit"]["reached"] > 2.4
    assert "protects single records" in refused(*words, "--program", "uniform")


def test_a_planted_error_says_what_a_search_is_worth(folder):
    words = (
        "audit",
        "--program",
        "overlap",
        *sets("covariate_bound=1"),
        "--n",
        "40",
        "--solves",
        "120",
    )
    words = (*words, "--no-page")
    caught = done(*words, "--plant", "2").stdout
    assert "planted: V / 2: refuted" in caught
    (unseen,) = re.findall(r"an error of V below a factor ([\d.]+) would not be seen here", caught)
    assert 1.0 < float(unseen) < 2.0
    missed = run(*words, "--plant", "1.05", "--plant", "2", "--json")
    assert missed.exit_code == 1
    told = json.loads(missed.stdout)
    assert told["planted"] == [{"factor": 1.05, "caught": False}, {"factor": 2.0, "caught": True}]
    assert told["unseen"] == pytest.approx(float(unseen), abs=0.01)
