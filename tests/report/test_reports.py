"""Objects that are data are told by reports that another folder registers."""

import pytest

from dp2erm_cvx.hooks import register, report_of


class Measured:
    """An object of data alone."""


class Weighed(Measured):
    """An object of a kind that is derived from it."""


class Unknown:
    """An object of a kind that nobody tells."""


def test_a_report_is_that_of_the_kind_or_of_the_one_it_is_derived_from() -> None:
    register(Measured, lambda shown: [f"one {type(shown).__name__}"])
    assert list(report_of(Measured())) == ["one Measured"]
    assert list(report_of(Weighed())) == ["one Weighed"]


def test_a_kind_without_a_report_is_named() -> None:
    with pytest.raises(
        LookupError, match=r"no report of a Unknown is registered: import dp2erm_cvx\.report"
    ):
        report_of(Unknown())
