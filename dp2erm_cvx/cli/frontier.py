"""``dp2erm frontier``: what V costs in balance, for whoever chooses the settings of a scheme."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

import dp2erm_cvx as library
from dp2erm_cvx.checks import whole_number
from dp2erm_cvx.cli import options as opt
from dp2erm_cvx.cli import programs, reading, screen
from dp2erm_cvx.display import number_or_text
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.design import FrontierRequest, FrontierRow
    from dp2erm_cvx.program.stage import Registered
    from dp2erm_cvx.study import RecordsFile

#: Where a request describes what its options are.
_REQUEST = "design.trade_off:FrontierRequest"
#: What is assumed of records where no file and no option declares it.
_ASSUMED = {"covariate_bound": 1.0, "outcome_bound": 1.0}
#: Covariates of a record where nothing says how many there are.
_COVARIATES = 5


@click.command(
    "frontier", short_help="What V costs in balance: settings of schemes, on public records."
)
@click.argument("schemes", metavar="FILE.py|NAME...", nargs=-1, required=True)
@opt.field_option(
    "data.universe:Universe.n_samples", "--n", "n_samples", type=opt.Number(), default=4000
)
@opt.field_option(
    "data.universe:Universe.n_features",
    type=opt.Number(),
    show_default="that of the ranges, else 5",
)
@opt.field_option(f"{_REQUEST}.treated", type=opt.Number(), default=0.5)
@opt.field_option(f"{_REQUEST}.distance", type=opt.Number(), default=1.0)
@opt.field_option("privacy:Budget.epsilon", type=opt.Number(), default=1.0)
@opt.study_option
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE[,VALUE...]",
    help="Values of a setting that are tried, such as ridge=0.1,0.01; or what is declared of "
    "records, such as arm_floor=800. Repeatable.",
)
@opt.field_option(f"{_REQUEST}.public", metavar="FILE")
@opt.field_option("design.samples:PublicData.source", metavar="TEXT")
@click.option("--plot", metavar="FILE.png", help="Draw V against what is left (.png, .svg, .pdf).")
@opt.field_option("audit.search:SearchPlan.workers", type=opt.Number(), default=1)
@opt.json_option
def frontier_command(
    schemes: tuple[str, ...], as_json: bool, plot: str | None, **options: Any
) -> None:
    """Try declared schemes at many settings on public records, and propose one of them.

    A row tells the proved V, what is left of the distance of the arms, and the half width that an
    effect by these weights is predicted to have. No private record is read and nothing is spent.
    """
    from dp2erm_cvx.design import frontier
    from dp2erm_cvx.design.trade_off import paper_curve
    from dp2erm_cvx.parallel import whole_workers
    from dp2erm_cvx.report.figures import check_figure, frontier_plot

    if plot is not None:
        screen.writable(plot, options["study"], options["public"], *schemes)
        check_figure(plot)
    workers = whole_workers(options["workers"])
    named_schemes = _schemes(schemes)
    request, texts = _request(options)
    with screen.progress("trying settings") as bar:
        result = frontier(
            [scheme for _, scheme in named_schemes],
            request,
            workers=workers,
            progress=screen.stages(bar),
        )
        if plot is not None:
            frontier_plot(result, plot, paper_curve(request))
    study = ""
    if result.proposed is not None:
        text_of = {scheme.name: text for text, scheme in named_schemes}
        name = text_of[result.proposed.scheme]
        study = _study_text(_in_study(result.proposed, name, request, texts))
    if as_json:
        screen.print_json(result.to_dict() | {"study": study})
        return
    screen.show(result.blocks())
    if study:
        screen.console().print("In a study file:")
        click.echo(study)
    if plot is not None:
        screen.console().print(f"V against what is left: {plot}")


def _request(options: Mapping[str, Any]) -> tuple[FrontierRequest, dict[str, list[Any]]]:
    """What is asked for, and the values of settings as they are written."""
    from dp2erm_cvx.design import FrontierRequest
    from dp2erm_cvx.study import declared_records

    changes_of_records, changes_of_settings = programs.split_changes(options["changes"])
    assumed = _ASSUMED if options["study"] is None else {}
    records = declared_records(options["study"], changes_of_records, assumed)
    public = _public(options, records)
    texts = dict(_texts(change) for change in changes_of_settings)
    request = FrontierRequest(
        _universe(options, records, public),
        epsilon=library.Budget(options["epsilon"]).epsilon,
        treated=options["treated"],
        distance=options["distance"],
        grids=_grids(texts, records),
        public=public,
    )
    return request, texts


def _study_text(question: Mapping[str, Any]) -> str:
    """A question as a study file writes it."""
    import tomlkit

    return tomlkit.dumps(question).strip()


def _schemes(texts: Sequence[str]) -> list[tuple[str, Registered]]:
    """The schemes that the command names, each with what a study calls it.

    Schemes of files are known by their names until the command ends.

    Parameters
    ----------
    texts
        Names of registered first stages, or files, all of whose first stages are meant.

    Raises
    ------
    ProgramError
        Where there is no such first stage.
    """
    from dp2erm_cvx.program import registry
    from dp2erm_cvx.program.files import file_of

    schemes: list[tuple[str, Registered]] = []
    for text in texts:
        place = file_of(text)
        if place is not None:
            path, name = place
            schemes += _schemes_of_file(text, path, name)
            continue
        registered = registry.available()
        if text not in registered:
            registry.build(registry.first_stages(), text)  # says which there are
        schemes.append((text, registered[text]))
    return schemes


def _schemes_of_file(text: str, path: str, name: str | None) -> list[tuple[str, Registered]]:
    """The first stage of this name in a file, or all of them."""
    from dp2erm_cvx.program import registry
    from dp2erm_cvx.program.files import (
        program_of_file,
        programs_of_file,
        send_by_value,
        stage_of,
    )

    context = click.get_current_context()
    schemes: list[Registered] = []
    if name is None:
        schemes = [scheme for scheme in programs_of_file(path) if stage_of(scheme) == "first"]
    if len(schemes) < 2:
        scheme = program_of_file(path, name, "first")
        context.with_resource(registry.known_meanwhile(scheme))
        return [(text, scheme)]
    for scheme in schemes:
        send_by_value(scheme)
        context.with_resource(registry.known_meanwhile(scheme))
    return [(f"{path}:{scheme.__name__}", scheme) for scheme in schemes]


def _public(options: Mapping[str, Any], records: RecordsFile) -> library.PublicData | None:
    """The records that are declared public, read as the study reads its own."""
    if options["public"] is None:
        return None
    if options["source"] is None:
        raise DeclarationError("--source is missing: say where the public records come from")
    table = reading.raw_table(options["public"], records.layout, records.domain)
    data = reading.coded_data(table, records.domain, records.covariates)
    return library.PublicData(data, options["source"])


def _universe(
    options: Mapping[str, Any], records: RecordsFile, public: library.PublicData | None
) -> library.Universe:
    """The public sizes: the number of records, and of covariates.

    Covariates are as many as are asked for, else those of public records, of the ranges, or 5.
    """
    n_records = whole_number("--n", options["n_samples"], at_least=4, at_most=programs.MOST)
    n_covariates = len(records.domain.ranges or records.covariates or ()) or _COVARIATES
    if public is not None:
        n_covariates = len(public.dataset.columns)
    if options["n_features"] is not None:
        n_covariates = whole_number(
            "--n-features", options["n_features"], at_least=1, at_most=programs.MOST
        )
    return library.Universe(records.domain, n_records, n_covariates)


def _texts(change: str) -> tuple[str, list[Any]]:
    """The name of a setting, and its values as they are written: numbers, texts or lists."""
    from dp2erm_cvx.study import parsed_change

    name, separator, written = change.partition("=")
    name = name.strip().replace("-", "_")
    if separator and written.strip():
        keys, values = parsed_change(f"{name}=[{written}]")
        if not isinstance(values, list):  # texts without quotes
            parts = [part.strip() for part in written.split(",")]
            values = [number_or_text(part) for part in parts if part]
        if len(keys) == 1 and values:
            return name, values
    raise DeclarationError(
        f"{change!r}: must look like NAME=VALUE or NAME=VALUE,VALUE, such as ridge=0.1,0.01"
    )


def _grids(texts: Mapping[str, Sequence[Any]], records: RecordsFile) -> dict[str, list[Any]]:
    """Values of settings, made of what is written of them."""
    grids: dict[str, list[Any]] = {}
    for name, values in texts.items():
        grids[name] = []
        for value in values:
            made = programs.made_settings({name: value}, records)
            grids[name].append(made.get(name, value))
    return grids


def _in_study(
    row: FrontierRow, name: str, request: FrontierRequest, texts: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """The question that a row proposes.

    It is an effect by the weights where they answer one; the share of the treated is then that
    which is released. Else it is a question of two stages.

    Parameters
    ----------
    row
        Settings of a scheme.
    name
        What a study calls the scheme.
    request
        What was asked for.
    texts
        Values of settings as they are written, by the name of the setting.
    """
    from dp2erm_cvx.design.trade_off import TREATED
    from dp2erm_cvx.study import written

    stage: dict[str, Any] = {"name": name}
    for setting, value in row.settings.items():
        stage[setting] = value
        if setting in texts:
            place = list(request.grids[setting]).index(value)
            stage[setting] = texts[setting][place]
    if math.isnan(row.half_width):
        return {"two_stage": [{"first_stage": written(stage)}]}
    stage.pop(TREATED, None)
    return {"effect": [{"confounding": request.distance, "weights": written(stage)}]}
