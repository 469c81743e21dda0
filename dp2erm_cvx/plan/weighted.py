"""An effect by the weights of a declared scheme: its rule of use and its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.data.counts import KINDS, refuse
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.plan.declared import DeclaredEffect
from dp2erm_cvx.plan.defaults import UNKNOWN
from dp2erm_cvx.plan.settings import shares_in_turn
from dp2erm_cvx.program import FirstStage, registry
from dp2erm_cvx.program.trust import refuse_patched
from dp2erm_cvx.steps.nuisances import LinearNuisances
from dp2erm_cvx.steps.record_map import Rows
from dp2erm_cvx.steps.score import AverageScore
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.weighted_residuals import ReleasedLines, ResidualSquares, WeightedSum

#: The scheme that has a rule of use, where it is declared by its name alone.
RULED = "entropy_balancing"
#: Share of the budget for the outcome regression where none is declared.
CENTER_SHARE = 0.3
#: Residuals are clipped at so many residual scales.
RESIDUALS = 2.0
#: The ridge of least predicted half width is this over the root of n epsilon p, for rows of norm at
#: most 1.
_RIDGE = 3.6
#: The largest ridge that is taken.
_LARGEST_RIDGE = 0.3
#: Largest weight, in base weights.
_CAP = 1.5
#: Declared distance of the arms from which on overlap is poor.
_FAR = 1.4
#: Largest weight where overlap is poor, in base weights.
_FAR_CAP = 2.0
#: What the ridge is multiplied by where overlap is poor.
_FAR_RIDGE = 1.0 / 3.0
#: Height of the constant that compares the masses of the arms, over the norm bound of the rows.
_CONSTANT = 0.5


def check_weights(study: DeclaredEffect) -> None:
    """Raise DeclarationError for what Theorem 28 and its interval are not about, in one line."""
    _check_scheme(study.weights)
    if study.estimand != AverageScore.estimand:
        raise DeclarationError(
            "weights: answer for the average effect alone, and estimand = "
            f"{brief(study.estimand)}: leave one of them out"
        )
    book = study.universe.domain.codebook
    refuse(book, "an effect by the weights of a scheme", *KINDS)
    if book is not None and (book.where or book.eligible):
        raise DeclarationError("weights: are of all records, and where or eligible leaves some out")
    declared = study.declared
    propensity = declared.get("propensity", "constant")
    if propensity != "constant":
        raise DeclarationError(
            f"weights: take the place of propensity = {brief(propensity)}: leave one out"
        )
    if declared.get("rows", Rows.COMMON) != Rows.COMMON:
        raise DeclarationError("weights: need slopes that both arms have in common: leave out rows")


def _check_scheme(weights: object) -> None:
    """Raise DeclarationError for what is no scheme, nor the name of one."""
    if not isinstance(weights, str | FirstStage):
        raise DeclarationError(f"weights = {brief(weights)}: must be a scheme, or its name")
    if isinstance(weights, FirstStage):
        refuse_patched(weights)
    elif weights not in registry.first_stages():
        registry.build(registry.first_stages(), weights)  # which refuses the name


def weighting_settings(study: DeclaredEffect) -> dict[str, Any]:
    """Settings of the rule of use that differ from those of a score."""
    domain = study.universe.domain
    values = study.two_values
    if values is not None:
        # no residual of an event exceeds it by more than noise
        residual_bound = values.width
    else:
        n_scales = RESIDUALS if study.declares_scale else UNKNOWN
        residual_bound = min(n_scales * study.scale, 2.0 * domain.outcome_bound)
    return {
        "propensity": "constant",
        "rows": Rows.COMMON,
        "center_share": CENTER_SHARE,
        "residual_bound": residual_bound,
    }


def weighting_program(study: DeclaredEffect, universe: MappedUniverse) -> FirstStage:
    """The scheme of a study for the records of a universe.

    A scheme that is declared by its name alone has the settings of the rule of use: a ridge of
    ``3.6/sqrt(n epsilon p)`` for rows of norm at most 1, and caps of 1.5 base weights. Where a
    distance of 1.4 or more is declared, the ridge is a third of that, and the caps are twice the
    base weights. Settings of a program that are left to the domain follow from the space of the
    records that it sees.

    Parameters
    ----------
    study
        What is declared.
    universe
        The public sizes of the records that the scheme sees.
    """
    if isinstance(study.weights, FirstStage):
        return study.weights.resolve(universe.space)
    settings: dict[str, Any] = {}
    if study.weights == RULED:
        bound = universe.space.features_bound
        n_epsilon_p = universe.n_samples * study.budget.epsilon * universe.n_features
        ridge = min(_RIDGE / math.sqrt(n_epsilon_p), _LARGEST_RIDGE)
        cap = _CAP
        if study.confounding >= _FAR:
            ridge *= _FAR_RIDGE
            cap = _FAR_CAP
        settings = {
            "constant": _CONSTANT * bound,
            "ridge": ridge * bound**2,
            "cap": cap,
            "bases": "by_arm",
        }
    assert isinstance(study.weights, str)
    program: FirstStage = registry.build(registry.first_stages(), study.weights, **settings)
    return program


def weighted_steps(
    study: DeclaredEffect, steps: list[Step], nuisances: LinearNuisances
) -> Iterator[Step]:
    """The steps before the score, then squares of residuals, then their weighted sum.

    Parameters
    ----------
    study
        What is declared.
    steps
        Rate, mean and spread of the covariates and outcome regression, with shares of the whole
        budget.
    nuisances
        What they release.
    """
    lines = ReleasedLines(nuisances, study.settings.residual_bound)
    squares = ResidualSquares(share=study.settings.rate_share, noise=Noise.GAMMA, lines=lines)
    yield from shares_in_turn([*steps, squares])
    program: Any = weighting_program(study, study.handed(steps))
    yield WeightedSum(program=program, lines=lines, noise=Noise.GAMMA)
