"""Public names have one home, and functions take few parameters."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

#: Most parameters of a function, beside ``self`` and ``cls``.
MOST_PARAMETERS = 7

#: Functions that take more, by file and name. The list may only shrink.
WITH_MORE_PARAMETERS = {
    "dp2erm_cvx/audit/search.py::explore",
    "dp2erm_cvx/audit/stability.py::audit_stability",
    "dp2erm_cvx/program/margin_model.py::__init__",
    "dp2erm_cvx/checks.py::public_number",
    "dp2erm_cvx/stability/separable.py::margin_movement",
}


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file of the package and of the programs, parsed."""
    files = [
        path
        for folder in ("dp2erm_cvx", "problems")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def n_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Number of parameters that a call may state, beside ``self`` and ``cls``."""
    arguments = function.args
    stated = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(parameter.arg not in ("self", "cls") for parameter in stated)


def is_scheme(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a declared program, whose parameters are settings that users state by
    name.
    """
    called = [one.func for one in function.decorator_list if isinstance(one, ast.Call)]
    return any(isinstance(one, ast.Name) and one.id == "scheme" for one in called)


def test_a_public_name_has_one_home() -> None:
    homes = defaultdict(set)  # overloads of a function stand in its file
    for path, tree in trees().items():
        if path.name == "checker.py":  # which imports nothing, and is read alone
            continue
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, *FUNCTIONS)) and not node.name.startswith("_"):
                homes[node.name].add(str(path))
    assert not {name: where for name, where in homes.items() if len(where) > 1}


def test_functions_take_at_most_seven_parameters() -> None:
    wide = {
        f"{path}::{node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
        and not is_scheme(node)
        and n_parameters(node) > MOST_PARAMETERS
    }
    assert wide == WITH_MORE_PARAMETERS
