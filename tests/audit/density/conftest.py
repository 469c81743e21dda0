"""Shorter searches for the default tests: what they look for shows long before a search ends."""

from __future__ import annotations

import pytest

from dp2erm_cvx.audit import density, release_laws


@pytest.fixture(autouse=True)
def short_ascents(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ascent of a tenth of the evaluations, and few starts of later steps, but in slow tests."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(density, "_EVALUATIONS", 10)
        monkeypatch.setattr(density, "ASCENTS", 1)
        monkeypatch.setattr(release_laws, "_FOLLOWING", 2)
