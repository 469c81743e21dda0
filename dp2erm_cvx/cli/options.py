"""Options that several commands share, and how their texts become declared values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.domain import Domain

Command = TypeVar("Command", bound=Callable[..., Any])

#: Flags that override the field of the same name of a domain file.
DOMAIN_FIELDS = (
    "covariate_bound",
    "outcome_bound",
    "outcome_center",
    "treatment_cost",
    "intercept",
    "arm_floor",
    "relation",
)
#: Flags for the settings that most programs have.
SETTING_FLAGS = ("ridge", "radius", "trim", "arm_mass", "degree")


class Number(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number where the text is one; other text is left for the library to refuse by its own rule."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, an int where it is written as one."""
        return number_or_text(value) if isinstance(value, str) else value


def number_or_text(text: str) -> int | float | str:
    """``"3"`` -> 3, ``"0.5"``, ``"inf"`` -> float, anything else as it stands."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def names(text: str | None) -> tuple[str, ...] | None:
    """``"age, sex"`` -> ("age", "sex")."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _apply(options: Sequence[Callable[[Any], Any]]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


data_options = _apply(
    [
        click.option("--treatment", metavar="COLUMN", help="Column of the treatment, 0 or 1."),
        click.option("--outcome", metavar="COLUMN", help="Column of the outcome."),
        click.option(
            "--covariates", metavar="A,B,...", help="Default: those of the domain, else all others."
        ),
        click.option("--domain", metavar="FILE.toml", help="Public domain; every flag below overrides it."),
        click.option("--covariate-bound", type=Number(), help="Norm bound M of the scaled covariates."),
        click.option("--outcome-bound", type=Number(), help="Bound M' on the centered net outcome."),
        click.option("--outcome-center", type=Number(), help="Public center of the net outcome [0]."),
        click.option("--treatment-cost", type=Number(), help="Public cost, in units of the outcome [0]."),
        click.option(
            "--range", "ranges", multiple=True, metavar="COLUMN=LOW:HIGH", help="Public range; repeatable."
        ),
        click.option(
            "--intercept", type=Number(), help="Value of a constant column; it counts in M [0: none]."
        ),
        click.option("--arm-floor", type=Number(), help="Public lower bound on both arm sizes."),
        click.option(
            "--relation", metavar="NAME", help="replace-one (default) or replace-one-keep-treatment."
        ),
    ]
)

setting_options = _apply(
    [
        click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Setting; repeatable."),
        click.option("--ridge", type=Number(), help="Short for --set ridge=..."),
        click.option("--radius", type=Number(), help="Short for --set radius=..."),
        click.option("--trim", type=Number(), help="Short for --set trim=..."),
        click.option("--arm-mass", help="Short for --set arm_mass=equal or proportional."),
        click.option("--degree", type=Number(), help="Entropy balancing: raw moments up to this degree."),
    ]
)


def read_data(path: str, options: dict[str, Any], domain: Domain | None = None) -> Dataset:
    """The data file, with the columns that the domain or the flags name."""
    from dp2erm_cvx.data import Dataset

    for name in ("treatment", "outcome"):
        if not options[name]:
            raise DeclarationError(f"--{name} is missing: name the column of the {name}")
    chosen = domain.columns if domain is not None and domain.columns else names(options["covariates"])
    parquet = path.lower().endswith((".parquet", ".pq"))
    read = Dataset.from_parquet if parquet else Dataset.from_csv
    return read(path, treatment=options["treatment"], outcome=options["outcome"], covariates=chosen)


@dataclass(frozen=True)
class _Named:
    """Covariates that carry their names, as a data frame would."""

    values: Any
    columns: tuple[str, ...]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values


def named(dataset: Dataset) -> Any:
    """The covariates with their names: a domain without named ranges would not know them."""
    return _Named(dataset.X, dataset.columns)


def read_domain(options: dict[str, Any]) -> Domain:
    """The domain of ``--domain`` with every flag put over it; ``--covariates`` picks among its ranges."""
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.domain_file import load_domain

    declared: dict[str, Any] = {}
    if options["domain"] is not None:
        declared = load_domain(options["domain"]).to_dict()
    declared |= {name: options[name] for name in DOMAIN_FIELDS if options[name] is not None}
    for name in ("covariate_bound", "outcome_bound"):
        if name not in declared:
            flag = "--" + name.replace("_", "-")
            raise DeclarationError(f"{name} is not declared: give {flag}, or --domain FILE.toml")
    if options["ranges"]:
        known = declared.get("ranges") or {}
        if not isinstance(known, dict):
            raise DeclarationError("--range names a column, but the ranges of the domain file have no names")
        declared["ranges"] = {**known, **dict(map(_range, options["ranges"]))}
    chosen, ranges = names(options["covariates"]), declared.get("ranges")
    if chosen is not None and isinstance(ranges, dict):
        for name in chosen:
            if name not in ranges:
                raise DeclarationError(f"covariate {name!r} has no public range: add --range {name}=LOW:HIGH")
        declared["ranges"] = {name: ranges[name] for name in chosen}
    return Domain.from_dict(declared)


def read_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Settings of the first stage from ``--set`` and its short forms."""
    found: dict[str, Any] = {}
    given = [_setting(text) for text in options["settings"]]
    given += [(name, options[name]) for name in SETTING_FLAGS if options[name] is not None]
    for name, value in given:
        if name in found:
            raise DeclarationError(f"setting {name!r} is given twice: give it once")
        found[name] = value
    degree = found.pop("degree", None)
    if degree is not None or "balance" in found:
        from dp2erm_cvx.program import Moments

        if degree is not None and "balance" in found:
            raise DeclarationError("setting 'balance' is given twice: give --degree only")
        found["balance"] = Moments(found["balance"] if degree is None else degree)
    return found


def _range(text: str) -> tuple[str, tuple[float | str, float | str]]:
    column, separator, ends = text.rpartition("=")
    low, colon, high = ends.partition(":")
    pair = number_or_text(low.strip()), number_or_text(high.strip())
    numeric = all(isinstance(end, int | float) and not math.isnan(end) for end in pair)
    if not (separator and colon and column.strip() and numeric):
        raise DeclarationError(f"--range {text!r}: must look like COLUMN=LOW:HIGH, for instance age=25:74")
    return column.strip(), pair


def _setting(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip() or not value.strip():
        raise DeclarationError(f"--set {text!r}: must look like NAME=VALUE, for instance ridge=1")
    name = name.strip().replace("-", "_")
    if name == "coefficient" or "," in value:
        return name, tuple(number_or_text(part.strip()) for part in value.split(",") if part.strip())
    return name, number_or_text(value.strip())
