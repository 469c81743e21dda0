"""A new program's file, ready to be edited: complete, checked and about a scheme of its own."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files

from dp2erm_cvx.errors import DeclarationError

#: Kinds that there is a template for, and what each is for.
TEMPLATES = {
    "exponential": "weights are a function of a fitted coefficient, with a ridge (Theorem 3)",
    "quadratic": "weights balance features by a ridged quadratic program on one simplex (Theorem 6)",
    "direct": "a program of the weights in second-order cones, no entropy: no theorem, V = 2n",
    "loss": "a second stage: weighted convex losses of <z, theta> - o (Theorems 1 and 2)",
}


def new_program(name: str, kind: str) -> str:
    """Text of a file that declares a program called ``name``.

    Raises DeclarationError for a name that is no lower-case Python name or that the file needs for itself,
    and for an unknown kind.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise DeclarationError(f"name = {name!r}: must be a lower-case Python name such as my_weights")
    if kind not in TEMPLATES:
        raise DeclarationError(f"kind = {kind!r}: must be one of {', '.join(TEMPLATES)}")
    text = files("dp2erm_cvx.conformance").joinpath(f"templates/{kind}.py.txt").read_text(encoding="utf-8")
    title = "".join(part.capitalize() for part in name.split("_"))
    if re.search(rf"\b{title}\b", text):
        raise DeclarationError(
            f"name = {name!r}: the file uses {title} for something else; choose another name"
        )
    return text.replace("@NAME@", name).replace("@CLASS@", title)
