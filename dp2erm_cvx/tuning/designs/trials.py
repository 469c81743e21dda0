"""What every candidate does on one simulated dataset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from dp2erm_cvx.data import NamedColumns
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.estimators import PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.plan.predict import planned_range
from dp2erm_cvx.program import WeightedLeastSquares
from dp2erm_cvx.tuning.designs.candidates import Candidate, Model
from dp2erm_cvx.tuning.designs.question import DesignQuestion
from dp2erm_cvx.tuning.designs.world import World

#: Records of the population that decisions are judged on.
_JUDGED = 4000


@dataclass(frozen=True)
class SimulatedRun:
    """One candidate on one dataset; nan where something does not apply.

    ``off`` is the estimate less the truth, ``low`` and ``high`` the ends of its interval less the truth, and
    ``noise`` the half width that noise alone would leave. Of a rule ``off`` is the share of wrong decisions,
    ``lost`` the mean effect that they forgo, and ``noise`` how far noise moves the effect of one record.
    """

    off: float
    low: float = math.nan
    high: float = math.nan
    noise: float = math.nan
    lost: float = math.nan


def replicate(
    question: DesignQuestion, compared: Sequence[Candidate], number: int
) -> tuple[list[SimulatedRun | str], SimulatedRun, float]:
    """Every candidate on the dataset of this number: what it did, or why it could not.

    With them the best constant decision, and how far the plain difference of means is off. All candidates
    see the same records.
    """
    world = World(question.domain, question.n_features, question.filled, (question.seed, number))
    rng = np.random.default_rng([question.seed, number, 1])
    drawn = world.draw(question.n_samples, rng)
    names = question.domain.columns or tuple(f"x{k + 1}" for k in range(question.n_features))
    weights = question.domain.sampling
    # equal ones, as large as the public guess: they cost noise, and no sampling error
    sampling = None if weights is None else np.full(question.n_samples, weights.mean)
    X, found = NamedColumns(drawn.X, names, sampling), list[SimulatedRun | str]()
    effects = world.effects(world.census[:_JUDGED])
    truth = world.truth(question.estimand)
    for one in compared:
        model = clone(one.model).set_params(seed=int(rng.integers(2**62)))
        try:
            model.fit(X, drawn.a, drawn.y)
            rule = question.goal == "rule"
            found.append(_decided(model, world, names, effects) if rule else _estimated(model, truth))
        except Dp2ermError as error:
            found.append(str(error))
    constants = [_judged(np.full(len(effects), arm), effects) for arm in (False, True)]
    return found, min(constants, key=lambda one: one.off), world.confounded_by


def _estimated(model: Model, truth: float) -> SimulatedRun:
    if isinstance(model, PrivateEffect):
        low, high = (end - truth for end in model.interval_)
        noise = model.release_.interval.noise_half_width
        return SimulatedRun(model.effect_ - truth, low, high, math.nan if noise is None else noise)
    assert isinstance(model, PrivateTwoStageERM)
    control, treated = model.theta_
    return SimulatedRun(float(treated - control) - truth)


def _decided(model: Model, world: World, names: Sequence[str], effects: np.ndarray) -> SimulatedRun:
    X = world.census[: len(effects)]
    if isinstance(model, PrivateRule):
        return _judged(model.release_.effects_at(X) > 0, effects, model.release_.noise_effect)
    assert isinstance(model, PrivateTwoStageERM)
    return _judged(model.predict(NamedColumns(X, tuple(names))) == 1, effects)


def _judged(treated: np.ndarray, effects: np.ndarray, noise: float = math.nan) -> SimulatedRun:
    wrong = treated != (effects > 0)
    return SimulatedRun(float(np.mean(wrong)), noise=noise, lost=float(np.mean(wrong * np.abs(effects))))


def planned_noise(question: DesignQuestion, one: Candidate) -> float:
    """The half width that noise alone leaves of weighted means; nan for others, which measure it."""
    if not isinstance(one.model, PrivateTwoStageERM) or question.goal == "rule":
        return math.nan
    plan = one.model.plan(question.n_samples, question.n_features)
    assert isinstance(plan.study.second, WeightedLeastSquares)
    found = planned_range(plan).effect
    return math.nan if found is None else found
