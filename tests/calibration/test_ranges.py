"""Levels and epsilons of private ranges: public numbers alone."""

import math

import pytest
from scipy.stats import norm

from dp2erm_cvx.calibration import calibrate_ranges
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget


def test_every_choice_has_its_part_of_epsilon():
    found = calibrate_ranges(10_000, [435, None, 129, 435], Budget(0.3, 1e-6))
    assert found.each == pytest.approx(0.05)
    assert 6 * found.each <= found.epsilon == 0.3
    assert found.delta == 0.0
    assert found.scale == pytest.approx(2 / found.each)
    assert found.levels[1] is None
    assert found.factors[1] == 1.0


@pytest.mark.parametrize(("n", "epsilon"), [(3000, 0.1), (3000, 0.2), (10_000, 0.1), (10**6, 1.0)])
def test_no_candidate_beyond_the_records_is_likely(n, epsilon):
    found = calibrate_ranges(n, [None, 435], Budget(epsilon))
    lead = found.levels[1] * n / found.scale
    assert 435 * math.exp(-lead) <= math.exp(-5) * 1.001
    assert found.levels[1] == 0.25 or 435 * math.exp(-lead) <= math.exp(-8) * 1.001
    assert found.levels[1] >= 0.01
    # a normal column is covered to three standard deviations
    assert found.factors[1] * norm.ppf(1 - found.levels[1]) == pytest.approx(3.0)


def test_levels_do_not_go_farther_than_needed():
    found = calibrate_ranges(10**7, [435, 435], Budget(1.0))
    assert found.levels == (0.02, 0.01)
    assert found.factors[0] == 1.0


@pytest.mark.parametrize("columns", [1, 3, 10])
def test_too_little_epsilon_is_told_with_what_is_needed(columns):
    sizes = [435] * columns
    with pytest.raises(
        CalibrationError, match=r"need an epsilon of ([0-9.e+-]+) at n_samples = 1000"
    ) as told:
        calibrate_ranges(1000, sizes, Budget(1e-3))
    needed = float(str(told.value).split("epsilon of ")[1].split()[0])
    assert calibrate_ranges(1000, sizes, Budget(needed * 1.01)).levels[0] <= 0.25
    with pytest.raises(CalibrationError):
        calibrate_ranges(1000, sizes, Budget(needed * 0.99))


def test_nothing_to_release():
    with pytest.raises(DeclarationError, match="every range is declared"):
        calibrate_ranges(1000, [None, None], Budget(1.0))
