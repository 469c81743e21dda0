"""What follows from a released effect for nothing: published examples, and equations that they solve."""

import math
from dataclasses import replace

import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release.caveats import sensitivity
from dp2erm_cvx.release.effect import EffectInterval
from dp2erm_cvx.release.interval import e_value, tipping_point
from tests.every_release import release_of


@pytest.fixture
def risks():
    return release_of("risks")


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
    assert f"{tipping_point(risks):.3g} standard deviations apart" in text
    far = replace(risks, interval=replace(risks.interval, bias=0.1 * risks.interval.bias))
    assert "more than 10 standard deviations apart" in told(far)
    assert " ".join(text.split()) in " ".join(risks.summary(200).split())
    wide = replace(risks, interval=replace(risks.interval, low=-0.1), ratios=())
    assert "no finite one" in told(wide)
    assert "E-value" not in told(wide)
    assert "No ratio" in wide.summary(200)
    assert told(replace(risks, estimand="att")) == ""


def test_a_standardized_difference_has_an_e_value_where_its_scale_is_declared():
    release = release_of("average effect")
    ratios = [math.exp(0.91 * one / 0.3) for one in (release.estimate, release.interval.low)]
    assert f"approximate risk ratio: {e_value(ratios[0]):.3g}" in told(release)
    assert f"nearer limit {e_value(ratios[1]):.3g}" in told(release)
    assert "Number needed" not in told(release)
    assert "E-value" not in told(release_of("trial"))


@pytest.mark.parametrize("name", ["risks", "event"])
def test_an_event_has_a_number_needed_to_treat(name):
    release = release_of(name)
    assert "Number needed to treat for one event more" in told(release)
    assert "an outcome of two values" in release.summary(200)
