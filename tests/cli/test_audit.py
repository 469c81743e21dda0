"""``dp2erm audit``: what it prints, saves, replays and refuses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx.sampling import Unit
from tests.audit.bugs import whole
from tests.command_line import done, refused, run

MMD = ["audit", "--program", "mmd", "--set", "cap=4", "--set", "ridge=100", "--covariate-bound", "1"]
MMD += ["--arm-floor", "25", "--n", "100", "--solves", "1500"]
IPW = ["audit", "--program", "ipw_logistic", "--ridge", "1", "--covariate-bound", "1", "--n", "40"]


def test_a_violated_bound_is_shown_saved_and_replayed_by_another_solver(folder):
    result = run(*MMD, "--save", "pair")
    assert result.exit_code == 1
    (row,) = [line for line in result.stdout.splitlines() if "VIOLATED" in line]
    assert "paper, printed" in row
    assert "a search, not a proof" in result.stdout
    assert Path("pair.npz").exists()
    again = run("audit", "--replay", "pair", "--solver", "osqp")
    assert again.exit_code == 1
    assert "violated by this pair" in again.stdout
    assert "both intervals meet" in again.stdout
    facts = json.loads(run("audit", "--replay", "pair", "--json").stdout)
    assert facts["violated"] is facts["agrees"] is True
    assert facts["movement"]["low"] > facts["claim"]["bound"]


def test_json_repeats_and_says_that_no_data_were_read(folder):
    first, second = (json.loads(run(*IPW, "--solves", "300", "--json").stdout) for _ in range(2))
    first.pop("seconds"), second.pop("seconds")
    assert first == second
    assert first["private"] is True
    assert first["proof"] is False
    assert not any(verdict["violated"] for verdict in first["verdicts"])


def test_a_page_and_json_are_written(folder):
    result = done(*IPW, "--solves", "400", "--output-dir", "report")
    assert "Report: report/audit.html, report/audit.json" in result.stdout
    facts = json.loads(Path("report/audit.json").read_text())
    assert facts["command"] == "dp2erm " + " ".join([*IPW, "--solves", "400", "--output-dir", "report"])
    assert facts["command"] in Path("report/audit.html").read_text()
    run(*IPW, "--solves", "60", "--output-dir", "bare", "--no-page")
    assert [path.name for path in Path("bare").iterdir()] == ["audit.json"]


def test_nothing_is_searched_where_a_report_could_not_be_written(folder, monkeypatch):
    searched = []
    monkeypatch.setattr("dp2erm_cvx.audit.audit_stability", lambda *args, **kwargs: searched.append(1))
    Path("taken/audit.html").mkdir(parents=True)
    for words in (["--output-dir", "taken"], ["--save", "output/audit"]):
        assert "audit." in refused(*IPW, "--solves", "60", *words)
    monkeypatch.setattr("dp2erm_cvx.report.page.find_spec", lambda name: None)
    missing = refused(*IPW, "--solves", "60")
    assert "pip install 'dp2erm-cvx[reports]'" in missing
    assert "--no-page" in missing
    assert not searched


def test_data_are_read_and_it_says_so(folder):
    words = ["audit", "data.csv", "--program", "ipw_logistic", "--domain", "domain.toml", "--solves", "200"]
    result = done(*words, "--treatment", "a", "--outcome", "y", "--json")
    assert "NOT PRIVATE" in result.stderr
    plain = json.loads(result.stdout)
    assert (plain["private"], plain["n_samples"], plain["n_features"]) == (False, 200, 3)


PERSONS = """\
outcome_column = "y"
outcome_bound = 2
[treatment]
column = "arm"
[unit]
column = "id"
number = 8
[ranges]
x = [-1, 1]
"""


def test_sums_over_whole_persons_are_audited_without_a_program(folder, monkeypatch):
    Path("persons.toml").write_text(PERSONS)
    words = ("audit", "--domain", "persons.toml", "--solves", "120")
    right = done(*words, "--save", "pair")
    assert "no violation found, which is no proof" in " ".join(right.stdout.split())
    assert re.search("(first|second) only", Path("output/audit.html").read_text())
    with np.load("pair.npz") as held:
        assert max(np.bincount(held["person_first"])) > 1
    # planted: three records of a person count fully, at the noise of their mean
    monkeypatch.setattr(Unit, "shared", whole)
    wrong = run(*words, "--no-page", "--json")
    assert wrong.exit_code == 1
    assert json.loads(wrong.stdout)["audit"]["reached"] > 2.4
    assert "protects single records" in refused(*words, "--program", "uniform")


def test_a_planted_error_says_what_a_search_is_worth(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("audit", "--program", "overlap", "--covariate-bound", "1", "--n", "40", "--solves", "300")
    words = (*words, "--no-page")
    caught = done(*words, "--plant", "2")
    assert "planted: V / 2: refuted" in caught.stdout
    (unseen,) = re.findall(r"an error of V below a factor ([\d.]+) would not be seen here", caught.stdout)
    assert 1.0 < float(unseen) < 2.0
    missed = run(*words, "--plant", "1.05", "--json")
    assert missed.exit_code == 1
    told = json.loads(missed.stdout)
    assert told["planted"] == {"factor": 1.05, "caught": False}
    assert told["unseen"] == pytest.approx(float(unseen), abs=0.01)
