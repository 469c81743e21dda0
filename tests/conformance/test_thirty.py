"""All but three of the wrong programs are flagged by a whole run of the checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.own_file import changed, reports_of
from tests.conformance.thirty import DEPENDENT, OTHERS

#: Cheap ones of either kind.
FEW = ("outcomes cut at a quantile", "half the trace")


def flagged(case: str, folder: Path) -> bool:
    kind, pairs = {**DEPENDENT, **OTHERS}[case]
    text = changed(kind, *pairs)
    if "import numpy" not in text:
        text = text.replace("from dataclasses", "import numpy as np\nfrom dataclasses", 1)
    return not all(report.passed for report in reports_of(folder / "mine.py", text))


@pytest.mark.slow
def test_all_but_three_are_flagged(tmp_path: Path) -> None:
    assert len(DEPENDENT) + len(OTHERS) >= 20
    # missed are ties of covariates, which no pair of the search makes
    missed = []
    for number, case in enumerate([*DEPENDENT, *OTHERS]):
        (tmp_path / str(number)).mkdir()
        if not flagged(case, tmp_path / str(number)):
            missed.append(case)
    assert len(missed) <= 3, missed


@pytest.mark.parametrize("case", FEW)
def test_some_of_them(case: str, tmp_path: Path) -> None:
    assert flagged(case, tmp_path)
