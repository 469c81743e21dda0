"""Commands on what was released, for no epsilon: show, report, verify, predict and ledger."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import dp2erm_cvx as library
from dp2erm_cvx.cli import options as opt
from dp2erm_cvx.cli.programs import read_programs
from dp2erm_cvx.cli.screen import (
    check_new,
    console,
    print_json,
    progress,
    show,
    writable,
    write_text,
)
from dp2erm_cvx.display import digits_of, grid
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.ledger import Account
    from dp2erm_cvx.release.ranges import RangesRelease
    from dp2erm_cvx.release.record import BaseRelease


@click.command("show", short_help="What a release says, from its file alone.")
@click.argument("release", metavar="RELEASE.json")
@opt.program_files_option
@opt.json_option
def show_command(release: str, programs: tuple[str, ...], as_json: bool) -> None:
    """Print the summary of a release, as the command that made it did.

    A file that states what no release does is refused. As JSON it is written in the schema of
    today.
    """
    from dp2erm_cvx.release.reading import read_release_file

    read_programs(programs)
    published = read_release_file(release)
    click.echo(published.to_json()) if as_json else show(published.blocks())


@click.command("report", short_help="One page about releases; a table or a plot of their answers.")
@click.argument("releases", metavar="RELEASE.json...", nargs=-1, required=True)
@click.option(
    "--output",
    metavar="FILE",
    help="A page .html [of one release named like it]; of effects a table .csv, .md or .tex, or a "
    "forest plot .svg, .png or .pdf.",
)
@opt.program_files_option
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def report_command(
    releases: tuple[str, ...], output: str | None, programs: tuple[str, ...], force: bool
) -> None:
    """Write one page of HTML about releases, for readers who know no differential privacy.

    Estimate, interval and what it counts, the guarantee in words, what was declared, for whom it
    holds and what it rests on. Of effects also a table or a forest plot, with intervals that hold
    for all of them together (Bonferroni). Only released numbers; a file that dp2erm verify refutes
    is refused.
    """
    if len(releases) > 1 and output is None:
        raise DeclarationError("several releases: name their page, table or plot by --output")
    page = output or f"{os.path.splitext(releases[0])[0]}.html"
    ending = os.path.splitext(page)[1].lower()
    check_new(page, force, *releases, *programs)
    read_programs(programs)
    with progress(f"writing {page}"):
        from dp2erm_cvx.release.reading import read_release_file
        from dp2erm_cvx.report.answers import FORMATS, answers, answers_as

        published = {Path(one).stem: read_release_file(one) for one in releases}
        if len(published) < len(releases):
            raise DeclarationError(
                "two releases have one name: answers are called like their files"
            )
        if ending == ".html":
            from dp2erm_cvx.report import release_page

            (first, *more), source = published.values(), Path(releases[0]).name
            write_text(page, release_page(published if more else first, source=source))
        elif not (listed := answers(published)):
            raise DeclarationError(
                "none of these is the release of an effect: values and rules have pages"
            )
        elif ending in FORMATS:
            write_text(page, answers_as(listed, ending))
        else:
            from dp2erm_cvx.report.figures import check_figure, forest_plot

            check_figure(page)
            forest_plot(published, page)
        if ending != ".html":
            answered = {one.question for one in listed}
            for name in published:
                if name not in answered:
                    click.echo(
                        f"{name} is not in {page}: it states no effect of everybody", err=True
                    )
    click.echo(f"wrote {page}")


@click.command("predict", short_help="Recommendations from a release alone.")
@click.argument("release", metavar="RELEASE.json")
@click.argument("data", metavar="DATA.csv|.parquet")
@opt.program_files_option
@opt.csv_options
@click.option("--output", metavar="FILE", help="Write the CSV to a file instead of stdout.")
def predict_command(
    release: str, data: str, programs: tuple[str, ...], output: str | None, **options: Any
) -> None:
    """Recommended treatment and estimated effect for every row of DATA, as CSV.

    Columns are found by name, then coded, scaled and clipped as in the fit. The effect is in units
    of the outcome, net of the public treatment cost; treatment is recommended where it is positive.
    Where a column has none of its levels they count by their mean. Both fields are empty where too
    little of a row is read; what is not read, or out of range, is counted on stderr.
    """
    from dp2erm_cvx.data.files import CsvLayout, read_table
    from dp2erm_cvx.release.predicting import predictions
    from dp2erm_cvx.release.reading import read_release_file
    from dp2erm_cvx.release.two_stage import rule_of

    writable(output, release, data, *programs)
    read_programs(programs)
    with progress("predicting"):
        published = read_release_file(release)
        if not isinstance(published, library.Release | library.RuleRelease):
            raise DeclarationError(
                f"{release}: states an average effect, not a rule: see dp2erm show"
            )
        if isinstance(published, library.Release):
            rule_of(published)  # a damaged release is named before the data are read
        layout = CsvLayout(**{name: value for name, value in options.items() if value is not None})
        table = read_table(data, layout, ragged=True)
        predicted = predictions(published, table)
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("row", "treatment", "effect"))
        for row, effect in enumerate(predicted.effects.tolist(), 1):
            told = ("", "") if math.isnan(effect) else (int(effect > 0), repr(effect))
            writer.writerow((row, *told))
    damage = [note.format(count) for note, count in table.damage.items() if count]
    for line in (*damage, *predicted.notes):
        click.echo(f"note: {line}", err=True)
    if not published.private:
        click.echo(
            f"{published.standing.upper()}: this release has no unconditional guarantee", err=True
        )
    if output:
        write_text(output, file.getvalue())
    else:
        click.echo(file.getvalue(), nl=False)


@click.command("verify", short_help="Whether a release follows from what it declares.")
@click.argument("release", metavar="RELEASE.json")
@click.option("--domain", "about", metavar="FILE.toml", help="The domain that it has to be about.")
@click.option(
    "--study", metavar="STUDY.toml", help="The study that it has to answer, or its digest."
)
@click.option(
    "--ranges",
    "rests_on",
    metavar="RANGES.json",
    help="The release of the ranges that it rests on [beside it].",
)
@opt.program_files_option
def verify_command(
    release: str,
    about: str | None,
    study: str | None,
    rests_on: str | None,
    programs: tuple[str, ...],
) -> int:
    """Plan again what a release declares, and refute what does not follow.

    That is about bounds, noise, guarantee and results. All but the released numbers is computed
    again from them and from the declarations, and compared entry by entry. Exit code 1 where
    something is refuted. No file can show that its numbers are those of a run, or that the noise
    was drawn as it says.
    """
    from dp2erm_cvx.release.reading import read_release_file
    from dp2erm_cvx.release.verify import Verification, taken_from, verify

    expected = None
    read_programs(programs)
    if about is not None:
        expected = library.load_domain(about)
    with progress("verifying"):
        declared = read_release_file(release, check=False)
        of_ranges, beside = _ranges_of(declared, release, rests_on)
        digest = study
        if study is not None and not re.fullmatch("[0-9a-f]{64}", study):
            from dp2erm_cvx.program.registry import available, known_meanwhile
            from dp2erm_cvx.study import read_study

            registered = read_study(study)
            for own in registered.programs:  # of files that the study names, unless --program did
                if own.name not in available():
                    click.get_current_context().with_resource(known_meanwhile(own))
            digest = registered.digest
            if registered.resting is not None and not isinstance(declared, library.RangesRelease):
                if of_ranges is None:
                    raise DeclarationError(
                        f"{study} releases ranges: give their release by --ranges"
                    )
                registered = registered.at(of_ranges)
            if registered.question_of(declared) is None:
                beside.append(f"study: what is declared answers no question of {study}")
        result = verify(declared, expected, digest, text=Path(release).read_bytes())
        for name in {entry["of"] for entry in declared.before.values()} if result.holds else ():
            other = Path(release).with_name(f"{Path(name).name}.json")
            if other.exists():
                beside += taken_from(declared, name, read_release_file(other, check=False))
            else:
                click.echo(
                    f"note: {other.name}, from which it took steps over, is not beside it", err=True
                )
        if of_ranges is None and (stamp := declared.public.released) is not None:
            told = f"it rests on released ranges, of SHA-256 {stamp.digest}, and none are beside it"
            click.echo(f"note: {told}: give --ranges", err=True)
        result = Verification((*result.refuted, *beside))
    show(result.blocks())
    if not declared.private:
        click.echo(
            f"{declared.standing.upper()}: this release has no unconditional guarantee", err=True
        )
    return 0 if result.holds else 1


def _ranges_of(
    declared: BaseRelease, release: str, ranges: str | None
) -> tuple[RangesRelease | None, list[str]]:
    """The ranges that a release rests on, by ``--ranges`` or beside it.

    What refutes that it does comes with them.

    Raises DeclarationError where the file is no release of ranges, and where one of ranges is asked
    about.
    """
    from dp2erm_cvx.release.ranges import resting_on
    from dp2erm_cvx.release.reading import read_release_file

    path = Path(release).with_name("ranges.json")
    if ranges is None and (declared.public.released is None or not path.exists()):
        return None, []
    known = read_release_file(ranges or path)
    if not isinstance(known, library.RangesRelease):
        raise DeclarationError(f"{ranges}: is no release of ranges")
    if isinstance(declared, library.RangesRelease):
        raise DeclarationError(f"{release}: is a release of ranges itself: leave --ranges out")
    return known, list(resting_on(declared, known))


@click.command("ledger", short_help="Budget of data sets: total, spent and left.")
@click.argument("file", metavar="FILE")
@opt.field_option(
    "ledger.ledger:Account.dataset", metavar="NAME", beside=" This one only, with every charge."
)
@click.option(
    "--declare-epsilon", type=opt.Number(), help="Open the account of --dataset with this total."
)
@click.option("--declare-delta", type=opt.Number(), help="Delta of that total [0].")
@opt.field_option("ledger.ledger:Account.relation", show_default="replace-one")
@opt.field_option("ledger.ledger:Account.composition", show_default="basic")
@opt.json_option
def ledger_command(file: str, dataset: str | None, as_json: bool, **options: Any) -> None:
    """Show the budgets in the ledger FILE, or declare the total of a data set.

    A total is declared once and never changed. dp2erm run charges a study that names it before any
    noise is drawn, and refuses what does not fit.
    """
    book = library.Ledger(file)
    declared = {name: value for name, value in options.items() if value is not None}
    if declared:
        if dataset is None or "declare_epsilon" not in declared:
            raise DeclarationError("a total needs both --dataset NAME and --declare-epsilon E")
        total = library.Budget(declared.pop("declare_epsilon"), declared.pop("declare_delta", 0.0))
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
    for account in accounts:
        spent, total, count = account.spent, account.total, len(account.receipts)
        counted = f"{count} release{'' if count == 1 else 's'}"
        protected = "" if account.unit is None else f", protected: {account.unit}"
        text = f"{account.dataset}: {counted}, neighbors: {account.relation}{protected}"
        screen.print(text, style="bold", markup=False)
        sums = (
            ("total", total.epsilon, total.delta),
            (f"spent ({spent.composition} composition)", spent.epsilon, spent.delta),
            ("left", spent.left_epsilon, spent.left_delta),
        )
        rows = [
            (name, *(digits_of(one, left=name == "left") for one in law)) for name, *law in sums
        ]
        screen.print(grid("", "epsilon", "delta", rows=rows))
        if account.composition is not spent.composition:
            screen.print(f"declared: {account.composition}; {spent.composition} is in force")
        if account.composition == "renyi":
            curves = sum(one.curve is not None for one in account.receipts)
            screen.print(f"Renyi curves: {curves} of {counted}; pure releases need none")
        if charges and account.receipts:
            each = (
                (
                    one.charged_at,
                    one.number,
                    one.note,
                    *map(digits_of, (one.budget.epsilon, one.budget.delta)),
                )
                for one in account.receipts
            )
            listed = grid(
                "charged at (UTC)", "receipt", "note", "epsilon", "delta", left=3, rows=each
            )
            listed.columns[1].no_wrap = True
            screen.print(listed)
