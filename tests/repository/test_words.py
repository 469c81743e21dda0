"""Docstrings say what a thing is before all else, and names what they hold."""

import ast
import re
from collections import Counter

from tests.repository.test_size import FUNCTIONS, ROOT, trees

#: Openings that say how a thing relates to others, or nothing.
OPENINGS = re.compile(r"(The same|Of|Whether|What|Those|That|Which)\b")
#: How often names stand in the package that do not say what they hold: every number may only go down.
LIMITS = dict.fromkeys(
    ("found", "told", "given", "kept", "asked", "shown", "stated", "scout", "met", "others", "guess"), 0
)
LIMITS |= {"leaf": 5, "leaves": 3, "one": 666}  # leaves of trees


def test_docstrings_say_what_a_thing_is_first() -> None:
    documented = [
        (path, getattr(node, "name", "the module"), ast.get_docstring(node) or "")
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS))
    ]
    assert len(documented) > 1000
    assert [f"{path}: {name}: {text[:40]}" for path, name, text in documented if OPENINGS.match(text)] == []


def test_names_say_what_they_hold() -> None:
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    names = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    names += Counter(node.arg for node in nodes if isinstance(node, ast.arg))
    assert {name: names[name] for name, limit in LIMITS.items() if names[name] > limit} == {}


def test_a_result_in_a_test_is_called_so() -> None:
    tests = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("*.py")]
    assert "found" not in {node.id for tree in tests for node in ast.walk(tree) if isinstance(node, ast.Name)}
