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
        """Predicted range of the noise in theta, by public numbers; None where it is not known."""
        return released_range(self)

    @property
    def effect(self) -> float | None:
        """Effect of treatment on everybody, in units of the outcome; None where theta says none."""
        if self.moved is None or self.moved.coefficients is None:
            return None
        return float(self.moved.coefficients @ np.array(self.theta))

    @property
    def own_units(self) -> OwnUnits | None:
        """Theta in the covariates' own units.

        None where the second stage is not at hand or not linear, and where no ranges are declared.
        """
        try:
            second, domain = rule_of(self)
        except Dp2ermError:
            return None
        if second.coordinates is not None:
            return None
        constant = 0.0
        theta = self.theta
        if domain.intercept:
            constant = theta[0] * domain.intercept
            theta = theta[1:]
        chosen = second.columns(domain.space, len(self.columns))
        slopes = dict(zip(chosen, theta, strict=True))
        norm = math.inf if second.features_bound is None else second.features_bound
        return own_units(domain, self.columns, slopes, constant, norm)

    def rows(self) -> list[Mapping[str, Any]]:
        """One per coordinate of theta, and one for the effect where that is one for everybody.

        Each has the half width of the 2.5-97.5 % range of the noise, None where nothing predicts
        it.
        """
        moved = self.moved
        widths: list[float | None] = [None] * len(self.theta)
        if moved is not None:
            widths = moved.half_width.tolist()
        named = list(zip(self.parameters, self.theta, widths, strict=True))
        effect = self.effect
        if moved is not None and effect is not None and len(self.theta) > 1:
            named.append(("effect", effect, moved.effect))
        rows = [
            {"parameter": name, "value": value, "noise_half_width": width}
            for name, value, width in named
        ]
        return [{**row, **self.cost()} for row in beside(rows, self)]


def make_release(
    plan: Plan[Study], released: Mapping[str, Array], columns: tuple[str, ...], guarantee: Guarantee
) -> Release:
    """State what a run of a plan ``released``, by step, under its ``guarantee``."""
    study = plan.study
    domain = study.universe.domain
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
    """The second stage and the domain of a release, which are all that predictions need.

    Theta and R have done their work in the fit.

    Raises
    ------
    DeclarationError
        Where the JSON was changed into something that is no release.
    """
    try:
        domain = release.public
        second = _second_stage(release)
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
    # Every effect is at most the l1 norm of theta times the largest covariate.
    if not math.isfinite(sum(map(abs, release.theta)) * max(domain.covariate_bound, 1.0)):
        raise DeclarationError("release JSON: theta is too large for finite effects")
    return second, domain


def _second_stage(release: Release) -> SecondStage:
    """The second stage of a release without its set and its penalty."""
    settings = {}
    for name, value in dict(release.second_stage["settings"]).items():
        if name not in ("theta_set", "regularizer"):
            settings[name] = tuple(value) if isinstance(value, list) else value
    name = str(release.second_stage["name"])
    second: SecondStage = registry.build(registry.second_stages(), name, **settings)
    return second


def released_range(release: Release) -> NoiseRange | None:
    """The range of the noise in theta, as the plan predicts it.

    A set of one's own is taken for unbounded, so that the noise is never said to dominate.

    Returns
    -------
    NoiseRange or None
        None where the second stage is not least squares, and where one of a user's own is not at
        hand.
    """
    step = release.mechanism
    try:
        second, domain = rule_of(release)
        if not second.squared:
            return None
        declared = replace(
            second,
            theta_set=_stated_set(release),
            regularizer=ElasticNet(l2=step.strong_convexity or 0.0),
        )
        universe = Universe(domain, release.n_samples, len(release.columns))
        grid_scale = 0.0 if step.numerical is None else step.numerical.scale
        calibration = _calibration(step, len(release.theta))
        with np.errstate(all="ignore"):
            moved = noise_range(declared, universe, calibration, grid_scale=grid_scale)
    except (Dp2ermError, OverflowError, np.linalg.LinAlgError):
        # A program that is not at hand, or numbers that no plan has.
        return None
    if not np.all(np.isfinite([*moved.half_width, moved.shrinkage])):
        return None
    return moved


def _stated_set(release: Release) -> ConvexSet:
    """Theta as the release states it; the whole space where it is a set of a user's own."""
    try:
        theta_set = rebuilt(release.second_stage["settings"].get("theta_set"))
    except DeclarationError:
        return WholeSpace()
    if not isinstance(theta_set, ConvexSet):
        return WholeSpace()
    return theta_set


def _calibration(step: StepStatement, n_parameters: int) -> Calibration:
    """The calibration that the statement of a step describes."""
    return Calibration(
        noise=step.noise,
        scale=step.scale,
        gamma=step.gamma,
        epsilon=step.epsilon,
        delta=step.delta,
        theorem=step.theorem,
        box=step.box,
        perturbed=step.perturbed,
        split=step.split or 0.0,
        n_parameters=n_parameters,
        V=step.stability,
        sensitivity=step.sensitivity or 0.0,
    )
