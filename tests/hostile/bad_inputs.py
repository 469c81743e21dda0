"""Bad inputs to every command: each a command line that only the user can mend, and the files it is
about.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import click

from dp2erm_cvx import Budget
from dp2erm_cvx.cli import main
from dp2erm_cvx.cli.options import Number
from dp2erm_cvx.ledger import Ledger
from tests.hostile import bad_files
from tests.hostile.refused import REFUSED

_DECLARED = "data.csv --study domain.toml"
#: By kind of question a line that runs the study that asks it.
STUDIES = {
    name: f"run {name}.toml data.csv --output new.json" for name in ("effect", "rule", "fit")
}

#: By command a line that works at once, from which a bad one is made by one change.
GOOD = {
    "check": _DECLARED, "settings": "effect",
    "run": "study.toml data.csv --output-dir new", "show": "release.json", "verify": "release.json",
    "predict": "release.json data.csv --output new.csv",
    "bounds": "--program ipw_logistic --study domain.toml --n 50", "programs": "",
    "new-program": "mine --kind loss", "check-program": "own.py --solves 10",
    "certify": f"{_DECLARED} --program uniform --solver newton",
    "audit": "--program ipw_logistic --study domain.toml --n 20 --solves 20 --no-page",
    "ledger": "book.db --dataset other --declare-epsilon 1", "demo": "--audit-seconds 0",
    "report": "release.json --output new.html",
    "design": "domain.toml --n 50 --epsilon 1 --replicates 1",
    "frontier": "stable_balancing --n 40 --n-features 1 --set ridge=1",
}  # fmt: skip
#: Numbers that some options do take: no limit.
_ENDLESS = ("--radius", "--trim", "--seconds")
_NUMBERS = ("nan", "-inf", "1e400", "many", "", "1,5")
#: What no text option takes, whatever it is.
_TEXTS = {
    "--solver": ("gurobi", ""), "--output-dir": ("data.csv", "data.csv/where", "x" * 5000),
    "--set": ("ridge", "=1", "nobody=1", "a\nb=1", "cap=", "outcome_bound=none",
    "covariate_bound=-1"),
    "--program": ("nobody", "", "own.py:Nobody", "no.py"),
    "--second-stage": ("nobody", "uniform", "", "own.py:Nobody", "no.py"),
    "question": ("nobody", "", "no.py", "own.py:Nobody"), "name": ("nobody", ""),
    "--treatment": ("nobody", ""), "--outcome": ("nobody", ""), "--separator": ("", ";;", '"',
    "\n"),
    "--encoding": ("nobody", "", "base64"), "--decimal": (";", "", "point"), "--relation": ("add",
    "", "7"),
    "--n": ("0", "-5", "1.5", "nan", "1e400", "many"), "--composition": ("sum", "renyi"),
    "--kind": ("cubic", ""), "--cell": ("nobody=1", "x"), "--variant": ("nobody",),
    "--declare-delta": ("1", "-1"), "--delta": ("1", "-0.1"), "--goal": ("gain", ""),
    "--confounding": ("huge", "-1"), "--collinearity": ("0", "2", "none"),
    "--heterogeneity": ("much", "-0.1", "nan", "1e200"), "--treated": ("0", "1", "2"),
    "--drivers": ("nobody", ","), "--seed": ("-1", "1.5"), "--level": ("0", "1", "95"),
    "--epsilon": ("0", "-1", "1e-400", "nan", "many"),
}  # fmt: skip
#: Files that a command reads or writes, and what else may stand in their place.
_READ = {
    "--domain": ".toml",
    "--study": ".toml",
    "study": ".toml",
    "data": ".csv",
    "release": ".json",
    "file": ".db",
}
_READ |= {"program": ".py"}
_WRITTEN = ("--output", "--love-plot", "--plot", "--draft")


class Bad(NamedTuple):
    """A bad command line, the file that is put into the folder before, and a part of what is
    told.
    """

    words: tuple[str, ...]
    name: str = ""
    content: bytes = b""
    told: str = ""


def put(command: str, name: str, value: str) -> tuple[str, ...]:
    """The good line with another value of an option, the last of which counts, or of an
    argument.
    """
    words = [command, *GOOD[command].split()]
    if name.startswith("--"):
        return (*words, name, value)
    place = 1 + [
        p.name for p in main.commands[command].params if isinstance(p, click.Argument)
    ].index(name)
    given = place < len(words) and not words[place].startswith("--")
    words[place : place + given] = [value]
    return tuple(words)


def write_files(folder: Path) -> None:
    """The files that the good lines name, but for those that are there; what is wrong comes on
    top.
    """
    for name, content in bad_files.GOOD.items():
        if not (folder / name).exists():
            (folder / name).write_bytes(content)
    if not (folder / "book.db").exists():
        Ledger(folder / "book.db").declare("trial", Budget(5.0))
    (folder / "folder").mkdir(exist_ok=True)
    (folder / "folder" / "x").write_text("")
    with closing(sqlite3.connect(folder / "other.db")) as db:
        db.execute("CREATE TABLE IF NOT EXISTS patients (id)")


def values() -> Iterator[Bad]:
    """What no option and no argument takes; files that are not there, are folders, or cannot be
    written.
    """
    for command, known in main.commands.items():
        for one in known.params:
            name = one.opts[-1]
            wrong = [*_TEXTS.get(name, ())]
            if isinstance(one.type, Number):
                wrong += [text for text in _NUMBERS if text != "1e400" or name not in _ENDLESS]
            if name in _READ:
                nothing = "no/no" if command == "ledger" else "no"  # where one is made
                wrong += [nothing + _READ[name], "folder", "", "x" * 5000 + _READ[name], "a\x00b"]
            if name in _WRITTEN:
                wrong += ["folder", "no/where.png", "", "x" * 5000, "data.csv/x.png"]
            yield from (Bad(put(command, name, text)) for text in wrong)


def words() -> Iterator[Bad]:
    """Options without a value, unknown; too many arguments, and too few."""
    for command in main.commands:
        line = (command, *GOOD[command].split())
        yield from (Bad((*line, "--nobody")), Bad((*line, "one", "two", "more")))
        if len(line) > 1 and command not in ("demo", "bounds", "audit", "certify"):
            yield Bad((command,))
        if len(line) > 2 and line[-2].startswith("--"):
            yield Bad(line[:-1])
    for text in (
        "nobody",
        "--nobody",
        "Run data.csv",
        "run --help=1",
        "effect",
        "rule data.csv",
        "fit --help",
    ):
        yield Bad(tuple(text.split()))


def contents() -> Iterator[Bad]:
    """Files of every kind with wrong contents, to every command that reads one."""
    readers = {
        "domain.toml": ("check", "bounds", "audit"),
        "study.toml": ("run",),
        "effect.toml": ("effect",),
        "data.csv": ("run", "effect", "fit", "check", "rule", "certify"),
        "release.json": ("show", "verify", "predict"),
        "book.db": ("ledger", "effect"),
        "own.py": ("check-program", "settings", "fit"),
    }
    lines = {command: f"{command} {line}" for command, line in GOOD.items()} | STUDIES
    lines["settings"] = "settings own.py"
    for name, commands in readers.items():
        for content in (
            *bad_files.WRONG[name],
            *(bad_files.releases() if name == "release.json" else ()),
        ):
            for command in commands:
                if command == "check" and content in bad_files.SHORT:  # a report of nobody is one
                    continue
                own = (
                    ("--set", "two_stage.first_stage=own.py")
                    if (command, name) == ("fit", "own.py")
                    else ()
                )
                yield Bad((*lines[command].split(), *own), name, content)


def refused() -> list[Bad]:
    """The rows of the table, which say what is told."""
    lines = {command: f"{command} {line}" for command, line in GOOD.items()} | STUDIES
    rows = []
    for command, more, told in REFUSED:
        words: list[str] = []
        for word in f"{lines.get(command, '')} {more}".split():
            words += ["--set", word] if "=" in word else [word]
        rows.append(Bad(tuple(words), told=told))
    return rows


def every() -> list[Bad]:
    """All of them."""
    return [*values(), *words(), *contents()]
