"""No command says how many rows a person has: two tables of the same persons, and what is written of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.command_line import run

PERSONS, EXTRA = 60, 1183
STUDY = f"""
outcome_bound = 4.0
outcome_column = "y"
treatment = "arm"
[ranges]
x = [-1.0, 1.0]
[levels]
sex = ["F", "M"]
[unit]
column = "id"
number = {PERSONS}
count = 3
[budget]
epsilon = 9
[ledger]
file = "book.db"
dataset = "visits"
[[effect]]
name = "average"
residual_scale = 0.5
[[effect]]
name = "by_sex"
by = "sex"
[[rule]]
name = "whom"
"""


#: What noise was added to, and what ``verify`` works out of it and of the declaration alone.
FOLLOWS = (
    *(
        "released",
        "nuisances.coefficient",
        "settings.effect_center",
        "theta",
        "own_units.constant",
        "caveats",
    ),
    *("own_units.slopes.x", "own_units.slopes.sex=F", "own_units.slopes.sex=M", "flipped_share", "estimate"),
    *("standard_deviation", "interval.low", "interval.high", "interval.bias", "interval.noise_half_width"),
    *("interval.sampling_half_width", "groups.counted", "groups.treated", "groups.estimate"),
    *("groups.standard_deviation", "groups.contrast.estimate"),
    *(
        f"groups.{which}.{name}"
        for which in ("interval", "joint", "contrast.interval", "contrast.joint")
        for name in ("low", "high", "bias", "noise_half_width", "sampling_half_width")
    ),
)


def table(extra: int) -> pd.DataFrame:
    """Of one to four records of each person; the fourth has ``extra`` more, of both arms."""
    rng = np.random.default_rng(4)
    person = np.repeat(np.arange(PERSONS), rng.integers(1, 5, PERSONS))
    person = np.append(person, np.full(extra, 3))
    x = rng.uniform(-1, 1, len(person))
    arm = rng.binomial(1, 0.5, len(person))
    frame = pd.DataFrame({"id": [f"p{k}" for k in person], "x": x, "sex": "F", "arm": arm})
    frame.loc[::2, "sex"] = "M"
    return frame.assign(y=x + arm + 0.3 * rng.standard_normal(len(person)))


def written(folder: Path, frame: pd.DataFrame) -> dict[str, str]:
    """What every command prints and writes about these data, by its name; stderr is their holder's."""
    folder.mkdir()
    frame.to_csv(folder / "data.csv", index=False)
    (folder / "study.toml").write_text(STUDY)
    texts = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run("ledger", "book.db", "--dataset", "visits", "--declare-epsilon", "20").exit_code == 0
        for words in (
            ["run", "study.toml", "--plan", str(PERSONS)],
            ["run", "study.toml", "data.csv", "--yes"],
        ):
            result = run(*words, *(["--seed", "3"] if "--yes" in words else []))
            assert result.exit_code == 0, result.stderr
            texts[" ".join(words)] = result.stdout
        for release in sorted(Path("releases").glob("*.json")):
            texts[f"verify {release}"] = run("verify", release).stdout
        texts["ledger"] = run("ledger", "book.db").stdout
        for file in sorted(Path("releases").iterdir()):
            texts[str(file)] = file.read_text()
    return texts


def differing(one: Any, other: Any, path: str = "") -> set[str]:
    """Where two parsed files differ: the names on the way to a value, without places in lists."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return set().union(*(differing(one[name], other[name], f"{path}.{name}") for name in one))
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return set().union(*(differing(*pair, path) for pair in zip(one, other, strict=True)))
    return set() if one == other else {path.lstrip(".")}


def test_what_is_written_differs_in_what_noise_was_added_to(tmp_path):
    """Pages and summaries are made of the files alone, and in those nothing else differs."""
    few, many = (written(tmp_path / str(extra), table(extra)) for extra in (0, EXTRA))
    assert list(few) == list(many)
    for name, text in many.items():
        for rows in (len(table(EXTRA)), EXTRA, EXTRA + 1):
            assert not re.search(rf"\b({rows}|{rows:,})\b", text), name
    assert few["ledger"] == many["ledger"]
    assert few[f"run study.toml --plan {PERSONS}"] == many[f"run study.toml --plan {PERSONS}"]
    for name in (name for name in few if re.fullmatch(r"releases/\w+\.json", name)):
        assert differing(json.loads(few[name]), json.loads(many[name])) <= set(FOLLOWS), name
        assert many[f"verify {name}"].lower().startswith("verified")
