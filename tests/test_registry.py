"""Distributions whose programs have no name, a name of another or cannot be imported."""

import sys
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

import pytest

from dp2erm_cvx import registry
from dp2erm_cvx.conformance import program_template
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.registry import collect, first_stages, programs

BUILT_IN = first_stages()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import absent_module\n", "entry point other = other_weights.*ModuleNotFoundError.*absent_module"),
        (
            program_template("overlap", "direct"),
            "two programs are named 'overlap': in .* and in other_weights",
        ),
        (
            "from dp2erm_cvx.problems.mmd import MMD\nclass Mine(MMD):\n    name = 'mine'\n",
            "other_weights: Mine: classes of programs",
        ),
    ],
)
def test_a_distribution_that_breaks_the_registry_is_named(text, message, tmp_path, monkeypatch):
    (tmp_path / "other_weights.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_weights", raising=False)
    entries = [*entry_points(group=registry.GROUP), EntryPoint("other", "other_weights", registry.GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    with pytest.raises(ProgramError, match=message):
        programs.__wrapped__()
    registry._sound.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match=message):
            assert registry.first_stages() == BUILT_IN
        assert registry.build(registry.first_stages(), "overlap").name == "overlap"
        with pytest.raises(ProgramError, match=f"unknown program 'mine'.*{message}"):
            registry.build(registry.first_stages(), "mine")
    finally:
        registry._sound.cache_clear()


def test_of_two_distributions_with_one_name_neither_is_taken():
    """And nothing depends on the order in which they are found."""
    entries = [EntryPoint(name, f"{name}_weights", registry.GROUP) for name in ("one", "two")]
    own = entry_points(group=registry.GROUP, name="dp2erm")
    for name in ("one", "two"):
        module = ModuleType(f"{name}_weights")
        sys.modules[module.__name__] = module
        exec(program_template("mine", "direct"), module.__dict__)
        exec(program_template(f"also_{name}", "direct"), module.__dict__)
    for order in (entries, entries[::-1]):
        found, complaints = collect([*order, *own])
        assert "mine" not in found
        assert list(found) == list(programs())
        assert len(complaints) == 1
