"""A study file from end to end: its digest, its questions together, and what refuses it."""

import hashlib
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, EffectRelease, PrivateEffect, PrivateRule
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain_file import load_domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError, Dp2ermError, LedgerError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.plan import Plan, defaults
from dp2erm_cvx.release.reading import parsed
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.study import read_study
from tests.command_line import done, facts, refused, run, shown
from tests.rows import slow

DOMAIN = """
outcome_bound = 4.0
treatment = "a"
outcome_column = "y"
[ranges]
u = [-1.0, 1.0]
v = [-1.0, 1.0]
"""
#: What is paid from, and the first question.
AVERAGE = """
[budget]
epsilon = 3
[ledger]
file = "book.db"
dataset = "trial"
[[effect]]
name = "average"
share = 0.5
residual_scale = 0.5
"""
STUDY = f"{DOMAIN}{AVERAGE}[[rule]]\noutcome_scale = 1.0\n"
WEIGHTS = """
[[two_stage]]
second_stage = "arm_means"
first_stage = { name = "ipw_private", trim = 4.0, ridge = 0.01 }
"""
OTHER = """[[effect]]
name = "late"
residual_scale = 1.0
outcome_column = "z"
outcome_center = 9.0
outcome_bound = 6.0
"""
RUN = ["run", "study.toml", "data.csv"]


def frame_of(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    a = rng.binomial(1, 1 / (1 + np.exp(-X[:, 0])))
    frame = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "a": a, "g": np.resize(["a", "b"], n)})
    return frame.assign(y=a + X[:, 0] + 0.5 * rng.standard_normal(n)).assign(
        z=lambda f: 10 + 2 * f["y"]
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Data of two outcomes, a study, and 4 of epsilon for its data set."""
    monkeypatch.chdir(tmp_path)
    frame_of().to_csv("data.csv", index=False)
    Path("study.toml").write_text(STUDY)
    Ledger("book.db").declare("trial", Budget(4.0))
    return tmp_path


def charged():
    return Ledger("book.db").account("trial").receipts


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("setting", "told", "choice"), [("where", '{ g = "b" }', {"g": "b"}), ("by", '"g"', "g")]
)
def test_a_question_counts_its_own_records(folder, setting, told, choice):
    asked = f'[budget]\nepsilon = 20\n[[effect]]\nname = "own"\n{setting} = {told}\n'
    Path("study.toml").write_text(f'{DOMAIN}[levels]\ng = ["a", "b"]\n{asked}')
    answer = facts(*RUN, "--seed", "5")
    # exact noise by arm is that of this very budget
    budget = read_study("study.toml").models(seed=5)["own"].budget
    model = PrivateEffect(load_domain("study.toml"), budget, seed=5, **{setting: choice})
    release = model.fit(frame_of(), frame_of()["a"], frame_of()["y"]).release_
    np.testing.assert_allclose(answer["released"], list(release.released), rtol=1e-9)
    assert setting == "by" or abs(release.counted - 200) < 60


def test_questions_of_several_outcomes_are_one_study_and_one_charge(folder):
    Path("study.toml").write_text(STUDY + OTHER)
    result = done(*RUN)
    (receipt,) = charged()
    assert 2.99 < receipt.budget.epsilon <= 3.0
    assert receipt.note.startswith("average (ate), late (ate), rule of a on y, z, study ")
    assert receipt.note.endswith(read_study("study.toml").digest[:12])
    again = run(*RUN, "--output-dir", "more")
    assert (again.exit_code, "does not fit" in again.stderr) == (2, True)
    assert (len(charged()), [*Path("more").iterdir()]) == (1, [])
    assert result.stderr.count("NOT PRIVATE, for the data holder only: 400 records") == 2
    assert "Effect of a on z: " in result.stdout
    Path("own.toml").write_text(
        DOMAIN.replace('"y"', '"z"').replace("= 4.0", "= 6.0\noutcome_center = 9.0")
    )
    late = read_study("study.toml").models(seed=5)["late"]
    alone = PrivateEffect(load_domain("own.toml"), late.budget, residual_scale=1.0, seed=late.seed)
    late, alone = (
        one.fit(frame_of(), frame_of()["a"], frame_of()["z"]).release_ for one in (late, alone)
    )
    assert (late.released, late.domain) == (alone.released, alone.domain)
    done("verify", "releases/late.json", "--study", "study.toml")
    Path("study.toml").write_text(STUDY + OTHER.replace("outcome_bound = 6.0\n", ""))
    assert "study.toml: late: outcome_column: declare its outcome_bound" in refused(*RUN)


def test_a_release_of_another_study_is_refuted_even_with_this_digest(folder):
    done(*RUN, "--seed", "5")
    for name in ("average", "rule"):
        done("verify", f"releases/{name}.json", "--study", "study.toml")
    Path("alone.toml").write_text(f"{DOMAIN}[budget]\nepsilon = 9\n[[effect]]\n")
    other = facts("run", "alone.toml", "data.csv", "--seed", "5", "--output", "alone.json")
    digest = read_study("study.toml").digest
    Path("other.json").write_text(json.dumps(other | {"study": digest}))
    done("verify", "other.json", "--study", digest)
    refuted = run("verify", "other.json", "--study", "study.toml")
    assert refuted.exit_code == 1
    assert "answers no question of study.toml" in refuted.stdout


def test_a_question_that_cannot_be_planned_stops_the_study_before_its_charge(folder, monkeypatch):
    bad = '[[two_stage]]\nfirst_stage = { name = "mmd" }\nsecond_stage = "arm_means"\n'
    Path("study.toml").write_text(STUDY + bad)
    assert refused(*RUN).startswith("error: study.toml: two_stage: ")
    study = read_study("study.toml")
    with pytest.raises(CalibrationError, match=r"^study\.toml: two_stage: "):
        study.plans(study.models(), 400, 2)
    Path("study.toml").write_text(STUDY)
    monkeypatch.setattr(Plan, "proven", property(lambda plan: plan.study.main != "rule"))
    assert "rule: is not proven" in run(*RUN, "--conditional").stderr
    assert charged() == ()
    assert not list(Path().glob("releases/*"))


def test_what_was_paid_for_is_never_lost(folder, monkeypatch):
    def fails(*_):
        raise MemoryError

    monkeypatch.setattr(PrivateRule, "run_plan", fails)
    result = run(*RUN)
    assert result.exit_code == 70
    assert json.loads(result.stdout)["estimand"] == "ate"
    assert [path.name for path in (folder / "releases").glob("*.json")] == ["average.json"]
    assert "charged to 'trial'" in result.stderr


def test_a_plan_reads_no_data_and_spends_nothing(folder):
    Path("study.toml").write_text(STUDY + WEIGHTS)
    told = done("run", "study.toml", "absent.csv", "--plan", "400").stdout
    for name, share in (("average", 1.5), ("rule", 0.75), ("two_stage", 0.75)):
        at = told.index(f"{name}: planned for 400 records")
        assert f"epsilon = {share:g}" in told[at:].split("Together: ")[1]
    assert re.search(r"average +0\.5 +1\.5 +1\.5 *\nrule +0\.25 +0\.75 +0\.75 ", told)
    assert "All questions together: epsilon = 3.\nstudy" in told
    assert told.endswith(f"study {read_study('study.toml').digest}\n")
    assert not (folder / "releases").exists()
    planned = facts("run", "study.toml", "--plan", "400")
    assert [one["guarantee"]["epsilon"] for one in planned.values()] == pytest.approx(
        [1.5, 0.75, 0.75]
    )
    # of 6, 3 and 3
    weak = shown("run", "study.toml", "--plan", "400", "--set", "budget.epsilon=12")
    assert weak.count("The guarantee is weak: epsilon = 12, above 10") == 1


def test_the_digest_is_of_what_is_declared_and_of_nothing_else(folder):
    digest = read_study("study.toml").digest
    assert len(digest) == len(hashlib.sha256().hexdigest())
    for old, new, same in (
        ("u = [-1.0, 1.0]", "# a remark\nu = [ -1.0, 1.0 ]", True),
        ("u = [-1.0, 1.0]\nv = [-1.0, 1.0]", "v = [-1.0, 1.0]\nu = [-1.0, 1.0]", False),
        ("outcome_bound = 4.0", "outcome_bound = 5.0", False),
    ):
        Path("study.toml").write_text(STUDY.replace(old, new))
        assert (read_study("study.toml").digest == digest) is same, new
    Path("study.toml").write_text(STUDY)
    for change in (
        "budget.epsilon=2",
        "average.residual_scale=0.6",
        "rule.share=0.2",
        "average.level=0.9",
    ):
        assert read_study("study.toml", [change]).digest != digest, change


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("epsilon = 3", "epsilom = 3", "did you mean epsilon"),
        ("epsilon = 3", "epsilon = -3", "study.toml: budget: epsilon = -3"),
        ("share = 0.5", "share = 1.5", "at most 1"),
        ("share = 0.5", "share = 0", "study.toml: average: share = 0"),
        ("share = 0.5", "settings = 3", "study.toml: average: settings = 3"),
        ("[[effect]]", "[[effects]]", "study.toml: [[effects]]: no question; did you mean effect?"),
        ("residual_scale = 0.5", "residual_scael = 0.5", "average: unknown name 'residual_scael'"),
        ('name = "average"', 'name = "RULE"', "taken"),
        ("outcome_bound = 4.0", 'outcome_bound = "EDIT"', "EDIT"),
        (STUDY, DOMAIN, "asks nothing"),
        (STUDY, f"effect = []\n{DOMAIN}", "asks nothing"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(folder, old, new, told):
    Path("study.toml").write_text(STUDY.replace(old, new))
    message = refused(*RUN)
    assert told in message
    assert message.startswith("error: study.toml: ")
    assert not (folder / "releases").exists()


NOTHING = (
    'epsilon=2 budget.epsilon nobody.level=0.9 budget.=2 average.name="../x" rule.kind="effect"'
)


@pytest.mark.parametrize("change", NOTHING.split())
def test_a_change_of_nothing_is_refused(folder, change):
    with pytest.raises(DeclarationError):
        read_study("study.toml", [change])


def mutated(rng):
    """A good file with another line in it: a value of a wrong kind, a typo, half a line, or it
    twice.
    """
    lines = (STUDY + OTHER + WEIGHTS).splitlines()
    place = rng.choice([k for k, line in enumerate(lines) if line])
    name, equals, value = lines[place].partition(" = ")
    at = rng.randrange(len(name))
    wrong = [
        "-1",
        "true",
        '"x"',
        "[]",
        "{}",
        "nan",
        "1e400",
        '""',
        "[1, 2, 3]",
        '"no/where"',
        f"[{value}]",
    ]
    lines[place] = rng.choice(
        [
            f"{name} = {rng.choice(wrong)}" if equals else f"[{name}",
            f"{name[:at]}{rng.choice('_z')}{name[at + 1 :]}{equals}{value}",
            lines[place][: rng.randrange(len(lines[place]))],
            f"{lines[place]}\n{lines[place]}",
        ]
    )
    return "\n".join(lines)


def test_wrong_files_are_one_line_each_and_nothing_is_charged(folder):
    rng, wrong = random.Random(0), set()
    while len(wrong) < 25:
        Path("study.toml").write_text(text := mutated(rng))
        try:
            study = read_study("study.toml")
            study.plans(study.models(), 400, 2)
        except Dp2ermError:
            wrong.add(text)
            assert refused(*RUN).startswith("error: study.toml: ")
    assert charged() == ()


SHARED = f"""{DOMAIN}
[missing]
y = 0.0
z = 9.0
{AVERAGE}settings = {{ propensity = "logistic" }}
[[effect]]
name = "treated"
estimand = "att"
settings = {{ propensity = "logistic" }}
{OTHER}"""


def planned(text, n=400):
    Path("study.toml").write_text(text)
    study = read_study("study.toml")
    models = study.models(seed=5)
    return models, study.plans(models, n, 2)


@pytest.mark.slow
def test_questions_release_once_what_no_outcome_enters_and_pay_once(folder):
    Path("study.toml").write_text(SHARED)
    done(*RUN)
    (receipt,) = charged()
    made = {
        k: json.loads(Path(f"releases/{k}.json").read_text())
        for k in ("average", "treated", "late")
    }
    steps = {
        one: {part["step"]: part["coefficient"] for part in made[one]["nuisances"]} for one in made
    }
    spent = {one: {part["step"]: part["epsilon"] for part in made[one]["steps"]} for one in made}
    total, shared = sum(spent["average"].values()), {"rate", "mean", "spread"}
    for name, taken in (("treated", {*shared, "propensity"}), ("late", shared)):
        before = made[name]["declared"]["before"]
        assert before.keys() == taken
        assert {one["of"] for one in before.values()} == {"average"}
        assert all(steps[name][one] == steps["average"][one] for one in taken)
        assert steps[name]["center"] != steps["average"]["center"]
        own = sum(cost for step, cost in spent[name].items() if step not in taken)
        # by itself it says all that is in it
        assert made[name]["guarantee"]["epsilon"] >= own + sum(
            spent["average"][one] for one in taken
        )
        total += own
    assert 3.0 * (1 - 1e-4) < total <= receipt.budget.epsilon <= 3.0
    # a step of the outcome cannot be said to be taken over
    of_outcome = {"of": "average", "epsilon": spent["treated"]["score"], "budget": 1.5}
    before = {**made["treated"]["declared"]["before"], "score": of_outcome}
    forged = made["treated"] | {"declared": made["treated"]["declared"] | {"before": before}}
    assert "score is of the outcome" in " ".join(
        verify(parsed(json.dumps(forged), EffectRelease)).refuted
    )
    late = ("verify", "releases/late.json", "--study", "study.toml")
    assert done(*late).stderr == ""
    # the release of another run, whose shared steps were drawn and paid for elsewhere
    done(*RUN, "--seed", "1", "--output-dir", "more")
    Path("releases/late.json").write_text(Path("more/late.json").read_text())
    result = run(*late)
    assert result.exit_code == 1
    assert "before.rate: is not as 'average' released it" in result.stdout
    Path("more/average.json").unlink()
    told = run("verify", "more/late.json").stderr
    assert "average.json, from which it took steps over, is not beside it" in told


@pytest.mark.slow
def test_planning_writes_nothing_into_the_estimators_of_a_study(folder):
    """Fitted one by one they release all their steps, each from its own part of the budget."""
    Path("study.toml").write_text(SHARED)
    study = read_study("study.toml")
    models = study.models(seed=5)
    before = {name: dict(vars(model)) for name, model in models.items()}
    plans = study.plans(models, 400, 2)
    assert {name: dict(vars(model)) for name, model in models.items()} == before
    assert sum(plan.guarantee.epsilon for plan in plans.values()) > 3.0
    assert sum(model.plan(400, 2).guarantee.epsilon for model in models.values()) <= 3.0
    assert all(not model.plan(400, 2).study.before for model in models.values())
    again = study.plans(models, 400, 2)
    assert [plan.steps for plan in again.values()] == [plan.steps for plan in plans.values()]


@pytest.mark.slow
def test_a_plan_is_run_on_as_many_records_as_it_is_for(folder):
    models, plans = planned(SHARED)
    table = frame_of(300)
    data = Dataset.coded(models["average"].domain, table, table["a"], table["y"])
    with pytest.raises(
        DeclarationError, match="for 400 records of 2 covariates, and these are 300 of 2"
    ):
        models["average"].run_plan(plans["average"], data)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("text", [STUDY, SHARED])
def test_a_study_runs_in_python_as_on_the_command_line(folder, text):
    Path("study.toml").write_text(text)
    told = facts(*RUN, "--seed", "5")
    study = read_study("study.toml")
    table = pd.read_csv("data.csv", float_precision="round_trip")
    released = study.run(table, seed=5)
    assert {name: json.loads(release.to_json()) for name, release in released.items()} == told
    assert charged() == ()
    fresh = study.run(table)
    (receipt,) = charged()
    assert receipt.note.endswith(study.digest[:12])
    assert {name for name, release in fresh.items() if release.private} == set(told)
    with pytest.raises(LedgerError, match="does not fit"):
        study.run(table)
    assert len(charged()) == 1


def test_a_study_of_one_effect_is_planned_once(folder, monkeypatch):
    calls = []
    rule = defaults.effect_rule

    def counted(study, *words, **named):
        if study.universe.n_samples == 400:  # what is declared is judged at other numbers before
            calls.append(study)
        return rule(study, *words, **named)

    monkeypatch.setattr(defaults, "effect_rule", counted)
    Path("study.toml").write_text(f"{DOMAIN}{AVERAGE}")
    done(*RUN, "--seed", "1")
    assert len(calls) == 1
    # of two that share nothing each is planned once: joint intervals follow from the plans at hand
    calls.clear()
    other = '[[effect]]\nname = "part"\nprognostic = ["u"]\n'
    Path("study.toml").write_text(f"{DOMAIN}{AVERAGE}{other}")
    done(*RUN, "--seed", "1", "--force")
    assert len(calls) == 2


def test_what_cannot_be_run_in_blocks_is_refused_before_the_charge(folder):
    told = refused(*RUN, "--blocks", "always", "--solver", "clarabel")
    assert "clarabel needs all records in memory at once" in told
    assert charged() == ()


def test_what_is_taken_over_has_the_law_of_what_a_question_releases_itself(folder):
    models, plans = planned(SHARED)
    table = frame_of().assign(z=9.0)
    data = Dataset.coded(models["late"].domain, table, [1, 0] * 200, [8.0] * 400)
    execution = models["average"].execution()
    first = plans["average"].run(data, models["average"].execution())
    for name in ("treated", "late"):
        plan = plans[name]
        alone = replace(plan, study=replace(plan.study, before={}))
        shared, own = plan.run(data, execution, first.steps), alone.run(data, execution)
        assert all(np.array_equal(shared.released[one], own.released[one]) for one in own.released)
        assert plan.guarantee.epsilon == pytest.approx(
            sum(one.guarantee.epsilon for one in plan.steps)
        )


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    ("old", "new", "name", "kept"),
    [
        ("z = 9.0\n", "", "late", False),  # without an outcome a record does not count
        slow(('name = "late"', 'name = "late"\nprognostic = ["u"]', "late", False)),
        slow(('name = "late"', 'name = "late"\nnoise = "gaussian"', "late", False)),
        ('name = "late"', 'name = "late"\nsettings = { norm_bound = 0.5 }', "late", False),
        ("epsilon = 3", "epsilon = 3\ndelta = 1e-6", "late", True),
        slow(('estimand = "att"', 'estimand = "att"\nprognostic = ["v", "u"]', "treated", False)),
        ('estimand = "att"', 'estimand = "att"\nprognostic = ["v"]', "treated", False),
    ],
)
def test_a_question_of_other_records_or_another_map_releases_its_own(folder, old, new, name, kept):
    text = (
        SHARED.replace("epsilon = 3", "epsilon = 3\ndelta = 1e-6") if "gaussian" in new else SHARED
    )
    _, plans = planned(text.replace(old, new))
    (other,) = {"late", "treated"} - {name}
    assert bool(plans[name].study.before) is kept
    assert plans[other].study.before
    spent = sum(plan.own.epsilon for plan in plans.values())
    assert 3.0 * (1 - 1e-4) < spent <= 3.0
