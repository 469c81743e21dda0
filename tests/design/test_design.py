"""A design: populations that are what was guessed, rows that are what a release does, commands that
run.
"""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, EffectRelease, PrivateEffect, load_domain, read_release
from dp2erm_cvx.design import DesignRequest, DesignResult, DesignRow, DesignScenario
from dp2erm_cvx.design.request import Population, distance_of, log_odds_of
from dp2erm_cvx.design.result import required_records
from dp2erm_cvx.design.simulation import (
    SimulatedRun,
    design_candidates,
    ranked,
    replicate,
    simulated_table,
)
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.study import read_study, study_with
from tests.command_line import done, refused, run

CLINIC = """\
outcome_column = "score"
outcome_center = 50
outcome_bound = 25
[treatment]
column = "arm"
treated = "drug"
control = "placebo"
[ranges]
age = [30, 80]
severity = [0, 10]
[levels]
region = ["N", "S", "other"]
smoker = ["yes", "no", ""]
[missing]
severity = 5
[units]
score = "points"
[csv]
separator = ";"
encoding = "latin-1"
"""
LINE = Domain(covariate_bound=1.0, outcome_bound=6.0, ranges={"x": (-1.0, 1.0)})


def request(domain=LINE, n=400, epsilon=2.0, **others):
    features = len(domain.ranges)
    return DesignRequest(domain, n, features, Budget(epsilon), **{"replicates": 10, **others})


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("domain.toml").write_text(CLINIC, encoding="utf-8")
    return load_domain("domain.toml")


def patients(n):
    """Of the clinic, some of whom have no severity or live elsewhere."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"age": rng.uniform(30, 80, n).round(1), "severity": rng.uniform(0, 10, n).round(2)}
    )
    frame.loc[rng.random(n) < 0.05, "severity"] = np.nan
    levels = {
        "region": ["N", "S", "Überall"],
        "smoker": ["yes", "no", ""],
        "arm": ["drug", "placebo"],
    }
    for name, known in levels.items():
        frame[name] = rng.choice(known, n)
    return frame.assign(score=rng.normal(50, 8, n).round(2))


@pytest.mark.parametrize("confounding", ["none", "strong"])
def test_a_world_has_the_sizes_that_were_guessed(clinic, confounding):
    stated = DesignScenario(
        effect=3.0, effect_spread=2.0, outcome_scale=8.0, confounding=confounding, treated=0.3
    )
    scenario = stated.filled(clinic, "effect")
    population = Population(clinic, len(clinic.ranges), scenario, (7,))
    X, a, y = population.draw(100_000, np.random.default_rng(0))
    e, effects = population.propensity(X), population.effects(X)
    assert a.mean() == pytest.approx(0.3, abs=0.01)
    assert np.std(np.log(e / (1 - e))) == pytest.approx(scenario.log_odds, rel=0.03, abs=1e-9)
    assert (effects.mean(), effects.std()) == pytest.approx((3.0, 2.0), abs=0.1)
    control = population.means(X)[:, 0] + 0.5 * effects
    assert np.var(control) == pytest.approx(scenario.explained * 64.0, rel=0.1)
    noise = y - population.means(X)[np.arange(len(e)), a]
    assert np.var(noise) == pytest.approx((1 - scenario.explained) * 64.0, rel=0.02)
    naive = y[a == 1].mean() - y[a == 0].mean() - 3.0
    assert naive == pytest.approx(population.confounded_by, abs=0.2)
    assert (abs(naive) > 3.0) == (confounding == "strong")
    treated = effects[a == 1].mean()
    assert population.truth("att") == pytest.approx(treated, abs=0.1)
    assert population.truth("overlap") == pytest.approx(
        np.average(effects, weights=np.minimum(e, 1 - e)), abs=0.1
    )


@pytest.mark.parametrize("treated", [0.5, 0.2])
def test_arms_lie_as_far_apart_as_a_study_declares(treated):
    """A guess of its own goes before that; what a pipeline declares is then the distance of the
    guess.
    """
    domain = replace(LINE, ranges=dict.fromkeys("abcd", (-1.0, 1.0)))

    def asked(declared, guess=None):
        scenario = DesignScenario(treated=treated, confounding=guess)
        return request(domain, scenario=scenario, declared=declared)

    far = asked({"confounding": 1.3})
    X, a, _ = Population(domain, 4, far.filled).draw(200_000, np.random.default_rng(0))
    means = X[a == 1].mean(axis=0) - X[a == 0].mean(axis=0)
    apart = math.sqrt(means @ np.linalg.solve(np.cov(X.T), means))
    assert apart == pytest.approx(1.3, abs=0.03)
    for known in (asked({}), asked({"confounding": 0.5}), asked({"confounding": 1.3}, "moderate")):
        assert known.filled.confounding == "moderate"
    guessed = design_candidates(asked({}, "strong"), 1)[0].settings["confounding"]
    assert guessed == pytest.approx(distance_of(1.6, treated), abs=0.05)
    assert log_odds_of(distance_of(2.5, treated), treated) == pytest.approx(2.5)
    assert log_odds_of(1.99, 0.5) == 6.0  # no log odds put arms so far apart


@pytest.mark.slow
def test_weights_of_a_scheme_are_compared_where_the_question_may_take_them(monkeypatch):
    for others in ("_EFFECT", "_RULE"):
        monkeypatch.setattr(f"dp2erm_cvx.design.simulation.{others}", {})
    monkeypatch.setattr("dp2erm_cvx.design.simulation._WEIGHTS", ())

    def compared(**others):
        return [
            one for one in design_candidates(request(n=2000, **others)) if "weights" in one.settings
        ]

    (one,) = compared()
    assert (one.kind, one.name) == ("effect", "weighted residuals")
    assert one.settings["weights"] == "entropy_balancing"
    (run,), _, _ = replicate(request(n=2000), [one], 0)
    assert run.low < 0.0 < run.high
    assert [other.name for other in compared(scenario=DesignScenario(drivers=("x",)))] == [
        "weighted residuals, drivers alone"
    ]
    public = {"settings": {"propensity": 0.5}}
    for others in ({"estimand": "att"}, {"goal": "rule"}, {"declared": public}):
        assert compared(**others) == []


def test_two_outcomes_are_two():
    domain = Domain(
        covariate_bound=1.0, outcome_bound=0.5, outcome_center=0.5, ranges={"x": (0.0, 9.0)}
    )
    stated = DesignScenario(effect=0.2, effect_spread=0.0, explained=0.2, binary=True)
    population = Population(domain, 1, stated.filled(domain, "effect"))
    X, a, y = population.draw(100_000, np.random.default_rng(0))
    assert set(y) == {0.0, 1.0}
    assert population.truth("ate") == pytest.approx(0.2, abs=0.03)
    assert np.mean(y - population.means(X)[np.arange(len(a)), a]) == pytest.approx(0.0, abs=0.006)


def test_what_is_not_stated_is_filled_in_and_told():
    scenario = DesignScenario(effect=2.0)
    filled = scenario.filled(LINE, "effect")
    assert (filled.effect, filled.outcome_scale, filled.effect_spread) == (2.0, 2.0, 0.38)
    stated = {name: stated for name, _, stated in scenario.stated(filled)}
    assert [name for name in stated if stated[name]] == ["effect"]
    costly = replace(LINE, treatment_cost=1.5)
    # nobody knows in advance whom to treat
    assert DesignScenario().filled(costly, "rule").effect == 1.5
    assert DesignScenario().filled(costly, "effect").effect == 2.5


@pytest.mark.parametrize(
    ("made", "name", "wrong"),
    [
        *((DesignScenario, "confounding", wrong) for wrong in ("huge", -1.0)), (request, "n",
        10**7),
        (DesignScenario, "treated", 1.0), (DesignScenario, "explained", 1.0), (request, "goal",
        "value"),
        (DesignScenario, "curved", -0.1), (DesignScenario, "effect", math.nan), (request, "seed",
        -1),
        (DesignScenario, "effect_spread", -1.0), (DesignScenario, "outcome_scale", 0.0),
        (request, "scenario", DesignScenario(drivers=("y",))), (request, "estimand", "risks"),
        (request, "replicates", 9),
        (partial(DesignRequest, LINE, 100, 3), "budget", Budget(1.0)),  # one range
    ],
)  # fmt: skip
def test_wrong_guesses_and_questions_are_refused(made, name, wrong):
    with pytest.raises(DeclarationError):
        made(**{name: wrong})


def test_a_row_is_what_releases_do():
    """The numbers of the table anew: from records of this test's own, by the model that a row
    holds.
    """
    asked = request(
        n=300,
        replicates=24,
        scenario=DesignScenario(curved=0.0, confounding=1.0, effect_spread=0.0),
    )
    (one,) = design_candidates(asked, 1)
    result = one.of_effect([replicate(asked, [one], k)[0][0] for k in range(24)])
    off, width, held = np.empty(24), np.empty(24), np.empty(24)
    for number in range(24):
        rng = np.random.default_rng([5, number])
        x = np.clip((1 + rng.standard_normal(300)) / 3, -1, 1)
        z = rng.choice([-1, 1]) * (x - 0.325) / 0.305  # moments of the clipped normal
        a = (rng.random(300) < 1 / (1 + np.exp(-1.0 * z))).astype(int)
        y = 1.0 + math.sqrt(2.0) * z + 1.0 * (a - 0.5) + math.sqrt(2.0) * rng.standard_normal(300)
        model = one.model.set_params(seed=number).fit(pd.DataFrame({"x": x}), a, y)
        low, high = model.interval_
        off[number], width[number], held[number] = (
            model.effect_ - 1.0,
            high - low,
            low <= 1.0 <= high,
        )
    error = np.std(off, ddof=1) / math.sqrt(24)
    assert np.mean(off) == pytest.approx(result.bias, abs=2.0 * (error * 1.96 + result.bias_half))
    assert np.std(off, ddof=1) == pytest.approx(result.deviation, rel=0.5)
    assert np.median(width) == pytest.approx(result.width, rel=0.1)
    assert np.mean(held) == pytest.approx(result.covers, abs=0.15)


def test_the_result_depends_on_the_question_alone_and_a_failure_is_told(monkeypatch):
    def failing(self, *data):
        raise CalibrationError("planted")

    asked = request(n=60, replicates=10)
    compared = design_candidates(asked, 2)
    first, again = (replicate(asked, compared, 4) for _ in range(2))
    assert first == again
    assert replicate(replace(asked, seed=1), compared, 4) != first
    assert replicate(asked, compared, 5) != first
    monkeypatch.setattr(PrivateEffect, "fit_announced", failing)
    assert replicate(asked, compared, 0)[0] == ["planted", "planted"]


def row(name, errors, covers=0.95, reason=""):
    errors = tuple(float(error) for error in errors)
    return DesignRow(name, covers=covers, width=1.0, reason=reason, scores=errors)


def test_ties_are_told_by_paired_differences():
    rng = np.random.default_rng(0)
    common = rng.exponential(size=50)
    rows = [
        row("public rule", common + 0.01 * rng.standard_normal(50)),
        row("a little worse each time", common + 0.05),
        row("the same within error", common + 0.01 * rng.standard_normal(50) - 0.001),
        row("sharp and wrong", 0.1 * common, covers=0.4),
        row("no interval", 0.1 * common, covers=math.nan),
        row("failed", (), reason="no plan"),
    ]
    result = ranked(request(), rows)
    names = [one.name for one in result]
    assert names[:3] == ["public rule", "the same within error", "a little worse each time"]
    assert names[3:] == ["sharp and wrong", "no interval", "failed"]
    assert [one.tied for one in result] == [True, True, False, False, False, False]
    # a rule has no interval that could miss
    assert ranked(request(goal="rule"), rows)[0].name in ("sharp and wrong", "no interval")


def trials(misses, low=-0.5):
    """Ten studies of an effect of 4.2, the true one being 0 here; so many intervals just miss
    it.
    """
    return [SimulatedRun(0.2, 0.05 if k < misses else low, 0.5) for k in range(10)]


def test_what_covers_less_than_09_is_never_first():
    """However short it is; where nothing covers .9, the nearest comes first."""
    weights = DesignRow("weights").of_effect([SimulatedRun(0.001)] * 10, 0.1)
    short, wide, worse = (
        DesignRow(name).of_effect(
            trials(misses, -9 if name == "wide" else -0.5), 9.0 if name == "wide" else 0.1
        )
        for name, misses in {"short": 2, "wide": 1, "worse": 4}.items()
    )
    assert (short.covers, short.holds, wide.covers, wide.holds) == (0.8, False, 0.9, True)
    asked = request(scenario=DesignScenario(effect=4.2))
    assert [one.name for one in ranked(asked, [short, weights, wide])] == [
        "wide",
        "short",
        "weights",
    ]
    actual = ranked(asked, [weights, worse, short])
    assert [one.name for one in actual] == ["short", "worse", "weights"]
    assert not any(one.tied for one in actual)
    result = DesignResult(asked, actual, worse, 0.0, (3000, "simulated"))
    assert not result.answers
    title, *lines = str(result).splitlines()
    assert result._repr_html_().count("<table") == 2
    assert title.startswith("Design of an effect")
    told, table = " ".join(" ".join(lines).split()).split(" Simulated from the public domain")
    assert told == (
        "No pipeline answers this at n = 400, epsilon = 2: no 95 % interval covers the effect in "
        "90% of the simulated studies; the nearest, short, does in 80%. Without privacy the "
        "default covers it in 60%. You need about n = 3,000 (simulated)."
    )
    assert "Take" not in table
    assert DesignRow("").of_effect([SimulatedRun(0.4, -math.inf, math.inf)] * 10).holds


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(("most", "required"), [(0, (400, "more")), (1000, (570, "simulated"))])
def test_coverage_is_simulated_and_not_predicted(monkeypatch, most, required):
    """Planted: no interval covers the effect at n = 400, and the public plans say nothing of
    that.
    """
    monkeypatch.setattr("dp2erm_cvx.design.result._SIMULATED", most)
    asked = request(scenario=DesignScenario(effect=4.0, confounding="none"), replicates=20)
    missing = DesignRow("default").of_effect(trials(8), 0.1)
    result = DesignResult(asked, (missing,), missing, 0.0)
    assert required_records(result, 1, lambda *_: None) == required


def test_rare_treatments_need_more_records(monkeypatch):
    """A third was taken to be treated: intervals were twice as wide as wanted where so few are."""
    monkeypatch.setattr("dp2erm_cvx.design.result._SIMULATED", 0)
    holding, known = DesignRow("default").of_effect(trials(0), 0.1), {}
    for treated in (0.5, 0.1, 0.9):
        asked = request(scenario=DesignScenario(effect=0.6, treated=treated), replicates=20)
        known[treated] = required_records(
            DesignResult(asked, (holding,), holding, 0.0), 1, lambda *_: None
        )
    assert {how for _, how in known.values()} == {"predicted"}
    assert known[0.1] == known[0.9]
    assert known[0.1][0] > 1.5 * known[0.5][0]


@pytest.mark.slow
def test_the_default_is_simulated_where_weights_come_first():
    asked, rows = request(goal="rule", n=200, scenario=DesignScenario(effect_spread=4.0)), []
    for name, wrong in (("constant", 0.5), ("weights", 0.45)):
        rows.append(DesignRow(name, name).of_rule([SimulatedRun(wrong, lost=1.0)] * 10))
    result = DesignResult(asked, (rows[1], rows[1]), rows[0], 0.0)
    assert required_records(result, 1, lambda *_: None)[1] == "simulated"


def test_what_is_worth_reading():
    constant = DesignRow("constant").of_rule([SimulatedRun(0.5)] * 10)

    def answers(one, goal="effect", beside=constant, effect=1.0):
        asked = request(goal=goal, scenario=DesignScenario(effect=effect))
        return DesignResult(asked, (one,), beside, 0.0).answers

    assert answers(replace(row("", [1.0] * 10), width=0.9))
    assert not answers(replace(row("", [1.0] * 10), width=1.1))
    assert not answers(replace(row("", [1.0] * 10, covers=0.8), width=0.9))
    assert answers(replace(row("", [1.0] * 10), width=9.0), effect=0.0)  # nothing to compare with
    assert not answers(replace(row("", [1.0] * 10), width=math.inf), effect=0.0)
    assert not answers(DesignRow("", reason="failed"))
    for wrong, expected in ((0.45, False), (0.2, True)):
        assert answers(DesignRow("").of_rule([SimulatedRun(wrong)] * 10), "rule") == expected
    assert not answers(DesignRow("").of_rule([SimulatedRun(0.0), *[SimulatedRun(0.5)] * 9]), "rule")


def test_a_pipeline_that_is_wrong_is_seen(monkeypatch):
    """Planted: every release of the public rule is 2 too high."""
    effect, interval = PrivateEffect.effect_.fget, PrivateEffect.interval_.fget
    asked = request(n=300)
    compared = design_candidates(asked, 1)
    plain = replicate(asked, compared, 0)[0][0]
    moves = {"effect_": lambda model: effect(model) + 2.0}
    moves["interval_"] = lambda model: tuple(end + 2.0 for end in interval(model))
    for name, moved in moves.items():
        monkeypatch.setattr(PrivateEffect, name, property(moved))
    assert replicate(asked, compared, 0)[0][0].off == pytest.approx(plain.off + 2.0)


@pytest.mark.slow
def test_settings_that_the_public_rule_takes_are_not_repeated():
    result = design_candidates(request(n=5000, epsilon=1.0))
    names = [one.name for one in result]
    assert names[0] == "default"
    assert len(set(names)) == len(names)
    plans = [one.model.plan(5000, 1).study for one in result if one.kind == "effect"]
    assert len({(str(study.settings), study.noise) for study in plans}) == len(plans)
    gaussian = design_candidates(replace(request(), budget=Budget(1.0, 1e-6)), 3)
    assert any(one.name.endswith("gaussian noise") for one in gaussian)


@pytest.mark.parametrize("goal", ["effect", "rule"])
@pytest.mark.slow
def test_every_study_is_the_candidate(clinic, goal):
    """A study with its settings releases, with its seed, exactly what the simulated candidate
    releases.
    """
    asked = DesignRequest(clinic, 400, len(clinic.ranges), Budget(2.0), goal)
    frame = patients(400)
    frame.to_csv("data.csv", sep=";", encoding="latin-1", index=False)
    compared = design_candidates(asked)
    assert {one.kind for one in compared} == {goal, "two_stage"}
    for one in compared:
        Path("study.toml").write_text(
            study_with("domain.toml", None, one.kind, one.settings, asked.budget), encoding="utf-8"
        )
        result = done("run", "study.toml", "data.csv", "--seed", "3", "--json")
        told = json.loads(result.stdout)
        model = one.model.set_params(seed=3).fit(frame, frame["arm"], frame["score"])
        expected = json.loads(model.release_.to_json())
        name = "estimate" if one.kind == "effect" else "theta"
        assert told[name] == expected[name], one.name
        assert told["guarantee"] == expected["guarantee"], one.name
        Path("releases").rename(f"releases {one.name}")


@pytest.fixture
def few(monkeypatch):
    """Two candidates, which take less time than all, simulated once for a request."""
    questions, known = [], {}

    def candidates(asked, most=None):
        questions.append(asked)
        return design_candidates(asked, most or 2)

    def table(asked, compared, *others):
        key = repr(asked), tuple(one.name for one in compared)
        if key not in known:
            known[key] = simulated_table(asked, compared, *others)
        return known[key]

    monkeypatch.setattr("dp2erm_cvx.design.result.design_candidates", candidates)
    monkeypatch.setattr("dp2erm_cvx.design.result.simulated_table", table)
    return questions


def designed(*words, file="domain.toml"):
    return done("design", file, "--replicates", "10", *words)


@pytest.mark.slow
def test_the_command_tells_what_is_guessed_and_what_to_run(clinic, few):
    words = ["--n", "300", "--epsilon", "8", "--effect", "12", "--confounding", "weak"]
    told = designed(*words, "--output", "study.toml").stdout
    lines = told.splitlines()
    assert any("average effect" in line and "12" in line and "stated" in line for line in lines)
    assert any("spread of the outcome" in line and "guessed" in line for line in lines)
    assert "No data were read, nothing was spent." in " ".join(told.split())
    assert "Take: " in told
    assert lines[-1] == "dp2erm run study.toml DATA.csv"
    told = designed(*words).stdout
    assert "\n[[effect]]\nresidual_scale = " in told
    facts = json.loads(designed(*words, "--json").stdout)
    assert (facts["answers"], facts["required_n"], facts["scenario"]["effect"]) == (True, None, 12)
    assert facts["study"] == Path("study.toml").read_text(encoding="utf-8")
    assert ("effect" in facts["guessed"], "outcome_scale" in facts["guessed"]) == (False, True)
    assert (facts["rows"][0]["tied"], facts["rows"][0]["kind"]) == (True, "effect")
    patients(300).to_csv("data.csv", sep=";", encoding="latin-1", index=False)
    assert run("run", "study.toml", "data.csv").exit_code == 0
    release = read_release(Path("releases/effect.json").read_text(encoding="utf-8"), EffectRelease)
    assert (release.private, release.guarantee.epsilon) == (True, pytest.approx(8.0))


STUDY = """
[budget]
epsilon = 8    # usual
[[effect]]     # whom it helps
name = "average"
share = 0.5
confounding = 2.0
settings = { propensity = 0.5 }
[[rule]]
outcome_scale = 6
"""


@pytest.mark.slow
def test_what_a_study_declares_holds_for_every_pipeline(clinic, few, monkeypatch):
    """The question of the study keeps its settings and its share; what wins is written beside its
    remarks.
    """
    monkeypatch.setattr("dp2erm_cvx.design.result._SIMULATED", 0)
    Path("study.toml").write_text(CLINIC + STUDY, encoding="utf-8")
    result = designed("--n", "300", "--output", "c.toml", "--json", file="study.toml")
    facts = json.loads(result.stdout)
    assert (facts["question"], facts["epsilon"]) == ("average", pytest.approx(4.0))
    effects = [one.settings for one in design_candidates(few[0]) if one.kind == "effect"]
    effects += [row["settings"] for row in facts["rows"] if row["kind"] == "effect"]
    assert len(effects) > 4
    assert all(
        one["settings"]["propensity"] == 0.5 and one["confounding"] == 2.0 for one in effects
    )
    (before, after) = (read_study(name).questions for name in ("study.toml", "c.toml"))
    assert [(one.name, one.share) for one in before] == [(one.name, one.share) for one in after]
    assert before[1] == after[1]
    assert after[0].settings["residual_scale"] > 0
    assert facts["study"].count("# usual") == facts["study"].count("# whom it helps") == 1


def test_another_estimator_keeps_the_name_and_the_share_of_its_question(clinic):
    second = '[[rule]]\nname = "other"\nshare = 0.25\n'
    named = STUDY.replace(
        "outcome_scale = 6", 'name = "whom"\nshare = 0.25\noutcome_scale = 6\n' + second
    )
    Path("study.toml").write_text(CLINIC + named, encoding="utf-8")
    stages = {"first_stage": "ipw_private", "second_stage": "itr"}
    Path("c.toml").write_text(study_with("study.toml", "whom", "two_stage", stages, Budget(8.0)))
    questions = {one.name: one for one in read_study("c.toml").questions}
    assert (questions["whom"].kind, questions["whom"].share) == ("two_stage", 0.25)
    assert dict(questions["whom"].settings) == stages
    assert len(questions) == 3


@pytest.mark.slow
def test_where_nothing_answers_it_says_so(monkeypatch, few, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dp2erm_cvx.design.result._SIMULATED", 0)
    Path("d.toml").write_text("outcome_bound = 6\n[ranges]\nx = [-1, 1]\n")
    words = ["design", "d.toml", "--n", "40", "--epsilon", "0.1", "--replicates", "10"]
    told = run(*words, "--effect", "0.5", "--output", "s.toml").stdout
    assert told.splitlines()[1].startswith("No pipeline answers this at n = 40, epsilon = 0.1")
    assert told.splitlines()[-2:] == ["If you run it all the same:", "dp2erm run s.toml DATA.csv"]
    facts = json.loads(run(*words, "--goal", "rule", "--json").stdout)
    assert facts["answers"] is False
    assert facts["required_n"]["n_samples"] > 40


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        *(
            ("domain.toml --goal value", "goal = 'value'"),
            ("domain.toml --confounding huge", "confounding"),
        ),
        *(("domain.toml --n 1e9", "at most 1,000,000"), ("domain.toml --workers 0", "workers")),
        ("domain.toml --drivers height", "unknown covariate 'height'"),
        ("domain.toml --question average", "--question: domain.toml asks none"),
        ("domain.toml --output domain.toml", "is used by this command already"),
        ("study.toml --question averag", "--question averag: did you mean average?"),
        *(
            ("study.toml --goal rule", "choose one by --question"),
            ("private.toml", "must be a pair"),
        ),
        *(("small.toml", "--n-features"), ("small.toml", "declares no [budget]: give --epsilon")),
    ],
)
def test_bad_input_is_one_line(clinic, words, complaint):
    Path("private.toml").write_text('outcome_bound = 2\n[ranges]\nage = "private"\n')
    Path("small.toml").write_text("covariate_bound = 1\noutcome_bound = 1\n")
    Path("study.toml").write_text(CLINIC + STUDY, encoding="utf-8")
    epsilon = [] if "declares no" in complaint else ["--epsilon", "1"]
    assert complaint in refused("design", "--n", "100", *epsilon, *words.split())
