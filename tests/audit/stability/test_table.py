"""From generic starts, the audit meets what long searches met, and reports what is wrong."""

from __future__ import annotations

import pytest

from dp2erm_cvx.audit import SearchPlan
from tests.audit.stability import reference

#: Neighbors per row: 32 rows in about five minutes.
NEIGHBORS = 80_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [*reference.worst_cases(), *reference.wrong_bounds()], ids=lambda s: s.name
)
def test_the_outcome_is_the_known_one(setting):
    outcome = reference.reference_audit(setting, SearchPlan(NEIGHBORS, seed=2602))
    print(f"\n{setting.name}: met {outcome.met:.4g}, known {setting.known:g}, bound {outcome.bound:.4g}")
    assert outcome.as_expected
    assert outcome.audit.check.disagreement <= 1.0
    assert outcome.audit.check.unsolved == 0


def test_a_few_are_met_quickly():
    settings = [reference.ipw(400, 1, float("inf"), 2.98), reference.wrong_bounds()[1]]
    for setting in settings:
        outcome = reference.reference_audit(setting, SearchPlan(4000))
        assert outcome.as_expected
        assert outcome.met <= outcome.bound


def test_a_search_that_meets_too_little_or_reports_nothing_is_not_as_expected():
    setting = reference.ipw(400, 1, float("inf"), 3.4)
    outcome = reference.reference_audit(setting, SearchPlan(300))
    assert not outcome.as_expected
