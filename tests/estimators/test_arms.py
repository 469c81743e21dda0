"""Private effects of a treatment of more than two arms: exact losses, releases, and what is
refused.
"""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, Treatment
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.inference import arms
from dp2erm_cvx.model.composite import contrasts
from dp2erm_cvx.noise import draw, draw_within
from dp2erm_cvx.plan.effect import effect_facts
from dp2erm_cvx.program import registry
from dp2erm_cvx.report.caveats import sentences
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.fit import ArmPropensity
from dp2erm_cvx.steps.nuisances import RAREST, levels_apart
from dp2erm_cvx.steps.record_map import Rows
from tests.calibration.test_sums import movement
from tests.helpers import declared_solution

LEVELS, EFFECTS = ("none", "low", "high"), np.array([0.0, 0.5, 1.0])


def domain(k=2, levels=LEVELS, **treatment):
    book = Codebook(treatment=Treatment(levels=levels, **({"contrasts": "pairs"} | treatment)))
    return Domain(math.sqrt(k), 6.0, ranges=[(-1, 1)] * k, codebook=book)


def labels_of(arm, levels=LEVELS):
    return np.array(levels, dtype=object)[arm]


def table(n, seed=0, *, confounded=1.0, silent=0.02):
    rng = np.random.default_rng(seed)
    X = np.clip(rng.standard_normal((n, 2)) / 3, -1, 1)
    odds = np.exp(
        np.log([0.5, 0.3, 0.2]) + confounded * X @ np.array([[0, 0], [1.0, 0.5], [-0.5, 1.0]]).T
    )
    arm = (rng.random(n)[:, None] > np.cumsum(odds / odds.sum(1, keepdims=True), axis=1)).sum(1)
    slopes = np.array([[1.8, 1.2], [2.7, 1.2], [1.8, 0.3]])
    y = EFFECTS[arm] + np.sum(X * slopes[arm], axis=1) + rng.standard_normal(n)
    labels = labels_of(arm)
    labels[rng.random(n) < silent] = ""
    return X, labels, y


def planned(n=400, epsilon=1.0, rows="arms", public=None, **treatment):
    public = public or domain(**treatment)
    return PrivateEffect(public, Budget(epsilon), residual_scale=1.0, settings={"rows": rows}).plan(
        n, 2
    )


# A record adds to the sums of its own arm: enumerated by the code that adds them up.


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("rows", "public"),
    [(rows, domain(rates=p)) for rows in ("arms", "common") for p in ((), (0.6, 0.3, 0.1))],
)
def test_the_score_of_any_record_is_covered(rows, public):
    plan = planned(rows=rows, public=public, epsilon=20.0)
    step, rng = plan.main, np.random.default_rng(0)
    spread = np.full(max(len(plan.step("spread").numbers), 1), 2**19)
    released = {"spread": spread, "mean": np.zeros(9), "average": np.zeros(2)}
    width = len(Rows(rows).constants(2, 3))
    released |= {"rate": np.array([240, 120, 40]) * 2**20, "center": rng.normal(size=width)}
    own = step.at(step.universe, released)
    x = np.array(list(itertools.product([-0.3, 0.3], [-0.3, 0.3])))
    sums = []
    for arm, y, counts in itertools.product(range(3), np.linspace(-6, 6, 13), (0.0, 1.0)):
        records = Records.within(step.universe.space, x, np.full(4, arm), np.full(4, y))
        records = replace(records, sampling=np.full(4, counts))
        for place in range(4):
            names = ("X", "a", "y", "sampling")
            one = replace(
                records, **{name: getattr(records, name)[place : place + 1] for name in names}
            )
            sums.append(own.block_sums(one, released))
    result = movement(np.array(sums, dtype=np.float64), Noise.GAMMA)
    assert 0.9 * step.integers.sensitivity < result <= step.integers.sensitivity
    # arms of their own bounds: the smallest one has the widest
    assert own.widenings[2] > own.widenings[0]


# The outcome regression by arm: the exact density of its coefficient, with one record that counts.


def largest_loss(step, gamma=1.0, scale=1.0, entering=(1.0,), leaving=(1.0,)):
    """Of the log density between a record in one arm, and in another one, or nowhere: by search.

    Of a person in several arms ``entering`` and ``leaving`` are what the records count in each of
    them.
    """
    rng, m, S = np.random.default_rng(1), step.loss.saturation.row_norm, step.program.slope
    ridge, size = step.universe.n_samples * step.calibration.gamma * gamma, 400_000

    def logs(theta, y, counts):
        """Noise and log determinant of an arm with a record of outcome y, and without it, along its
        row.
        """
        residual = m * theta - y
        bend = counts * np.exp(-np.abs(residual) / S)
        pull = S * np.sign(residual) * (counts - bend) * m
        inside = -np.abs(ridge * theta + pull) / (scale * step.calibration.scale)
        alone = -np.abs(ridge * theta) / (scale * step.calibration.scale)
        return inside + np.log(ridge + bend * m * m), alone + math.log(ridge)

    def extremes(counts):
        theta = rng.normal(size=size) * np.exp(rng.uniform(-6, 5, size)) * S / m
        y = rng.choice([0.0, 1.0, 30.0, 1e4], size) * rng.normal(size=size) * S
        y += m * theta * rng.integers(0, 2, size)
        inside, alone = logs(theta, y, counts)
        return float(np.max(inside - alone)), float(np.min(inside - alone))

    # arms are independent: records leave some of them and enter others
    return sum(extremes(one)[0] for one in entering) - sum(extremes(one)[1] for one in leaving)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_noise_by_arm_costs_nothing_in_the_number_of_arms(epsilon):
    step = planned(epsilon=epsilon).step("center")
    assert step.calibration.blocks == 3
    spent = step.calibration.epsilon
    assert largest_loss(step, gamma=1 / 3) > 1.1 * spent
    assert largest_loss(step, scale=1 / 1.5) > 1.49 * spent
    for k in (
        1,
        2,
        3,
    ):  # records of a person, each in another arm: means, and what whole ones would lose
        mean, all_of_them = (np.full(k, 1.0 / k), np.ones(k))
        assert (
            0.9999 * spent < largest_loss(step, entering=mean, leaving=mean) <= spent * (1 + 1e-9)
        )
        assert largest_loss(step, entering=all_of_them, leaving=all_of_them) > 0.9999 * k * spent
    common = planned(epsilon=epsilon, rows="common").step("center")
    assert common.calibration.blocks == 1
    assert common.calibration.scale == step.calibration.scale


def test_the_noise_of_every_arm_is_drawn_alike_and_by_itself():
    calibration = planned().step("center").calibration
    p = calibration.n_parameters // 3
    for drawn in (
        [draw(calibration, seed=k) for k in range(2000)],
        [draw_within(calibration, 1e-6, seed=k).value for k in range(150)],
    ):
        lengths = np.linalg.norm(np.reshape(drawn, (-1, 3, p)), axis=2) / calibration.scale
        error = math.sqrt(p / len(drawn))
        assert np.abs(lengths.mean(axis=0) - p).max() < 4 * error
        assert np.abs(lengths.var(axis=0) / p - 1).max() < 0.5
        assert np.abs(np.corrcoef(lengths.T) - np.eye(3)).max() < 5 / math.sqrt(len(drawn))
        assert calibration.norms(np.array(drawn)) == pytest.approx(
            lengths.sum(axis=1) * calibration.scale
        )
    assert calibration.variances == pytest.approx((p + 1) * calibration.scale**2)


# The multinomial regression of the arm (Theorem 27): exact shifts and determinants, the noise free.


def multinomial_loss(n_arms, step, gamma=1.0, scale=1.0):
    """The largest log ratio of densities found, over probabilities, arms and rows of two
    records.
    """
    rng, basis = np.random.default_rng(2), contrasts(n_arms)
    m = step.universe.space.covariate_bound
    ridge, best = step.universe.n_samples * step.calibration.gamma * gamma, 0.0
    q = [
        np.concatenate([rng.dirichlet(np.full(n_arms, alpha), 4000) for alpha in (0.02, 0.3, 2.0)])
    ] * 2
    q[1] = q[1][rng.permutation(len(q[1]))]
    a = [rng.integers(0, n_arms, len(one)) for one in q]
    for one, arm in zip(q, a, strict=True):  # who is sure of the wrong arm
        one[0], arm[0] = np.eye(n_arms)[1], 0
    u = [one - np.eye(n_arms)[arm] for one, arm in zip(q, a, strict=True)]
    logs = []
    for one in q:
        W = np.einsum("ni,ij->nij", one, np.eye(n_arms)) - one[:, :, None] * one[:, None, :]
        inner = np.eye(n_arms - 1) + m * m / ridge * np.einsum("ki,nkl,lj->nij", basis, W, basis)
        logs.append(np.linalg.slogdet(inner)[1])
    for angle in np.linspace(0.0, math.pi, 9):  # between the rows of both
        product = math.cos(angle) * np.sum(u[0] * u[1], axis=1)
        apart = np.sum(u[0] ** 2, axis=1) + np.sum(u[1] ** 2, axis=1) - 2.0 * product
        shift = m * np.sqrt(np.maximum(apart, 0.0)) / (scale * step.calibration.scale)
        best = max(best, float(np.max(shift + logs[0] - logs[1])))
    return best


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("n_arms", [2, 3, 4])
def test_the_multinomial_regression_spends_its_epsilon_and_no_more(n_arms, epsilon):
    program = registry.build(registry.parts(), "multinomial_propensity", n_arms=n_arms)
    step = ArmPropensity(program=program).plan(Universe(domain(), 400, 2), Budget(epsilon), {})
    spent = step.calibration.epsilon
    assert 0.9995 * spent < multinomial_loss(n_arms, step) <= spent * (1 + 1e-9)
    assert multinomial_loss(n_arms, step, gamma=1 / 8) > 1.2 * spent
    assert multinomial_loss(n_arms, step, scale=1 / 1.5) > 1.49 * spent


@pytest.mark.parametrize("n_arms", [2, 3, 4])
def test_the_declared_multinomial_problem_is_the_one_that_is_solved(n_arms):
    rng = np.random.default_rng(n_arms)
    program = registry.build(registry.parts(), "multinomial_propensity", n_arms=n_arms)
    public = Domain(2.0, 1.0, intercept=1.0)
    X, a = rng.uniform(-1, 1, (60, 2)), rng.integers(0, n_arms, 60)
    records = replace(public.records(X, a % 2, np.zeros(60)), a=a)
    noise = 3.0 * rng.standard_normal((n_arms - 1) * 3)
    instance = program.perturbed(records, 0.02, noise)
    result = solve(instance, solver="newton")
    assert result.certified
    theta = declared_solution(instance, "theta")
    assert np.abs(theta.sum(axis=0)).max() < 1e-7
    assert instance.model.coefficients(result.point) == pytest.approx(theta, abs=1e-5)
    v = rng.standard_normal(len(noise))
    steps = 1e-6 * np.eye(len(v))
    slopes = [
        (instance.model.value(v + one) - instance.model.value(v - one)) / 2e-6 for one in steps
    ]
    curves = [
        (instance.model.gradient(v + one) - instance.model.gradient(v - one)) / 2e-6
        for one in steps
    ]
    assert instance.model.gradient(v) == pytest.approx(np.array(slopes), abs=1e-5)
    assert instance.model.hessian(v) == pytest.approx(np.array(curves), abs=1e-5)
    # of whatever records, within a public radius
    radius = program.certified_radius(Universe(public, 60, 2), 0.02, float(np.linalg.norm(noise)))
    assert result.certificate.radius <= radius < 1e-6


@pytest.fixture(scope="module", params=["constant", "multinomial"])
def fitted(request):
    settings = {"propensity": request.param}
    model = PrivateEffect(domain(), Budget(8.0), residual_scale=1.0, seed=3, settings=settings)
    return model.fit(*table(3000)).release_


def test_all_arms_and_all_pairs_are_released(fitted):
    arms = fitted.arms
    pairs = [(one.level, one.against) for one in arms.contrasts]
    assert pairs == [("low", "none"), ("high", "none"), ("high", "low")]
    truth = dict(zip(LEVELS, EFFECTS, strict=True))
    means = {one.level: one.estimate for one in arms.means}
    for one in arms.contrasts:
        assert one.joint.low < truth[one.level] - truth[one.against] < one.joint.high
        assert one.joint.low < one.interval.low < one.estimate < one.interval.high < one.joint.high
        assert one.estimate == pytest.approx(means[one.level] - means[one.against])
    for one, share in zip(arms.means, (0.5, 0.3, 0.2), strict=True):
        assert one.interval.low < truth[one.level] < one.interval.high
        assert one.share == pytest.approx(share, abs=0.05)
    assert fitted.counted == pytest.approx(0.98 * 3000, abs=60)
    assert fitted.estimate == arms.contrasts[0].estimate
    assert math.fsum(step.epsilon for step in fitted.steps) <= 8.0
    assert [row["arm"] for row in fitted.rows()] == ["low", "high", "high"]


def test_more_arms_pay_for_their_own_bounds_alone():
    few, many = (planned(levels=levels).main.calibration for levels in (LEVELS, tuple("abcde")))
    assert few.scales[0] / few.bound == pytest.approx(many.scales[0] / many.bound, rel=0.3)
    assert few.noise is Noise.GAMMA


def test_shares_of_arms_are_rare_up_to_three_deviations_of_their_noise():
    plan = planned(n=10_000, epsilon=1.0)
    facts = effect_facts(plan)
    step = facts.rate
    deviation = math.sqrt(2.0) * step.calibration.scale * step.calibration.unit / 10_000
    limit = 1.0 / RAREST + 3.0 * deviation
    assert deviation > 1e-4
    for share, expected in ((0.999 * limit, True), (1.001 * limit, False)):
        shares = np.array([0.6, 0.4 - share, share])
        counts = np.round(shares * 10_000 / step.calibration.unit)
        assert arms._rare(facts, {step.name: counts})[-1] == expected


def test_noise_of_shares_counts_in_records():
    """Equation (A39), of an intercept with noise alone: its error times that of the share."""
    plan = planned(n=10_000, epsilon=1.0)
    facts = effect_facts(plan)
    step = facts.rate
    shares = np.array([0.5, 0.3, 0.2])
    fit = SimpleNamespace(mass=1.0, n_samples=10_000, noise=20.0, gamma=0.01)
    nuisances = SimpleNamespace(fit=fit, shares=tuple(shares))
    curvature = np.full(3, 0.1)
    found = arms._rate_errors(facts, nuisances, np.zeros(3), curvature)
    deviation = math.sqrt(2.0) * step.calibration.scale * step.calibration.unit / 10_000
    intercept = 20.0 / (10_000 * 0.11)
    assert deviation / 0.2 < 0.5
    np.testing.assert_allclose(found, intercept * deviation / shares, rtol=1e-9)


@pytest.mark.parametrize("levels", [("a", "b"), ("a", "b", "c")])
def test_an_arm_that_is_rarer_than_scores_allow_for_has_no_confident_answer(levels):
    """Three in a thousand: inverse shares are those of one in fifty."""
    rng, n = np.random.default_rng(3), 4000
    X = rng.uniform(-1, 1, (n, 2))
    arm = np.where(
        rng.random(n) < 0.003, len(levels) - 1, rng.integers(0, max(len(levels) - 1, 1), n)
    )
    y = np.where(arm == len(levels) - 1, 4.0, 0.0) + X[:, 0] + rng.standard_normal(n)
    model = PrivateEffect(domain(levels=levels), Budget(4.0), residual_scale=1.0, seed=0)
    release = model.fit(X, labels_of(arm, levels), y).release_
    last = release.interval if release.arms is None else release.arms.contrasts[-1].interval
    assert last.low < 4.0 < last.high
    assert last.high - last.low > 12.0


def test_scores_of_an_unknown_probability_have_twice_the_room():
    levels, public = tuple("abcde"), domain(levels=tuple("abcde"), rates=(0.2,) * 5)
    for one, how, times in (
        (public, {}, 5),
        (domain(levels=levels), {"propensity": "multinomial"}, 10),
    ):
        model = PrivateEffect(one, Budget(1.0), residual_scale=1.0, settings=how)
        settings = model.plan(10**5, 2).study.settings
        assert settings.score_bound == pytest.approx(times * settings.residual_bound)
    with pytest.raises(DeclarationError, match="rates of the levels are declared"):
        PrivateEffect(public, Budget(1.0), settings={"propensity": "multinomial"}).plan(10**5, 2)


def test_the_mean_covariate_may_vary_along_one_column_alone():
    """One mean square is released: it may be that of the column which the regressions follow."""
    rng, n = np.random.default_rng(0), 4000
    X = np.zeros((n, 8))
    X[:, 0] = rng.choice([-1.0, 1.0], n)
    arm = rng.integers(0, 3, n)
    y = np.array([3.0, 3.0, -3.0])[arm] * X[:, 0] + 0.5 * rng.standard_normal(n)
    model = PrivateEffect(
        domain(8, rates=(1 / 3, 1 / 3, 1 - 2 / 3)), Budget(20.0), residual_scale=0.5, seed=1
    )
    contrast = model.fit(X, labels_of(arm), y).release_.arms.contrasts[1].interval
    # the standard error of six times its mean
    assert contrast.half_width > 1.96 * 6.0 / math.sqrt(n)


def of_sites(present, levels=("a", "b", "c")):
    """Three arms with an effect of 1 and 2, at sites of which a part of the records names none."""
    rng, n = np.random.default_rng(2), 3000
    arm = rng.integers(0, 3, n)
    X = pd.DataFrame({"x": rng.uniform(-1, 1, n), "site": rng.choice(list("abc"), n)})
    y = arm + X["x"] + 0.5 * (X["site"] == "b") + 0.5 * rng.standard_normal(n)
    X.loc[rng.random(n) >= present, "site"] = ""
    book = Codebook(
        treatment=Treatment("arm", levels=LEVELS), outcome="y", levels={"site": list(levels)}
    )
    ranges = book.ranges({"x": (-1, 1)})
    public = Domain(book.norm(ranges), 6.0, ranges=ranges, codebook=book)
    return public, X.assign(arm=labels_of(arm), y=y)


def test_levels_that_make_up_a_column_cost_no_interval():
    """Their sum is a constant, whose slope is noise; the released mean covariate is noised as
    well.
    """
    lengths = {}
    for levels in (("a", "b"), ("a", "b", "other")):
        public, table = of_sites(1.0, levels)
        for seed in range(2):
            fit = PrivateEffect(public, Budget(2.0), residual_scale=0.5, seed=seed)
            contrast = fit.fit(table, table["arm"], table["y"]).release_.arms.contrasts[1]
            assert contrast.interval.low < 2.0 < contrast.interval.high
            lengths.setdefault(len(levels), []).append(contrast.interval.noise_half_width)
    assert max(lengths[3]) < 1.5 * np.median(lengths[2])


@pytest.mark.parametrize("apart", [True, False])
def test_what_all_levels_have_in_common_is_left_out_where_every_record_has_to_have_one(apart):
    public, _ = of_sites(1.0, ("a", "b", "c", "other") if apart else ("a", "b", "c"))
    k = 5 if apart else 4
    plan = PrivateEffect(public, Budget(2.0), residual_scale=0.5, settings={"rows": "arms"}).plan(
        3000, k
    )
    mean, term = plan.step("mean"), plan.main.nuisances.term
    theta = np.arange(3.0 * (1 + k))
    moved = theta + np.where(np.arange(len(theta)) % (1 + k) > 1, 7.0, 0.0)
    results = [
        levels_apart(term, mean, {"center": one}).coefficient(k, {}) for one in (theta, moved)
    ]
    assert (results[0] == pytest.approx(results[1])) is apart
    assert (results[1] == pytest.approx(moved)) is not apart
    assert results[1].reshape(3, -1)[:, :2] == pytest.approx(theta.reshape(3, -1)[:, :2])


def test_few_records_of_no_level_may_confound():
    """Eight in a hundred have none: most of them are in one arm, and have larger outcomes."""
    public, table = of_sites(0.92)
    rng, none = np.random.default_rng(3), table["site"] == ""
    often = np.where(none, 0.7, 0.28)
    arm = np.where(rng.random(len(table)) < often, 1, 2 * rng.integers(0, 2, len(table)))
    y = 0.5 * (arm == 1) + 1.5 * none + 0.25 * rng.standard_normal(len(table))
    fit = PrivateEffect(public, Budget(30.0), residual_scale=0.25, seed=1)
    contrast = fit.fit(table, labels_of(arm), y).release_.arms.contrasts[0].interval
    assert contrast.low < 0.5 < contrast.high


def test_means_of_long_durations_are_right_where_nobody_guessed_how_long_residuals_are():
    """Durations of a trial, many at the end of follow-up: clips of residuals would raise every
    mean.
    """
    rng, n = np.random.default_rng(2), 60_000
    x, arm = rng.uniform(-1, 1, (n, 2)), rng.choice(3, n, p=[0.4, 0.3, 0.3])
    rates = np.exp(-4.2 + 0.5 * x[:, 0] + 0.4 * x[:, 1])[:, None] * [1.0, 0.7, 0.3]
    y = np.minimum(rng.exponential(1.0, (n, 1)) / rates, 60.0)
    public = replace(domain(rates=(0.4, 0.3, 0.3)), outcome_bound=30.0, outcome_center=30.0)
    release = (
        PrivateEffect(public, Budget(4.0), seed=1)
        .fit(x, labels_of(arm), y[np.arange(n), arm])
        .release_
    )
    assert 40.0 < release.settings["residual_bound"] <= 60.0
    for one, mean in zip(release.arms.means, y.mean(axis=0), strict=True):
        assert abs(one.estimate - mean) < 0.3 < one.interval.half_width + 0.1
    assert "clipped" not in " ".join(sentences(release, "warns", "assumes"))
    # where somebody did, it is told that they are cut, whatever residual_bound is declared
    guessed = replace(release, settings=release.settings | {"score_bound": 100.0})
    assert "clipped-tail" in guessed.caveats
