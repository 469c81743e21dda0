"""What an author's function of one record may reach: numbers and pure functions, never what may
hold data.
"""

import argparse
import dataclasses
import enum
import functools
import itertools
import math
import os
import types
from collections import namedtuple

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import BalanceFunctions, Ball, Bound, scheme, second_stage
from dp2erm_cvx.program.reach import Called, reached
from tests.program import other_module
from tests.program.other_module import SCALE, loaded, looked_up, of_environment, scaled

NUMBER = 0.83
PAIR = (0.83, (2.0, "wards"))
TABLE = {"scale": 0.83}
SEEN: list[float] = []
ARRAY = np.array([0.83])
FRAME = pd.DataFrame({"scale": [0.83]})
SPACE = types.SimpleNamespace(scale=0.83)
NAMED = namedtuple("NAMED", "scale")(0.83)
COUNT = itertools.count()
STREAM = (number for number in (0.83, 0.84))
FROZEN = frozenset({0.83})
VIEW = memoryview(b"083")
SAVED = functools.lru_cache(lambda: 0.83)
BOUND_GET = TABLE.get
RANDOM = np.random.default_rng(0)


class Kept:
    """Numbers of a class, of its instances, and a property that is computed once."""

    scale = 0.83

    def __init__(self):
        self.own = 0.83

    @functools.cached_property
    def saved(self):
        return self.own

    @staticmethod
    def fixed(x):
        return x * Kept.scale

    def of_one(self, x, a, y):
        return x * self.own

    def __call__(self, x, a, y):
        return x * self.own


class Level(enum.Enum):
    HIGH = 0.83


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 0.83


class Heavy(float):
    """A number that holds more than itself."""


KEPT, ONE, HEAVY = Kept(), Frozen(), Heavy(0.83)


def with_attribute(x):
    return x * with_attribute.scale


with_attribute.scale = 0.83


def counted(x):
    return x


counted.count = 0.83


def decorated(function):
    @functools.wraps(function)
    def around(*arguments):
        return function(*arguments)

    return around


@decorated
def around_a_table(x, a, y):
    return x * TABLE["scale"]


@decorated
def around_a_number(x, a, y):
    return x * NUMBER


def writes_global(x, a, y):
    global WRITTEN
    WRITTEN = x
    return x


def remembers():
    before = 0.0

    def own(x, a, y):
        nonlocal before
        before = max(before, abs(y))
        return x / before

    return own


def imports(x, a, y):
    import statistics

    return x * statistics.mean(x)


def writes_attribute(x, a, y):
    scaled.last = y
    return x


def makes_a_class(x, a, y):
    class Inside:
        scale = 0.83

    return x


async def asynchronous(x, a, y):
    return x


def refers_to_itself_by_another_name(x, a, y):
    alias = counted
    return alias.count * x


def closes_over_array():
    cuts = np.quantile([0.1, 0.9], 0.83)
    table = np.array([cuts])

    def own(x, a, y):
        return x * table

    return own


def nested(x, a, y):
    def inside():
        return [TABLE["scale"] * part for part in x]

    return inside()


def in_an_exception(x, a, y):
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__.tb_frame.f_back.f_globals["SCALE"]


REFUSED = {
    "a namespace": lambda x, a, y: x * SPACE.scale,
    "a dict": lambda x, a, y: x * TABLE["scale"],
    "a class attribute": lambda x, a, y: x * Kept.scale,
    "a helper that reaches a dict": lambda x, a, y: looked_up(x),
    "the environment": lambda x, a, y: x * float(os.environ["SCALE"]),
    "an attribute of a function": lambda x, a, y: x * with_attribute.scale,
    "a nested lambda": lambda x, a, y: (lambda: x * TABLE["scale"])(),
    "a helper with an attribute": lambda x, a, y: with_attribute(x),
    "a nested function": nested,
    "a list": lambda x, a, y: SEEN.append(y) or x,
    "an array": lambda x, a, y: x * ARRAY,
    "a table": lambda x, a, y: x * FRAME.scale[0],
    "a named tuple": lambda x, a, y: x * NAMED.scale,
    "a counter": lambda x, a, y: x * next(COUNT),
    "a generator": lambda x, a, y: x * next(STREAM),
    "a frozen set": lambda x, a, y: x * min(FROZEN),
    "a view of memory": lambda x, a, y: x * VIEW[0],
    "a cached function": lambda x, a, y: x * SAVED(),
    "a method of a dict": lambda x, a, y: x * BOUND_GET("scale"),
    "a generator of random numbers": lambda x, a, y: x * RANDOM.random(),
    "an instance": lambda x, a, y: x * KEPT.own,
    "a cached property": lambda x, a, y: x * KEPT.saved,
    "a static method": lambda x, a, y: Kept.fixed(x),
    "an enumeration": lambda x, a, y: x * Level.HIGH.value,
    "a frozen dataclass": lambda x, a, y: x * ONE.scale,
    "a subclass of float": lambda x, a, y: x * HEAVY,
    "a bound method": KEPT.of_one,
    "a callable object": KEPT,
    "a class": Kept,
    "a default that is an array": lambda x, a, y, cuts=ARRAY: x * cuts,
    "a default that is a dict": lambda x, a, y, *, known=TABLE: x * known["scale"],
    "a partial of an array": functools.partial(lambda cuts, x, a, y: x * cuts, ARRAY),
    "a partial by keyword": functools.partial(
        lambda x, a, y, known: x * known["scale"], known=TABLE
    ),
    "a partial of a partial": functools.partial(
        functools.partial(lambda k, x, a, y: x * k[0], SEEN)
    ),
    "a decorated function": around_a_table,
    "a closure over an array": closes_over_array(),
    "a closure that is written": remembers(),
    "a global that is written": writes_global,
    "an attribute that is written": writes_attribute,
    "an import inside": imports,
    "a class inside": makes_a_class,
    "a coroutine": asynchronous,
    "an alias of a function with attributes": refers_to_itself_by_another_name,
    "a function of another module that reads the environment": lambda x, a, y: of_environment(x),
    "a function of another module that reads a file": lambda x, a, y: loaded(x),
    "another module": lambda x, a, y: x * other_module.SCALE,
    "a module of the standard library": lambda x, a, y: x * len(argparse.SUPPRESS),
    "random numbers": lambda x, a, y: x * np.random.default_rng(1).random(),
    "a file": lambda x, a, y: x * np.load("scale.npy"),
    "a file on disk as memory": lambda x, a, y: x * np.memmap("scale.npy"),
    "memory as it was": lambda x, a, y: np.empty(3),
    "open": lambda x, a, y: open("scale.txt").read(),  # noqa: SIM115
    "getattr": lambda x, a, y: getattr(x, "base"),  # noqa: B009
    "globals": lambda x, a, y: globals()["TABLE"],
    "eval": lambda x, a, y: eval("TABLE"),
    "import by name": lambda x, a, y: __import__("os"),
    "a class by its attribute": lambda x, a, y: x.__class__,
    "globals of a function": lambda x, a, y: scaled.__globals__["SCALE"],
    "a format that reads attributes": lambda x, a, y: "{0.__class__}".format(x),  # noqa: UP030, UP032
    "a frame": in_an_exception,
    "the buffer of an array": lambda x, a, y: x.base,
    "a file that an array writes": lambda x, a, y: x.tofile("x.bin"),
    "one of two modules": lambda x, a, y: (np if a else math).exp(y),
    "a module under another name": lambda x, a, y: (lambda m: m.random.random())(np),
    "an undefined name": lambda x, a, y: x * probability,  # noqa: F821
    "printing": lambda x, a, y: print(y) or x,
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_may_hold_data_is_refused_by_name_with_the_remedy(kind):
    with pytest.raises(DeclarationError) as caught:
        reached("size", REFUSED[kind])
    message = str(caught.value)
    assert message.startswith("'size' ")
    assert ": " in message
    assert "\n" not in message


NAMED_THINGS = {
    "a namespace": "reaches SPACE, an object of the class SimpleNamespace",
    "a table": "reaches FRAME, an object of the class DataFrame",
    "an array": "reaches ARRAY, an array",
    "a class attribute": "reaches Kept, the class Kept",
    "an attribute of a function": "reaches with_attribute.scale, an attribute of a function",
    "another module": "reaches the module other_module: write from tests.program",
    "a closure over an array": (
        "reaches table, an array, which may hold data: pass numbers as settings"
    ),
    "random numbers": "reaches np.random",
    "an import inside": "imports 'statistics': import it at the top of the file",
    "an undefined name": "reaches 'probability', which is not defined",
}


@pytest.mark.parametrize("kind", NAMED_THINGS)
def test_a_refusal_names_the_thing_that_is_reached(kind):
    with pytest.raises(DeclarationError) as caught:
        reached("size", REFUSED[kind])
    assert NAMED_THINGS[kind] in str(caught.value)


def recursive(x, a, y, depth=3):
    return x if depth == 0 else recursive(x, a, y, depth - 1) * NUMBER


def computed(x, a, y, power=2.0, *, shift=(1.0, 2.0)):
    inside = [part**power for part in x if not math.isnan(part)]
    known = {"low": shift[0]}
    known["high"] = sum(inside, known["low"])
    total = np.linalg.norm(np.append(x, known["high"])) * np.pi
    return max(total.item(), float(expit(y)), key=lambda number: -number * NUMBER)


ALLOWED = {
    "a number": (lambda x, a, y: x * NUMBER, {"NUMBER": "0.83"}),
    "a number of another module": (lambda x, a, y: x * SCALE, {"SCALE": "0.83"}),
    "a function of another module": (lambda x, a, y: scaled(x), {"SCALE": "0.83"}),
    "a tuple": (
        lambda x, a, y: x * PAIR[0],
        {"PAIR[0]": "0.83", "PAIR[1][0]": "2.0", "PAIR[1][1]": "'wards'"},
    ),
    "a default": (lambda x, a, y, scale=0.83: x * scale, {"scale": "0.83"}),
    "a partial": (
        functools.partial(lambda scale, x, a, y: x * scale, 0.83),
        {"argument 0 of itself": "0.83"},
    ),
    "a decorated function": (around_a_number, {"NUMBER": "0.83"}),
    "a function of numpy": (np.sin, {}),
    "a record's own values": (lambda x, a, y: x.sum() + x.astype(float).max() + y.real, {}),
    "itself": (recursive, {"depth": "3", "NUMBER": "0.83"}),
    "numbers of numpy": (lambda x, a, y: x * np.float64(2.0) * np.inf, {}),
    "much at once": (
        computed,
        {"power": "2.0", "shift[0]": "1.0", "shift[1]": "2.0", "NUMBER": "0.83"},
    ),
}


@pytest.mark.parametrize("kind", ALLOWED)
def test_numbers_and_texts_are_held_under_their_names_in_full_precision(kind):
    function, values = ALLOWED[kind]
    assert dict(reached("size", function).values) == values


def scaling(number):
    return lambda x, a, y: x * number


def test_functions_that_differ_in_one_number_reach_different_values():
    number = 0.1 + 0.2
    one, other = (
        reached("size", scaling(value)) for value in (number, math.nextafter(number, 1.0))
    )
    assert one.values != other.values
    assert one.functions[0].__code__ is other.functions[0].__code__


def test_a_number_that_changes_after_the_declaration_is_refused_when_records_are_mapped(
    monkeypatch,
):
    balance = BalanceFunctions(lambda x: x * NUMBER, 1.0, "scaled")
    balance(np.ones((2, 1)))
    monkeypatch.setitem(globals(), "NUMBER", 0.84)
    with pytest.raises(DeclarationError, match=r"'scaled' reaches NUMBER = 0.84, which was 0.83"):
        balance(np.ones((2, 1)))
    assert BalanceFunctions(lambda x: x * NUMBER, 1.0).describe()["reaches"] == {"NUMBER": "0.84"}


def test_a_replaced_function_of_numpy_is_refused(monkeypatch):
    called = Called.of("size", lambda x, a, y: np.sin(x))
    monkeypatch.setattr(np, "sin", lambda x: x * SEEN[0])
    with pytest.raises(DeclarationError, match=r"np\.sin, which was replaced"):
        called.unchanged()


def declared(make):
    """A second stage with an author's map."""

    @second_stage()
    def own(theta, records):
        rows = records.rows("own", make, Ball(1.0))
        return cp.Problem(cp.Minimize(cp.sum(cp.logistic(rows @ theta))), [cp.norm(theta) <= 1])

    return own


def test_every_map_of_a_declaration_is_looked_into():
    declared(lambda x, a, y: x * NUMBER)
    with pytest.raises(DeclarationError, match="'own' reaches TABLE"):
        declared(lambda x, a, y: x * TABLE["scale"])

    def of_cells(theta, records):
        return records.cells("own", lambda x, a, y: TABLE["scale"], 2)

    def of_numbers(theta, records):
        return records.numbers("own", lambda x, a, y: TABLE["scale"], 0.0, 1.0)

    for function in (of_cells, of_numbers):
        with pytest.raises(DeclarationError, match="'own' reaches TABLE"):
            second_stage()(function)


def test_weights_rules_and_bounds_of_an_author_are_looked_into():
    def weighing(x, a):
        return TABLE["scale"]

    with pytest.raises(DeclarationError, match="'weighing' reaches TABLE"):
        scheme.known(least=0.5, most=2.0)(weighing)
    with pytest.raises(DeclarationError, match="'own' reaches TABLE"):
        BalanceFunctions(lambda x: weighing(x, 0), 1.0, "own")
    with pytest.raises(DeclarationError, match="'treats' reaches TABLE"):
        second_stage(treats=lambda effect, x: effect > TABLE["scale"])

    @scheme(cap=2.0)
    def even(w, records, cap):
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1)), [w <= cap])

    with pytest.raises(DeclarationError, match="'the bound of even' reaches TABLE"):

        @even.bound
        def _(n, cap):
            return Bound.from_l2(TABLE["scale"], w_max=cap)


def test_a_parameter_that_records_did_not_make_has_no_set():
    """What sets noise is the set that rows are put into, so that none may claim one."""

    def claims(theta, records):
        datum = cp.Parameter((records.n, theta.size), name="own")
        datum.within, datum.of = Ball(1.0), lambda records: 100.0 * records.X
        return cp.Problem(cp.Minimize(cp.sum(cp.logistic(datum @ theta))), [cp.norm(theta) <= 1])

    def changes(theta, records):
        records.x.within = Ball(1e-3)
        return cp.Problem(
            cp.Minimize(cp.sum(cp.logistic(records.x @ theta))), [cp.norm(theta) <= 1]
        )

    for function in (claims, changes):
        with pytest.raises(DeclarationError, match="has no public set: take it from records"):
            second_stage()(function)
