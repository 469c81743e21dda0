"""No command says how many rows a person has: two tables of the same persons, and what is written
of them.
"""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx.cli import main
from tests.command_line import done, run

PERSONS, EXTRA = 60, 1183
BOTH = f"""
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
"""
STUDY = BOTH + '[[effect]]\nname = "by_sex"\nby = "sex"\n[[rule]]\nname = "whom"\n'
ARMS = BOTH.replace('"arm"', '{ column = "arm", levels = ["0", "1", "2"], contrasts = "pairs" }')


#: Lines that read data; two stages, ``audit`` and ``certify`` are for single records. Other
#: commands read files of releases, or none.
COMMANDS = {
    "run": ["run", "study.toml", "data.csv"],
    "rule": ["run", "rule.toml", "data.csv", "--output", "rule.json"],
    "two_stage": ["run", "two_stage.toml", "data.csv", "--output", "two_stage.json"],
    "audit": ["audit", "data.csv", "--program", "ipw_private", "--study", "study.toml"],
    "certify": ["certify", "data.csv", "--program", "ipw_private", "--study", "study.toml"],
}
#: What their holder is told of raw data, and effects of the records of whoever asks.
NO_RELEASE = {"check", "predict"}

#: What noise was added to, and what ``verify`` works out of it and of the declaration alone.
FOLLOWS = re.compile(
    r"released|nuisances\.coefficient|settings\.effect_center|theta|caveats|flipped_share|arms\.means\.share"
    r"|own_units\.(constant|slopes\.(x|sex=[FM]))|groups\.(counted|treated)"
    r"|(groups\.(contrast\.)?|arms\.(means|contrasts)\.)?(estimate|standard_deviation|(interval|joint)\."
    r"(low|high|bias|noise_half_width|sampling_half_width))"
)


def table(extra: int, arms: int) -> pd.DataFrame:
    """Of one to four records of each person; the fourth has ``extra`` more, of all arms."""
    rng = np.random.default_rng(4)
    person = np.append(
        np.repeat(np.arange(PERSONS), rng.integers(1, 5, PERSONS)), np.full(extra, 3)
    )
    x = rng.uniform(-1, 1, len(person))
    arm = rng.integers(0, arms, len(person))
    frame = pd.DataFrame({"id": [f"p{k}" for k in person], "x": x, "sex": "F", "arm": arm})
    frame.loc[::2, "sex"] = "M"
    return frame.assign(y=x + arm + 0.3 * rng.standard_normal(len(person)))


def written(folder: Path, frame: pd.DataFrame, study: str, *words: str) -> dict[str, str]:
    """What every command prints and writes about these data, by its name; stderr is their
    holder's.
    """
    folder.mkdir()
    with contextlib.chdir(folder):
        frame.to_csv("data.csv", index=False)
        Path("study.toml").write_text(study)
        done("ledger", "book.db", "--dataset", "visits", "--declare-epsilon", "20")
        texts = {"plan": done("run", "study.toml", "--plan", PERSONS).stdout}
        for kind in ("rule", "two_stage"):
            Path(f"{kind}.toml").write_text(study[: study.index("[[effect]]")] + f"[[{kind}]]\n")
        for name, asked in COMMANDS.items():
            more = ("--yes", "--seed", "3", *words) if asked[0] == "run" else ()
            result = run(*asked, *more)
            refusal = f"refused: {result.stderr.splitlines()[-1:]}"
            texts[name] = result.stdout if result.exit_code == 0 else refusal
        for file in [*sorted(Path("releases").iterdir()), *Path().glob("*.json")]:
            texts[str(file)] = file.read_text()
            if file.suffix == ".json":
                texts[f"verify {file}"] = run("verify", file).stdout
        texts["ledger"] = run("ledger", "book.db").stdout
    return texts


def differing(one: Any, other: Any, path: str = "") -> set[str]:
    """Where two parsed files differ: the names on the way to a value, without places in lists."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return set().union(*(differing(one[name], other[name], f"{path}.{name}") for name in one))
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return set().union(*(differing(*pair, path) for pair in zip(one, other, strict=True)))
    return set() if one == other else {path.lstrip(".")}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(("study", "arms", "blocks"), [(STUDY, 2, "always"), (ARMS, 3, "never")])
def test_what_is_written_differs_in_what_noise_was_added_to(tmp_path, study, arms, blocks):
    """Pages and summaries are made of the files alone, and in those nothing else differs."""
    few, many = (
        written(tmp_path / str(k), table(k, arms), study, "--blocks", blocks) for k in (0, EXTRA)
    )
    assert list(few) == list(many)
    for rows in (len(table(EXTRA, arms)), EXTRA, EXTRA + 1):
        assert not any(re.search(rf"\b({rows}|{rows:,})\b", text) for text in many.values())
    assert few["ledger"] == many["ledger"]
    assert few["plan"] == many["plan"] != ""
    refused = {name for name in COMMANDS if few[name].startswith("refused")}
    assert refused == {"two_stage", "audit", "certify"} | ({"rule"} if study is ARMS else set())
    for name in refused:
        assert few[name] == many[name]
        assert "unit" in few[name] or "levels" in few[name]
    for name in (name for name in few if re.fullmatch(r"[\w/]+\.json", name)):
        assert all(
            map(FOLLOWS.fullmatch, differing(json.loads(few[name]), json.loads(many[name])))
        ), name
        assert many[f"verify {name}"].lower().startswith("verified")


def test_every_command_that_reads_data_is_walked():
    reading = {
        name for name, one in main.commands.items() if "data" in {word.name for word in one.params}
    }
    assert reading == {words[0] for words in COMMANDS.values()} | NO_RELEASE
