"""What follows from a released effect for nothing: published examples, and equations that they solve."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release.caveats import sensitivity, tipping_point
from dp2erm_cvx.release.effect import EffectInterval, EffectRelease, Ratio
from dp2erm_cvx.release.interval import e_value
from dp2erm_cvx.release.verify import verify


def released(estimand="risks", n=6000, scale=0.45, **changes):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (n, 2))
    a = rng.binomial(1, 0.5 + 0.2 * X[:, 0])
    y = rng.binomial(1, 0.3 + 0.1 * X[:, 0] + 0.25 * a)
    event = Domain(1.5, 0.5, outcome_center=0.5, ranges=[(-1, 1)] * 2, **changes)
    model = PrivateEffect(event, Budget(2.0), estimand=estimand, residual_scale=scale, seed=1)
    return model.fit(X, a, y).release_


@pytest.fixture(scope="module")
def risks():
    return released()


def told(release):
    return " ".join(sensitivity(release))


def test_e_values_of_published_examples():
    """VanderWeele and Ding: breast feeding 3.9 (1.8, 8.7), and a protective .80 (.71, .91)."""
    assert e_value(3.9) == pytest.approx(7.26, abs=5e-3)
    assert e_value(1.8, 8.7) == pytest.approx(3.0, abs=5e-3)
    assert e_value(0.8) == pytest.approx(1.81, abs=5e-3)
    assert e_value(0.71, 0.91) == pytest.approx(1.43, abs=5e-3)
    assert e_value(1.0) == e_value(0.9, 1.2) == 1.0
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(DeclarationError, match="ratio"):
            e_value(wrong)


def test_numbers_needed_to_treat():
    assert EffectInterval(0.1, 0.25, 0.95).needed_to_treat == pytest.approx((4.0, 10.0))
    assert EffectInterval(-0.25, -0.1, 0.95).needed_to_treat == pytest.approx((4.0, 10.0))
    for low, high in ((-0.1, 0.25), (0.0, 0.2), (None, 0.2), (0.1, None)):
        assert EffectInterval(low, high, 0.95).needed_to_treat is None


def test_a_tipping_point_solves_its_equation(risks):
    """At that confounding the allowed bias is what is left of |T| beside the rest of the half width."""
    point = tipping_point(risks)
    interval = risks.interval
    rest = 0.5 * (interval.high - interval.low) - interval.bias
    bias = interval.bias * point / risks.settings["confounding"]
    assert abs(risks.estimate) - rest - bias == pytest.approx(0.0, abs=1e-12)
    assert point > risks.settings["confounding"]
    held = replace(risks, interval=replace(interval, low=-0.01))
    assert tipping_point(held) is None
    assert tipping_point(replace(risks, interval=replace(interval, bias=0.0))) is None


def test_what_is_said_of_risks(risks):
    text = told(risks)
    ratio = next(one for one in risks.ratios if one.name == "risk ratio")
    assert f"E-value of the risk ratio: {e_value(ratio.estimate):.3g}" in text
    assert f"nearer limit {e_value(ratio.interval.low):.3g}" in text
    assert f"{1 / risks.interval.high:.3g} to {1 / risks.interval.low:.3g}" in text
    assert tipping_point(risks) > 10.0
    assert "more than 10 standard deviations apart" in text
    near = replace(risks, interval=replace(risks.interval, bias=0.5 * risks.interval.low))
    assert f"{tipping_point(near):.3g} standard deviations apart" in told(near)
    assert " ".join(text.split()) in " ".join(risks.summary(200).split())
    wide = replace(risks, interval=replace(risks.interval, low=-0.1), ratios=())
    assert "no finite one" in told(wide)
    assert "E-value" not in told(wide)
    assert "No ratio" in wide.summary(200)
    assert told(replace(risks, estimand="att")) == ""


def test_a_standardized_difference_has_an_e_value_where_its_scale_is_declared():
    rng = np.random.default_rng(2)
    X, a = rng.uniform(-1, 1, (4000, 2)), rng.integers(0, 2, 4000)
    y = X[:, 0] + a + rng.standard_normal(4000)
    model = PrivateEffect(Domain(1.5, 4.5), Budget(2.0), residual_scale=1.0, seed=1).fit(X, a, y)
    release = model.release_
    expected = e_value(math.exp(0.91 * release.estimate))
    assert f"approximate risk ratio: {expected:.3g}" in told(release)
    low = e_value(math.exp(0.91 * release.interval.low))
    assert f"nearer limit {low:.3g}" in told(release)
    assert "Number needed" not in told(release)
    undeclared = PrivateEffect(Domain(1.5, 4.5), Budget(2.0), seed=1).fit(X, a, y).release_
    assert "E-value" not in told(undeclared)


@pytest.mark.parametrize(("estimand", "changes"), [("risks", {}), ("ate", {"binary_outcome": True})])
def test_what_follows_is_verified_from_the_file(estimand, changes):
    release = released(estimand, **changes)
    again = EffectRelease.from_json(release.to_json())
    assert verify(again).refuted == ()
    assert "Number needed to treat for one event more" in told(again)
    assert "an outcome of two values" in again.summary(200)
    forged = replace(again, interval=replace(again.interval, bias=again.interval.bias / 2.0))
    assert any("bias" in line for line in verify(forged).refuted)
    if estimand == "risks":
        ratio = again.ratios[0]
        narrower = Ratio(ratio.name, ratio.estimate, replace(ratio.interval, low=ratio.estimate * 0.99))
        assert verify(replace(again, ratios=(narrower, *again.ratios[1:]))).refuted
        assert verify(replace(again, ratios=())).refuted
