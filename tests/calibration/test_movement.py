"""What one record moves the sums of every law by: all pairs on small grids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx.calibration import Noise, SumLaw, calibrate_sums
from dp2erm_cvx.privacy import Budget

SCORES, SHARES = (-1.3, -1.0, -0.5, -0.1, 0.0, 0.3, 0.5, 1.0, 1.3), (0.0, 0.1, 0.2371, 0.5)
#: Columns of one record by law: scores in units of their bound, then marks.
RECORDS = {
    SumLaw.SCORE: [(s,) for s in SCORES],
    SumLaw.CONTRASTS: [pair for s in SCORES for pair in ((s, 0.0), (0.0, s))],
    SumLaw.ARMS: [(s, o, mark) for s in SCORES for o in SCORES for mark in (0.0, 0.3, 0.7, 1.0)],
    SumLaw.COUNTED_ARMS: [
        row for s in SCORES for o in SCORES for h in (0.0, 1.0) for row in ((s, o, 1.0, h), (o, s, 0.0, h))
    ],
    SumLaw.TREATED: [(s, a) for s in SCORES for a in (0.0, 1.0)],
    SumLaw.OVERLAP: [(s, h) for s in SCORES for h in SHARES],
    SumLaw.WITHIN: [(2.0 * h * min(max(s, -1.0), 1.0), h) for s in SCORES for h in SHARES],
    SumLaw.WHOLE: [(s, h) for s in SCORES for h in (0.0, 0.5)],
    SumLaw.GROUPS: [(s, h) for s in SCORES for h in SHARES],
    SumLaw.WHOLE_GROUPS: [(s, h) for s in SCORES for h in (0.0, 0.5)],
    SumLaw.DISJOINT: [(s, h) for s in SCORES for h in (0.0, 1.0)],
}
#: Of disjoint groups, or arms: a record is in one of three.
GROUPED = (SumLaw.GROUPS, SumLaw.WHOLE_GROUPS, SumLaw.DISJOINT)
OF_ARMS = (SumLaw.ARMS, SumLaw.COUNTED_ARMS)
BOTH = [Noise.GAMMA, Noise.GAUSSIAN]


def law_noise(law, kind):
    other = {"other_bound": 1.0} if law.of_arms else {}
    return calibrate_sums(law, 4.0, 100, Budget(1.0, 1e-6), kind, **other)


def total(noise, row):
    scores = 2 if noise.law in (SumLaw.CONTRASTS, *OF_ARMS) else 1
    return noise.totals(*([part * (noise.bound if k < scores else 1.0)] for k, part in enumerate(row)))


def added(noise, rows):
    """What every table of one record adds, (m, sums): to one group of three where there are groups."""
    found = []
    for row in rows:
        own, count = total(noise, row), ()
        if noise.law is SumLaw.DISJOINT:  # one count for all groups
            own, count = own[:-1], own[-1:]
        for place in range(3 if noise.law in GROUPED else 1):
            groups = np.zeros((3 if noise.law in GROUPED else 1, len(own)))
            groups[place] = own
            found.append((*groups.ravel(), *count))
    return np.array(found, dtype=np.float64)


def movement(points, kind):
    """The largest distance of two of these rows, in the norm of the noise."""
    order = 1 if kind is Noise.GAMMA else 2
    return max(float(np.linalg.norm(points - one, order, axis=1).max()) for one in np.unique(points, axis=0))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("law", list(SumLaw))
def test_no_record_moves_a_law_of_sums_by_more_than_is_stated(law, kind):
    noise = law_noise(law, kind)
    stated = noise.integers.sensitivity
    # in the l2 norm what is stated of both arms is rounded up
    least = 0.85 if law in OF_ARMS and kind is Noise.GAUSSIAN else 0.985
    assert least * stated < movement(added(noise, RECORDS[law]), kind) <= stated
    # planted: scores of up to twice their bound, at the factors of the noise
    wide = replace(noise, largest=2 * noise.largest, largest_other=2 * noise.largest_other)
    factors = np.array(noise.multipliers) / np.array(wide.multipliers, dtype=np.float64)
    if law is SumLaw.DISJOINT:
        factors = np.array([*np.tile(factors[:-1], 3), factors[-1]])
    elif law in GROUPED:
        factors = np.tile(factors, 3)
    assert movement(added(wide, RECORDS[law]) * factors, kind) > 1.4 * stated
