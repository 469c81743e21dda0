"""What pages and their examples import stands where a user would look for it."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Rooms that users import from, beside the package itself. A program stands in a module of its own.
PUBLIC = {
    "dp2erm_cvx",
    "dp2erm_cvx.program",
    "dp2erm_cvx.audit",
    "dp2erm_cvx.solve",
    "dp2erm_cvx.datasets",
    "dp2erm_cvx.conformance",
    "dp2erm_cvx.neighbors",
    "dp2erm_cvx.ledger",
    "dp2erm_cvx.design",
}
PROGRAMS = "dp2erm_cvx.problems."
#: What the examples of the gallery draw with, what they compare with, and what they catch.
OF_THE_GALLERY = {"dp2erm_cvx.report.figures", "dp2erm_cvx.paper", "dp2erm_cvx.errors"}
#: The reference describes every room, and theory cites code.
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("tutorials/*.md")),
]
EXAMPLES = sorted((ROOT / "docs" / "gallery").glob("*.py"))
_LINE = re.compile(
    r"^ *(?:>>> )?(from dp2erm_cvx[\w.]* import (?:\([^)]*\)|[^\n]*)|import dp2erm_cvx[^\n]*)",
    re.MULTILINE,
)


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Every module that a page or an example imports from, with the name; empty for the module
    itself.
    """
    for line in _LINE.findall(text):
        (statement,) = ast.parse(line).body
        if isinstance(statement, ast.ImportFrom):
            assert statement.module is not None
            for alias in statement.names:
                yield statement.module, alias.name
        else:
            assert isinstance(statement, ast.Import)
            for alias in statement.names:
                yield alias.name, ""


def hidden(text: str, more: frozenset[str] = frozenset()) -> list[str]:
    """Imports of a page that no user would look for, or that do not exist."""
    found = []
    for module, name in imported(text):
        known = module in PUBLIC | more or module.startswith(PROGRAMS)
        if not known or (name and not hasattr(importlib.import_module(module), name)):
            found.append(f"{module}: {name}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_import_from_public_rooms(page: Path) -> None:
    assert hidden(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_examples_import_from_public_rooms(example: Path) -> None:
    assert hidden(example.read_text(encoding="utf-8"), frozenset(OF_THE_GALLERY)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from dp2erm_cvx.data.universe import Universe\n", ["dp2erm_cvx.data.universe: Universe"]),
        ("    from dp2erm_cvx.plan import Plan\n", ["dp2erm_cvx.plan: Plan"]),
        ("from dp2erm_cvx import (\n    Budget,\n    Nothing,\n)\n", ["dp2erm_cvx: Nothing"]),
        ("import dp2erm_cvx.report.figures as figures\n", ["dp2erm_cvx.report.figures: "]),
    ],
)
def test_a_hidden_import_is_seen(text: str, found: list[str]) -> None:
    assert hidden(text) == found
