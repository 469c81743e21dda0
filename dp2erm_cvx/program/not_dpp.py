"""Why a declaration is not DPP, in terms of its leaves: what CVXPY says names values, which are private."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cvxpy as cp
from cvxpy.utilities import scopes


def reason(problem: Any, signed: set[str]) -> str:
    """What is wrong with the smallest expression that is not DPP, and what to do.

    ``signed`` are the leaves that make the problem DPP once all are declared as nonnegative, if they do.
    """
    with scopes.dpp_scope():
        found = next((node for part in _parts(problem) for node in _smallest(part)), None)
    if found is None:
        return "the objective is not convex: minimize a convex function"
    leaves = sorted({leaf.name() for leaf in found.parameters()})
    if not leaves:
        return f"{_shown(found)} is not convex by the rules of CVXPY, whatever the data are"
    quoted = ", ".join(map(repr, leaves))
    if unsigned := [name for name in leaves if name in signed]:
        asked = ", ".join(f"leaf({name!r}, nonneg=True)" for name in unsigned)
        return f"{_shown(found)} is convex only where a leaf is nonnegative: if it always is, ask for {asked}"
    if len(leaves) > 1:
        return f"{_shown(found)} multiplies the leaves {quoted}: multiply them in data(), and ask for one"
    return (
        f"{_shown(found)} is not convex for every value of the leaf {quoted}: a leaf may be added, or be a "
        "factor (nonneg=True in front of a convex function); compute anything else in data()"
    )


def _parts(problem: Any) -> Iterator[Any]:
    yield problem.objective.expr
    yield from problem.constraints


def _smallest(node: Any) -> Iterator[Any]:
    """Nodes that break the rules although their own parts follow them."""
    if node.is_dcp():
        return
    inner = [found for part in node.args for found in _smallest(part)]
    yield from inner or [node]


def _shown(node: Any) -> str:
    inside = ", ".join(sorted({one.name() for one in (*node.parameters(), *node.variables())}))
    kind = "constraint" if isinstance(node, cp.Constraint) else "term"
    return f"the {kind} {type(node).__name__}({inside})"
