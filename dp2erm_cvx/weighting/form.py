"""What is read of a problem in the weights: their dispersion, their box, their sums and the imbalances.

Every problem of the form is::

    minimize    sum_i phi_i(w_i) + sum_t penalty_t(m_t(w))
    subject to  low[a_i] <= w_i <= cap[a_i], and a sum of the weights of every block of records

where an imbalance ``m(w) = sum_i w_i z_i - sum_i t_i - n u - shift`` has rows z_i and targets t_i that are
linear in features of record i, and u is linear in means of features over an arm. Penalties are functions of
m itself, not of m / n: a penalty of the mean holds its powers of n, as its author wrote them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.weighting.dispersion import Dispersion
from dp2erm_cvx.weighting.features import Features, IntervalSet

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
    #: The weights of the controls have the number of the treated as their sum; those of the treated are 1.
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
    ``target[a_i] * matrix @ phi_i``. Beside the targets of records stand n times the means of the features
    over an arm, ``n * mean[a] * matrix @ mean(phi_i of a_i = a)``. Features of a kernel have multiples of the
    identity as their matrix.

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
    """

    features: Features
    matrix: Array
    weighted: Array
    target: Array
    mean: Array = field(default_factory=lambda: np.zeros(2))

    def row(self, phi: Array, a: Arms) -> Array:
        """Rows (n, r) of records with features phi (n, width) and arms a (n,)."""
        return self.weighted[a][:, None] * (phi @ self.matrix.T)

    def summed_target(self, phi: Array, a: Arms) -> Array:
        """Sum (r,) of the targets of all n records, with n times the means of arms."""
        total = self.target[a] @ phi
        for arm in np.flatnonzero(self.mean):
            total = total + len(a) * self.mean[arm] * np.mean(phi[a == arm], axis=0)
        return np.asarray(total @ self.matrix.T)


#: Rows of the same r coordinates, which are added; most coordinates have those of one feature alone.
Group = tuple[FeatureRows, ...]


@dataclass(frozen=True)
class ImbalancePenalty:
    """Price ``factor * huber(max(|m| - tolerance, 0), knee)`` of an imbalance.

    ``huber(t, knee)`` is ``t^2`` up to the knee and ``2 knee t - knee^2`` beyond, as in CVXPY.

    Parameters
    ----------
    factor
        Factor of the square; infinite for a kink or a constraint.
    tolerance
        Imbalance (K,), or one number for all or for the norm, that costs nothing.
    knee
        Where the square becomes a line; infinite for squares.
    norm
        None where every entry is priced; else the order of the norm that is priced: 2, or infinity for kinks.
    price
        Slope of a kink ``price * |m|``; 0 for squares. Infinite for a constraint, ``|m| <= tolerance``.
    """

    factor: float
    tolerance: Array | float = 0.0
    knee: float = math.inf
    norm: float | None = None
    price: float = 0.0

    @property
    def hard(self) -> bool:
        """True for a constraint."""
        return math.isinf(self.price)

    @property
    def kinked(self) -> bool:
        """True for a kink that is no constraint: its gradient jumps."""
        return math.isinf(self.factor) and not self.hard

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient by m; infinite for kinks and constraints."""
        return 2.0 * self.factor


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
    penalty: ImbalancePenalty
    text: str = ""

    def rows(self, phi: Mapping[str, Array], a: Arms) -> Array:
        """Rows z (n, K), from features by name."""
        return np.hstack(
            [sum(part.row(phi[part.features.name], a) for part in group) for group in self.groups]
        )

    def targets(self, phi: Mapping[str, Array], a: Arms) -> Array:
        """Sum of the targets and the shift (K,), from features of all n records by name."""
        sums = [
            sum(part.summed_target(phi[part.features.name], a) for part in group) for group in self.groups
        ]
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
        Ends of the box of a weight by arm, (2,); within the domain of the dispersion. A fixed weight has
        equal ends. Beside ends of records, the ends of the hull of all boxes.
    sums
        Sums of weights.
    imbalances
        Imbalances and their prices.
    linear
        Rows of one coordinate whose value is added to the slope of a record's dispersion, or None.
    base
        A feature d of one number, in an interval above 0, where phi_i(w) is ``d_i phi(w / d_i)``; else None.
    low_of, cap_of
        Rows of one coordinate, a multiple of a feature in an interval, that a weight is not below or not
        above, beside ``low`` and ``cap``; else None.
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
    """Least and largest value of rows of one coordinate of a number in an interval, by arm (2,) each.

    Raises DeclarationError for features of another kind.
    """
    within = rows.features.within
    if not isinstance(within, IntervalSet):
        raise DeclarationError(f"{rows.features.name}: ends of weights are numbers of an interval")
    factors = rows.weighted * float(rows.matrix[0, 0])
    ends = np.stack([factors * within.low, factors * within.high])
    return np.min(ends, axis=0), np.max(ends, axis=0)
