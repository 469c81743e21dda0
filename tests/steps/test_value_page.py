"""The page about the value of the rule: its code runs, its table and its example hold."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from nhefs import FEATURES, TREATMENT_COST, effect_domain, schemes

from dp2erm_cvx.calibration.numbers import calibrate_value
from dp2erm_cvx.datasets import load_nhefs
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.registry import build, second_stages
from dp2erm_cvx.release.value import contrasts_from_cells
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.value import value_cells, value_contrasts
from dp2erm_cvx.universe import Universe
from tests.steps.value_study import FIRST_STAGES, REPLICATES, SETTINGS, study

PAGE = (Path(__file__).parents[2] / "docs" / "after_release.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ((?:linear|nonlinear|tree) .*) \|$", PAGE, flags=re.MULTILINE)
BY_NAME = {(s[0], s[1], f"{s[2]:g}"): s for s in SETTINGS}


def test_every_setting_has_a_row():
    assert len(ROWS) == len(SETTINGS) * len(FIRST_STAGES) * len(REPLICATES)


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=() if k % 5 == 0 else pytest.mark.slow) for k, row in enumerate(ROWS)]
)
def test_table(row):
    scenario, share, center, first_stage, n, *stated = [cell.strip("` ") for cell in row.split("|")]
    found = study(BY_NAME[scenario, share, center], first_stage, int(n), REPLICATES[int(n)])
    assert [float(cell) for cell in stated] == pytest.approx(found, rel=0.05, abs=0.015)


def test_nhefs_example():
    data = load_nhefs()
    domain = replace(effect_domain(), treatment_cost=TREATMENT_COST, outcome_center=1.0)
    records = domain.records(data.X, data.a, data.y)
    first = next(scheme.program for scheme in schemes() if scheme.label == "entropy").resolve(domain)
    weights = solve(first.instance(records)).value
    least = build(
        second_stages(), "itr", features=FEATURES, features_bound=math.sqrt(2), theta_set=L2Ball(5.0)
    )
    second = least.resolve(domain)
    theta = solve(second.instance(records, weights, gamma=1e-3)).value
    chosen = (second.effect(theta, domain, data.X) > 0).astype(int)
    bound, n, largest = first.stability(Universe(domain, len(data.a), 2)), len(data.a), domain.outcome_bound
    found = [weights[records.a == 1].sum() / n, value_contrasts(records, weights, chosen)[0]]
    cells = value_cells(records, weights, chosen)
    found.append(contrasts_from_cells(cells, largest, 1e-9)[0][0])
    found.append(math.sqrt(2) * calibrate_value(bound, largest, n, 1.0, statistic="contrasts").scale)
    scale = calibrate_value(bound, largest, n, 1.0).scale
    found.append(contrasts_from_cells(cells, largest, scale)[1][0])
    assert found == pytest.approx([0.30, 1.23, -0.04, 0.28, 0.85], abs=0.006)
    for number in ("0.30", "1.23", "-0.04"):
        assert number in PAGE


def test_code_runs(capsys):
    source = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)[0]
    exec(compile(source, "after_release.md", "exec"), {})
    assert capsys.readouterr().out.count("noise in each number") == 6
