"""A program on one screen: what it minimizes, what is derived from it, which theorem, and what is assumed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.program.declared import DeclaredProgram, LossProgram
from dp2erm_cvx.program.first_stage import FirstStage, PrivateFirstStage
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.separable import SeparableFirstStage
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.program.weights import WeightsProgram
from dp2erm_cvx.universe import Universe


def describe(program: Program, universe: Universe) -> tuple[tuple[str, str], ...]:
    """Rows (label, text) about a program in a universe: settings, formula, data, constants, theorem, V.

    All of them are public numbers. A theorem that does not cover the program is a row with its reason.
    """
    resolved = program.resolve(universe.domain)
    return tuple(_rows(resolved, universe))


def _rows(program: Program, universe: Universe) -> Iterator[tuple[str, str]]:
    settings = ", ".join(f"{name} = {value}" for name, value in program.settings().items() if value)
    yield "settings", settings or "none"
    yield "minimize", program.formula
    if isinstance(program, LossProgram):
        term = program.form(universe.domain).term
        yield "data", f"{term.rows.name()}: {term.rows.within}"
        for which, part in (("offset", term.offset), ("tilt", term.tilt)):
            if part is not None:
                yield "", f"{which} {part[0]:g} {part[1].name()}: {part[1].within}"
        if term.factor is not None:
            yield "", f"factor {term.factor.name()}: {term.factor.within}"
    elif isinstance(program, DeclaredProgram):
        yield "data", f"signed rows: ||z|| <= {universe.domain.covariate_bound:.4g}"
    try:
        yield from _derived(program, universe)
    except CalibrationError as error:
        yield "theorem", f"none: {error}"
    own = program.own_data()
    if own is None:
        stated = isinstance(program, WeightsProgram)
        yield (
            "assumed",
            "V as its author states it" if stated else "bounds and constants, as their author states",
        )
    else:
        yield "assumed", f"{', '.join(own)} is made record by record" if own else "nothing"


def _derived(program: Program, universe: Universe) -> Iterator[tuple[str, str]]:
    n = universe.n_samples
    if isinstance(program, SecondStage | PrivateFirstStage):
        loss = program.loss_constants(universe)
        largest = loss.gradient_bound
        yield (
            "derived",
            f"gradient radius {loss.gradient_radius:.6g}, trace of the Hessian {loss.hessian_trace:.6g}"
            + ("" if largest is None else f", largest gradient {largest:.6g}")
            + ("" if loss.theta_bound is None else f", norm of the parameter at most {loss.theta_bound:.4g}"),
        )
        if isinstance(program, SecondStage):
            yield "theorem", program.theorem
    if isinstance(program, SeparableFirstStage) and not isinstance(program, PrivateFirstStage):
        found = program.movement(universe)
        flat = "inf, as the loss is flat where a weight moves"
        C = flat if math.isinf(found.variance) else f"{found.variance:.4g}"
        yield "derived", f"margins at most {found.reach:.4g}, log weights {found.log_weight_range:.4g} apart"
        yield "", f"gradients in a set of diameter {found.gradient_diameter:.6g}"
        yield "", f"mean weight of the others at least {found.least_mean:.4g}, C of Theorem 22 {C}"
    if isinstance(program, WeightsProgram):
        yield "certificate", _certificate(program, universe)
    if isinstance(program, FirstStage):
        bound = program.stability(universe)
        share = f"{bound.V / (2 * n):.2g} of 2n"
        yield "theorem", bound.theorem
        yield "V", f"{bound.V:.6g} at n = {n} ({share}), largest weight {bound.w_max:.6g}"


def _certificate(program: WeightsProgram, universe: Universe) -> str:
    unread, error = program.unread(universe), program.certified_error(universe)
    if unread is not None:
        return f"duality gap, on every solve: {unread}"
    if error is None:
        return "Theorem D, on every solve: a norm, absolute value or maximum has a kink"
    if math.isinf(error):
        return "Theorem A, on every solve: no radius is public"
    return f"Theorems A and C: weights within {error:.2g} n of the minimizer on every dataset"
