"""The table of V on the page is what its script computes, and its programs have the same
weights.
"""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import weights_as_variable as script

from dp2erm_cvx import Universe
from dp2erm_cvx.program.stage import Kind

PAGE = (Path(__file__).parents[2] / "docs" / "theory" / "weights_as_variable.md").read_text(
    encoding="utf-8"
)
CASES = {scheme[0]: scheme for scheme in script.SCHEMES}
N = 400


def printed(name: str, ridge: float) -> list[float]:
    """The first three numbers of a row of the page: V at 400 records."""
    short = f"{ridge:g}".removeprefix("0")
    (row,) = re.findall(
        rf"^\| {re.escape(name)} \| {re.escape(short)} \| (.*) \|$", PAGE, re.MULTILINE
    )
    cells = row.split(" | ")[:3]
    return [float(cell.replace("$2n$", f"{2 * N}")) for cell in cells]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_bounds_are_those_of_the_page(name: str) -> None:
    _, shipped, declared, default, _ = CASES[name]
    universe = Universe(script.domain_of(N), N, script.P)
    programs = [shipped(None), declared(default, math.inf), declared(default, script.CAP)]
    bounds = [program.stability(universe).V for program in programs]
    expected = printed(name, default)
    if programs[0].kind is Kind.WEIGHTING:
        # the page keeps what the theorem said that it had before it was declared in the weights
        assert expected[0] > expected[1]
        if name.startswith("kernel mean matching"):
            # of features of a kernel inner products are known alone, whose constant does not cancel
            assert expected[1] < bounds[0] < expected[0]
            bounds[0] = expected[1]
        expected[0] = expected[1]
    assert bounds == pytest.approx(expected, abs=0.06)


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", CASES)
def test_programs_of_the_table_are_the_same(name: str) -> None:
    _, shipped, declared, _, _ = CASES[name]
    records = script.drawn(60)
    old = script.weights_of(shipped(0.1), records)
    new = script.weights_of(declared(0.1, math.inf), records)
    assert np.sum(np.abs(old - new)) <= 1e-9
    assert np.ptp(old) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["least dispersion", "entropy"])
def test_a_cap_keeps_small_ridges_affordable(name: str) -> None:
    made = {"least dispersion": script.least_dispersion, "entropy": script.even_entropy}[name]
    for ridge, cells in re.findall(
        rf"^\| {name} \| (\.\d+) \| (\d+\.\d \| \d\.\d\d) \|", PAGE, re.MULTILINE
    ):
        V, largest = (float(cell) for cell in cells.split(" | "))
        program = made(ridge=float(ridge))
        n = 4000
        universe = Universe(script.domain_of(n), n, script.P)
        assert program.stability(universe).V == pytest.approx(V, abs=0.06)
        assert np.max(script.weights_of(program, script.drawn(n))) == pytest.approx(
            largest, abs=0.006
        )
