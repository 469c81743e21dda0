"""Imports go one way. The tables below are the diagram; a new module needs a place in them."""

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "_static" / "rooms.svg"

#: The rooms, folders and modules beside them: a room imports only what stands before it.
ORDER = (
    *("errors", "arrays", "checks", "display", "curves", "parallel", "privacy", "calibration", "data"),
    *("stability", "noise", "datasets", "paper", "weighting", "model", "program", "solve", "neighbors"),
    *(
        "steps",
        "inference",
        "plan",
        "release",
        "ledger",
        "diagnostics",
        "estimators",
        "audit",
        "study",
        "conformance",
    ),
    *("design", "report", "cli"),
)

#: Some import even less.
ONLY = {
    "parallel": {"errors", "checks"},
    "display": {"errors"},
    "data": {"errors", "arrays", "checks", "display", "parallel", "privacy"},
    "model": {"errors", "arrays", "display", "checks", "data", "weighting"},
    "program": {
        *("errors", "display", "checks", "arrays", "curves", "privacy", "data", "stability"),
        *("paper", "weighting", "model"),
    },
    "paper": {"errors", "checks", "privacy", "data", "stability"},
    "stability": {"errors", "arrays", "checks", "curves", "privacy"},
    "weighting": {"errors", "arrays", "checks", "curves", "data", "stability"},
    "calibration": {"errors", "arrays", "checks", "curves", "privacy"},
    "noise": {"errors", "checks", "privacy", "calibration"},
    "ledger": {"errors", "checks", "privacy", "calibration", "release", "display"},
    "diagnostics": {"errors", "arrays", "data", "display", "plan"},
    "problems": {
        *(
            "errors",
            "checks",
            "arrays",
            "curves",
            "privacy",
            "data",
            "stability",
            "paper",
            "model",
            "program",
        ),
    },
}

#: These third parties stay where they are needed.
HOMES = {
    "cvxpy": {"curves", "model", "program", "solve", "problems"},
    "matplotlib": {"report"},
    "flint": {"noise"},
    "opendp": {"noise"},
    "random": {"noise"},
    "secrets": {"noise"},
}


def sources() -> list[Path]:
    return [path for folder in ("dp2erm_cvx", "problems") for path in sorted((ROOT / folder).rglob("*.py"))]


def package_of(path: Path) -> list[str]:
    parts = list(path.relative_to(ROOT).parent.parts)
    return ["dp2erm_cvx", *parts] if parts[0] == "problems" else parts


def module_of(path: Path) -> str:
    """``solve`` for dp2erm_cvx/solve/solving.py, ``noise`` for dp2erm_cvx/noise.py."""
    package = package_of(path)
    return package[1] if len(package) > 1 else path.stem


def imports(tree: ast.AST, package: list[str]) -> Iterator[str]:
    """Full names of everything imported, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            if stem == "dp2erm_cvx":
                yield from (f"{stem}.{alias.name}" for alias in node.names)
            else:
                yield stem


def complaints(path: Path, source: str | None = None) -> list[str]:
    """Imports of a file that it must not have."""
    module = module_of(path)
    faults = []
    tree = ast.parse(path.read_text(encoding="utf-8") if source is None else source)
    for name in imports(tree, package_of(path)):
        top, *rest = name.split(".")
        if top in HOMES and module not in HOMES[top]:
            faults.append(f"{top} is imported in {module}")
        if top != "dp2erm_cvx" or module == "__init__":
            continue
        target = rest[0] if rest else "dp2erm_cvx itself"
        if target == "__version__" or (target == module and module != "problems"):
            continue
        if module == "cli" and not rest:  # which nothing else imports: names of the package, on demand
            continue
        allowed = ONLY.get(module, set(ORDER))
        if module in ORDER:
            allowed = allowed & set(ORDER[: ORDER.index(module)])
        if target not in allowed:
            faults.append(f"{module} imports {name}")
    return faults


def test_every_module_has_a_place() -> None:
    assert {module_of(path) for path in sources()} <= {*ORDER, "problems", "__init__"}


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    assert complaints(path) == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        (
            "dp2erm_cvx/privacy.py",
            "from dp2erm_cvx.data.dataset import Dataset",
            "privacy imports dp2erm_cvx.data.dataset",
        ),
        (
            "dp2erm_cvx/privacy.py",
            "def f():\n    from dp2erm_cvx import solve",
            "privacy imports dp2erm_cvx.solve",
        ),
        ("dp2erm_cvx/privacy.py", "from . import data", "privacy imports dp2erm_cvx.data"),
        ("dp2erm_cvx/solve/solving.py", "from ..cli import main", "solve imports dp2erm_cvx.cli"),
        ("dp2erm_cvx/stability/a.py", "import dp2erm_cvx.program", "stability imports dp2erm_cvx.program"),
        (
            "dp2erm_cvx/program/registry.py",
            "from dp2erm_cvx.problems import itr",
            "program imports dp2erm_cvx.problems",
        ),
        ("problems/a.py", "from dp2erm_cvx.problems.b import B", "problems imports dp2erm_cvx.problems.b"),
        ("problems/a.py", "from .b import B", "problems imports dp2erm_cvx.problems.b"),
        ("problems/a.py", "from dp2erm_cvx.solve import solve", "problems imports dp2erm_cvx.solve"),
        ("dp2erm_cvx/data/dataset.py", "import cvxpy as cp", "cvxpy is imported in data"),
        ("dp2erm_cvx/cli/release.py", "from matplotlib import pyplot", "matplotlib is imported in cli"),
        ("dp2erm_cvx/estimators/fitting.py", "import random", "random is imported in estimators"),
    ],
)
def test_a_wrong_import_is_seen(path: str, source: str, complaint: str) -> None:
    assert complaints(ROOT / path, source) == [complaint]


def test_the_picture_of_the_rooms_shows_the_imports_of_today() -> None:
    rooms = runpy.run_path(str(ROOT / "docs" / "rooms.py"))
    imported = rooms["imports_of_rooms"]()
    drawn = set(re.findall(r'id="((?:room-[a-z_]+|[a-z_]+-imports-[a-z_]+))"', PICTURE.read_text("utf-8")))
    expected = {f"room-{room}" for room in imported}
    expected |= {f"{room}-imports-{one}" for room, one in rooms["arrows"](imported)}
    assert drawn == expected, "draw it anew: python docs/rooms.py"
