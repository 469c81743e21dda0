"""Shorter searches for the default tests: what they look for shows long before a search ends."""

from __future__ import annotations

import pytest

from dp2erm_cvx.audit import density


@pytest.fixture
def short_ascents(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the ascents, of a quarter of the evaluations each, but in slow tests."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(density, "_EVALUATIONS", density._EVALUATIONS // 4)
        monkeypatch.setattr(density, "ASCENTS", density.ASCENTS // 2)
