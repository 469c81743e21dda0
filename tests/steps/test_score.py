"""What scores estimate, exactly, with lines that were released; and sums over blocks of them."""

import numpy as np
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, Universe
from dp2erm_cvx.calibration import SumLaw
from dp2erm_cvx.data import blocks
from dp2erm_cvx.data.counts import SamplingWeights
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.steps.nuisances import LinearNuisances, RidgeFit
from dp2erm_cvx.steps.record_map import Arms, OutcomeRows, Rows, Term
from dp2erm_cvx.steps.score import (
    AverageScore,
    EffectScore,
    OverlapScore,
    Parts,
    RiskScores,
    TreatedScore,
)
from dp2erm_cvx.steps.sums import TreatmentRate

LINE, LOG_ODDS = Term(Rows.COMMON, "center"), Term(Rows.POOLED, "propensity")
#: The regression of one covariate that is 0 everywhere.
NOTHING = Term(Rows.POOLED, (0.0, 0.0))


def estimated(score, records, released):
    """What the sums estimate: the mean of the score over that of what records count."""
    own = score.at(records, released)
    parts, counts = own.parts(records, released), records.counts
    return np.sum(counts * own.score(parts)) / np.sum(counts * own.mass(parts)) + own.center


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    # the odds of controls are capped from above alone: a floor would give weight to those hardly
    # ever treated
    [(AverageScore, 0.2, 0.8), (TreatedScore, 0.0, 0.8), (OverlapScore, 0.0, 1.0)],
)
def test_propensities_are_capped_and_what_is_no_number_is_a_half(kind, least, most):
    logits = np.array([-60.0, -5.0, 0.3, 5.0, 60.0])
    records = Records(logits[:, None], np.zeros(5, int), np.zeros(5), Domain(60.0, 1.0).space)
    score = kind(LinearNuisances(NOTHING, 0.5, LOG_ODDS), 5.0, 1.0, 4.0)
    result = score.parts(records, {"propensity": np.array([0.0, 1.0])}).e
    exact = np.clip(1 / (1 + np.exp(-logits)), least, most)
    np.testing.assert_allclose(result, exact, rtol=1e-12, atol=1e-15)
    broken = score.parts(records, {"propensity": np.array([np.inf, -np.inf])}).e
    assert 0.5 in broken
    assert set(broken) <= {0.5, least, most}


SAMPLED = Codebook(sampling_weights=SamplingWeights("s", 4.0))
STEPS = {
    **{
        kind.estimand: kind(LinearNuisances(LINE, "rate"), 5.0, 1.5, 4.0)
        for kind in (AverageScore, TreatedScore, OverlapScore, RiskScores)
    },
    **{
        f"{kind.estimand} of weights": kind(
            LinearNuisances(LINE, "rate"), 5.0, 1.5, 4.0, sampled=True
        )
        for kind in (AverageScore, TreatedScore, OverlapScore)
    },
    "rate": TreatmentRate(share=0.5),
    "rate of weights": TreatmentRate(share=0.5),
}


def sums_by_hand(kind, records, released, noise):
    """The sums of one array of scores, by the definition; ``widening`` is what its bound
    follows.
    """
    x, treated, line = records.covariates, records.a == 1, released["center"]
    m_0, m_1 = (np.clip(line[arm] + x @ line[2:], -0.5, 0.5) for arm in (0, 1))
    e = np.full(len(x), released["rate"][0] / len(x))
    r = np.clip(records.y - np.where(treated, m_1, m_0), -1.5, 1.5)
    widening = {AverageScore: 0.5 / e[0], RiskScores: (1.0 / e[0] - 0.5) / 1.5}.get(kind, 1.0)
    given = Parts(m_0, m_1, line[1] - line[0], e, treated, r)
    score = kind(LinearNuisances(LINE, 0.5), 5.0, 1.5, 4.0, widening=widening)
    if kind is RiskScores:
        ends = (m_0, np.where(treated, 0.0, r / (1 - e))), (m_1, np.where(treated, r / e, 0.0))
        s_0, s_1 = (score.clipped(*end) / widening for end in ends)
        return noise.totals(s_1, s_0, treated.astype(float))
    factors = (
        1.0
        if noise.law in (SumLaw.SCORE, SumLaw.TREATED)
        else 0.5 / kind.largest_share * records.counts
    )
    columns = factors * score.score(given) / widening, factors * score.mass(given)
    return noise.totals(*columns[: 1 if noise.law is SumLaw.SCORE else 2])


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", STEPS)
def test_sums_do_not_depend_on_the_blocks_and_are_of_all_records(name, monkeypatch):
    """The number of treated is divided by that of all records, whatever is in a block."""
    rng, sampled = np.random.default_rng(5), "weights" in name
    domain = Domain(2.0, 0.5, codebook=SAMPLED if sampled else None)
    weights = rng.uniform(0, 5, 99) if sampled else None
    records = domain.records(
        rng.normal(size=(99, 2)), rng.integers(0, 2, 99), rng.normal(size=99), weights
    )
    released = {"center": np.array([0.1, 0.3, -0.2, 0.05]), "rate": np.array([40])}
    step = STEPS[name].plan(Universe(domain, 99, 2), Budget(1.0), {})
    known = step.exact_sums(records, released)
    counts = np.rint(2**20 * records.counts).astype(int)
    if isinstance(step, EffectScore):
        assert known == sums_by_hand(type(step), records, released, step.calibration)
    if name.startswith("rate"):
        by_arm = [sum(counts[records.a == 1]), sum(counts[records.a == 0])]
        assert known == (by_arm if sampled else [sum(records.a)])
    for rows in (50, 7, 1):
        monkeypatch.setattr(blocks, "VIEW", rows)
        assert step.exact_sums(records, released) == known
    if name == "ate":
        some = Records(records.X[1:], records.a[1:], records.y[1:], domain.space)
        with pytest.raises(DeclarationError, match="98 records: the noise is for 99"):
            step.exact_sums(some, released)


@pytest.mark.parametrize("treated", [60, 100, 220])
@pytest.mark.parametrize(
    ("arms", "kind"), [(Arms.BALANCED, AverageScore), (Arms.CONTROLS, TreatedScore)]
)
def test_common_slopes_of_the_arms_of_a_score_make_an_effect_that_varies_exact(arms, kind, treated):
    """Outcomes are lines of other slopes in either arm; a constant propensity, no noise and no
    ridge.

    Of other slopes the bias is how far they lean from what is wanted, by the difference of the
    arms.
    """
    rng, n, p = np.random.default_rng(3), 300, treated / 300
    a, x = (np.arange(n) < treated).astype(np.int64), rng.normal(size=(n, 2)) * 0.1
    for arm in (0, 1):  # of one covariance, apart by Delta
        own = x[a == arm] - x[a == arm].mean(axis=0)
        x[a == arm] = own @ np.linalg.inv(np.linalg.cholesky(own.T @ own / len(own))).T * 0.1
    delta, slopes = np.array([0.12, -0.05]), np.array([[0.5, -1.0], [2.0, 0.7]])
    x = x + np.outer(a - p, delta)
    records = Domain(2.0, 3.0).records(x, a, 0.3 * a + np.sum(x * slopes[a], axis=1))
    effects, wanted, gap = (
        0.3 + x @ (slopes[1] - slopes[0]),
        kind.wanted(p),
        (slopes[1] - slopes[0]) @ delta,
    )
    truth = np.mean(effects[a == 1]) if kind is TreatedScore else np.mean(effects)

    def fitted(arms, ratio=0.0):
        where = OutcomeRows(Rows.COMMON, arms=arms, rate=p, noise_ratio=ratio)
        mapped, root = where.records(records, {}), np.sqrt(where.factors(records, {}))
        theta = np.linalg.lstsq(root[:, None] * mapped.X, root * mapped.y, rcond=None)[0]
        bias = (
            estimated(kind(LinearNuisances(LINE, p), 20.0, 50.0, 500.0), records, {"center": theta})
            - truth
        )
        fit = RidgeFit(1.0, 1.0, n, None, 1.0, arms, Rows.COMMON, noise_ratio=ratio)
        assert abs(bias) == pytest.approx(fit.leaning(p, wanted) * gap, abs=1e-9)
        return theta, bias

    theta, bias = fitted(arms)
    assert theta[2:] == pytest.approx((1 - wanted) * slopes[0] + wanted * slopes[1], rel=1e-9)
    assert bias == pytest.approx(0.0, abs=1e-9)
    if kind is TreatedScore:  # so no residual holds the effect
        assert theta[1] == pytest.approx(np.mean(records.y[a == 1]), abs=1e-10)
    else:  # in between, by what the interval allows for
        assert 1e-4 < abs(fitted(arms, 0.2)[1]) < abs(1 - 2 * p) * gap
    fitted(Arms.MATCHED)
    # planted: records that count alike
    assert fitted(Arms.ALIKE)[1] == pytest.approx((wanted - p) * gap, abs=1e-9)
    assert abs(wanted - p) * gap > 0.015


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.45, 0.5, 0.7])
@pytest.mark.parametrize("ratio", [1e-3, 0.1, 0.4, 3.0])
def test_arms_are_weighted_for_the_least_error_of_noise_and_varying_effects(rate, ratio):
    """No weight of the larger arm, from that which balances to 1, does better than the
    formula's.
    """
    least = min(rate, 1.0 - rate)

    def error(larger):
        total = least + (1.0 - least) * larger
        return (ratio / total) ** 2 + (least / total - (1.0 - least)) ** 2

    chosen = min(Arms.BALANCED.weights(rate, ratio))
    assert max(Arms.BALANCED.weights(rate, ratio)) == 1.0
    tried = np.linspace((least / (1.0 - least)) ** 2, 1.0, 2001)
    assert error(chosen) <= np.min(error(tried)) * (1.0 + 1e-9)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_the_bias_among_the_treated_is_that_of_the_slopes_of_the_untreated(p):
    """Whatever the treated have for an outcome, and whatever the intercepts are."""
    slope, line = np.array([1.0, -0.5]), np.array([0.4, 0.7, 0.3, 0.9])
    rng, a = np.random.default_rng(4), np.repeat([1, 0], [round(p * 600), 600 - round(p * 600)])
    x = rng.normal(size=(600, 2)) * 0.3 + np.outer(a, [0.3, -0.2])
    mu_0, mu_1 = 0.2 + x @ slope, 2.0 + np.sin(3 * x[:, 0])
    records = Domain(4.0, 30.0).records(x, a, np.where(a == 1, mu_1, mu_0))
    result = estimated(
        TreatedScore(LinearNuisances(LINE, p), 90.0, 50.0, 500.0), records, {"center": line}
    )
    delta = x[a == 1].mean(axis=0) - x[a == 0].mean(axis=0)
    bias = float((slope - line[2:]) @ delta)
    assert result - np.mean((mu_1 - mu_0)[a == 1]) == pytest.approx(bias, abs=1e-10)


#: Three covariates, of ten records each, and the outcomes of both arms.
X, MU = np.array([-1.0, 0.2, 0.9]), (np.cos, lambda x: 1.0 + x**2)


def overlap_bias(e, own, off):
    """Bias of the effect at propensities ``own``, with regressions ``off`` by so much, where e is
    true.
    """
    h = np.minimum(own, 1 - own)
    return np.sum((e - own) * (h / own * off[1] + h / (1 - own) * off[0])) / np.sum(h)


def test_the_bias_of_overlap_is_a_product_of_errors_at_the_released_weights():
    e, x, a = np.array([0.2, 0.4, 0.7]), np.repeat(X, 10), np.tile(np.arange(10), 3)
    a = (a < np.repeat(10 * e, 10) - 0.5).astype(int)
    records = Domain(2.0, 30.0).records(x[:, None], a, np.where(a == 1, MU[1](x), MU[0](x)))
    released = {"center": np.array([0.3, 0.8, -0.4]), "propensity": np.array([0.3, 1.1])}
    # 0.2 and 0.7 lie beyond a cap of 2.5, which would be no weights that a file states
    score = OverlapScore(LinearNuisances(LINE, 0.5, LOG_ODDS), 2.5, 50.0, 500.0)
    own = 1 / (1 + np.exp(-0.3 - 1.1 * X))
    h, off = np.minimum(own, 1 - own), [MU[0](X) - 0.3 + 0.4 * X, MU[1](X) - 0.8 + 0.4 * X]
    truth, bias = np.sum(h * (MU[1](X) - MU[0](X))) / np.sum(h), overlap_bias(e, own, off)
    assert estimated(score, records, released) - truth == pytest.approx(bias, abs=1e-10)
    assert abs(bias) > 0.05


def test_matched_weights_make_it_a_product_of_the_second_order():
    """With the log odds off by a little, lines fitted at them leave the square of that, others a
    multiple.
    """
    share, x, a = np.array([0.2, 0.5, 0.8]), np.repeat(X, 10), np.tile(np.arange(10), 3)
    a = (a < np.repeat(10 * share, 10) - 0.5).astype(int)
    records = Domain(2.0, 30.0).records(x[:, None], a, np.where(a == 1, MU[1](x), MU[0](x)))
    right = np.polyfit(X, np.log(share / (1 - share)), 1)[::-1]
    e = 1 / (1 + np.exp(-right[0] - right[1] * X))  # the law of treatment whose log odds are linear

    def bias(arms, error):
        released = {"propensity": right + error * np.array([0.5, 1.0])}
        where = OutcomeRows(Rows.COMMON, arms=arms, rate=0.5, log_odds=LOG_ODDS)
        mapped, factors = where.records(records, released), where.factors(records, released)
        # each of the ten counts by how likely its arm is
        likely, drawn = (np.repeat(one, 10) for one in (e, share))
        root = np.sqrt(factors * np.where(a == 1, likely / drawn, (1 - likely) / (1 - drawn)))
        theta = np.linalg.lstsq(root[:, None] * mapped.X, root * mapped.y, rcond=None)[0]
        own = 1 / (1 + np.exp(-LOG_ODDS.predict(X[:, None], 0, released)))
        return overlap_bias(e, own, [MU[arm](X) - theta[arm] - theta[2] * X for arm in (0, 1)])

    assert bias(Arms.MATCHED, 0.0) == pytest.approx(0.0, abs=1e-12)
    assert bias(Arms.MATCHED, 2e-3) / bias(Arms.MATCHED, 1e-3) == pytest.approx(4.0, rel=0.05)
    # planted: records that count alike
    assert bias(Arms.ALIKE, 2e-3) / bias(Arms.ALIKE, 1e-3) == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("rate", [1, 20, 50, 80, 99])
@pytest.mark.parametrize("kind", [AverageScore, TreatedScore, OverlapScore])
def test_no_released_rate_lets_a_record_add_more_than_is_calibrated(kind, rate):
    """The worst record, scored by the worst line: its sums, and those of the one that takes its
    place.
    """
    universe = Universe(Domain(1.0, 5.0), 100, 1)
    score = kind(LinearNuisances(LINE, "rate"), 10.0, 4.0, 4.0).plan(universe, Budget(1.0), {})
    largest = 0
    for line in ([0.0, 0.0, 0.0], [50.0, -50.0, 9.0], [-50.0, 50.0, -9.0]):
        released = {"center": np.array(line), "rate": np.array([rate])}
        own, x = score.at(universe, released), np.ones((1, 1))
        sums = [
            own.block_sums(universe.domain.records(x, [a], [y]), released)
            for a in (0, 1)
            for y in (-5.0, 5.0)
        ]
        largest = max(largest, np.abs(np.array(sums)[:, None] - np.array(sums)).sum(axis=2).max())
    assert 0.5 * score.calibration.sensitivity < largest <= score.calibration.sensitivity
