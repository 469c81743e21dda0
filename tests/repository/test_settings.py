"""A setting is described once, by the class that declares it: help and pages repeat that, or say
nothing.
"""

import importlib
import pkgutil
import re
from collections import defaultdict
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import click

import dp2erm_cvx
from dp2erm_cvx.cli import main
from dp2erm_cvx.cli.options import FieldOption
from dp2erm_cvx.display import described

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OPTIONS = [(name, one) for name, command in main.commands.items() for one in command.params]
#: The class that a table of a page is made of, and the table.
_TABLE = re.compile(r"<!-- settings of ([\w.]+) -->\n\n((?:\|.*\n)+)")
#: A row or a bullet about one name in code, and what it says first.
_ENTRY = re.compile(
    r"^ *(?:[-*] *|(\|) *)`-{0,2}([\w-]+)`(?(1)[^|\n]*\|)([^|\n]+)(?!.*\n\|-)", re.MULTILINE
)
#: Share of the words of an entry that the declared text has too: from here on it says the same
#: again.
RESTATED = 0.4


def resolved(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(importlib.import_module(f"dp2erm_cvx.{module}"), name)


def texts(kind: Any) -> dict[str, str]:
    """Texts of a class on its settings."""
    names = {field.name for field in fields(kind) if field.init}
    return {name: text for name, text in described(kind.__doc__).items() if name in names}


def declaring() -> list[Any]:
    """The classes of the package whose fields check what is put in, or are options of a command."""
    kinds = {
        one
        for module in pkgutil.walk_packages(dp2erm_cvx.__path__, "dp2erm_cvx.")
        for one in vars(importlib.import_module(module.name)).values()
        if isinstance(one, type)
        and is_dataclass(one)
        and any("check" in each.metadata for each in fields(one))
    }
    return [*kinds, *{bound(one) for _, one in OPTIONS if isinstance(one, FieldOption)} - kinds]


def bound(option: FieldOption) -> Any:
    return resolved(option.declared.rpartition(".")[0].replace(":", "."))


def plain(text: str) -> str:
    return " ".join(text.replace("``", "").split())


def shown(command: str, option: click.Parameter) -> str:
    record = option.get_help_record(click.Context(main.commands[command], show_default=True))
    return plain(record[1]) if record else ""


def test_an_option_shows_what_its_field_says() -> None:
    known = {
        name for _, one in OPTIONS if isinstance(one, FieldOption) for name in texts(bound(one))
    }
    by_hand = [
        (command, one.name)
        for command, one in OPTIONS
        if not isinstance(one, FieldOption) and one.name in known and shown(command, one)
    ]
    assert not by_hand, "bind them to their fields by field_option, or call them otherwise"
    for command, one in OPTIONS:
        if not isinstance(one, FieldOption):
            continue
        name = one.declared.rpartition(".")[2]
        (field,) = (each for each in fields(bound(one)) if each.name == name)
        said, told = re.split(r"(?<=\.) ", plain(texts(bound(one))[name]))[0], shown(command, one)
        assert told.startswith(said), (command, name)
        if field.default not in (None, MISSING, ()) and not one.required:
            default = rf"\[default: (?:\(|{re.escape(str(field.default))}\])"
            assert re.search(default, told), (command, name, told)


def test_an_estimator_and_its_study_say_it_once() -> None:
    for name, study in (("Effect", "Effect"), ("Rule", "Rule"), ("TwoStageERM", "")):
        estimator, other = resolved(f"estimators.Private{name}"), resolved(f"plan.{study}Study")
        said = [
            set().union(*(described(b.__doc__) for b in kind.__mro__))
            for kind in (estimator, other)
        ]
        assert said[0].isdisjoint(said[1] - {"universe"}), name


def test_tables_of_settings_are_made_of_the_fields() -> None:
    made = [table for path in PAGES for table in _TABLE.findall(path.read_text(encoding="utf-8"))]
    assert made
    for place, shown in made:
        kind = resolved(place.removeprefix("dp2erm_cvx."))
        said, defaults = texts(kind), {one.name: one.default for one in fields(kind)}
        rows = [
            f"| `--{name.replace('_', '-')}` | {said[name]} | {'' if default is None else default} "
            "|"
            for name, default in defaults.items()
        ]
        assert shown.splitlines() == ["| option | meaning | default |", "|---|---|---|", *rows]


def restated(page: str, said: dict[str, set[str]]) -> list[str]:
    """The settings that a row or a bullet of a page describes by much the same words as their own
    text.
    """
    names = []
    for _, name, entry in _ENTRY.findall(_TABLE.sub("", page)):
        own = said.get(name.replace("-", "_"), ())
        if any(
            share_of_words(entry, text) >= RESTATED for text in own
        ):  # several classes may have the name
            names.append(name)
    return names


def share_of_words(entry: str, text: str) -> float:
    """The share of the longer words of an entry that a text has too."""
    words = set(re.findall(r"[a-z]{4,}", entry.lower()))
    shared = words & set(re.findall(r"[a-z]{4,}", text.lower()))
    return len(shared) / len(words) if words else 0.0


def test_no_page_says_again_what_a_setting_is() -> None:
    said: dict[str, set[str]] = defaultdict(set)
    for kind in declaring():
        for name, text in texts(kind).items():
            said[name].add(text)
    assert restated("- `--treated`: the share of those treated\n", said) == ["treated"]
    assert restated("| `outcome_bound` $M'$ | a bound on the outcome | none |\n", said) == [
        "outcome_bound"
    ]
    again = {path.name: restated(path.read_text(encoding="utf-8"), said) for path in PAGES}
    assert not {name: names for name, names in again.items() if names}


def test_a_draft_says_of_a_setting_what_its_field_says() -> None:
    draft = (ROOT / "dp2erm_cvx/cli/templates/draft.toml.txt").read_text(encoding="utf-8")
    assert re.findall(r"^.+ = .+# (.*)", draft, re.MULTILINE) == ["in place of the two above"]
    assert len(re.findall(r"^\$[A-Z]\w+_[a-z_]+$", draft, re.MULTILINE)) == 25
