"""Shorter searches for the default tests: what they look for shows long before a search ends."""

from __future__ import annotations

import pytest

from dp2erm_cvx.audit.density import ascent


@pytest.fixture
def short_ascents(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the evaluations of every ascent, but in slow tests."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(ascent, "_EVALUATIONS", ascent._EVALUATIONS // 4)
