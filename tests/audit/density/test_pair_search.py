"""The search over pairs: it finds the known worst cases and planted bugs, repeats, resumes and replays."""

import json

import numpy as np
import pytest
from joblib import parallel_config

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.audit import Finding, SearchPlan, replay, search_density
from dp2erm_cvx.audit.pairs import draw_pair, next_pair
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.problems.arm_means import plug_in_ate
from dp2erm_cvx.program import WholeSpace
from dp2erm_cvx.universe import Universe
from tests.audit.bugs import HalfTheNoise, HardlyAnyGamma

MEAN = plug_in_ate(WholeSpace())


def release(second=MEAN, cls=PrivateTwoStageERM, first="uniform", calibration="output", **settings):
    return cls(Domain(1.0, 1.0), Budget(1.0), first, second, calibration=calibration, **settings)


def same(one, other):
    return all(
        np.array_equal(a, b)
        for mine, theirs in ((one.first, other.first), (one.second, other.second))
        for a, b in zip(mine, theirs, strict=True)
    )


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


def test_the_worst_pair_of_a_mean_is_found():
    """The mean moves as far as it can, so that the loss is epsilon."""
    found = search_density(release(), 6, 2, search=SearchPlan(12), starts=2)
    assert not found.exceeds
    assert found.audit.loss >= 0.999
    assert found.counts["audited"] == 12
    assert found.counts["screened"] == 96
    assert not found.private
    assert "12 audited, 96 screened" in str(found)


@pytest.mark.parametrize(
    ("second", "bug", "calibration"), [(MEAN, HalfTheNoise, "output"), ("arm_means", HardlyAnyGamma, "sharp")]
)
def test_a_planted_bug_is_found_without_a_hint(second, bug, calibration):
    found = search_density(
        release(second, bug, calibration=calibration), 4, 1, search=SearchPlan(2), starts=1
    )
    assert found.exceeds
    assert "EXCEEDED" in str(found)


def test_gaussian_noise_is_searched_by_its_delta():
    def model(cls):
        domain, budget = Domain(1.0, 1.0), Budget(1.0, 0.05)
        return cls(domain, budget, "uniform", "plug_in_ate", noise="gaussian", arithmetic="assumed")

    found = search_density(model(HalfTheNoise), 3, 1, search=SearchPlan(1), draws=300)
    assert found.audit.hockey_stick.draws == 300
    assert found.exceeds


def test_a_search_repeats_and_resumes(tmp_path):
    def found(evaluations, **how):
        search = SearchPlan(evaluations, **{"seed": 3, **how})
        return search_density(release(), 4, 1, search=search, starts=1)

    whole, state = found(5), tmp_path / "state.npz"
    assert found(4, checkpoint=state).counts["audited"] == 4
    assert state.exists()
    with parallel_config(backend="threading"):
        rest = found(5, checkpoint=state, workers=2)
    assert same(rest, whole)
    assert (rest.audit, rest.counts) == (whole.audit, whole.counts)
    assert not same(found(1, seed=4), whole)
    with pytest.raises(DataError, match="another"):
        found(5, seed=4, checkpoint=state)
    state.write_bytes(b"no search")
    with pytest.raises(DataError):
        found(5, checkpoint=state)


def test_a_saved_pair_is_replayed(tmp_path):
    found = search_density(release(cls=HalfTheNoise), 5, 1, search=SearchPlan(2), starts=1)
    found.save(tmp_path / "worst")
    again = replay(tmp_path / "worst", release(cls=HalfTheNoise))
    assert again == found.audit
    assert Finding.load(tmp_path / "worst").facts["audit"]["loss"] == again.loss
    # another solver of the same model, and the same pair without the bug
    other = replay(tmp_path / "worst.json", release(cls=HalfTheNoise, solver="clarabel"))
    assert other.exceeds
    assert not replay(tmp_path / "worst", release()).exceeds
    assert json.loads((tmp_path / "worst.json").read_text())["private"] is False


def test_a_pair_of_another_model_is_not_replayed(tmp_path):
    search_density(release(), 5, 1, search=SearchPlan(1), starts=1).save(tmp_path / "worst")
    with pytest.raises(DeclarationError, match="second_stage differs"):
        replay(tmp_path / "worst", release("plug_in_ate"))
    with pytest.raises(DataError):
        replay(tmp_path / "missing", release())
    (tmp_path / "worst.json").write_text("[]")
    with pytest.raises(DataError):
        replay(tmp_path / "worst", release())


def test_an_arm_floor_without_pairs_is_refused():
    domain = Domain(1.0, 1.0, arm_floor=4)
    with pytest.raises(DeclarationError, match="arm_floor"):
        draw_pair(Universe(domain, 5, 1), np.random.default_rng(0))
