"""Options that several commands share, and how one text becomes numbers or names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection
from dataclasses import fields
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from dp2erm_cvx.display import as_plain, described, number_or_text

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

#: Where the context keeps the words of the command line.
WORDS = "dp2erm_cvx.words"

#: What a short help explains, unless a command says otherwise.
FIRST = {"n_samples", "question", "effect", "treated", "epsilon", "output", "--help"}


class Number(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number where the text is one.

    Other text is left for the library to refuse by its own rule.
    """

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, an int where it is written as one."""
        return number_or_text(value) if isinstance(value, str) else value


def apply(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """One decorator for all of them, in this order."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Command(click.Command):
    """A command whose help fits a screen: --help-all explains all options.

    Elsewhere those that are not ``first`` are listed by their names alone. It has an option for
    every setting that a class declares: the default is that of the field; the help is the first
    sentence of what the docstring says of it. The class is imported when the options are asked for,
    and not for the help of other commands.

    Parameters
    ----------
    args, kwargs
        As of ``click.Command``.
    declared
        The class, as module:name.
    before
        The option that the settings of the class stand before.
    first
        Options that every help explains.
    """

    def __init__(
        self,
        *args: Any,
        declared: str = "",
        before: str = "epsilon",
        first: Collection[str] = FIRST,
        **kwargs: Any,
    ) -> None:
        self._first = {*first, "whole"}
        self._declared = (declared, before) if declared else None
        super().__init__(*args, **kwargs)
        help_all = click.Option(
            ["--help-all", "whole"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_explained,
            help="Explain every option.",
        )
        self._params.append(help_all)

    @property
    def params(self) -> list[click.Parameter]:
        """The options, those of the settings before the one that is named."""
        if self._declared is not None:
            declared, before = self._declared
            self._declared = None
            module, _, name = declared.partition(":")
            place = [parameter.name for parameter in self._params].index(before)
            self._params[place:place] = _declared(getattr(import_module(module), name))
        return self._params

    @params.setter
    def params(self, params: list[click.Parameter]) -> None:
        self._params = params

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options that are explained, then the names of the others."""
        explains_all = ctx.meta.get(_WHOLE, False)
        records = []
        others = []
        for option in self.get_params(ctx):
            if not isinstance(option, click.Option):
                continue
            if explains_all or {option.name, *option.opts} & self._first:
                record = option.get_help_record(ctx)
                if record is not None:
                    records.append(record)
            else:
                others.append(max(option.opts, key=len))
        with formatter.section("Options"):
            formatter.write_dl(records)
        if others:
            with formatter.section("Explained by --help-all"):
                formatter.write_text(", ".join(others))


#: Where the context keeps that every option is to be explained.
_WHOLE = "dp2erm_cvx.whole"


def _explained(ctx: click.Context, param: click.Parameter, flag: bool) -> None:
    """Print the help of every option, where that is asked for, and exit."""
    if flag:
        ctx.meta[_WHOLE] = True
        click.echo(ctx.get_help())
        ctx.exit()


@cache
def _class(module: str, name: str) -> ast.ClassDef:
    """A class as it is written: importing it would bring NumPy to every help."""
    source = Path(__file__).parents[1] / f"{module.replace('.', '/')}.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise LookupError(f"{module}: no class {name}")


def sentence(text: str) -> str:
    """The first sentence of what is said of a field."""
    return as_plain(re.split(r"(?<=\.)\s", text)[0])


class FieldOption(click.Option):
    """An option for a field of a class, whose text and default its help shows.

    Without a default of its own the option is None where it is not given, and the default of the
    field is that of the file or class which it stands over.

    Parameters
    ----------
    args, kwargs
        As of ``click.Option``.
    declared
        The field, as ``module:Class.name``.
    beside
        What the help says besides, of what only the command line takes.
    """

    def __init__(self, *args: Any, declared: str, beside: str = "", **kwargs: Any) -> None:
        self.declared = declared
        self._beside = beside
        self._has_default = not kwargs.keys().isdisjoint(("default", "show_default", "required"))
        super().__init__(*args, **kwargs)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The record of help, its text read when it is asked for."""
        module, _, place = self.declared.partition(":")
        title, _, name = place.partition(".")
        node = _class(module, title)
        self.help = sentence(described(ast.get_docstring(node))[name]) + self._beside
        if not self._has_default:
            self.show_default = _default(node, name)
        return super().get_help_record(ctx)


def _default(node: ast.ClassDef, name: str) -> str | None:
    """The default of a field as users write it; None where there is none."""
    value = _field(node, name).value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "setting":
        value = value.args[0] if value.args else None
    if isinstance(value, ast.Attribute):  # a member of an enumeration
        return value.attr.lower().replace("_", "-")
    if not isinstance(value, ast.Constant) or value.value is None:
        return None
    return str(value.value)


def _field(node: ast.ClassDef, name: str) -> ast.AnnAssign:
    """The declaration of a field of a class."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name:
            return statement
    raise LookupError(f"{node.name}: no field {name}")


def field_option(declared: str, *flags: str, **extra: Any) -> Callable[[Any], Any]:
    """A :class:`FieldOption` option, called like its field unless there are ``flags``."""
    flag = f"--{declared.rpartition('.')[2].replace('_', '-')}"
    return click.option(*(flags or (flag,)), cls=FieldOption, declared=declared, **extra)


def _declared(kind: type) -> list[click.Option]:
    """An option for every setting of a class, bound to the class that describes it."""
    described_by: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if "__dataclass_fields__" in vars(base):
            module = base.__module__.partition(".")[2]
            for name in described(base.__doc__):
                described_by[name] = f"{module}:{base.__name__}.{name}"
    options: list[click.Option] = []
    for field in fields(kind):
        flag = f"--{field.name.replace('_', '-')}"
        type_name = str(field.type)
        extra: dict[str, Any] = {"default": field.default}
        if type_name == "bool":
            extra = {"is_flag": True}
        if re.search(r"\b(float|int)\b", type_name) and "Sequence" not in type_name:
            extra["type"] = Number()
        options.append(FieldOption([flag, field.name], declared=described_by[field.name], **extra))
    return options


def declared_settings(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the class that a :class:`Command` read; a list is written with commas."""
    settings: dict[str, Any] = {}
    for field in fields(kind):
        if field.name not in options:
            continue
        value = options[field.name]
        is_list = str(field.type).startswith(("Sequence", "tuple"))
        if is_list and isinstance(value, str):
            parts = [part.strip() for part in value.split(",")]
            value = tuple(part for part in parts if part)
        settings[field.name] = value
    return settings


def number_of_records(text: Any) -> int:
    """The number of records that ``--plan`` is for. Raises DeclarationError."""
    from dp2erm_cvx.checks import whole_number

    number = number_or_text(text) if isinstance(text, str) else text
    return whole_number("--plan", number, at_least=2)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


#: What the estimators and the commands that release something have in common.
ESTIMATOR = "estimators.fitting:PrivateEstimator"
#: The class that describes the stages of a two-stage release.
WEIGHTED = "estimators.two_stage:PrivateTwoStageERM"
delta_option = field_option("privacy:Budget.delta", type=Number(), default=0.0)
#: How a CSV file is written, where the domain file does not say it.
csv_options = apply(
    field_option("data.files:CsvLayout.separator", metavar="CHARACTER"),
    field_option("data.files:CsvLayout.encoding", metavar="NAME"),
    field_option("data.files:CsvLayout.decimal", metavar="CHARACTER"),
)
#: The study or domain file of a command that asks no question of it.
study_option = click.option(
    "--study",
    metavar="FILE.toml",
    help="Study, or domain, that declares what records may look like.",
)
#: What is put over it, or over the defaults of a program.
changes_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="In place of what the study declares, such as outcome_bound=8; or a setting of the "
    "program, such as ridge=1, program.NAME where both have it. Repeatable.",
)
#: The first stage, by its name or file.
program_option = partial(
    field_option,
    f"{WEIGHTED}.first_stage",
    "--program",
    beside=" Of dp2erm programs; or FILE.py, FILE.py:NAME if it holds several.",
)
#: Files of programs that a release names.
program_files_option = click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="FILE.py",
    help="The file of a program that the release names, executed; repeatable.",
)
#: How a release is made and printed.
printing_options = apply(
    click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else on stdout."),
    click.option("--force", is_flag=True, help="Overwrite files that exist."),
    click.option(
        "--yes",
        is_flag=True,
        help="Release whatever the look at the records finds.",
    ),
    click.option(
        "--conditional",
        is_flag=True,
        help="Release what --plan says will not be private.",
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
        help=(
            "Print what a release of N records would spend and how far off it would be; DATA is "
            "not read."
        ),
    ),
)
