"""What a study file can say: programs in files, covariates, ``--set`` for every name, and one
answer.
"""

import json
from pathlib import Path

import pandas as pd
import pytest

from dp2erm_cvx import Domain, PrivateTwoStageERM
from dp2erm_cvx.conformance import program_template
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import registry
from dp2erm_cvx.program.files import program_of_file
from dp2erm_cvx.program.kernels import PublicSample
from dp2erm_cvx.study import read_study
from tests.command_line import COLUMNS, done, facts, refused, run

RANGES = "[ranges]\nx1 = [-1, 1]\nx2 = [-1, 1]\nx3 = [-1, 1]\n"
HEAD = 'outcome_bound = 8.0\ncovariate_bound = 2.0\ntreatment = "a"\noutcome_column = "y"\n'
BUDGET = "[budget]\nepsilon = 1.0\n"
EFFECT = '[[effect]]\nname = "average"\nresidual_scale = 1.0\n'
FILES = """[[two_stage]]
first_stage = { name = "programs/weights.py", ridge = 0.3 }
second_stage = "programs/loss.py"
"""


def frame():
    data = simulate("linear", 200, rng=0).dataset
    return pd.DataFrame(data.X[:, :3], columns=COLUMNS).assign(a=data.a, y=data.y)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Data, two programs and a study beside them, and another folder to be in."""
    home = tmp_path / "home"
    (home / "programs").mkdir(parents=True)
    frame().to_csv(home / "data.csv", index=False)
    weights = program_template("my_weights", "exponential")
    (home / "programs" / "weights.py").write_text(weights, encoding="utf-8")
    (home / "programs" / "loss.py").write_text(
        program_template("my_loss", "loss"), encoding="utf-8"
    )
    (home / "study.toml").write_text(HEAD + RANGES + BUDGET + EFFECT)
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    return home


def asked(folder, text):
    (folder / "study.toml").write_text(text)
    return ["run", folder / "study.toml", folder / "data.csv", "--yes"]


def test_programs_in_files_are_found_beside_the_study_and_in_its_digest(folder):
    words = asked(folder, HEAD + RANGES + BUDGET + FILES)
    release = facts(*words, "--seed", "3", "--output", "r.json")
    assert release["declared"]["first"]["settings"] == {"ridge": 0.3, "radius": 2.0}
    assert release["declared"]["second"]["name"] == "my_loss"
    assert str(folder) not in Path("r.json").read_text()
    first = program_of_file(folder / "programs" / "weights.py", None)(ridge=0.3)
    second = program_of_file(folder / "programs" / "loss.py", None)()
    study = read_study(folder / "study.toml")
    model = PrivateTwoStageERM(
        study.domain, study.budget, first_stage=first, second_stage=second, seed=3
    )
    table = pd.read_csv(folder / "data.csv", float_precision="round_trip")
    assert list(model.fit(table, table["a"], table["y"]).release_.theta) == release["theta"]
    # the study names the files of its programs, whoever verifies with it
    assert "Verified" in done("verify", "r.json", "--study", folder / "study.toml").stdout
    # what is not installed is unknown once the command has ended
    assert "my_weights" not in registry.available()
    assert release["study"] == study.digest
    file = folder / "programs" / "loss.py"
    file.write_text(file.read_text(encoding="utf-8") + "\n# a remark\n", encoding="utf-8")
    assert read_study(folder / "study.toml").digest != study.digest


@pytest.mark.slow
def test_one_file_serves_two_questions_and_one_of_several_programs_is_chosen(folder):
    weights = (folder / "programs" / "weights.py").read_text(encoding="utf-8")
    other = weights[weights.index("@scheme") :].replace("my_weights", "another")
    (folder / "programs" / "weights.py").write_text(f"{weights}\n\n{other}", encoding="utf-8")
    assert "choose one of" in refused(*asked(folder, HEAD + RANGES + BUDGET + FILES))
    chosen = FILES.replace("weights.py", "weights.py:another")
    twice = chosen.replace("[[two_stage]]", '[[two_stage]]\nname = "one"')
    twice += chosen.replace("[[two_stage]]", '[[two_stage]]\nname = "two"')
    both = facts(*asked(folder, HEAD + RANGES + BUDGET + twice), "--seed", "1")
    assert {one["declared"]["first"]["name"] for one in both.values()} == {"another"}


def test_a_public_target_is_a_file_beside_the_study_and_in_its_digest(folder):
    rows = frame()[list(COLUMNS)].head(20) / 2
    rows.to_csv(folder / "target.csv", index=False)
    matching = (
        '[[two_stage]]\nsecond_stage = "arm_means"\n'
        'first_stage = { name = "kernel_mean_matching", ridge = 1, target = "target.csv" }\n'
    )
    release = facts(*asked(folder, HEAD + RANGES + BUDGET + matching), "--seed", "1")
    assert PublicSample(rows).digest in json.dumps(release["declared"]["first"])
    digest = read_study(folder / "study.toml").digest
    (rows / 2).to_csv(folder / "target.csv", index=False)
    assert read_study(folder / "study.toml").digest != digest
    bare = HEAD + BUDGET + matching
    assert "name its columns by covariates" in refused(*asked(folder, bare))
    named = 'covariates = ["x1", "x2", "x3"]\n' + bare
    assert facts(*asked(folder, named), "--seed", "1", "--force")["columns"] == ["x1", "x2", "x3"]


@pytest.mark.parametrize("ranges", [RANGES, ""])
def test_covariates_are_a_choice_of_the_study_or_of_a_question(folder, ranges):
    chosen = 'covariates = ["x3", "x1"]\n'
    more = '[[rule]]\ncovariates = ["x2"]\noutcome_scale = 1.0\n'
    words = asked(folder, chosen + HEAD + ranges + BUDGET + EFFECT + more)
    released = facts(*words, "--seed", "2")
    assert released["average"]["columns"] == ["x3", "x1"]
    assert released["rule"]["columns"] == ["x2"]
    planned = facts("run", folder / "study.toml", "--plan", "200")
    for name in released:
        spent = {step["step"]: step["epsilon"] for step in released[name]["steps"]}
        assert {step["step"]: step["epsilon"] for step in planned[name]["steps"]} == spent
    assert Domain.from_dict(released["rule"]["domain"]).columns == (("x2",) if ranges else None)
    assert ("no ranges are declared" in run(*words, "--force", "--seed", "2").stderr) is (
        ranges == ""
    )


def test_a_plan_without_covariates_is_refused_and_the_data_have_them_all_otherwise(folder):
    words = asked(folder, HEAD + BUDGET + EFFECT)
    assert facts(*words, "--seed", "1")["columns"] == ["x1", "x2", "x3"]
    told = refused(*words[:2], "--plan", "200")
    assert "average: no covariates are declared: add covariates, or ranges" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'covariates = ["x1", "x9"]\n',
            "covariates: 'x9' has no public range: declare it in [ranges]",
        ),
        ('covariates = ["x1", "x1"]\n', "covariates: 'x1' stands there twice"),
        ("covariates = []\n", "covariates = []: name at least one column"),
        ('covariates = "x1"\n', "covariates = 'x1': must be a list"),
    ],
)
def test_covariates_that_are_none(folder, text, told):
    assert told in refused(*asked(folder, text + HEAD + RANGES + BUDGET + EFFECT))


def test_what_belongs_to_columns_that_are_left_out_is_left_out_with_them(folder):
    text = (
        'covariates = ["x1"]\nlog = ["x2"]\n'
        + HEAD
        + "[missing]\nx2 = 0.5\ny = 0.0\n[center]\nx1 = 0.1\nx3 = 0.2\n"
        "[ranges]\nx1 = [-1, 1]\nx2 = [0.5, 1]\nx3 = [-1, 1]\n" + BUDGET + EFFECT
    )
    asked(folder, text)
    domain = read_study(folder / "study.toml").domain
    assert domain.columns == ("x1",)
    assert domain.codebook.missing == {"y": 0.0}
    assert domain.codebook.log == ()
    assert domain.center == {"x1": 0.1}


def test_a_change_reaches_every_name_and_fills_the_gaps_of_a_draft(folder):
    text = HEAD.replace("8.0", '"EDIT"') + RANGES + '[budget]\nepsilon = "EDIT"\n' + EFFECT + FILES
    words = asked(folder, text)
    assert 'outcome_bound still says "EDIT"' in refused(*words)
    changes = [
        "outcome_bound=8",
        "budget.epsilon=2",
        "ranges.x1=[-0.5, 0.5]",
        'ranges."x2"=[0, 1]',
        "treatment.treated=1",
        "treatment.control=0",
        "average.settings.propensity=0.5",
        "average.estimand=att",
        "two_stage.second_stage=itr",
        "two_stage.first_stage=ipw_private",
        "two_stage.first_stage.ridge=2.5",
        "csv.separator=;",
    ]
    study = read_study(folder / "study.toml", changes)
    assert study.budget.epsilon == 2
    assert study.domain.ranges == {"x1": (-0.5, 0.5), "x2": (0.0, 1.0), "x3": (-1.0, 1.0)}
    assert (study.domain.codebook.treatment.column, study.domain.codebook.treatment.treated) == (
        "a",
        "1",
    )
    effect, stages = study.questions
    assert effect.settings["settings"] == {"propensity": 0.5}
    assert effect.settings["estimand"] == "att"
    assert stages.settings["first_stage"].ridge == 2.5
    assert stages.settings["second_stage"] == "itr"
    assert study.layout.separator == ";"
    frame().to_csv(folder / "data.csv", index=False, sep=";")
    set_words = [word for change in changes for word in ("--set", change)]
    released = facts(*words, "--seed", "1", *set_words)
    assert {one["study"] for one in released.values()} == {study.digest}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ranges.x1.low=0", "x1 = [-1, 1] is no table"),
        ("budget=3", "budget = 3: must be a table [budget]"),
        ("avrage.level=0.9", "did you mean average"),
        ("outcome_bund=1", "did you mean outcome_bound"),
        ("average=3", "did you mean average"),
        ("outcome_bound", "must look like TABLE.NAME=VALUE"),
        ("ranges..x1=3", "must look like TABLE.NAME=VALUE"),
    ],
)
def test_a_change_that_names_nothing_is_refused(folder, change, told):
    assert told in refused(*asked(folder, HEAD + RANGES + BUDGET + EFFECT), "--set", change)


def test_one_question_is_answered_flat_and_into_a_file_that_is_named(folder):
    words = asked(folder, HEAD + RANGES + BUDGET + EFFECT)
    release = facts(*words, "--seed", "1", "--output", "effect.json")
    assert release == json.loads(Path("effect.json").read_bytes())
    assert not Path("releases").exists()
    assert "effect.json: exists" in refused(*words, "--output", "effect.json")
    assert facts("run", folder / "study.toml", "--plan", "200")["guarantee"]["epsilon"] == 1.0
    several = asked(folder, HEAD + RANGES + BUDGET + EFFECT + "[[rule]]\noutcome_scale = 1\n")
    assert "asks 2 questions: give --output-dir" in refused(*several, "--output", "r.json")
    assert [*facts(*several, "--seed", "1")] == ["average", "rule"]
    for used in ("study.toml", "data.csv"):
        told = refused(
            *asked(folder, HEAD + RANGES + BUDGET + EFFECT), "--force", "--output", folder / used
        )
        assert "is used by this command already" in told


@pytest.mark.slow
def test_balance_and_plots_are_of_every_question_and_not_private(folder):
    words = asked(
        folder, HEAD + RANGES + BUDGET + EFFECT + '[[two_stage]]\nsecond_stage = "arm_means"\n'
    )
    result = done(*words, "--balance", "--love-plot", "love.png", "--overlap-plot", "overlap.svg")
    assert result.stderr.count("SMD before") == 2
    assert "SMD before" not in result.stdout
    for name in (
        "love-average.png",
        "love-two_stage.png",
        "overlap-average.svg",
        "overlap-two_stage.svg",
    ):
        assert Path(name).stat().st_size > 0
        assert f"NOT PRIVATE: {name.split('-')[0]} plot written to {name}" in result.stderr
    assert "love-average.png: exists" in refused(
        *words, "--output-dir", "more", "--love-plot", "love.png"
    )
    assert "figures are .png" in refused(*words, "--output-dir", "more", "--love-plot", "love.txt")
    one = asked(folder, HEAD + RANGES + BUDGET + EFFECT)
    done(*one, "--output-dir", "more", "--love-plot", "alone.png")
    assert Path("alone.png").exists()


def test_notes_on_stderr_say_what_is_declared_in_vain(folder):
    words = asked(folder, HEAD + BUDGET + "delta = 1e-6\n" + EFFECT)
    told = run(*words).stderr
    assert "is pure; delta is not used" in told
    assert "no ranges are declared" in told
    seeded = run(*words, "--seed", "1", "--force").stderr
    assert "do not publish this release" in seeded


def test_a_program_that_raises_is_one_line_with_its_place(folder):
    (folder / "programs" / "loss.py").write_text("x = 1\n1 / 0\n", encoding="utf-8")
    told = refused(*asked(folder, HEAD + RANGES + BUDGET + FILES))
    assert "loss.py, line 2: ZeroDivisionError" in told
    (folder / "programs" / "loss.py").unlink()
    assert "programs/loss.py: cannot be read" in refused(
        *asked(folder, HEAD + RANGES + BUDGET + FILES)
    )
    with pytest.raises(DeclarationError, match="cannot be read"):
        read_study(folder / "study.toml")


@pytest.mark.slow
def test_features_are_chosen_by_name_with_and_without_ranges(folder):
    itr = '[[two_stage]]\nsecond_stage = { name = "itr", features = ["x3"] }\n'
    named = 'covariates = ["x2", "x3"]\n' + HEAD
    for ranges in (RANGES, ""):
        release = facts(*asked(folder, named + ranges + BUDGET + itr), "--seed", "1", "--force")
        assert release["parameters"][-1] == "x3"
