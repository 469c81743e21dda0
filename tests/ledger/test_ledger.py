"""The ledger: what it adds up, what it refuses, what is no ledger, and what fits charge before
noise.
"""

import math
import sqlite3
import warnings
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dp2erm_cvx import Budget, Codebook, Domain, Neighboring, PrivateEffect, PrivateTwoStageERM
from dp2erm_cvx.calibration import renyi_epsilon
from dp2erm_cvx.data.counts import Unit
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, LedgerError
from dp2erm_cvx.ledger import Ledger, store
from dp2erm_cvx.ledger.ledger import decode, encode
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.privacy import RenyiCurve, Standing
from dp2erm_cvx.steps import step
from dp2erm_cvx.steps.execution import Inputs
from dp2erm_cvx.steps.score import EffectScore
from tests.ledger.model import DATA, model
from tests.plan.changed import unproven

ONE, KEEP_TREATMENT = Budget(1.0, 1e-6), Neighboring.REPLACE_ONE_KEEP_TREATMENT


def test_decimals_add_up_as_they_are_written_and_outlive_the_process(ledger: Ledger) -> None:
    made = [ledger.charge("trial", Budget(0.1, 1e-7), f"look {k}") for k in range(10)]
    account = Ledger(ledger.path).account("trial")
    assert (account.receipts, made[3].note) == ((*made,), "look 3")
    figures = account.spent
    assert (figures.epsilon, figures.delta) == (1.0, 1e-6)
    assert (figures.left_epsilon, figures.left_delta) == (0.0, 0.0)
    assert figures.relation is Neighboring.REPLACE_ONE
    with pytest.raises(LedgerError, match="does not fit"):
        ledger.charge("trial", Budget(5e-324))


def test_what_is_left_fits_and_no_more(ledger: Ledger) -> None:
    ledger.charge("trial", Budget(1 / 3, 1e-7 / 3))
    left = ledger.account("trial").spent
    with pytest.raises(LedgerError):
        ledger.charge("trial", Budget(math.nextafter(left.left_epsilon, 1.0)))
    ledger.charge("trial", Budget(left.left_epsilon, left.left_delta))


#: Calls of a ledger on which 0.5 is charged of (1, 1e-6), and what is told instead.
REFUSED: list[tuple[type[Exception], str, str, tuple[Any, ...], dict[str, Any]]] = [
    (LedgerError, "does not fit", "charge", ("trial", Budget(0.6)), {}),
    (LedgerError, "does not fit", "charge", ("trial", Budget(0.1, 1e-5)), {}),
    (LedgerError, "no declared total", "charge", ("trail", Budget(0.1)), {}),
    (LedgerError, "keep-treatment", "charge", ("trial", Budget(0.1)), {"relation": KEEP_TREATMENT}),
    (DeclarationError, "adds up a Budget", "charge", ("trial", 0.1), {}),
    (DeclarationError, "adds up a Budget", "charge", ("trial", {"epsilon": 0.1}), {}),
    (DeclarationError, "dataset", "charge", ("", Budget(0.1)), {}),
    (DeclarationError, "dataset", "charge", ("tri\nal", Budget(0.1)), {}),
    (DeclarationError, "note", "charge", ("trial", Budget(0.1), "x" * 201), {}),
    (DeclarationError, "relation", "charge", ("trial", Budget(0.1)), {"relation": "add-remove"}),
    (DeclarationError, "unit", "charge", ("trial", Budget(0.1)), {"unit": ""}),
    (
        DeclarationError,
        "must be a RenyiCurve",
        "charge",
        ("trial", ONE),
        {"curve": {"orders": [2.0]}},
    ),
    (LedgerError, "declared once", "declare", ("trial", Budget(2.0, 1e-6)), {}),
    (LedgerError, "declared once", "declare", ("trial", Budget(1.0)), {}),
    (LedgerError, "declared once", "declare", ("trial", ONE), {"composition": "pld"}),
    (LedgerError, "declared once", "declare", ("trial", ONE), {"relation": KEEP_TREATMENT}),
    (DeclarationError, "composition", "declare", ("other", ONE), {"composition": "advanced"}),
    (DeclarationError, "composition", "declare", ("other", Budget(1.0)), {"composition": "pld"}),
]


def test_refusals_change_nothing(ledger: Ledger) -> None:
    ledger.charge("trial", Budget(0.5))
    assert len(ledger.declare("trial", ONE).receipts) == 1  # the same again
    before = ledger.path.read_bytes()
    seeded = model(None, None, seed=1).fit(*DATA).release_.guarantee
    unproven_one = replace(seeded, standing=Standing.UNPROVEN)
    rows = [*REFUSED, (DeclarationError, "seeded", "charge", ("trial", seeded), {})]
    rows.append((DeclarationError, "no charge covers it", "charge", ("trial", unproven_one), {}))
    for error, message, call, known, more in rows:
        with pytest.raises(error, match=message):
            getattr(ledger, call)(*known, **more)
    for path in ("", "a\0b", None, 3):
        with pytest.raises(DeclarationError, match="path of a file"):
            Ledger(path)
    for book, name in ((None, "trial"), ("ledger.db", "trial"), (ledger, None)):
        with pytest.raises(DeclarationError, match="go together"):
            model(book, name).fit(*DATA)
    assert ledger.path.read_bytes() == before


def test_a_weaker_total_admits_a_stronger_release(ledger: Ledger) -> None:
    ledger.declare("weak", Budget(1.0), relation="replace-one-keep-treatment")
    ledger.charge("weak", Budget(0.5))
    guarantee = model(None, None).fit(*DATA).release_.guarantee
    assert ledger.charge("weak", guarantee).budget == Budget(0.4)
    account = ledger.account("weak")
    assert account.spent.relation is account.relation is KEEP_TREATMENT
    with pytest.raises(
        LedgerError, match=r"\(basic composition, neighbors: replace-one-keep-treatment\)"
    ):
        ledger.charge("weak", Budget(0.2))


def test_an_account_protects_records_or_persons(ledger: Ledger) -> None:
    """One epsilon for persons and one for records are no two for either."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"id": np.repeat(np.arange(40), 5), "x": rng.uniform(-1, 1, 200), "y": 0.5}
    )
    arms = rng.integers(0, 2, 200)

    def fitted(account: str, unit: Unit | None) -> PrivateEffect:
        book = Codebook(outcome="y", unit=unit)
        domain = Domain(1.5, 1.0, ranges=book.ranges({"x": (-1, 1)}), codebook=book)
        own = PrivateEffect(domain, Budget(1.0), residual_scale=0.5, ledger=ledger, dataset=account)
        return own.fit(table, arms, table.y)

    persons = Unit("id", 40)
    for account, unit, other in (
        ("a", persons, "records"),
        ("b", None, "persons by id"),
        ("c", persons, "persons by x"),
    ):
        assert ledger.declare(account, Budget(4.0)).unit is None
        for own in (unit, unit and Unit("id", 40, 2)):
            guarantee = fitted(account, own).release_.guarantee
        ledger.charge(account, guarantee)  # by hand, which states who is protected itself
        before = ledger.path.read_bytes()
        with pytest.raises(
            LedgerError, match=f"{account!r} protects .*: epsilon for the one is none"
        ):
            ledger.charge(account, Budget(0.1), unit=other)
        assert ledger.path.read_bytes() == before
        assert ledger.account(account).unit == ("persons by id" if unit else "records")
        assert ledger.account(account).to_dict()["unit"] == ledger.account(account).receipts[1].unit
    with pytest.raises(LedgerError, match="'a' protects persons by id, and this release records"):
        fitted("a", None)


def test_a_fit_charges_what_its_plan_guarantees(ledger: Ledger) -> None:
    fitted = (
        clone(model(ledger, calibration="renyi")).set_params(budget=Budget(0.4, 1e-7)).fit(*DATA)
    )
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


def test_the_charge_is_on_disk_before_noise_is_drawn(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    own = PrivateEffect(
        Domain(2.0, 1.0), Budget(0.4), residual_scale=0.5, ledger=ledger, dataset="trial"
    )

    def refusing(self: EffectScore, inputs: Inputs, released: dict, execution: object) -> None:
        assert "rate" in released
        raise CalibrationError("at these numbers")

    monkeypatch.setattr(EffectScore, "run", refusing)
    with pytest.raises(CalibrationError, match="at these numbers"):
        own.fit(*DATA)
    assert [receipt.budget for receipt in ledger.account("trial").receipts] == [Budget(0.4)]


def test_a_refused_fit_neither_clips_nor_draws(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    result = unproven(model(ledger).plan(30, 1))
    monkeypatch.setattr(PrivateTwoStageERM, "plan", lambda *_: result)
    with pytest.raises(
        CalibrationError, match="not proven"
    ):  # whoever consents to what is not private
        model(ledger).fit(*DATA, conditional=True)
    assert ledger.account("trial").receipts == ()


@pytest.mark.parametrize("first", ["uniform", "ipw_private"])
@pytest.mark.parametrize("arithmetic", ["assumed", "counted"])
def test_the_curve_of_a_plan_proves_its_guarantee(first: str, arithmetic: str) -> None:
    budget, own = Budget(0.8, 1e-6), model(None, None, calibration="renyi", arithmetic=arithmetic)
    plan = own.set_params(budget=budget, first_stage=first).plan(300, 2)
    assert plan.guarantee == budget
    proven = renyi_epsilon(plan.curve.orders, plan.curve.divergences, budget.delta)
    assert proven == pytest.approx(0.8, rel=1e-6)
    assert proven <= 0.8
    # every part of the plan counts
    alone = plan.main.calibration.curve().divergences
    spends = plan.main.precision is not None or plan.step("propensity") is not None
    pairs = zip(plan.curve.divergences, alone, strict=True)
    assert {one > other for one, other in pairs if other < math.inf} == {spends}


def altered(ledger: Ledger, statement: str, *values: object) -> Ledger:
    with closing(sqlite3.connect(ledger.path)) as db, db:
        db.execute(statement, values)
    return ledger


CURVE = RenyiCurve((1.5, 2.0, 1e6), (1 / 3, 0.5, float("inf")))


def test_files_that_are_no_ledger(tmp_path: Path, ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no such ledger"):
        Ledger(tmp_path / "none.db").charge("trial", Budget(0.1))
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "no folder" / "a.db").declare("trial", Budget(1.0))
    (tmp_path / "text").write_text("not a database, but long enough to look at\n" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger(tmp_path / "text").declare("trial", Budget(1.0))
    ledger.charge("trial", Budget(0.1))
    good = ledger.path.read_bytes()
    numbers = ("epsilon = '-1'", "delta = '-1'", "epsilon = 'inf'", "delta = 'x'")
    for change, message in (
        ("PRAGMA application_id = 1", "something else"),
        *(
            (f"PRAGMA user_version = {k}", f"version {k}, and 3 is known")
            for k in (0, -1, 2, 4, 2**31 - 1)
        ),
        *((f"UPDATE charges SET {one}", "damaged") for one in numbers),
    ):
        ledger.path.write_bytes(good)
        before = altered(ledger, change).path.read_bytes()
        with pytest.raises(LedgerError, match=message):
            ledger.charge("trial", Budget(0.1))
        assert ledger.path.read_bytes() == before


def test_curves_are_read_back_to_the_last_bit_and_a_damaged_one_stops_the_ledger(
    ledger: Ledger,
) -> None:
    assert (decode(encode(CURVE)), decode(encode(None))) == (CURVE, None)
    assert "Infinity" not in (encode(CURVE) or "")
    ledger.charge("trial", Budget(0.1), curve=CURVE)
    pairs = (
        ("[2.0]", "[NaN]"),
        ("[2.0]", "[-1]"),
        ("[1.0]", "[1]"),
        ("[null]", "[1]"),
        ("[3, 2]", "[1, 1]"),
    )
    for text in (
        *("", "x", b"\xff", "[" * 100_000, '{"orders": [2.0]}'),
        '{"orders": [2.0], "divergences": [1.0], "more": 1}',
        *(f'{{"orders": {orders}, "divergences": {bounds}}}' for orders, bounds in pairs),
    ):
        altered(ledger, "UPDATE charges SET curve = ?", text)
        for use in (ledger.accounts, lambda: ledger.charge("trial", Budget(0.1))):
            with pytest.raises(LedgerError, match="damaged") as caught:
                use()
            assert "\n" not in str(caught.value)


def test_a_ledger_has_one_name(ledger, tmp_path):
    """A journal has the name of its file: of a killed charge the other name knew nothing."""
    other = Ledger(tmp_path / "other.db")
    other.path.hardlink_to(ledger.path)
    before = ledger.path.read_bytes()
    for own in (ledger, other):
        declared = partial(own.declare, "a", Budget(1.0))
        for use in (partial(own.charge, "trial", Budget(0.1)), declared, own.accounts):
            with pytest.raises(LedgerError, match="hard link"):
                use()
    assert ledger.path.read_bytes() == before
    other.path.unlink()
    other.path.symlink_to(ledger.path)  # whose journal is that of the file
    other.charge("trial", Budget(0.1))
    assert ledger.account("trial").spent.epsilon == 0.1


def test_waiting_for_a_locked_ledger_is_told_and_not_charged(ledger, monkeypatch):
    """And a ledger that stays locked is not charged."""
    monkeypatch.setattr(store, "_SILENCE", 0.01)
    told = []

    def heard(text, *_, **__):
        told.append(str(text))
        other.execute("ROLLBACK")

    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            patch.setattr(warnings, "showwarning", heard)
            warnings.simplefilter("always")
            ledger.charge("trial", Budget(0.5))
        assert told == [f"{ledger.path}: the ledger is in use: waiting up to 60 seconds"]
        assert ledger.account("trial").spent.epsilon == 0.5
        monkeypatch.setattr(store, "_PATIENCE", 0.01)
        other.execute("BEGIN IMMEDIATE")
        with (
            pytest.warns(RuntimeWarning, match="waiting"),
            pytest.raises(LedgerError, match="locked"),
        ):
            ledger.charge("trial", Budget(0.5))
    assert len(ledger.account("trial").receipts) == 1
