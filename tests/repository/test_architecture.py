"""Imports go one way. The tables below are the diagram; a new module needs a place in them."""

import ast
import re
import runpy
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "_static" / "rooms.svg"

#: The rooms, folders and modules beside them: a room imports only what stands before it.
ORDER = (
    *(
        "checker",
        "hooks",
        "errors",
        "on_demand",
        "arrays",
        "checks",
        "display",
        "curves",
        "parallel",
    ),
    *("privacy", "calibration"),
    *("data", "stability", "noise", "datasets", "diagnostics", "weighting", "model", "program"),
    *("solve", "neighbors", "paper", "steps", "inference", "plan", "release", "ledger"),
    *("estimators", "audit", "study", "conformance", "design", "report", "cli"),
)

#: Some import even less.
ONLY = {
    "parallel": {"errors", "checks"},
    "display": {"errors"},
    "data": {"errors", "on_demand", "arrays", "checks", "display", "parallel", "privacy"},
    "model": {"errors", "on_demand", "arrays", "display", "checks", "data", "weighting"},
    "program": {
        *(
            "errors",
            "on_demand",
            "display",
            "checks",
            "arrays",
            "curves",
            "privacy",
            "data",
            "stability",
        ),
        *("weighting", "model"),
    },
    "paper": {
        "errors",
        "arrays",
        "checks",
        "privacy",
        "data",
        "stability",
        "program",
        "calibration",
    },
    "stability": {"errors", "arrays", "checks", "curves", "privacy"},
    "weighting": {"errors", "arrays", "checks", "curves", "data", "stability"},
    "calibration": {"errors", "arrays", "checks", "curves", "privacy"},
    "noise": {"errors", "arrays", "checks", "privacy", "calibration"},
    "ledger": {"errors", "checks", "privacy", "calibration", "release", "display"},
    "diagnostics": {"errors", "arrays", "data", "display"},
    "problems": {
        *("errors", "on_demand", "checks", "arrays", "curves", "privacy", "data", "stability"),
        *("paper", "model", "program"),
    },
}

#: These third parties stay where they are needed.
HOMES = {
    "clarabel": {"on_demand", "solve"},
    "cvxpy": {"on_demand", "curves", "model", "program", "solve", "problems"},
    "matplotlib": {"report"},
    "flint": {"noise", "checker"},
    "opendp": {"noise"},
    "random": {"noise"},
    "secrets": {"noise"},
}


def sources() -> list[Path]:
    return [
        path
        for folder in ("dp2erm_cvx", "problems")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def package_of(path: Path) -> list[str]:
    parts = list(path.relative_to(ROOT).parent.parts)
    return ["dp2erm_cvx", *parts] if parts[0] == "problems" else parts


def module_of(path: Path) -> str:
    """``solve`` for dp2erm_cvx/solve/solving.py, ``noise`` for dp2erm_cvx/noise.py."""
    package = package_of(path)
    return package[1] if len(package) > 1 else path.stem


def imports(tree: ast.AST, package: list[str]) -> Iterator[str]:
    """Full names of everything imported, wherever the statement stands, and of what is on
    demand.
    """
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
            if stem == "dp2erm_cvx.on_demand":
                yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "ModuleOnDemand":
            yield from (
                argument.value for argument in node.args if isinstance(argument, ast.Constant)
            )


def complaints(path: Path, source: str | None = None) -> list[str]:
    """Imports of a file that it must not have."""
    module = module_of(path)
    faults = []
    tree = parsed(path) if source is None else ast.parse(source)
    for name in imports(tree, package_of(path)):
        top, *rest = name.split(".")
        if top in HOMES and module not in HOMES[top]:
            faults.append(f"{top} is imported in {module}")
        if top != "dp2erm_cvx" or module == "__init__":
            continue
        target = rest[0] if rest else "dp2erm_cvx itself"
        if target == "__version__" or (target == module and module != "problems"):
            continue
        if (
            module == "cli" and not rest
        ):  # which nothing else imports: names of the package, on demand
            continue
        allowed = ONLY.get(module, set(ORDER))
        if module in ORDER:
            allowed = allowed & set(ORDER[: ORDER.index(module)])
        if target not in allowed:
            faults.append(f"{module} imports {name}")
    return faults


def test_every_module_has_a_place() -> None:
    assert {module_of(path) for path in sources()} <= {*ORDER, "problems", "__init__"}


def test_imports_go_one_way() -> None:
    found = {str(path.relative_to(ROOT)): complaints(path) for path in sources()}
    assert {path: faults for path, faults in found.items() if faults} == {}


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
        (
            "dp2erm_cvx/privacy.py",
            "if TYPE_CHECKING:\n    from dp2erm_cvx.plan import Plan",
            "privacy imports dp2erm_cvx.plan",
        ),
        ("dp2erm_cvx/solve/solving.py", "from ..cli import main", "solve imports dp2erm_cvx.cli"),
        (
            "dp2erm_cvx/stability/a.py",
            "import dp2erm_cvx.program",
            "stability imports dp2erm_cvx.program",
        ),
        (
            "dp2erm_cvx/program/registry.py",
            "from dp2erm_cvx.problems import itr",
            "program imports dp2erm_cvx.problems",
        ),
        (
            "problems/a.py",
            "from dp2erm_cvx.problems.b import B",
            "problems imports dp2erm_cvx.problems.b",
        ),
        ("problems/a.py", "from .b import B", "problems imports dp2erm_cvx.problems.b"),
        (
            "problems/a.py",
            "from dp2erm_cvx.solve import solve",
            "problems imports dp2erm_cvx.solve",
        ),
        ("dp2erm_cvx/data/dataset.py", "import cvxpy as cp", "cvxpy is imported in data"),
        (
            "dp2erm_cvx/steps/a.py",
            "from dp2erm_cvx.on_demand import cvxpy as cp",
            "cvxpy is imported in steps",
        ),
        (
            "dp2erm_cvx/curves/a.py",
            "later = ModuleOnDemand('dp2erm_cvx.plan.plan')",
            "curves imports dp2erm_cvx.plan.plan",
        ),
        (
            "dp2erm_cvx/cli/release.py",
            "from matplotlib import pyplot",
            "matplotlib is imported in cli",
        ),
        ("dp2erm_cvx/estimators/fitting.py", "import random", "random is imported in estimators"),
    ],
)
def test_a_wrong_import_is_seen(path: str, source: str, complaint: str) -> None:
    assert complaints(ROOT / path, source) == [complaint]


def test_the_picture_of_the_rooms_shows_the_imports_of_today() -> None:
    rooms = runpy.run_path(str(ROOT / "docs" / "rooms.py"))
    imported = rooms["imports_of_rooms"]()
    drawn = set(
        re.findall(r'id="((?:room-[a-z_]+|[a-z_]+-imports-[a-z_]+))"', PICTURE.read_text("utf-8"))
    )
    expected = {f"room-{room}" for room in imported}
    expected |= {f"{room}-imports-{one}" for room, one in rooms["arrows"](imported)}
    assert drawn == expected, "draw it anew: python docs/rooms.py"


def trees() -> dict[str, ast.Module]:
    """Every module by its full name; that of the package itself, which has names on demand, is left
    out.
    """
    found = {}
    for path in sources():
        names = [*package_of(path), *([] if path.stem == "__init__" else [path.stem])]
        found[".".join(names)] = parsed(path)
    del found["dp2erm_cvx"]
    return found


def imported_modules(tree: ast.AST, package: list[str], known: Iterable[str]) -> set[str]:
    """The ``known`` modules that a module of a ``package`` imports: anywhere, and for types as
    well.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{stem}.{alias.name}"
                found.add(inner if inner in known else stem)
    return found & set(known)


def graph(modules: Mapping[str, ast.AST]) -> dict[str, set[str]]:
    """What every module imports of the others."""
    edges = {}
    for name, tree in modules.items():
        folder = name.split(".")
        if not any(
            other.startswith(f"{name}.") for other in modules
        ):  # a module, and no folder of some
            folder = folder[:-1]
        edges[name] = imported_modules(tree, folder, modules)
    return edges


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other; empty where there are none."""
    left = dict(edges)
    while left:
        # what imports nothing that is left is in no circle
        last = [name for name, needed in left.items() if not needed & left.keys()]
        if not last:
            break
        for name in last:
            del left[name]
    while left:
        needed = set().union(*left.values())
        first = [name for name in left if name not in needed]
        if not first:
            break
        for name in first:
            del left[name]
    return sorted(left)


def hidden_imports(path: Path, source: str | None = None) -> list[str]:
    """Imports of this package within functions, which only commands and the package itself may
    have.
    """
    if module_of(path) in ("cli", "__init__"):
        return []
    found = set()
    for function in outer_functions(parsed(path) if source is None else ast.parse(source)):
        found |= {
            name for name in imports(function, package_of(path)) if name.startswith("dp2erm_cvx")
        }
        found |= set(imported_by_name(function))
    return sorted(found)


def outer_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Functions and methods that stand in no other one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
        else:
            yield from outer_functions(node)


def imported_by_name(tree: ast.AST) -> Iterator[str]:
    """Modules of this package that ``import_module`` is called with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            name = str(node.args[0].value)
            if called == "import_module" and name.startswith("dp2erm_cvx"):
                yield name


def test_no_modules_import_each_other() -> None:
    assert circle(graph(trees())) == []


def test_a_circle_is_seen_within_a_folder_and_for_types_alone() -> None:
    planted = {
        "dp2erm_cvx.plan.a": "from dp2erm_cvx.plan.b import B",
        "dp2erm_cvx.plan.b": "if TYPE_CHECKING:\n    from dp2erm_cvx.plan.c import C",
        "dp2erm_cvx.plan.c": "def f():\n    from . import a",
        "dp2erm_cvx.plan.d": "from dp2erm_cvx.plan import a",
        "dp2erm_cvx.release.e": "import dp2erm_cvx.plan.d",
    }
    edges = graph({name: ast.parse(source) for name, source in planted.items()})
    assert circle(edges) == ["dp2erm_cvx.plan.a", "dp2erm_cvx.plan.b", "dp2erm_cvx.plan.c"]
    edges["dp2erm_cvx.plan.c"] = set()
    assert circle(edges) == []


#: These read the bounds of mapped records, and know nothing of what a user declares.
WITHOUT_DOMAIN = (
    *("program", "problems", "paper", "weighting", "stability", "curves", "model", "calibration"),
    *("neighbors", "solve", "conformance"),
)


def named_domains(tree: ast.AST) -> list[str]:
    """Where code names ``Domain``, or asks anything for its ``domain``."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "Domain":
            found.append("Domain")
        elif isinstance(node, ast.alias) and node.name in ("Domain", "Universe"):
            found.append(f"import {node.name}")
        elif isinstance(node, ast.Attribute) and node.attr in ("Domain", "domain"):
            found.append(f".{node.attr}")
    return sorted(found)


def test_what_reads_bounds_names_no_domain() -> None:
    found = {
        str(path.relative_to(ROOT)): named_domains(parsed(path))
        for path in sources()
        if module_of(path) in WITHOUT_DOMAIN
    }
    assert len(found) > 50
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from dp2erm_cvx.data.domain import Domain", ["import Domain"]),
        ("from dp2erm_cvx.data.universe import Universe", ["import Universe"]),
        ("def f(domain: Domain):\n    return domain.covariate_bound", ["Domain"]),
        ("bound = universe.domain.covariate_bound", [".domain"]),
        ("import dp2erm_cvx.data.domain as d\nd.Domain(1.0, 1.0)", [".Domain"]),
        ("domain = (0.0, 1.0)", []),
    ],
)
def test_a_named_domain_is_seen(source: str, found: list[str]) -> None:
    assert named_domains(ast.parse(source)) == found


def test_this_package_is_imported_at_the_top() -> None:
    found = {str(path.relative_to(ROOT)): hidden_imports(path) for path in sources()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("plan/a.py", "def f():\n    from dp2erm_cvx.plan.b import B", ["dp2erm_cvx.plan.b"]),
        ("plan/a.py", "class A:\n    def f(self):\n        from . import b", ["dp2erm_cvx.plan"]),
        ("plan/a.py", "f = lambda: import_module('dp2erm_cvx.report')", ["dp2erm_cvx.report"]),
        ("plan/a.py", "def f():\n    import rich\n    from matplotlib import pyplot", []),
        ("cli/a.py", "def f():\n    from dp2erm_cvx.plan import Plan", []),
        ("__init__.py", "def f():\n    from dp2erm_cvx.plan import Plan", []),
    ],
)
def test_a_hidden_import_is_seen(path: str, source: str, found: list[str]) -> None:
    assert hidden_imports(ROOT / "dp2erm_cvx" / path, source) == found
