"""How far estimates of an effect are off, and how often their intervals hold what they are about."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dp2erm_cvx.studies.summary import Z, rows_with

if TYPE_CHECKING:
    import pandas as pd

#: What a line is about.
_PLACE = ["data", "n", "epsilon", "method"]
#: The settings of a simulated challenge share a line.
_SETTING = r"-\d+$"


def effect_errors(table: pd.DataFrame) -> pd.DataFrame:
    """One line for every method, budget, population and number of records.

    ``bias``, ``deviation`` and ``rmse`` are of the estimate; ``covers_effect`` is how often the interval
    holds the effect; ``width`` and ``seconds`` are the median ones. ``rmse_half`` is the half width of an
    interval of 95 % for the error. Names that end in a number, such as ``acic-3``, share lines, whose
    deviation is that within a name.
    """
    done = table[(table["status"] == "done") & rows_with(table, "estimate")]
    # of real records alone, by methods without intervals, not timed
    optional = [name for name in ("seconds", "delta", "records") if name not in done]
    done = done.assign(**dict.fromkeys(optional, np.nan), setting=done["data"])
    done["data"] = done["data"].str.replace(_SETTING, "", regex=True)
    off = done["estimate"] - done["effect"]
    # of real records the noise alone is drawn anew, and an interval is about more
    drawn = done["low"].notna() & (done["n"] > 0)
    found = done.assign(
        bias=off,
        square=off**2,
        covers_effect=((done["low"] <= done["effect"]) & (done["effect"] <= done["high"]))
        .astype(float)
        .where(drawn),
        width=done["high"] - done["low"],
    )
    grouped = found.groupby(_PLACE, sort=False)
    means = grouped[["bias", "square", "covers_effect"]].mean()
    means["deviation"] = np.sqrt(
        found.groupby([*_PLACE, "setting"], sort=False)["bias"].var().groupby(_PLACE).mean()
    )
    means["rmse"] = np.sqrt(means.pop("square"))
    means["samples"] = grouped["bias"].count()
    means["rmse_half"] = Z * grouped["square"].std() / (2.0 * means["rmse"] * np.sqrt(means["samples"]))
    for name in ("width", "seconds", "delta", "records", "effect"):
        means[name] = grouped[name].median()
    return means.reset_index()


def effect_table(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The same as text."""
    headers = ["data", "n", "epsilon", "method", "delta", "samples", "bias", "sd", "RMSE", "±"]
    headers += ["width", "seconds", "covers effect"]
    lines = []
    for line in effect_errors(table).to_dict("records"):
        place = [
            line["data"],
            f"{line['n']:,}" if line["n"] else "all",
            f"{line['epsilon']:g}",
            line["method"],
            f"{line['delta']:g}" if line["delta"] > 0 else "",
        ]
        shown = ("bias", "deviation", "rmse", "rmse_half", "width", "seconds")
        sizes = [f"{line[name]:.3g}" for name in shown]
        covers = _share(line["covers_effect"])
        lines.append([*place, str(line["samples"]), *(_known(one) for one in sizes), covers])
    return headers, lines


def _known(text: str) -> str:
    return "" if text == "nan" else text


def _share(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.3f}"
