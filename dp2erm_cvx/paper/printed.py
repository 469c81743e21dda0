"""Bounds that the paper prints for programs that are declarations: the one place that knows them by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.stability import paper_kernel_balancing

#: From a resolved program and a universe to the bound that the paper prints.
Statement = Callable[[Any, Universe], StabilityBound]


def printed_kernel_balancing(program: Any, universe: Universe) -> StabilityBound:
    """The proposition on MMD weights.

    Parameters
    ----------
    program
        A resolved program with a kernel, a ridge and a cap.
    universe
        Its universe.

    Raises
    ------
    CalibrationError
        Where the proposition says nothing of the universe, and where an arm may be too small for its half of
        the weight: to fail on a small arm would depend on the data.
    """
    n = universe.n_samples
    domain = universe.domain
    cap = program.value("cap")
    floor = domain.arm_floor or 0
    if math.isfinite(cap) and 2 * cap * floor < n:
        raise CalibrationError(
            f"cap = {cap:g}: an arm of fewer than n / (2 cap) records cannot hold half the weight; "
            "declare an arm_floor or a larger cap"
        )
    kernel_bound = program.value("kernel").bound(domain.features_bound)
    ridge = n * program.number("ridge")
    return paper_kernel_balancing(n, kernel_bound, ridge, cap, relation=domain.relation)


#: What the paper prints about a program, by its name.
PRINTED: Mapping[str, Statement] = MappingProxyType({"mmd": printed_kernel_balancing})


def printed_statement(name: str) -> Statement | None:
    """What the paper prints about the program of the library of this name; None where it prints nothing."""
    return PRINTED.get(name)
