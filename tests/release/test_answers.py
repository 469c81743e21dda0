"""All answers of a study in one table and one plot, with intervals that hold for all of them."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, PrivateRule
from dp2erm_cvx.cells import Treatment
from dp2erm_cvx.display import as_text
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release.answers import answer_blocks, answers, answers_as
from dp2erm_cvx.release.verify import at_level, verify

BOOK = Codebook(Treatment("drug", "A", "B"), "pressure", {"sex": ["F", "M"]}, units={"pressure": "mmHg"})
RANGES = BOOK.ranges({"age": (20.0, 80.0)})
DOMAIN = Domain(BOOK.norm(RANGES), 30.0, 120.0, ranges=RANGES, codebook=BOOK)


@pytest.fixture(scope="module")
def releases():
    rng, n = np.random.default_rng(1), 4000
    X = pd.DataFrame({"age": rng.uniform(20, 80, n), "sex": rng.choice(["F", "M"], n)})
    a = rng.choice(["A", "B"], n)
    y = 120 + 5.0 * (a == "A") + rng.normal(0, 6, n)
    questions = {"average": {}, "sex": {"by": "sex"}, "treated": {"estimand": "att"}}
    result = {
        name: PrivateEffect(DOMAIN, Budget(2.0), seed=k, residual_scale=6.0, **settings).fit(X, a, y).release_
        for k, (name, settings) in enumerate(questions.items())
    }
    return result | {"rule": PrivateRule(DOMAIN, Budget(1.0), seed=9).fit(X, a, y).release_}


def test_joint_intervals_share_what_may_miss(releases):
    listed = answers(releases)
    assert [one.name for one in listed] == ["average", "sex", "sex: F", "sex: M", "treated"]
    for one in listed:
        release = releases[one.question]
        assert (one.treatment, one.outcome, one.unit) == ("A against B", "pressure", "mmHg")
        alone = at_level(release, 1 - 0.05 / 5)
        own = alone if one.group is None else next(g for g in alone.groups if g.group == one.group)
        assert one.joint == own.interval
        assert one.joint.low < one.interval.low < 5.0 < one.interval.high < one.joint.high
    assert answers({"rule": releases["rule"]}) == []
    (only,) = answers({"average": releases["average"]})
    assert only.joint == only.interval


def test_another_level_is_what_verify_finds(releases):
    again = at_level(releases["sex"], 0.8)
    assert verify(again).holds
    assert again.interval.high < releases["sex"].interval.high
    assert at_level(again, 0.95) == releases["sex"]
    with pytest.raises(DeclarationError, match="level"):
        at_level(releases["average"], 1.0)


def test_tables_say_what_was_released(releases):
    listed = answers(releases)
    rows = list(csv.DictReader(io.StringIO(answers_as(listed, ".csv"))))
    assert [float(row["estimate"]) for row in rows] == [one.estimate for one in listed]
    assert [float(row["joint_high"]) for row in rows] == [one.joint.high for one in listed]
    assert {row["standing"] for row in rows} == {releases["average"].cost()["standing"]}
    markdown, latex = answers_as(listed, ".md"), answers_as(listed, ".tex")
    for text in (markdown, latex):
        assert text.count("A against B on pressure") == 5
        assert text.count("NOT PRIVATE") == 5  # the noise was seeded
    assert latex.startswith("\\begin{tabular}")
    screen = as_text(answer_blocks(listed), width=80).splitlines()
    assert [line.split("  ")[0] for line in screen if "mmHg" in line] == [one.name for one in listed]
    assert "average, sex: effect of A against B on pressure (NOT PRIVATE: SEEDED NOISE)" in screen
    with pytest.raises(DeclarationError, match="tables of answers are"):
        answers_as(listed, ".doc")
