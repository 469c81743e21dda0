"""Exact densities and integers of composed effects and rules, by formulas and at any released
number.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Domain, PrivateEffect
from dp2erm_cvx.audit import SearchPlan, audit_density, search_density
from dp2erm_cvx.audit.density import log_density_ratio
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.data.counts import Unit
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.steps.covariates import ArmMeans, DifferenceSquare
from dp2erm_cvx.steps.record_map import UNIT
from tests.audit.bugs import loss_at_zero, weaker, whole
from tests.audit.density.released import LEAVING, SAMPLED, N, effect, rule, weights
from tests.audit.pairs import changed_record, lone, neighbors, of_persons
from tests.plan.changed import changed

RANGED = replace(SAMPLED, ranges={"x": (-1.0, 1.0)})
SCALE = 0.3
SCORED = {"score_bound": 0.4, "spread_share": 0.03}


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(
    ("model", "least"),
    [
        (effect(domain=RANGED, **SCORED), 0.99),
        (effect(estimand="att", propensity="constant", domain=RANGED, **SCORED), 0.79),
        (effect(estimand="overlap", domain=RANGED, **SCORED), 0.79),
        # both gains and their second moment: a record may change which one it adds to
        (rule(0.2, 0.2, value_share=0.5, score_bound=0.01), 0.98),
    ],
)
def test_integers_move_by_their_share_at_most(model, least):
    """Whatever was released, and with another weight in the neighbor."""
    plan, rng, domain = model.plan(N, 1), np.random.default_rng(7), model.domain
    counted = [step for step in plan.steps if step.integers is not None]
    worst = dict.fromkeys((step.name for step in counted), 0.0)
    for _ in range(300 if least > 0.8 else 80):
        fits = {"center": 3 if domain.weighted else 2, "rule": 2, "arms": 4}
        released = {name: rng.normal(size=p) * 10 ** rng.uniform(-2, 1) for name, p in fits.items()}
        released |= {"propensity": rng.integers(-9, 9, 2).astype(float)}
        released |= {
            name: UNIT * rng.integers(-9, 9, p) for name, p in (("rate", 2), ("spread", 1))
        }
        released["sides"] = rng.integers(-N, N, 4) * float(UNIT)
        ends = zip(
            rng.choice([-1, 1], 2), rng.integers(0, 2, 2), rng.choice([-1, 0, 1], 2), strict=True
        )
        own = rng.choice([-1.0, 0.0, 2.5, 5.0, 5.0, 50.0, np.nan], 2)
        sampled = [[weights(wt, 1.0)] if domain.weighted else [] for wt in own]
        pair = [
            domain.records(*data, *wt)
            for data, wt in zip(changed_record(*ends), sampled, strict=True)
        ]
        for step in counted:
            sums = [step.exact_sums(data, released) for data in pair]
            moved = sum(abs(s - t) for s, t in zip(*sums, strict=True))
            worst[step.name] = max(worst[step.name], moved / step.integers.sensitivity)
    assert all(share <= 1.0 for share in worst.values())
    assert all(
        share > (least if name in ("score", "value") else 0.98) for name, share in worst.items()
    )


def test_a_rounded_sum_is_not_accused_of_what_rounding_hides():
    """At epsilon = 4 the normal variable has delta = 0.77, the integer that it rounds to 0.02."""
    scale, epsilon, delta = 0.25, 4.0, 0.2
    whole = np.arange(-9, 10)

    def law(center):
        ends = (whole[:, None] + [0.5, -0.5] - center) / scale
        above, below = special.ndtr(ends).T
        return above - below

    assert np.sum(np.maximum(law(0.0) - math.exp(epsilon) * law(1.0), 0.0)) < 0.03
    rate = effect().plan(N, 1).step("rate")
    noise = replace(rate.integers, noise=Noise.GAUSSIAN, scale=scale, epsilon=epsilon, delta=delta)
    plan = changed(effect(epsilon=9.0, delta=0.5).plan(N, 1), "rate", calibration=noise)
    plan = replace(plan, steps=plan.steps[:1])
    result = audit_density(plan, *LEAVING, draws=200)
    assert (result.epsilon, result.delta) == (epsilon, delta)
    assert result.exceeds
    assert not result.theta_exceeds
    assert result.hockey_stick.theta_low == 0.0
    assert result.theta_loss == -math.inf


def test_no_pairs_are_drawn_with_sampling_weights():
    with pytest.raises(DeclarationError, match="pairs are drawn without any"):
        search_density(PrivateEffect(SAMPLED, Budget(1.0)), N, 1)


def minimizer(gradient_rows, pulls, bends, ridge, theta, scale):
    """Log density of the minimizer: noise that balances the gradient, and the determinant of the
    Hessian.
    """
    gradient = gradient_rows.T @ pulls + ridge * theta
    hessian = (gradient_rows.T * bends) @ gradient_rows + ridge * np.eye(len(theta))
    return np.linalg.slogdet(hessian)[1] - np.linalg.norm(gradient) / scale


def rows_of(data):
    """An intercept per arm, and the covariate at three times its bound of 1."""
    X, a, _ = data
    return np.column_stack([1 - a, a, 3 * X])


def regression(data, theta, calibration, rate, ratio):
    rows, y = rows_of(data), data[2]
    s = rows @ theta - np.clip(y, -1.0, 4.0)
    pull, bend = SCALE * np.sign(s) * (1 - np.exp(-np.abs(s) / SCALE)), np.exp(-np.abs(s) / SCALE)
    few = min(rate, 1 - rate)
    all_count = (ratio**2 + few**2) / (few * (1 - few))
    larger = np.clip((all_count - few) / (1 - few), (few / (1 - few)) ** 2, 1.0)
    counts = np.where((data[1] == 1) == (rate < 0.5), 1.0, larger)
    return minimizer(
        rows, counts * pull, counts * bend, N * calibration.gamma, theta, calibration.scale
    )


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
    model = effect(epsilon=100.0, score_bound=2.0, **others)
    plan = model.plan(N, 1)
    square, shrunk = plan.step("spread"), []
    for kind in (neighbors, lone):
        pair = kind(rng, N, 1)
        one, other = audited_laws(model, pair)[1]
        for size, treated, squares in ((0.1, 2, UNIT // 3), (1.0, 4, UNIT), (5.0, 7, 6 * UNIT)):
            integers = {"rate": np.array([treated]), "spread": np.array([squares])}
            center = size * rng.normal(size=3)
            lam = rng.uniform(-0.9, 0.9, 2)
            # inside of every set the coordinates are what is released; the last integers take none
            u = np.concatenate([[treated, squares], center, lam])
            result = log_density_ratio(one, other, one.place(u))
            scale = square.size(integers)[2].item()
            shrunk.append(scale > 1.0)
            stretch = plan.main.nuisances.worked_out(integers | {"center": center}, N).stretch
            theta = center * np.array([1.0, 1.0, stretch.item()])
            right, sums = [], []
            for X, a, y in pair:
                norms = np.rint(
                    UNIT * X[:, 0] ** 2 / 4.0
                ).sum()  # nine times the guess of 2/3, squared
                data = np.clip(scale * X, -1.0, 1.0), a, y
                rate, ratio = treated / N, plan.study.settings.noise_ratio
                right.append(
                    regression(data, center, plan.step("center").calibration, rate, ratio)
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


@pytest.mark.slow
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

    kept = loss_at_zero(model, pair)
    assert 0.8 < kept <= 1.0
    monkeypatch.setattr(Unit, "shared", whole)
    assert loss_at_zero(model, pair) == pytest.approx(3.0 * kept, rel=0.1)


def extreme_pair(n):
    """Records of two covariates of which one moves from a corner and an arm to the other ones."""
    rng = np.random.default_rng(6)
    X, a, y = rng.uniform(-1.0, 1.0, (n, 2)), np.arange(n) % 2, rng.uniform(-1.0, 1.0, n)
    pair = []
    for side in (1, -1):
        own = X.copy(), a.copy(), y.copy()
        own[0][0], own[1][0], own[2][0] = side, (side + 1) // 2, side
        pair.append(own)
    return pair


def test_a_fit_with_means_by_arm_loses_at_most_epsilon_and_more_where_they_pay_too_little():
    """At released numbers near the exact ones and far off, where the two blocks lose all that they
    may.
    """
    n, epsilon = 30, 8.0
    domain = Domain(2.0, 1.0, ranges=[(-1.0, 1.0)] * 2)
    settings = {"mean_share": 0.4, "propensity": "constant", "center_share": 0.3, "rows": "common"}
    model = PrivateEffect(
        domain, Budget(epsilon), residual_scale=0.3, settings=settings, arithmetic="assumed"
    )
    plan, pair, rng = model.plan(n, 2), extreme_pair(n), np.random.default_rng(3)
    assert isinstance(plan.step("mean"), ArmMeans)
    assert isinstance(plan.step("along"), DifferenceSquare)
    far = np.array([1.0, 0.1, 0.1, -1.0, 0.1, 0.1]) * 1e6 * UNIT
    released = []
    for means in (far, -far, *(rng.normal(size=(4, 6)) * 9 * UNIT)):
        squares = UNIT * rng.integers(0, 20, 3)
        released.append(
            np.concatenate([[14.0], means, squares[:2], squares[2:], 0.1 * rng.normal(size=4)])
        )

    def largest(planned):
        one, other = audited_laws(planned, pair)[1]
        return max(abs(log_density_ratio(one, other, one.place(values))) for values in released)

    assert 0.25 * epsilon < largest(plan) <= epsilon
    assert largest(weaker(plan, "mean", scale=0.2)) > epsilon
