"""Fits charge the ledger before they draw noise."""

import math

import pytest
from sklearn.base import clone

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateTwoStageERM
from dp2erm_cvx.calibration import renyi_epsilon
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, LedgerError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.steps import step
from dp2erm_cvx.steps.score import MeanScore
from dp2erm_cvx.steps.step import Inputs
from tests.ledger.model import DATA, model
from tests.plan.changed import unproven


def test_a_fit_charges_what_its_plan_guarantees(ledger: Ledger) -> None:
    fitted = clone(model(ledger, calibration="renyi")).set_params(budget=Budget(0.4, 1e-7)).fit(*DATA)
    (receipt,) = ledger.account("trial").receipts
    assert fitted.receipt_ == receipt
    stated = fitted.release_.guarantee
    assert receipt.budget == Budget(stated.epsilon, stated.delta) == Budget(0.4, 1e-7)
    assert receipt.curve == fitted.plan(30, 1).curve
    assert receipt.curve is not None
    assert receipt.note == "uniform, then arm_means of a on y"
    pure = model(ledger).set_params(budget=Budget(0.4, 1e-7)).fit(*DATA)
    assert pure.receipt_.budget == Budget(0.4)  # gamma noise spends no delta
    assert pure.receipt_.curve is None
    with pytest.raises(LedgerError, match=r"epsilon = 0\.2, delta = 9e-07 is left"):
        model(ledger).fit(*DATA)


def test_the_charge_is_on_disk_before_noise_is_drawn(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def drawn(*args: object, **kwargs: object) -> None:
        seen.append(len(Ledger(ledger.path).account("trial").receipts))
        raise KeyboardInterrupt

    for name in ("draw", "draw_within"):
        monkeypatch.setattr(step, name, drawn)
    with pytest.raises(KeyboardInterrupt):
        model(ledger).fit(*DATA)
    assert seen == [1]


def test_a_refusal_after_a_first_release_gives_nothing_back(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a later step refuses may depend on released numbers: it is an output, and paid for."""
    own = PrivateEffect(Domain(2.0, 1.0), Budget(0.4), residual_scale=0.5, ledger=ledger, dataset="trial")

    def refusing(self: MeanScore, inputs: Inputs, released: dict, execution: object) -> None:
        assert "rate" in released
        raise CalibrationError("at these numbers")

    monkeypatch.setattr(MeanScore, "run", refusing)
    with pytest.raises(CalibrationError, match="at these numbers"):
        own.fit(*DATA)
    assert [receipt.budget for receipt in ledger.account("trial").receipts] == [Budget(0.4)]


def test_a_refused_fit_neither_clips_nor_draws(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "run", lambda *_, **__: pytest.fail("the data were touched"))
    refused = model(ledger, epsilon=1.5)
    with pytest.raises(LedgerError) as one:
        refused.fit(*DATA)
    with pytest.raises(LedgerError) as other:
        refused.fit(DATA[0], 1 - DATA[1], -DATA[2])
    assert str(one.value) == str(other.value)
    assert not hasattr(refused, "release_")
    with pytest.raises(DataError):
        model(ledger).fit(DATA[0], DATA[1] + 0.5, DATA[2])
    assert ledger.account("trial").receipts == ()


def test_a_seeded_fit_charges_nothing_and_says_so_and_an_unproven_plan_is_refused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UserWarning, match="nothing is charged"):
        assert model(ledger, seed=1).fit(*DATA).receipt_ is None
    found = unproven(model(ledger).plan(30, 1))
    monkeypatch.setattr(PrivateTwoStageERM, "plan", lambda *_: found)
    with pytest.raises(CalibrationError, match="not proven"):
        model(ledger).fit(*DATA)
    assert ledger.account("trial").receipts == ()


@pytest.mark.parametrize(("book", "name"), [(None, "trial"), ("ledger.db", "trial"), (Ledger("a"), None)])
def test_a_ledger_needs_a_data_set(book: object, name: object) -> None:
    with pytest.raises(DeclarationError, match="go together"):
        model(book, name).fit(*DATA)


@pytest.mark.parametrize("first", ["uniform", "ipw_private"])
@pytest.mark.parametrize("arithmetic", ["assumed", "counted"])
def test_the_curve_of_a_plan_proves_its_guarantee(first: str, arithmetic: str) -> None:
    budget = Budget(0.8, 1e-6)
    plan = (
        model(None, None)
        .set_params(budget=budget, first_stage=first, calibration="renyi", arithmetic=arithmetic)
        .plan(300, 2)
    )
    assert plan.guarantee == budget
    proven = renyi_epsilon(plan.curve.orders, plan.curve.divergences, budget.delta)
    assert proven == pytest.approx(0.8, rel=1e-6)
    assert proven <= 0.8
    # every part of the plan counts
    alone = plan.main.calibration.curve()
    spends = plan.main.precision is not None or plan.step("propensity") is not None
    assert all(
        (one > other) is spends
        for one, other in zip(plan.curve.divergences, alone.divergences, strict=True)
        if other < math.inf
    )
