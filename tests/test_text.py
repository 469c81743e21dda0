"""Members of a family read themselves from one syntax, with one message where they cannot."""

import json
import pickle
from typing import Any

import pytest
from click.testing import CliRunner

from dp2erm_cvx.cli import main
from dp2erm_cvx.domain_file import load_domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.sets import ConvexSet, L2Ball
from dp2erm_cvx.program import Box, Gaussian, L1Ball, Moments, WholeSpace
from dp2erm_cvx.program.kernels import Kernel, Laplace, Linear, RandomFourier
from dp2erm_cvx.text import number_or_text


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
    found = read(family, text)
    assert (found, type(found)) == (member, type(member))


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


@pytest.mark.parametrize("text", ["1e400", "0.10", "-01.50", "1e-400", "1e18"])
def test_numbers_are_quoted_as_they_were_written(text):
    number = number_or_text(text)
    assert (number, repr(number)) == (float(text), text)
    assert repr(pickle.loads(pickle.dumps(number))) == text
    assert json.dumps(number) == json.dumps(float(text))
    assert type(float(number)) is type(number * 1.0) is float


def test_errors_quote_options_and_files_as_they_were_written(tmp_path):
    words = ["bounds", "--program", "uniform", "--covariate-bound", "1", "--n", "20"]
    result = CliRunner().invoke(main, [*words, "--outcome-bound", "-01.50"])
    assert "outcome_bound = -01.50: must" in result.stderr
    file = tmp_path / "domain.toml"
    file.write_text("covariate_bound = 1.0\noutcome_bound = 1e400\n")
    with pytest.raises(DeclarationError, match="outcome_bound = 1e400: must be a finite number"):
        load_domain(file)
    file.write_text("covariate_bound = 1.0\noutcome_bound = 1.50\noutcome_centre = 0.0\n")
    with pytest.raises(DeclarationError, match="'outcome_centre'; did you mean outcome_center"):
        load_domain(file)
