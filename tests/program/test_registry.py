"""Programs by their names and members of families by their texts, with one message where there are
none.
"""

import sys
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

import pytest

from dp2erm_cvx.conformance import program_template
from dp2erm_cvx.display import number_or_text
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.model.sets import ConvexSet, L2Ball
from dp2erm_cvx.program import Box, Gaussian, L1Ball, Moments, WholeSpace, registry
from dp2erm_cvx.program.kernels import Kernel, Laplace, Linear, RandomFourier
from dp2erm_cvx.program.registry import collect, first_stages, programs

BUILT_IN = first_stages()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import absent_module\n",
            "entry point other = other_weights.*ModuleNotFoundError.*absent_module",
        ),
        (
            program_template("overlap", "direct"),
            "two programs are named 'overlap': in .* and in other_weights",
        ),
        (
            "from dp2erm_cvx.problems.known_weights import Uniform\n"
            "class Mine(Uniform):\n    name = 'mine'\n",
            "other_weights: Mine: classes of programs",
        ),
    ],
)
def test_a_distribution_that_breaks_the_registry_is_named(text, message, tmp_path, monkeypatch):
    (tmp_path / "other_weights.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_weights", raising=False)
    entries = [
        *entry_points(group=registry.GROUP),
        EntryPoint("other", "other_weights", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    with pytest.raises(ProgramError, match=message):
        programs.__wrapped__()
    registry._sound.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match=message):
            assert registry.first_stages() == BUILT_IN
        assert registry.build(registry.first_stages(), "overlap").name == "overlap"
        with pytest.raises(ProgramError, match=f"unknown program 'mine'.*{message}"):
            registry.build(registry.first_stages(), "mine")
    finally:
        registry._sound.cache_clear()


def test_of_two_distributions_with_one_name_neither_is_taken():
    """And nothing depends on the order in which they are found."""
    entries = [EntryPoint(name, f"{name}_weights", registry.GROUP) for name in ("one", "two")]
    own = entry_points(group=registry.GROUP, name="dp2erm")
    for name in ("one", "two"):
        module = ModuleType(f"{name}_weights")
        sys.modules[module.__name__] = module
        exec(program_template("mine", "direct"), module.__dict__)
        exec(program_template(f"also_{name}", "direct"), module.__dict__)
    for order in (entries, entries[::-1]):
        result, complaints = collect([*order, *own])
        assert "mine" not in result
        assert list(result) == list(programs())
        assert len(complaints) == 1


def read(family: Any, text: str) -> Any:
    return family.from_text(text, *["own"] * (family is not Moments))


SYNTAX = "must be whole, l2:RADIUS, l1:RADIUS or box:BOUND$"


class Narrow(Gaussian):
    """A kernel of a user's own, of the same word, which programs refuse."""


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ("gaussian:2", Gaussian(2.0)),
        (" Laplace:0.5", Laplace(0.5)),
        ("linear", Linear()),
        ("fourier:0.5:20:7", RandomFourier(0.5, 20, 7)),
        ("fourier:3", RandomFourier(3.0)),
        *(("l1:2", L1Ball(2)), ("l2:0.5", L2Ball(0.5)), ("box:5", Box(5)), ("whole", WholeSpace())),
        *(("3", Moments(3)), ("moments:3", Moments(3))),
    ],
)
def test_members_are_read(text: str, member: Kernel | ConvexSet | Moments) -> None:
    family = next(one for one in (Kernel, ConvexSet, Moments) if isinstance(member, one))
    result = read(family, text)
    assert (result, type(result)) == (member, type(member))


@pytest.mark.parametrize(
    ("family", "text", "message"),
    [
        *((ConvexSet, text, SYNTAX) for text in ("ball:2", "l1", "l1:", "l1:1:2", "whole:1", "")),
        (Kernel, "laplace:x", "bandwidth"),
        (Moments, "two", "degree = 'two'"),
    ],
)
def test_what_writes_no_member_is_told_the_syntax(family: type, text: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        read(family, text)


@pytest.mark.parametrize(
    "text", ["1e400", "0.10", "-01.50", "1e-400", "1e18", "9" * 400, "9" * 5000]
)
def test_what_is_written_as_a_number_is_one(text):
    assert number_or_text(text) == float(text)
    assert type(number_or_text(text)) is float
