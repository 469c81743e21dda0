"""The ledger: what it adds up, and what it refuses."""

import math
import multiprocessing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, Neighboring, PrivateEffect
from dp2erm_cvx.errors import DeclarationError, LedgerError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.sampling import Unit
from tests.ledger.charging import charge_until_refused
from tests.ledger.model import DATA, model


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


def test_refusals_change_nothing(ledger: Ledger) -> None:
    ledger.charge("trial", Budget(0.5))
    before = ledger.path.read_bytes()
    refused = model(None, None, seed=1).fit(*DATA).release_.guarantee
    cases: list[tuple[type[Exception], str, tuple]] = [
        (LedgerError, "does not fit", ("trial", Budget(0.6))),
        (LedgerError, "does not fit", ("trial", Budget(0.1, 1e-5))),
        (LedgerError, "no declared total", ("trail", Budget(0.1))),
        (DeclarationError, "adds up a Budget", ("trial", 0.1)),
        (DeclarationError, "adds up a Budget", ("trial", {"epsilon": 0.1})),
        (DeclarationError, "seeded", ("trial", refused)),
        (DeclarationError, "dataset", ("", Budget(0.1))),
        (DeclarationError, "dataset", ("tri\nal", Budget(0.1))),
        (DeclarationError, "note", ("trial", Budget(0.1), "x" * 201)),
    ]
    for error, message, arguments in cases:
        with pytest.raises(error, match=message):
            ledger.charge(*arguments)
    with pytest.raises(DeclarationError, match="relation"):
        ledger.charge("trial", Budget(0.1), relation="add-remove")
    with pytest.raises(LedgerError, match="keep-treatment"):
        ledger.charge("trial", Budget(0.1), relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    assert ledger.path.read_bytes() == before


def test_a_weaker_total_admits_a_stronger_release(ledger: Ledger) -> None:
    ledger.declare("weak", Budget(1.0), relation="replace-one-keep-treatment")
    ledger.charge("weak", Budget(0.5))
    guarantee = model(None, None).fit(*DATA).release_.guarantee
    assert ledger.charge("weak", guarantee).budget == Budget(0.4)
    account = ledger.account("weak")
    assert account.spent.relation is account.relation is Neighboring.REPLACE_ONE_KEEP_TREATMENT
    with pytest.raises(LedgerError, match=r"\(basic composition, neighbors: replace-one-keep-treatment\)"):
        ledger.charge("weak", Budget(0.2))


def test_an_account_protects_records_or_persons(tmp_path: Path) -> None:
    """One epsilon for persons and one for records are no two for either."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(40), 5)
    table = pd.DataFrame({"id": person, "x": rng.uniform(-1, 1, 200), "a": rng.integers(0, 2, 200), "y": 0.5})

    def fitted(account: str, unit: Unit | None) -> PrivateEffect:
        book = Codebook(outcome="y", unit=unit)
        domain = Domain(1.5, 1.0, ranges=book.ranges({"x": (-1, 1)}), codebook=book)
        own = PrivateEffect(domain, Budget(1.0), residual_scale=0.5, ledger=ledger, dataset=account)
        return own.fit(table, table.a, table.y)

    ledger = Ledger(tmp_path / "own.db")
    persons = Unit("id", 40)
    for account, units in (
        ("a", (persons, "records")),
        ("b", (None, "persons by id")),
        ("c", (persons, "persons by x")),
    ):
        assert ledger.declare(account, Budget(4.0)).unit is None
        for unit in (units[0], units[0] and Unit("id", 40, 2)):
            guarantee = fitted(account, unit).release_.guarantee
        ledger.charge(account, guarantee)  # by hand, which states who is protected itself
        before = ledger.path.read_bytes()
        with pytest.raises(LedgerError, match=f"{account!r} protects .*: epsilon for the one is none"):
            ledger.charge(account, Budget(0.1), unit=units[1])
        assert ledger.path.read_bytes() == before
        assert ledger.account(account).unit == ("persons by id" if units[0] else "records")
        assert ledger.account(account).to_dict()["unit"] == ledger.account(account).receipts[1].unit
    with pytest.raises(LedgerError, match="'a' protects persons by id, and this release records"):
        fitted("a", None)
    with pytest.raises(DeclarationError, match="unit"):
        ledger.charge("a", Budget(0.1), unit="")


def test_a_total_is_declared_once(ledger: Ledger) -> None:
    ledger.charge("trial", Budget(0.5))
    assert len(ledger.declare("trial", Budget(1.0, 1e-6)).receipts) == 1
    for total, others in (
        (Budget(2.0, 1e-6), {}),
        (Budget(1.0), {}),
        (Budget(1.0, 1e-6), {"composition": "pld"}),
        (Budget(1.0, 1e-6), {"relation": "replace-one-keep-treatment"}),
    ):
        with pytest.raises(LedgerError, match="declared once"):
            ledger.declare("trial", total, **others)
    with pytest.raises(DeclarationError, match="composition"):
        ledger.declare("other", Budget(1.0), composition="advanced")


def test_four_processes_share_one_total(ledger: Ledger) -> None:
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    arguments = (str(ledger.path), found)
    processes = [context.Process(target=charge_until_refused, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()  # what each has put fits into the pipe
    assert [process.exitcode for process in processes] == [0] * 4
    numbers = [number for _ in processes for number in found.get()]
    account = ledger.account("trial")
    assert sorted(numbers) == sorted(one.number for one in account.receipts)
    assert len(set(numbers)) == 100
    assert account.spent.left_epsilon == 0.0
