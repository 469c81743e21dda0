"""Changes put into the text of a study."""

from __future__ import annotations

import tomlkit

from dp2erm_cvx.study.writing import filled

STUDY = """\
outcome_bound = 9
outcome_column = "weight"
treatment_column = "quit"  # what the remark says

[[effect]]
name = "all"
share = 0.5

[[effect]]
name = "treated"
estimand = "att"
share = 0.5
"""


def test_a_change_of_the_second_question_of_a_kind_leaves_the_first_alone() -> None:
    written = tomlkit.parse(filled(STUDY, ["treated.cap=8.0"])).unwrap()
    assert written["effect"][0] == {"name": "all", "share": 0.5}
    assert written["effect"][1] == {
        "name": "treated",
        "estimand": "att",
        "share": 0.5,
        "cap": 8.0,
    }


def test_remarks_stay_where_something_is_changed() -> None:
    assert "# what the remark says" in filled(STUDY, ["outcome_bound=8"])
