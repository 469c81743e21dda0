"""Propensities at which records are scored, and sums over blocks of them."""

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, blocks
from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.domain import Records, cleaned
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.mechanism import overlap_sums
from dp2erm_cvx.sampling import SamplingWeights
from dp2erm_cvx.steps import (
    AverageScore,
    CellSums,
    OverlapScore,
    Partition,
    RiskScores,
    Rows,
    Term,
    TreatedScore,
    TreatmentRate,
)
from dp2erm_cvx.steps.nuisances import LinearNuisances
from dp2erm_cvx.steps.score import Parts
from dp2erm_cvx.universe import Universe


@pytest.mark.parametrize(
    ("kind", "least"),
    # the odds of controls are capped from above alone: a floor would give weight to those hardly ever treated
    [(AverageScore, 0.2), (TreatedScore, 0.0)],
)
def test_inverse_propensities_are_capped_and_what_is_no_number_is_a_half(kind, least):
    logits = np.array([-60.0, -5.0, 0.3, 5.0, 60.0])
    x = logits[:, None]
    records = Records(x, np.zeros(5, int), np.zeros(5), Domain(covariate_bound=60.0, outcome_bound=1.0))
    score = kind(LinearNuisances((), "propensity"), 5.0, 1.0, 4.0)
    found = score.parts(records, {"propensity": np.array([0.0, 1.0])}).e
    exact = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(found, np.clip(exact, least, 0.8), rtol=1e-12, atol=1e-15)
    broken = score.parts(records, {"propensity": np.array([np.inf, -np.inf])}).e
    assert set(broken) <= {0.5, 0.8, least}


def of_all_at_once(kind, records, released, noise):
    """The sums of one array of scores, as they were written before there were blocks."""
    x, bound = records.covariates, records.domain.outcome_bound
    m_0, m_1 = (
        cleaned(Rows.COMMON.predict(released["center"], x, arm * np.ones(len(x))), bound)
        for arm in (0.0, 1.0)
    )
    e = np.full(len(x), released["propensity"][0] / len(x))
    treated = records.a == 1
    r = cleaned(records.y - np.where(treated, m_1, m_0), 1.5)
    given = Parts(m_0, m_1, (released["center"][1] - released["center"][0]), e, treated, r)
    score = kind(LinearNuisances((), 0.5), 5.0, 1.5, 4.0, sampled=records.sampling is not None)
    if not score.sampled:
        return score.unweighted_sums(given, noise)
    half = 0.5 / kind.largest_share * records.counts
    return overlap_sums(half * score.score(given), half * score.share(given), noise)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("kind", [AverageScore, TreatedScore, OverlapScore, RiskScores])
def test_sums_do_not_depend_on_the_blocks_and_are_of_all_records(kind, sampled, monkeypatch):
    n, rng = 99, np.random.default_rng(5)
    book = Codebook(sampling_weights=SamplingWeights("s", 4.0)) if sampled else None
    domain = Domain(covariate_bound=2.0, outcome_bound=0.5, codebook=book)
    weights = rng.uniform(0, 5, n) if sampled else None
    records = domain.records(rng.normal(size=(n, 2)), rng.integers(0, 2, n), rng.normal(size=n), weights)
    # the number of treated is divided by that of all records, whatever is in a block
    nuisances = LinearNuisances((Term(Rows.COMMON, "center"),), "propensity", constant=True)
    score = kind(nuisances, 5.0, 1.5, 4.0, sampled=sampled)
    noise = score.calibrate(n, Budget(1.0), "gamma")
    released = {"center": np.array([0.1, 0.3, -0.2, 0.05]), "propensity": np.array([40])}
    known = of_all_at_once(kind, records, released, noise)
    for rows in (1000, 50, 7, 1):
        monkeypatch.setattr(blocks, "BLOCK", rows)
        assert score.sums(records, released, noise) == known
    some = Records(records.X[1:], records.a[1:], records.y[1:], domain)
    with pytest.raises(DeclarationError, match="98 records: the noise is for 99"):
        score.sums(some, released, noise)


@pytest.mark.parametrize("sampled", [False, True])
def test_cells_and_counts_do_not_depend_on_the_blocks(sampled, monkeypatch):
    n, rng = 41, np.random.default_rng(6)
    book = Codebook(sampling_weights=SamplingWeights("s", 4.0)) if sampled else None
    domain = Domain(covariate_bound=2.0, outcome_bound=0.5, codebook=book)
    weights = rng.uniform(0, 5, n) if sampled else None
    records = domain.records(rng.normal(size=(n, 2)), rng.integers(0, 2, n), rng.normal(size=n), weights)
    universe = Universe(domain, n, 2)
    cells = CellSums(Partition(((0.0,), (-0.5, 0.5))), 0.5).plan(universe, Budget(1.0), {})
    rate = TreatmentRate(0.5).plan(universe, Budget(1.0), {})
    known = [tuple(plan.exact_sums(records, {})) for plan in (cells, rate)]
    assert sum(known[0]) == sum(np.rint(2**20 * records.counts))
    whole = np.rint(2**20 * records.counts).astype(int)
    by_arm = (sum(whole[records.a == 1]), sum(whole[records.a == 0]))
    assert known[1] == (by_arm if sampled else (sum(records.a),))
    for rows in (20, 7, 1):
        monkeypatch.setattr(blocks, "BLOCK", rows)
        assert [tuple(plan.exact_sums(records, {})) for plan in (cells, rate)] == known
