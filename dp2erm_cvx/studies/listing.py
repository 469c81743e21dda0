"""What was declared or tuned, and is in force, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.studies.engine import Listing
from dp2erm_cvx.studies.plans import PLAIN, settings_in_force
from dp2erm_cvx.studies.scheme import Constants, Rule

if TYPE_CHECKING:
    import pandas as pd


_NOTES = (
    "Theta is a ball, its radius in units of theta (outcome per unit of the covariates); without privacy "
    "there is none. The split is the share of epsilon that pays for the noise of the second stage, over all "
    "noises and budgets; the rest pays for its Jacobian. A share is that of a private first stage. Ridges "
    "are per squared norm bound of what they multiply."
)


_COLUMNS = (
    "M",
    "M'",
    "norm of Theta",
    "radius of Theta",
    "slope of the loss",
    "outcome center",
    "intercept",
    "least share of an arm",
)


@dataclass(frozen=True)
class InForce:
    """A rule under a family, at a ``place`` such as a scenario. ``name`` is that of its scheme."""

    place: str
    name: str
    family: str
    rule: Rule


def constants_listing(column: str, entries: Iterable[InForce], table: pd.DataFrame) -> Listing:
    """A line for every scheme and family; places where all is the same share one.

    ``column`` holds the places in ``table``, whose rows say how the budget was split. Constants that are the
    same in every line are in the title.
    """
    known = list(entries)
    names, families, places = (
        list(dict.fromkeys(getattr(entry, part) for entry in known)) for part in ("name", "family", "place")
    )
    known.sort(key=lambda entry: (names.index(entry.name), families.index(entry.family)))
    constants = [_constants_told(entry.rule.constants, entry.family) for entry in known]
    varied = [number for number in range(len(_COLUMNS)) if len({told[number] for told in constants}) > 1]
    lines: dict[tuple[str, ...], list[str]] = {}
    for entry, told in zip(known, constants, strict=True):
        own = (table[column] == entry.place) & (table["scheme"] == entry.name)
        settings = settings_in_force(entry.rule.scheme, entry.family)
        line = (
            entry.name,
            "without privacy" if entry.family == PLAIN else entry.family,
            *(told[number] for number in varied),
            "" if entry.family == PLAIN else _split_told(table[own & (table["family"] == entry.family)]),
            ", ".join(f"{name} {_value_told(value)}" for name, value in settings.items()) or "none",
        )
        lines.setdefault(line, []).append(entry.place)
    fixed = [f"{name} {told}" for name, told in zip(_COLUMNS, constants[0], strict=True)] if known else []
    everywhere = ", ".join(told for number, told in enumerate(fixed) if number not in varied)
    title = f"Public constants in force: {everywhere or 'none is the same everywhere'}. {_NOTES}"
    headers = [column, "scheme", "calibration", *(_COLUMNS[number] for number in varied), "split", "settings"]
    shown = [[", ".join(at) if len(at) < len(places) else "all", *line] for line, at in lines.items()]
    return Listing(title, headers, shown, len(headers))


def _constants_told(constants: Constants, family: str) -> list[str]:
    names = ("covariate_bound", "outcome_bound", "outcome_center", "intercept")
    M, outcome, *others = (f"{getattr(constants, name):.5g}" for name in names)
    norm, radius, slope = constants.norm(family), f"{constants.radius(family):.5g}", "none"
    if norm == "none":
        radius, slope = norm, "default" if constants.slope is None else f"{constants.slope:g}"
    floor = "none" if constants.arm_floor is None else f"{constants.arm_floor:g}"
    return [M, outcome, norm, radius, slope, *others, floor]


def _split_told(rows: pd.DataFrame) -> str:
    known = rows.loc[rows["status"] == "done", "split"]
    if not len(known):
        return "refused"
    low, high = f"{known.min():.3g}", f"{known.max():.3g}"
    return low if low == high else f"{low} to {high}"


def _value_told(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
