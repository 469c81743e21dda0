"""Parts that commands which release share: options, their checks, the plan, how it is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import ESTIMATOR, Number, apply, field_option, names
from dp2erm_cvx.cli.screen import check_new, console, print_json, reserved, show, unwritable
from dp2erm_cvx.errors import DataError, DeclarationError, LedgerError

if TYPE_CHECKING:
    from dp2erm_cvx.blocked import BlockedDataset
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.ledger import Receipt
    from dp2erm_cvx.plan import Plan
    from dp2erm_cvx.release.record import BaseRelease

SEEDED = "note: seeded, hence not private: nothing is charged to the ledger"
#: How a release is made and printed.
printing_options = apply(
    click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else on stdout."),
    click.option("--force", is_flag=True, help="Overwrite files that exist."),
    click.option(
        "--yes",
        is_flag=True,
        help="Release all the same where an arm is empty, or where cells, ranges, labels or outcomes do not "
        "look as declared.",
    ),
    field_option(f"{ESTIMATOR}.seed", type=Number()),
)
#: The data file of a command that can be planned without it.
data_argument = apply(
    click.argument("data", metavar="DATA.csv|.parquet", required=False),
    click.option(
        "--plan",
        "planned",
        type=Number(),
        metavar="N",
        help="Print what a release of N records would spend and how far off it would be; DATA is not read.",
    ),
)


def check_files(data: str | None, options: dict[str, Any], *files: str | None) -> None:
    """Refuse what could not be written or charged before anything is imported or read.

    ``files`` are those that the command writes besides.
    """
    if data is None and options["planned"] is None:
        raise DeclarationError("no data: name a CSV or Parquet file, or plan a release with --plan N")
    book, output = options["ledger"], options["output"]
    if (book is None) != (options["dataset"] is None):
        raise DeclarationError("--ledger and --dataset go together: give both or neither")
    check_new(output, options["force"], data, options["domain"], book)
    for other in files:
        check_new(other, options["force"], data, options["domain"], output, book)
    seed = options["seed"]
    if seed is not None and not isinstance(seed, int):
        raise DeclarationError(f"seed = {seed!r}: must be a whole number")


def announce(counted: Sequence[RecordCounts], models: Collection[Any], *, yes: bool) -> None:
    """Tell the data holder what becomes of the records, before anything is charged.

    Raises DataError where an arm is empty, a column mostly unreadable, a tenth of outcomes clipped, a
    quarter of a covariate beyond its range, a label spelled otherwise than declared, or one of the
    ``models`` advises otherwise, unless ``yes``.
    """
    for counts in counted:
        judged = [model for model in models if str(model.public().codebook.outcome) == counts.outcome]
        wrong = [*counts.wrong, *filter(None, dict.fromkeys(model.advice(counts.values) for model in judged))]
        if wrong and not yes:
            text = "; ".join([*wrong, "nothing was charged; --yes releases all the same"])
            raise DataError(f"{text}. {counts}")
        click.echo(str(counts), err=True)


def released(
    models: Mapping[str, Any],
    records: Callable[[Any], Dataset | BlockedDataset],
    files: Mapping[str, str | None],
    options: dict[str, Any],
    *,
    charge: Callable[[], Receipt | None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> dict[str, BaseRelease]:
    """Fit the models to their records, and write each release to its file: what is paid for is never lost.

    Files are opened before anything is spent: by ``charge`` for all models, or by each for itself. Whatever
    fails then, in what comes ``after`` too, the releases go to stdout.
    """
    releases: dict[str, BaseRelease] = {}
    paid: Receipt | None = None
    try:
        with ExitStack() as every:
            own = {name: every.enter_context(ExitStack()) for name in files}
            opened = {
                name: own[name].enter_context(reserved(files[name], force=options["force"])) for name in files
            }
            paid = charge()
            for name, model in models.items():
                model.fit_announced(records(model))
                releases[name] = model.release_
                if (file := opened[name]) is not None:
                    file.write(releases[name].to_json() + "\n")
                own[name].close()  # it has its name before the next one is fitted
        after()
    except BaseException as error:
        for release in releases.values():
            click.echo(release.to_json())
        if releases and isinstance(error, OSError):
            raise unwritable(", ".join(filter(None, files.values())), error) from None
        raise
    finally:
        receipts = [paid, *(getattr(model, "receipt_", None) for model in models.values())]
        if (receipt := next(filter(None, receipts), None)) is not None:
            _tell_charge(receipt, options["ledger"])
            if not releases:
                click.echo("nothing was released, and the charge stays", err=True)
    return releases


def _tell_charge(receipt: Receipt, book: str) -> None:
    """The charge, and which one it is: a release that was paid for and never shown counts as well."""
    from dp2erm_cvx.ledger import Ledger

    text = f"charged to {receipt.dataset!r}: {receipt}"
    try:
        account = Ledger(book).account(receipt.dataset)
        text += f"; charge {len(account.receipts)}, epsilon = {account.spent.left_epsilon:g} left"
    except LedgerError:  # what was charged has to be told whatever became of the ledger
        pass
    click.echo(text, err=True)


def planned_size(public: Any, options: dict[str, Any]) -> tuple[int, int]:
    """Records and covariates that ``--plan`` is for. Raises DeclarationError where these are not declared."""
    from dp2erm_cvx.public import whole_number

    n_samples = whole_number("--plan", options["planned"], at_least=2)
    columns = getattr(public, "columns", None) or names(options.get("covariates"))
    if not columns:
        raise DeclarationError("--plan: the covariates are not declared: give ranges, or --covariates A,B")
    return n_samples, len(columns)


def show_plan(plan: Plan[Any], *, as_json: bool, name: str | None = None) -> None:
    """Show what a plan spends, step by step, and what is predicted of its release."""
    from dp2erm_cvx.plan import Study
    from dp2erm_cvx.plan.predict import plan_blocks, predicted_of
    from dp2erm_cvx.release.caveats import weak

    spent, before = plan.guarantee, plan.study.before
    if as_json:
        steps: list[dict[str, Any]] = [
            {"step": one.name, "theorem": one.theorem, **dataclasses.asdict(one.guarantee)}
            | {"scale": one.noise_law["scale"]}
            | ({"of": before[one.name]["of"]} if one.name in before else {})
            for one in plan.steps
        ]
        fields: dict[str, Any] = {} if name is None else {"name": name}
        fields |= {"n_samples": plan.study.universe.n_samples, "guarantee": dataclasses.asdict(spent)}
        fields |= {"steps": steps, "predicted": {fact: one[0] for fact, one in predicted_of(plan).items()}}
        print_json(fields)
        return
    show(plan_blocks(plan, name))
    if name is None and (warning := weak(spent.epsilon)):  # of a study once, of all questions
        console().print(warning)
    if isinstance(plan.study, Study) and (cost := plan.study.first.cost(plan.study.universe)):
        click.echo(f"note: {cost}", err=True)
