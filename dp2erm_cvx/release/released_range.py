"""What the noise of a two-stage release may have moved, from what the release states alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dp2erm_cvx.calibration import Calibration, OutputCalibration, Perturbed
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet, WholeSpace
from dp2erm_cvx.plan.predict import NoiseRange, noise_range
from dp2erm_cvx.program import LossStage
from dp2erm_cvx.release.declaration import rebuilt
from dp2erm_cvx.release.record import Release, StepStatement
from dp2erm_cvx.release.rule import rule_of
from dp2erm_cvx.universe import Universe


def released_range(release: Release) -> NoiseRange | None:
    """The range of the noise, as the plan predicts it; None where the second stage is not least squares.

    None as well for a second stage of one's own where it is not at hand. A set of one's own is taken for
    unbounded, so that the noise is never said to dominate.
    """
    try:
        with np.errstate(all="ignore"):
            found = _range(release)
    except (Dp2ermError, OverflowError, np.linalg.LinAlgError):
        return None  # a program that is not at hand, or numbers that no plan has
    finite = found is not None and np.all(np.isfinite([*found.half_width, found.shrinkage]))
    return found if finite else None


def released_rows(release: Release) -> list[dict[str, Any]]:
    """One for each coordinate of theta, and one for the effect where everybody has the same.

    Each has the half width of the 2.5-97.5 % range of the noise, None where nothing predicts it.
    """
    moved = released_range(release)
    widths = [None] * len(release.theta) if moved is None else [float(width) for width in moved.half_width]
    named = list(zip(release.parameters, release.theta, widths, strict=True))
    if moved is not None and moved.coefficients is not None and len(release.theta) > 1:
        named.append(("effect", float(moved.coefficients @ np.array(release.theta)), moved.effect))
    return [{"parameter": name, "value": value, "noise_half_width": width} for name, value, width in named]


def _range(release: Release) -> NoiseRange | None:
    theta, (second, domain) = release.mechanism, rule_of(release)
    if not (isinstance(second, LossStage) and second.squared):
        return None
    declared = dataclasses.replace(
        second,
        theta_set=_set(release.second_stage["settings"].get("theta_set")),
        regularizer=ElasticNet(l2=theta.strong_convexity or 0.0),
    )
    universe = Universe(domain, release.n_samples, len(release.columns))
    scale = 0.0 if theta.numerical is None else theta.numerical.scale
    return noise_range(declared, universe, _calibration(theta, len(release.theta)), grid_scale=scale)


def _calibration(step: StepStatement, n_parameters: int) -> Calibration | OutputCalibration:
    stated: dict[str, Any] = {
        "scale": step.scale,
        "V": step.stability,
        "sensitivity": step.sensitivity or 0.0,
        "epsilon": step.epsilon,
        "delta": step.delta,
    }
    if step.perturbed is Perturbed.OUTPUT:
        return OutputCalibration(**stated)
    stated |= {"noise": step.noise, "gamma": step.gamma, "split": step.split or 0.0, "theorem": step.theorem}
    return Calibration(**stated, n_parameters=n_parameters, box=step.box)


def _set(stated: Any) -> ConvexSet:
    """The set of that name and size; what is none is taken for unbounded."""
    try:
        found = rebuilt(stated)
    except DeclarationError:
        return WholeSpace()
    return found if isinstance(found, ConvexSet) else WholeSpace()
