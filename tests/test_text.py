"""Members of a family read themselves from one syntax, with one message where they cannot."""

from __future__ import annotations

import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.program import (
    Box,
    ConvexSet,
    Gaussian,
    Kernel,
    L1Ball,
    Moments,
    WholeSpace,
)
from dp2erm_cvx.program.kernels import Laplace, Linear
from dp2erm_cvx.program.random_features import RandomFourier


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("gaussian:2", Gaussian(2.0)),
        (" Laplace:0.5", Laplace(0.5)),
        ("linear", Linear()),
        ("fourier:0.5:20:7", RandomFourier(0.5, 20, 7)),
        ("fourier:3", RandomFourier(3.0)),
    ],
)
def test_kernels(text: str, kernel: Kernel) -> None:
    assert Kernel.from_text(text, "kernel") == kernel


@pytest.mark.parametrize(
    ("text", "theta"),
    [("l1:2", L1Ball(2)), ("l2:0.5", L2Ball(0.5)), ("box:5", Box(5)), ("whole", WholeSpace())],
)
def test_sets(text: str, theta: ConvexSet) -> None:
    assert ConvexSet.from_text(text, "theta_set") == theta


@pytest.mark.parametrize("text", ["ball:2", "l1", "l1:", "l1:1:2", "whole:1", ""])
def test_what_writes_no_set_is_told_the_syntax(text: str) -> None:
    with pytest.raises(DeclarationError) as error:
        ConvexSet.from_text(text, "theta_set")
    assert str(error.value) == f"theta_set = {text!r}: must be whole, l2:RADIUS, l1:RADIUS or box:BOUND"


def test_the_library_judges_the_sizes() -> None:
    with pytest.raises(DeclarationError, match="bandwidth"):
        Kernel.from_text("laplace:x", "kernel")


def test_a_subclass_of_a_member_is_none() -> None:
    class Narrow(Gaussian):
        """A kernel of a user's own, which programs refuse."""

    assert type(Kernel.from_text("gaussian:2", "kernel")) is Gaussian
    assert Narrow.word == "gaussian"


def test_moments() -> None:
    assert Moments.from_text("3") == Moments.from_text("moments:3") == Moments(3)
    with pytest.raises(DeclarationError, match="degree = 'two'"):
        Moments.from_text("two")
