"""CVXPY expressions as a reader of formulas writes them; CVXPY's own text is for its developers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

#: Longest text of an expression in a message.
_LONGEST = 160


def printed(e: Any) -> str:
    """Text of an expression or constraint, such as ``sum(logistic(-(signed @ v)))``, cut where it is long."""
    text = _text(e, 0)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 44]} ... {text[-40:]}"


#: Numbers of records at which a formula is written, to tell which of its numbers grow with n.
SIZES = (5, 8)


def with_n(few: str, many: str) -> str:
    """One formula of two texts that were written at ``SIZES`` records: ``5`` and ``8`` become ``n``."""
    parts = [re.split(r"(?<![\w.])(\d+(?:\.\d+)?)", text) for text in (few, many)]
    if len(parts[0]) != len(parts[1]):
        return few
    return "".join(part if part == other else _of_n(part, other) for part, other in zip(*parts, strict=True))


def _of_n(few: str, many: str) -> str:
    try:
        x, y = float(few), float(many)
    except ValueError:
        return few
    for found, text in ((x / SIZES[0], "{}n"), (x * SIZES[0], "{}/n")):
        at_other = found * SIZES[1] if text == "{}n" else found / SIZES[1]
        if abs(at_other - y) <= 1e-3 * abs(y):
            return text.format("" if found == 1.0 and text == "{}n" else f"{found:g}")
    return few


def _text(e: Any, level: int) -> str:
    """Text of a node inside of operators of a level: 1 sums, 2 products, 3 signs and powers."""
    name, args = type(e).__name__, list(getattr(e, "args", []))
    if name in ("Inequality", "Equality"):
        return f"{_text(args[0], 0)} {'<=' if name == 'Inequality' else '=='} {_text(args[1], 0)}"
    if name == "Promote":
        return _text(args[0], level)
    if name == "AddExpression":
        text = _text(args[0], 1)
        for part in args[1:]:
            own = _text(part, 1)
            text += f" - {own[1:]}" if own.startswith("-") else f" + {own}"
        return _inside(text, level > 1)
    if name == "NegExpression":
        return _inside(f"-{_text(args[0], 2)}", level > 1)
    operator = {"MulExpression": " @ ", "multiply": " * ", "DivExpression": " / "}.get(name)
    if operator is not None and len(args) == 2:
        if args[0].is_scalar() or args[1].is_scalar():
            operator = operator.replace("@", "*")
        return _inside(f"{_text(args[0], 2)}{operator}{_text(args[1], 3)}", level > 2)
    if name in ("power", "Power", "PowerApprox"):
        p = float(getattr(e.p, "value", e.p))
        return f"square({_text(args[0], 0)})" if p == 2 else f"power({_text(args[0], 0)}, {p:g})"
    if name == "quad_over_lin":
        sums = f"sum_squares({_text(args[0], 0)})"
        divisor = _text(args[1], 3)
        return sums if divisor == "1" else _inside(f"{sums} / {divisor}", level > 2)
    if not args:
        return _leaf(e)
    known = {
        "Pnorm": "norm",
        "PnormApprox": "norm",
        "norm_inf": "norm_inf",
        "Sum": "sum",
        "transpose": "transpose",
    }
    inner = ", ".join(_text(part, 0) for part in args)
    if name == "huber":
        inner += f", {_text(e.M, 0)}"
    return f"{known.get(name, name)}({inner})"


def _leaf(e: Any) -> str:
    if not e.is_constant() or e.parameters():
        return str(e.name())
    value = np.asarray(e.value)
    if value.size == 1:
        return f"{float(np.ravel(value)[0]):g}"
    return f"[{'x'.join(map(str, value.shape))} numbers]"


def _inside(text: str, parenthesized: bool) -> str:
    return f"({text})" if parenthesized else text
