"""Whether the loss of a record in a second stage is a function of that record alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.conformance.company import KEPT, SIZE, Company, companies
from dp2erm_cvx.conformance.noise_terms import smooth_of
from dp2erm_cvx.conformance.outcome import Outcome, failed, passed
from dp2erm_cvx.conformance.perturbation import points_of
from dp2erm_cvx.conformance.samples import unequal_weights
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.program import SecondStage

_ROUNDING = 1e-7
#: The places of the two records whose losses are compared, and others that they are moved to.
_FIRST, _SECOND = KEPT[:2]
_ORDER = [2, 1, _FIRST, 3, _SECOND, 4, 6, 7]


def contributions(subject: Subject) -> Outcome:
    """What weight brings that moves from one record to another, whatever the other records are.

    Theorems 1 and 2 count one changed loss: a response centered by the sample, or a loss scaled by the size
    of its arm, changes all of them.
    """
    check, program = "own record", subject.program
    assert isinstance(program, SecondStage)
    for same_arms in (True, False):
        for company in companies(same_arms=same_arms, seed=subject.seed):
            for theta in points_of(program, company.here[0], subject.seed):
                found = list(_moved(program, company, theta))
                scale = 1e-12 + max(size for _, size in found)
                if any(not np.max(np.abs(one - found[0][0])) <= _ROUNDING * scale for one, _ in found):
                    return failed(
                        check,
                        "the loss of one record depends on the other records: Theorems 1 and 2 need "
                        "sum_i w_i l(theta; d_i)",
                    )
    return passed(check, "losses are a record's own, whatever the others are")


def _moved(program: SecondStage, company: Company, theta: Array) -> Iterator[tuple[Array, float]]:
    """Difference of the two losses' gradients, and the size of what it is a difference of."""
    for records in (*company.here, *company.there):
        yield _difference(program, records, _FIRST, _SECOND, theta)
    first = company.there[0]
    moved = Records(first.X[_ORDER], first.a[_ORDER], first.y[_ORDER], first.domain)
    yield _difference(program, moved, _ORDER.index(_FIRST), _ORDER.index(_SECOND), theta)


def _difference(
    program: SecondStage, records: Records, one: int, other: int, theta: Array
) -> tuple[Array, float]:
    weights = unequal_weights(SIZE)
    step = 0.5 * min(weights[one], weights[other])
    shift = np.zeros(SIZE)
    shift[one], shift[other] = step, -step
    after = smooth_of(program.instance(records, weights + shift, gamma=0.0)).gradient(theta)
    before = smooth_of(program.instance(records, weights - shift, gamma=0.0)).gradient(theta)
    return (after - before) / (2 * step), float(np.max(np.abs(before))) / step
