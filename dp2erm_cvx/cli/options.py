"""Options that several commands share, and how one text becomes numbers or names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any, TypeVar

import click

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.text import number_or_text

Command = TypeVar("Command", bound=Callable[..., Any])

#: Where the context keeps the words of the command line.
WORDS = "dp2erm_cvx.words"

#: Flags that override the field of the same name of a domain file.
DOMAIN_FIELDS = (
    "covariate_bound",
    "outcome_bound",
    "outcome_center",
    "treatment_cost",
    "intercept",
    "arm_floor",
    "relation",
    "coordinate_bound",
)
#: What every domain must declare.
REQUIRED = ("covariate_bound", "outcome_bound")
#: Flags for the settings that most programs have.
SETTING_FLAGS = ("ridge", "radius", "trim", "arm_mass", "degree")


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


def apply(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """One decorator for all of them, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


#: How options of several values are written.
_SPELLED = {"settings": "NAME=VALUE", "where": "COLUMN=LEVEL", "expected": "FACT"}


class DeclaredCommand(click.Command):
    """A command with an option for every setting that a class declares, ``declared`` as module:name.

    The default is that of the field; the help is the first sentence of what the docstring says of it. The
    class is imported when the options are asked for, and not for the help of other commands.
    """

    def __init__(self, *args: Any, declared: str, before: str = "epsilon", **kwargs: Any) -> None:
        self._declared: tuple[str, str] | None = (declared, before)
        super().__init__(*args, **kwargs)

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


def _declared(kind: type) -> list[click.Option]:
    docstring, made = inspect.getdoc(kind) or "", []
    said = dict(re.findall(r"^(\w+)\n((?:    .+(?:\n|$))+)", docstring, flags=re.MULTILINE))
    for one in fields(kind):
        if one.name in kind.__annotations__ and one.name != "public_center":
            stated, several = str(one.type), one.name in _SPELLED
            listed = stated.startswith(("Sequence", "tuple"))
            extra: dict[str, Any] = {"metavar": _SPELLED.get(one.name, "A,B,..." if listed else None)}
            if "float" in stated and not several:
                extra["type"] = Number()
            if stated == "bool":
                extra["is_flag"] = True
            elif not several and one.default is not None:
                extra["default"] = one.default
            text = re.split(r"(?<=\.)\s", " ".join(said[one.name].split()))[0] + " Repeatable." * several
            flag = "--set" if one.name == "settings" else f"--{one.name.replace('_', '-')}"
            made.append(click.Option([flag, one.name], multiple=several, help=text, **extra))
    return made


def declared_settings(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the class that a :class:`DeclaredCommand` read. Raises DeclarationError."""
    stated = {one.name: one for one in fields(kind) if one.name in kind.__annotations__}
    found = {name: options[name] for name in stated if name in options}
    for name, value in found.items():
        if name == "settings":
            found[name] = _settings(value, options.get("cells", ()))
        elif name == "where":
            found[name] = dict(map(_level, value)) or None
        elif isinstance(value, str) and str(stated[name].type).startswith(("Sequence", "tuple")):
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


def output_dir_option(purpose: str) -> Callable[[Command], Command]:
    """``--output-dir``, with what it is for."""
    return click.option("--output-dir", default="output", metavar="FOLDER", help=purpose)


domain_options = apply(
    click.option("--domain", metavar="FILE.toml", help="Public domain; every flag below overrides it."),
    click.option("--covariate-bound", type=Number(), help="Norm bound M of the scaled covariates."),
    click.option("--outcome-bound", type=Number(), help="Bound M' on the centered net outcome."),
    click.option("--outcome-center", type=Number(), help="Public center of the net outcome [0]."),
    click.option("--treatment-cost", type=Number(), help="Public cost, in units of the outcome [0]."),
    click.option(
        "--range", "ranges", multiple=True, metavar="COLUMN=LOW:HIGH", help="Public range; repeatable."
    ),
    click.option("--intercept", type=Number(), help="Value of a constant column; it counts in M [0: none]."),
    click.option("--arm-floor", type=Number(), help="Public lower bound on both arm sizes."),
    click.option("--coordinate-bound", type=Number(), help="Bound on each scaled covariate [none]."),
    click.option("--relation", metavar="NAME", help="replace-one (default) or replace-one-keep-treatment."),
)
#: How a CSV file is written, where the domain file does not say it.
csv_options = apply(
    click.option("--separator", metavar="CHARACTER", help="Between the cells of a CSV file [comma]."),
    click.option("--encoding", metavar="NAME", help="Of a CSV file, such as latin-1 [utf-8]."),
    click.option("--decimal", metavar="CHARACTER", help="Decimal sign of a CSV file: . or , [.]."),
)
column_options = apply(
    click.option("--treatment", metavar="COLUMN", help="Column of the treatment [that of the domain file]."),
    click.option("--outcome", metavar="COLUMN", help="Column of the outcome [that of the domain file]."),
    click.option("--covariates", metavar="A,B,...", help="Default: those of the domain, else all others."),
)
#: The columns of a data file, how it is written, then the domain.
data_options = apply(column_options, csv_options, domain_options)
setting_options = apply(
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Setting; repeatable."),
    click.option("--ridge", type=Number(), help="Short for --set ridge=..."),
    click.option("--radius", type=Number(), help="Short for --set radius=..."),
    click.option("--trim", type=Number(), help="Short for --set trim=..."),
    click.option("--arm-mass", help="Short for --set arm_mass=equal or proportional."),
    click.option("--degree", type=Number(), help="Balance raw moments up to this degree."),
)
#: What a plan and the release that follows it are asked for alike.
noise_options = apply(
    click.option("--noise", default="gamma", help="gamma (pure), box (pure) or gaussian."),
    click.option(
        "--arithmetic",
        default="auto",
        help="counted (needs the extra secure), assumed, or auto: counted where it can be.",
    ),
    click.option("--numerical-share", type=Number(), help="Share of epsilon for counted arithmetic [0.005]."),
)
calibration_options = apply(
    click.option(
        "--calibration", default="sharp", help="sharp, paper, paper-corrected, renyi, output or auto."
    ),
    click.option(
        "--split", type=Number(), help="Share of epsilon that pays for the noise [chosen publicly]."
    ),
    click.option(
        "--value-share",
        type=Number(),
        help="Share of epsilon for the value of the rule against treating all and none [no value].",
    ),
    click.option("--value-statistic", default="cells", help="cells or contrasts; see the docs on value."),
)
#: Of those, the arguments of an estimator by their names.
CALIBRATION = ("calibration", "split", "value_share", "value_statistic")
second_stage_options = apply(
    click.option(
        "--second-stage", default="itr", help="Second stage: a name of dp2erm programs, or FILE.py."
    ),
    click.option(
        "--second-set",
        "second_settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Other setting of the second stage, such as threshold=2; repeatable.",
    ),
    click.option(
        "--theta-set", metavar="KIND:SIZE", help="l1:2, l2:2 or box:5 [default: that of the second stage]."
    ),
    click.option("--l1", type=Number(), help="Weight of the l1 norm in the regularizer [0]."),
    click.option("--l2", type=Number(), help="Weight of half the squared l2 norm in the regularizer [0]."),
    click.option(
        "--features", metavar="A,B,...", help="itr: the public choice of covariates for the rule [all]."
    ),
    click.option("--features-bound", type=Number(), help="itr: norm that these features are shrunk to."),
)
