"""Factors at a propensity: their formulas, their balance, and that each is its own record's alone."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.registry import programs
from dp2erm_cvx.steps import Balance, Factors, OutcomeRows, Rows, RuleRows, Term
from dp2erm_cvx.universe import Universe

DOMAIN = Domain(1.5, 2.0)
RELEASED = Term(Rows.POOLED, "propensity")


def draw(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, 2)), rng.integers(0, 2, n), rng.normal(size=n)


@pytest.mark.parametrize("balance", Balance)
def test_formulas_in_exact_arithmetic(balance):
    x, a, _ = draw()
    lam = np.array([0.4, 3.0, -2.0])
    found = Factors(balance, RELEASED, 4.0).of(x, a, {"propensity": lam})
    for row, arm, factor in zip(x, a, found, strict=True):
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
    f_1, f_0 = (Factors(balance, RELEASED).of(x, np.full(len(x), arm), lam) for arm in (1, 0))
    np.testing.assert_allclose(e * f_1, (1 - e) * f_0, rtol=1e-12)


@pytest.mark.parametrize("balance", Balance)
@pytest.mark.parametrize("size", [1.0, 1e3, 1e200, 1e308, math.inf, math.nan])
def test_whatever_was_released_factors_are_between_0_and_1(balance, size):
    x, a, _ = draw()
    factor = Factors(balance, RELEASED)
    found = factor.of(x, a, {"propensity": np.array([0.5, size, -size])})
    assert np.all((found >= 0.0) & (found <= 1.0))


@pytest.mark.parametrize("balance", Balance)
def test_a_factor_is_that_of_its_own_record_to_the_last_bit(balance):
    x, a, _ = draw(333)
    lam = {"propensity": np.array([0.1, 0.7, -1.3])}
    factor = Factors(balance, RELEASED)
    together = factor.of(x, a, lam)
    alone = [factor.of(x[i : i + 1], a[i : i + 1], lam)[0] for i in range(len(x))]
    assert together.tolist() == alone
    order = np.random.default_rng(3).permutation(len(x))
    assert factor.of(x[order], a[order], lam).tolist() == together[order].tolist()


def test_rows_without_a_propensity_count_alike():
    records = DOMAIN.records(*draw())
    released = {"propensity": np.zeros(3), "center": np.zeros(3)}
    plain, factored = RuleRows(Rows.POOLED), RuleRows(Rows.POOLED, balance=Factors("overlap", RELEASED))
    assert not plain.factored
    assert factored.factored
    assert plain.factors(records, released).tolist() == [1.0] * 200
    assert factored.factors(records, released).tolist() == [0.5] * 200
    universe = Universe(DOMAIN, 200, 2)
    assert factored.universe(universe) == OutcomeRows(Rows.POOLED).universe(universe)


def test_constants_of_factored_losses_hold_a_gradient_and_0():
    """A factor of 0 leaves no gradient: half of the largest is what a diameter may not fall below."""
    universe = Universe(DOMAIN, 100, 2)
    for name, program in programs().items():
        if name not in ("itr_saturating", "saturating_regression", "itr", "itr_huber", "itr_logistic"):
            continue
        loss = program(theta_set=L2Ball(1.0)).resolve(DOMAIN).loss_constants(universe)
        found = loss.factored()
        assert found.gradient_radius == max(loss.gradient_radius, loss.gradient_bound / 2)
        assert found.hessian_trace == loss.hessian_trace
        assert found.saturation == loss.saturation
        assert found.response_bound is None
    mean = programs()["arm_means"]().resolve(DOMAIN).loss_constants(universe)
    if mean.gradient_bound is None:
        with pytest.raises(CalibrationError, match="gradient"):
            mean.factored()


@pytest.mark.parametrize(("balance", "cap"), [("nearest", 10.0), ("matching", 1.0), ("matching", math.nan)])
def test_refusals(balance, cap):
    with pytest.raises(DeclarationError):
        Factors(balance, RELEASED, cap)
