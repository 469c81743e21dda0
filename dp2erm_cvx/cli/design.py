"""``dp2erm design``: which pipeline and which settings to take, before any data are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Command, Number, declared_settings, delta_option, field_option, json_option
from dp2erm_cvx.cli.reading import coded_data, raw_table
from dp2erm_cvx.cli.screen import console, print_json, progress, show, stages, writable, write_text
from dp2erm_cvx.errors import DeclarationError, known_names

if TYPE_CHECKING:
    from dp2erm_cvx.design import DesignQuestion, PublicData
    from dp2erm_cvx.domain import Domain


@click.command(
    "design",
    cls=Command,
    declared="dp2erm_cvx.design:Guess",
    before="n_features",
    short_help="Which pipeline to take, by simulation from a guess.",
)
@click.argument("study", metavar="STUDY.toml")
@field_option("universe:Universe.n_samples", "--n", "n_samples", type=Number(), required=True)
@click.option("--question", metavar="NAME", help="Of the study: an effect or a rule [the first].")
@field_option("design.world:DesignQuestion.goal", beside=" Where STUDY asks no question.")
@field_option("privacy:Budget.epsilon", type=Number(), show_default="that of the study")
@delta_option
@field_option("universe:Universe.n_features", type=Number(), show_default="that of the ranges")
@field_option("design.world:DesignQuestion.replicates", type=Number(), default=50)
@field_option("design.world:DesignQuestion.public", metavar="FILE")
@field_option("design.scenario:PublicData.source", metavar="TEXT")
@field_option("design.scenario:PublicData.holdout", type=Number())
@field_option("design.world:DesignQuestion.seed", type=Number(), default=0)
@field_option("audit.search:SearchPlan.workers", type=Number(), default=1)
@click.option("--output", metavar="FILE.toml", help="For a copy of the study with the settings that won.")
@json_option
def design_command(study: str, output: str | None, as_json: bool, **options: Any) -> None:
    """Rank pipelines by what they do on data simulated from STUDY and a stated guess of the world.

    It reads no private data and spends nothing: what --public names has to be public. Whatever is not stated
    is guessed, and reported as such. What the question of the study declares holds for every pipeline. A file
    that declares a domain alone will do.
    """
    import tomlkit

    from dp2erm_cvx.design import design
    from dp2erm_cvx.parallel import whole_workers
    from dp2erm_cvx.study_file import study_with, written

    if output is not None:
        writable(output, study)
    name, question = _question(study, options)
    workers = whole_workers(options["workers"])
    with progress("simulating") as bar:
        result = design(question, workers=workers, progress=stages(bar))
    best = result.best
    copy = study_with(study, name, best.kind, best.settings, question.budget)
    if output is not None:
        write_text(output, copy)
    if as_json:
        print_json(result.to_dict() | {"question": name, "study": copy})
        return
    screen = console()
    show(result.blocks())
    if output is None:
        screen.print(f"Its settings, which --output writes into a copy of {study}:")
        click.echo(tomlkit.dumps({best.kind: [written(best.settings)]}).strip())
    else:
        screen.print("Run:" if result.answers else "If you run it all the same:")
        click.echo(f"dp2erm run {output} DATA.csv")


def _question(path: str, options: dict[str, Any]) -> tuple[str | None, DesignQuestion]:
    """Question, with the name of its table in the file; None where that declares a domain alone."""
    from dp2erm_cvx.design import DesignQuestion, Guess
    from dp2erm_cvx.design.world import GOALS
    from dp2erm_cvx.domain_file import load_domain, read_tables
    from dp2erm_cvx.privacy import Budget
    from dp2erm_cvx.study_file import QUESTIONS, read_study

    name, goal, declared, budget = None, options["goal"] or GOALS[0], {}, None
    if QUESTIONS.keys() & read_tables(path).keys():
        study = read_study(path)
        known = {one.name: one for one in study.questions if one.kind in GOALS}
        name = options["question"] or next(iter(known), None)
        if options["goal"] is not None:
            raise DeclarationError(f"--goal: {path} asks questions: choose one by --question")
        if name not in known:
            raise DeclarationError(f"--question {name}: {known_names(str(name), sorted(known))}")
        goal, declared, domain = known[name].kind, dict(known[name].settings), known[name].domain
        budget = study.models()[name].budget
    else:
        domain = load_domain(path)
        if options["question"] is not None:
            raise DeclarationError(f"--question: {path} asks none")
    if options["epsilon"] is not None:
        budget = Budget(options["epsilon"], options["delta"])
    if budget is None:
        raise DeclarationError(f"{path} declares no [budget]: give --epsilon")
    public = _public(path, options, domain)
    features = options["n_features"] if domain.ranges is None else len(domain.ranges)
    if features is None:
        raise DeclarationError("the number of covariates is not declared: give --n-features, or ranges")
    return name, DesignQuestion(
        domain,
        options["n_samples"],
        features,
        budget,
        goal,
        Guess(**declared_settings(Guess, options)),
        declared.pop("estimand", "ate"),
        options["replicates"],
        options["seed"],
        declared,
        public,
    )


def _public(path: str, options: dict[str, Any], domain: Domain) -> PublicData | None:
    """The records that are declared public, read as the study reads its own."""
    from dp2erm_cvx.design import PublicData

    if options["public"] is None:
        return None
    if options["source"] is None:
        raise DeclarationError("--source is missing: say where the public records come from")
    table = raw_table(options["public"], {"domain": path}, domain)
    return PublicData(coded_data(table, domain), options["source"], options["holdout"])
