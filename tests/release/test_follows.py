"""What follows from a release for nothing: a promise in words, joint intervals, what would explain
it.
"""

import csv
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp2erm_cvx.display import as_text, digits_of
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.inference.interval import e_value
from dp2erm_cvx.privacy import Neighboring, Standing
from dp2erm_cvx.release import Guarantee
from dp2erm_cvx.release.effect import EffectInterval
from dp2erm_cvx.release.verify import at_level, verify
from dp2erm_cvx.report.answers import answer_blocks, answers, answers_as
from dp2erm_cvx.report.caveats import sensitivity, tipping_point
from dp2erm_cvx.report.words import largest_factor, largest_guess
from tests.every_release import release_of


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
    """At that confounding the allowed bias is what is left of |T| beside the rest of the half
    width.
    """
    point = tipping_point(risks)
    interval = risks.interval
    rest = 0.5 * (interval.high - interval.low) - interval.bias
    bias = interval.bias * point / risks.settings["confounding"]
    assert abs(risks.estimate) - rest - bias == pytest.approx(0.0, abs=1e-12)
    assert point > risks.settings["confounding"]
    held = replace(risks, interval=replace(interval, low=-0.01))
    assert tipping_point(held) is None
    assert tipping_point(replace(risks, interval=replace(interval, bias=0.0))) is None


def test_risks_are_told_with_e_values_tipping_points_and_numbers_needed_to_treat(risks):
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


NAMES = ("groups", "average effect", "among the treated")
NAMED = [
    "groups",
    *(f"groups: {sex}" for sex in ("F", "M", "other")),
    "average effect",
    "among the treated",
]


def test_joint_intervals_share_what_may_miss():
    asked = {name: release_of(name) for name in NAMES}
    listed = answers(asked)
    assert [one.name for one in listed] == NAMED
    for one in listed:
        alone = at_level(asked[one.question], 1 - 0.05 / 6)
        own = alone if one.group is None else next(g for g in alone.groups if g.group == one.group)
        assert one.joint == own.interval
        assert one.joint.low < one.interval.low < one.interval.high < one.joint.high
    assert {(one.treatment, one.outcome, one.unit) for one in listed[:4]} == {
        ("vasopressor against usual care", "sbp", "mmHg")
    }
    assert answers({"rule": release_of("rule")}) == []
    (only,) = answers({"average": release_of("average effect")})
    assert only.joint == only.interval


def test_another_level_is_what_verify_finds():
    release = release_of("groups")
    again = at_level(release, 0.8)
    assert verify(again).holds
    assert again.interval.high < release.interval.high
    assert at_level(again, 0.95) == release
    with pytest.raises(DeclarationError, match="level"):
        at_level(release, 1.0)


def test_tables_say_what_was_released():
    groups = release_of("groups")
    seeded = replace(groups, guarantee=replace(groups.guarantee, standing=Standing.NOT_PRIVATE))
    listed = answers({"sex": seeded, "treated": release_of("among the treated")})
    rows = list(csv.DictReader(io.StringIO(answers_as(listed, ".csv"))))
    assert [float(row["estimate"]) for row in rows] == [one.estimate for one in listed]
    assert [float(row["joint_high"]) for row in rows] == [one.joint.high for one in listed]
    assert [row["standing"] for row in rows] == [*[seeded.cost()["standing"]] * 4, "private"]
    markdown, latex = answers_as(listed, ".md"), answers_as(listed, ".tex")
    for text in (markdown, latex):
        assert text.count("vasopressor against usual care on sbp") == 4
        assert text.count("NOT PRIVATE") == 4
    assert latex.startswith("\\begin{tabular}")
    screen = as_text(answer_blocks(listed), width=80).splitlines()
    assert [line.split("  ")[0] for line in screen if "mmHg" in line] == [
        one.name for one in listed[:4]
    ]
    assert (
        "sex: effect of vasopressor against usual care on sbp (NOT PRIVATE: SEEDED NOISE)" in screen
    )
    with pytest.raises(DeclarationError, match="tables of answers are"):
        answers_as(listed, ".doc")
