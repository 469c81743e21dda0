"""The guarantee in words: every number in it is at least what the theorem of two neighbors says."""

import math
import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dp2erm_cvx.display import digits_of
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.release import Guarantee, Standing
from dp2erm_cvx.release.words import largest_factor, largest_guess


def guarantee(epsilon: float, delta: float) -> Guarantee:
    return Guarantee(epsilon, delta, Neighboring.REPLACE_ONE, "", "", (), Standing.PRIVATE)


@given(st.floats(1e-6, 30.0), st.sampled_from([0.0, 1e-9, 1e-5, 0.01, 0.9]))
def test_no_pair_that_obeys_the_guarantee_is_told_apart_better(epsilon, delta) -> None:
    odds = math.exp(epsilon)
    # the pair that attains it: some outcomes happen under one neighbor only
    first = np.array([delta, (1 - delta) * odds / (1 + odds), (1 - delta) / (1 + odds), 0.0])
    second = first[::-1]
    assert np.sum(np.maximum(first - odds * second, 0.0)) <= delta + 1e-12
    best = 0.5 * float(np.sum(np.maximum(first, second)))
    stated = float(largest_guess(guarantee(epsilon, delta)))
    assert best - 1e-12 <= stated
    assert 1.0 - stated >= 0.9 * (1.0 - best) - 1e-6


@given(st.floats(1e-6, 2000.0))
def test_the_factor_is_rounded_up(epsilon) -> None:
    told = largest_factor(guarantee(epsilon, 0.0)).replace(",", "")
    exponent = float(told[3:]) if told.startswith("10^") else math.log10(float(told))
    exact = epsilon / math.log(10.0)
    assert exact - 1e-9 <= exponent <= exact + 1.0
    if epsilon < 13.0:
        assert float(told) <= 1.011 * math.exp(epsilon)


@given(st.floats(1e-6, 30.0), st.floats(1e-12, 0.9))
def test_no_printed_parameter_is_below_the_true_one(epsilon, delta) -> None:
    known = guarantee(epsilon, delta)
    printed = re.findall("epsilon = ([^,]+), delta = ([^;]+);", str(known))
    printed.append((digits_of(epsilon, 4), largest_factor(known).partition(", plus ")[2]))
    for one, other in printed:
        assert epsilon * (1.0 - 1e-15) <= float(one) <= 1.001 * epsilon
        assert delta * (1.0 - 1e-15) <= float(other) <= 1.001 * delta
    assert float(digits_of(epsilon, left=True)) <= epsilon * (1.0 + 1e-15)
