"""Ratios of private means: intervals cover, ends are where the tests say, and weak denominators
have none.
"""

import math
import random
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from dp2erm_cvx.calibration import Noise, SumLaw, calibrate_sums
from dp2erm_cvx.calibration.base import sum_tail
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.inference.nuisances import NuisanceError
from dp2erm_cvx.inference.ratio import ArmRisks, Fieller, part_interval
from dp2erm_cvx.privacy import Budget

#: e(x), P(Y = 1 | x, arm 0), P(Y = 1 | x, arm 1) for the two values of a covariate.
COVARIATE = ((0.25, 0.15, 0.3), (0.5, 0.3, 0.35))


def records(model):
    """Every record (x, a, y), its probability, and its scores of both arms by a wrong outcome
    model.
    """
    result = []
    for (e, *risks), a, y in product(COVARIATE, (0, 1), (0, 1)):
        p = 0.5 * (e if a else 1 - e) * (risks[a] if y else 1 - risks[a])
        scores = [model + (a == arm) * (y - model) / (e if arm else 1 - e) for arm in (0, 1)]
        result.append((p, a, scores[1], scores[0], e, y))
    return np.array(result).T


def counts(p, n, replicates, seed):
    rng = np.random.default_rng(seed)
    return rng.multinomial(n, p, size=replicates), rng


def noised(noise, sums, rng):
    draw = rng.laplace if noise.noise is Noise.GAMMA else rng.normal
    return np.rint(sums * np.array(noise.multipliers) + draw(scale=noise.scale, size=sums.shape))


#: P(a record counts | x), for the two values of the covariate: those that count are another
#: population.
COUNTING = (0.9, 0.4)


def arm_study(law, n, budget, kind, replicates, seed):
    """Shares of intervals of the difference, the ratio and the odds ratio that cover, and that are
    bounded.

    Where records may be silent, truths are those of the records that count.
    """
    p, a, score_1, score_0, e, _ = records(0.3)
    silent, center = law is SumLaw.COUNTED_ARMS, 0.45 if law is SumLaw.COUNTED_ARMS else 0.3
    counting = np.where(e == COVARIATE[0][0], *COUNTING) if silent else np.ones(len(p))
    noise = calibrate_sums(law, 4.0, n, budget, kind, other_bound=0.6)
    k_1, k_0 = (np.rint((score - center) / noise.step) for score in (score_1, score_0))
    assert silent or np.abs(np.where(a == 1, k_0, k_1)).max() <= noise.largest_other
    cells, rng = counts(np.concatenate([p * counting, [1 - p @ counting]]), n, replicates, seed)
    columns = np.stack(
        [k_1, k_0, (k_1 - k_0) ** 2, (k_1 + k_0) ** 2, k_1**2 - k_0**2, 1 + 0 * k_1], axis=1
    )
    columns = np.vstack([columns, np.zeros(6)])[:, : len(noise.units)]
    risk_1, risk_0 = (
        float(p * counting @ score) / float(p @ counting) for score in (score_1, score_0)
    )
    truth = (risk_1 - risk_0, risk_1 / risk_0, risk_1 / (1 - risk_1) / risk_0 * (1 - risk_0))
    covered, stated = np.zeros(3), np.zeros(3)
    for released in noised(noise, cells @ columns, rng):
        arms = ArmRisks(noise, [int(number) for number in released], (center, center))
        for place, result in enumerate((arms.difference(), arms.ratio(), arms.odds_ratio())):
            # a ratio that is not stated does not miss
            covered[place] += result is None or result.low <= truth[place] <= result.high
            stated[place] += result is not None and math.isfinite(result.high - result.low)
    return covered / replicates, stated / replicates


def treated_study(p, a, score, noise, replicates, seed, center=0.0):
    """Share of intervals of the mean score of the treated that cover."""
    k, (cells, rng) = np.rint(score / noise.step), counts(p, noise.n_samples, replicates, seed)
    columns = np.stack([k, a, k * k, np.where(a == 1, k, -k)], axis=1)
    released = noised(noise, cells @ columns, rng)
    result = [part_interval(noise, [int(number) for number in row], center) for row in released]
    truth = center + float(p @ score) / float(p @ a)
    return np.mean([one.low <= truth <= one.high for one in result])


#: The laws of noise on numbers.
LAWS = (Noise.GAMMA, Noise.GAUSSIAN)
SETTINGS = [(500, Budget(0.5, 1e-6), Noise.GAMMA), (10_000, Budget(2.0, 1e-6), Noise.GAUSSIAN)]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "budget", "kind"), SETTINGS)
def test_ratios_of_arms_cover(n, budget, kind):
    covered, _ = arm_study(SumLaw.ARMS, n, budget, kind, 80, seed=1)
    assert covered.min() >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 80)
    covered, stated = arm_study(SumLaw.COUNTED_ARMS, n, budget, kind, 30, seed=4)
    assert covered.min() >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 30)
    assert stated.min() == 1.0 or n == 500


@pytest.mark.parametrize(("n", "budget", "kind"), SETTINGS)
def test_effect_among_the_treated_covers(n, budget, kind):
    p, a, _, _, e, y = records(0.3)
    score = np.where(a == 1, y - 0.4, -e / (1 - e) * (y - 0.3))
    noise = calibrate_sums(SumLaw.TREATED, 1.5, n, budget, kind)
    assert treated_study(p, a, score, noise, 80, 2, center=0.1) >= 0.95 - 3 * math.sqrt(
        0.05 * 0.95 / 80
    )


GIVEN = {
    "numerator": 0.2,
    "denominator": 0.4,
    "scales": (0.02, 0.01),
    "roundings": (0.0, 0.0),
    "slope": 0.03,
}


def fieller(noise=Noise.GAMMA, **changes):
    return Fieller(
        noise=noise, **(GIVEN | {"deviation": lambda rho: 0.03 * math.hypot(1.0, rho)} | changes)
    )


@pytest.mark.parametrize("kind", LAWS)
def test_ends_are_those_of_a_scan(kind):
    test = fieller(kind)
    low, high = test.ends(0.02)
    rhos = np.linspace(-5, 5, 20_001)
    tails = (
        sum_tail(kind, abs(0.2 - rho * 0.4), test.deviation(rho), 0.02, abs(rho) * 0.01)
        for rho in rhos
    )
    kept = [rho for rho, tail in zip(rhos, tails, strict=True) if tail >= 0.02]
    assert low == pytest.approx(min(kept), abs=6e-4)
    assert high == pytest.approx(max(kept), abs=6e-4)


def test_ends_of_gaussian_noise_solve_the_quadratic_equation_of_fieller():
    low, high = fieller(Noise.GAUSSIAN).ends(0.025)
    z = 1.959963985
    v_1, v_0 = 0.03**2 + 0.02**2, 0.03**2 + 0.01**2
    roots = np.roots([0.4**2 - z**2 * v_0, -2 * 0.2 * 0.4, 0.2**2 - z**2 * v_1])
    assert [low, high] == pytest.approx(sorted(roots), rel=1e-6)


def test_roundings_widen_the_interval_of_a_ratio():
    quiet = fieller(scales=(0.0, 0.0), slope=0.0, deviation=lambda rho: 0.0, roundings=(0.04, 0.1))
    low, high = quiet.ends(0.02)
    # |0.2 - 0.4 rho| <= 0.04 + 0.1 rho
    assert (low, high) == pytest.approx((0.16 / 0.5, 0.24 / 0.3))
    # a spread that is no number leaves ends open
    assert fieller(deviation=lambda _: math.nan).ends(0.02) == (-math.inf, math.inf)


def test_forgetting_the_noise_of_the_number_of_treated_is_caught(monkeypatch):
    """Little noise of the score, much of the number of treated: the ratio's noise is that of the
    latter.
    """

    noise = calibrate_sums(SumLaw.TREATED, 1.0, 1000, Budget(0.2))
    covered = partial(
        treated_study, np.array([0.1, 0.9]), np.array([1, 0]), np.array([0.9, 0.0]), noise, 150, 5
    )
    assert covered() >= 0.91
    plain = Fieller._rejected
    silent = lambda self, *given: plain(replace(self, scales=(self.scales[0], 0.0)), *given)  # noqa: E731
    monkeypatch.setattr(Fieller, "_rejected", silent)
    assert covered() < 0.9


@pytest.mark.parametrize("level", [0.3, 1.0])
def test_wrong_levels_of_ratios_are_refused(level):
    with pytest.raises(DeclarationError, match="level"):
        part_interval(
            calibrate_sums(SumLaw.TREATED, 1.0, 100, Budget(1.0)), (0, 0, 0, 0), level=level
        )


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("kind", [Noise.GAMMA, Noise.GAUSSIAN])
@pytest.mark.parametrize(("n", "epsilon"), [(2, 1.0), (1000, 0.05), (1000, 100.0), (10**7, 1.0)])
def test_whatever_the_noise_has_made_of_the_sums_every_result_is_a_number_or_unbounded(
    n, epsilon, kind
):
    """Sums of no records, of records all alike, and of none that there can be: nothing divides by
    zero.
    """
    rng, budget = random.Random(0), Budget(epsilon, 1e-6)
    for noise in (
        calibrate_sums(SumLaw.ARMS, 1.0, n, budget, kind, other_bound=0.5),
        calibrate_sums(SumLaw.TREATED, 1.0, n, budget, kind),
        calibrate_sums(SumLaw.OVERLAP, 1.0, n, budget, kind),
    ):
        pairs = zip(noise.multipliers, noise.law.degrees, strict=True)
        full = [n * factor * noise.largest**degree for factor, degree in pairs]
        for _ in range(5):
            sums = [rng.choice([0, 1, m, -m, m // 2, 3 * m, 2**63 - 1, -(2**63)]) for m in full]
            for level in (0.5, 0.95, 1.0 - 1e-12):
                if len(sums) == 5:
                    arms = ArmRisks(noise, sums)
                    result = [arms.difference(level), arms.ratio(level), arms.odds_ratio(level)]
                else:
                    result = [part_interval(noise, sums, 0.0, level)]
                for one in (one for one in result if one is not None):
                    assert math.isfinite(one.estimate)
                    assert one.low <= one.estimate <= one.high


def arms_of(n, epsilon, risk_0=0.3, **how):
    """A risk of .4 of the treated, and of the untreated."""
    noise = calibrate_sums(SumLaw.ARMS, 2.0, n, Budget(epsilon), other_bound=0.5)
    pairs = zip([-0.1, risk_0 - 0.5, 0.2, 0.6, 0.0], noise.units, strict=True)
    return ArmRisks(noise, [round(value / unit) for value, unit in pairs], **how)


@pytest.mark.parametrize(
    ("risk_0", "bias", "stated"), [(0.3, 0.0, True), (0.3, 0.31, False), (0.001, 0.0, False)]
)
def test_ratios_are_stated_where_their_denominators_are_significant(risk_0, bias, stated):
    """A risk that is within its noise, or within the bias that is allowed for, may be 0."""
    arms = arms_of(
        4000, 1.0, risk_0, errors=(NuisanceError(0.0, 0.0, 0.0), NuisanceError(bias, 0.0, 0.0))
    )
    assert (arms.ratio() is not None) is stated
    assert (arms.odds_ratio() is not None) is stated


def test_bias_of_both_risks_widens_every_interval():
    """By b_1 + b_0 that of the difference, and by b_1 + rho b_0 that of the ratio.

    The ends of the ratio's interval solve ``|T_1 - rho T_0| = q + b_1 + rho b_0``.
    """
    errors = NuisanceError(0.05, 0.0, 0.0), NuisanceError(0.02, 0.0, 0.0)
    plain, wide = arms_of(10**6, 100.0), arms_of(10**6, 100.0, errors=errors)
    gap = wide.difference().high - plain.difference().high
    assert 0.069 < gap <= 0.07 + 1e-9  # one tail of two misses
    assert wide.difference().bias == pytest.approx(0.07)
    low, high = wide.ratio().low, wide.ratio().high
    quiet = plain.ratio()
    assert low == pytest.approx((0.4 - 0.05) / (0.3 + 0.02), abs=1.2 * (0.4 / 0.3 - quiet.low))
    assert high == pytest.approx((0.4 + 0.05) / (0.3 - 0.02), abs=1.4 * (quiet.high - 0.4 / 0.3))
    errors = NuisanceError(0.0, 0.03, 0.04), NuisanceError(0.0, 0.0, 0.0)
    noisy = arms_of(10**6, 100.0, errors=errors)
    assert noisy.difference().high - 0.1 == pytest.approx(2.0047 * 0.05, rel=0.02)
    # what the scores were divided by is multiplied again
    twice = arms_of(10**6, 100.0, widening=2.0)
    assert twice.risks == pytest.approx((0.3, 0.1), abs=1e-6)
    assert twice.difference().standard_deviation == pytest.approx(
        2.0 * plain.difference().standard_deviation
    )
