"""Commands on what was released, for no epsilon: show, report, verify, predict and ledger."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
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
from dp2erm_cvx.display import digits_of, grid, plural
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from rich.table import Table

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
    if as_json:
        click.echo(published.to_json())
    else:
        show(published.blocks())


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

        published = {Path(file).stem: read_release_file(file) for file in releases}
        if len(published) < len(releases):
            raise DeclarationError(
                "two releases have one name: answers are called like their files"
            )
        if ending == ".html":
            from dp2erm_cvx.report import release_page

            about: Any = published
            if len(published) == 1:
                (about,) = published.values()
            write_text(page, release_page(about, source=Path(releases[0]).name))
        else:
            _write_answers(page, ending, published)
    click.echo(f"wrote {page}")


def _write_answers(page: str, ending: str, published: Mapping[str, BaseRelease]) -> None:
    """Write a table or a forest plot of effects, and say on stderr which releases state none."""
    from dp2erm_cvx.report.answers import FORMATS, answers, answers_as

    listed = answers(published)
    if not listed:
        raise DeclarationError(
            "none of these is the release of an effect: values and rules have pages"
        )
    if ending in FORMATS:
        write_text(page, answers_as(listed, ending))
    else:
        from dp2erm_cvx.report.figures import check_figure, forest_plot

        check_figure(page)
        forest_plot(published, page)
    answered = {answer.question for answer in listed}
    for name in published:
        if name not in answered:
            click.echo(f"{name} is not in {page}: it states no effect of everybody", err=True)


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
        text = _recommendations(predicted.effects.tolist())
    damage = [note.format(count) for note, count in table.damage.items() if count]
    for line in (*damage, *predicted.notes):
        click.echo(f"note: {line}", err=True)
    if not published.private:
        click.echo(
            f"{published.standing.upper()}: this release has no unconditional guarantee", err=True
        )
    if output:
        write_text(output, text)
    else:
        click.echo(text, nl=False)


def _recommendations(effects: Sequence[float]) -> str:
    """The CSV of recommended treatments and effects, both empty where an effect is nan."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("row", "treatment", "effect"))
    for row, effect in enumerate(effects, 1):
        if math.isnan(effect):
            writer.writerow((row, "", ""))
        else:
            writer.writerow((row, int(effect > 0), repr(effect)))
    return file.getvalue()


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
    from dp2erm_cvx.release.verify import Verification, verify

    expected = None
    read_programs(programs)
    if about is not None:
        expected = library.load_domain(about)
    with progress("verifying"):
        declared = read_release_file(release, check=False)
        of_ranges, refuted = _ranges_of(declared, release, rests_on)
        digest = study
        if study is not None and not re.fullmatch("[0-9a-f]{64}", study):
            digest, others = _study_of(declared, study, of_ranges)
            refuted += others
        result = verify(declared, expected, digest, text=Path(release).read_bytes())
        if result.holds:
            refuted += _other_than_taken(declared, release)
        stamp = declared.public.released
        if of_ranges is None and stamp is not None:
            told = f"it rests on released ranges, of SHA-256 {stamp.digest}, and none are beside it"
            click.echo(f"note: {told}: give --ranges", err=True)
        result = Verification((*result.refuted, *refuted))
    show(result.blocks())
    if not declared.private:
        click.echo(
            f"{declared.standing.upper()}: this release has no unconditional guarantee", err=True
        )
    return 0 if result.holds else 1


def _study_of(
    declared: BaseRelease, path: str, of_ranges: RangesRelease | None
) -> tuple[str, list[str]]:
    """The digest of a study, and what refutes that a release answers one of its questions."""
    from dp2erm_cvx.program.registry import available, known_meanwhile
    from dp2erm_cvx.study import read_study

    study = read_study(path)
    for program in study.programs:  # of files that the study names, unless --program did
        if program.name not in available():
            click.get_current_context().with_resource(known_meanwhile(program))
    digest = study.digest
    if study.resting is not None and not isinstance(declared, library.RangesRelease):
        if of_ranges is None:
            raise DeclarationError(f"{path} releases ranges: give their release by --ranges")
        study = study.at(of_ranges)
    if study.question_of(declared) is None:
        return digest, [f"study: what is declared answers no question of {path}"]
    return digest, []


def _other_than_taken(declared: BaseRelease, release: str) -> list[str]:
    """What refutes that steps were taken over from the releases that lie beside this one."""
    from dp2erm_cvx.release.reading import read_release_file
    from dp2erm_cvx.release.verify import taken_from

    refuted: list[str] = []
    for name in {entry["of"] for entry in declared.before.values()}:
        other = Path(release).with_name(f"{Path(name).name}.json")
        if other.exists():
            refuted += taken_from(declared, name, read_release_file(other, check=False))
        else:
            click.echo(
                f"note: {other.name}, from which it took steps over, is not beside it", err=True
            )
    return refuted


def _ranges_of(
    declared: BaseRelease, release: str, ranges: str | None
) -> tuple[RangesRelease | None, list[str]]:
    """The ranges that a release rests on, if it does, and what refutes that it does.

    Parameters
    ----------
    declared, release
        The release and its file.
    ranges
        The file of ``--ranges``; None for the one beside the release.

    Raises
    ------
    DeclarationError
        Where the file is no release of ranges, and where one of ranges is asked about.
    """
    from dp2erm_cvx.release.ranges import resting_on
    from dp2erm_cvx.release.reading import read_release_file

    path = Path(release).with_name("ranges.json")
    if ranges is None and (declared.public.released is None or not path.exists()):
        return None, []
    released = read_release_file(ranges or path)
    if not isinstance(released, library.RangesRelease):
        raise DeclarationError(f"{ranges}: is no release of ranges")
    if isinstance(declared, library.RangesRelease):
        raise DeclarationError(f"{release}: is a release of ranges itself: leave --ranges out")
    return released, list(resting_on(declared, released))


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
    """Show accounts of a ledger, with every charge where these are asked for."""
    screen = console()
    if not accounts:
        screen.print("no data set has been declared in this ledger")
    for account in accounts:
        spent = account.spent
        count = len(account.receipts)
        counted = f"{count} {plural('release', count)}"
        text = f"{account.dataset}: {counted}, neighbors: {account.relation}"
        if account.unit is not None:
            text += f", protected: {account.unit}"
        screen.print(text, style="bold", markup=False)
        screen.print(_sums(account))
        if account.composition is not spent.composition:
            screen.print(f"declared: {account.composition}; {spent.composition} is in force")
        if account.composition == "renyi":
            n_curves = sum(receipt.curve is not None for receipt in account.receipts)
            screen.print(f"Renyi curves: {n_curves} of {counted}; pure releases need none")
        if charges and account.receipts:
            screen.print(_charges(account))


def _sums(account: Account) -> Table:
    """What an account was opened with, what is spent, and what is left."""
    spent = account.spent
    total = account.total
    rows = [
        ("total", digits_of(total.epsilon), digits_of(total.delta)),
        (
            f"spent ({spent.composition} composition)",
            digits_of(spent.epsilon),
            digits_of(spent.delta),
        ),
        (
            "left",
            digits_of(spent.left_epsilon, left=True),
            digits_of(spent.left_delta, left=True),
        ),
    ]
    return grid("", "epsilon", "delta", rows=rows)


def _charges(account: Account) -> Table:
    """Every charge of an account."""
    table = grid("charged at (UTC)", "receipt", "note", "epsilon", "delta", left=3)
    table.columns[1].no_wrap = True
    for receipt in account.receipts:
        epsilon = digits_of(receipt.budget.epsilon)
        delta = digits_of(receipt.budget.delta)
        table.add_row(receipt.charged_at, receipt.number, receipt.note, epsilon, delta)
    return table
