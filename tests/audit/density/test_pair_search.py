"""The search over pairs: it finds the known worst cases and planted bugs, repeats, resumes and replays."""

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import SearchPlan, search_density
from dp2erm_cvx.audit.pairs import Pairs, draw_pair, next_pair
from dp2erm_cvx.audit.search import Gain, explore
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.privacy import Neighboring
from tests.audit.bugs import MEAN, HalfTheNoise, HardlyAnyGamma, release
from tests.audit.pairs import of_persons

OUTPUT = {"second": MEAN, "calibration": "output"}


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("floor", [None, 2])
def test_pairs_are_neighbors_inside_the_domain(relation, floor):
    domain = Domain(
        2.0,
        3.0,
        10.0,
        0.5,
        ranges=[(-5.0, 1.0), (0.0, 2.0)],
        intercept=1.0,
        arm_floor=floor,
        relation=relation,
    )
    universe, rng = Universe(domain, 7, 2), np.random.default_rng(0)
    flips = moves = 0
    for _ in range(60):
        pair = draw_pair(universe, rng)
        for _ in range(3):
            first, second = pair.raw(domain)
            assert all(np.array_equal(one[1:], other[1:]) for one, other in zip(first, second, strict=True))
            for X, a, y in (first, second):
                assert floor is None or floor <= a.sum() <= 7 - floor
                records = domain.records(X, a, y)
                # nothing is clipped: what was drawn is what is audited
                np.testing.assert_allclose(
                    records.covariates, pair.X[0, [0 if X is first[0] else 1, *pair.order]], atol=1e-9
                )
                assert np.all(np.abs(y - 10.0 - 0.5 * a) <= 3.0 + 1e-9)
            flips += first[1][0] != second[1][0]
            changed = next_pair(universe, pair, rng)
            moves += not np.array_equal(changed.X, pair.X)
            pair = changed
    assert (flips > 0) == (relation is Neighboring.REPLACE_ONE)
    assert moves > 40


@pytest.mark.parametrize(
    "settings", [OUTPUT | {"cls": HalfTheNoise}, {"second": "arm_means", "cls": HardlyAnyGamma}]
)
def test_a_planted_bug_is_found_without_a_hint(settings):
    result = search_density(release(**settings), 4, 1, search=SearchPlan(2), starts=1)
    assert result.exceeds
    assert "EXCEEDED" in str(result)


def test_pairs_of_persons_come_back_from_a_checkpoint(tmp_path):
    universe, path = Universe(of_persons(), 8, 1), tmp_path / "state"

    def look(state, number, room):
        rng = np.random.default_rng(number)
        pair = next_pair(universe, state.elite("sum", rng), rng)
        return Gain(1, [({"sum": float(pair.y.sum())}, pair)])

    known = explore(look, SearchPlan(9), wave=2)
    for evaluations in (4, 9):
        state = explore(look, SearchPlan(evaluations, checkpoint=path), wave=2, kinds=[Pairs])
    for one, other in zip(known.pairs("sum"), state.pairs("sum"), strict=True):
        for data, same in zip(one.raw(universe.domain), other.raw(universe.domain), strict=True):
            assert all(map(np.array_equal, data, same))
