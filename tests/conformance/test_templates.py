"""Templates conform as they are, and as a basis of other right programs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dp2erm_cvx.conformance import TEMPLATES, CheckStatus, program_template, standard_records
from dp2erm_cvx.conformance.solutions import balance
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import solve
from dp2erm_cvx.universe import Universe
from tests.conformance.own_file import changed, outcomes_of, program_of, reports_of
from tests.conformance.planted import LEAST


@pytest.mark.parametrize("kind", TEMPLATES)
def test_templates_conform_as_they_are(kind, tmp_path):
    for report in reports_of(tmp_path / "mine.py", program_template("mine", kind), LEAST):
        assert report.passed, str(report)
        assert json.loads(json.dumps(report.to_dict())) == report.to_dict()
        assert report.program == "mine"
        assert report.kind == ("second stage" if kind == "loss" else kind)


def test_weights_of_the_wrong_sign_are_noted(tmp_path):
    for new, status in (
        ("cp.maximum(-s, 0)", CheckStatus.PASSED),
        ("cp.maximum(s, 0)", CheckStatus.NOTED),
    ):
        text = program_template("mine", "exponential").replace("cp.maximum(-s, 0)", new)
        cls = program_of(tmp_path / "mine.py", text)
        assert [found.status for found in outcomes_of(balance, cls)] == [status]


_ODDS = """    def weight_rows(self, records):
        return (1 - records.a)[:, None] * records.X

    def row_bound(self"""


def test_weights_that_depend_on_the_arm_are_expressible(tmp_path):
    """Odds weights for the effect on the treated: 1 for them, the odds exp(x'lam) for the controls."""
    text = changed(
        "exponential",
        ("log_weight = POSITIVE_PART", "log_weight = LogWeight()"),
        ("    def row_bound(self", _ODDS),
    )
    for report in reports_of(tmp_path / "mine.py", text, LEAST):
        assert report.passed, str(report)
    cls = program_of(tmp_path / "mine.py", text)
    assert issubclass(cls, FirstStage)
    records = standard_records(200)
    solution = solve(cls(ridge=0.05).instance(records))
    w, score = solution.value, records.X @ solution.point
    odds = np.where(records.a == 1, 1.0, np.exp(score))
    np.testing.assert_allclose(w, 200 * odds / odds.sum(), rtol=1e-9)
    assert "Theorem 3" in cls(ridge=0.05).stability(Universe(records.domain, 200, records.n_features)).theorem
