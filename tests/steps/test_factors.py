"""Factors at a propensity: their formulas, their balance, and that each is its own record's alone."""

import math

import mpmath
import numpy as np
import pytest

from dp2erm_cvx.domain import Domain, Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.registry import programs
from dp2erm_cvx.steps.nuisances import RuleNuisances
from dp2erm_cvx.steps.record_map import Balance, Factors, Rows, Term
from dp2erm_cvx.steps.score import ValueScore

DOMAIN = Domain(1.5, 2.0)
RELEASED = Term(Rows.POOLED, "propensity")


def draw(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, 2)), rng.integers(0, 2, n), rng.normal(size=n)


@pytest.mark.parametrize("balance", Balance)
def test_formulas_in_exact_arithmetic(balance):
    x, a, _ = draw()
    lam = np.array([0.4, 3.0, -2.0])
    result = Factors(RELEASED, balance, 4.0).of(x, a, {"propensity": lam})
    for row, arm, factor in zip(x, a, result, strict=True):
        odds = mpmath.exp(lam[0] + mpmath.fdot(row.tolist(), lam[1:].tolist()))
        e = odds / (1 + odds)
        own = e if arm else 1 - e
        right = {
            Balance.MATCHING: min(e, 1 - e) / own,
            Balance.OVERLAP: 1 - own,
            Balance.INVERSE: min(1 / own, 4) / 4,
        }[balance]
        assert factor == pytest.approx(float(right), rel=1e-13)


@pytest.mark.parametrize("balance", Balance)
def test_both_arms_have_the_same_mass_at_every_x(balance):
    x, _, _ = draw()
    lam = {"propensity": np.array([0.2, 1.0, -0.6])}
    e = 1 / (1 + np.exp(-Rows.POOLED.predict(lam["propensity"], x, 0.0)))
    f_1, f_0 = (Factors(RELEASED, balance).of(x, np.full(len(x), arm), lam) for arm in (1, 0))
    np.testing.assert_allclose(e * f_1, (1 - e) * f_0, rtol=1e-12)


@pytest.mark.parametrize("balance", Balance)
@pytest.mark.parametrize("size", [1.0, 1e3, 1e200, 1e308, math.inf, math.nan])
def test_whatever_was_released_factors_are_between_0_and_1(balance, size):
    x, a, _ = draw()
    factor = Factors(RELEASED, balance)
    result = factor.of(x, a, {"propensity": np.array([0.5, size, -size])})
    assert np.all((result >= 0.0) & (result <= 1.0))


@pytest.mark.parametrize("balance", Balance)
def test_a_factor_is_that_of_its_own_record_to_the_last_bit(balance):
    x, a, _ = draw(333)
    lam = {"propensity": np.array([0.1, 0.7, -1.3])}
    factor = Factors(RELEASED, balance)
    together = factor.of(x, a, lam)
    alone = [factor.of(x[i : i + 1], a[i : i + 1], lam)[0] for i in range(len(x))]
    assert together.tolist() == alone
    order = np.random.default_rng(3).permutation(len(x))
    assert factor.of(x[order], a[order], lam).tolist() == together[order].tolist()


def test_constants_of_factored_losses_hold_a_gradient_and_0():
    """A factor of 0 leaves no gradient: half of the largest is what a diameter may not fall below."""
    universe = Universe(DOMAIN, 100, 2)
    for name, program in programs().items():
        if name not in ("itr_saturating", "saturating_regression", "itr", "itr_huber", "itr_logistic"):
            continue
        loss = program(theta_set=L2Ball(1.0)).resolve(DOMAIN).loss_constants(universe)
        result = loss.factored()
        assert result.gradient_radius == max(loss.gradient_radius, loss.gradient_bound / 2)
        assert result.hessian_trace == loss.hessian_trace
        assert result.saturation == loss.saturation
        assert result.response_bound is None
    mean = programs()["arm_means"]().resolve(DOMAIN).loss_constants(universe)
    if mean.gradient_bound is None:
        with pytest.raises(CalibrationError, match="gradient"):
            mean.factored()


@pytest.mark.parametrize(("balance", "cap"), [("nearest", 10.0), ("matching", 1.0), ("matching", math.nan)])
def test_refusals(balance, cap):
    with pytest.raises(DeclarationError):
        Factors(RELEASED, balance, cap)


def gain_records(n=400, seed=3):
    """Outcomes that are linear in either arm, without noise, treated more often on one side of a rule."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    e = np.where(x[:, 0] > 0.2, 0.7, 0.25) + 0.2 * x[:, 1]
    a = (rng.random(n) < e).astype(int)
    slopes = np.array([[0.7, -0.4], [-0.2, 1.1]])
    lines = np.array([0.3, 1.0])[:, None] + slopes @ x.T
    domain = Domain(1.5, 100.0)
    return domain.records(x, a, np.where(a == 1, lines[1], lines[0])), lines[1] - lines[0], slopes


def gain_score(rates):
    released = np.array([[0.1, 0.5, 0.2], [0.9, -0.6, 0.7]])
    term = Term(Rows.ARMS, tuple(released.ravel().tolist()))
    return ValueScore(RuleNuisances((term,), 0.5, by_side=rates), 1e3, 1e3, 1e3), released[:, 1:]


@pytest.mark.parametrize("treats", [True, False])
def test_gains_at_rates_by_side_are_off_by_the_slopes_alone(treats):
    """``P_d ((1 - pi_d) db_1 + pi_d db_0)'Delta_d`` for any released lines; a common rate adds to it."""
    records, effect, slopes = gain_records()
    x, a, rule = records.covariates, records.a, {"rule": np.array([-0.2, 1.0, 0.0])}
    side = (x[:, 0] > 0.2) == treats
    rates = tuple(float(a[(x[:, 0] > 0.2) == one].mean()) for one in (False, True))

    def off(rates):
        score, fitted = gain_score(rates)
        result = score.score(score.parts(records, rule))
        return np.mean(side * (result - effect)), slopes - fitted

    result, wrong = off(rates)
    share, own = side.mean(), rates[treats]
    apart = x[side & (a == 1)].mean(axis=0) - x[side & (a == 0)].mean(axis=0)
    assert result == pytest.approx(share * ((1.0 - own) * wrong[1] + own * wrong[0]) @ apart, abs=1e-13)
    common = float(a.mean())
    assert abs(off((common, common))[0] - result) > 0.02
