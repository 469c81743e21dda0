"""``dp2erm bounds``: a table of bounds and noise, refusals with their reason, and curves."""

from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx import Domain, PrivateTwoStageERM
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.paper import paper_ipw_logistic
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.program import registry
from dp2erm_cvx.report.tables import PRINTED, SHARP, UNIVERSAL, USABLE, against_n, against_ridge
from tests.command_line import done, facts, refused, run, sets, shown, study_of
from tests.helpers import logistic_propensity

IPW = ["bounds", "--program", "ipw_logistic", *sets("ridge=0.1", "radius=1", "covariate_bound=1")]
SCALED = ["bounds", "--program", "paper_entropy_balancing"]
SCALED += sets("ridge=1", "radius=1", "covariate_bound=1", "arm_floor=100")
MMD = ["bounds", "--program", "mmd", *sets("covariate_bound=1")]
FLOOR = sets("arm_floor=50")
HARD = ["bounds", "--program", "entropy_balancing_hard", *sets("covariate_bound=1")]
FIRST = ipw_logistic(ridge=0.1, radius=1.0)


def table(*words):
    return {row["family"]: row for row in facts(*words)}


def test_reference_values_of_the_three_families():
    rows = table(*IPW, "--n", "400")
    assert rows[PRINTED]["V"] == pytest.approx(2289, rel=1e-3)
    assert rows[UNIVERSAL]["V"] == pytest.approx(805, rel=1e-3)
    assert rows[USABLE]["V"] == pytest.approx(rows[UNIVERSAL]["V"])
    assert rows[SHARP]["V"] == pytest.approx(8.7, rel=5e-3)
    assert rows[SHARP]["ratio"] == 1.0
    assert rows[PRINTED]["ratio"] == pytest.approx(rows[PRINTED]["V"] / rows[SHARP]["V"])
    assert rows[PRINTED]["W2"] == paper_ipw_logistic(400, 1.0, 0.1, 1.0).W2
    text = run(*IPW, "--n", "400", env={"COLUMNS": "80"}).stdout
    assert all(figure in text for figure in ("2,289", "805.4", "8.68"))
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    scaled = table(*SCALED)  # rows of their own scale have a smaller bound than the paper's
    assert scaled[SHARP]["V"] < scaled[USABLE]["V"]
    assert "Theorem 4" in scaled[SHARP]["theorem"]


def test_noise_follows_the_formulas_of_each_family():
    rows = table(*IPW, "--n", "400", "--epsilon", "2")
    # unit gradient radius and Hessian trace: 1/beta = 2 W1/epsilon and gamma = 2 W2/(n epsilon)
    assert rows[PRINTED]["scale"] == pytest.approx(rows[PRINTED]["W1"])
    assert rows[PRINTED]["gamma"] == pytest.approx(rows[PRINTED]["W2"] / 400)
    assert rows[SHARP]["scale"] > rows[SHARP]["V"] / 2
    gaussian = table(*IPW, "--n", "400", "--epsilon", "2", "--delta", "1e-6")
    assert gaussian[SHARP]["scale"] > rows[SHARP]["scale"]
    plan = PrivateTwoStageERM(Domain(1.0, 3.0), Budget(1.0), FIRST, "arm_means").plan(500, 1)
    row = table(*IPW, "--second-stage", "arm_means", *sets("outcome_bound=3"), "--n", "500")[SHARP]
    # the estimator counts the error of its arithmetic on top, half a percent of epsilon
    assert row["scale"] == pytest.approx(plan.main.calibration.scale, rel=1e-2)
    assert row["gamma"] == pytest.approx(plan.main.calibration.gamma, rel=1e-2)
    assert row["scale"] < plan.main.calibration.scale


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("words", "family", "reason"),
    [
        ([*IPW, *sets("trim=4")], USABLE, "untrimmed"),
        ([*MMD, *FLOOR], USABLE, "0.7205"),
        (MMD, SHARP, "arm_floor"),
        ([*MMD, *FLOOR, *sets("cap=1.1")], SHARP, "larger cap"),
        (HARD, UNIVERSAL, "no stab"),
    ],
)
def test_refusals_come_with_their_reason(words, family, reason):
    row = table(*words)[family]
    assert row["V"] is None
    assert reason in row["refusal"]
    assert reason in shown(*words)


def test_what_is_derived_is_called_sharp_where_an_author_states_more():
    file = str(Path(__file__).parents[1] / "plugins" / "robust.py")
    rows = table("bounds", "--program", file, "--n", "100", *sets("covariate_bound=1"))
    assert "stated" not in rows
    assert rows[SHARP]["V"] < rows[UNIVERSAL]["V"]
    assert rows[SHARP]["scale"] > rows[SHARP]["V"] / 2


@pytest.mark.slow
def test_curves_agree_with_the_bounds():
    universe = Universe(Domain(1.0, 1.0), 400, 2)
    V = {family: V for family, (_, V) in against_n(FIRST, universe, points=3).items()}
    assert V[SHARP][1] == logistic_propensity(10_000, 1.0, 0.1, radius=1.0).V
    assert V[USABLE][0] == pytest.approx(min(V[PRINTED][0], V[UNIVERSAL][0]))
    x, ridged = against_ridge(FIRST, universe, points=3)[SHARP]
    assert x[1] == pytest.approx(0.1)
    assert np.all(np.diff(ridged) < 0)
    assert against_ridge(registry.build(registry.first_stages(), "uniform"), universe) == {}


@pytest.mark.slow
def test_the_same_command_draws_the_same_picture(tmp_path):
    pictures = [tmp_path / name for name in ("a.svg", "b.svg")]
    for picture in pictures:
        done("bounds", "--program", "uniform", *sets("covariate_bound=1"), "--plot", picture)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_a_study_says_which_first_stage_and_which_loss_are_bounded(folder):
    asked = (
        '[[two_stage]]\nfirst_stage = { name = "ipw_logistic", ridge = 0.5 }\nsecond_stage = '
        '"arm_means"\n'
    )
    Path("study.toml").write_text(study_of(asked))
    own = table("bounds", "--study", "study.toml", "--n", "200")
    named = [
        "bounds",
        "--study",
        "domain.toml",
        "--program",
        "ipw_logistic",
        "--second-stage",
        "arm_means",
    ]
    assert own == table(*named, *sets("ridge=0.5"), "--n", "200")
    wider = table(
        "bounds", "--study", "study.toml", "--n", "200", *sets("two_stage.first_stage.ridge=0.2")
    )
    assert wider[SHARP]["V"] > own[SHARP]["V"]
    assert "asks 2 two-stage questions (one, two): give --program" in refused(
        *("bounds", "--study", two_questions(asked))
    )
    assert "--program is missing" in refused("bounds", "--study", "effect.toml")


def two_questions(asked):
    named = (
        asked.replace("[[two_stage]]", f'[[two_stage]]\nname = "{name}"') for name in ("one", "two")
    )
    Path("both.toml").write_text(study_of("".join(named)))
    return "both.toml"


def test_a_name_of_the_domain_is_put_over_the_file_and_any_other_is_the_programs(folder):
    words = ["bounds", "--study", "domain.toml", "--program", "ipw_logistic", "--n", "400"]
    plain = table(*words, *sets("ridge=0.1"))
    assert table(*words, *sets("program.ridge=0.1")) == plain
    assert table(*words, *sets("ridge=0.1", "covariate_bound=1.5"))[SHARP]["V"] < plain[SHARP]["V"]
    assert "ipw_logistic has no setting 'ridg'" in refused(*words, *sets("ridg=0.1"))
    assert "must be NAME=VALUE or program.NAME=VALUE" in refused(*words, *sets("other.ridge=0.1"))
