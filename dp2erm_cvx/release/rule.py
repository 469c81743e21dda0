"""What a release recommends: from theta and public constants alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import registry
from dp2erm_cvx.data import coded_covariates
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DataError, DeclarationError, Dp2ermError
from dp2erm_cvx.program import SecondStage
from dp2erm_cvx.program.linear_stage import LinearStage
from dp2erm_cvx.program.second_stage import recommendations
from dp2erm_cvx.release import Release
from dp2erm_cvx.release.own_units import OwnUnits, own_units
from dp2erm_cvx.release.rule_release import RuleRelease
from dp2erm_cvx.tables import Table, read_frame


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
