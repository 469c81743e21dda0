"""The simulation study: the same law as releases, honest rows, and what is stated about it."""

import json

import numpy as np
import pytest

from dp2erm_cvx import Budget, PrivateTwoStageERM
from dp2erm_cvx.cli.screen import stages
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.studies import design_path
from dp2erm_cvx.studies.confounded import Strength
from dp2erm_cvx.studies.engine import cells_of, load_design, part_label, run
from dp2erm_cvx.studies.plans import FAMILIES, PLAIN, Refused, Weights, draw_thetas, plan_rule
from dp2erm_cvx.studies.scheme import Constants, Rule, StudyScheme, Tuning
from dp2erm_cvx.studies.simulation import SimulationDesign, SimulationStudy
from dp2erm_cvx.studies.summary import means
from dp2erm_cvx.studies.trial import Judge, all_rows, choose, places
from tests.command_line import run as command

CONSTANTS = Constants(covariate_bound=1.0, outcome_bound=2.0, arm_floor=0.25)
IPW = StudyScheme(program="ipw_logistic", settings={"ridge": 1.0, "radius": 1.0})


def declared(variant="quick", **fields):
    return load_design(SimulationDesign, design_path("simulation"), variant, **fields)


def two_replicates():
    return declared(replicates=2, scenarios=["linear", "tree"])


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return run(SimulationStudy(), two_replicates(), tmp_path_factory.mktemp("simulation"))


def test_every_place_of_the_design_has_a_row(quick):
    design = two_replicates()
    private = len(design.schemes) * len(design.families) * len(design.noises) * len(design.epsilons)
    private += len(design.methods) * len(design.noises) * len(design.epsilons)
    each = private + len(design.schemes) + 2
    assert len(quick) == each * design.replicates * len(design.scenarios)
    assert set(quick["status"]) == {"done", "refused"}
    refused = quick[quick["status"] == "refused"]
    assert (refused["reason"].str.len() > 10).all()
    # the one thing that has no calibration of its own
    assert set(refused["scheme"]) == {"w = 1"}
    done = quick[quick["status"] == "done"]
    assert done["accuracy"].between(0, 1).all()
    assert done[done["family"] != "constant rule"]["certified"].all()
    weighted = done[done["scheme"].isin(["IPW", "EBW", "MMD", "w = 1"])]
    assert weighted["effective_share"].between(0.2, 1.0 + 1e-9).all()
    assert (done[done["family"] == "sharp"]["V"] >= 2).all()


def test_the_sharp_calibration_is_far_above_the_papers(quick):
    linear = quick[(quick["scenario"] == "linear") & (quick["noise"] == "gamma") & (quick["epsilon"] == 5.0)]
    found = means(linear, ["scheme", "family"], ["accuracy"]).set_index(["scheme", "family"])["accuracy"]
    for scheme in ("IPW", "EBW"):
        assert found[scheme, "sharp"] > found[scheme, "paper"] + 0.2


@pytest.mark.parametrize(
    ("family", "noise"),
    [
        ("sharp", "gamma"),
        pytest.param("sharp", "gaussian", marks=pytest.mark.slow),
        ("auto", "gaussian"),
        pytest.param("saturating", "gamma", marks=pytest.mark.slow),
    ],
)
def test_theta_has_the_law_of_a_release(family, noise):
    data = simulate("linear", 120, rng=0).dataset
    budget = Budget(1.0, 1e-3 if noise == "gaussian" else 0.0)
    rule = plan_rule(Rule(IPW, CONSTANTS), family, noise, budget, 120, 10)
    domain = CONSTANTS.domain(120)
    weights = Weights(domain.records(data.X, data.a, data.y))
    many = draw_thetas(rule, weights, 3000, np.random.default_rng(1)).thetas
    released, how = [], {"calibration": family, "noise": noise, "arithmetic": "assumed"}
    for seed in range(100):
        model = PrivateTwoStageERM(domain, budget, rule.first, rule.second, seed=seed, **how)
        released.append(model.fit(data.X, data.a, data.y).theta_)
    assert model.plan(120, 10).theta.calibration == rule.plan.theta.calibration
    released = np.array(released)
    spread = many.std(axis=0) / np.sqrt(100)
    assert np.all(np.abs(released.mean(axis=0) - many.mean(axis=0)) < 4.5 * spread)
    assert np.all(np.abs(np.log(released.std(axis=0) / many.std(axis=0))) < 0.4)


def test_a_loss_of_bounded_slope_needs_less_noise_and_tuning_leaves_its_constants():
    design = declared()
    rules = {family: design.chosen({"settings": {}, "constants": {}}, "w = 1", family) for family in FAMILIES}
    assert rules["saturating"].constants == design.saturating
    assert rules["sharp"].constants == design.constants
    for noise, theorem in (("gamma", "Theorem 15"), ("gaussian", "Theorem 16")):
        budget = Budget(0.5, 1 / 400 if noise == "gaussian" else 0.0)
        found = plan_rule(rules["saturating"], "saturating", noise, budget, 400, 10)
        assert found.facts()["theorem"].startswith(theorem)
    assert found.facts()["split"] == 1.0
    tuning = Tuning(bootstraps=1, candidates={}, constants=[{"covariate_bound": 0.5}])
    sample = simulate("linear", 100, rng=0)
    other = design.model_copy(update={"tuning": tuning, "epsilons": [1.0], "noises": ["gamma"]})
    assert choose(other, sample, "w = 1", "saturating")["constants"] == {}
    assert choose(other, sample, "w = 1", "sharp")["constants"] == {"covariate_bound": 0.5}


def test_a_private_propensity_is_drawn_anew_for_every_theta():
    data = simulate("linear", 120, rng=0).dataset
    rule = plan_rule(Rule(IPW, CONSTANTS), "composition-sharp", "gamma", Budget(1.0), 120, 10)
    weights = Weights(CONSTANTS.domain(120).records(data.X, data.a, data.y))
    found = draw_thetas(rule, weights, 3, np.random.default_rng(0))
    assert found.thetas.shape == (3, 10)
    assert rule.plan.propensity is not None
    assert len({tuple(theta) for theta in found.thetas}) == 3


def test_families_that_do_not_apply_say_why():
    kernel = StudyScheme(program="mmd", settings={"ridge": 10.0}, paper={"cap": 2.0})
    no_floor = Constants(covariate_bound=1, outcome_bound=1)
    found = plan_rule(Rule(kernel, no_floor), "sharp", "gamma", Budget(1.0), 100, 2)
    assert isinstance(found, Refused)
    assert "arm" in found.reason
    kept = plan_rule(Rule(kernel, CONSTANTS), "paper", "gamma", Budget(1.0), 100, 2)
    assert kept.note == "neighbors keep their treatment"
    with pytest.raises(DeclarationError, match="family"):
        plan_rule(Rule(IPW, CONSTANTS), "best", "gamma", Budget(1.0), 50, 2)


def test_the_command_writes_a_table_and_figures_and_runs_a_cell_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = declared().model_dump(mode="json")
    small = {**text, "replicates": 1, "scenarios": ["linear"], "n_test": 100, "draws": 1, "tuning": None}
    small |= {"epsilons": [0.5], "noises": ["gamma"]}
    (tmp_path / "design.toml").write_text(_toml(small))
    result = command("experiment", "simulation", "--design", "design.toml", "--output-dir", "out")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "out" / "simulation"
    for text in (result.output, (folder / "summary.md").read_text()):
        assert "Public constants in force" in text
        assert "without privacy" in text
    assert {path.name for path in folder.iterdir()} >= {
        "results.parquet",
        "simulation-linear.svg",
        "simulation-linear.png",
    }
    words = ["experiment", "simulation", "--design", "design.toml", "--cell", "scenario=linear,replicate=0"]
    alone = json.loads(command(*words).stdout, parse_constant=_refused)
    assert [row["epsilon"] for row in alone if row["family"] == PLAIN] == [None] * len(small["schemes"])
    import pandas as pd

    table = pd.read_parquet(folder / "results.parquet")
    assert [row["scheme"] for row in alone] == table["scheme"].tolist()
    accuracies = [row.get("accuracy") for row in alone if row["status"] == "done"]
    assert accuracies == table[table["status"] == "done"]["accuracy"].tolist()
    result = command("experiment", "simulation")
    assert result.exit_code == 2
    assert "--quick" in result.stderr
    # the whole design is one that can be asked for
    result = command("experiment", "simulation", "--full", "--cell", "none")
    assert "the first is 'scenario=linear,replicate=0'" in result.stderr
    result = command("experiment", "simulation", "--full", "--data", "file.gz")
    assert "simulation reads no file" in result.stderr


def _refused(name):
    raise AssertionError(f"{name} is not JSON")


def _toml(plain):
    lines, tables = [], []
    for name, value in plain.items():
        if isinstance(value, dict):
            tables.append((name, value))
        elif value is not None:
            lines.append(f"{name} = {json.dumps(value)}")
    for name, value in tables:
        if name in ("schemes", "methods"):
            for scheme, inner in value.items():
                lines += [f'[{name}."{scheme}"]', *(f"{k} = {_inline(v)}" for k, v in inner.items())]
        else:
            lines += [f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in value.items() if v is not None)]
    return "\n".join(lines)


def _inline(value):
    if isinstance(value, dict):
        inner = ", ".join(
            f"{k} = {'inf' if v == float('inf') or v is None else json.dumps(v)}" for k, v in value.items()
        )
        return "{ " + inner + " }"
    return json.dumps(value)


def test_a_cell_needs_the_settings_of_its_scenario_alone():
    design, study = declared(), SimulationStudy()
    cell = cells_of(study, design)[-1]
    needed = list(study.needs(design, cell))
    assert len(needed) * len(design.scenarios) == len(list(study.parts(design)))
    assert {part[0] for part in needed} == {"nonlinear"}


def test_the_progress_bar_starts_anew_with_every_stage():
    from rich.progress import Progress

    bar = Progress(disable=True)
    task = bar.add_task("", total=None)
    shown = stages(bar)
    shown("settings tuned", 3, 4)
    assert bar.tasks[task].description == "3 of 4 settings tuned"
    assert bar.tasks[task].total == 4
    shown("settings tuned", 4, 4)
    shown("cells", 0, 9)
    assert (bar.tasks[task].completed, bar.tasks[task].total) == (0, 9)
    assert not bar.tasks[task].finished


def test_rules_are_judged_as_they_would_be_applied():
    """Beside an intercept the shrinking of a record matters: the judge must shrink as a release does."""
    sample = simulate("linear", 400, rng=3)
    test = sample.dataset
    constants = Constants(covariate_bound=1.2, outcome_bound=2.0, intercept=1.0)
    domain, theta = constants.domain(400), np.array([0.5, *test.X[0]])
    treated = constants.second_stage().resolve(domain).effect(theta, domain, test.X) > 0
    assert Judge(sample, constants)(theta[None])["accuracy"] == np.mean(treated == sample.optimal_rule)
    unshrunk = np.column_stack([np.ones(400), test.X]) @ theta > 0
    assert np.mean(unshrunk != treated) > 0.02


def test_the_line_without_privacy_is_tuned_without_noise():
    """Noise asks for a large ridge; where weights matter, the fit without noise must not inherit it."""
    rng = np.random.default_rng(0)
    strength = Strength(mean=3.0, main=2.0, share=1.0, confounding=1.0, noise=0.5)
    sample, test = strength.draw(600, rng), strength.draw(2000, rng)
    centered = Constants(covariate_bound=1.64, intercept=1.0, outcome_bound=3.5, outcome_center=3.0)
    options = [{"ridge": 3.0}, {"ridge": 0.001, "trim": 6.0}]
    design = declared().model_copy(
        update={
            "schemes": {
                "IPW": StudyScheme(program="ipw_logistic", settings={"ridge": 3.0}, paper={"radius": 1.0})
            },
            "families": ["sharp"],
            "epsilons": [0.5],
            "noises": ["gamma"],
            "constants": centered,
            "tuning": Tuning(bootstraps=4, candidates={"IPW": options}),
        }
    )
    assert ("a", "IPW", PLAIN) in places(design, ["a"])
    declared_choice = {"settings": {}, "constants": {}}
    choices = {"a/IPW/sharp": declared_choice, f"a/IPW/{PLAIN}": choose(design, sample, "IPW", PLAIN)}
    assert choices[f"a/IPW/{PLAIN}"]["settings"] == options[1]
    cell = cells_of(SimulationStudy(), declared())[0]
    rows = all_rows(design, "a", sample, test, cell, choices)
    (plain,) = (row for row in rows if row["family"] == PLAIN)
    large = {**choices, f"a/IPW/{PLAIN}": declared_choice}
    (before,) = (row for row in all_rows(design, "a", sample, test, cell, large) if row["family"] == PLAIN)
    assert plain["accuracy"] > before["accuracy"] + 0.05
    assert plain["effective_share"] < 0.9 < before["effective_share"]


def test_every_fit_states_the_effective_sample_size(quick):
    fits = quick[(quick["status"] == "done") & ~quick["family"].isin(["constant rule", "pipeline"])]
    assert set(fits["family"]) == {*declared().families, PLAIN}
    assert fits["effective_share"].notna().all()


def test_constants_in_force_are_listed_in_units_of_theta_with_the_split(quick):
    design = two_replicates()
    study, tuned = SimulationStudy(), {"covariate_bound": 0.5, "outcome_bound": 1.0, "theta_radius": 1.5}
    as_declared = {"settings": {}, "constants": {}}
    shared = {part_label(part): as_declared for part in study.parts(design)}
    (listing,) = study.listings(design, quick, shared)
    assert "outcome per unit of the covariates" in listing.title
    lines = {tuple(line[:3]): dict(zip(listing.headers, line, strict=True)) for line in listing.lines}
    told = {family: lines["all", "IPW", family] for family in design.families}
    assert (told["paper"]["radius of Theta"], told["sharp"]["radius of Theta"]) == ("4", "2")  # units of M'/M
    assert (told["saturating"]["radius of Theta"], told["saturating"]["slope of the loss"]) == ("none", "1.5")
    assert lines["all", "IPW", "paper"]["split"] == "0.5"
    norms = {line[2]: line[listing.headers.index("norm of Theta")] for line in listing.lines}
    assert {family for family, norm in norms.items() if norm == "l1"} == {
        "paper",
        "paper-corrected",
        "composition-printed",
    }
    assert lines["all", "IPW", "sharp"]["split"] == "0.97 to 0.98"
    assert lines["all", "w = 1", "composition-sharp"]["split"] == "refused"
    shared["linear/IPW/sharp"] = {"settings": {"ridge": 7.0}, "constants": tuned}
    (listing,) = study.listings(design, quick, shared)
    lines = {tuple(line[:3]): dict(zip(listing.headers, line, strict=True)) for line in listing.lines}
    found = lines["linear", "IPW", "sharp"]
    assert (found["M"], found["M'"], found["radius of Theta"]) == ("0.5", "1", "3")
    assert found["settings"].startswith("ridge 7")
    assert lines["tree", "IPW", "sharp"]["radius of Theta"] == "2"
