"""Released ranges: what they are for columns of every kind, and what is refused."""

import numpy as np
import pytest

from dp2erm_cvx import Budget, Dataset, OpenDomain, Universe, Within
from dp2erm_cvx.calibration import calibrate_ranges
from dp2erm_cvx.data.private_ranges import candidates
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.plan import RangesStudy, make_plan
from dp2erm_cvx.steps.execution import Execution, Inputs
from dp2erm_cvx.steps.sums import ColumnRanges, widened

N = 3000


def released(columns, outcome, declared, epsilon=0.1, seed=0):
    """The ranges (k + 1, 2) of one run, and the records in the domain that they make."""
    X = np.column_stack(columns)
    universe = Universe(declared.universe(), len(outcome), X.shape[1])
    plan = ColumnRanges(public=declared).plan(universe, Budget(epsilon), {})
    data = Dataset.from_arrays(X, np.arange(len(outcome)) % 2, outcome)
    inputs = Inputs(data, universe.domain.records(data.X, data.a, data.y))
    chosen = plan.run(inputs, {}, Execution("first_certified", 1e-6, seed)).released
    for pair, known in zip(chosen, declared.known, strict=True):
        assert np.all(np.isin(pair, known if isinstance(known, tuple) else candidates(known)))
    ends = plan.ranges(chosen)
    result = np.array(ends)
    assert result.shape == (X.shape[1] + 1, 2)
    assert np.all(result[:, 0] < result[:, 1])
    return result, declared.closed(ends).records(data.X, data.a, data.y)


DRAWN = {
    "normal": lambda rng: rng.standard_normal(N),
    "off zero": lambda rng: 50 + 10 * rng.standard_normal(N),
    "lognormal": lambda rng: 3e4 * np.exp(rng.standard_normal(N)),
    "heavy tails": lambda rng: rng.standard_t(2, N),
    "grades": lambda rng: rng.integers(1, 8, N).astype(float),
    "balanced binary": lambda rng: rng.integers(0, 2, N).astype(float),
    "negative": lambda rng: -np.exp(rng.standard_normal(N)),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_an_outcome_of_any_shape_keeps_its_spread(kind):
    # n epsilon = 300 for the outcome alone; the covariates are public
    for seed in range(8):
        y = DRAWN[kind](np.random.default_rng(seed))
        _, records = released([np.zeros(N)], y, OpenDomain([(0.0, 1.0)]), seed=seed)
        bound = records.space.outcome_bound
        assert np.mean(np.abs(records.y) == bound) <= 0.08
        assert 0.1 * bound <= np.std(records.y) <= 0.8 * bound


@pytest.mark.parametrize("value", [0.0, 5.0, -1e3, 1e300, -1.7e308, 1e-300])
def test_columns_without_any_spread(value):
    result, records = released(
        [np.full(N, value)], np.full(N, value), OpenDomain([None]), epsilon=1.0
    )
    assert np.all(np.isfinite(result))
    assert np.all(np.abs(result) <= 1e8)
    # one common value, wherever it is
    assert len(np.unique(records.X)) == len(np.unique(records.y)) == 1


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        *(((-1.0, 3.0, 2.0, None), (-3.0, 5.0)), ((0.0, 0.0, 1.0, None), (-1.0, 1.0))),
        *(((40.0, 40.0, 1.0, None), (0.0, 80.0)), ((3.0, -5.0, 1.0, None), (-5.0, 3.0))),
        *(((low, high, 5.0, Within(0, 2)), (0.0, 2.0)) for low, high in ((0.0, 1.0), (-1e6, -1e6))),
    ],
)
def test_ranges_are_widened_by_a_public_rule(ends, expected):
    assert widened(*ends) == pytest.approx(expected)


def test_too_many_columns_for_the_budget_are_refused_before_data_and_all_is_spent():
    def noise(n, epsilon):
        declared = OpenDomain([None, None])
        study = RangesStudy(Universe(declared.universe(), n, 2), Budget(epsilon), declared)
        return make_plan(study).steps[0].calibration

    with pytest.raises(CalibrationError, match="ranges of 3 columns need an epsilon of"):
        noise(500, 0.05)
    assert calibrate_ranges(500, [None, None, 435], Budget(0.5)).levels[-1] < 0.25
    with pytest.raises(DeclarationError, match="nothing is left to release"):
        calibrate_ranges(500, [None, None], Budget(1.0))
    # other outcomes reach as far as the outcome does
    assert calibrate_ranges(10**6, [435] * 3, Budget(1.0), 2).levels == (0.02, 0.01, 0.01)
    result = noise(5000, 2.0)
    assert 0.999 < 2 * result.each * len(result.levels) / result.epsilon <= 1.0
