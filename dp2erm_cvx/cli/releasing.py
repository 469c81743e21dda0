"""What every command that releases something shares: its options, their checks, its plan, how it is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import (
    ESTIMATOR,
    Number,
    apply,
    data_options,
    declared_settings,
    delta_option,
    epsilon_option,
    field_option,
    names,
)
from dp2erm_cvx.cli.programs import known_solver
from dp2erm_cvx.cli.reading import NO_RANGES, block_options
from dp2erm_cvx.cli.screen import check_new, console, print_json, reserved, show, unwritable
from dp2erm_cvx.errors import DataError, DeclarationError, LedgerError

if TYPE_CHECKING:
    from dp2erm_cvx.blocked import BlockedDataset
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.estimators.fitting import PrivateEstimator
    from dp2erm_cvx.plan import Plan
    from dp2erm_cvx.privacy import Budget
    from dp2erm_cvx.release.record import BaseRelease


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
#: The data file of one release, and how it is read.
record_options = apply(data_argument, data_options, block_options)
#: What one release spends, where it goes, its account, and what the data holder may look at.
release_options = apply(
    epsilon_option,
    delta_option,
    click.option("--output", metavar="FILE", help="Write the release as JSON."),
    field_option(f"{ESTIMATOR}.ledger", metavar="FILE", beside=" See dp2erm ledger."),
    field_option("ledger.ledger:Account.dataset", metavar="NAME"),
    click.option("--balance", is_flag=True, help="Show covariate balance on stderr: not private."),
    click.option("--love-plot", metavar="FILE.png", help="Draw covariate balance: not private."),
    click.option("--overlap-plot", metavar="FILE.png", help="Draw propensities by arm: not private."),
    printing_options,
)


def check_files(data: str | None, options: dict[str, Any], *others: str | None) -> None:
    """Refuse what could not be written or charged before anything is imported or read.

    ``others`` are files that the command writes besides.
    """
    if data is None and options["planned"] is None:
        raise DeclarationError("no data: name a CSV or Parquet file, or plan a release with --plan N")
    book, output = options["ledger"], options["output"]
    if (book is None) != (options["dataset"] is None):
        raise DeclarationError("--ledger and --dataset go together: give both or neither")
    check_new(output, options["force"], data, options["domain"], book)
    for other in others:
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
        asked = [model for model in models if str(model.public().codebook.outcome) == counts.outcome]
        wrong = [*counts.wrong, *filter(None, dict.fromkeys(model.advice(counts.values) for model in asked))]
        if wrong and not yes:
            told = "; ".join([*wrong, "nothing was charged; --yes releases all the same"])
            raise DataError(f"{told}. {counts}")
        click.echo(str(counts), err=True)


def fit_to(model: Any, records: Dataset | BlockedDataset) -> None:
    """Fit a model to records that a codebook has made already."""
    from dp2erm_cvx.data import Dataset, NamedColumns

    if isinstance(records, Dataset):
        named = NamedColumns(records.X, records.columns, records.sampling, records.person)
        model.fit(named, records.a, records.y)
    else:
        model.fit(records)


@dataclass(frozen=True)
class Ordered:
    """The budget of a release, the ledger that it is charged to, and the ``counts`` of what was read."""

    budget: Budget
    options: dict[str, Any]
    counts: list[RecordCounts] = field(default_factory=list)

    @property
    def charged(self) -> bool:
        """Whether a ledger is: what is seeded is not private, and costs nothing."""
        return self.options["ledger"] is not None and self.options["seed"] is None

    def arguments(self, kind: type[PrivateEstimator]) -> dict[str, Any]:
        """Of a private estimator of this kind, by name. Raises SolverError for a solver that is none."""
        from dp2erm_cvx.ledger import Ledger

        options = self.options
        found = {**declared_settings(kind, options), "solver": known_solver(options["solver"])}
        if self.charged:
            found |= {"ledger": Ledger(options["ledger"]), "dataset": options["dataset"]}
        return {**found, "seed": options["seed"]}

    def fit(
        self, model: Any, dataset: Dataset | BlockedDataset, write_others: Callable[[], None] = lambda: None
    ) -> None:
        """Fit the model and write what was ordered: what a charge has paid for is never lost.

        The output is opened before anything is spent. Whatever fails afterwards, the release goes to stdout
        and the charge to stderr.
        """
        output, release = self.options["output"], None
        model.before_charge = lambda: announce(self.counts, [model], yes=self.options["yes"])
        model.output = output
        try:
            with reserved(output, force=self.options["force"]) as file:
                fit_to(model, dataset)
                release = model.release_
                if file is not None:
                    file.write(release.to_json() + "\n")
            write_others()
        except BaseException as error:
            if getattr(model, "receipt_", None) is not None:
                self._tell_charge(model)
                if release is None:
                    click.echo("nothing was released, and the charge stays", err=True)
            if release is not None:
                click.echo(release.to_json())
            if release is not None and isinstance(error, OSError):
                raise unwritable(output, error) from None
            raise

    def _tell_charge(self, model: Any) -> None:
        """The charge, and which one it is: a release that was paid for and never shown counts as well."""
        told = f"charged to {self.options['dataset']!r}: {model.receipt_}"
        try:
            account = model.ledger.account(self.options["dataset"])
            told += f"; charge {len(account.receipts)}, epsilon = {account.spent.left_epsilon:g} left"
        except LedgerError:  # what was charged has to be told whatever became of the ledger
            pass
        click.echo(told, err=True)

    def show(self, model: PrivateEstimator, release: BaseRelease) -> None:
        """Notes on stderr, then the release as JSON or in words."""
        if self.charged:
            self._tell_charge(model)
        elif self.options["ledger"] is not None:
            click.echo("note: seeded, hence not private: nothing is charged to the ledger", err=True)
        if self.budget.delta and not release.guarantee.delta:
            click.echo(f"note: {release.guarantee.theorem} is pure; --delta is not used", err=True)
        if getattr(model.domain, "outcome_bound", None) is not None and model.domain.ranges is None:
            click.echo(f"warning: {NO_RANGES}", err=True)
        if not release.private:
            click.echo(f"{release.guarantee.standing.upper()}: do not publish this release", err=True)
        try:
            if self.options["as_json"]:
                click.echo(release.to_json())
                return
            show(release.blocks())
        except BrokenPipeError:
            raise
        except OSError as error:  # a full disk behind stdout: what was charged has been told
            raise unwritable("stdout", error) from None


def planned(model: Any, options: dict[str, Any]) -> bool:
    """Show the plan of ``model`` where ``--plan`` asks for it; whether it does.

    Raises DeclarationError where the number of covariates is not declared, CalibrationError where no theorem
    covers what is.
    """
    from dp2erm_cvx.public import whole_number

    if options["planned"] is None:
        return False
    n_samples, domain = whole_number("--plan", options["planned"], at_least=2), model.domain
    columns = getattr(domain, "columns", None) or names(options["covariates"]) or ()
    if not columns:
        raise DeclarationError("--plan: the covariates are not declared: give ranges, or --covariates A,B")
    show_plan(model.plan(n_samples, len(columns)), as_json=options["as_json"])
    return True


def show_plan(plan: Plan[Any], *, as_json: bool, name: str | None = None) -> None:
    """What a plan spends, step by step, and what is predicted of its release."""
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
        found: dict[str, Any] = {} if name is None else {"name": name}
        found |= {"n_samples": plan.study.universe.n_samples, "guarantee": dataclasses.asdict(spent)}
        found |= {"steps": steps, "predicted": {fact: one[0] for fact, one in predicted_of(plan).items()}}
        print_json(found)
        return
    show(plan_blocks(plan, name))
    if name is None and (told := weak(spent.epsilon)):  # of a study once, of all questions
        console().print(told)
    if isinstance(plan.study, Study) and (cost := plan.study.first.cost(plan.study.universe)):
        click.echo(f"note: {cost}", err=True)
