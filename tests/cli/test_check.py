"""From a messy table to a private effect: ``dp2erm check``, its draft, and what reads raw tables."""

import csv
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import EffectRelease, PrivateEffect, files, load_domain
from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.diagnostics.columns import TableCells
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.files import CsvLayout, guessed_layout, read_csv
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.tables import numbers_or_nan, read_frame
from tests.command_line import done, refused, run

HEADER = ("Patient", "Datum", "Alter", "Schwere", "Region", "Raucher", "Arm", "Punkte")
TRUTH = 3.0
LEVELS = ("Nord", "Süd", "Ost", "West", "other")
FILLED = {
    'outcome_center = "EDIT"': "outcome_center = 50",
    'outcome_bound = "EDIT"': "outcome_bound = 25",
    'treated = "EDIT"': 'treated = "behandelt"',
    'control = "EDIT"': 'control = "Kontrolle"',
    'Alter = ["EDIT", "EDIT"]': "Alter = [30, 80]",
    'Schwere = ["EDIT", "EDIT"]': "Schwere = [0, 10]",
    'Region = ["EDIT"]': 'Region = ["Nord", "Süd", "Ost", "West", "other"]',
    'Raucher = ["EDIT"]': 'Raucher = ["ja", "nein", ""]',
    "# severity = 5": "Schwere = 5",
    '# severity = "points"': 'Punkte = "points"',
    'epsilon = "EDIT"': "epsilon = 4",
    "# residual_scale = 4.0": "residual_scale = 4.0",
}


def german(number, places=2):
    return f"{number:.{places}f}".replace(".", ",")


def write_registry(n=3000, seed=1):
    """Semicolons, latin-1, decimal commas; the sicker are treated, and do worse anyway."""
    rng = np.random.default_rng(seed)
    age, severity = rng.uniform(30, 80, n), rng.uniform(0, 10, n)
    region = rng.choice(["Nord", "Süd", "Ost", "West"], n)
    smoker = rng.choice(["ja", "nein"], n)
    v = (severity - 5) / 5
    score_chance = 1.5 * v + 0.8 * (region == "Süd") + 0.5 * (smoker == "ja")
    treated = rng.random(n) < 1 / (1 + np.exp(-score_chance))
    score = 52 - 8 * v - (age - 55) / 12 - 3 * (region == "Süd") - 3 * (smoker == "ja")
    score += TRUTH * treated + rng.normal(0, 4, n)
    with open("registry.csv", "w", newline="", encoding="latin-1") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(HEADER)
        for k in range(n):
            row = [f"P{k:05}", "05.11.2023", german(age[k]), german(severity[k]), region[k], smoker[k]]
            row += ["behandelt" if treated[k] else "Kontrolle", german(score[k])]
            empty = rng.random(4) < (0.03, 0.02, 0.01, 0.003)
            for place, gap in zip((3, 5, 7), empty, strict=False):
                row[place] = "" if gap else row[place]
            row[4] = "Malmö" if empty[3] else row[4]
            writer.writerow(row)
    return score[treated].mean() - score[~treated].mean()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fill(path="domain.toml", **more):
    text = Path(path).read_text(encoding="utf-8")
    for gap, filled in {**FILLED, **more}.items():
        assert gap in text, gap
        text = text.replace(gap, filled)
    Path(path).write_text(text, encoding="utf-8")


def test_from_a_messy_table_to_an_effect_in_three_commands(folder):
    naive = write_registry()
    assert naive < -1.0  # the wrong sign
    draft = run(
        "check", "registry.csv", "--treatment", "Arm", "--outcome", "Punkte", "--draft", "domain.toml"
    )
    assert draft.exit_code == 0, draft.output
    told = " ".join(draft.stdout.split())
    assert "NOT PRIVATE" in told
    assert 'declare under [levels]: Region = ["Malmö", "Nord", "Ost", "Süd", "West"]' in told
    text = Path("domain.toml").read_text(encoding="utf-8")
    # of the data it holds no number, no level and no label
    assert not any(word in text for word in ("Nord", "behandelt", "ja", "30", "80", "2023"))
    told = refused("effect", "registry.csv", "--domain", "domain.toml", "--epsilon", "2")
    assert told.startswith('error: domain.toml: outcome_center still says "EDIT"')
    fill()
    checked = done("check", "registry.csv", "--domain", "domain.toml")
    told = " ".join(checked.stdout.split())
    assert "'Malmö'" in told
    assert "without outcome do not count in an effect or a rule." in told
    assert not re.search("shrunk|clipped", told)
    narrow = run(
        "check", "registry.csv", "--domain", "domain.toml", "--covariate-bound", "1.5", "--outcome-bound", "5"
    )
    assert "shrunk to the covariate bound." in narrow.stdout
    assert "with an outcome that is clipped." in narrow.stdout
    effect = ["effect", "registry.csv", "--domain", "domain.toml", "--residual-scale", "4", "--epsilon", "4"]
    result = done(*effect, "--seed", "1", "--json")
    release = EffectRelease.from_json(result.stdout)
    assert 0.0 < release.interval.low < TRUTH < release.interval.high < 2 * TRUTH
    # what was declared is in the release, and no count of what was met
    assert release.domain["codebook"]["levels"]["Raucher"] == ["ja", "nein", ""]
    done("design", "domain.toml", "--n", "3000", "--replicates", "10", "--output", "s.toml")
    assert 'Punkte = "points"' in Path("s.toml").read_text(encoding="utf-8")
    studied = run("run", "domain.toml", "registry.csv", "--seed", "1", "--json")
    assert json.loads(studied.stdout)["effect"]["estimate"] == release.estimate
    shown = " ".join(run(*effect, "--seed", "1").stdout.split())
    assert "on Punkte: +2.93 points (95 % CI" in shown
    assert "Arm behandelt is treated, Kontrolle a control; Region has levels Nord, Süd" in shown
    assert "Malmö" not in result.stdout
    # the same table in Python, through another reader
    frame = pd.read_csv("registry.csv", sep=";", encoding="latin-1", decimal=",", keep_default_na=False)
    model = PrivateEffect(load_domain("domain.toml"), Budget(4.0), residual_scale=4.0, seed=1)
    frame["Schwere"] = frame["Schwere"].str.replace(",", ".")
    frame["Punkte"] = frame["Punkte"].str.replace(",", ".")
    model.fit(frame, frame["Arm"], frame["Punkte"])
    assert model.effect_ == pytest.approx(release.estimate, abs=1e-9)


def test_a_survey_with_messy_weights_from_its_file_to_an_effect(folder):
    """Northerners were taken four times as often; what is no weight is told to the holder alone."""
    rng, lines = np.random.default_rng(0), ["arm;score;north;wt"]
    for row in range(3000):
        north = row % 5 > 0
        arm, weight = rng.integers(0, 2), german(0.5 if north else 2.0)
        weight = {1: "", 2: "keine", 3: "-1", 4: "99"}.get(row % 200, weight)
        score = german(50 + 6 * (arm and not north) + rng.normal())
        lines.append(f"{('no', 'yes')[arm] if row % 50 else '?'};{score};{int(north)};{weight}")
    Path("survey.csv").write_text("\n".join(lines), encoding="latin-1")
    Path("domain.toml").write_text(
        'outcome_column = "score"\noutcome_center = 50\noutcome_bound = 25\n'
        '[treatment]\ncolumn = "arm"\ntreated = "yes"\ncontrol = "no"\n[ranges]\nnorth = [0, 1]\n'
        '[sampling_weights]\ncolumn = "wt"\nlargest = 2\n'
        '[csv]\nseparator = ";"\nencoding = "latin-1"\ndecimal = ","\n'
    )
    checked = run("check", "survey.csv", "--domain", "domain.toml", env={"COLUMNS": "140"})
    told = " ".join(checked.stdout.split())
    assert "wt sampling weight numbers and text 15 15 30" in told
    assert "wt: 'keine' (15): no number: counts as 0" in told
    assert "Sampling weights average 0.76 after clipping (1 is declared), from 0 to 2." in told
    assert "60 records without treatment do not count in an effect or a rule." in told
    survey = ["survey.csv", "--domain", "domain.toml", "--epsilon", "4"]
    effect = done("effect", *survey, "--residual-scale", "2", "--output", "effect.json")
    assert "stand for by the weights in wt" in " ".join(effect.stdout.split())
    assert "keine" not in effect.stdout
    estimate = EffectRelease.from_json(Path("effect.json").read_text(encoding="utf-8")).estimate
    assert abs(estimate - 3.0) < 0.9  # half of the population gains 6, a fifth of the records
    assert run("verify", "effect.json", "--domain", "domain.toml").stdout.startswith("Verified")
    assert run("rule", *survey, "--json").exit_code == 0
    for words in (survey, [*survey[1:], "--plan", "3000"]):
        told = refused("fit", *words)
        assert told.startswith("error: sampling_weights: not for a fit with the weights of a first stage")


def test_other_commands_read_the_same_table(folder):
    write_registry(300)
    run("check", "registry.csv", "--treatment", "Arm", "--outcome", "Punkte", "--draft", "domain.toml")
    fill()
    common = ["registry.csv", "--domain", "domain.toml", "--epsilon", "2", "--seed", "1"]
    assert run("rule", *common, "--output", "rule.json").exit_code == 0
    chosen = ["--second-set", "features=Region,Alter", "--program", "uniform", "--output", "fit.json"]
    done("fit", *common, *chosen)
    names = json.loads(Path("fit.json").read_text())["parameters"]
    assert [name for name in names if "=" in name] == [f"Region={level}" for level in LEVELS]
    layout = ["--separator", ";", "--encoding", "latin-1", "--decimal", ","]
    for release in ("rule.json", "fit.json"):
        predicted = done("predict", release, "registry.csv", *layout)
        assert len(predicted.stdout.splitlines()) == 301
    some = run("effect", *common, "--covariates", "Region,Schwere", "--prognostic", "Region", "--json")
    assert json.loads(some.stdout)["columns"] == [f"Region={level}" for level in LEVELS]
    done("fit", *common[1:5], "--plan", "300", "--second-stage", "arm_means")
    unknown = Path("domain.toml").read_text().replace("Alter = [30, 80]", 'Alter = "private"')
    Path("domain.toml").write_text(unknown)
    done("check", "registry.csv", "--domain", "domain.toml")
    ranged = done("effect", *common, "--private-ranges", "0.4", "--json")
    assert json.loads(ranged.stdout)["columns"][:3] == ["Alter", "Schwere", "Schwere=missing"]


@pytest.mark.parametrize(
    "line", ["40,5;x", "nan;nan;1e999;-1e999;Nord;ja;inf;inf"], ids=["short", "not finite"]
)
def test_no_row_is_refused_or_moves_another(folder, line):
    write_registry(40)
    run("check", "registry.csv", "--treatment", "Arm", "--outcome", "Punkte", "--draft", "domain.toml")
    fill()
    lines = Path("registry.csv").read_text(encoding="latin-1").splitlines()
    lines[7] = line
    Path("registry.csv").write_text("\n".join(lines), encoding="latin-1")
    effect = ["effect", "registry.csv", "--domain", "domain.toml", "--epsilon", "2", "--seed", "1", "--json"]
    result = done(*effect)
    lines[7] = ";;55;5;Nord;ja;keiner;60"
    Path("registry.csv").write_text("\n".join(lines), encoding="latin-1")
    assert run(*effect).stdout == result.stdout


def test_a_file_is_guessed_for_its_holder_alone(folder):
    Path("a.csv").write_text("x;y\n1,5;ja\n2,5;nein\n", encoding="latin-1")
    assert guessed_layout("a.csv") == CsvLayout(";", "utf-8", ",")
    Path("b.csv").write_bytes("x\ty\n1.5\tsüd\n".encode("latin-1"))
    assert guessed_layout("b.csv") == CsvLayout("\t", "latin-1", ".")
    Path("c.csv").write_text("x,y\n1,5\n2,5\n")
    assert guessed_layout("c.csv") == CsvLayout()
    table = read_csv("a.csv", CsvLayout(";", "utf-8", ","))
    np.testing.assert_array_equal(table.numbers("x"), [1.5, 2.5])
    Path("a.csv").write_text("x;y\n1.234,5;ja\n1.5;nein\n2,5;\n")
    table = read_csv("a.csv", CsvLayout(";", "utf-8", ","))
    # a point separates thousands there
    assert [one["holds"] for one in TableCells.of(table).report()] == ["numbers and text", "2 texts"]
    told = run("check", "b.csv", "--separator", "\t", "--range", "x=0:1", "--outcome-bound", "1").stdout
    assert "Lines with bytes that are no UTF-8 text: 1; see [csv] encoding." in told


def test_a_report_of_a_frame():
    frame = pd.DataFrame({"age": [20, 99, None], "text": ["a", "b", "b"], "on": [True, False, True]})
    age, text, on = TableCells.of(read_frame(frame), None, {"age": (18, 90)}).report()
    names = ("declared", "holds", "missing", "outside")
    assert [age[name] for name in names] == ["number", "numbers", 1, 1]
    assert text["notes"] == ['if a codebook lists its levels, declare under [levels]: text = ["a", "b"]']
    assert on["holds"] == "0 and 1"
    rng = np.random.default_rng(1)
    dose, age = rng.lognormal(0, 1, 500), rng.normal(60, 10, 500)
    ranges, hint = {"dose": (0.01, 100), "age": (18, 90)}, 'its logarithm is not: log = ["dose"] adjusts'
    first, second = TableCells.of(read_frame(pd.DataFrame({"dose": dose, "age": age})), None, ranges).report()
    assert [hint in note for note in first["notes"]] == [True]
    assert not second["notes"]
    declared = (book := Codebook(log=["dose"])).ranges({"dose": (0.01, 2.0)})
    (logged,) = TableCells.of(read_frame(pd.DataFrame({"dose": dose})), book, declared).report()
    assert (logged["declared"], logged["notes"]) == ("number", [])
    assert logged["outside"] == np.sum((dose < 0.01) | (dose > 2.0)) > 0
    frame, book = pd.DataFrame({"d": [None, *np.linspace(1234567.5, 2e6, 9)]}), Codebook(missing={"d": 1.5e6})
    (gaps,) = TableCells.of(read_frame(frame), book, {"d": (1234567.5, 2e6)}).report()
    assert "eligible = ['d >= 1234567.5']" in gaps["notes"][0]  # a rounded end would leave records out


@pytest.mark.parametrize(
    ("code", "plain", "hinted"),
    [
        (-9, range(100), True),
        (999, range(100), True),
        (99, range(100), False),  # follows 98
        (9, range(8), False),
        (-9, range(-60, 60), False),
        (-5, range(100), False),
    ],
)
def test_numbers_written_for_missing_ones_are_pointed_out_and_read_as_the_hint_says(code, plain, hinted):
    table = read_frame(pd.DataFrame({"age": [*map(str, [*plain] * 2), *[str(code)] * 6]}))
    (age,) = TableCells.of(table, None, {"age": (0, 100)}).report()
    assert [f"{code} (6): far from the other numbers" in note for note in age["notes"]] == [True] * hinted
    assert hinted is (f'[cells] age = {{ synonyms = {{ "" = ["{code}"] }} }}' in " ".join(age["notes"]))
    book = Codebook(cells={"age": {"synonyms": {"": [str(code)]}}})
    assert np.isnan(numbers_or_nan(book.read(table.cells)("age"), "age")[-6:]).all()
    (read,) = TableCells.of(table, book, {"age": (0, 100)}).report()
    assert (read["missing"], read["notes"]) == (6 + 2 * (code in plain), [])


def test_a_warning_says_what_raw_columns_become(folder):
    Path("r.csv").write_text("x,income,a,y\n" + "1,30000,1,2\n0,20000,0,1\n1,9,0,0\n" * 20)
    common = ["--treatment", "a", "--outcome", "y", "--epsilon", "1", "--outcome-bound", "2"]
    result = done("effect", "r.csv", *common, "--covariate-bound", "2", "--json")
    assert "\nwarning: no ranges are declared: raw columns are shrunk together" in result.stderr
    ranged = run("effect", "r.csv", *common, "--range", "x=0:1", "--range", "income=0:50000", "--json")
    assert "warning" not in ranged.stderr
    assert json.loads(ranged.stdout)["domain"]["covariate_bound"] == pytest.approx(2**0.5)


LABELS = """outcome_column = "pressure"
outcome_center = 90
outcome_bound = 50
[treatment]
column = "drug"
treated = "Vasopressor"
control = "none"
[ranges]
age = [20, 90]
[levels]
ward = ["North", "South"]
"""


def write_wards(n=400, **columns):
    rng = np.random.default_rng(2)
    told = {"drug": rng.choice(["vasopressor", "none"], n), "pressure": rng.normal(90, 20, n).round(1)}
    told |= {
        "age": rng.integers(20, 90, n),
        "ward": rng.choice(["north", "South"], n, p=[0.3, 0.7]),
    } | columns
    pd.DataFrame(told).to_csv("wards.csv", index=False)
    pd.DataFrame(told).to_parquet("wards.parquet", row_group_size=100)
    Path("wards.toml").write_text(LABELS)


@pytest.mark.parametrize(
    ("command", "words"),
    [("effect", ["wards.csv"]), ("rule", ["wards.parquet", "--blocks", "always"]), ("fit", ["wards.csv"])],
)
def test_labels_that_do_not_fit_stop_a_release_before_the_charge(folder, command, words):
    write_wards()
    checked = " ".join(run("check", words[0], "--domain", "wards.toml").stdout.split())
    assert "'Vasopressor' is declared: did you mean 'vasopressor'?" in checked
    assert "'North' is declared: did you mean 'north'?" in checked
    run("ledger", "b.db", "--dataset", "wards", "--declare-epsilon", "3")
    release = [command, *words, "--domain", "wards.toml", "--epsilon", "1", "--output", "out.json"]
    release += ["--ledger", "b.db", "--dataset", "wards"]
    if command == "fit":
        release += ["--program", "uniform"]
    line = refused(*release)
    assert "treated; drug: 'Vasopressor' is declared: did you mean 'vasopressor'?" in line
    assert "nothing was charged; --yes releases all the same" in line
    spent = '"receipts": []'
    assert spent in run("ledger", "b.db", "--json").stdout
    assert not Path("out.json").exists()
    assert run(*release, "--yes").exit_code == 0
    assert spent not in run("ledger", "b.db", "--json").stdout


def test_counts_are_told_before_the_charge_and_are_no_part_of_the_release(folder):
    write_wards(drug=np.repeat(["Vasopressor", "none", "none", ""], 100))
    words, blocks = ["--domain", "wards.toml", "--epsilon", "1", "--json", "--yes"], ["--blocks", "always"]
    told = [run("effect", name, *words, *more)
            for name, *more in (["wards.csv"], ["wards.parquet", *blocks])]  # fmt: skip
    wrong = int((pd.read_csv("wards.csv")["ward"] == "north").sum())
    assert wrong < 200
    for result in told:
        assert result.exit_code == 0, result.output
        assert result.stderr.splitlines()[0].startswith(
            "NOT PRIVATE, for the data holder only: 400 records: 100 treated, 200 controls, "
            f"100 without a treatment. Cells that hold nothing declared: drug 100, ward {wrong}. "
            "Declared levels that no record has: ward=North. Values of pressure that are clipped: "
        )
        assert "100 treated" not in result.stdout
    assert told[0].stderr == told[1].stderr


def test_a_column_that_is_mostly_unreadable_stops_a_release(folder):
    fine = {"drug": np.repeat(["Vasopressor", "none"], 200), "ward": ["North", "South"] * 200}
    write_wards(**fine | {"ward": ["South", " NORTH"] * 200})  # a blank and the case alone
    near = refused("effect", "wards.csv", "--domain", "wards.toml", "--epsilon", "1")
    assert near.startswith("error: ward: 'North' is declared: did you mean 'NORTH'? [cells] with ")
    write_wards(**fine, age=["?"] * 201 + ["50"] * 199)
    effect = ["effect", "wards.csv", "--domain", "wards.toml", "--epsilon", "1"]
    assert refused(*effect).startswith("error: age: 201 of 400 cells hold nothing declared; ")
    declared = LABELS.replace("[levels]", "[missing]\nage = 50\n[levels]")
    Path("wards.toml").write_text(declared)
    assert run(*effect).exit_code == 2  # a text is no missing number
    write_wards(**fine, age=[""] * 201 + ["50"] * 199)
    assert run(*effect).exit_code == 2
    Path("wards.toml").write_text(declared)
    assert run(*effect).exit_code == 0
    write_wards(**fine, age=["900"] * 101 + ["50"] * 299)
    assert refused(*effect).startswith("error: age: 101 of 400 values are beyond the declared range; ")
    write_wards(**fine, pressure=["high"] * 201 + ["90"] * 199)
    read = "[cells] pressure = { synonyms = { 1 = [...], 0 = [...] } } reads texts as numbers"
    assert f"pressure: 201 of 400 cells hold nothing declared; {read}" in " ".join(
        run(*effect).stderr.split()
    )
    public, table = load_domain("wards.toml"), pd.read_csv("wards.csv", dtype=str, keep_default_na=False)
    half = "drug or pressure: 201 of 400 cells hold nothing declared"
    with pytest.warns(UserWarning, match=half):
        PrivateEffect(public, Budget(1.0), seed=1).fit(table, table["drug"], table["pressure"])


@pytest.mark.parametrize("words", [["wards.csv"], ["wards.parquet", "--blocks", "always"]])
def test_an_event_that_is_not_declared_stops_an_effect(folder, words):
    rng, drug = np.random.default_rng(3), np.repeat(["Vasopressor", "none"], 200)
    days = rng.uniform(0, 20, 400).round(1)
    write_wards(drug=drug, ward=["North", "South"] * 200, pressure=rng.permutation([0, 1] * 200), days=days)
    study = LABELS.replace("outcome_center = 90", "outcome_center = 0.5").replace("bound = 50", "bound = 0.5")
    Path("wards.toml").write_text(study)
    command = [*words, "--domain", "wards.toml", "--epsilon", "1"]
    message = "error: the outcome is 0 or 1, nothing else: declare binary_outcome = true"
    assert refused("effect", *command).startswith(message)
    assert run("effect", *command, "--estimand", "risks").exit_code == 0
    assert run("effect", *command, "--yes").exit_code == 0
    assert run("rule", *command).exit_code == 0  # a rule has no use for it
    both = "[budget]\nepsilon = 2\n[[effect]]\nname = 'event'\n[[effect]]\nname = 'days'\n"
    both += "outcome_column = 'days'\noutcome_center = 10.0\noutcome_bound = 10.0\n"
    Path("wards.toml").write_text(study + both)
    assert "the outcome is 0 or 1" in run("run", "wards.toml", *words).stderr
    Path("wards.toml").write_text("binary_outcome = true\n" + study + both)
    assert run("run", "wards.toml", *words).exit_code == 0  # the other outcome is of more values
    assert run("effect", *command).exit_code == 0
    single = both.replace("[[effect]]\nname = 'event'\n", "").replace("[[effect]]", "[effect]")
    for text in (both, single):
        Path("wards.toml").write_text(study + text)
        assert re.search(r"^days +outcome ", done("check", words[0], "--domain", "wards.toml").stdout, re.M)


def test_an_event_of_two_texts_is_read_as_the_hint_says(folder):
    drug, low = np.repeat(["Vasopressor", "none"], 200), np.random.default_rng(3).random(400) < 0.3
    write_wards(drug=drug, ward=["North", "South"] * 200, pressure=np.where(low, "yes", "no"), days=[1] * 400)
    bare = LABELS.replace("outcome_center = 90", "").replace("outcome_bound = 50", "binary_outcome = true")
    Path("wards.toml").write_text(bare)  # an event is 0 or 1: neither center nor bound is asked for
    assert load_domain("wards.toml").outcome_bound == load_domain("wards.toml").outcome_center == 0.5
    hint = "[cells] pressure = { synonyms = { 1 = [...], 0 = [...] } } reads texts as numbers"
    assert hint in " ".join(run("check", "wards.csv", "--domain", "wards.toml").output.split())
    command = ["wards.csv", "--domain", "wards.toml", "--epsilon", "1"]
    assert "hold nothing declared" in run("effect", *command).stderr
    table = hint.removesuffix(" reads texts as numbers").replace("[cells]", "[cells]\n")
    table = table.replace("[...]", '["yes"]', 1).replace("[...]", '["no"]')
    Path("wards.toml").write_text(f"{bare}\n{table}")
    assert run("effect", *command).exit_code == 0


def test_a_check_holds_one_part_of_a_table_at_a_time(folder, monkeypatch):
    write_wards()
    words = ["--domain", "wards.toml"]
    whole, sizes, part = run("check", "wards.csv", *words).stdout, [], files._part

    def measured(*asked):
        table = part(*asked)
        sizes.append(len(table.cells("age")))
        return table

    monkeypatch.setattr(files, "PART", 1000)
    monkeypatch.setattr(files, "_part", measured)
    monkeypatch.setattr(files, "read_csv", None)  # nothing reads all of it
    for name in ("wards.csv", "wards.parquet"):  # in four row groups
        assert run("check", name, *words).stdout == whole
    assert sum(sizes) == 400
    assert max(sizes) < 60


def test_a_draft_says_what_of_the_data_it_rests_on(folder):
    """One text more, and a column stands elsewhere: that is in the file, and on the screen."""
    texts = [f"place {k}" for k in range(21)]
    drafts = []
    for number in (20, 21):
        table = {"place": texts[:number] * 2, "a": 1, "y": 2, "died": 0, "shock": ["no", "yes"] * number}
        table["patient"] = [*range(number + 1), *range(number - 1)]
        pd.DataFrame(table).to_csv("p.csv", index=False)
        name = f"draft{number}.toml"
        told = run("check", "p.csv", "--treatment", "a", "--outcome", "y", "--draft", name).stdout
        assert "rest on the data: read it" in " ".join(told.split())
        assert "before it is made public" in " ".join(told.split())
        drafts.append(Path(name).read_text(encoding="utf-8"))
    assert drafts[0] != drafts[1]
    for draft in drafts:
        assert "# This draft itself was made by looking at the data" in draft
        assert "at most 20" in draft
        assert "\n# died: an outcome? ask for it in a question of its own" in draft
        assert "may rest on a single cell" in draft
        assert 'shock = ["EDIT"]    # an event that treatment may change? then an outcome' in draft
        assert '\ncolumn = "patient"\n# N >= 2, the public number of persons.\nnumber = "EDIT"' in draft
        assert "\npatient = " not in draft  # which is no covariate
        assert tomllib.loads(draft)["unit"] == {"column": "patient", "number": "EDIT"}


def test_messages_are_in_words_of_the_field(folder):
    """Ten sentences that a reader meets first, as the commands say them."""
    n, rng = 400, np.random.default_rng(2)
    drug = np.where(rng.random(n) < 0.1, "unknown", rng.choice(["Vasopressor", "none"], n))
    pressure = np.where(rng.random(n) < 0.05, np.nan, 90 + 4 * (drug == "Vasopressor") + rng.normal(0, 5, n))
    write_wards(drug=drug, ward=["North", "South"] * 200, pressure=pressure)
    Path("wards.toml").write_text(LABELS + "[units]\npressure = 'mmHg'\n")
    words = ["wards.csv", "--domain", "wards.toml", "--epsilon", "2", "--yes"]
    checked = " ".join(run("check", "wards.csv", "--domain", "wards.toml").stdout.split())
    silent = f"{sum(drug == 'unknown')} records without treatment and "
    assert silent in checked
    assert "records without outcome do not count" in checked
    effect = done("effect", *words, "--residual-scale", "5", "--output", "g.json")
    shown = " ".join(effect.stdout.split())
    assert re.search(r"Effect of Vasopressor against none on pressure: [+-][\d.]+ mmHg \(95 % CI ", shown)
    assert re.search(r"Of the ±[\d.]+, privacy noise alone would be ±[\d.]+, sampling ±[\d.]+", shown)
    assert "One record is taken to be one person." in shown
    assert "those without treatment or outcome do not." in shown
    assert "Rounding errors are covered by the guarantee." in shown
    promise = "changes the probability of any result by a factor of at most 7.39 (epsilon = 2)."
    assert f"records by any other {promise}" in shown
    rule = " ".join(run("rule", *words[:-2], "60", "--yes", "--outcome-scale", "8").stdout.split())
    assert re.search(r"About \d+ % of the confounding is expected to remain \(simulated\)\.", rule)
    frame = pd.read_csv("wards.csv")
    model = PrivateEffect(load_domain("wards.toml"), Budget(2.0), residual_scale=5.0)
    with pytest.raises(DataError, match=r"give their cells, by fit\(X, X\['drug'\], X\['pressure'\]\)"):
        model.fit(frame, "drug", "pressure")
