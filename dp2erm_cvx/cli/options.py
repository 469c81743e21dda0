"""Options that several commands share, and how one text becomes numbers or names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import Field, fields
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.text import as_plain, described, number_or_text

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

#: Where the context keeps the words of the command line.
WORDS = "dp2erm_cvx.words"

#: Flags that override the field of the same name of a domain file.
DOMAIN_FIELDS = (
    "covariate_bound", "outcome_bound", "outcome_center", "treatment_cost",
    "intercept", "arm_floor", "relation", "coordinate_bound",
)  # fmt: skip
#: What every domain must declare.
REQUIRED = ("covariate_bound", "outcome_bound")
#: Flags for the settings that most programs have.
SETTING_FLAGS = ("ridge", "radius", "arm_mass", "degree", "trim")
#: Options of many commands, by what their help says instead of each.
SHARED = {
    "Data and domain, see dp2erm check --help": (
        *("treatment", "outcome", "covariates", "separator", "encoding", "decimal"),
        *("domain", "ranges", *DOMAIN_FIELDS),
    ),
    "In place of --set NAME=VALUE": SETTING_FLAGS,
}


#: What a short help explains, unless a command says otherwise.
FIRST = {
    *("planned", "estimand", "by", "where", "prognostic", "residual_scale", "outcome_scale", "expected"),
    *("program", "second_stage", "settings", "first_settings", "epsilon", "output", "ledger", "dataset"),
    *("yes", "n_samples", "question", "effect", "treated", "whole", "--help"),
}


class Number(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number where the text is one; other text is left for the library to refuse by its own rule."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, an int where it is written as one."""
        return number_or_text(value) if isinstance(value, str) else value


def names(text: str | None) -> tuple[str, ...] | None:
    """``"age, sex"`` -> ("age", "sex"). Raises DeclarationError where one stands twice."""
    if text is None:
        return None
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(set(parts)) < len(parts):
        raise DeclarationError(f"{text!r}: a name stands there twice: give it once")
    return parts


def _named(text: str, wanted: str, *, empty: bool = False) -> tuple[str, str]:
    """``"sex=F"`` -> ("sex", "F"). Raises DeclarationError, which says what is ``wanted``."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip() or not (empty or value.strip()):
        raise DeclarationError(f"{text!r}: must look like {wanted}")
    return name.strip(), value.strip()


def apply(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """One decorator for all of them, in this order."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


#: How options of several values are written.
_SPELLED = {"settings": "NAME=VALUE", "where": "COLUMN=LEVEL", "expected": "FACT"}
#: Fields of estimators that are no options, or have others of their own.
_OWN = ("domain", "budget", "seed", "ledger", "dataset", "first_stage", "second_stage")
#: What only a command line takes.
_BESIDE = {"solver": " Or FILE.py:NAME of your own.", **dict.fromkeys(_SPELLED, " Repeatable.")}


class Command(click.Command):
    """A command whose help fits a screen: --help-all explains all options.

    Elsewhere those of many commands, and those that are not ``first``, are listed by their names alone.
    It has an option for every setting that a class declares, ``declared`` as module:name: the default is that
    of the field; the help is the first sentence of what the docstring says of it. The class is imported when
    the options are asked for, and not for the help of other commands.
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
        whole: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
        whole |= {"callback": _explained, "help": "Explain every option."}
        self._params.append(click.Option(["--help-all", "whole"], **whole))

    @property
    def params(self) -> list[click.Parameter]:
        """The options, those of the settings before the one that is named."""
        if self._declared is not None:
            (declared, before), self._declared = self._declared, None
            module, _, name = declared.partition(":")
            place = [one.name for one in self._params].index(before)
            self._params[place:place] = _declared(getattr(import_module(module), name))
        return self._params

    @params.setter
    def params(self, params: list[click.Parameter]) -> None:
        self._params = params

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options of the command itself, then the names of what it shares."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        whole = ctx.meta.get(_WHOLE, False)
        titles = {} if whole else {name: title for title, names in SHARED.items() for name in names}
        own = [one for one in options if one.name not in titles]
        if not whole:
            more = "Explained by --help-all"
            titles |= {str(one.name): more for one in own if not {one.name, *one.opts} & self._first}
        with formatter.section("Options"):
            records = (one.get_help_record(ctx) for one in options if one.name not in titles)
            formatter.write_dl([one for one in records if one is not None])
        for title in dict.fromkeys(titles.values()):
            if flags := [max(one.opts, key=len) for one in options if titles.get(str(one.name)) == title]:
                with formatter.section(title):
                    formatter.write_text(", ".join(flags))


#: Where the context keeps that every option is to be explained.
_WHOLE = "dp2erm_cvx.whole"


def _explained(ctx: click.Context, param: click.Parameter, flag: bool) -> None:
    if flag:
        ctx.meta[_WHOLE] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _fields(kind: type) -> list[Field[Any]]:
    """The fields of a class that are options, its own before those that it inherits."""
    known = [one for one in fields(kind) if one.init and one.name not in _OWN]
    return sorted(known, key=lambda one: one.name not in kind.__annotations__)


@cache
def _class(module: str, name: str) -> ast.ClassDef:
    """A class as it is written: importing it would bring NumPy to every help."""
    source = Path(__file__).parents[1] / f"{module.replace('.', '/')}.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)


def sentence(text: str) -> str:
    """The first sentence of what is said of a field."""
    return as_plain(re.split(r"(?<=\.)\s", text)[0])


class FieldOption(click.Option):
    """An option for a field of a class, ``module:Class.name``, whose text and default its help shows.

    ``beside`` is what only the command line takes. Without a default of its own the option is None where it
    is not given, and the default of the field is that of the file or class which it stands over.
    """

    def __init__(self, *args: Any, declared: str, beside: str = "", **kwargs: Any) -> None:
        self.declared, self._beside = declared, beside
        self._stated = not kwargs.keys().isdisjoint(("default", "show_default", "required"))
        super().__init__(*args, **kwargs)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The record of help, its text read when it is asked for."""
        module, _, place = self.declared.partition(":")
        title, _, name = place.partition(".")
        of = _class(module, title)
        self.help = sentence(described(ast.get_docstring(of))[name]) + self._beside
        if not self._stated:
            self.show_default = _default(of, name)
        return super().get_help_record(ctx)


def _default(of: ast.ClassDef, name: str) -> str | None:
    """The default of a field as users write it; None where there is none."""
    fields = (one for one in of.body if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == name)
    value = next(fields).value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "setting":
        value = value.args[0] if value.args else None
    if isinstance(value, ast.Attribute):  # a member of an enumeration
        return value.attr.lower().replace("_", "-")
    return None if not isinstance(value, ast.Constant) or value.value is None else str(value.value)


def field_option(declared: str, *flags: str, **extra: Any) -> Callable[[Any], Any]:
    """A :class:`FieldOption` option, called like its field unless there are ``flags``."""
    flag = f"--{declared.rpartition('.')[2].replace('_', '-')}"
    return click.option(*(flags or (flag,)), cls=FieldOption, declared=declared, **extra)


def _declared(kind: type) -> list[click.Option]:
    """An option for every setting of a class, bound to the class that describes it."""
    said = {
        name: f"{base.__module__.partition('.')[2]}:{base.__name__}.{name}"
        for base in reversed(kind.__mro__)
        if "__dataclass_fields__" in vars(base)
        for name in described(base.__doc__)
    }
    made: list[click.Option] = []
    for one in _fields(kind):
        spec, several = str(one.type), one.name in _SPELLED
        listed = "A,B,..." if spec.startswith(("Sequence", "tuple")) else None
        extra: dict[str, Any] = {"declared": said[one.name], "beside": _BESIDE.get(one.name, "")}
        extra |= {"metavar": _SPELLED.get(one.name, listed), "multiple": several}
        extra |= {"is_flag": True} if spec == "bool" else {} if several else {"default": one.default}
        extra |= {"type": Number()} if "float" in spec and not several else {}
        flag = "--set" if one.name == "settings" else f"--{one.name.replace('_', '-')}"
        made.append(FieldOption([flag, one.name], **extra))
    return made


def declared_settings(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the class that a :class:`Command` read. Raises DeclarationError."""
    types = {one.name: str(one.type) for one in _fields(kind)}
    settings = {name: options[name] for name in types if name in options}
    for name, value in settings.items():
        if name == "settings":
            settings[name] = _settings(value, options.get("cells", ()))
        elif name == "where":
            wanted = "COLUMN=LEVEL, for instance sex=F"
            settings[name] = dict(_named(text, wanted, empty=True) for text in value) or None
        elif isinstance(value, str) and types[name].startswith(("Sequence", "tuple")):
            settings[name] = names(value)
    return settings


def read_setting(text: str) -> tuple[str, Any]:
    """``NAME=VALUE``, a value with commas as a list. Raises DeclarationError."""
    name, value = _named(text, "NAME=VALUE, for instance ridge=1")
    name = name.replace("-", "_")
    if name == "coefficient" or "," in value:
        return name, tuple(number_or_text(part.strip()) for part in value.split(",") if part.strip())
    return name, number_or_text(value)


def _settings(texts: Sequence[str], cells: Sequence[str] = ()) -> dict[str, Any]:
    """Settings of an effect from ``--set``; ``none`` stands for nothing. Cuts are from ``--cells``."""
    cuts = once("cells of", cells, _cells)
    settings = once("setting", texts, read_setting, **({"cells": cuts} if cuts else {}))
    return {name: None if value == "none" else value for name, value in settings.items()}


def once(
    what: str, texts: Sequence[str], read: Callable[[str], tuple[str, Any]] = read_setting, **more: Any
) -> dict[str, Any]:
    """Values by the names in ``texts``, and ``more``. Raises DeclarationError for a name given twice."""
    pairs: dict[str, Any] = {}
    for name, value in (*map(read, texts), *more.items()):
        if name in pairs:
            raise DeclarationError(f"{what} {name!r} is given twice: give it once")
        pairs[name] = value
    return pairs


def _cells(text: str) -> tuple[str, Any]:
    """``NAME=CUT,...`` or ``NAME:NUMBER`` of cells."""
    name, separator, value = text.rpartition("=" if "=" in text else ":")
    numbers = [number_or_text(part.strip()) for part in value.split(",")]
    if not name.strip() or not all(isinstance(number, (int, float)) for number in numbers):
        raise DeclarationError(f"{text!r}: must look like age=30,50 (cuts) or age:20 (cells of equal width)")
    return name.strip(), numbers if separator == "=" else numbers[0]


def number_of_records(text: Any) -> int:
    """The number of records that ``--plan`` is for. Raises DeclarationError."""
    from dp2erm_cvx.public import whole_number

    return whole_number("--plan", text, at_least=2)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


_DOMAIN = "domain.domain:Domain"
#: What the estimators and the commands that release something have in common.
ESTIMATOR, WEIGHTED = "estimators.fitting:PrivateEstimator", "estimators.two_stage:PrivateTwoStageERM"
delta_option = field_option("privacy:Budget.delta", type=Number(), default=0.0)
domain_options = apply(
    field_option(f"{ESTIMATOR}.domain", metavar="FILE.toml", beside=" Every flag below overrides it."),
    *(field_option(f"{_DOMAIN}.{name}", type=Number()) for name in DOMAIN_FIELDS if name != "relation"),
    field_option(f"{_DOMAIN}.relation", beside=" One of replace-one, replace-one-keep-treatment."),
    field_option(
        f"{_DOMAIN}.ranges",
        "--range",
        "ranges",
        multiple=True,
        metavar="COLUMN=LOW:HIGH",
        beside=" Repeatable.",
    ),
)
#: How a CSV file is written, where the domain file does not say it.
csv_options = apply(
    *(
        field_option(f"files:CsvLayout.{name}", metavar=metavar)
        for name, metavar in (("separator", "CHARACTER"), ("encoding", "NAME"), ("decimal", "CHARACTER"))
    )
)
#: The columns of a data file, how it is written, then the domain.
data_options = apply(
    field_option("cells:Treatment.column", "--treatment", metavar="COLUMN"),
    field_option("codebook:Codebook.outcome", metavar="COLUMN"),
    click.option("--covariates", metavar="A,B,...", help="Default: those of the domain, else all others."),
    csv_options,
    domain_options,
)
#: The first stage, by its name or file, and its settings.
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
setting_options = apply(
    click.option(
        "--set",
        "first_settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Setting of the first stage, as dp2erm programs lists them; repeatable.",
    ),
    *(
        field_option(f"program.{place}", type=kind, show_default="of the program")
        for place, kind in (
            ("separable:SeparableFirstStage.ridge", Number()),
            ("separable:SeparableFirstStage.radius", Number()),
            ("entropy:EntropyFirstStage.arm_mass", str),
            ("balance:Moments.degree", Number()),
        )
    ),
    click.option("--trim", type=Number(), help="Public cap on weights before they are normalized."),
)
second_stage_options = apply(
    field_option(f"{WEIGHTED}.second_stage", default="itr", beside=" Or FILE.py."),
    click.option(
        "--second-set",
        "second_settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Setting of the second stage, such as theta_set=l1:2 (or l2:2, box:5), l1 or l2 (the weights of "
        "norms in the regularizer), features=A,B and features_bound of itr; repeatable.",
    ),
)
#: How a release is made and printed.
printing_options = apply(
    click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else on stdout."),
    click.option("--force", is_flag=True, help="Overwrite files that exist."),
    click.option(
        "--yes",
        is_flag=True,
        help="Release all the same where records do not look as declared, or an arm is empty.",
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
