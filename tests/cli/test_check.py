"""From a messy table to a private effect: ``dp2erm check``, its draft, and what reads raw
tables.
"""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import EffectRelease, PrivateEffect, load_domain, read_release
from dp2erm_cvx.data import files
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.files import CsvLayout, guessed_layout, read_csv
from dp2erm_cvx.data.tables import numbers_or_nan, read_frame
from dp2erm_cvx.diagnostics.columns import TableCells
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.privacy import Budget
from tests.command_line import done, facts, refused, run, sets, shown, study_of

LEVELS = ("Nord", "Süd", "Ost", "West", "other")
COMMON = ["run", "study.toml", "registry.csv", "--seed", "1", "--force"]
CHECK = ["check", "registry.csv", "--study", "study.toml"]
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


def registry(n):
    """Semicolons, latin-1, decimal commas, and what a check with a draft says of them."""
    rng = np.random.default_rng(1)
    age, severity, treated = rng.uniform(30, 80, n), rng.uniform(0, 10, n), rng.random(n) < 0.5
    table = {"Patient": [f"P{k:05}" for k in range(n)], "Datum": "05.11.2023", "Alter": age}
    table |= {
        "Schwere": severity,
        "Region": rng.choice(LEVELS[:4], n),
        "Raucher": rng.choice(["ja", "nein"], n),
    }
    table |= {"Arm": np.where(treated, "behandelt", "Kontrolle")}
    frame = pd.DataFrame(table).assign(Punkte=60 - 1.6 * severity - age / 12 + 3 * treated)
    gaps = {"Schwere": np.nan, "Raucher": "", "Punkte": np.nan, "Region": "Malmö"}
    for column, cell in gaps.items():
        frame.loc[rng.random(n) < 0.03, column] = cell
    layout = {"sep": ";", "decimal": ",", "encoding": "latin-1"}
    frame.to_csv("registry.csv", index=False, float_format="%.2f", **layout)
    draft = ["--treatment", "Arm", "--outcome", "Punkte", "--draft", "study.toml"]
    return shown("check", "registry.csv", *draft)


def test_a_messy_table_is_read_by_every_command_as_its_draft_says(folder):
    told = registry(300)
    assert "NOT PRIVATE" in told
    assert 'declare under [levels]: Region = ["Malmö", "Nord", "Ost", "Süd", "West"]' in told
    study = Path("study.toml").read_text(encoding="utf-8")
    # of the data it holds no number, no level and no label
    assert not any(word in study for word in ("Nord", "behandelt", "ja", "30", "80", "2023"))
    assert refused(*COMMON).startswith('error: study.toml: outcome_center still says "EDIT"')
    for gap, filled in FILLED.items():
        assert gap in study, gap
        study = study.replace(gap, filled)
    Path("study.toml").write_text(study, encoding="utf-8")
    told = shown(*CHECK)
    assert "'Malmö'" in told
    assert "without outcome do not count in an effect or a rule." in told
    assert not re.search("shrunk|clipped", told)
    narrow = shown(*CHECK, *sets("covariate_bound=1.5", "outcome_bound=5"))
    assert "shrunk to the covariate bound." in narrow
    assert "with an outcome that is clipped." in narrow
    told = shown(*COMMON, "--output", "effect.json")
    assert re.search(r"on Punkte: [+-][\d.]+ points \(95 % CI", told)
    assert "Arm behandelt is treated, Kontrolle a control; Region has levels Nord, Süd" in told
    # what was declared is in the release, and no count of what was met
    release = Path("effect.json").read_text(encoding="utf-8")
    assert json.loads(release)["domain"]["codebook"]["levels"]["Raucher"] == ["ja", "nein", ""]
    assert "Malm" not in release
    asked = study[: study.index("[[effect]]")]
    Path("rule.toml").write_text(f"{asked}[[rule]]\n", encoding="utf-8")
    done("run", "rule.toml", *COMMON[2:], "--output", "rule.json")
    stages = (
        'first_stage = "uniform"\nsecond_stage = { name = "itr", features = ["Region", "Alter"] }\n'
    )
    Path("fit.toml").write_text(f"{asked}[[two_stage]]\n{stages}", encoding="utf-8")
    fitted = facts("run", "fit.toml", *COMMON[2:], "--output", "fit.json")
    regions = [f"Region={level}" for level in LEVELS]
    assert [name for name in fitted["parameters"] if "=" in name] == regions
    for release in ("rule.json", "fit.json"):
        layout = ["--separator", ";", "--encoding", "latin-1", "--decimal", ","]
        assert len(done("predict", release, "registry.csv", *layout).stdout.splitlines()) == 301
    chosen = sets('covariates=["Region", "Schwere"]', 'effect.prognostic=["Region"]')
    assert facts(*COMMON, *chosen)["columns"] == regions
    done("run", "fit.toml", "--plan", "300", *sets("two_stage.second_stage=arm_means"))
    lines = Path("registry.csv").read_text(encoding="latin-1").splitlines()
    # no row is refused, or moves another
    answers = []
    for row in ("40,5;x", "nan;nan;1e999;-1e999;Nord;ja;inf;inf", ";;55;5;Nord;ja;keiner;60"):
        Path("registry.csv").write_text(
            "\n".join([*lines[:7], row, *lines[8:]]), encoding="latin-1"
        )
        answers.append(facts(*COMMON))
    assert answers[0] == answers[1] == answers[2]


def test_a_survey_with_messy_weights_from_its_file_to_an_effect(folder):
    """Northerners were taken four times as often; what is no weight is told to the holder alone."""
    rng, lines = np.random.default_rng(0), ["arm;score;north;wt"]
    for row in range(3000):
        north, arm = int(row % 5 > 0), rng.integers(0, 2)
        weight = {1: "", 2: "keine", 3: "-1", 4: "99"}.get(row % 200, "0,50" if north else "2,00")
        score = f"{50 + 6 * (arm and not north) + rng.normal():.2f}".replace(".", ",")
        lines.append(f"{('no', 'yes')[arm] if row % 50 else '?'};{score};{north};{weight}")
    Path("survey.csv").write_text("\n".join(lines), encoding="latin-1")
    Path("study.toml").write_text(
        'outcome_column = "score"\noutcome_center = 50\noutcome_bound = 25\n'
        '[treatment]\ncolumn = "arm"\ntreated = "yes"\ncontrol = "no"\n[ranges]\nnorth = [0, 1]\n'
        '[sampling_weights]\ncolumn = "wt"\nlargest = 2\n'
        '[csv]\nseparator = ";"\nencoding = "latin-1"\ndecimal = ","\n'
    )
    told = shown("check", "survey.csv", "--study", "study.toml", env={"COLUMNS": "140"})
    for phrase in (
        "wt sampling weight numbers and text 15 15 30",
        "wt: 'keine' (15): no number: counts as 0",
        "Sampling weights average 0.76 after clipping (1 is declared), from 0 to 2.",
        "60 records without treatment do not count in an effect or a rule.",
    ):
        assert phrase in told
    records = Path("study.toml").read_text(encoding="utf-8")
    for name, question in ASKED.items():
        Path(f"{name}.toml").write_text(study_of(question, records, 4), encoding="utf-8")
    told = shown(
        *("run", "effect.toml", "survey.csv", "--output", "effect.json"),
        *sets("effect.residual_scale=2"),
    )
    assert "stand for by the weights in wt" in told
    assert "keine" not in told
    estimate = read_release(Path("effect.json").read_text(encoding="utf-8"), EffectRelease).estimate
    assert abs(estimate - 3.0) < 0.9  # half of the population gains 6, a fifth of the records
    assert shown("verify", "effect.json", "--domain", "study.toml").startswith("Verified")
    done("run", "rule.toml", "survey.csv")
    for words in (["survey.csv"], ["--plan", "3000"]):
        told = run("run", "fit.toml", *words, "--output", "fit.json").stderr.splitlines()[-1]
        assert "sampling_weights: not for a fit with the weights of a first stage" in told
    assert not Path("fit.json").exists()


def test_a_file_is_guessed_for_its_holder_alone(folder):
    Path("a.csv").write_text("x;y\n1,5;ja\n2,5;nein\n", encoding="latin-1")
    Path("b.csv").write_bytes("x\ty\n1.5\tsüd\n".encode("latin-1"))
    Path("c.csv").write_text("x,y\n1,5\n2,5\n")
    german = CsvLayout(";", "utf-8", ",")
    layouts = [guessed_layout(f"{name}.csv") for name in "abc"]
    assert layouts == [german, CsvLayout("\t", "latin-1", "."), CsvLayout()]
    np.testing.assert_array_equal(read_csv("a.csv", german).numbers("x"), [1.5, 2.5])
    Path("a.csv").write_text("x;y\n1.234,5;ja\n1.5;nein\n2,5;\n")
    held = [one["holds"] for one in TableCells.of(read_csv("a.csv", german)).report()]
    assert held == ["numbers and text", "2 texts"]  # a point separates thousands there
    told = shown(
        "check", "b.csv", *sets('csv.separator="\\t"', "ranges.x=[0, 1]", "outcome_bound=1")
    )
    assert "Lines with bytes that are no UTF-8 text: 1; see [csv] encoding." in told


def reported(columns, book=None, ranges=None):
    return TableCells.of(read_frame(pd.DataFrame(columns)), book, ranges).report()


def test_a_report_of_a_frame():
    frame = {"age": [20, 99, None], "text": ["a", "b", "b"], "on": [True, False, True]}
    age, text, on = reported(frame, None, {"age": (18, 90)})
    assert [age[name] for name in ("declared", "holds", "missing", "outside")] == [
        "number",
        "numbers",
        1,
        1,
    ]
    assert text["notes"] == [
        'if a codebook lists its levels, declare under [levels]: text = ["a", "b"]'
    ]
    assert on["holds"] == "0 and 1"
    rng = np.random.default_rng(1)
    dose, age = rng.lognormal(0, 1, 500), rng.normal(60, 10, 500)
    first, second = reported(
        {"dose": dose, "age": age}, None, {"dose": (0.01, 100), "age": (18, 90)}
    )
    (note,) = first["notes"]
    assert 'its logarithm is not: log = ["dose"] adjusts' in note
    assert not second["notes"]
    book = Codebook(log=["dose"])
    (logged,) = reported({"dose": dose}, book, book.ranges({"dose": (0.01, 2.0)}))
    assert (logged["declared"], logged["notes"]) == ("number", [])
    assert logged["outside"] == np.sum((dose < 0.01) | (dose > 2.0)) > 0
    numbers, book = [None, *np.linspace(1234567.5, 2e6, 9)], Codebook(missing={"d": 1.5e6})
    (gaps,) = reported({"d": numbers}, book, {"d": (1234567.5, 2e6)})
    # a rounded end would leave records out
    assert "eligible = ['d >= 1234567.5']" in gaps["notes"][0]


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
def test_numbers_written_for_missing_ones_are_pointed_out_and_read_as_the_hint_says(
    code, plain, hinted
):
    column, ranges = {"age": [*map(str, [*plain] * 2), *[str(code)] * 6]}, {"age": (0, 100)}
    (age,) = reported(column, None, ranges)
    assert [f"{code} (6): far from the other numbers" in note for note in age["notes"]] == [
        True
    ] * hinted
    assert hinted is (f"[cells] age = {{ missing_codes = [{code}] }}" in " ".join(age["notes"]))
    book = Codebook(cells={"age": {"missing_codes": [code]}})
    cells = book.read(read_frame(pd.DataFrame(column)))("age")
    assert np.isnan(numbers_or_nan(cells, "age")[-6:]).all()
    (read,) = reported(column, book, ranges)
    assert (read["missing"], read["notes"]) == (6 + 2 * (code in plain), [])


def test_a_decimal_sign_that_is_not_read_and_a_further_spelling_are_no_levels(folder):
    rows = [
        f"P{k // 2};{k % 9}.5;{k % 30},{k % 7};{('a', 'b', 'B2')[k % 3]};1.5" for k in range(90)
    ]
    Path("mixed.csv").write_text("\n".join(["pid;u;bmi;arm;y", *rows]))
    domain = 'outcome_bound = 9\noutcome_column = "y"\n[treatment]\ncolumn = "arm"\ntreated = "b"\n'
    layout = 'control = "a"\n[ranges]\nu = [0, 9]\nbmi = [0, 30]\n[csv]\nseparator = ";"\n'
    Path("mixed.toml").write_text(domain + layout)
    signs = [
        'most of them hold a decimal comma: [cells] bmi = { decimal = "," } reads them',
        "a separator of thousands, that [csv] does not declare: declare it there for all columns, "
        "or under",
    ]
    for flags, sign in zip(
        (["--study", "mixed.toml"], ["--treatment", "arm", "--outcome", "y"]), signs, strict=True
    ):
        report = " ".join(shown("check", "mixed.csv", *flags).split())
        assert sign in report
        assert "synonyms" not in report
        assert "; other spellings of an arm under [cells]" in report
        assert "[unit] column = 'pid'" in report


def test_a_warning_says_what_raw_columns_become(folder):
    Path("r.csv").write_text("x,income,a,y\n" + "1,30000,1,2\n0,20000,0,1\n1,9,0,0\n" * 20)
    records = 'treatment = "a"\noutcome_column = "y"\noutcome_bound = 2\n'
    Path("r.toml").write_text(study_of("[[effect]]\n", records))
    words = ["run", "r.toml", "r.csv", "--force", "--yes"]  # income decides
    result = done(*words, *sets("covariate_bound=2"))
    assert "\nwarning: no ranges are declared: raw columns are shrunk together" in result.stderr
    ranged = done(*words, *sets("ranges.x=[0, 1]", "ranges.income=[0, 50000]"), "--json")
    assert "warning" not in ranged.stderr
    assert read_release(ranged.stdout, EffectRelease).domain["covariate_bound"] == pytest.approx(
        2**0.5
    )


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
#: Labels as they are declared.
DRUG, WARD = ["Vasopressor", "none"] * 200, ["North", "North", "South", "South"] * 100
WARDS = ["effect_wards.toml", "wards.csv", "--force"]
BLOCKS = ["effect_wards.toml", "wards.parquet", "--force", "--blocks", "always"]
ASKED = {
    "effect": "[[effect]]\n",
    "rule": "[[rule]]\n",
    "fit": '[[two_stage]]\nfirst_stage = "uniform"\n',
}


def write_wards(study=LABELS, **columns):
    rng = np.random.default_rng(2)
    told = {"pressure": rng.normal(90, 20, 400).round(1), "age": rng.integers(20, 90, 400)}
    told |= {"drug": DRUG, "ward": WARD} | columns
    pd.DataFrame(told).to_csv("wards.csv", index=False)
    pd.DataFrame(told).to_parquet("wards.parquet", row_group_size=100)
    Path("wards.toml").write_text(study)
    for name, question in ASKED.items():
        Path(f"{name}_wards.toml").write_text(study_of(question, study))


OTHERS = {"drug": ["vasopressor", "none"] * 200, "ward": ["north", "South", "South", "South"] * 100}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    "words", [WARDS, ["rule_wards.toml", *BLOCKS[1:]], ["fit_wards.toml", *WARDS[1:]]]
)
def test_labels_that_do_not_fit_stop_a_release_before_the_charge(folder, words):
    write_wards(**OTHERS)
    checked = shown("check", words[1], "--study", "wards.toml")
    assert "'Vasopressor' is declared: did you mean 'vasopressor'?" in checked
    assert "'North' is declared: did you mean 'north'?" in checked
    done("ledger", "b.db", "--dataset", "wards", "--declare-epsilon", "3")
    release = [
        "run",
        *words,
        "--output",
        "out.json",
        *sets("ledger.file=b.db", "ledger.dataset=wards"),
    ]
    line = refused(*release)
    assert "treated; drug: 'Vasopressor' is declared: did you mean 'vasopressor'?" in line
    assert "nothing was charged; --yes releases all the same" in line
    assert facts("ledger", "b.db")[0]["receipts"] == []
    assert not Path("out.json").exists()
    done(*release, "--yes")
    assert len(facts("ledger", "b.db")[0]["receipts"]) == 1


def test_counts_are_told_before_the_charge_and_are_no_part_of_the_release(folder):
    write_wards(drug=np.repeat(["Vasopressor", "none", "none", ""], 100), ward=OTHERS["ward"])
    told = [done("run", *words, "--json", "--yes") for words in (WARDS, BLOCKS)]
    for result in told:
        assert result.stderr.splitlines()[0].startswith(
            "NOT PRIVATE, for the data holder only: 400 records: 100 treated, 200 controls, "
            "100 without a treatment. Cells that hold nothing declared: drug 100, ward 100. "
            "Values of pressure that are clipped: "
        )
        assert "look: declared levels that no record has: ward=North" in result.stderr
        assert "100 treated" not in result.stdout
    assert told[0].stderr == told[1].stderr


TEXTS = "[cells] pressure = { synonyms = { 1 = [...], 0 = [...] } } reads texts as numbers"
GAP = LABELS.replace("[levels]", "[missing]\nage = 50\n[levels]")
#: A study, a column and its cells, and what stops a release; a few cells do not.
UNREADABLE = (
    # a blank and the case alone
    (
        LABELS,
        "ward",
        ["South", " NORTH"] * 200,
        "'North' is declared: did you mean 'NORTH'? [cells] ward = ",
    ),
    (LABELS, "age", ["?"] * 201 + ["50"] * 199, "201 of 400 cells hold nothing declared; "),
    (GAP, "age", ["?"] * 201 + ["50"] * 199, ""),  # a text is no missing number
    (LABELS, "age", [""] * 201 + ["50"] * 199, ""),
    (GAP, "age", [""] * 201 + ["50"] * 199, None),
    (
        LABELS,
        "age",
        ["900"] * 101 + ["50"] * 299,
        "101 of 400 values are beyond the declared range; ",
    ),
    (
        LABELS,
        "pressure",
        ["high"] * 201 + ["90"] * 199,
        f"201 of 400 cells hold nothing declared; {TEXTS}",
    ),
)


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(("study", "column", "cells", "told"), UNREADABLE)
def test_a_column_that_is_mostly_unreadable_stops_a_release(folder, study, column, cells, told):
    write_wards(study, **{column: cells})
    if told is None:
        done("run", *WARDS)
    else:
        assert refused("run", *WARDS).startswith(f"error: {column}: {told}")
    if column == "pressure":
        public, table = (
            load_domain("wards.toml"),
            pd.read_csv("wards.csv", dtype=str, keep_default_na=False),
        )
        half = "pressure: 201 of 400 cells hold nothing declared"
        with pytest.warns(UserWarning, match=half):
            PrivateEffect(public, Budget(1.0), seed=1).fit(table, table["drug"], table["pressure"])


@pytest.mark.slow
@pytest.mark.parametrize("words", [WARDS, BLOCKS])
def test_an_event_that_is_not_declared_stops_an_effect(folder, words):
    rng = np.random.default_rng(3)
    study = LABELS.replace("outcome_center = 90", "outcome_center = 0.5").replace(
        "bound = 50", "bound = 0.5"
    )
    write_wards(
        study, pressure=rng.permutation([0, 1] * 200), days=rng.uniform(0, 20, 400).round(1)
    )
    message = "error: the outcome is 0 or 1, nothing else: declare binary_outcome = true"
    assert refused("run", *words).startswith(message)
    done("run", *words, *sets("effect.estimand=risks"))
    done("run", *words, "--yes")
    done("run", "rule_wards.toml", *words[1:])  # a rule has no use for it
    days = (
        "[[effect]]\nname = 'days'\noutcome_column = 'days'\noutcome_center = 10.0\noutcome_bound "
        "= 10.0\n"
    )
    both = f"[budget]\nepsilon = 2\n[[effect]]\nname = 'event'\n{days}"
    asked = ["run", "wards.toml", *words[1:]]
    Path("wards.toml").write_text(study + both)
    assert "the outcome is 0 or 1" in run(*asked).stderr
    Path("wards.toml").write_text("binary_outcome = true\n" + study + both)
    done(*asked)  # the other outcome is of more values
    for text in (both, "[budget]\nepsilon = 2\n" + days.replace("[[effect]]", "[effect]")):
        Path("wards.toml").write_text(study + text)
        assert re.search(
            r"^days +outcome ", done("check", words[1], "--study", "wards.toml").stdout, re.M
        )


def test_an_event_of_two_texts_is_read_as_the_hint_says(folder):
    bare = LABELS.replace("outcome_center = 90", "").replace(
        "outcome_bound = 50", "binary_outcome = true"
    )
    write_wards(bare, pressure=np.random.default_rng(3).choice(["yes", "no"], 400, p=[0.3, 0.7]))
    # an event is 0 or 1: neither center nor bound is asked for
    assert (
        load_domain("wards.toml").outcome_bound == load_domain("wards.toml").outcome_center == 0.5
    )
    assert TEXTS in shown("check", "wards.csv", "--study", "wards.toml")
    assert "hold nothing declared" in refused("run", *WARDS)
    table = TEXTS.removesuffix(" reads texts as numbers").replace("[cells]", "[cells]\n")
    table = table.replace("[...]", '["yes"]', 1).replace("[...]", '["no"]')
    Path(WARDS[0]).write_text(study_of(ASKED["effect"], f"{bare}\n{table}\n"))
    done("run", *WARDS)


def test_a_check_holds_one_part_of_a_table_at_a_time(folder, monkeypatch):
    write_wards(**OTHERS)
    about = ["--study", "wards.toml"]
    whole, tables, part = shown("check", "wards.csv", *about), [], files._part
    monkeypatch.setattr(files, "PART", 1000)
    monkeypatch.setattr(files, "_part", lambda *known: tables.append(part(*known)) or tables[-1])
    monkeypatch.setattr(files, "read_csv", None)  # nothing reads all of it
    for name in ("wards.csv", "wards.parquet"):  # in four row groups
        assert shown("check", name, *about) == whole
    sizes = [len(table.cells("age")) for table in tables]
    assert (sum(sizes), max(sizes) < 60) == (400, True)


def test_a_draft_says_what_of_the_data_it_rests_on(folder):
    """One text more, and a column stands elsewhere: that is in the file, and on the screen."""
    drafts = []
    for number in (20, 21):
        table = {"place": [f"place {k}" for k in range(number)] * 2, "a": 1, "y": 2, "died": 0}
        table |= {
            "shock": ["no", "yes"] * number,
            "patient": [*range(number + 1), *range(number - 1)],
        }
        pd.DataFrame(table).to_csv("p.csv", index=False)
        draft = Path(f"draft{number}.toml")
        told = shown("check", "p.csv", "--treatment", "a", "--outcome", "y", "--draft", draft)
        assert "rest on the data: read it" in told
        assert "before it is made public" in told
        drafts.append(draft.read_text(encoding="utf-8"))
    assert drafts[0] != drafts[1]
    for draft in drafts:
        for phrase in (
            "# This draft itself was made by looking at the data",
            "at most 20",
            "\n# died: an outcome? ask for it in a question of its own",
            "may rest on a single cell",
            'shock = ["EDIT"]    # an event that treatment may change? then an outcome',
            '\ncolumn = "patient"\n# N >= 2, the public number of persons.\nnumber = "EDIT"',
        ):
            assert phrase in draft
        assert "\npatient = " not in draft  # which is no covariate
        assert tomllib.loads(draft)["unit"] == {"column": "patient", "number": "EDIT"}


def test_a_fit_to_names_of_columns_is_told_to_give_their_cells(folder):
    write_wards()
    model, frame = PrivateEffect(load_domain("wards.toml"), Budget(2.0)), pd.read_csv("wards.csv")
    with pytest.raises(
        DataError, match=r"give their cells, by fit\(X, X\['drug'\], X\['pressure'\]\)"
    ):
        model.fit(frame, "drug", "pressure")
