"""All answers of a study in one table and one plot, with intervals that hold for all of them."""

import csv
import io
from dataclasses import replace

import pytest

from dp2erm_cvx.display import as_text
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release import Standing
from dp2erm_cvx.release.answers import answer_blocks, answers, answers_as
from dp2erm_cvx.release.verify import at_level, verify
from tests.every_release import release_of

NAMES = ("groups", "average effect", "among the treated")
NAMED = ["groups", *(f"groups: {sex}" for sex in ("F", "M", "other")), "average effect", "among the treated"]


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
    assert [line.split("  ")[0] for line in screen if "mmHg" in line] == [one.name for one in listed[:4]]
    assert "sex: effect of vasopressor against usual care on sbp (NOT PRIVATE: SEEDED NOISE)" in screen
    with pytest.raises(DeclarationError, match="tables of answers are"):
        answers_as(listed, ".doc")
