"""Options that several commands share, and how one text becomes numbers or names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.text import number_or_text

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
SETTING_FLAGS = ("ridge", "radius", "trim", "arm_mass", "degree")
#: Options of many commands, by what their help says instead of each.
SHARED = {
    "Data and domain, see dp2erm check --help": (
        *("treatment", "outcome", "covariates", "separator", "encoding", "decimal"),
        *("domain", "ranges", *DOMAIN_FIELDS),
    ),
    "In place of --set NAME=VALUE": SETTING_FLAGS,
}


#: What a short help explains of a command that has more than ``MANY`` options of its own.
FIRST = (
    *("planned", "estimand", "by", "where", "prognostic", "residual_scale", "outcome_scale", "expected"),
    *("program", "second_stage", "settings", "epsilon", "output", "ledger", "dataset", "yes", "help"),
    *("n_samples", "question", "effect", "treated", "whole"),
)
MANY = 18


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
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(set(found)) < len(found):
        raise DeclarationError(f"{text!r}: a name stands there twice: give it once")
    return found


def _level(text: str) -> tuple[str, str]:
    """``"sex=F"`` -> ("sex", "F"). Raises DeclarationError."""
    column, separator, level = text.partition("=")
    if not separator or not column.strip():
        raise DeclarationError(f"--where {text!r}: must look like COLUMN=LEVEL, for instance sex=F")
    return column.strip(), level.strip()


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

    Those of many commands are listed by their names alone, and so are those that few readers need.
    It has an option for every setting that a class declares, ``declared`` as module:name: the default is that
    of the field; the help is the first sentence of what the docstring says of it. The class is imported when
    the options are asked for, and not for the help of other commands.
    """

    def __init__(self, *args: Any, declared: str = "", before: str = "epsilon", **kwargs: Any) -> None:
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
        """Those of the command itself, then the names of what it shares."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        titles = {name: title for title, names in SHARED.items() for name in names}
        whole, own = ctx.meta.get(_WHOLE, False), [one for one in options if one.name not in titles]
        if len(own) > MANY and not whole:
            more = "Explained by --help-all"
            titles |= {str(one.name): more for one in own if one.name not in FIRST}
        with formatter.section("Options"):
            records = (one.get_help_record(ctx) for one in options if one.name not in titles)
            formatter.write_dl([one for one in records if one is not None])
        for title in dict.fromkeys(titles.values()):
            if flags := [one.opts[0] for one in options if titles.get(str(one.name)) == title]:
                with formatter.section(title):
                    formatter.write_text(", ".join(flags))


#: Where the context keeps that every option is to be explained.
_WHOLE = "dp2erm_cvx.whole"


def _explained(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        ctx.meta[_WHOLE] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _fields(kind: type) -> list[Field[Any]]:
    """The fields of a class that are options, its own before those that it inherits."""
    known = [one for one in fields(kind) if one.init and one.name not in _OWN]
    return sorted(known, key=lambda one: one.name not in kind.__annotations__)


def _said(text: str) -> dict[str, str]:
    """The first sentence of what a docstring says of each parameter."""
    found: dict[str, str] = {}
    entries = r"^(\w+(?:, \w+)*)\n((?:    .+(?:\n|$))+)"
    for listed, told in re.findall(entries, inspect.cleandoc(text), flags=re.MULTILINE):
        sentence = re.split(r"(?<=\.)\s", " ".join(told.split()))[0].replace("``", "")
        if not sentence.startswith("As in "):  # a base, which says it
            found |= dict.fromkeys(listed.split(", "), sentence)
    return found


def _declared(kind: type) -> list[click.Option]:
    said: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        said |= _said(base.__doc__ or "") if "__dataclass_fields__" in vars(base) else {}
    made = []
    for one in _fields(kind):
        stated, several = str(one.type), one.name in _SPELLED
        listed = stated.startswith(("Sequence", "tuple"))
        extra: dict[str, Any] = {"metavar": _SPELLED.get(one.name, "A,B,..." if listed else None)}
        if "float" in stated and not several:
            extra["type"] = Number()
        if stated == "bool":
            extra["is_flag"] = True
        elif not several and one.default is not None:
            extra["default"] = one.default
        text = said[one.name] + _BESIDE.get(one.name, "")
        flag = "--set" if one.name == "settings" else f"--{one.name.replace('_', '-')}"
        made.append(click.Option([flag, one.name], multiple=several, help=text, **extra))
    return made


def declared_settings(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the class that a :class:`Command` read. Raises DeclarationError."""
    stated = {one.name: str(one.type) for one in _fields(kind)}
    found = {name: options[name] for name in stated if name in options}
    for name, value in found.items():
        if name == "settings":
            found[name] = _settings(value, options.get("cells", ()))
        elif name == "where":
            found[name] = dict(map(_level, value)) or None
        elif isinstance(value, str) and stated[name].startswith(("Sequence", "tuple")):
            found[name] = names(value)
    return found


def read_setting(text: str) -> tuple[str, Any]:
    """``NAME=VALUE``, a value with commas as a list. Raises DeclarationError."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip() or not value.strip():
        raise DeclarationError(f"{text!r}: must look like NAME=VALUE, for instance ridge=1")
    name = name.strip().replace("-", "_")
    if name == "coefficient" or "," in value:
        return name, tuple(number_or_text(part.strip()) for part in value.split(",") if part.strip())
    return name, number_or_text(value.strip())


def _settings(texts: Sequence[str], cells: Sequence[str] = ()) -> dict[str, Any]:
    """Settings of an effect from ``--set``; ``none`` stands for nothing. Cuts are from ``--cells``."""
    found: dict[str, Any] = {}
    for name, value in map(read_setting, texts):
        if name in found:
            raise DeclarationError(f"setting {name!r} is given twice: give it once")
        found[name] = None if value == "none" else value
    cuts: dict[str, Any] = {}
    for name, value in map(_cells, cells):
        if name in cuts or "cells" in found:
            raise DeclarationError(f"cells of {name!r} are given twice: give them once")
        cuts[name] = value
    return found | ({"cells": cuts} if cuts else {})


def _cells(text: str) -> tuple[str, Any]:
    """``NAME=CUT,...`` or ``NAME:NUMBER`` of cells."""
    name, separator, value = text.rpartition("=" if "=" in text else ":")
    numbers = [number_or_text(part.strip()) for part in value.split(",")]
    if not name.strip() or not all(isinstance(number, (int, float)) for number in numbers):
        raise DeclarationError(f"{text!r}: must look like age=30,50 (cuts) or age:20 (cells of equal width)")
    return name.strip(), numbers if separator == "=" else numbers[0]


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _domain_options() -> Iterator[Callable[[Any], Any]]:
    """An option for every number that a Domain declares, by its docstring: importing it would bring NumPy."""
    source = Path(__file__).parents[1] / "domain" / "domain.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    said = _said(next(ast.get_docstring(one) or "" for one in tree.body if isinstance(one, ast.ClassDef)))
    for name in DOMAIN_FIELDS:
        flag, kind = "--" + name.replace("_", "-"), None if name == "relation" else Number()
        beside = " One of replace-one, replace-one-keep-treatment." if name == "relation" else ""
        yield click.option(flag, type=kind, help=said[name] + beside)
    several: dict[str, Any] = {"multiple": True, "metavar": "COLUMN=LOW:HIGH"}
    yield click.option("--range", "ranges", help=f"{said['ranges']} Repeatable.", **several)


domain_options = apply(
    click.option("--domain", metavar="FILE.toml", help="Public domain; every flag below overrides it."),
    *_domain_options(),
)
#: How a CSV file is written, where the domain file does not say it.
csv_options = apply(
    click.option("--separator", metavar="CHARACTER", help="Between the cells of a CSV file [comma]."),
    click.option("--encoding", metavar="NAME", help="Of a CSV file, such as latin-1 [utf-8]."),
    click.option("--decimal", metavar="CHARACTER", help="Decimal sign of a CSV file: . or , [.]."),
)
#: The columns of a data file, how it is written, then the domain.
data_options = apply(
    click.option("--treatment", metavar="COLUMN", help="Column of the treatment [that of the domain file]."),
    click.option("--outcome", metavar="COLUMN", help="Column of the outcome [that of the domain file]."),
    click.option("--covariates", metavar="A,B,...", help="Default: those of the domain, else all others."),
    csv_options,
    domain_options,
)
setting_options = apply(
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Setting; repeatable."),
    *(click.option("--" + name.replace("_", "-"), type=Number()) for name in SETTING_FLAGS),
)
second_stage_options = apply(
    click.option(
        "--second-stage", default="itr", help="Second stage: a name of dp2erm programs, or FILE.py."
    ),
    click.option(
        "--second-set",
        "second_settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Setting of the second stage, such as theta_set=l1:2 (or l2:2, box:5), l1 or l2 (the weights of "
        "norms in the regularizer), features=A,B and features_bound of itr; repeatable.",
    ),
)
