"""What one unit moves the sums of every law by: all pairs on small grids that follow from the table."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx.calibration import Noise, SumLaw, calibrate_sums
from dp2erm_cvx.calibration.sums import _ROWS, SHARE_BITS
from dp2erm_cvx.privacy import Budget

#: Scores in units of their bound and marks of one record; few for persons, whose records are averaged.
SCORES, FEW = (-1.3, -1.0, -0.5, -0.1, 0.0, 0.3, 0.5, 1.0, 1.3), (-1.0, -0.5, 0.0, 0.5, 1.0)
MARKS = {
    "arm": (0.0, 0.3, 0.7, 1.0),
    "treated": (0.0, 1.0),
    "share": (0.0, 0.1, 0.2371, 0.5),
    "whole": (0.0, 0.5),
    "counts": (0.0, 0.4, 1.0),
}
FEW_MARKS = {"arm": (0.0, 1.0), "share": (0.0, 0.25, 0.5), "whole": (0.5,), "counts": (1.0,)}
#: Those of persons: ARMS are of single records, COUNTED_ARMS of means, and who is treated is no mean.
OF_PERSONS = [law for law in SumLaw if law not in (SumLaw.ARMS, SumLaw.TREATED, SumLaw.WHOLE_GROUPS)]
BOTH = [Noise.GAMMA, Noise.GAUSSIAN]


def law_noise(law, kind):
    other = {"other_bound": 1.0} if law.of_arms else {}
    return calibrate_sums(law, 4.0, 100, Budget(1.0, 1e-6), kind, **other)


def records(law, scores=SCORES, marks=MARKS, groups=3):
    """The columns of all records of a law, (m, groups, columns): each is in one group."""
    row, found = _ROWS[law], []
    grid = itertools.product(*(scores,) * row.scores, *(marks[one] for one in row.marks))
    for one in map(list, grid):
        if law is SumLaw.CONTRASTS and 0.0 not in one:
            continue
        if law is SumLaw.WITHIN:
            one[0] = 2.0 * one[1] * min(max(one[0], -1.0), 1.0)
        for place in range(groups if row.groups else 1):
            found.append(np.zeros((groups if row.groups else 1, len(one))))
            found[-1][place] = one
    return np.array(found)


def means(rows, most):
    """Those of all lists of at most ``most`` of these records, the empty one too."""
    lists = (itertools.combinations_with_replacement(rows, size) for size in range(1, most + 1))
    found = [np.zeros_like(rows[0]), *(np.mean(one, axis=0) for one in itertools.chain(*lists))]
    return np.unique(found, axis=0)


def added(noise, units):
    """What every unit adds to the sums, (m, sums)."""
    scores, law = _ROWS[noise.law].scores, noise.law
    units = np.array(units)
    units[:, :, :scores] *= noise.bound
    if law is SumLaw.DISJOINT:  # one count for all groups
        return np.array([noise.totals(*one[:, :1], [one[:, 1].sum()]) for one in units], dtype=np.float64)
    if _ROWS[law].groups:  # of several groups together at most one half
        units[:, :, 1] = np.floor(units[:, :, 1] * 2**SHARE_BITS) / 2**SHARE_BITS
    sums = [[noise.totals(*own[:, None]) for own in one] for one in units]
    return np.array(sums, dtype=np.float64).reshape(len(units), -1)


def movement(points, kind):
    """The largest distance of two of these rows, in the norm of the noise."""
    order = 1 if kind is Noise.GAMMA else 2
    return max(float(np.linalg.norm(points - one, order, axis=1).max()) for one in np.unique(points, axis=0))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("law", "persons"), [*((law, False) for law in SumLaw), *((law, True) for law in OF_PERSONS)]
)
def test_no_unit_moves_a_law_of_sums_by_more_than_is_stated(law, persons, kind):
    noise, units = law_noise(law, kind), records(law)
    if persons:
        units = means(records(law, FEW, FEW_MARKS, 3 if law is SumLaw.DISJOINT else 2), 3)
    stated = noise.sensitivity
    # in the l2 norm what is stated of both arms is rounded up, and few shares of persons miss the largest
    least = 0.85 if law.of_arms and kind is Noise.GAUSSIAN else 0.985 - 0.085 * persons
    assert least * stated < movement(added(noise, units), kind) <= stated
    # planted: scores of up to twice their bound, at the factors of the noise
    wide = replace(noise, largest=2 * noise.largest, largest_other=2 * noise.largest_other)
    factors = np.array(noise.multipliers) / np.array(wide.multipliers, dtype=np.float64)
    if not persons:
        points = added(wide, units)
        tiled = np.resize(factors[:2] if law is SumLaw.DISJOINT else factors, points.shape[1])
        tiled[-1] = factors[-1]
        assert movement(points * tiled, kind) > 1.4 * stated
