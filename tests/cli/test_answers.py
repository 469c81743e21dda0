"""Sixteen studies with committed plans and seeded numbers: those of the commands that once asked
the same.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx.conformance import program_template
from tests.command_line import COLUMNS, facts
from tests.rows import one_of

ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def files(folder):
    """Two programs, a public target and a table with a column of levels, beside the data."""
    for name, kind in (("weights", "exponential"), ("loss", "loss")):
        Path(f"{name}.py").write_text(program_template(f"my_{name}", kind), encoding="utf-8")
    frame = pd.read_csv("data.csv")
    (frame[list(COLUMNS)].head(20) / 2).to_csv("target.csv", index=False)
    sexes = ["F" if number % 3 else "M" for number in range(len(frame))]
    frame.assign(sex=sexes).to_csv("sexes.csv", index=False)


@pytest.mark.one_row_in(18)
@pytest.mark.parametrize("name", one_of(ANSWERS, 2))
def test_a_study_has_the_plan_and_the_numbers_that_it_had(name):
    known = ANSWERS[name]
    Path("study.toml").write_text(known["study"], encoding="utf-8")
    plan = facts("run", "study.toml", "--plan", "200")
    steps = [[step[fact] for fact in ("epsilon", "delta", "scale")] for step in plan["steps"]]
    assert [step["step"] for step in plan["steps"]] == [step for step, *_ in known["plan"]["steps"]]
    np.testing.assert_allclose(steps, [law for _, *law in known["plan"]["steps"]], rtol=1e-9)
    assert plan["predicted"] == pytest.approx(known["plan"]["predicted"], rel=1e-9)
    release = facts("run", "study.toml", known["data"], "--seed", "1", "--yes")
    # a processor may round the sums of solvers otherwise
    np.testing.assert_allclose(
        release.get("released") or release["theta"], known["numbers"], rtol=1e-7
    )
