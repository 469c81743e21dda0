"""The package stays small enough to read."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from dp2erm_cvx import program

ROOT = Path(__file__).parents[2]
SOURCES = {
    path.relative_to(ROOT): path.read_text(encoding="utf-8")
    for folder in ("dp2erm_cvx", "problems")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
#: Code, tables and formulas, which are no words of a page.
_NO_WORDS = re.compile(r"^```.*?^```$|^\|[^\n]*|\$\$.*?\$\$|\$[^$]*\$", re.MULTILINE | re.DOTALL)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

#: What the house may measure at most: every number may only go down.
LIMITS = {
    "files": 172,
    "lines": 45_430,
    "classes": 352,
    "names that other files use": 727,
    "names that one other file uses": 262,
    "lines of tests": 30_218,
    "pages": 40,
    "words of pages": 43_354,
}


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file, parsed by whoever asks: not while tests are collected, which every worker does."""
    return {path: ast.parse(text) for path, text in SOURCES.items()}


def measured() -> dict[str, int]:
    """Files, lines, classes and the public names that a newcomer meets outside of their own files."""
    users: dict[tuple[str, Path], int] = {}
    words = {path: _words(tree) for path, tree in trees().items() if path.name != "__init__.py"}
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                users[node.name, path] = sum(
                    node.name in used for other, used in words.items() if other != path
                )
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    tests = (ROOT / "tests").rglob("*.py")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {
        "files": len(SOURCES),
        "lines": sum(text.count("\n") for text in SOURCES.values()),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "names that other files use": sum(number > 0 for number in users.values()),
        "names that one other file uses": sum(number == 1 for number in users.values()),
        "lines of tests": sum(path.read_text(encoding="utf-8").count("\n") for path in tests),
        "pages": len(pages),
        "words of pages": sum(
            len(_NO_WORDS.sub("", path.read_text(encoding="utf-8")).split()) for path in pages
        ),
    }


def _words(tree: ast.AST) -> set[str]:
    """Every name, attribute and imported name of a file."""
    result: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            result.add(node.id)
        elif isinstance(node, ast.Attribute):
            result.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            result |= {alias.name for alias in node.names}
    return result


def test_the_house_only_gets_smaller() -> None:
    numbers = measured()
    assert {name: number for name, number in numbers.items() if number > LIMITS[name]} == {}


def test_a_file_is_a_chapter() -> None:
    assert max(text.count("\n") for text in SOURCES.values()) <= 450


def test_what_a_scheme_file_imports_fits_on_a_page() -> None:
    assert len(program.__all__) <= 37


def test_a_public_name_has_one_home() -> None:
    homes = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, *FUNCTIONS)) and not node.name.startswith("_"):
                homes[node.name].append(str(path))
    assert not {name: where for name, where in homes.items() if len(where) > 1}


def test_few_functions_take_seven_arguments() -> None:
    wide = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
        and len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) >= 7
    ]
    assert len(wide) <= 25, wide
