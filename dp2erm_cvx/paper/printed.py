"""What the paper prints about programs of the library: the one place that knows them by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dp2erm_cvx.arrays import ROUND_UP
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.paper.bound import BoundFamily, PrintedBound
from dp2erm_cvx.paper.statements import (
    fixed_weights,
    paper_entropy_balancing,
    paper_ipw_logistic,
    paper_kernel_balancing,
    paper_known_coefficient,
    paper_randomized_trial,
    usable,
)
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.program.trust import is_of_library

#: From a program whose settings are known and its universe to the bound that the paper prints. It
#: raises CalibrationError where the paper says nothing of the settings or of the universe.
Statement = Callable[[Any, MappedUniverse], PrintedBound]


def printed_uniform(program: Any, universe: MappedUniverse) -> PrintedBound:
    """The corollary on weights that depend on no record, where all of them are 1."""
    return fixed_weights(universe.n_samples, 1.0)


def printed_known_coefficient(program: Any, universe: MappedUniverse) -> PrintedBound:
    """The proposition on known regression parameters, for weights that are not trimmed."""
    if math.isfinite(program.trim):
        raise CalibrationError("the paper's bound for a known coefficient is for untrimmed weights")
    norm = math.hypot(*program.coefficient) * ROUND_UP
    return paper_known_coefficient(universe.n_samples, universe.space.covariate_bound, norm)


def printed_randomized_trial(program: Any, universe: MappedUniverse) -> PrintedBound:
    """The proposition on randomized trials, for weights that are not trimmed."""
    if math.isfinite(program.trim):
        raise CalibrationError("the paper's bound for a randomized trial is for untrimmed weights")
    return paper_randomized_trial(universe.n_samples, program.propensity)


def printed_logistic_propensity(program: Any, universe: MappedUniverse) -> PrintedBound:
    """The proposition on estimated regression parameters, for weights that are not trimmed."""
    if math.isfinite(program.log_weight.cap):
        raise CalibrationError(
            "the paper's bound for a logistic propensity is for untrimmed weights"
        )
    row_bound = program.row_bound(universe.space)
    radius = program.ball(universe.space)
    return paper_ipw_logistic(universe.n_samples, row_bound, program.mu, radius)


def printed_entropy_balancing(program: Any, universe: MappedUniverse) -> PrintedBound:
    """The theorem on the stability of entropy balancing weights."""
    base_measure = program.base_measure
    ratio = 1.0
    if base_measure is not None:
        ratio = max(base_measure) / min(base_measure) * ROUND_UP
    n = universe.n_samples
    floor = universe.space.arm_floor
    return paper_entropy_balancing(n, program.mu, program.radius, floor, base_measure_ratio=ratio)


def printed_kernel_balancing(program: Any, universe: MappedUniverse) -> PrintedBound:
    """The proposition on MMD weights.

    Raises CalibrationError where an arm may be too small for its half of the weight as well: to
    fail on a small arm would depend on the data.
    """
    n = universe.n_samples
    space = universe.space
    cap = program.value("cap")
    floor = space.arm_floor or 0
    if math.isfinite(cap) and 2 * cap * floor < n:
        raise CalibrationError(
            f"cap = {cap:g}: an arm of fewer than n / (2 cap) records cannot hold half the weight; "
            "declare an arm_floor or a larger cap"
        )
    kernel_bound = program.value("kernel").bound(space.features_bound)
    ridge = n * program.number("ridge")
    return paper_kernel_balancing(n, kernel_bound, ridge, cap, relation=space.relation)


#: What the paper prints about a program of the library, by the name of the program.
PRINTED: Mapping[str, Statement] = MappingProxyType(
    {
        "uniform": printed_uniform,
        "ipw_known": printed_known_coefficient,
        "ipw_randomized": printed_randomized_trial,
        "ipw_logistic": printed_logistic_propensity,
        "paper_entropy_balancing": printed_entropy_balancing,
        "mmd": printed_kernel_balancing,
    }
)


def in_paper(program: FirstStage) -> bool:
    """Whether the paper makes a statement about a program; it makes none about an author's own."""
    return program.name in PRINTED and is_of_library(program)


def printed_bound(program: FirstStage, universe: MappedUniverse) -> PrintedBound:
    """The paper's statement about a program, as printed.

    Parameters
    ----------
    program
        A first stage.
    universe
        The records that its weights are computed from.

    Raises
    ------
    CalibrationError
        Where the paper makes no statement about the program, its settings or the universe.
    DeclarationError
        For a setting that is not valid in this universe.
    """
    resolved = program.at(universe)
    if not in_paper(resolved):
        raise CalibrationError(f"the paper states no stability bound for {resolved.name}")
    return PRINTED[resolved.name](resolved, universe)


def usable_bound(program: FirstStage, universe: MappedUniverse) -> PrintedBound:
    """The smaller of the paper's statement and its universal corollary.

    Raises as :func:`printed_bound` does.
    """
    return usable(universe.n_samples, printed_bound(program, universe))


def bound_of_family(
    program: FirstStage, universe: MappedUniverse, family: BoundFamily
) -> StabilityBound:
    """The bound of a program by the theorems of this package, or by the paper's statement.

    Raises CalibrationError where no theorem of the family covers the program or its domain.
    """
    if family is BoundFamily.PAPER:
        return usable_bound(program, universe)
    return program.stability(universe)
