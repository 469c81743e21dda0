"""What is read of a problem in the weights: dispersion, box, sums and imbalances.

Every problem of the form is::

    minimize    sum_i phi_i(w_i) + sum_t penalty_t(m_t(w))
    subject to  low[a_i] <= w_i <= cap[a_i], and a sum of the weights of every block of records

where an imbalance ``m(w) = sum_i w_i z_i - sum_i t_i - n u - shift`` has rows z_i and targets t_i
that are linear in features of record i, and u is linear in means of features over an arm. Penalties
are functions of m itself, not of m / n: a penalty of the mean holds its powers of n, as its author
wrote them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.dispersion import Dispersion
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.weighting.forms.features import Features, IntervalSet

#: Treatment a (n,) of every record, 0 or 1.
Arms = NDArray[np.int64]


class SumKind(enum.Enum):
    """Which weights have a sum of their own."""

    #: All weights have sum n.
    ALL = "all"
    #: The weights of each arm have a public sum; both add up to n.
    PUBLIC = "public"
    #: The weights of each arm have the number of its records as their sum.
    COUNTS = "counts"
    #: The weights of the controls have sum n, those of the treated are 0.
    CONTROLS = "controls"
    #: The weights of the controls have the number of the treated as their sum; those of the treated
    #: are 1.
    TREATED = "treated"


@dataclass(frozen=True)
class WeightSums:
    """Sums of weights.

    Parameters
    ----------
    kind
        Which weights have a sum.
    public
        Sums of the controls and of the treated, where they are public.
    """

    kind: SumKind
    public: tuple[float, float] | None = None


@dataclass(frozen=True)
class FeatureRows:
    """Linear functions of the features of a record, times public factors of its arm.

    The row of record i is ``weighted[a_i] * matrix @ phi_i`` and its target is
    ``target[a_i] * matrix @ phi_i``. Beside the targets of records stand n times the means of the
    features over an arm, ``n * mean[a] * matrix @ mean(phi_i of a_i = a)``, and over the public
    points of a kernel, ``n * public * matrix @ mean(phi of the points)``. Features of a kernel have
    multiples of the identity as their matrix.

    Parameters
    ----------
    features
        The features phi.
    matrix
        Public matrix (r, width).
    weighted
        Factor of the row by arm, (2,).
    target
        Factor of the target by arm, (2,).
    mean
        Factor of n times the mean of an arm, (2,).
    public
        Factor of n times the mean of the public points.
    """

    features: Features
    matrix: Array
    weighted: Array
    target: Array
    mean: Array = field(default_factory=lambda: np.zeros(2))
    public: float = 0.0

    def row(self, phi: Array, a: Arms) -> Array:
        """Rows (n, r) of records with features phi (n, width) and arms a (n,)."""
        combined = phi @ self.matrix.T if self._scales is None else phi * self._scales
        return self.weighted[a][:, None] * combined

    @cached_property
    def _scales(self) -> Array | None:
        """The diagonal of a matrix with no other entries, by which features are only scaled."""
        height, width = self.matrix.shape
        if height != width:
            return None
        scales = np.diag(self.matrix)
        return scales if np.array_equal(self.matrix, np.diag(scales)) else None

    def summed_target(self, phi: Mapping[str, Array], a: Arms) -> Array:
        """Sum (r,) of the targets of all n records.

        It includes n times the means of arms and of public points.

        Parameters
        ----------
        phi
            Features (n, width) of the records, and those of public points, by name.
        a
            Treatment (n,).
        """
        own = phi[self.features.name]
        total = self.target[a] @ own
        for arm in np.flatnonzero(self.mean):
            total = total + len(a) * self.mean[arm] * np.mean(own[a == arm], axis=0)
        if self.public:
            total = total + len(a) * self.public * np.mean(
                phi[self.features.name_at_points], axis=0
            )
        return np.asarray(total @ self.matrix.T)


#: Rows of the same r coordinates, which are added; most coordinates have those of one feature
#: alone.
Group = tuple[FeatureRows, ...]


@dataclass(frozen=True)
class ImbalancePenalty:
    """Price ``factor * huber(max(size - tolerance, 0), knee)`` of the sizes of an imbalance.

    ``huber(t, knee)`` is ``t^2`` up to the knee and ``2 knee t - knee^2`` beyond, as in CVXPY.
    Sizes are those of the entries, or one norm of them all.

    Parameters
    ----------
    factor
        Factor of the square; infinite for a kink or a constraint.
    tolerance
        Imbalance (K,), or one number for all or for the norm, that costs nothing.
    knee
        Where the square becomes a line; infinite for squares.
    norm
        None where every entry is priced; else the order of the norm that is priced, above 1,
        infinity for the largest entry; 1 of a constraint alone.
    price
        Slope of a kink ``price * size``; 0 for squares. Infinite for a constraint,
        ``size <= tolerance``.
    sided
        Whether entries below 0 cost nothing: the size of an entry m is ``max(m, 0)``.
    envelope
        Parameter e of the Moreau envelope ``min_u price(u) + |u - m|^2 / (2 e)`` that stands for
        the price; 0 for the price itself.
    """

    factor: float
    tolerance: Array | float = 0.0
    knee: float = math.inf
    norm: float | None = None
    price: float = 0.0
    sided: bool = False
    envelope: float = 0.0

    @property
    def hard(self) -> bool:
        """True for a constraint."""
        return math.isinf(self.price)

    @property
    def kinked(self) -> bool:
        """True for a kink that is no constraint: its gradient jumps, and is bounded."""
        return math.isinf(self.factor) and not self.hard and not self.envelope

    @property
    def rough(self) -> bool:
        """True for a curved function of a norm whose gradient jumps and grows."""
        if self.hard or self.envelope or math.isinf(self.factor) or self.norm is None:
            return False
        return self.norm < 2.0 or math.isinf(self.norm)

    @property
    def smooth(self) -> bool:
        """True where the gradient is Lipschitz."""
        return math.isfinite(self.smoothness)

    @property
    def plain(self) -> bool:
        """True for a multiple of a sum of squares."""
        curved = math.isfinite(self.factor) and math.isinf(self.knee) and not self.sided
        return (
            curved and self.norm in (None, 2) and not np.any(self.tolerance) and not self.envelope
        )

    @property
    def of_entries(self) -> bool:
        """True where the sizes of all entries are priced, on both sides."""
        return self.norm is None and not self.sided

    @property
    def counts_zeros(self) -> bool:
        """True where an entry that is always 0 changes the price."""
        return False

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient by m, in the Euclidean norm; infinite where it jumps.

        A function of a norm of order q > 2 is ``q - 1`` times as curved as that of the Euclidean
        one (section "Norms" of ``docs/theory/weights_as_variable.md``), an envelope at most
        ``1/e``.
        """
        if self.envelope:
            return 1.0 / self.envelope
        if self.rough or self.hard:
            return math.inf
        if self.norm is None or self.norm == 2.0:
            return 2.0 * self.factor
        return 2.0 * self.factor * (self.norm - 1.0)

    @property
    def steepest(self) -> float:
        """Largest slope by a size; infinite for squares and constraints."""
        if math.isinf(self.factor):
            return self.price
        return 2.0 * self.factor * self.knee

    def gradient_size(self, coordinates: int) -> float:
        """Largest norm of a subgradient less the one at 0; infinite for squares and constraints.

        Parameters
        ----------
        coordinates
            Number of coordinates K.
        """
        if self.norm is None:
            return self.steepest * math.sqrt(coordinates)
        # The dual norm of a subgradient is at most the slope; for q >= 2 the Euclidean one is no
        # larger.
        return self.steepest * math.pow(coordinates, max(1.0 / self.norm - 0.5, 0.0))

    def gradient_diameter(self, coordinates: int) -> float:
        """Largest Euclidean distance of two subgradients.

        Parameters
        ----------
        coordinates
            Number of coordinates K.
        """
        size = self.gradient_size(coordinates)
        return size if self.sided else 2.0 * size

    def slope_at_zero(self, coordinates: int) -> Array:
        """The slope (K,) at the imbalance 0, which is a minimum of every one of these prices."""
        return np.zeros(coordinates)

    def added_by_step(self, coordinates: int, step: float) -> float:
        """Norm of the numbers that a proximal step adds to those that it is taken of: none."""
        return 0.0

    def ordered(self, order: NDArray[np.int64]) -> ImbalancePenalty:
        """The price of the coordinates in another order."""
        if isinstance(self.tolerance, np.ndarray):
            return replace(self, tolerance=self.tolerance[order])
        return self

    def times(self, factor: float) -> ImbalancePenalty:
        """A kink of another price: this one times a factor above 0."""
        return replace(self, price=self.price * factor)

    def smoothed(self, parameter: float) -> ImbalancePenalty:
        """The Moreau envelope of a price whose gradient jumps.

        Of a kink of entries, or of the Euclidean norm, it is ``huber(size, e price) / (2 e)``.

        Parameters
        ----------
        parameter
            Its parameter e > 0.
        """
        if self.kinked and (self.norm is None or self.norm == 2.0):
            return replace(self, factor=0.5 / parameter, knee=parameter * self.price, price=0.0)
        return replace(self, envelope=parameter)


@dataclass(frozen=True)
class LogSumExpPenalty:
    """Price ``factor * log(sum_k exp(m_k))`` of an imbalance: smooth, with bounded gradients.

    Its gradient is ``factor`` times shares of sum 1. So two of them are at most ``sqrt(2) factor``
    apart, and their Lipschitz constant is ``factor / 2`` (section "Logarithms of sums" of
    ``docs/theory/weights_as_variable.md``). At 0 it is ``factor / K`` in every coordinate, not 0.

    Parameters
    ----------
    factor
        Public factor, above 0.
    """

    factor: float

    tolerance: ClassVar[float] = 0.0
    knee: ClassVar[float] = math.inf
    norm: ClassVar[None] = None
    price: ClassVar[float] = 0.0
    sided: ClassVar[bool] = False
    envelope: ClassVar[float] = 0.0
    hard: ClassVar[bool] = False
    kinked: ClassVar[bool] = False
    rough: ClassVar[bool] = False
    smooth: ClassVar[bool] = True
    plain: ClassVar[bool] = False
    of_entries: ClassVar[bool] = False
    counts_zeros: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient by m, in the Euclidean norm."""
        return 0.5 * self.factor

    def gradient_size(self, coordinates: int) -> float:
        """Largest Euclidean distance of a gradient to the one at 0.

        Parameters
        ----------
        coordinates
            Number of coordinates K.
        """
        return self.factor * math.sqrt(1.0 - 1.0 / coordinates)

    def gradient_diameter(self, coordinates: int) -> float:
        """Largest Euclidean distance of two gradients.

        Parameters
        ----------
        coordinates
            Number of coordinates K.
        """
        return self.factor * math.sqrt(2.0) if coordinates > 1 else 0.0

    def slope_at_zero(self, coordinates: int) -> Array:
        """The slope (K,) at the imbalance 0."""
        return np.full(coordinates, self.factor / coordinates)

    def added_by_step(self, coordinates: int, step: float) -> float:
        """Norm of the numbers that a proximal step adds to those that it is taken of.

        Parameters
        ----------
        coordinates
            Number of coordinates K.
        step
            The step.
        """
        weight = step * self.factor
        largest = 2.0 * weight + abs(math.log(weight)) + math.log(coordinates) + 8.0
        return largest * math.sqrt(coordinates)

    def ordered(self, order: NDArray[np.int64]) -> LogSumExpPenalty:
        """The price of the coordinates in another order, which is the same."""
        return self

    def times(self, factor: float) -> LogSumExpPenalty:
        """The price times a factor above 0."""
        return LogSumExpPenalty(self.factor * factor)

    def smoothed(self, parameter: float) -> LogSumExpPenalty:
        """The price itself, which is smooth."""
        return self


#: What an imbalance is priced by.
Penalty = ImbalancePenalty | LogSumExpPenalty


@dataclass(frozen=True)
class Imbalance:
    """An imbalance and its price.

    Parameters
    ----------
    groups
        Its coordinates, in the order of the penalty's.
    shift
        Public target (K,), which is subtracted beside the targets of records.
    penalty
        Its price.
    text
        The author's expression, for messages.
    """

    groups: tuple[Group, ...]
    shift: Array
    penalty: Penalty
    text: str = ""

    def rows(self, phi: Mapping[str, Array], a: Arms) -> Array:
        """Rows z (n, K), from features by name."""
        return np.hstack(
            [sum(part.row(phi[part.features.name], a) for part in group) for group in self.groups]
        )

    def targets(self, phi: Mapping[str, Array], a: Arms) -> Array:
        """Sum of the targets and the shift (K,), from features of all n records by name."""
        sums = [sum(part.summed_target(phi, a) for part in group) for group in self.groups]
        return np.concatenate(sums) + self.shift


@dataclass(frozen=True)
class WeightingForm:
    """A problem in the weights of n records, as it was read.

    Parameters
    ----------
    n
        Number of records.
    dispersion
        phi, the same for every record, with the ends of its domain.
    low, cap
        Ends of the box of a weight by arm, (2,); within the domain of the dispersion. A fixed
        weight has equal ends. Beside ends of records, the ends of the hull of all boxes.
    sums
        Sums of weights.
    imbalances
        Imbalances and their prices.
    linear
        Rows of one coordinate whose value is added to the slope of a record's dispersion, or None.
    base
        A feature d of one number, in an interval above 0, where phi_i(w) is ``d_i phi(w / d_i)``;
        else None.
    low_of, cap_of
        Rows of one coordinate, a multiple of a feature in an interval, that a weight is not below
        or not above, beside ``low`` and ``cap``; else None.
    """

    n: int
    dispersion: Dispersion
    low: Array
    cap: Array
    sums: WeightSums
    imbalances: tuple[Imbalance, ...]
    linear: FeatureRows | None = None
    base: Features | None = None
    low_of: FeatureRows | None = None
    cap_of: FeatureRows | None = None
    #: Moreau parameter of kinks that were smoothed, by the text of the expression, for messages.
    smoothed: Mapping[str, float] = field(default_factory=dict)

    @property
    def features(self) -> tuple[Features, ...]:
        """Every feature once, in the order in which it appears."""
        found: dict[str, Features] = {}
        for imbalance in self.imbalances:
            for group in imbalance.groups:
                for part in group:
                    found.setdefault(part.features.name, part.features)
        if self.linear is not None:
            found.setdefault(self.linear.features.name, self.linear.features)
        if self.base is not None:
            found.setdefault(self.base.name, self.base)
        for end in (self.low_of, self.cap_of):
            if end is not None:
                found.setdefault(end.features.name, end.features)
        return tuple(found.values())

    @property
    def highest_low(self) -> Array:
        """The highest lower end of the box of any record, by arm (2,)."""
        if self.low_of is None:
            return self.low
        return np.maximum(self.low, least_and_largest(self.low_of)[1])

    @property
    def least_cap(self) -> Array:
        """The least upper end of the box of any record, by arm (2,)."""
        if self.cap_of is None:
            return self.cap
        return np.minimum(self.cap, least_and_largest(self.cap_of)[0])

    @property
    def alike_boxes(self) -> bool:
        """Whether all records of an arm have one box."""
        return self.low_of is None and self.cap_of is None

    @property
    def hard(self) -> bool:
        """True where a constraint of the imbalance depends on the data."""
        return any(imbalance.penalty.hard for imbalance in self.imbalances)

    @property
    def kinked(self) -> bool:
        """True where a price has a kink."""
        return any(imbalance.penalty.kinked for imbalance in self.imbalances)

    @property
    def arms_of_means(self) -> tuple[int, ...]:
        """The arms whose own mean is a target."""
        groups = [group for imbalance in self.imbalances for group in imbalance.groups]
        means = [part.mean for group in groups for part in group]
        return tuple(arm for arm in (0, 1) if any(mean[arm] != 0.0 for mean in means))


def least_and_largest(rows: FeatureRows) -> tuple[Array, Array]:
    """Least and largest value, by arm (2,) each, of rows of one coordinate in an interval.

    Raises DeclarationError for features of another kind.
    """
    within = rows.features.within
    if not isinstance(within, IntervalSet):
        raise DeclarationError(f"{rows.features.name}: ends of weights are numbers of an interval")
    factors = rows.weighted * float(rows.matrix[0, 0])
    ends = np.stack([factors * within.low, factors * within.high])
    return np.min(ends, axis=0), np.max(ends, axis=0)
