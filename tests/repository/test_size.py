"""The package stays small enough to read."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {
    path.relative_to(ROOT): path.read_text(encoding="utf-8")
    for folder in ("dp2erm_cvx", "problems")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
TREES = {path: ast.parse(text) for path, text in SOURCES.items()}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_half_of_the_files_fit_on_two_screens() -> None:
    assert statistics.median(text.count("\n") for text in SOURCES.values()) < 100


def test_few_functions_take_seven_arguments() -> None:
    wide = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
        and len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) >= 7
    ]
    assert len(wide) <= 25, wide
