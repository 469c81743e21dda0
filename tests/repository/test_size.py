"""The package stays small enough to read."""

from __future__ import annotations

import ast
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
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file, parsed by whoever asks: not while tests are collected, which every worker does."""
    return {path: ast.parse(text) for path, text in SOURCES.items()}


def test_files() -> None:
    assert len(SOURCES) <= 280


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
