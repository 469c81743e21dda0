"""The reference has an entry for whatever users meet, and no two for the same thing."""

import importlib
import inspect
import pkgutil
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dp2erm_cvx
from dp2erm_cvx import errors
from dp2erm_cvx.display import described_settings
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.program.stage import fields_of

API = Path(__file__).parents[2] / "docs" / "api"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(API.glob("*.md"))}

_DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?: {3}:.*\n)*)", flags=re.MULTILINE)


def option(options: str, name: str) -> list[str] | None:
    """The names that an option lists; None without it."""
    match = re.search(rf"^ {{3}}:{name}:(.*)$", options, flags=re.MULTILINE)
    return None if match is None else [word.strip() for word in match[1].split(",") if word.strip()]


def resolved(name: str) -> Any:
    module, _, short = name.rpartition(".")
    return getattr(importlib.import_module(module), short)


def is_described(value: object) -> bool:
    """True if the entry of a module shows it: constants that a package exports need a directive."""
    return (inspect.isclass(value) or inspect.isroutine(value)) and bool(inspect.getdoc(value))


def members(module: ModuleType) -> list[str]:
    exported = getattr(module, "__all__", None)
    if exported is not None:
        return [name for name in exported if is_described(getattr(module, name))]
    constants = re.findall(
        r"^#: .*\n([A-Za-z]\w*)\b", inspect.getsource(module), flags=re.MULTILINE
    )
    return constants + [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and is_described(value) and value.__module__ == module.__name__
    ]


def entries(text: str) -> list[Any]:
    """Objects that the directives of a page describe."""
    objects = []
    for kind, name, options in _DIRECTIVE.findall(text):
        if kind != "module":
            objects.append(resolved(name))
            continue
        module = importlib.import_module(name)
        chosen = option(options, "members")
        assert chosen is not None, name
        left_out = option(options, "exclude-members") or []
        objects += [
            getattr(module, short) for short in chosen or members(module) if short not in left_out
        ]
    return objects


PROGRAMS = (API.parent / "programs.md").read_text(encoding="utf-8")
ENTRIES = [value for text in (*PAGES.values(), PROGRAMS) for value in entries(text)]
DESCRIBED = {id(value) for value in ENTRIES}


def missing(names: dict[str, Any]) -> list[str]:
    return [name for name, value in names.items() if id(value) not in DESCRIBED]


def exporting_modules() -> list[str]:
    """Packages of the library that say what they export; commands have their own help."""
    modules = pkgutil.walk_packages(dp2erm_cvx.__path__, "dp2erm_cvx.")
    names = [info.name for info in modules if not info.name.startswith("dp2erm_cvx.cli")]
    return [name for name in names if hasattr(importlib.import_module(name), "__all__")]


def test_top_level_names_have_entries():
    assert not missing({name: getattr(dp2erm_cvx, name) for name in dp2erm_cvx.__all__})
    listed = re.findall(r"`~dp2erm_cvx\.\S+?\.(\w+)`", PAGES["index"])
    assert sorted(listed) == sorted(dp2erm_cvx.__all__)


def test_programs_have_entries():
    assert not missing(programs())
    assert not missing(
        {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    )


@pytest.mark.parametrize("name", exporting_modules())
def test_exported_names_have_entries(name):
    module = importlib.import_module(name)
    assert not missing({short: getattr(module, short) for short in module.__all__})


def test_no_two_entries_for_the_same():
    assert not [value for value in ENTRIES if Counter(map(id, ENTRIES))[id(value)] > 1]


def test_pages_are_listed():
    (toctree,) = re.findall(
        r"^```{toctree}\n(.*?)^```$", PAGES["index"], flags=re.MULTILINE | re.DOTALL
    )
    assert set(toctree.split()[2:]) == set(PAGES) - {"index"}


@pytest.mark.parametrize("name", programs())
def test_settings_of_programs_are_described(name):
    pytest.importorskip("sphinx")
    texts = described_settings(programs()[name])
    assert all(texts.get(setting) for setting in fields_of(programs()[name]))
