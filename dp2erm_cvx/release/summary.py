"""A two-stage release for its readers: theta, what its noise may have moved, and the guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dp2erm_cvx.calibration import Perturbed
from dp2erm_cvx.display import grid, pairs
from dp2erm_cvx.plan.predict import DIFFERENCE, SHARE, NoiseRange
from dp2erm_cvx.release.guarantee_text import guaranteed, stays, titled, warned
from dp2erm_cvx.release.released_range import released_range
from dp2erm_cvx.release.shown import parameter_table

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.display import Block
    from dp2erm_cvx.release.record import Release


def release_blocks(release: Release) -> Iterator[Block]:
    """Theta, the effect, the noise and the guarantee, all from the release and public quantities."""
    yield titled("Release", release)
    names = [str(stage.get("name")) for stage in (release.first_stage, release.second_stage)]
    yield f"{names[0]}, then {names[1]}, on {release.n_samples} records"
    yield from balance_sentences(release)
    yield from _estimates(release, names[1])
    yield ""
    yield release_guarantee(release)
    yield from warned(release)


def balance_sentences(release: Release) -> Iterator[str]:
    """What the weights will not do, predicted without the data."""
    told = f"Of a difference of {DIFFERENCE:g} SD between the arms in one covariate these weights leave"
    warning = "THE WEIGHTS HARDLY BALANCE: confounding stays in the estimate."
    yield from stays(release.kept_imbalance, told, warning)


def _estimates(release: Release, second: str) -> Iterator[Block]:
    moved = released_range(release)
    yield from _parameters(release, moved)
    if moved is not None and moved.coefficients is None:
        predicts = "it predicts the outcome less its center"
        rule = predicts if second == "regression" else "treat where x'theta > 0"
        yield f"theta is in units of the outcome per unit of the scaled covariates; {rule}."
    if moved is not None:
        yield from centered(release)
        yield from noise_sentences(moved)
    if release.value is not None:
        yield from release.value.blocks()
    if moved is not None and release.step("propensity") is not None:
        yield "The noise of the private propensity comes on top: its effect on theta depends on the records."


def _parameters(release: Release, moved: NoiseRange | None = None) -> Iterator[Block]:
    """Theta as it was released, what noise may have moved, and in own units."""
    rows: list[tuple[str, ...]]
    rows = [(name, f"{value:+.4g}") for name, value in zip(release.parameters, release.theta, strict=True)]
    headers = ["parameter", "theta"]
    if moved is not None:
        headers.append("2.5-97.5 % of the noise")
        rows = [(*row, f"±{width:.3g}") for row, width in zip(rows, moved.half_width, strict=True)]
    known = release.own_units
    table = parameter_table(grid(*headers), known, rows)
    if moved is not None and moved.coefficients is not None and len(release.theta) > 1:
        net = ", net of the treatment cost" if release.domain.get("treatment_cost") else ""
        effect = float(moved.coefficients @ np.array(release.theta))
        table.add_section()
        table.add_row(f"effect (units of the outcome{net})", f"{effect:+.4g}", f"±{moved.effect:.3g}")
    yield table
    if known is not None:
        yield known.told()


def centered(release: Release) -> Iterator[str]:
    """What arm means are relative to, unless that is 0."""
    center = release.domain.get("outcome_center")
    if center and release.second_stage.get("name") == "arm_means":
        yield f"The arm means are relative to the public center {center:g}."


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


def release_guarantee(release: Release) -> Table:
    """What holds, what it rests on, and the noise of theta."""
    mechanism = release.mechanism
    output = mechanism.perturbed is Perturbed.OUTPUT
    # the paper multiplies by its own, uncentered gradient bound, and Theorem 7 by another radius
    direct = math.isclose(
        mechanism.sensitivity or 0.0, (mechanism.gradient_radius or 0.0) * mechanism.stability
    )
    rows = [*guaranteed(release), ("calibration", mechanism.reason or "")]
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
    split = "" if mechanism.split is None else f", {mechanism.split:.0%} of "
    share = "" if output or not split else f"{split}{'what is left' if spent else 'epsilon'}"
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
    return pairs(rows)
