"""Every script of the pages runs as they say, in seconds, and goes on where it was stopped."""

import json
import re
import subprocess
import sys
from pathlib import Path

import common
import health_record
import numpy as np
import pandas as pd
import panel
import pytest
from common import Cell, cells, run
from whole_fits import LIMITS, LOGISTIC

from dp2erm_cvx.study import read_study
from tests.command_line import done

EXPERIMENTS = Path(common.__file__).parent
FIGURES = {
    "figure1": ("simulation", 6),
    "confounded": ("confounded", 1),
    "rates": ("rates", 2),
    "nhefs": ("nhefs", 1),
    "effects": ("effects", 0),
    "benchmark": ("benchmark", 2),
    "sharing": ("sharing", 0),
    "health_record": ("health-record", 0),
    "scheme_effects": ("scheme-effects", 0),
    "rehearsals": ("rehearsals", 0),
    "far_arms": ("far-arms", 0),
    "wrong_scale": ("wrong-scale", 1),
}
#: They print, and write no table of their own.
PRINTED = {"persons", "arms", "leaks", "panel", "intervals", "doors", "weights_as_variable"} | {
    "weight_caps",
    "weights_literature",
    "several_arms_width",
}
#: They take the file of Twins, or the results of another script.
FED = {"twins", "page_tables"}


def quick(script, folder, *words):
    """What a quick run prints."""
    line = [sys.executable, str(script), "--quick", *map(str, words)]
    ended = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", FIGURES)
def test_a_quick_run_writes_its_table_and_figures(script, tmp_path):
    told = quick(EXPERIMENTS / f"{script}.py", tmp_path, "--output", tmp_path)
    name, figures = FIGURES[script]
    folder = tmp_path / f"{name}-quick"
    assert len(pd.read_csv(folder / "results.csv", low_memory=False)) > 10
    assert (folder / "summary.md").read_text() in told
    assert len(list(folder.glob("*.svg"))) == figures


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(PRINTED))
def test_a_quick_run_changes_no_file_of_the_pages(script, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in EXPERIMENTS.rglob("*.[cs]*")}
    quick(
        EXPERIMENTS / f"{script}.py",
        tmp_path,
        *(["--folder", tmp_path] if script == "doors" else []),
    )
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_every_script_has_a_quick_run():
    scripts = {path.stem for path in EXPERIMENTS.glob("*.py") if "__main__" in path.read_text()}
    assert scripts == {*FIGURES, *PRINTED, *FED}


@pytest.mark.slow
def test_a_panel_goes_from_its_file_to_a_page(tmp_path, monkeypatch):
    """Four commands with one study file: identifiers with blanks, missing ones, spellings, three
    doses.
    """
    monkeypatch.chdir(tmp_path)
    table = panel.extract(panel.PATIENTS, np.random.default_rng(1))
    table.to_csv("visits.csv", index=False)
    Path("study.toml").write_text(panel.STUDY)
    files = ["releases/pain.json", "releases/sleep.json"]
    for words in (
        [
            "check",
            "visits.csv",
            "--treatment",
            "dose",
            "--outcome",
            "pain",
            "--draft",
            "draft.toml",
        ],
        ["run", "study.toml", "visits.csv", "--seed", "4", "--yes"],
        *(["verify", file, "--study", "study.toml"] for file in files),
        ["report", *files, "--output", "page.html"],
    ):
        assert str(len(table)) not in done(*words).stdout or words[0] == "check"
    assert (
        "# This column repeats: keep this table, or delete it.\n[unit]\n"
        in Path("draft.toml").read_text()
    )
    assert "high less low" in Path("page.html").read_text()
    assert not re.search(rf"\b{len(table)}\b", "".join(Path(file).read_text() for file in files))


@pytest.mark.slow
def test_answers_about_persons_cover_where_those_about_rows_do_not(tmp_path):
    rows = []
    for read, study in (("visits", panel.STUDY), ("person", panel.TRIAL), ("row", panel.ROWS)):
        for seed in range(2):
            table = panel.extract(
                panel.PATIENTS, np.random.default_rng([7, seed]), trial=read != "visits"
            )
            rows += [(read, *row) for row in panel.released(study, table, seed)]
    result = pd.DataFrame(rows, columns=["read", "answer", "off", "covered", "half"])
    covered = result.groupby("read")["covered"].mean()
    assert covered["visits"] >= 0.94
    assert covered["person"] >= 0.88 > 0.8 > covered["row"]
    panel.figure(result, tmp_path / "panel.svg")
    assert (tmp_path / "panel.svg").stat().st_size > 1000


@pytest.mark.slow
def test_a_messy_extract_gives_one_answer_however_it_is_read(tmp_path, monkeypatch):
    """Spellings, units, dates, limits and eligibility, from CSV, Parquet in blocks and a data
    frame.
    """
    monkeypatch.chdir(tmp_path)
    table, _ = health_record.extract(900, np.random.default_rng(1))
    Path("study.toml").write_text(health_record.STUDY)
    numbers = {name: table[name].astype(float) for name in ("severity", "sbp_change")}
    table.to_csv("extract.csv", index=False)
    table.assign(**numbers).to_parquet("extract.parquet", row_group_size=200)
    released = []
    # the chain of the page: from the table to a plot and a page
    assert done("run", "study.toml", "--plan", "900").stdout.count("half width") == 4
    for words in (["extract.csv"], ["extract.parquet", "--blocks", "always"]):
        result = done("run", "study.toml", *words, "--seed", "4", "--json", "--force", "--yes")
        assert "not eligible" in result.stderr
        released.append({name: one["released"] for name, one in json.loads(result.stdout).items()})
    columns = {name: [None if pd.isna(one) else str(one) for one in table[name]] for name in table}
    study = read_study("study.toml")
    for frame in (table, pytest.importorskip("polars").DataFrame(columns)):
        answered = study.run(frame, seed=4)
        released.append({name: list(release.released) for name, release in answered.items()})
    assert all(one == released[0] for one in released)
    files = [f"releases/{name}.json" for name in released[0]]
    for answers in ("answers.svg", "answers.html", "answers.csv", "answers.md", "answers.tex"):
        done("report", *files, "--output", answers)
    assert "sex: F" in Path("answers.md").read_text()
    for file in files:
        done("verify", file, "--study", "study.toml")


@pytest.mark.slow
def test_a_messy_extract_is_answered(tmp_path):
    place = Cell((("n", 3000), ("severity", "left out"), ("replicate", 0)), 20)
    rows = pd.DataFrame(health_record.replicate(health_record.QUICK, place))
    answered = {"average", "sex: F", "sex: M", "treated", "shock", "shock: risk ratio"}
    assert set(rows["answer"]) == answered
    assert rows["all together"].all()
    assert (rows["error"].abs() < 4 * rows["half width"]).all()
    assert "covered" in health_record.summary(rows.assign(n=3000, severity="left out"))


def drawn(design, cell):
    calls = Path(design["calls"])
    calls.write_text(calls.read_text() + ".")
    return [{"status": "done", "drawn": cell.rng("noise").normal() + design["shift"]}]


def test_cells_have_seeds_of_their_own_and_are_kept(tmp_path):
    calls = tmp_path / "calls"
    calls.write_text("")
    design = {"seed": 3, "shift": 0.0, "calls": str(calls)}
    places = cells(design, [{"n": n, "replicate": k} for n in (5, 6) for k in (0, 1)])
    table = run(drawn, design, places, tmp_path, 1)
    assert table["drawn"].nunique() == 4
    assert len(calls.read_text()) == 4
    # a run that was stopped goes on, and every cell stands for itself
    again = run(drawn, design, places[::-1], tmp_path, 1)
    assert again["drawn"].tolist() == table["drawn"].tolist()[::-1]
    assert len(calls.read_text()) == 4
    # another design is another cell
    assert (
        run(drawn, design | {"shift": 1.0}, places[:1], tmp_path, 1)["drawn"][0]
        == table["drawn"][0] + 1.0
    )
    assert pd.read_csv(tmp_path / "results.csv")["n"].tolist() == [5]
    one, other = (Cell((("n", 5),), seed).rng("a").normal() for seed in (1, 2))
    assert one != other
    assert Cell((("n", 5),), 1).rng("b").normal() != one


def test_means_are_over_replicates_with_their_intervals():
    place, pairs = {"method": "m", "status": "done"}, enumerate([(0.2, 0.4), (0.5, 0.7)])
    rows = [place | {"replicate": k, "accuracy": one} for k, pair in pairs for one in pair]
    (line,) = common.means(pd.DataFrame(rows), ["method"], ["accuracy"]).to_dict("records")
    assert line["accuracy"] == pytest.approx(0.45)
    # of .3 and .6, whose standard deviation is .3 / sqrt(2)
    assert line["accuracy_half"] == pytest.approx(1.959964 * 0.15)
    assert common.with_interval(line) == "0.450 ±.294"


@pytest.mark.slow
def test_a_quick_run_measures_every_contender_and_certifies_the_library(tmp_path):
    page, root = tmp_path / "page.md", Path(__file__).parents[2]
    page.write_text(
        "before\n<!-- benchmark tables: begin -->old<!-- benchmark tables: end -->\nafter\n"
    )
    files = ("--output-dir", tmp_path, "--page", page, "--figure", tmp_path / "growth.svg")
    quick(root / "docs/benchmarks/run.py", root, *files)
    facts = json.loads((tmp_path / "benchmarks.json").read_text())
    rows, scale = facts["rows"], facts["scale"]
    assert len({row["work"] for row in rows}) == 4
    ours = [row for row in rows if row["contender"].startswith("library")]
    assert len(ours) == 8
    assert all(row["error"] <= 1e-9 for row in ours)
    assert all(row["limit"] > 0 for row in ours if row["contender"] == "library, batch")
    assert {row["contender"] for row in scale} == {LOGISTIC, *LIMITS}
    assert all(row["seconds"] > 0 and (row["gradient"] or 0.0) <= 1e-9 for row in scale)
    assert (tmp_path / "growth.svg").stat().st_size > 1000
    assert {"python -c 'import cvxpy'", "dp2erm --help", "dp2erm run, 1,566 records"} <= set(
        facts["startup"]
    )
    assert all(row["error"] <= 1e-9 and row["by_single"] == 0 for row in facts["readings"])
    assert len(facts["audits"]) == 4
    assert all(row["ratio"] <= 1 and row["disagreement"] <= 1 for row in facts["audits"])
    text = page.read_text()
    assert (text[:6], text[-6:], "old" in text) == ("before", "after\n", False)
    assert all(row["contender"] in text for row in [*rows, *scale])
