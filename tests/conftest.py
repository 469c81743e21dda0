"""The same test does the same on every machine: its noise and its examples are those of its name."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("repeatable")

FRESH = random.SystemRandom


class Repeatable(random.Random):
    """In place of ``random.SystemRandom``: no two objects of one test draw the same."""

    seeds = random.Random("while tests are collected")

    def __init__(self, x: object = None) -> None:
        super().__init__(Repeatable.seeds.getrandbits(128))


random.SystemRandom = Repeatable  # type: ignore[misc, assignment]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--noise", default="0", help="another word here is other noise in every test")


def pytest_runtest_setup(item: pytest.Item) -> None:
    Repeatable.seeds = random.Random(f"{item.config.getoption('noise')} {item.nodeid}")
    fresh = item.get_closest_marker("fresh_noise")
    random.SystemRandom = Repeatable if fresh is None else FRESH  # type: ignore[misc, assignment]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
    """What several tests share has noise of its own, whichever of them comes first."""
    outer = Repeatable.seeds
    if fixturedef.scope != "function":
        name = f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"
        Repeatable.seeds = random.Random(f"{request.config.getoption('noise')} {name}")
    try:
        return (yield)
    finally:
        Repeatable.seeds = outer
