"""Shorter searches for the default tests: what they look for shows long before a search ends."""

from typing import Any

import pytest

from dp2erm_cvx.audit import density, laws

#: Starts of an ascent from either dataset.
MOST = 16


@pytest.fixture(autouse=True)
def short_ascents(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ascent of a tenth of the evaluations, and few starts, but in tests all of whose rows are
    slow.
    """
    starts = laws.ReleaseLaw.starts

    def few(*arguments: Any) -> list[Any]:
        points = starts(*arguments)
        return points[:: 1 + len(points) // MOST]

    marks = {mark.name for mark in getattr(request.function, "pytestmark", [])}
    if "slow" not in marks:
        monkeypatch.setattr(laws.ReleaseLaw, "starts", few)
        monkeypatch.setattr(density, "_EVALUATIONS", 10)
        monkeypatch.setattr(density, "ASCENTS", 1)
        monkeypatch.setattr(laws, "_FOLLOWING", 2)
