"""``dp2erm ledger``: what the releases from each data set have spent, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, field_option, json_option
from dp2erm_cvx.cli.screen import console, print_json
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.ledger import Account


@click.command(
    "ledger",
    short_help="Budget of data sets: total, spent and left.",
)
@click.argument("file", metavar="FILE")
@field_option("ledger.ledger:Account.dataset", metavar="NAME", beside=" This one only, with every charge.")
@click.option("--declare-epsilon", type=Number(), help="Open the account of --dataset with this total.")
@click.option("--declare-delta", type=Number(), help="Delta of that total [0].")
@field_option("ledger.ledger:Account.relation", show_default="replace-one")
@field_option("ledger.ledger:Account.composition", show_default="basic")
@json_option
def ledger_command(file: str, dataset: str | None, as_json: bool, **options: Any) -> None:
    """Show the budgets in the ledger FILE, or declare the total of a data set.

    A total is declared once and never changed. dp2erm fit --ledger charges a release before its noise is
    drawn, and refuses what does not fit.
    """
    from dp2erm_cvx.ledger import Ledger

    book = Ledger(file)
    declared = {name: value for name, value in options.items() if value is not None}
    if declared:
        from dp2erm_cvx.privacy import Budget

        if dataset is None or "declare_epsilon" not in declared:
            raise DeclarationError("a total needs both --dataset NAME and --declare-epsilon E")
        total = Budget(declared.pop("declare_epsilon"), declared.pop("declare_delta", 0.0))
        book.declare(dataset, total, **declared)
    accounts = book.accounts() if dataset is None else [book.account(dataset)]
    if as_json:
        print_json([account.to_dict() for account in accounts])
    else:
        _show(accounts, charges=dataset is not None)


def _show(accounts: Sequence[Account], *, charges: bool) -> None:
    screen = console()
    if not accounts:
        screen.print("no data set has been declared in this ledger")
        return
    for account in accounts:
        spent = account.spent
        protected = "" if account.unit is None else f", protected: {account.unit}"
        told = f"{account.dataset}: {_counted(account)}, neighbors: {account.relation}{protected}"
        screen.print(told, style="bold", markup=False)
        sums = (
            ("total", account.total.epsilon, account.total.delta),
            (f"spent ({spent.composition} composition)", spent.epsilon, spent.delta),
            ("left", spent.left_epsilon, spent.left_delta),
        )
        rows = [(name, f"{epsilon:.6g}", f"{delta:.3g}") for name, epsilon, delta in sums]
        screen.print(grid("", "epsilon", "delta", rows=rows))
        if account.composition is not spent.composition:
            screen.print(f"declared: {account.composition}; {spent.composition} is in force")
        if account.composition == "renyi":
            curves = sum(one.curve is not None for one in account.receipts)
            screen.print(f"Renyi curves: {curves} of {_counted(account)}; pure releases need none")
        if charges and account.receipts:
            each = (
                (one.charged_at, one.number, one.note, f"{one.budget.epsilon:g}", f"{one.budget.delta:g}")
                for one in account.receipts
            )
            listed = grid("charged at (UTC)", "receipt", "note", "epsilon", "delta", left=3, rows=each)
            listed.columns[1].no_wrap = True
            screen.print(listed)


def _counted(account: Account) -> str:
    count = len(account.receipts)
    return f"{count} release{'' if count == 1 else 's'}"
