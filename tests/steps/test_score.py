"""Propensities at which records are scored, and sums over blocks of them."""

import itertools

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, blocks
from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.domain import Records, Universe, cleaned
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.sampling import SamplingWeights
from dp2erm_cvx.steps.cells import CellSums, Partition
from dp2erm_cvx.steps.nuisances import LinearNuisances
from dp2erm_cvx.steps.record_map import Arms, OutcomeRows, Rows, Term
from dp2erm_cvx.steps.score import AverageScore, OverlapScore, Parts, RiskScores, TreatedScore
from dp2erm_cvx.steps.sums import TreatmentRate
from tests.steps.scored import estimated


@pytest.mark.parametrize(
    ("kind", "least"),
    # the odds of controls are capped from above alone: a floor would give weight to those hardly ever treated
    [(AverageScore, 0.2), (TreatedScore, 0.0)],
)
def test_inverse_propensities_are_capped_and_what_is_no_number_is_a_half(kind, least):
    logits = np.array([-60.0, -5.0, 0.3, 5.0, 60.0])
    x = logits[:, None]
    records = Records(x, np.zeros(5, int), np.zeros(5), Domain(covariate_bound=60.0, outcome_bound=1.0))
    score = kind(LinearNuisances((), 0.5, Term(Rows.POOLED, "propensity")), 5.0, 1.0, 4.0)
    result = score.parts(records, {"propensity": np.array([0.0, 1.0])}).e
    exact = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(result, np.clip(exact, least, 0.8), rtol=1e-12, atol=1e-15)
    broken = score.parts(records, {"propensity": np.array([np.inf, -np.inf])}).e
    assert set(broken) <= {0.5, 0.8, least}


def of_all_at_once(kind, records, released, noise):
    """The sums of one array of scores, as they were written before there were blocks."""
    x, bound = records.covariates, records.domain.outcome_bound
    m_0, m_1 = (
        cleaned(Rows.COMMON.predict(released["center"], x, arm * np.ones(len(x))), bound)
        for arm in (0.0, 1.0)
    )
    e = np.full(len(x), released["rate"][0] / len(x))
    treated = records.a == 1
    r = cleaned(records.y - np.where(treated, m_1, m_0), 1.5)
    given = Parts(m_0, m_1, (released["center"][1] - released["center"][0]), e, treated, r)
    # what the bound of an average effect follows
    widening = {AverageScore: 0.5 / e[0], RiskScores: (1.0 / e[0] - 0.5) / 1.5}.get(kind, 1.0)
    sampled = records.sampling is not None
    score = kind(LinearNuisances((), 0.5), 5.0, 1.5, 4.0, sampled=sampled, widening=widening)
    if not sampled:
        return noise.totals(*score.columns(given, np.ones(len(x))))
    half = 0.5 / kind.largest_share * records.counts
    return noise.totals(half * score.score(given) / widening, half * score.mass(given))


def drawn(n, sampled, seed):
    """Records, with sampling weights or without."""
    rng, book = np.random.default_rng(seed), Codebook(sampling_weights=SamplingWeights("s", 4.0))
    domain = Domain(covariate_bound=2.0, outcome_bound=0.5, codebook=book if sampled else None)
    weights = rng.uniform(0, 5, n) if sampled else None
    return domain.records(rng.normal(size=(n, 2)), rng.integers(0, 2, n), rng.normal(size=n), weights)


@pytest.mark.parametrize(
    ("kind", "sampled"),  # no plan takes sampling weights for risks
    [*itertools.product([AverageScore, TreatedScore, OverlapScore], [False, True]), (RiskScores, False)],
)
def test_sums_do_not_depend_on_the_blocks_and_are_of_all_records(kind, sampled, monkeypatch):
    records = drawn(99, sampled, 5)
    # the number of treated is divided by that of all records, whatever is in a block
    nuisances = LinearNuisances((Term(Rows.COMMON, "center"),), "rate")
    score = kind(nuisances, 5.0, 1.5, 4.0, sampled=sampled)
    score = score.plan(Universe(records.domain, 99, 2), Budget(1.0), {})
    released = {"center": np.array([0.1, 0.3, -0.2, 0.05]), "rate": np.array([40])}
    known = of_all_at_once(kind, records, released, score.calibration)
    for rows in (1000, 50, 7, 1):
        monkeypatch.setattr(blocks, "VIEW", rows)
        assert score.exact_sums(records, released) == known
    some = Records(records.X[1:], records.a[1:], records.y[1:], records.domain)
    with pytest.raises(DeclarationError, match="98 records: the noise is for 99"):
        score.exact_sums(some, released)


@pytest.mark.parametrize("sampled", [False, True])
def test_cells_and_counts_do_not_depend_on_the_blocks(sampled, monkeypatch):
    records = drawn(41, sampled, 6)
    universe = Universe(records.domain, 41, 2)
    cells = CellSums(share=0.5, partition=Partition(((0.0,), (-0.5, 0.5)))).plan(universe, Budget(1.0), {})
    rate = TreatmentRate(share=0.5).plan(universe, Budget(1.0), {})
    known = [tuple(plan.exact_sums(records, {})) for plan in (cells, rate)]
    assert sum(known[0]) == sum(np.rint(2**20 * records.counts))
    whole = np.rint(2**20 * records.counts).astype(int)
    by_arm = (sum(whole[records.a == 1]), sum(whole[records.a == 0]))
    assert known[1] == (by_arm if sampled else (sum(records.a),))
    for rows in (20, 7, 1):
        monkeypatch.setattr(blocks, "VIEW", rows)
        assert [tuple(plan.exact_sums(records, {})) for plan in (cells, rate)] == known


def two_arms(p, mu_0, mu_1, seed=4):
    """Noise-free records of which a share p is treated, with covariates that are off by Delta."""
    rng, n = np.random.default_rng(seed), 600
    a = np.repeat([1, 0], [round(p * n), n - round(p * n)])
    x = rng.normal(size=(n, 2)) * 0.3 + np.outer(a, [0.3, -0.2])
    y = np.where(a == 1, mu_1(x), mu_0(x))
    delta = x[a == 1].mean(axis=0) - x[a == 0].mean(axis=0)
    return Domain(4.0, 30.0).records(x, a, y), a, delta, float(np.mean((mu_1(x) - mu_0(x))[a == 1]))


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_the_bias_among_the_treated_is_that_of_the_slopes_of_the_untreated(p):
    """Whatever the treated have for an outcome, and whatever the intercepts are."""
    slope, line = np.array([1.0, -0.5]), np.array([0.4, 0.7, 0.3, 0.9])
    records, _, delta, truth = two_arms(p, lambda x: 0.2 + x @ slope, lambda x: 2.0 + np.sin(3 * x[:, 0]))
    score = TreatedScore(LinearNuisances((Term(Rows.COMMON, "center"),), p), 90.0, 50.0, 500.0)
    result = estimated(score, records, {"center": line})
    assert result - truth == pytest.approx(float((slope - line[2:]) @ delta), abs=1e-10)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_controls_alone_make_it_exact_where_effects_vary(p):
    slopes = np.array([[0.5, -1.0], [2.0, 0.7]])
    records, a, delta, truth = two_arms(p, lambda x: x @ slopes[0], lambda x: 5.0 + x @ slopes[1])

    def effect(arms):
        where = OutcomeRows(Rows.COMMON, arms=arms, rate=p)
        mapped = where.records(records, {})
        theta = np.linalg.lstsq(mapped.X, mapped.y, rcond=None)[0]
        score = TreatedScore(LinearNuisances((Term(Rows.COMMON, "center"),), p), 90.0, 50.0, 500.0)
        return theta, estimated(score, records, {"center": theta})

    theta, result = effect(Arms.CONTROLS)
    assert theta[2:] == pytest.approx(slopes[0], abs=1e-10)
    assert theta[1] == pytest.approx(np.mean(records.y[a == 1]), abs=1e-10)  # so no residual holds the effect
    assert result == pytest.approx(truth, abs=1e-10)
    # planted: slopes of both arms
    theta, result = effect(Arms.ALIKE)
    assert result - truth == pytest.approx(float((slopes[0] - theta[2:]) @ delta), abs=1e-10)
    assert abs(result - truth) > 0.02


def whole_law(e, mu_0, mu_1):
    """Records of three covariates, of which a share e of ten is treated: their law is exact."""
    x, a = np.repeat([-1.0, 0.2, 0.9], 10)[:, None], np.tile(np.arange(10), 3)
    a = (a < np.repeat(10 * np.array(e), 10) - 0.5).astype(int)
    return Domain(2.0, 30.0).records(x, a, np.where(a == 1, mu_1(x[:, 0]), mu_0(x[:, 0])))


def test_the_bias_of_overlap_is_a_product_of_errors_at_the_released_weights():
    e, x = np.array([0.2, 0.4, 0.7]), np.array([-1.0, 0.2, 0.9])
    mu_0, mu_1 = np.cos, lambda x: 1.0 + x**2
    released = {"center": np.array([0.3, 0.8, -0.4]), "propensity": np.array([0.3, 1.1])}
    # 0.2 and 0.7 lie beyond a cap of 2.5, which would be no weights that a file states
    nuisances = LinearNuisances((Term(Rows.COMMON, "center"),), 0.5, Term(Rows.POOLED, "propensity"))
    score = OverlapScore(nuisances, 2.5, 50.0, 500.0)
    result = estimated(score, whole_law(e, mu_0, mu_1), released)
    own = 1 / (1 + np.exp(-0.3 - 1.1 * x))
    h, off = np.minimum(own, 1 - own), [mu_0(x) - 0.3 + 0.4 * x, mu_1(x) - 0.8 + 0.4 * x]
    truth = np.sum(h * (mu_1(x) - mu_0(x))) / np.sum(h)
    bias = np.sum((e - own) * (h / own * off[1] + h / (1 - own) * off[0])) / np.sum(h)
    assert result - truth == pytest.approx(bias, abs=1e-10)
    assert abs(bias) > 0.05


def test_matched_weights_make_it_a_product_of_the_second_order():
    """With the log odds off by a little, lines fitted at them leave the square of that, others a multiple."""
    e, x = np.array([0.2, 0.5, 0.8]), np.array([-1.0, 0.2, 0.9])
    records = whole_law(e, np.cos, lambda x: 1.0 + 2 * x**2)
    right = np.polyfit(x, np.log(e / (1 - e)), 1)[::-1]
    e = 1 / (1 + np.exp(-right[0] - right[1] * x))  # the law of treatment whose log odds are linear

    def bias(arms, error):
        released = {"propensity": right + error * np.array([0.5, 1.0])}
        log_odds = Term(Rows.POOLED, "propensity")
        where = OutcomeRows(Rows.COMMON, arms=arms, rate=0.5, log_odds=log_odds)
        mapped, factors = where.records(records, released), where.factors(records, released)
        # each of the ten counts by how likely its arm is
        share = np.repeat(e, 10)
        law = np.where(records.a == 1, share, 1 - share) / np.where(records.a == 1, ARM, 1 - ARM)
        root = np.sqrt(factors * law)
        theta = np.linalg.lstsq(root[:, None] * mapped.X, root * mapped.y, rcond=None)[0]
        own = 1 / (1 + np.exp(-log_odds.predict(x[:, None], 0, released)))
        h = np.minimum(own, 1 - own)
        off = [np.cos(x) - theta[0] - theta[2] * x, 1 + 2 * x**2 - theta[1] - theta[2] * x]
        return np.sum((e - own) * (h / own * off[1] + h / (1 - own) * off[0])) / np.sum(h)

    assert bias(Arms.MATCHED, 0.0) == pytest.approx(0.0, abs=1e-12)
    small, large = bias(Arms.MATCHED, 1e-3), bias(Arms.MATCHED, 2e-3)
    assert large / small == pytest.approx(4.0, rel=0.05)
    # planted: records that count alike
    small, large = bias(Arms.ALIKE, 1e-3), bias(Arms.ALIKE, 2e-3)
    assert large / small == pytest.approx(2.0, rel=0.05)


ARM = np.repeat([0.2, 0.5, 0.8], 10)


@pytest.mark.parametrize("coefficient", [0.0, 3.0, -40.0, 1e6, -1e308])
def test_matched_weights_lie_between_0_and_1_and_are_those_of_the_score(coefficient):
    rng = np.random.default_rng(2)
    records = Domain(1.5, 2.0).records(rng.normal(size=(50, 2)), rng.integers(0, 2, 50), rng.normal(size=50))
    released = {"propensity": np.array([0.5, coefficient, -coefficient])}
    log_odds = Term(Rows.POOLED, "propensity")
    factors = OutcomeRows(Rows.COMMON, arms=Arms.MATCHED, rate="rate", log_odds=log_odds).factors(
        records, released
    )
    assert np.all((factors >= 0.0) & (factors <= 1.0))
    score = OverlapScore(LinearNuisances((), 0.5, log_odds), 2.0, 1.0, 4.0)
    e = score.parts(records, released).e
    own = np.where(records.a == 1, e, 1 - e)
    inside = own > 0.0
    expected = np.minimum(own, 1 - own)[inside] * (1 - own[inside]) / own[inside]
    assert factors[inside] == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("rate", [1, 20, 50, 80, 99])
@pytest.mark.parametrize("kind", [TreatedScore, OverlapScore])
def test_no_released_rate_lets_a_record_add_more_than_is_calibrated(kind, rate):
    """The worst record, scored by the worst line: its sums, and those of the one that takes its place."""
    domain, n = Domain(1.0, 5.0), 100
    nuisances = LinearNuisances((Term(Rows.COMMON, "center"),), "rate", None)
    score = kind(nuisances, 10.0, 4.0, 4.0).plan(Universe(domain, n, 1), Budget(1.0), {})
    noise = score.calibration
    largest = 0
    for line in ([0.0, 0.0, 0.0], [50.0, -50.0, 9.0], [-50.0, 50.0, -9.0]):
        released = {"center": np.array(line), "rate": np.array([rate])}
        own = score.at(Universe(domain, n, 1), released)
        sums = []
        for a in (0, 1):
            for y in (-5.0, 5.0):
                one = domain.records(np.ones((1, 1)), np.array([a]), np.array([y]))
                sums.append(own.block_sums(one, released))
        for first in sums:
            for second in sums:
                largest = max(largest, sum(abs(u - v) for u, v in zip(first, second, strict=True)))
    assert largest <= noise.sensitivity
    assert largest > 0.5 * noise.sensitivity
