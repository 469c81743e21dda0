"""What follows from a weighting form in a universe: bound, public radius and model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, UNIT
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.privacy import EXACT, Neighboring, StabilityBound
from dp2erm_cvx.program.kernels import FEW_FEATURES
from dp2erm_cvx.program.memory import refuse_size
from dp2erm_cvx.stability import any_weights
from dp2erm_cvx.stability.base import stated_bound
from dp2erm_cvx.weighting.bounds.constants import WeightingConstants, weighting_constants
from dp2erm_cvx.weighting.bounds.public_radius import StepConstants, public_radius
from dp2erm_cvx.weighting.bounds.response import largest_response
from dp2erm_cvx.weighting.forms.features import KernelOfRecords
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm
from dp2erm_cvx.weighting.solving.dataset import MOST_PAIRS, MOST_PIVOTS, RECORDS_PER_PIVOT
from dp2erm_cvx.weighting.solving.pivoted import SIMILARITY_ERROR

#: A public radius is used where twice of it is at most this part of V.
SMALL_ERROR = 0.01


@dataclass(frozen=True, eq=False)
class FormInUniverse:
    """A form with what follows from it for all datasets of a universe, each number computed once.

    Parameters
    ----------
    form
        What was read of a program.
    universe
        Its datasets; an arm floor of the domain holds for both arms.
    """

    form: WeightingForm
    universe: MappedUniverse

    @cached_property
    def constants(self) -> WeightingConstants:
        """Constants of the form, for the neighbors of the universe.

        Raises
        ------
        CalibrationError
            Where some dataset has no weights.
        """
        universe = self.universe
        # no dataset has two arms of more than half of its records
        floor = min(universe.space.arm_floor or 0, universe.n_samples // 2)
        return weighting_constants(self.form, (floor, floor), keeps_treatment=not universe.flips)

    @cached_property
    def steps(self) -> StepConstants:
        """Constants of public steps, with the rounding of kernels."""
        bound = self.universe.space.features_bound
        p = self.universe.n_features
        units = [kernel.entry_error(bound, p) for kernel in kernels_of(self.form)]
        by_sets_of_features = StepConstants.of(self.form, max(units, default=0.0))
        try:
            constants = self.constants
        except CalibrationError:
            # some dataset of the universe has no weights, so that nothing sharper is known
            return by_sets_of_features
        return by_sets_of_features.sharpened(self.form, constants)

    @cached_property
    def radius(self) -> float | None:
        """Public bound of ``||w_hat - w||_1`` after public steps, before any release."""
        by_features = all(few_of_kernel(kernel, self.universe) for kernel in kernels_of(self.form))
        return public_radius(self.form, self.steps, by_features=by_features)

    def certified_radius(self, V: float) -> float | None:
        """Public bound of ``||w_hat - w||_1`` of released weights.

        Parameters
        ----------
        V
            The bound on the movement of the weights, which counts the radius twice.

        Returns
        -------
        float or None
            None where there is none, or where it is not small beside V.
        """
        radius = self.radius
        if radius is None:
            return None
        if self.form.sums.kind is SumKind.TREATED:
            # where the treated weigh 1, weights are multiplied by n / (2 n_1) for their release
            floor = max(self.universe.space.arm_floor or 1, 1)
            radius *= self.form.n / (2.0 * floor)
        if not 2.0 * radius <= SMALL_ERROR * V:
            return None
        return radius

    def bound(self, relations: frozenset[Neighboring]) -> StabilityBound:
        """The bound of the weights.

        Parameters
        ----------
        relations
            Relations that a program covers; a bound of neighbors that keep their treatment covers
            that alone.

        Raises
        ------
        CalibrationError
            Where some dataset has no weights.
        """
        constants = self.constants
        universe = self.universe
        n = universe.n_samples
        if not universe.flips:
            relations = frozenset({universe.space.relation})
        if constants.V >= 2.0 * n:
            return any_weights(n, constants.limits, relations)
        assumptions = [EXACT]
        if constants.smoothing:
            assumptions.append(constants.smoothing)
        if universe.space.arm_floor:
            # also where all weights have one sum: the largest ones depend on the sizes of the arms
            assumptions.append(f"each arm has at least {universe.space.arm_floor} records")
        largest_weight = constants.release_factor * max(constants.largest)
        return stated_bound(
            n, constants.V, largest_weight, constants.theorem, tuple(assumptions), relations
        )

    def model(self, records: Records, V: float, convexity: float) -> WeightsModel:
        """The form at records, with its public steps, and their radius where that is used.

        Parameters
        ----------
        records
            The records.
        V
            The bound on the movement of the weights.
        convexity
            Strong convexity of the objective in every weight, 0 where it is not known.
        """
        radius = self.radius
        if self.certified_radius(V) is None:
            radius = None
        return WeightsModel(self.form, records, self.steps, radius, convexity)

    def in_words(self) -> Iterator[tuple[str, str]]:
        """Rows (label, text) of the constants that V follows from, and what limits it.

        Raises
        ------
        CalibrationError
            Where some dataset has no weights.
        """
        constants = self.constants
        controls, treated = constants.largest
        response = f"response R = {constants.response:.4g}"
        yield "derived", f"{response}, diameter of rows D = {constants.diameter:.4g}"
        yield "", f"target T = {constants.target_diameter:.4g}, factor F = {constants.factor:.4g}"
        yield "", f"largest weight of controls {controls:.4g}, of treated {treated:.4g}"
        yield "", constants.limits
        if constants.smoothing:
            yield "", constants.smoothing


def theorem_of_form(form: WeightingForm) -> str:
    """Name of the theorems that cover a form, whatever its numbers are."""
    if form.kinked:
        return "Theorems 5, 6, 18 and 29 (weights as the variable)"
    return "Theorems 5, 6 and 18 (weights as the variable)"


def strong_convexity_of_form(form: WeightingForm) -> float:
    """Number m such that the objective of a form less ``m/2 ||w||^2`` is convex on its box.

    It is 1 over the largest response in the box, and 0 where it is not known: where weights are
    relative to base weights of records.
    """
    if form.base is not None:
        return 0.0
    low = float(np.min(form.low))
    cap = min(float(np.max(form.cap)), float(form.n))
    return 1.0 / largest_response(form.dispersion, low, cap)


def kernels_of(form: WeightingForm) -> list[KernelOfRecords]:
    """Kernels whose features a form weighs."""
    return [one.kernel for one in form.features if one.kernel is not None]


def few_of_kernel(kernel: KernelOfRecords, universe: MappedUniverse) -> bool:
    """Whether a kernel has so few features of its own that no pairs of records are ever needed.

    Their rounding is public as well, and has to be below the error that features are used for.
    """
    p = universe.n_features
    k = kernel.n_features(p)
    if k is None or k > _most_features(universe.n_samples):
        return False
    units = kernel.entry_error(universe.space.features_bound, p) + k + 4.0
    return units * UNIT * ROUND_UP_SUMS <= SIMILARITY_ERROR


def _most_features(n_samples: int) -> int:
    """The most features by which records are solved in the place of pairs of them."""
    return min(n_samples // RECORDS_PER_PIVOT, MOST_PIVOTS)


def refuse_kernel(kernel: KernelOfRecords, universe: MappedUniverse) -> None:
    """Raise DeclarationError where what a kernel may need does not fit into memory.

    It needs features of all records. Where these are not few it needs all pairs as well, of up to
    as many records as are solved by pairs.

    Parameters
    ----------
    kernel
        The kernel.
    universe
        The public sizes that it is used at.
    """
    n = universe.n_samples
    k = kernel.n_features(universe.n_features)
    if k is not None and few_of_kernel(kernel, universe):
        _refuse_features(n, k)
        return
    n_paired = min(n, MOST_PAIRS)
    refuse_size(n_paired, n_paired, "a Gram matrix", FEW_FEATURES)
    _refuse_features(n, _most_features(n))


def _refuse_features(n: int, k: int) -> None:
    """Raise DeclarationError where k features of n records do not fit into memory."""
    # those of both arms stand beside each other
    refuse_size(n, 2 * k, f"a matrix of {k} features", FEW_FEATURES)
