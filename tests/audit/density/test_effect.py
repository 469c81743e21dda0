"""Exact densities of a composed effect release: center, refit, propensity and score, with flips."""

from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from scipy import special

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, PrivateRanges
from dp2erm_cvx.audit import SearchPlan, audit_density, search_density
from dp2erm_cvx.audit.density import log_density_ratio
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.domain import cleaned
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.problems.regression import saturating_regression
from dp2erm_cvx.sampling import SamplingWeights, Unit
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.score import AverageScore
from tests.audit.bugs import weaker, whole
from tests.audit.pairs import lone, neighbors, of_persons
from tests.plan.changed import changed

N = 8
DOMAIN = Domain(covariate_bound=1.0, outcome_bound=1.0)
SCALE = 0.3


def effect(shares=(0.5, 0.2), budget=Budget(1.0), estimand="ate", **settings):  # noqa: B008
    """At a ``score_bound`` of 4 no released rate widens a score."""
    shares = {"center_share": shares[0], "propensity_share": shares[1]}
    fixed = {"first_fit": None, "rows": "common", "propensity": "logistic", "score_bound": 4.0, "cap": 4.0}
    fixed |= {"rate_share": 0.01, "mean_share": None, "spread_share": None, "arms": "alike"}
    return PrivateEffect(
        DOMAIN,
        budget,
        estimand=estimand,
        residual_scale=SCALE,
        effect_center=0.0 if estimand != "risks" else None,
        settings=fixed | shares | settings,
        noise="gaussian" if budget.delta else "gamma",
        arithmetic="assumed",
    )


def changed_record(first, second, rest=(0.0, 0, 0.0)):
    """Datasets of one covariate whose first record (x, a, y) is the one or the other."""
    pair = []
    for record in (first, second):
        x, a, y = (np.array([own, *[other] * (N - 1)]) for own, other in zip(record, rest, strict=True))
        pair.append((x[:, None].astype(float), a.astype(int), y.astype(float)))
    return tuple(pair)


SAMPLED = replace(DOMAIN, codebook=Codebook(sampling_weights=SamplingWeights("wt", 5.0)))


def with_weights(model, pair, weights):
    """The plan of the model over the domain with weights, and the pair with its own."""
    model.domain = SAMPLED
    frames = (
        (pd.DataFrame({"x": X[:, 0], "wt": wt}), a, y) for (X, a, y), wt in zip(pair, weights, strict=True)
    )
    return model.plan(N, 1), tuple(frames)


@pytest.mark.parametrize(
    ("estimand", "settings"),
    [("ate", {}), ("att", {"propensity": "constant"}), ("overlap", {}), ("att", {"cells": {"x": 2}})],
)
def test_a_weighted_score_moves_by_its_share_at_most(estimand, settings):
    """Whatever was released, and with another weight in the neighbor; the treated attain all of it."""
    if "cells" in settings:
        settings = settings | {"rows": None, "propensity": "cells"}
    ranged = replace(SAMPLED, ranges={"x": (-1.0, 1.0)})
    model = effect(estimand=estimand, **settings | {"score_bound": 0.4, "spread_share": 0.03})
    model.domain = ranged
    plan, rng = model.plan(N, 1), np.random.default_rng(7)
    counted = [step for step in plan.steps if step.integers is not None]
    worst = dict.fromkeys((step.name for step in counted), 0.0)
    for _ in range(300 if estimand == "ate" else 80):
        released = {name: rng.normal(size=3) * 10 ** rng.uniform(-2, 1) for name in ("center", "refit")}
        released["propensity"] = rng.integers(-9, 9, 2).astype(float)
        released["cells"] = rng.integers(-9, 9, 8)
        released["rate"], released["spread"] = UNIT * rng.integers(-9, 9, 2), UNIT * rng.integers(-9, 9, 1)
        x, a, y = rng.choice([-1.0, 1.0], (2, 1)), rng.integers(0, 2, 2), rng.choice([-1.0, 1.0], 2)
        wt = rng.choice([-1.0, 0.0, 2.5, 5.0, 5.0, 50.0, np.nan], 2)
        pair = [
            ranged.records(
                np.concatenate([x[i : i + 1], np.zeros((N - 1, 1))]),
                np.append(a[i], np.zeros(N - 1)),
                np.append(y[i], np.zeros(N - 1)),
                np.append(wt[i], np.ones(N - 1)),
            )
            for i in (0, 1)
        ]
        for step in counted:
            sums = [step.exact_sums(data, released) for data in pair]
            moved = sum(abs(s - t) for s, t in zip(*sums, strict=True))
            worst[step.name] = max(worst[step.name], moved / step.integers.sensitivity)
    assert all(share <= 1.0 for share in worst.values())
    assert worst["score"] > (0.99 if estimand == "ate" else 0.79)
    assert all(share > 0.99 for name, share in worst.items() if name != "score")


def test_a_weighted_effect_spends_what_it_may():
    pair = changed_record((1.0, 1, 1.0), (1.0, 1, -1.0), (1.0, 1, 1.0))
    heavy, light = np.full(N, 5.0), np.array([0.0, *[5.0] * (N - 1)])
    plan, datasets = with_weights(effect(), pair, (heavy, heavy))
    with pytest.raises(DeclarationError, match="pairs are drawn without any"):
        search_density(PrivateEffect(SAMPLED, Budget(1.0)), N, 1)
    assert 0.6 < audit_density(plan, *datasets, starts=1).loss <= 1.0
    for weights in ((heavy, light), (light, 9.0 * heavy)):
        one, other = audited_laws(*with_weights(effect(), pair, weights))[1]
        assert 0.0 < abs(log_density_ratio(one, other, one.place(np.zeros(len(one.units))))) <= 1.0


def minimizer(gradient_rows, pulls, bends, ridge, theta, scale):
    """Log density of the minimizer: noise that balances the gradient, and the determinant of the Hessian."""
    gradient = gradient_rows.T @ pulls + ridge * theta
    hessian = (gradient_rows.T * bends) @ gradient_rows + ridge * np.eye(len(theta))
    return np.linalg.slogdet(hessian)[1] - np.linalg.norm(gradient) / scale


def rows_of(data):
    """An intercept per arm, and the covariate at three times its bound of 1."""
    X, a, _ = data
    return np.column_stack([1 - a, a, 3 * X])


def regression(data, theta, calibration, rate, ratio, less_by=0.0):
    rows, y = rows_of(data), data[2]
    s = rows @ theta - np.clip(y - less_by, -4.0 if np.any(less_by) else -1.0, 4.0)
    pull, bend = SCALE * np.sign(s) * (1 - np.exp(-np.abs(s) / SCALE)), np.exp(-np.abs(s) / SCALE)
    few = min(rate, 1 - rate)
    all_count = (ratio**2 + few**2) / (few * (1 - few))
    larger = np.clip((all_count - few) / (1 - few), (few / (1 - few)) ** 2, 1.0)
    counts = np.where((data[1] == 1) == (rate < 0.5), 1.0, larger)
    return minimizer(rows, counts * pull, counts * bend, N * calibration.gamma, theta, calibration.scale)


def logistic(data, lam, calibration):
    X, a, _ = data
    rows = (2 * a - 1)[:, None] * np.column_stack([np.ones(N), X])
    p = special.expit(-rows @ lam)
    return minimizer(rows, -p, p * (1 - p), N * calibration.gamma, lam, calibration.scale)


def score_integers(data, theta, lam, noise, residual_bound, rate):
    X, a, y = data
    inverse = 1 / min(rate, 1 - rate)
    widening, least = min(inverse / 2, 2.0), 1 / (4 * inverse)
    m_0, m_1 = (np.clip(arm + 3 * X[:, 0] * theta[2], -1, 1) for arm in theta[:2])
    e = np.clip(special.expit(lam[0] + X[:, 0] * lam[1]), least, 1 - least)
    r = np.clip(y - np.where(a == 1, m_1, m_0), -residual_bound, residual_bound)
    base = np.clip(m_1 - m_0, -2.0 * widening, 2.0 * widening)
    room = 2.0 * widening - np.abs(base)
    score = base + np.clip(np.where(a == 1, r / e, -r / (1 - e)), -room, room)
    k = np.rint(score / widening / noise.step).astype(int)
    return np.array([2 * noise.largest * int(k.sum()), int(np.sum(k * k))])


def test_the_density_is_that_of_the_formulas():
    rng = np.random.default_rng(0)
    others = {"arms": "balanced", "spread_share": 0.1}
    model = effect(budget=Budget(100.0), first_fit=0.4, score_bound=2.0, **others)
    plan = model.plan(N, 1)
    square, shrunk = plan.step("spread"), []
    for kind in (neighbors, lone):
        pair = kind(rng, N, 1)
        one, other = audited_laws(model, pair)[1]
        for size, treated, squares in ((0.1, 2, UNIT // 3), (1.0, 4, UNIT), (5.0, 7, 6 * UNIT)):
            integers = {"rate": np.array([treated]), "spread": np.array([squares])}
            center, refit = size * rng.normal(size=(2, 3))
            lam = rng.uniform(-0.9, 0.9, 2)
            # inside of every set the coordinates are what is released; the last integers take none
            u = np.concatenate([[treated, squares], center, refit, lam])
            result = log_density_ratio(one, other, one.place(u))
            scale = square.size(integers)[2].item()
            shrunk.append(scale > 1.0)
            stretch = plan.main.nuisances.worked_out(integers | {"center": center}, N).stretch
            theta = (center + refit) * np.array([1.0, 1.0, stretch.item()])
            right, sums = [], []
            for X, a, y in pair:
                norms = np.rint(UNIT * X[:, 0] ** 2 / 4.0).sum()  # nine times the guess of 2/3, squared
                data = np.clip(scale * X, -1.0, 1.0), a, y
                rate, ratio = treated / N, plan.study.settings.noise_ratio
                right.append(
                    regression(data, center, plan.step("center").calibration, rate, ratio)
                    + regression(
                        data, refit, plan.step("refit").calibration, rate, ratio, rows_of(data) @ center
                    )
                    + logistic(data, lam, plan.step("propensity").calibration)
                    - abs(treated - a.sum()) / plan.step("rate").calibration.scale
                    - abs(squares - norms) / square.calibration.scale
                )
                bound = plan.main.residual_bound
                sums.append(score_integers(data, theta, lam, plan.main.calibration, bound, rate))
            scale = plan.main.calibration.scale
            expected = right[0] - right[1] + np.abs(sums[0] - sums[1]).sum() / scale
            assert result == pytest.approx(expected, abs=1e-9)
    assert any(shrunk)


#: A flip that moves everything.
FLIP = changed_record((1.0, 1, 1.0), (1.0, 0, 1.0), rest=(-1.0, 0, -1.0))
#: The same with the other outcome, beside records that say nothing.
MOVED = changed_record((1.0, 1, 1.0), (1.0, 0, -1.0))


#: Where arms are as likely, the score of the flip reaches both ends of this bound.
EVEN = {"propensity": 0.5, "score_bound": 1.8}


@pytest.mark.parametrize(
    ("shares", "settings", "least"),
    [((0.5, 0.2), {}, 0.5), ((0.05, 0.05), {}, 0.8), ((0.05, 0.05), EVEN, 0.9)],
)
def test_no_pair_loses_more_than_epsilon_and_some_nearly_all(shares, settings, least):
    model = effect(shares, **settings)
    losses = []
    for pair in (FLIP, MOVED):
        result = audit_density(model, *pair, starts=1)
        fitted = [] if settings else ["rate", "propensity"]
        assert list(result.outputs) == [*fitted[:1], "center", *fitted[1:], "score"]
        assert result.loss <= result.epsilon <= 1.0
        assert result.numerical_error < 1e-9
        losses.append(result.loss)
    assert max(losses) > least


@pytest.mark.parametrize(
    "settings",
    [
        {"estimand": "overlap"},
        {"estimand": "risks"},
        {"estimand": "att", "propensity": "constant"},
        {"rows": "mix", "first_fit": 0.3, "propensity": 0.5},
        {"rows": None, "cells": {0: [0.0]}, "propensity": "cells"},
    ],
    ids=str,
)
def test_every_kind_of_effect_is_audited(settings):
    model = effect(**settings)
    if model.estimand == "risks":
        model.domain = replace(DOMAIN, outcome_center=0.5, outcome_bound=0.5)
    result = audit_density(model, *FLIP, starts=1)
    assert 0.2 < result.loss <= result.epsilon <= 1.0


def test_private_ranges_are_refused():
    model = PrivateEffect(PrivateRanges(), Budget(1000.0), seed=1)
    with pytest.raises(DeclarationError, match="ranges"):
        audit_density(model, *FLIP)


def test_gaussian_noise_is_sampled():
    budget = Budget(1.0, 0.05)
    result = audit_density(effect(budget=budget, propensity=0.5), *FLIP, draws=100)
    assert result.noise is Noise.GAMMA  # of the score of lines
    assert result.hockey_stick.low <= result.delta <= 0.05
    assert not result.exceeds
    plan = effect(budget=budget, rows=None, cells={0: [0.0]}, propensity="cells").plan(N, 1)
    assert not audit_density(plan, *FLIP, draws=100).exceeds
    assert audit_density(weaker(plan, "score", scale=0.1), *FLIP, draws=100).exceeds


def test_three_whole_records_of_a_person_are_found_out(monkeypatch):
    settings = {"propensity": 0.5, "center_share": 0.9, "spread_share": None}
    model = PrivateEffect(
        of_persons(), Budget(1.0), residual_scale=0.1, settings=settings, arithmetic="assumed"
    )
    result = search_density(model, N, 1, search=SearchPlan(1), starts=1)
    assert not result.exceeds
    assert max(np.bincount(result.first[3])) > 1
    # all records of all persons pull one way, and those of one person then the other
    person = np.repeat(np.arange(N), 3)
    x, a = np.ones((3 * N, 1)), np.ones(3 * N, dtype=int)
    pair = [(x, a, np.where(person == 0, side * 2.0, -2.0), person) for side in (1, -1)]

    def loss_at_zero():
        one, other = audited_laws(model, pair)[1]
        place = one.place(np.zeros(len(one.units)))
        return abs(log_density_ratio(one, other, place))

    kept = loss_at_zero()
    assert 0.8 < kept <= 1.0
    monkeypatch.setattr(Unit, "shared", whole)
    assert loss_at_zero() == pytest.approx(3.0 * kept, rel=0.1)


class Unclipped(AverageScore):
    """Its noise is that of a clipped score, and nothing clips it in the end."""

    def residuals(self, records, m):
        return cleaned(records.y - m, self.residual_bound)

    def means(self, records, released):
        parts = self.parts(records, released)
        return np.where(parts.treated, parts.m_1, parts.m_0)

    def exact_sums(self, records, released):
        noise = self.calibration
        r, e = self.residuals(records, self.means(records, released)), self.parts(records, released).e
        k = np.rint(np.where(records.a == 1, r / e, -r / (1 - e)) / noise.step).astype(int)
        return 2 * noise.largest * int(k.sum()), int(np.sum(k**2))


class ClipBeforeSubtraction(Unclipped):
    """What nothing bounds, m, is taken off the clipped outcome."""

    def means(self, records, released):
        return self.nuisances.outcome(records.covariates, records.a, released)

    def residuals(self, records, m):
        return cleaned(records.y, self.residual_bound) - m


class StandardizedByTheData(Unclipped):
    def residuals(self, records, m):
        return 0.5 * (records.y - m) / max(float(np.std(records.y)), 1e-6)


class FactorWithoutCap(Unclipped):
    def capped(self, propensity):
        return propensity


class SecondMomentAtHalfItsScale(AverageScore):
    def exact_sums(self, records, released):
        first, second = super().exact_sums(records, released)
        return first, 2 * second


class DividedByTheArm(saturating_regression):
    """Its losses are summed over the number of treated records, in place of n."""

    _made = True

    def instance(self, records, weights, *, gamma, noise=None):
        heavier = weights * (N / max(int(records.a.sum()), 1))
        return super().instance(records, heavier, gamma=gamma, noise=noise)


def as_a(kind, one):
    return kind(**{field.name: getattr(one, field.name) for field in fields(one)})


def scored_by(kind):
    return lambda plan: replace(plan, steps=(*plan.steps[:-1], as_a(kind, plan.main)))


def center_of_one_arm(plan):
    return changed(plan, "center", program=as_a(DividedByTheArm, plan.step("center").program))


def refit_for_free(plan):
    """Either fit takes the noise of a release that is all there is."""
    whole = effect((0.9, 0.05)).plan(N, 1).step("center").calibration
    return changed(changed(plan, "center", calibration=whole), "refit", calibration=whole)


PLANTED = {
    "clip before subtraction": (scored_by(ClipBeforeSubtraction), {}, MOVED),
    "standardized by the data": (scored_by(StandardizedByTheData), {}, MOVED),
    "second moment": (
        scored_by(SecondMomentAtHalfItsScale),
        {"shares": (0.01, 0.01)},
        changed_record((1.0, 1, 1.0), (1.0, 0, 0.5)),
    ),
    "factor without cap": (scored_by(FactorWithoutCap), {}, MOVED),
    "center of one arm": (center_of_one_arm, {}, MOVED),
    "refit for free": (refit_for_free, {"shares": (0.9, 0.05), "first_fit": 0.5, "propensity": 0.5}, MOVED),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_are_caught(name):
    wrong, settings, pair = PLANTED[name]
    plan = effect(**settings).plan(N, 1)
    result = audit_density(wrong(plan), *pair, starts=1)
    assert result.exceeds, result
    assert result.epsilon <= 1.0
