"""Every registered program passes the suite."""

from __future__ import annotations

import json

import pytest

from dp2erm_cvx.conformance import CheckStatus, check_program, checks_of, parametrize
from dp2erm_cvx.program import Kind
from dp2erm_cvx.registry import first_stages, programs
from tests.conformance.planted import LEAST, derived, judged


@pytest.mark.parametrize("name", programs())
def test_every_registered_program_passes_the_checks_of_its_kind(name):
    cls = programs()[name]
    for check in checks_of(cls).values():
        outcome = judged(check, cls(**cls.examples[-1]), LEAST)
        assert outcome.status is not CheckStatus.FAILED, outcome


@parametrize(programs()["uniform"], search=LEAST)
def test_checks_are_items_of_pytest(program, check):
    check(program)


def test_an_item_fails_where_its_check_does():
    wrong = derived(programs()["ipw_logistic"], citation="")
    items = {item.id: item for item in parametrize(wrong, search=LEAST).args[1]}
    program, check = items["mine-statement"].values
    with pytest.raises(AssertionError, match="statement: state citation"):
        check(program)
    program, check = items["mine-kind"].values
    check(program)


@pytest.mark.slow
@pytest.mark.parametrize("name", programs())
def test_every_registered_program_conforms(name):
    for report in check_program(programs()[name]):
        assert report.passed, str(report)
        assert json.loads(json.dumps(report.to_dict())) == report.to_dict()


def test_the_kind_of_every_first_stage_is_one_with_a_theorem_where_it_is_private():
    for name, cls in first_stages().items():
        assert (cls.kind is Kind.DIRECT) == (not cls.relations), name
