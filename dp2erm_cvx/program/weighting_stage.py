"""What follows from a weighting form in a universe: bound, public radius, model, weights of equal records."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.domain import Array, Records, Universe
from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.stability import any_weights
from dp2erm_cvx.stability.base import EXACT, stated_bound
from dp2erm_cvx.weighting.constants import WeightingConstants, weighting_constants
from dp2erm_cvx.weighting.dual import DualProblem
from dp2erm_cvx.weighting.form import SumKind, WeightingForm
from dp2erm_cvx.weighting.public_radius import StepConstants, public_radius
from dp2erm_cvx.weighting.response import largest_response

#: A public radius is used where twice of it is at most this part of V.
SMALL_ERROR = 0.01
#: Claimed error of the weights, per record, that a search goes on with.
_SEARCHED = 1e-6


def constants_of_form(form: WeightingForm, universe: Universe) -> WeightingConstants:
    """Constants of a form, for the neighbors of a universe.

    Parameters
    ----------
    form
        What was read of a program.
    universe
        Its datasets; an arm floor of the domain holds for both arms.

    Raises CalibrationError where some dataset has no weights.
    """
    # no dataset has two arms of more than half of its records
    floor = min(universe.domain.arm_floor or 0, universe.n_samples // 2)
    # Every dataset of a universe asks for the same ones.
    public = (floor, universe.flips)
    known = form.derived.get(public)
    if not isinstance(known, WeightingConstants):
        known = weighting_constants(form, (floor, floor), keeps_treatment=not universe.flips)
        form.derived[public] = known
    return known


def bound_of_form(
    form: WeightingForm, universe: Universe, relations: frozenset[Neighboring]
) -> StabilityBound:
    """The bound of a form in a universe, from its constants.

    Parameters
    ----------
    form, universe
        As above.
    relations
        Relations that a program covers; a bound of neighbors that keep their treatment covers that alone.

    Raises CalibrationError where some dataset has no weights.
    """
    constants = constants_of_form(form, universe)
    n = universe.n_samples
    if not universe.flips:
        relations = frozenset({universe.domain.relation})
    if constants.V >= 2.0 * n:
        return any_weights(n, constants.limits, relations)
    assumptions = [EXACT]
    if constants.smoothing:
        assumptions.append(constants.smoothing)
    if universe.domain.arm_floor and form.sums.kind is not SumKind.ALL:
        assumptions.append(f"each arm has at least {universe.domain.arm_floor} records")
    largest = constants.release_factor * max(constants.largest)
    return stated_bound(n, constants.V, largest, constants.theorem, tuple(assumptions), relations)


def solved_in_the_dual(form: WeightingForm) -> bool:
    """Whether the dual solves a form: not where the largest entry of an imbalance is priced."""
    penalties = [imbalance.penalty for imbalance in form.imbalances]
    return not any(penalty.kinked and penalty.norm == math.inf for penalty in penalties)


def form_in_words(form: WeightingForm, universe: Universe) -> Iterator[tuple[str, str]]:
    """Rows (label, text) of the constants that V follows from, and what limits it.

    Parameters
    ----------
    form, universe
        As above.

    Raises CalibrationError where some dataset has no weights.
    """
    constants = constants_of_form(form, universe)
    controls, treated = constants.largest
    yield (
        "derived",
        f"response R = {constants.response:.4g}, diameter of rows D = {constants.diameter:.4g}",
    )
    yield "", f"target T = {constants.target_diameter:.4g}, factor F = {constants.factor:.4g}"
    yield "", f"largest weight of controls {controls:.4g}, of treated {treated:.4g}"
    yield "", constants.limits
    if constants.smoothing:
        yield "", constants.smoothing


def theorem_of_form(form: WeightingForm) -> str:
    """Name of the theorems that cover a form, whatever its numbers are."""
    if form.kinked:
        return "Theorems A to D (weights as the variable)"
    return "Theorems A to C (weights as the variable)"


def strong_convexity_of_form(form: WeightingForm) -> float:
    """Number m such that the objective of a form less ``m/2 ||w||^2`` is convex on its box.

    0 where it is not known: where weights are relative to base weights of records.
    """
    if form.base is not None:
        return 0.0
    low = float(np.min(form.low))
    cap = min(float(np.max(form.cap)), float(form.n))
    return 1.0 / largest_response(form.dispersion, low, cap)


def step_constants(form: WeightingForm, universe: Universe) -> StepConstants:
    """Constants of public steps, with the rounding of kernels.

    Parameters
    ----------
    form, universe
        As above.
    """
    bound = universe.domain.features_bound
    kernels = [one.kernel for one in form.features if one.kernel is not None]
    units = [kernel.entry_error(bound, universe.n_features) for kernel in kernels]
    plain = StepConstants.of(form, max(units, default=0.0))
    return plain.sharpened(form, constants_of_form(form, universe))


def certified_radius(form: WeightingForm, universe: Universe, V: float) -> float | None:
    """Public bound of ``||w_hat - w||_1`` of released weights, where it is small beside V; None elsewhere.

    Parameters
    ----------
    form, universe
        As above.
    V
        The bound on the movement of the weights, which counts the radius twice.
    """
    steps = step_constants(form, universe)
    radius = public_radius(form, steps)
    if radius is None:
        return None
    if form.sums.kind is SumKind.TREATED:
        floor = max(universe.domain.arm_floor or 1, 1)
        radius *= form.n / (2.0 * floor)
    return radius if 2.0 * radius <= SMALL_ERROR * V else None


def model_of_form(form: WeightingForm, records: Records, V: float, convexity: float) -> WeightsModel:
    """A form at records, with its public steps and radius.

    Parameters
    ----------
    form
        What was read of a program.
    records
        The records.
    V
        The bound on the movement of the weights.
    convexity
        Strong convexity of the objective in every weight, 0 where it is not known.
    """
    universe = Universe(records.domain, records.n_samples, records.n_features)
    steps = step_constants(form, universe)
    radius = public_radius(form, steps)
    if certified_radius(form, universe, V) is None:
        radius = None
    return WeightsModel(form, records, steps, radius, convexity)


def weights_of_kinds(form: WeightingForm, kinds: Records, count: Array) -> Array:
    """Released weights per record (b, m) of b datasets, NaN where not certified; for searching.

    Parameters
    ----------
    form
        The form, of n records.
    kinds
        Records (b m,): dataset k has records like those from number ``k m`` on.
    count
        How many of each, (b, m); n in all.
    """
    (datasets, m), n = count.shape, form.n
    found = np.full(count.shape, np.nan)
    for k in range(datasets):
        number = np.rint(count[k]).astype(np.int64)
        place = np.repeat(np.arange(m), number)
        records = kinds.at(k * m + place)
        solution = DualProblem(form, records).newton()
        if not solution.claim <= _SEARCHED * n:
            continue
        factor = 1.0
        if form.sums.kind is SumKind.TREATED:
            factor = n / (2.0 * float(np.sum(records.a)))
        first = np.searchsorted(place, np.arange(m))
        present = number > 0
        found[k, present] = factor * solution.weights[first[present]]
    return found
