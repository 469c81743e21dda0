"""Claims of many neighbors are those of the certificate of one dataset, at any points."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, WeightingForm
from dp2erm_cvx.weighting.neighbors.claims import NeighborClaims, NeighborPoints
from dp2erm_cvx.weighting.neighbors.data import NeighboringData, ReplacedRows
from dp2erm_cvx.weighting.neighbors.together import FormNeighbors
from dp2erm_cvx.weighting.solving.certificate import Point, certified_distance
from dp2erm_cvx.weighting.solving.dataset import weighting_data
from dp2erm_cvx.weighting.solving.dual import DualProblem
from dp2erm_cvx.weighting.solving.multipliers import weights_at
from tests.weighting.examples import form_of, moments_by_arm, records_of
from tests.weighting.test_neighbors import FORMS, N, drawn_neighbors

M = 6
KINK = form_of(N, moments_by_arm(ImbalancePenalty(math.inf, price=0.1)))
KINKED_NORM = form_of(N, moments_by_arm(ImbalancePenalty(math.inf, price=0.1, norm=2)))


def claims_of_both(form: WeightingForm, noise: float) -> tuple[Array, Array]:
    """Claims (m,) of neighbors at points off by ``noise``: together, and each by its own
    certificate.
    """
    generator = np.random.default_rng(7)
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    neighboring = NeighboringData(weighting_data(form, records), records)
    part = neighboring.replaced(index, new)
    alone = []
    columns: list[list[Array]] = [[], [], [], [], []]
    for k in range(M):
        data = weighting_data(form, records.replaced(int(index[k]), new.X[k], int(new.a[k])))
        problem = DualProblem(form, records.replaced(int(index[k]), new.X[k], int(new.a[k])))
        outer = problem.outer_point(problem.newton())
        y = outer.y * (1.0 + noise * generator.normal(size=len(outer.y)))
        s = np.empty_like(y)
        prices = np.empty_like(y)
        for one in data.priced:
            here = one.columns
            step = float(outer.step[here][0])
            s[here] = one.proximal_point(y[here], step)
            prices[here] = one.price(s[here], (y[here] - s[here]) / step)
        multipliers = outer.multipliers + noise * 0.01 * generator.normal(
            size=len(outer.multipliers)
        )
        price = -(data.rows @ prices) - data.linear
        weights, argument = weights_at(data, price, multipliers)
        alone.append(certified_distance(data, Point(s, prices, multipliers))[1])
        for column, row in zip(columns, (s, prices, multipliers, argument, weights), strict=True):
            column.append(row)
    points = NeighborPoints(*(np.array(column) for column in columns))
    return NeighborClaims(neighboring).claims(points, part), np.array(alone)


@pytest.mark.one_row_in(24)
@pytest.mark.parametrize("name", [*FORMS, "kink", "kinked norm"])
@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_claims_are_those_of_one_dataset(name: str, noise: float) -> None:
    form = {**FORMS, "kink": KINK, "kinked norm": KINKED_NORM}[name]
    together, alone = claims_of_both(form, noise)
    known = np.isfinite(together)
    assert np.sum(known) >= M - 2
    # A common response and rows are some per cent larger; middles of blocks are those of the base.
    assert np.all(together[known] >= 0.97 * alone[known])
    assert np.all(together[known] <= 3.0 * alone[known])


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("wrong", ["rows", "targets"])
@pytest.mark.parametrize("name", ["squares", "logit", "sums: public"])
def test_wrong_data_of_neighbors_are_seen(
    name: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison with single solves fails where a neighbor is solved with the data of
    another.
    """
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    right = FormNeighbors(FORMS[name], records).together(index, new)
    replaced = NeighboringData.replaced

    def mistaken(self: NeighboringData, numbers: Array, others: object) -> ReplacedRows:
        part = replaced(self, numbers, others)  # type: ignore[arg-type]
        return replace(part, **{wrong: getattr(part, wrong) * (1.0 + 1e-6)})

    monkeypatch.setattr(NeighboringData, "replaced", mistaken)
    off = FormNeighbors(FORMS[name], records).together(index, new)
    apart = np.sum(np.abs(off.weights - right.weights), axis=1)
    assert np.any(apart > off.claims + right.claims)
