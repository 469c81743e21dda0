"""An effect on columns that nobody declared: found in their own units, and refused without OpenDP."""

import importlib.util

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dp2erm_cvx import Budget, Domain, EffectRelease, PrivateEffect, PrivateRanges, PrivateTwoStageERM, Within
from dp2erm_cvx.errors import CalibrationError, DeclarationError

RANGES = {"age": (18, 90), "income": None}


def table(n=6000, seed=0, effect=500.0):
    """Confounded by age: the naive difference is twice the effect; income is skewed."""
    rng = np.random.default_rng(seed)
    age, income = rng.uniform(20, 80, n), 3e4 * np.exp(0.7 * rng.standard_normal(n))
    a = rng.binomial(1, 1 / (1 + np.exp(-(age - 50) / 15)))
    y = 2000 + 30 * age + effect * a + 400 * rng.standard_normal(n)
    return pd.DataFrame({"age": age, "income": income}), a, y


def model(ranges=None, **changes):
    return PrivateEffect(PrivateRanges(ranges=ranges), Budget(2.0), **{"seed": 1} | changes)


def test_the_effect_is_found_in_units_of_the_outcome():
    X, a, y = table()
    result = model(RANGES).fit(X, a, y)
    low, high = result.interval_
    assert low < 500 < high
    assert high - low < 150
    release = result.release_
    assert [one.column for one in release.ranges] == ["age", "income", "y"]
    assert [one.released for one in release.ranges] == [False, True, True]
    assert (release.ranges[0].low, release.ranges[0].high) == (18.0, 90.0)
    assert release.outcome_unit == pytest.approx((release.ranges[2].high - release.ranges[2].low) / 2)
    assert release.domain["outcome_bound"] == 1.0
    assert release.standard_deviation > 300
    assert clone(result).fit(X, a, y).release_ == release


def test_a_release_states_its_ranges_and_comes_back():
    pytest.importorskip("opendp")
    X, a, y = table(2000)
    release = model(RANGES, seed=None).fit(X, a, y).release_
    assert release.private
    again = EffectRelease.from_json(release.to_json())
    assert again == release
    assert again.step("ranges").epsilon == pytest.approx(0.2)
    assert sum(step.epsilon for step in again.steps) <= again.guarantee.epsilon * (1 + 1e-9)
    text = " ".join(again.summary().split())
    assert "Ranges were released for epsilon = 0.2" in text
    assert "a bias that the interval does not see" in text
    for change in ('"released": true', '"released": false'), ('"outcome_unit": ', '"outcome_unit": 2'):
        with pytest.raises(DeclarationError, match="release JSON: "):
            EffectRelease.from_json(release.to_json().replace(*change))


def test_what_is_declared_is_judged_before_the_data():
    X, a, y = table(300)
    with pytest.raises(CalibrationError, match="private ranges of 3 columns need an epsilon"):
        model().fit(X, a, y)
    with pytest.raises(DeclarationError, match="known: age, income"):
        model(RANGES, prognostic=["wealth"]).fit(X, a, y)
    with pytest.raises(DeclarationError, match="the domain declares the columns age, wealth"):
        model({"age": None, "wealth": None}).fit(X, a, y)
    with pytest.raises(DeclarationError, match="must be a Domain"):
        PrivateTwoStageERM(PrivateRanges(), Budget(1.0)).fit(X, a, y)
    model(RANGES, prognostic=["income"]).check(["age", "income"])


def test_without_opendp_nothing_is_read(monkeypatch):
    class Unread:
        def __array__(self, *args, **kwargs):
            raise AssertionError("the data were read")

    find = importlib.util.find_spec
    monkeypatch.setattr(
        "dp2erm_cvx.mechanism.find_spec", lambda name: None if name == "opendp" else find(name)
    )
    with pytest.raises(DeclarationError, match=r"dp2erm-cvx\[secure\]"):
        model(seed=None).fit(Unread(), Unread(), Unread())
    with pytest.raises(DeclarationError, match=r"dp2erm-cvx\[secure\]"):
        model(seed=None).check(["u"])


#: Incomes, treatments and outcomes of the data, from those of the table.
HOSTILE = {
    "constant": lambda income, a, y: (0 * income, a, y),
    "huge": lambda income, a, y: (1e300 * income, a, 1e300 * y),
    "equal outcomes": lambda income, a, y: (income, a, 0 * y + 7.0),
    "one arm": lambda income, a, y: (income, 0 * a, y),
    "binary": lambda income, a, y: ((income > 3e4).astype(float), a, y),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_no_dataset_makes_a_fit_refuse(change):
    X, a, y = table(2000)
    X["income"], a, y = HOSTILE[change](X["income"], a, y)
    release = model({"age": (18, 90), "income": Within(-1e9, 1e9)}).fit(X, a, y).release_
    assert np.isfinite(release.estimate)
    assert all(np.isfinite([one.low, one.high]).all() and one.low < one.high for one in release.ranges)


def test_a_neighbor_has_the_same_plan():
    X, a, y = table(2000)
    theirs, far = X.copy(), y.copy()
    theirs.iloc[0], far[0] = 1e300, -1e300
    one, other = (model(RANGES).fit(data, a, out).release_ for data, out in ((X, y), (theirs, far)))
    assert one.steps == other.steps
    assert one.settings.keys() == other.settings.keys()
    assert {k: v for k, v in one.settings.items() if k != "effect_center"} == {
        k: v for k, v in other.settings.items() if k != "effect_center"
    }
    assert Domain.from_dict(one.domain) == Domain.from_dict(other.domain)
