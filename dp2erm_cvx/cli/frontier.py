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
    import tomlkit

    from dp2erm_cvx.design import FrontierRequest, frontier
    from dp2erm_cvx.design.trade_off import paper_curve
    from dp2erm_cvx.parallel import whole_workers
    from dp2erm_cvx.report.figures import check_figure, frontier_plot
    from dp2erm_cvx.study import declared_records

    if plot is not None:
        screen.writable(plot, options["study"], options["public"], *schemes)
        check_figure(plot)
    workers = whole_workers(options["workers"])
    named = _schemes(schemes)
    own, settings = programs.split_changes(options["changes"])
    assumed = _ASSUMED if options["study"] is None else {}
    records = declared_records(options["study"], own, assumed)
    public = _public(options, records)
    texts = dict(_texts(change) for change in settings)
    request = FrontierRequest(
        _universe(options, records, public),
        epsilon=library.Budget(options["epsilon"]).epsilon,
        treated=options["treated"],
        distance=options["distance"],
        grids=_grids(texts, records),
        public=public,
    )
    with screen.progress("trying settings") as bar:
        result = frontier(
            [made for _, made in named], request, workers=workers, progress=screen.stages(bar)
        )
        if plot is not None:
            frontier_plot(result, plot, paper_curve(request))
    best = result.proposed
    study = ""
    if best is not None:
        names = {made.name: text for text, made in named}
        study = tomlkit.dumps(_in_study(best, names[best.scheme], request, texts)).strip()
    if as_json:
        screen.print_json(result.to_dict() | {"study": study})
        return
    screen.show(result.blocks())
    if study:
        screen.console().print("In a study file:")
        click.echo(study)
    if plot is not None:
        screen.console().print(f"V against what is left: {plot}")


def _schemes(texts: Sequence[str]) -> list[tuple[str, Registered]]:
    """What a study calls a scheme, and the scheme.

    It is a registered first stage, or all those of a file. Schemes of files are known by their
    names until the command ends. Raises ProgramError.
    """
    from dp2erm_cvx.program import registry
    from dp2erm_cvx.program.files import (
        file_of,
        program_of_file,
        programs_of_file,
        send_by_value,
        stage_of,
    )

    found: list[tuple[str, Registered]] = []
    context = click.get_current_context()
    for text in texts:
        place = file_of(text)
        if place is None:
            known = registry.available()
            if text not in known:
                registry.build(registry.first_stages(), text)  # says which there are
            found.append((text, known[text]))
            continue
        path, chosen = place
        of_file: list[Registered] = []
        if chosen is None:
            of_file = [made for made in programs_of_file(path) if stage_of(made) == "first"]
        if len(of_file) < 2:
            made = program_of_file(path, chosen, "first")
            context.with_resource(registry.known_meanwhile(made))
            found.append((text, made))
            continue
        for made in of_file:
            send_by_value(made)
            context.with_resource(registry.known_meanwhile(made))
            found.append((f"{path}:{made.__name__}", made))
    return found


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

    Covariates are those of public records, of the ranges, as many as told, or 5.
    """
    n = whole_number("--n", options["n_samples"], at_least=4, at_most=programs.MOST)
    columns = len(records.domain.ranges or records.covariates or "abcde")
    if public is not None:
        columns = len(public.dataset.columns)
    if options["n_features"] is not None:
        columns = whole_number(
            "--n-features", options["n_features"], at_least=1, at_most=programs.MOST
        )
    return library.Universe(records.domain, n, columns)


def _texts(change: str) -> tuple[str, list[Any]]:
    """The name of a setting, and its values as they are written: numbers, texts or lists."""
    from dp2erm_cvx.study import parsed_change

    name, separator, written = change.partition("=")
    name = name.strip().replace("-", "_")
    if separator and written.strip():
        keys, values = parsed_change(f"{name}=[{written}]")
        if not isinstance(values, list):  # texts without quotes
            values = [number_or_text(part.strip()) for part in written.split(",") if part.strip()]
        if len(keys) == 1 and values:
            return name, values
    raise DeclarationError(
        f"{change!r}: must look like NAME=VALUE or NAME=VALUE,VALUE, such as ridge=0.1,0.01"
    )


def _grids(texts: Mapping[str, Sequence[Any]], records: RecordsFile) -> dict[str, list[Any]]:
    """Values of settings, made of what is written of them."""
    return {
        name: [programs.made_settings({name: value}, records).get(name, value) for value in values]
        for name, values in texts.items()
    }


def _in_study(
    row: FrontierRow, name: str, request: FrontierRequest, texts: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """The question that a row proposes, as a study file writes it, with the scheme of this name.

    An effect by the weights where they answer one; the share of the treated is then that which is
    released. Else a question of two stages.
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
