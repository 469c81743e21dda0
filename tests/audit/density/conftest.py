"""Shorter searches for the default tests: what they look for shows long before a search ends."""

from __future__ import annotations

import pytest

from dp2erm_cvx.audit.density import ascent


@pytest.fixture
def short_ascents(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the ascents, of a quarter of the evaluations each, but in slow tests."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(ascent, "_EVALUATIONS", ascent._EVALUATIONS // 4)
        monkeypatch.setattr(ascent, "ASCENTS", ascent.ASCENTS // 2)
