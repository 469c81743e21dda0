"""What is read of the library's own functions, compared with CVXPY: programs of authors do so themselves."""

import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.scheme import STANDARD
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.separable import SeparableFirstStage, margins_read
from dp2erm_cvx.program.stage import family_of
from dp2erm_cvx.registry import available, parts

READ = {**available(), **parts()}
SEPARABLE = sorted(name for name, made in READ.items() if issubclass(family_of(made), SeparableFirstStage))
LOSSES = sorted(name for name, made in READ.items() if issubclass(family_of(made), SecondStage))


def test_all_kinds_are_there():
    assert {"ipw_logistic", "overlap", "inverse_probability_tilting"} <= set(SEPARABLE)
    assert {"itr", "itr_huber", "itr_saturating", "saturating_regression"} <= set(LOSSES)


@pytest.mark.parametrize("name", SEPARABLE)
def test_curves_of_margins_have_the_values_of_cvxpy(name):
    program = READ[name]().resolve(STANDARD)
    assert program.scheme.of_library
    read = margins_read(
        program.scheme.function, tuple(program.margins), dict(program.own_settings()), compared=True
    )
    assert read == program.first_reading()


@pytest.mark.parametrize("name", LOSSES)
def test_losses_have_the_values_of_cvxpy(name):
    program = READ[name]().resolve(STANDARD)
    assert program.scheme.of_library
    program.compare()


def test_another_loss_than_was_read_is_found(monkeypatch):
    program = READ["itr_huber"]().resolve(STANDARD)
    other = READ["itr"]().resolve(STANDARD)
    monkeypatch.setattr(type(program), "_read", lambda self, domain: other.reading)
    with pytest.raises(DeclarationError, match="other values"):
        program.compare()
