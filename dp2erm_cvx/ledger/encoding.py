"""Renyi curves as JSON text, the way the file keeps them."""

from __future__ import annotations

import json
import math

from dp2erm_cvx.privacy import RenyiCurve


def encode(curve: RenyiCurve | None) -> str | None:
    """Numbers as they are written, null for an infinite divergence."""
    if curve is None:
        return None
    bounds = [None if math.isinf(bound) else bound for bound in curve.divergences]
    return json.dumps({"orders": curve.orders, "divergences": bounds}, allow_nan=False)


def decode(text: object) -> RenyiCurve | None:
    """The curve that was encoded. Raises ValueError for anything else."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError("a curve is kept as text")
    try:
        plain = json.loads(text)
    except RecursionError:
        raise ValueError("a curve is nested too deeply") from None
    if not isinstance(plain, dict) or set(plain) != {"orders", "divergences"}:
        raise ValueError("a curve is kept as its orders and divergences")
    if not all(isinstance(values, list) for values in plain.values()):
        raise ValueError("orders and divergences are kept as lists")
    bounds = tuple(math.inf if bound is None else bound for bound in plain["divergences"])
    return RenyiCurve(tuple(plain["orders"]), bounds)
