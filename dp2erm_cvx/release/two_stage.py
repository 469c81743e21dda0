"""A two-stage release: theta, and how it is used to predict and to decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import Calibration
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet, WholeSpace
from dp2erm_cvx.plan import Plan, Study
from dp2erm_cvx.plan.predict import NoiseRange, noise_range, residual_imbalance
from dp2erm_cvx.program import SecondStage, registry
from dp2erm_cvx.release.declaration import declaration_of, rebuilt, state_steps
from dp2erm_cvx.release.record import BaseRelease, Guarantee, StepStatement
from dp2erm_cvx.release.units import OwnUnits, beside, own_units


@dataclass(frozen=True, kw_only=True)
class Release(BaseRelease):
    """A two-stage release. Weights, multipliers, residuals and noise are not in it.

    Parameters
    ----------
    theta
        The released parameter (p,), in units of the outcome per unit of the scaled covariates.
    parameters
        One name (p,) for each coordinate of theta. Means of arms are outcomes minus the declared
        center.
    residual_imbalance
        Predicted share of a difference between the arms that the weights leave, on synthetic
        records of the domain (:func:`~dp2erm_cvx.plan.predict.residual_imbalance`); None where it
        is not known.
    """

    goal: ClassVar[str] = "weighted"
    derived: ClassVar[tuple[str, ...]] = ("own_units", "caveats")

    theta: tuple[float, ...]
    parameters: tuple[str, ...]
    residual_imbalance: float | None = None

    @property
    def first_stage(self) -> dict[str, Any]:
        """The name and the settings of the first stage."""
        return dict(self.declared["first"])

    @property
    def second_stage(self) -> dict[str, Any]:
        """The name and the settings of the second stage."""
        return dict(self.declared["second"])

    @property
    def mechanism(self) -> StepStatement:
        """The statement of the step that released theta."""
        step = self.step("theta")
        assert step is not None  # a record without it is no release
        return step

    @cached_property
    def moved(self) -> NoiseRange | None:
        """Predicted range of the noise in theta, from public numbers; None where nothing predicts
        it.
        """
        return released_range(self)

    @property
    def effect(self) -> float | None:
        """Effect of treatment on everybody, in units of the outcome; None where theta says none."""
        if self.moved is None or self.moved.coefficients is None:
            return None
        return float(self.moved.coefficients @ np.array(self.theta))

    @property
    def own_units(self) -> OwnUnits | None:
        """Theta in the covariates' own units; None unless it is of a linear stage at hand and has
        ranges.
        """
        try:
            second, domain = rule_of(self)
        except Dp2ermError:
            return None
        if second.coordinates is not None:
            return None
        constant, theta = 0.0, self.theta
        if domain.intercept:
            constant, theta = theta[0] * domain.intercept, theta[1:]
        chosen = second.columns(domain.space, len(self.columns))
        norm = math.inf if second.features_bound is None else second.features_bound
        return own_units(
            domain, self.columns, dict(zip(chosen, theta, strict=True)), constant, norm
        )

    def rows(self) -> list[Mapping[str, Any]]:
        """One per coordinate of theta, and one for the effect where that is one for everybody.

        Each has the half width of the 2.5-97.5 % range of the noise, None where nothing predicts
        it.
        """
        moved, widths = self.moved, list[float | None]([None] * len(self.theta))
        if moved is not None:
            widths = moved.half_width.tolist()
        named = list(zip(self.parameters, self.theta, widths, strict=True))
        effect = self.effect
        if moved is not None and effect is not None and len(self.theta) > 1:
            named.append(("effect", effect, moved.effect))
        columns = ("parameter", "value", "noise_half_width")
        rows = [dict(zip(columns, row, strict=True)) for row in named]
        return [{**row, **self.cost()} for row in beside(rows, self)]


def make_release(
    plan: Plan[Study], released: Mapping[str, Array], columns: tuple[str, ...], guarantee: Guarantee
) -> Release:
    """State what a run of a plan ``released``, by step, under its ``guarantee``."""
    study, domain = plan.study, plan.study.universe.domain
    return Release(
        theta=tuple(float(value) for value in released[plan.main.name]),
        parameters=study.second.parameter_names(columns, domain.space),
        columns=columns,
        n_samples=study.universe.n_samples,
        guarantee=guarantee,
        steps=state_steps(plan),
        domain=domain.to_dict(),
        declared=declaration_of(plan),
        residual_imbalance=residual_imbalance(plan),
    )


def rule_of(release: Release) -> tuple[SecondStage, Domain]:
    """Rule needed to predict, from the release alone: Theta and R have done their work in the fit.

    Raises DeclarationError where the JSON was changed into something that is no release.
    """
    try:
        settings = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in dict(release.second_stage["settings"]).items()
            if name not in ("theta_set", "regularizer")
        }
        domain = release.public
        second = registry.build(
            registry.second_stages(), str(release.second_stage["name"]), **settings
        )
        expected = second.parameter_names(release.columns, domain.space)
    except Dp2ermError as error:
        raise DeclarationError(f"release JSON: {error}") from None
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise DeclarationError(
            f"release JSON: second_stage or domain is damaged ({error!r})"
        ) from None
    if not len(release.theta) == len(release.parameters) == len(expected):
        raise DeclarationError(
            f"release JSON: theta has {len(release.theta)} values, the program {len(expected)} "
            "parameters"
        )
    # every effect is at most the l1 norm of theta times the largest covariate
    if not math.isfinite(sum(map(abs, release.theta)) * max(domain.covariate_bound, 1.0)):
        raise DeclarationError("release JSON: theta is too large for finite effects")
    return second, domain


def released_range(release: Release) -> NoiseRange | None:
    """The range of the noise, as the plan predicts it; None where the second stage is not least
    squares.

    None as well for a second stage of one's own where it is not at hand. A set of one's own is
    taken for unbounded, so that the noise is never said to dominate.
    """
    theta = release.mechanism
    names = ("noise", "scale", "gamma", "epsilon", "delta", "theorem", "box", "perturbed")
    try:
        second, domain = rule_of(release)
        if not second.squared:
            return None
        try:
            theta_set = rebuilt(release.second_stage["settings"].get("theta_set"))
        except DeclarationError:
            theta_set = None
        declared = replace(
            second,
            theta_set=theta_set if isinstance(theta_set, ConvexSet) else WholeSpace(),
            regularizer=ElasticNet(l2=theta.strong_convexity or 0.0),
        )
        calibration = Calibration(
            **{name: getattr(theta, name) for name in names},
            split=theta.split or 0.0,
            n_parameters=len(release.theta),
            V=theta.stability,
            sensitivity=theta.sensitivity or 0.0,
        )
        universe = Universe(domain, release.n_samples, len(release.columns))
        scale = 0.0 if theta.numerical is None else theta.numerical.scale
        with np.errstate(all="ignore"):
            moved = noise_range(declared, universe, calibration, grid_scale=scale)
    except (Dp2ermError, OverflowError, np.linalg.LinAlgError):
        return None  # a program that is not at hand, or numbers that no plan has
    return moved if np.all(np.isfinite([*moved.half_width, moved.shrinkage])) else None
