"""What a release recommends, and what noise may have moved in it: from theta and public constants alone."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import registry
from dp2erm_cvx.calibration import Calibration
from dp2erm_cvx.data import coded_covariates
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DataError, DeclarationError, Dp2ermError
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet, WholeSpace
from dp2erm_cvx.plan.predict import NoiseRange, noise_range
from dp2erm_cvx.program import LinearStage, SecondStage
from dp2erm_cvx.program.second_stage import recommendations
from dp2erm_cvx.release.declaration import rebuilt
from dp2erm_cvx.release.record import Release, StepStatement
from dp2erm_cvx.release.rule_release import OwnUnits, RuleRelease, own_units
from dp2erm_cvx.tables import Table, read_frame
from dp2erm_cvx.universe import Universe


def effects(release: Release | RuleRelease, X: Any) -> Array:
    """Estimated net effect (m,) for raw covariates X, in units of the outcome.

    X is (m, k) with the columns of the release in their order, or a data frame, coded, scaled and clipped as
    in the fit. Raises DataError for other columns, DeclarationError for a release that is none.
    """
    if isinstance(release, RuleRelease):
        return release.effects_at(_table(release, X))
    second, domain = rule_of(release)
    return second.effect(np.array(release.theta), domain, _table(release, X))


def recommend(release: Release | RuleRelease, X: Any) -> NDArray[np.int64]:
    """Recommended treatment (m,), 1 where the effect is positive. Raises as :func:`effects` does."""
    if isinstance(release, RuleRelease):
        return (effects(release, X) > 0).astype(np.int64)
    second, domain = rule_of(release)
    return recommendations(second, np.array(release.theta), domain, _table(release, X))


def _table(release: Release | RuleRelease, X: Any) -> Array:
    if release.domain.get("codebook") is not None:
        return coded_covariates(Domain.from_dict(release.domain), X, release.columns)
    if isinstance(X, Table) or hasattr(X, "columns"):
        frame = X if isinstance(X, Table) else read_frame(X)
        table = np.column_stack([frame.numbers(name) for name in release.columns])
    else:
        table = np.asarray(X, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(release.columns):
        raise DataError(f"X has shape {table.shape}: must have the columns {', '.join(release.columns)}")
    return table


def stage_units(release: Release) -> OwnUnits | None:
    """Theta of a linear second stage in own units; None for another one, and without ranges.

    Raises as :func:`rule_of` does.
    """
    second, domain = rule_of(release)
    if not isinstance(second, LinearStage):
        return None
    if any(getattr(type(second), one) is not getattr(LinearStage, one) for one in ("effect", "covariates")):
        return None  # rows of one's own are not the scaled covariates
    constant, theta = 0.0, release.theta
    if domain.intercept:
        constant, theta = theta[0] * domain.intercept, theta[1:]
    chosen = second.columns(domain, len(release.columns))
    norm = math.inf if second.features_bound is None else second.features_bound
    return own_units(domain, release.columns, dict(zip(chosen, theta, strict=True)), constant, norm)


def rule_of(release: Release) -> tuple[SecondStage, Domain]:
    """What is needed to predict, from the release alone: Theta and R have done their work in the fit.

    Raises DeclarationError where the JSON was changed into something that is no release.
    """
    try:
        settings = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in dict(release.second_stage["settings"]).items()
            if name not in ("theta_set", "regularizer")
        }
        domain = Domain.from_dict(release.domain)
        second = registry.build(registry.second_stages(), str(release.second_stage["name"]), **settings)
        expected = second.parameter_names(release.columns, domain)
    except Dp2ermError as error:
        raise DeclarationError(f"release JSON: {error}") from None
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise DeclarationError(f"release JSON: second_stage or domain is damaged ({error!r})") from None
    if not len(release.theta) == len(release.parameters) == len(expected):
        raise DeclarationError(
            f"release JSON: theta has {len(release.theta)} values, the program {len(expected)} parameters"
        )
    # every effect is at most the l1 norm of theta times the largest covariate
    if not math.isfinite(sum(map(abs, release.theta)) * max(domain.covariate_bound, 1.0)):
        raise DeclarationError("release JSON: theta is too large for finite effects")
    return second, domain


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
    if not second.squared:
        return None
    declared = dataclasses.replace(
        second,
        theta_set=_set(release.second_stage["settings"].get("theta_set")),
        regularizer=ElasticNet(l2=theta.strong_convexity or 0.0),
    )
    universe = Universe(domain, release.n_samples, len(release.columns))
    scale = 0.0 if theta.numerical is None else theta.numerical.scale
    return noise_range(declared, universe, _calibration(theta, len(release.theta)), grid_scale=scale)


def _calibration(step: StepStatement, n_parameters: int) -> Calibration:
    names = ("noise", "scale", "gamma", "epsilon", "delta", "theorem", "box", "perturbed")
    return Calibration(
        **{name: getattr(step, name) for name in names},
        split=step.split or 0.0,
        n_parameters=n_parameters,
        V=step.stability,
        sensitivity=step.sensitivity or 0.0,
    )


def _set(stated: Any) -> ConvexSet:
    """The set of that name and size; what is none is taken for unbounded."""
    try:
        found = rebuilt(stated)
    except DeclarationError:
        return WholeSpace()
    return found if isinstance(found, ConvexSet) else WholeSpace()
