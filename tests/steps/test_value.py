"""The value of a rule: the statistic in closed form, its movement, and what is released."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx import Domain
from dp2erm_cvx.calibration.numbers import SUM_ERROR, ValueStatistic, calibrate_value, noise_half_width
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.domain import Records
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.mechanism import secure_available
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.uniform import Uniform
from dp2erm_cvx.public import one_of
from dp2erm_cvx.release.value import contrasts_from_cells, state_value
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.steps import Execution, Value, WeightsPlan
from dp2erm_cvx.steps.value import value_cells, value_contrasts
from dp2erm_cvx.universe import Universe
from tests.helpers import make_records, make_weights

M_OUT = 2.0
BOTH = [True, False] if secure_available() else [False]
CELLS, CONTRASTS = ValueStatistic.CELLS, ValueStatistic.CONTRASTS
COMPUTE = {CELLS: value_cells, CONTRASTS: value_contrasts}


def with_outcomes(records, y):
    return Records(records.X, records.a, np.asarray(y, dtype=float), records.domain)


def exactly(statistic, weights, a, y, d):
    """From the definitions, in exact rational arithmetic."""
    found = [Fraction(0)] * statistic.n_numbers
    for w_i, a_i, y_i, d_i in zip(weights, a, y, d, strict=True):
        weight, outcome = Fraction(float(w_i)), Fraction(float(y_i))
        if statistic is CELLS:
            cell = 2 * int(d_i) + int(a_i)
            found[cell] += weight * outcome
            found[4 + cell] += weight * Fraction(M_OUT) / 2
        else:
            for k, constant in enumerate((1, 0)):
                found[k] += 2 * (int(a_i == d_i) - int(a_i == constant)) * weight * outcome
    return [value / len(a) for value in found]


@pytest.mark.parametrize("statistic", ValueStatistic)
def test_agrees_with_the_definition_within_the_stated_error(statistic):
    worst = 0.0
    for seed in range(40):
        records = make_records(60, 3, seed=seed, outcome_bound=M_OUT)
        rng = np.random.default_rng(seed)
        y = M_OUT * rng.choice([-1.0, 1.0], 60) * rng.uniform(0.1, 1, 60)
        if seed % 2:  # cancellation: the sums are much smaller than their terms
            y = 10.0 ** rng.uniform(-12, 0, 60) * np.where(rng.random(60) < 0.5, M_OUT, -M_OUT)
        records = with_outcomes(records, y)
        weights, chosen = make_weights(records, seed), rng.integers(2, size=60)
        found = COMPUTE[statistic](records, weights, chosen)
        exact = exactly(statistic, weights, records.a, y, chosen)
        error = sum(abs(Fraction(float(f)) - e) for f, e in zip(found, exact, strict=True))
        worst = max(worst, float(error) / (SUM_ERROR * statistic.radius * M_OUT))
    assert 0.01 < worst <= 1.0


def test_both_treatments_of_everyone_give_the_exact_values():
    rng = np.random.default_rng(1)
    x, outcomes = rng.uniform(-1, 1, (30, 2)), rng.uniform(-1, 1, (30, 2))
    domain = Domain(2.0, 4.0, outcome_center=0.5, treatment_cost=0.25)
    records = domain.records(np.vstack([x, x]), np.repeat([0, 1], 30), outcomes.T.ravel())
    rule = (x[:, 0] > 0.2).astype(int)
    net = outcomes - [0.0, 0.25]
    value = net[np.arange(30), rule].mean()
    found = value_contrasts(records, np.ones(60), np.tile(rule, 2))
    np.testing.assert_allclose(found, [value - net[:, 1].mean(), value - net[:, 0].mean()], atol=1e-14)
    cells = value_cells(records, np.ones(60), np.tile(rule, 2))
    by_cells, _ = contrasts_from_cells(cells, 4.0, 1e-12)
    np.testing.assert_allclose(by_cells, found, atol=1e-10)
    for constant in (0, 1):  # a rule that treats no one, or all
        found = value_contrasts(records, np.ones(60), np.full(60, constant))
        effect = net[:, 1].mean() - net[:, 0].mean()
        np.testing.assert_allclose(found, [-effect * (1 - constant), effect * constant], atol=1e-14)


def test_a_randomized_trial_gives_the_truth_and_unequal_arms_the_stated_bias():
    n, center, treated = 20_000, 5.0, 0.3
    drawn = simulate("linear", n, rng=3)
    rng = np.random.default_rng(4)
    a = (rng.random(n) < treated).astype(int)
    y = center + drawn.main_effect + (a - 0.5) * drawn.contrast + rng.normal(size=n)
    records = Domain(4.0, 60.0).records(drawn.dataset.X, a, y)
    rule = (drawn.dataset.X[:, 0] > 0).astype(int)
    truth = np.array([drawn.value(rule) - drawn.value(np.full(n, constant)) for constant in (1, 0)])
    weights = np.where(a == 1, 0.5 / a.mean(), 0.5 / (1 - a.mean()))
    for w, mass in ((weights, 0.5), (np.ones(n), a.mean())):
        middle = center + drawn.main_effect
        bias = 2 * (2 * mass - 1) * np.array([-np.mean(middle * (rule == 0)), np.mean(middle * (rule == 1))])
        error = 2 * math.sqrt(np.mean((w * records.y) ** 2) / n)
        found = value_contrasts(records, w, rule)
        assert np.abs(found - truth - bias).max() < 4 * error
        by_cells, _ = contrasts_from_cells(value_cells(records, w, rule), 60.0, 1e-9)
        assert np.abs(by_cells - truth).max() < 4 * error  # whatever the arms weigh
        if mass != 0.5:
            assert np.abs(found - truth).min() > 1.5


def example(statistic=CONTRASTS, n=200, epsilon=0.5):
    records = make_records(n, 3, outcome_bound=M_OUT)
    chosen = (records.X[:, 1] > 0).astype(int)
    noise = calibrate_value(uniform_weights(n), M_OUT, n, epsilon, statistic=statistic)
    return records, np.ones(n), chosen, noise


def release_value(records, weights, chosen, noise, *, statistic="cells", exact, seed=None):
    """What a value step with this noise releases of records (n,), and what is stated about it."""
    n = records.n_samples
    universe = Universe(records.domain, n, records.X.shape[1])
    planned = WeightsPlan(Uniform(), uniform_weights(n), 0.0, n)
    kind = one_of("value statistic", statistic, ValueStatistic)
    step = Value(exact=exact, second=itr(), statistic=kind)
    plan = step.planned(universe, noise, planned)
    numbers = step.statistic_of(records, weights, chosen)
    return state_value(plan, plan.noised(numbers, Execution("newton", 1e-6, seed)))


@pytest.mark.parametrize("statistic", ValueStatistic)
@pytest.mark.parametrize("exact", BOTH)
def test_noise_has_the_stated_law(exact, statistic):
    records, weights, chosen, noise = example(statistic)
    truth = COMPUTE[statistic](records, weights, chosen)
    errors = np.array(
        [
            release_value(records, weights, chosen, noise, statistic=statistic, exact=exact, seed=s).released
            for s in range(600)
        ]
    )
    errors -= truth
    for k in range(statistic.n_numbers):
        assert stats.kstest(errors[:, k], stats.laplace(scale=noise.scale).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(errors.T) - np.eye(statistic.n_numbers)).max() < 0.18
    within = np.mean(np.abs(errors) <= noise_half_width(noise))
    assert 0.93 < within < 0.97


@pytest.mark.parametrize(("statistic", "lowest", "highest"), [(CONTRASTS, 0.93, 0.97), (CELLS, 0.92, 0.99)])
def test_widths_cover_the_noise(statistic, lowest, highest):
    records, weights, chosen, noise = example(statistic, n=2000)
    if statistic is CELLS:
        noiseless = value_cells(records, weights, chosen)
        truth, _ = contrasts_from_cells(noiseless, M_OUT, 1e-9)
    else:
        truth = value_contrasts(records, weights, chosen)
    hits = []
    for seed in range(600):
        found = release_value(records, weights, chosen, noise, statistic=statistic, exact=False, seed=seed)
        hits += list(np.abs([found.against_all, found.against_none] - truth) <= found.half_widths)
    assert lowest < np.mean(hits) < highest


def test_deviations_of_cells_are_those_of_the_first_order():
    rng, scale, step = np.random.default_rng(6), 1e-6, 1e-7
    for _ in range(20):
        masses = rng.dirichlet(np.full(4, 3.0))
        cells = np.concatenate([M_OUT * masses * rng.uniform(-0.9, 0.9, 4), masses * M_OUT / 2])
        contrasts, deviations = contrasts_from_cells(cells, M_OUT, scale)
        slopes = [
            (contrasts_from_cells(cells + step * e, M_OUT, scale)[0] - contrasts) / step for e in np.eye(8)
        ]
        expected = math.sqrt(2) * scale * np.linalg.norm(slopes, axis=0)
        np.testing.assert_allclose(deviations, expected, rtol=1e-3)


@pytest.mark.parametrize("statistic", ValueStatistic)
@pytest.mark.parametrize("exact", BOTH)
def test_a_release_states_its_noise(exact, statistic):
    records, weights, chosen, noise = example(statistic)

    def release(seed=None):
        return release_value(records, weights, chosen, noise, statistic=statistic, exact=exact, seed=seed)

    first = release()
    plain = json.loads(json.dumps(asdict(first)))
    assert (plain["epsilon"], plain["scale"]) == (0.5, noise.scale)
    assert (plain["statistic"], len(plain["released"])) == (statistic.value, statistic.n_numbers)
    if statistic is CONTRASTS:
        assert plain["released"] == [plain["against_all"], plain["against_none"]]
        assert plain["half_widths"][0] == pytest.approx(noise.scale * math.log(20), rel=0.03)
        assert min(plain["half_widths"]) > noise.scale * math.log(20)
    else:
        contrasts, _ = contrasts_from_cells(plain["released"], M_OUT, noise.scale)
        assert list(contrasts) == [plain["against_all"], plain["against_none"]]
    assert ("assumed" in plain["arithmetic"]) is not exact
    # operating-system noise: two releases differ; a seed repeats them
    assert first != release()
    assert release(5) == release(5)
    # and no two numbers share a draw
    error = np.array(release(5).released) - COMPUTE[statistic](records, weights, chosen)
    assert np.min(np.diff(np.sort(error))) > 1e-6


@pytest.mark.parametrize(("scale", "statistic"), [(1e-29, CELLS), (1e29, CONTRASTS)])
@pytest.mark.parametrize("exact", BOTH)
def test_extreme_outcomes_give_finite_releases(scale, exact, statistic):
    records = make_records(50, 2, outcome_bound=M_OUT)
    domain = Domain(2.0, scale)
    records = Records(records.X, records.a, scale * np.sign(records.y), domain)
    noise = calibrate_value(uniform_weights(50), scale, 50, 1.0, statistic=statistic)
    release = release_value(records, np.ones(50), np.ones(50), noise, statistic=statistic, exact=exact)
    assert 0 < abs(release.against_none) < 100 * scale
    assert abs(release.against_all) < 100 * scale
    assert all(0 < width < 100 * scale for width in release.half_widths)
    assert all(math.isfinite(number) for number in release.released)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.ones((200, 1))}, "shape"),
        ({"weights": np.r_[np.inf, np.ones(199)]}, "finite"),
        ({"weights": ["one"] * 200}, "numbers"),
        ({"chosen": np.ones(199)}, "shape"),
        ({"chosen": np.full(200, np.nan)}, "0 or 1"),
        ({"chosen": np.full(200, -1)}, "0 or 1"),
    ],
)
def test_hostile_arguments_are_refused_in_one_line(change, message):
    records, weights, chosen, noise = example()
    arguments = {"weights": weights, "chosen": chosen} | change
    with pytest.raises(DataError, match=message) as caught:
        release_value(records, noise=noise, statistic="contrasts", exact=False, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("outcome", [math.nan, math.inf, 1.01 * M_OUT])
def test_outcomes_outside_the_domain_are_refused(outcome):
    records, weights, chosen, _ = example()
    y = np.array(records.y)
    y[7] = outcome
    for compute in COMPUTE.values():
        with pytest.raises(DataError, match="outcome_bound"):
            compute(with_outcomes(records, y), weights, chosen)


def test_noise_for_another_statistic_is_refused():
    records, weights, chosen, noise = example(CONTRASTS)
    with pytest.raises(DeclarationError, match="8"):
        release_value(records, weights, chosen, noise, statistic="cells", exact=False)
    with pytest.raises(DeclarationError, match="cells, contrasts"):
        release_value(records, weights, chosen, noise, statistic="both", exact=False)
