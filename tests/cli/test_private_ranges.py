"""The question that releases ranges: before all others, charged with all, and the domain of the
rest.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Ledger, PrivateEffect, RangesRelease, load_domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.plan import make_plan
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.steps.sums import ColumnRanges
from dp2erm_cvx.study import read_study
from tests.command_line import done, facts, refused, run, sets, shown

HEAD = """outcome_column = "sbp"
treatment = { column = "drug", treated = "yes", control = "no" }
[levels]
sex = ["F", "M"]
[missing]
income = 30000
[cells]
sex = { synonyms = { F = ["female"] } }
[budget]
epsilon = 3
"""
LEDGER = '[ledger]\nfile = "book.db"\ndataset = "trial"\n'
RANGES = """[[ranges]]
share = 0.2
columns = { age = [18, 99], income = { within = [0, 1e6] } }
outcomes = { sbp = { within = [0, 400] } }
"""
AVERAGE = '[[effect]]\nname = "average"\n'
STAY = '[[effect]]\nname = "stay"\noutcome_column = "days"\n'
RULE = "[[rule]]\nshare = 0.2\n"
STUDY = HEAD + LEDGER + AVERAGE + STAY + RULE + RANGES
N = 2500


def messy(n=N, seed=0):
    """A table whose effects are 8 and -3, with gaps, spellings and labels that nobody declares."""
    rng = np.random.default_rng(seed)
    age, income = rng.normal(55, 12, n).round(), 3e4 * np.exp(0.5 * rng.standard_normal(n))
    a = rng.binomial(1, 1 / (1 + np.exp(-(age - 55) / 20)))
    table = pd.DataFrame({"age": age, "income": [f"{one:.2f}" for one in income]})
    table["sex"] = rng.choice(["F", "M", "female", "?"], n, p=[0.42, 0.4, 0.15, 0.03])
    table["drug"] = np.where(a == 1, "yes", "no")
    table["sbp"] = 100 + 0.5 * age + 8 * a + rng.normal(0, 9, n)
    table["days"] = np.maximum(0, 12 - 3 * a + rng.normal(0, 3, n))
    table.loc[rng.random(n) < 0.1, "income"] = ""
    table.loc[rng.random(n) < 0.05, "sbp"] = np.nan
    table.loc[rng.random(n) < 0.03, "drug"] = "unknown"
    return table


@pytest.fixture
def study(folder):
    """A study file with its data and its account."""
    messy().to_csv("messy.csv", index=False)
    Path("study.toml").write_text(STUDY)
    done("ledger", "book.db", "--dataset", "trial", "--declare-epsilon", "5")
    return Path("study.toml")


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("[0, 400]", "[1000, 2000]", "values of sbp are clipped: declare a wider bound"),
        ("[0, 1e6]", "[1e8, 1e9]", "income: "),
        ("[18, 99]", "[180, 990]", "age: 2,500 of 2,500 values are beyond the declared range"),
    ],
)
def test_wide_bounds_that_hold_hardly_a_value_stop_a_run_before_it_is_charged(
    study, right, wrong, told
):
    text = study.read_text()
    study.write_text(text.replace(right, wrong))
    stopped = run("run", "study.toml", "messy.csv")
    assert stopped.exit_code != 0
    assert told in stopped.stderr
    assert "nothing was charged" in stopped.stderr
    assert not Ledger("book.db").account("trial").receipts


def test_a_messy_table_is_answered_in_released_ranges(study):
    messy(6000).to_csv("messy.csv", index=False)
    told = facts("run", "study.toml", "messy.csv")
    assert list(told) == ["ranges", "average", "stay", "rule"]
    ranges = {one["column"]: one for one in told["ranges"]["ranges"]}
    assert ranges["age"] == {"column": "age", "low": 18, "high": 99, "chosen": None, "within": None}
    assert 5e3 < ranges["income"]["low"] < 2e4 < 5e4 < ranges["income"]["high"] < 3e5
    for name, outcome, truth in (("average", "sbp", 8), ("stay", "days", -3)):
        release = told[name]
        assert release["interval"]["low"] < truth < release["interval"]["high"]
        assert release["domain"]["released"]["digest"] == told["ranges"]["digest"]
        middle, half = release["domain"]["outcome_center"], release["domain"]["outcome_bound"]
        assert (middle - half, middle + half) == pytest.approx(
            (ranges[outcome]["low"], ranges[outcome]["high"])
        )
        pair = ranges["income"]["low"], ranges["income"]["high"]
        assert tuple(release["domain"]["ranges"]["income"]) == pair
    # one charge, of all, and the parts are those of the file
    (receipt,) = Ledger("book.db").account("trial").receipts
    assert receipt.budget.epsilon == pytest.approx(3.0)
    spent = {name: release["guarantee"]["epsilon"] for name, release in told.items()}
    assert spent == pytest.approx({"ranges": 0.6, "average": 0.9, "stay": 0.9, "rule": 0.6})
    assert sum(spent.values()) <= 3.0
    for name in told:
        assert shown("verify", f"releases/{name}.json", "--study", "study.toml").startswith(
            "Verified"
        )
        assert shown("show", f"releases/{name}.json")
    done("report", "releases/ranges.json")
    page = done("report", *(f"releases/{name}.json" for name in told), "--output", "all.html")
    assert "wrote all.html" in page.stdout
    assert "epsilon = 3)" in " ".join(Path("all.html").read_text().split())


def test_a_pair_that_does_not_belong_together_is_refuted(study):
    Path("study.toml").write_text(HEAD + AVERAGE + RANGES)
    done("run", "study.toml", "messy.csv", "--output-dir", "one")
    done("run", "study.toml", "messy.csv", "--output-dir", "two")
    words = ["verify", "one/average.json", "--ranges"]
    assert shown(*words, "one/ranges.json").startswith("Verified")
    other = run(*words, "two/ranges.json")
    assert other.exit_code == 1
    assert "domain.released.digest" in " ".join(other.stdout.split())
    assert "is no release of ranges" in refused(*words, "two/average.json")
    assert "leave --ranges out" in refused(
        "verify", "one/ranges.json", "--ranges", "two/ranges.json"
    )
    Path("one/ranges.json").rename("moved.json")
    alone = done("verify", "one/average.json")
    assert "rests on released ranges" in alone.stderr
    assert "give their release by --ranges" in refused(
        "verify", "one/average.json", "--study", "study.toml"
    )
    both = ["--study", "study.toml", "--ranges", "moved.json"]
    assert shown("verify", "one/average.json", *both).startswith("Verified")
    # the same release, said to be of other ranges
    forged = json.loads(Path("one/average.json").read_text())
    forged["domain"]["ranges"]["income"] = [0.0, 1e6]
    Path("forged.json").write_text(json.dumps(forged))
    assert run("verify", "forged.json", "--ranges", "moved.json").exit_code == 1


def test_everything_is_charged_before_a_range_is_drawn(study, monkeypatch):
    account = Ledger("book.db")
    drawn = []

    def chosen(step, *how):
        drawn.append(account.account("trial").spent.epsilon)
        return 1.0, 2.0

    monkeypatch.setattr(ColumnRanges, "_chosen", chosen)
    run("run", "study.toml", "messy.csv")
    assert len(drawn) == 3
    assert drawn == pytest.approx([3.0] * 3)


def test_what_does_not_fit_the_account_draws_nothing(study, monkeypatch):
    monkeypatch.setattr(ColumnRanges, "_chosen", lambda *_: pytest.fail("drawn"))
    result = run("run", "study.toml", "messy.csv", *sets("budget.epsilon=6"))
    assert result.exit_code == 2
    assert not Ledger("book.db").account("trial").receipts
    assert not list(Path("releases").glob("*.json"))


def test_a_question_that_released_ranges_do_not_allow_keeps_the_charge(study, monkeypatch):
    def planned(pipeline):
        if pipeline.universe.domain.released and pipeline.universe.domain.codebook.outcome == "sbp":
            raise CalibrationError("no theorem covers that")
        return make_plan(pipeline)

    monkeypatch.setattr("dp2erm_cvx.estimators.fitting.make_plan", planned)
    Path("study.toml").write_text(HEAD + LEDGER + AVERAGE + STAY + RANGES)
    result = run("run", "study.toml", "messy.csv")
    assert result.exit_code == 2
    assert (
        "average: no theorem covers that (ranges are released, and the charge stays)"
        in result.stderr
    )
    assert "ranges, stay released, 1 of 3 not; the charge stays" in result.stderr
    assert Ledger("book.db").account("trial").spent.epsilon == pytest.approx(3.0)
    assert sorted(path.name for path in Path("releases").iterdir()) == ["ranges.json", "stay.json"]
    for name in ("ranges", "stay"):
        assert shown("verify", f"releases/{name}.json", "--study", "study.toml").startswith(
            "Verified"
        )


def test_nothing_of_the_records_decides_on_the_plan_or_on_a_refusal(folder):
    Path("study.toml").write_text(HEAD + AVERAGE + STAY + RANGES)
    study, plain = read_study("study.toml"), messy(1500)
    hostile = plain.assign(sbp=1e300, days=-1e300, income="1e308", drug="yes")
    results = [study.run(table, seed=1) for table in (plain, hostile)]
    for name in results[0]:
        one, other = (result[name] for result in results)
        assert (one.guarantee.epsilon, one.n_samples) == (other.guarantee.epsilon, other.n_samples)
    assert results[0]["ranges"].steps == results[1]["ranges"].steps
    assert results[1]["average"].public.outcome_bound <= 200


@pytest.mark.slow
def test_a_study_in_python_answers_as_the_command_does(study):
    table = pd.read_csv("messy.csv", dtype="str", keep_default_na=False)
    told = facts("run", "study.toml", "messy.csv", "--seed", "1")
    releases = read_study("study.toml").run(table, seed=1)
    assert {name: json.loads(one.to_json()) for name, one in releases.items()} == told
    # and so does one estimator after the other, by the domain of the ranges
    registered = read_study("study.toml")
    ranges = releases["ranges"]
    assert isinstance(ranges, RangesRelease)
    domain = registered.at(ranges).questions[1].domain
    again = PrivateEffect(domain, Budget(releases["average"].guarantee.epsilon), seed=2)
    own = again.fit(table, table["drug"], table["sbp"]).release_
    assert isinstance(own, EffectRelease)
    assert own.released == releases["average"].released
    assert domain == ranges.as_domain()
    # before the ranges are there nothing is fitted in their place
    with pytest.raises(
        DeclarationError, match=r"its ranges are not released: take the models of StudyFile\.at"
    ):
        registered.models()["average"].fit(table, table["drug"], table["sbp"])
    models = registered.at(ranges).models(seed=1)
    assert (
        models["average"].fit(table, table["drug"], table["sbp"]).release_.released == own.released
    )


def test_a_plan_is_made_of_what_is_known_and_says_so(study):
    told = shown("run", "study.toml", "--plan", str(N))
    assert "This is planned at the wide bounds of income, sbp." in told
    assert "Nothing is known of the range of days: all widths are in units of that range" in told
    assert "in units of the range of the outcome" in told
    assert "it is planned once more, within the same epsilon and delta" in told
    plain = facts("run", "study.toml", "--plan", str(N))
    assert plain["ranges"]["guarantee"]["epsilon"] == pytest.approx(0.6)
    assert "foreseen" not in plain["ranges"]
    assert plain["stay"]["predicted"]["half_width"] < 0.1
    wider = facts(
        "run", "study.toml", "--plan", str(N), *sets("ranges.outcomes.sbp.within=[0, 800]")
    )
    ratio = (
        wider["average"]["predicted"]["half_width"] / plain["average"]["predicted"]["half_width"]
    )
    assert ratio == pytest.approx(2.0, rel=0.1)
    # the first question, wherever it stands, and its plan are in the digest
    one, other = read_study("study.toml"), read_study("study.toml", ["ranges.share=0.3"])
    assert one.digest != other.digest
    assert [question.name for question in one.questions] == ["ranges", "average", "stay", "rule"]


def test_delta_is_charged_whole_for_what_is_planned_later(study):
    Path("study.toml").write_text(
        (HEAD + LEDGER + AVERAGE + 'noise = "gaussian"\n' + RANGES).replace(
            "epsilon = 3", "epsilon = 3\ndelta = 1e-6"
        )
    )
    Path("book.db").unlink()
    words = [
        "ledger",
        "book.db",
        "--dataset",
        "trial",
        "--declare-epsilon",
        "5",
        "--declare-delta",
        "1e-5",
    ]
    done(*words)
    told = facts("run", "study.toml", "messy.csv")
    (receipt,) = Ledger("book.db").account("trial").receipts
    assert receipt.budget.delta == pytest.approx(0.8e-6)
    assert told["ranges"]["guarantee"]["delta"] == 0.0
    assert told["average"]["guarantee"]["delta"] <= receipt.budget.delta


def test_ranges_alone_are_a_study(study):
    Path("study.toml").write_text(HEAD + RANGES)
    told = facts("run", "study.toml", "messy.csv", "--output", "ranges.json")
    assert told["ranges"][-1]["column"] == "sbp"
    assert told["guarantee"]["epsilon"] == pytest.approx(0.6)
    assert "Verified" in shown("verify", "ranges.json", "--study", "study.toml")


def test_covariates_without_ranges_are_released(study):
    head = HEAD.replace("[levels]", 'covariates = ["age", "income", "sex"]\n[levels]')
    Path("study.toml").write_text(head + AVERAGE + "[[ranges]]\nshare = 0.2\n")
    told = facts("run", "study.toml", "messy.csv", "--seed", "1")
    released = [one["column"] for one in told["ranges"]["ranges"] if one["chosen"]]
    assert released == ["age", "income", "sbp"]
    assert told["average"]["columns"] == ["age", "income", "income=missing", "sex=F", "sex=M"]
    # what no question adjusts for costs nothing
    own = AVERAGE + 'covariates = ["age"]\n'
    Path("study.toml").write_text(HEAD.replace("[missing]\nincome = 30000\n", "") + own + RANGES)
    told = facts("run", "study.toml", "messy.csv", "--seed", "1", "--force")
    assert [one["column"] for one in told["ranges"]["ranges"]] == ["age", "sbp"]


@pytest.mark.slow
def test_bins_logarithms_and_crosses_go_with_declared_ranges(study):
    head = HEAD.replace("[levels]", 'log = ["income"]\n[levels]').replace(
        "[cells]", "[bins]\nage = [40, 65]\n[cells]"
    )
    columns = RANGES.replace("{ within = [0, 1e6] }", "[1000, 1e6]")
    Path("study.toml").write_text(head + AVERAGE + columns)
    told = facts("run", "study.toml", "messy.csv", "--seed", "1")
    assert told["average"]["columns"][3:5] == ["log(income)", "income=missing"]
    assert [one["column"] for one in told["ranges"]["ranges"] if one["chosen"]] == ["sbp"]


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    "change",
    [
        '[treatment]\ncolumn = "drug"\nlevels = ["yes", "no", "unknown"]\n',
        '[unit]\ncolumn = "id"\nnumber = 3000\n',
        '[sampling_weights]\ncolumn = "wt"\nlargest = 3\n',
    ],
    ids=["arms", "persons", "weights"],
)
def test_arms_persons_and_weights_go_with_released_ranges(folder, change):
    rng, table = np.random.default_rng(1), messy()
    table.assign(id=rng.integers(0, 2500, N), wt=rng.uniform(0.5, 2, N)).to_csv(
        "messy.csv", index=False
    )
    head = HEAD if "treatment" not in change else HEAD.replace(HEAD.splitlines()[1] + "\n", "")
    Path("study.toml").write_text(
        head.replace("epsilon = 3", "epsilon = 9") + change + AVERAGE + RANGES
    )
    told = facts("run", "study.toml", "messy.csv", "--seed", "1", "--yes")
    assert told["average"]["domain"]["released"]["digest"] == told["ranges"]["digest"]
    assert (
        told["ranges"]["n_samples"]
        == told["average"]["n_samples"]
        == (3000 if "unit" in change else N)
    )
    for name in told:
        assert "Verified" in shown("verify", f"releases/{name}.json", "--study", "study.toml")


@pytest.mark.slow
def test_blocks_release_what_memory_releases(study):
    one = facts("run", "study.toml", "messy.csv", "--seed", "1", "--output-dir", "memory")
    other = facts(
        "run",
        "study.toml",
        "messy.csv",
        "--seed",
        "1",
        "--output-dir",
        "blocks",
        "--blocks",
        "always",
    )
    assert one["ranges"] == other["ranges"]
    assert one["average"]["released"] == other["average"]["released"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[[ranges]]", '[[ranges]]\nname = "first"', "one alone, without a name"),
        (RANGES, RANGES + "[[ranges]]\nshare = 0.1\n", "one alone, without a name"),
        (
            "share = 0.2\ncolumns",
            "shares = 0.2\ncolumns",
            "ranges: unknown name 'shares'; did you mean share?",
        ),
        ("share = 0.2\ncolumns", "share = 2\ncolumns", "share: 2.2 of the budget is asked for"),
        (
            "age = [18, 99]",
            "age = [18]",
            "age = [18]: must be [low, high], { within = [low, high] } or",
        ),
        ("age = [18, 99]", 'age = "private"', 'or "release"'),
        ("age = [18, 99]", "age = [99, 18]", "ranges: age: (99, 18): low must be below high"),
        ("within = [0, 1e6]", "inside = [0, 1e6]", "must be [low, high]"),
        ("within = [0, 1e6]", "within = [1e6, 0]", "low must be below high"),
        ("{ sbp = ", "{ pulse = ", "ranges: outcomes: 'pulse' is asked about nowhere; known: sbp"),
        (
            "[levels]",
            "outcome_bound = 300\n[levels]",
            "'sbp' has an outcome_bound: declare one of both",
        ),
        ('outcome_column = "sbp"\n', "", "the column of the outcome is not declared"),
        (
            "[levels]",
            "outcome_center = 9\n[levels]",
            "average: sbp: its range is released: declare its outcome_bound",
        ),
        (
            "[levels]",
            "center = { income = 3e4 }\n[levels]",
            "center: 'income': its range is released",
        ),
        ("[levels]", "intercepts = 1\n[levels]", "unknown name 'intercepts'"),
        ("[levels]", 'log = ["income"]\n[levels]', "log: 'income': declare its range"),
        ("[levels]", "bins = { income = [3e4] }\n[levels]", "bins: 'income': declare its range"),
        (
            AVERAGE,
            AVERAGE + 'estimand = "risks"\n',
            "the range of sbp is released: declare outcome_bound",
        ),
        (AVERAGE, AVERAGE + "private_ranges = 0.1\n", "average: unknown name 'private_ranges'"),
        ('name = "average"', 'name = "ranges"', "is taken: choose another"),
        ("{ within = [0, 400] }", '"release"\nx = 1'.replace("\nx = 1", ""), None),
        ("epsilon = 3", "epsilon = 0.05", "ranges: ranges of 2 columns need an epsilon of"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(folder, old, new, told):
    text = HEAD + AVERAGE + RULE + RANGES
    assert text.count(old) == 1
    Path("study.toml").write_text(text.replace(old, new))
    if told is None:
        assert "Nothing is known of the range of sbp" in shown(
            "run", "study.toml", "--plan", str(N)
        )
        return
    assert told in refused("run", "study.toml", "--plan", str(N))


@pytest.mark.parametrize(
    "declared",
    [
        "residual_scale = 9\n",
        "effect_center = 5\n",
        "settings = { residual_bound = 9 }\n",
    ],
)
def test_what_is_in_units_of_an_unknown_outcome_is_refused(folder, declared):
    text = HEAD + AVERAGE + declared + RANGES
    unknown = text.replace("{ within = [0, 400] }", '"release"')
    Path("study.toml").write_text(unknown)
    told = refused("run", "study.toml", "--plan", str(N))
    assert "is in units of sbp, of which nothing is known: give outcomes = { sbp = { within" in told
    Path("study.toml").write_text(text)
    assert facts("run", "study.toml", "--plan", str(N))["average"]["predicted"]["half_width"] < 50


def test_declared_ranges_and_the_question_do_not_stand_beside_each_other(folder):
    Path("study.toml").write_text(
        "[domain]\n" + HEAD.split("[levels]")[0] + "[budget]\nepsilon = 1\n" + AVERAGE + RANGES
    )
    assert "'ranges' stands outside the table [domain]: move it inside" in refused(
        "run", "study.toml", "--plan", "99"
    )
    Path("study.toml").write_text(HEAD + "[ranges]\nage = [18, 99]\n" + AVERAGE + RANGES)
    assert "is not a TOML file" in refused("run", "study.toml", "--plan", "99")


def test_other_commands_say_what_they_need(study):
    Path("only.toml").write_text("[ranges]\nage = [18, 99]\n")  # a domain that asks nothing
    assert "a design needs declared ranges" in refused("design", "study.toml", "--n", "500")
    assert "outcome_bound" in refused("design", "only.toml", "--n", "500", "--epsilon", "1")
    with pytest.raises(
        DeclarationError, match="leaves ranges to be released: this needs declared ranges"
    ):
        load_domain("study.toml")
    told = shown("check", "messy.csv", "--study", "study.toml")
    assert "2,500 records" in told


@pytest.mark.slow
def test_a_plot_of_balance_is_of_the_questions_that_adjust(study):
    Path("study.toml").write_text(HEAD + AVERAGE + RANGES)
    result = done(
        "run", "study.toml", "messy.csv", "--seed", "1", "--love-plot", "balance.png", "--balance"
    )
    assert "love plot written to balance.png" in result.stderr
    assert Path("balance.png").exists()


@pytest.mark.slow
def test_a_draft_proposes_the_question_for_what_is_not_declared(study):
    table = messy()
    table[table["drug"] != "unknown"].to_csv("messy.csv", index=False)
    done("check", "messy.csv", "--draft", "draft.toml", "--treatment", "drug", "--outcome", "sbp")
    text = Path("draft.toml").read_text()
    proposed = text[text.index("# [[ranges]]") :].split("\n\n")[0]
    assert '# columns = { age = "release", income = "release" }' in proposed
    # uncommented in place of what has to be declared, it is a study
    lines = [line.removeprefix("# ") for line in proposed.splitlines()]
    filled = text.replace("[ranges]\n", "").replace(proposed, "\n".join(lines))
    gone = ("age = [", "income = [", "outcome_center", "outcome_bound", "days", "[missing]")
    filled = "\n".join(line for line in filled.splitlines() if not line.startswith(gone))
    Path("filled.toml").write_text(filled)
    changes = [
        "treatment.treated=yes",
        "treatment.control=no",
        'levels.sex=["F", "M"]',
        "budget.epsilon=3",
    ]
    told = facts("run", "filled.toml", "messy.csv", "--seed", "1", "--yes", *sets(*changes))
    assert [one["column"] for one in told["ranges"]["ranges"] if one["chosen"]] == [
        "age",
        "income",
        "sbp",
    ]
    known = sets("ranges.age=[18, 99]", "ranges.income=[0, 1e6]")
    done(
        "check",
        "messy.csv",
        "--draft",
        "known.toml",
        *known,
        "--treatment",
        "drug",
        "--outcome",
        "sbp",
    )
    assert "# [[ranges]]" not in Path("known.toml").read_text()


def test_the_settings_of_the_question_are_told():
    told = shown("settings", "ranges")
    assert (
        "columns: default released; by column: must be [low, high], { within = [low, high] } or "
        '"release"' in told
    )
    assert [one["name"] for one in facts("settings", "ranges")] == ["share", "columns", "outcomes"]
    assert "no setting 'private_ranges'" in refused("settings", "effect", "private_ranges")
