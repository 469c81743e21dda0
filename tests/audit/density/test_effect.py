"""The exact loss of a composed effect release: center, propensity, score, in one covariate with flips."""

from __future__ import annotations

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect
from dp2erm_cvx.domain import cleaned
from dp2erm_cvx.steps import CenterPlan, PropensityPlan

N = 8
DOMAIN = Domain(covariate_bound=1.0, outcome_bound=1.0)


def planned(center=0.5, propensity=0.2):
    settings = {"first_fit": None, "rows": "common", "propensity": "logistic", "score_bound": 2.0}
    settings |= {"center_share": center, "propensity_share": propensity, "cap": 4.0}
    model = PrivateEffect(DOMAIN, Budget(1.0), residual_scale=0.3, effect_center=0.0, settings=settings)
    return model.plan(N, 1)


def smooth(step, records, released):
    """The smooth part of n times the objective without noise, inside of every set."""
    mapped = step.map.records(records, released)
    if isinstance(step, PropensityPlan):
        return step.first.perturbed(mapped, step.calibration.gamma, np.zeros(2)).model
    assert isinstance(step, CenterPlan)
    return step.program.instance(mapped, np.ones(N), gamma=step.calibration.gamma).model


def log_density(step, records, released, factor=1.0):
    """Of what the step released, less a constant: log det of the Hessian, less the norm of its noise.

    ``factor`` is what a wrong normalization multiplies the sum of losses with.
    """
    model, theta = smooth(step, records, released), released[step.name]
    ridge = N * step.calibration.gamma
    gradient = factor * (model.gradient(theta) - ridge * theta) + ridge * theta
    hessian = factor * (model.hessian(theta) - ridge * np.eye(len(theta))) + ridge * np.eye(len(theta))
    return np.linalg.slogdet(hessian)[1] - np.linalg.norm(gradient) / step.calibration.scale


def right_sums(score, records, released, noise):
    return score.sums(records, released, noise)


def total_loss(plan, pair, released, sums=right_sums, factor=lambda records: 1.0):
    """Log ratio of the densities at these outputs, and in the worst output of the score."""
    loss = 0.0
    for step in plan.steps[:-1]:
        one, other = (
            log_density(step, data, released, factor(data) if step.name == "center" else 1.0) for data in pair
        )
        loss += one - other
    noise = plan.score.calibration
    both = [sums(plan.score.score, data, released, noise) for data in pair]
    return loss + sum(abs(a - b) for a, b in zip(*both, strict=True)) / noise.integers.scale


def draw_pair(rng):
    """Neighbors whose one differing record may flip, often at the ends of the domain."""

    def one(size):
        ends = rng.choice([-1.0, 0.0, 1.0], (2, size)), rng.uniform(-1, 1, (2, size))
        x, y = ends[int(rng.integers(2))]
        return x, rng.integers(0, 2, size), y

    x, a, y = one(N) if rng.integers(2) else (np.zeros(N), np.zeros(N, dtype=int), np.zeros(N))
    other = x.copy(), a.copy(), y.copy()
    for data in ((x, a, y), other):
        for column, value in zip(data, one(1), strict=True):
            column[0] = value[0]
    return [DOMAIN.records(X[:, None], arm, outcome) for X, arm, outcome in ((x, a, y), other)]


def draw_output(rng, plan):
    size = 10.0 ** rng.uniform(-1, 1.5)
    center = np.clip(size * rng.standard_normal(3), -11.0, 11.0)
    lam = rng.standard_normal(2)
    lam *= min(1.0, 0.99 * plan.step("propensity").first.radius / np.linalg.norm(lam)) * rng.choice([0.1, 1])
    return {"center": center, "propensity": lam}


def searched(plan, count, seed=0, enough=np.inf, **changes):
    rng = np.random.default_rng(seed)
    best = (-np.inf, None, None)
    for _ in range(count):
        if best[0] > enough:
            break
        pair = draw_pair(rng)
        for _ in range(4):
            released = draw_output(rng, plan)
            loss = abs(total_loss(plan, pair, released, **changes))
            if loss > best[0]:
                best = loss, pair, released
    return best


@pytest.mark.parametrize("shares", [(0.5, 0.2), (0.05, 0.05), (0.9, 0.05)])
def test_no_pair_loses_more_than_epsilon_and_some_nearly_all(shares):
    plan = planned(*shares)
    loss, _, _ = searched(plan, 80)
    assert loss <= 1.0
    assert loss > 0.8 if shares == (0.05, 0.05) else loss > 0.5


def unclipped(score, records, released, noise, e=None, residual=None):
    """A score whose noise was calibrated to its clips, and which nothing clips in the end."""
    m_0, m_1, _ = score.regressions(records, released)
    e = score.propensity(records, released) if e is None else e
    m, treated = np.where(records.a == 1, m_1, m_0), records.a == 1
    r = score.residual(records, m) if residual is None else residual(records.y - m)
    whole = np.rint(np.where(treated, r / e, -r / (1 - e)) / noise.step).astype(int)
    return 2 * noise.largest * int(whole.sum()), int(np.sum(whole**2))


def clip_before_subtraction(score, records, released, noise):
    # m, which nothing bounds, is taken off the clipped outcome
    x, ones = records.covariates, np.ones(N)
    m = np.where(
        records.a == 1,
        score.nuisances.outcome(x, ones, released),
        score.nuisances.outcome(x, 0 * ones, released),
    )
    y = cleaned(records.y, score.residual_bound)
    return unclipped(score, records, released, noise, residual=lambda _: y - m)


def standardized_by_the_data(score, records, released, noise):
    return unclipped(
        score, records, released, noise, residual=lambda r: 0.5 * r / max(float(np.std(records.y)), 1e-6)
    )


def second_moment_at_half_its_scale(score, records, released, noise):
    first, second = score.sums(records, released, noise)
    return first, 2 * second


def factor_without_cap(score, records, released, noise):
    e = score.nuisances.propensity(records.covariates, released)
    return unclipped(score, records, released, noise, e=e)


def center_of_one_arm(records):
    return N / max(int(records.a.sum()), 1)


@pytest.mark.parametrize(
    ("shares", "changes"),
    [
        ((0.5, 0.2), {"sums": clip_before_subtraction}),
        ((0.5, 0.2), {"sums": standardized_by_the_data}),
        ((0.01, 0.01), {"sums": second_moment_at_half_its_scale}),
        ((0.5, 0.2), {"sums": factor_without_cap}),
        ((0.5, 0.2), {"factor": center_of_one_arm}),
    ],
    ids=["clip", "standardized", "second moment", "cap", "one arm"],
)
def test_planted_errors_are_caught(shares, changes):
    plan = planned(*shares)
    loss, pair, released = searched(plan, 300, seed=1, enough=1.0, **changes)
    assert loss > 1.0
    # on the same pair, at the same output, the release as it is keeps its budget
    assert abs(total_loss(plan, pair, released)) <= 1.0
