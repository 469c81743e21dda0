"""A release and a balance table for human readers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dp2erm_cvx.calibration import Perturbed
from dp2erm_cvx.cli.screen import NOT_PRIVATE, console, grid
from dp2erm_cvx.compare.planned import SHARE, NoiseRange, noise_range
from dp2erm_cvx.program import SecondStage, WeightedLeastSquares

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from dp2erm_cvx.diagnostics import BalanceTable
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.plan import TwoStagePlan
    from dp2erm_cvx.release import Release


def show_release(release: Release, second: SecondStage, domain: Domain, plan: TwoStagePlan) -> None:
    """Print theta, the effect, the guarantee and the noise, all from the release and public quantities."""
    screen = console()
    standing = "" if release.private else f": {release.guarantee.standing.upper()}"
    first = release.first_stage["name"]
    screen.print(f"Release{standing}", style="bold")
    screen.print(f"{first}, then {second.name}, on {release.n_samples} records")
    for block in _estimates(release, second, domain, plan):
        screen.print(block)
    screen.print()
    screen.print(_guarantee(release))
    if not release.private:
        screen.print(f"{release.guarantee.standing.upper()}: do not publish this release", style="bold")


def show_balance(table: BalanceTable, *, stderr: bool) -> None:
    """Print a balance table, marked as not private."""
    screen = console(stderr=stderr)
    for block in balance_blocks(table):
        screen.print(block)


def balance_blocks(table: BalanceTable) -> Iterator[Table | Text | str]:
    """What to print of a balance table, marked as not private."""
    from rich.text import Text

    yield Text(f"Balance before and after weighting: {NOT_PRIVATE}, for the data holder only", style="bold")
    covariates = grid("covariate", "SMD before", "SMD after")
    for row in table.rows():
        covariates.add_row(*row)
    shapes = grid("covariate", "variance ratio before", "after", "KS before", "after")
    for shape in table.distribution_rows():
        shapes.add_row(*shape)
    targets = grid("arm less all, in SD", "control before", "after", "treated before", "after")
    for target in table.target_rows():
        targets.add_row(*target)
    arms = grid("arm", "records", "mass before", "mass after", "ESS before", "ESS after")
    for arm in table.arm_rows():
        arms.add_row(*arm)
    for part in (covariates, shapes, targets):
        yield part
        yield ""
    yield arms
    for note in table.notes:
        yield f"note: {note}"


def noise_sentences(moved: NoiseRange) -> list[str]:
    """What the predicted range of the noise means, in words."""
    assumed = (
        "half of the weight in each arm (an arm with a quarter of it has twice the noise)"
        if moved.coefficients is not None
        else "ranges 6 standard deviations wide, with the mean one off the middle"
    )
    lines = [
        f"The noise is predicted from public quantities, for {assumed}: no bound, as the true curvature is "
        f"private. gamma also pulls theta toward 0, by about {moved.shrinkage:.0%}."
    ]
    if moved.dominates:
        lines.append(
            f"NOISE DOMINATES: it reaches beyond {SHARE:.0%} of the largest value that theta may take "
            f"({moved.bound:.3g}); this release says little about the data."
        )
    return lines


def _estimates(
    release: Release, second: SecondStage, domain: Domain, plan: TwoStagePlan
) -> Iterator[Table | str]:
    if not isinstance(second, WeightedLeastSquares):
        table = grid("parameter", "theta")
        for name, value in zip(release.parameters, release.theta, strict=True):
            table.add_row(name, f"{value:+.4g}")
        yield table
        return
    moved = noise_range(second, plan.study.universe, plan.theta.calibration, grid=plan.theta.grid)
    table = grid("parameter", "theta", "2.5-97.5 % of the noise")
    for name, value, width in zip(release.parameters, release.theta, moved.half_width, strict=True):
        table.add_row(name, f"{value:+.4g}", f"±{width:.3g}")
    if moved.coefficients is not None and len(release.theta) > 1:
        net = ", net of the treatment cost" if domain.treatment_cost else ""
        effect = float(moved.coefficients @ np.array(release.theta))
        table.add_section()
        table.add_row(f"effect (units of the outcome{net})", f"{effect:+.4g}", f"±{moved.effect:.3g}")
    yield table
    if moved.coefficients is None:
        yield "theta is in units of the outcome per unit of the scaled covariates; treat where x'theta > 0."
    elif second.name == "arm_means" and domain.outcome_center:
        yield f"The arm means are relative to the public center {domain.outcome_center:g}."
    yield from noise_sentences(moved)
    yield from _value(release)
    if release.step("propensity") is not None:
        yield "The noise of the private propensity comes on top: its effect on theta depends on the records."


def _value(release: Release) -> Iterator[Table | str]:
    value = release.value
    if value is None:
        return
    table = grid("value of the rule against", "difference", "95 % of the noise")
    for other, found, width in zip(
        ("treating all", "treating none"),
        (value.against_all, value.against_none),
        value.half_widths,
        strict=True,
    ):
        table.add_row(other, f"{found:+.4g}", f"±{width:.3g}")
    yield table
    yield "Estimated by the weights of the first stage; the range is that of the noise alone."


def _guarantee(release: Release) -> Table:
    from rich.table import Table

    guarantee, mechanism = release.guarantee, release.mechanism
    output = mechanism.perturbed is Perturbed.OUTPUT
    # the paper multiplies by its own, uncentered gradient bound, and Theorem 7 by another radius
    direct = math.isclose(
        mechanism.sensitivity or 0.0, (mechanism.gradient_radius or 0.0) * mechanism.stability
    )
    delta = f"delta = {guarantee.delta:g}" if guarantee.delta else "pure"
    rows = [
        ("guarantee", f"epsilon = {guarantee.epsilon:g} ({delta}); neighbors: {guarantee.relation}"),
        ("standing", str(guarantee.standing)),
        ("theorems", f"{guarantee.theorem}; {guarantee.stability_theorem}"),
        ("assuming", "; ".join(guarantee.assumptions)),
        ("calibration", mechanism.reason),
    ]
    spent = release.step("propensity")
    if spent is not None:
        part = f"epsilon = {spent.epsilon:.4g}" + (f", delta = {spent.delta:.2g}" if spent.delta else "")
        rows.append(
            (
                "propensity",
                f"{part} spent on it ({spent.theorem}): {spent.noise} noise of scale {spent.scale:.4g}, "
                f"gamma {spent.gamma:.4g}",
            )
        )
    share = "" if output else f", {mechanism.split:.0%} of {'what is left' if spent else 'epsilon'}"
    product = (
        "" if mechanism.gradient_radius is None or not direct else f" = {mechanism.gradient_radius:.6g} x V"
    )
    rows += [
        ("noise", f"{'Laplace' if output else mechanism.noise}, scale {mechanism.scale:.6g}{share}"),
        ("perturbed", str(mechanism.perturbed)),
        ("gamma", f"{mechanism.gamma:.6g}"),
        ("stability V", f"{mechanism.stability:.6g} (largest weight {mechanism.weight_bound:.4g})"),
        ("sensitivity", f"{mechanism.sensitivity:.6g}{product}"),
    ]
    if (numerical := mechanism.numerical) is not None and not output:
        rows.append(
            (
                "arithmetic",
                f"discrete Laplace noise of scale {numerical.scale:.2g} on multiples of "
                f"2^{numerical.grid_exponent}, 2 x {numerical.epsilon:.3g} of epsilon",
            )
        )
    table = Table.grid(padding=(0, 2))
    for name, text in rows:
        table.add_row(name, text)
    return table
