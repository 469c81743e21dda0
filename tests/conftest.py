"""Equal results of a test on every machine: its noise and its examples are those of its name."""

import gc
import math
import random
import zlib
from collections.abc import Callable, Generator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from dp2erm_cvx.diagnostics.look import Findings
from tests import readings

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("repeatable")
readings.share()
gc.freeze()
gc.set_threshold(100_000, 50, 50)  # a twelfth of the time of all tests went into looking for cycles


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark rows of tests as slow that say how many of them run by default.

    Which rows these are differs between tests, so that other tests show what is left out of one of
    them.
    """
    rows: dict[tuple[str, str], int] = {}
    for item in items:
        marker = item.get_closest_marker("one_row_in")
        if marker is None:
            continue
        name = getattr(item, "originalname", item.name)
        place = rows.setdefault((str(item.path), name), zlib.crc32(name.encode()))
        rows[str(item.path), name] += 1
        if place % marker.args[0]:
            item.add_marker(pytest.mark.slow)


try:
    from opendp import measurements
except ImportError:
    measurements = None

FRESH = random.SystemRandom


class Repeatable(random.Random):
    """In place of ``random.SystemRandom``: no two objects of one test draw the same."""

    seeds = random.Random("while tests are collected")

    def __init__(self, x: object = None) -> None:
        super().__init__(Repeatable.seeds.getrandbits(128))


class Confirmed:
    """A measurement of OpenDP: its privacy map, and the same law with the noise of the test."""

    def __init__(self, own: Any, draw: Callable[[list[Any]], Any]) -> None:
        self.map, self.draw = own.map, draw

    def __call__(self, values: list[Any]) -> Any:
        return self.draw(values)


def nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def make_laplace(domain: Any, metric: Any, scale: float, k: int | None = None) -> Confirmed:
    """Discrete Laplace noise as the difference of two geometric variables, on integers or a
    grid.
    """
    step = Fraction(2) ** (k or 0)

    def draw(values: list[Any]) -> list[Any]:
        source = random.SystemRandom()
        noise = [
            [math.floor(source.expovariate(float(step) / scale)) for _ in "ab"] for _ in values
        ]
        moved = [
            (round(Fraction(v) / step) + up - down) * step
            for v, (up, down) in zip(values, noise, strict=True)
        ]
        return [
            number if isinstance(v, int) else nearest(number)
            for v, number in zip(values, moved, strict=True)
        ]

    return Confirmed(MAKE["make_laplace"](domain, metric, scale, k=k), draw)


def make_noisy_max(*space: Any) -> Confirmed:
    """Permute-and-flip: in random order, each is accepted by its distance to the best."""

    def draw(scores: list[int]) -> int:
        source, order = random.SystemRandom(), list(range(len(scores)))
        source.shuffle(order)
        odds = [math.exp((score - max(scores)) / space[-1]) for score in scores]
        return next(place for place in order if source.random() < odds[place])

    return Confirmed(MAKE["make_noisy_max"](*space), draw)


OWN = (make_laplace, make_noisy_max) if measurements else ()
MAKE = {one.__name__: getattr(measurements, one.__name__) for one in OWN}


def draw_from(system: bool) -> None:
    """Noise of the operating system, or of the name of the test."""
    random.SystemRandom = FRESH if system else Repeatable  # type: ignore[misc, assignment]
    for one in OWN:
        setattr(measurements, one.__name__, MAKE[one.__name__] if system else one)


draw_from(system=False)

REFUSE = Findings.refuse


def refuse_commands_alone(self: Findings, consent: str) -> None:
    """Whatever a look finds, a fit in Python goes on: most data of tests hardly suit what they
    declare.
    """
    if consent == "--yes":
        REFUSE(self, consent)


Findings.refuse = refuse_commands_alone  # type: ignore[method-assign]  # of fits while tests are collected


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--noise", default="0", help="another word here is other noise in every test")


def pytest_runtest_setup(item: pytest.Item) -> None:
    readings.SHARED.start()
    Repeatable.seeds = random.Random(f"{item.config.getoption('noise')} {item.nodeid}")
    draw_from(system=item.get_closest_marker("fresh_noise") is not None)
    looks = item.get_closest_marker("looks") is not None
    Findings.refuse = REFUSE if looks else refuse_commands_alone  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
    """Give a fixture that several tests share noise of its own, whichever of them comes first."""
    outer = Repeatable.seeds
    if fixturedef.scope != "function":
        name = f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"
        Repeatable.seeds = random.Random(f"{request.config.getoption('noise')} {name}")
    try:
        return (yield)
    finally:
        Repeatable.seeds = outer
