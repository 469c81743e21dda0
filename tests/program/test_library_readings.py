"""What is read of the library's own functions, compared with CVXPY: programs of authors do so
themselves.
"""

import pytest

from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.registry import available, parts
from dp2erm_cvx.program.scheme import STANDARD
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.separable import SeparableFirstStage, margins_read
from dp2erm_cvx.program.stage import family_of
from dp2erm_cvx.program.weighting.data import FeatureTable
from dp2erm_cvx.weighting.forms.form import WeightingForm
from tests.rows import one_of
from tests.unchanged import cases

READ = {**available(), **parts()}
SEPARABLE = sorted(
    name for name, made in READ.items() if issubclass(family_of(made), SeparableFirstStage)
)
WEIGHTINGS = [
    stage
    for name, made in available().items()
    if issubclass(family_of(made), WeightsProgram)
    for stage in cases.stages(name)
]
LOSSES = sorted(name for name, made in READ.items() if issubclass(family_of(made), SecondStage))


def test_readings_cover_separable_schemes_and_losses():
    assert {"ipw_logistic", "overlap", "inverse_probability_tilting"} <= set(SEPARABLE)
    assert {"itr", "itr_huber", "itr_saturating", "saturating_regression"} <= set(LOSSES)


@pytest.mark.parametrize("name", SEPARABLE)
def test_curves_of_margins_have_the_values_of_cvxpy(name):
    program = READ[name]().resolve(STANDARD)
    assert program.scheme.of_library
    settings = dict(program.own_settings())
    for arm, held in zip(program.arms, program.first_reading().arms, strict=True):
        read = margins_read(
            program.scheme.function, tuple(program.margins), settings, compared=True, arm=arm
        )
        assert read == held


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


@pytest.mark.one_row_in(24)
@pytest.mark.parametrize("stage", WEIGHTINGS, ids=[stage.label for stage in WEIGHTINGS])
@pytest.mark.parametrize("intercept", one_of([1.2, 0.0], 2))
def test_forms_in_the_weights_have_the_values_of_cvxpy(stage, intercept):
    universe = Universe(Domain(2.0, 3.0, intercept=intercept), 12, cases.P)
    program = stage.program.at(universe)
    assert program.scheme.of_library
    assert isinstance(program.form(universe), WeightingForm)
    program.reading.compare()


def test_another_form_than_was_read_is_found(monkeypatch):
    program = READ["stable_balancing"]().at(MappedUniverse(STANDARD, 12, 4))

    of_balance = FeatureTable._of_balance
    monkeypatch.setattr(
        FeatureTable, "_of_balance", lambda self, datum: _larger(of_balance(self, datum))
    )
    with pytest.raises(DeclarationError, match="please report it"):
        program.reading.compare()


def _larger(parts):
    """Features of one and a half times their size."""
    return {name: 1.5 * matrices for name, matrices in parts.items()}
