"""What a user declares of records, and the fixed rule that maps a record into the space of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import (
    check_settings,
    declared_by_name,
    json_types,
    one_line,
    one_of,
    per_covariate,
    picked,
    public_number,
    public_size,
    setting,
    table_of,
    true_or_false,
    whole_number,
)
from dp2erm_cvx.data.codebook import Codebook, checked_codebook, norm_within
from dp2erm_cvx.data.counts import SamplingWeights
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import LARGEST, Scale, Space, refuse_intercept
from dp2erm_cvx.display import Shown
from dp2erm_cvx.errors import DeclarationError, brief, known_names
from dp2erm_cvx.privacy import Neighboring

#: One end of every scaled covariate: one number for all, one each (k,), or none.
Ends = float | tuple[float, ...] | None
#: Share of records that a level is guessed to have at least, whatever ``center`` says: at none the
#: predicted errors would be infinite.
_LEAST_SHARE = 0.01


def _pair(name: str, pair: Any) -> tuple[float, float]:
    """A declared range, whose ends differ by more than halves of them may round."""
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise DeclarationError(f"{name} = {brief(pair)}: must be a pair (low, high)") from None
    first = public_number(f"{name} low", low)
    last = public_number(f"{name} high", high)
    if not last / 4 - first / 4 > 0:
        raise DeclarationError(f"{name} = ({brief(low)}, {brief(high)}): low must be below high")
    return first, last


def _widths(name: str, declared: Any) -> float | tuple[float, ...]:
    """Declared bounds of coordinates: one for all, or one for each."""
    if not isinstance(declared, list | tuple | np.ndarray) or np.ndim(declared) == 0:
        return public_size(name, declared, most=LARGEST)
    widths = tuple(public_size(name, width, most=LARGEST) for width in declared)
    if not widths:
        raise DeclarationError(f"{name}: must be one number, or one per covariate")
    return widths


@dataclass(frozen=True)
class ReleasedRanges:
    """The release of the ranges of a domain, where they were not declared.

    They were released from the same records.

    Parameters
    ----------
    digest
        SHA-256 of their release.
    epsilon
        What that guarantees: with whatever follows it adds up.
    private
        Whether it does: the noise of a seeded one anybody can draw again.
    """

    digest: str = setting(check=one_line)
    epsilon: float = setting(above=0.0)
    private: bool = setting(True, true_or_false)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Domain(Shown):
    """The public universe of records; everything here is declared before the data are seen.

    Parameters
    ----------
    covariate_bound
        ``M``: bound on the Euclidean norm of the scaled covariate vector, intercept included.
    outcome_bound
        ``M'``: how far the net outcome may lie from ``outcome_center``, in its units; clipped
        beyond.
    outcome_center
        The expected outcome, in its units: a public center ``c``, which is subtracted.
    treatment_cost
        Public cost of treatment, in units of the outcome, which is subtracted where a is 1.
    ranges
        The least and the largest value of each covariate, public: mapped to [-1, 1], clipped
        beyond. A mapping also names the columns. Without ranges the covariates are taken as they
        are.
    intercept
        Value of a constant column put in front of the covariates; 0 means none. It counts in M.
    arm_floor
        Public lower bound on both arm sizes, if the universe is restricted to such datasets.
    relation
        The neighboring relation that the guarantee is stated for.
    codebook
        What the columns of a raw table mean, where they are not numbers without gaps; the ranges
        then name the covariates that its columns become
        (:meth:`~dp2erm_cvx.data.codebook.Codebook.ranges`).
    coordinate_bound
        Bound on the size of every scaled covariate, one number or one per covariate, which box
        noise needs (Theorem 17). None: that of the ranges, where there are any.
    center
        Typical values of covariates: one each, or a mapping of those known. They scale to 0 in
        place of the middle of a range, and stand for missing numbers; of a 0/1 column the expected
        share. Needs ranges.
    binary_outcome
        Whether the outcome has two values, the ends of its interval. Any other counts as the nearer
        of them, a missing one as the middle. Needs a treatment cost of 0.
    released
        Where some of the ranges were not declared but released: from what. See
        :class:`~dp2erm_cvx.estimators.PrivateRanges`, which fills it in.

    Both bounds lie between 1e-30 and 1e30. Raises DeclarationError naming the field.
    :meth:`records` clips each covariate to its range and bound, then all radially; and the net
    outcome to its interval.
    """

    covariate_bound: float = setting(check=public_size, most=LARGEST)
    outcome_bound: float = setting(check=public_size, most=LARGEST)
    outcome_center: float = setting(0.0, within=LARGEST)
    treatment_cost: float = setting(0.0, within=LARGEST)
    ranges: Mapping[str, tuple[float, float]] | Sequence[tuple[float, float]] | None = setting(
        None, per_covariate, entry=_pair
    )
    intercept: float = setting(0.0, at_least=0.0)
    arm_floor: int | None = setting(None, whole_number, at_least=1)
    relation: Neighboring = setting(Neighboring.REPLACE_ONE, one_of, kind=Neighboring)
    codebook: Codebook | None = None
    coordinate_bound: float | Sequence[float] | None = setting(None, _widths)
    center: Mapping[str, float] | Sequence[float] | None = setting(
        None, per_covariate, entry=public_number
    )
    binary_outcome: bool = setting(False, true_or_false)
    released: ReleasedRanges | None = setting(None, table_of, kind=ReleasedRanges)

    def __post_init__(self) -> None:
        intercept = self.intercept
        check_settings(self)
        refuse_intercept(intercept, self.covariate_bound)
        if self.binary_outcome and self.treatment_cost:
            raise DeclarationError(
                "binary_outcome: must be true only where there is no treatment_cost"
            )
        object.__setattr__(self, "codebook", checked_codebook(self.codebook, self.ranges))
        keeps = self.relation is not Neighboring.REPLACE_ONE
        if self.units is not None and (keeps or self.arm_floor):
            raise DeclarationError(
                "unit: a neighbor replaces all records: no other relation, no arm_floor"
            )
        if keeps and self.codebook is not None and self.codebook.may_move_arms:
            raise DeclarationError(
                f"relation = {self.relation}: where other cells decide who counts or what the "
                "treatment is, its arm may change: declare replace-one"
            )
        if self.ranges is not None and isinstance(self.coordinate_bound, Sequence):
            _as_many("coordinate_bound", self.coordinate_bound, len(self.ranges))
        if self.center is not None:
            self._refuse_center(self.center)

    def _refuse_center(self, center: Mapping[str, float] | Sequence[float]) -> None:
        """Raise DeclarationError unless each typical value is in the range of its covariate."""
        if self.ranges is None:
            raise DeclarationError("center: needs ranges, which typical values lie in")
        ranges: Any = self.ranges
        if not isinstance(center, Mapping):
            _as_many("center", center, len(ranges))
            center = {str(place): value for place, value in enumerate(center)}
            ranges = {str(place): pair for place, pair in enumerate(self.range_pairs)}
        if not isinstance(ranges, Mapping):
            raise DeclarationError("center: has names, and the ranges have none")
        for name in center:
            if name not in ranges:
                raise DeclarationError(f"center: {known_names(name, ranges)}")
        for name, value in center.items():
            low, high = ranges[name]
            public_number(f"center[{name}]", value, at_least=low, at_most=high)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Covariate names, where the ranges name them."""
        return tuple(self.ranges) if isinstance(self.ranges, Mapping) else None

    @property
    def range_pairs(self) -> tuple[tuple[float, float], ...]:
        """The declared ranges (low, high) of the covariates, in their order."""
        if isinstance(self.ranges, Mapping):
            return tuple(self.ranges.values())
        return tuple(self.ranges or ())

    def _ranges_of(self, n_features: int) -> tuple[tuple[float, float], ...]:
        _as_many("ranges", self.range_pairs, n_features)
        return self.range_pairs

    def middles(self, n_features: int) -> tuple[float, ...]:
        """Raw values (k,) that scale to 0.

        They are the declared center, else the middle of a range; 0 without ranges. Raises
        DeclarationError where another number is declared than ``n_features``.
        """
        if self.ranges is None:
            return (0.0,) * n_features
        middles = [low / 2 + high / 2 for low, high in self._ranges_of(n_features)]
        if isinstance(self.center, Mapping):
            return tuple(map(self.center.get, self.columns or (), middles))
        return tuple(middles if self.center is None else self.center)

    @property
    def outcome_middle(self) -> float:
        """The outcome of a control whose net outcome is 0."""
        return self.outcome_center

    @property
    def sampling(self) -> SamplingWeights | None:
        """The sampling weights that the codebook declares, if any."""
        return None if self.codebook is None else self.codebook.sampling_weights

    @property
    def units(self) -> int | None:
        """N, the public number of persons, where they are protected; None where records are."""
        if self.codebook is None or self.codebook.unit is None:
            return None
        return self.codebook.unit.number

    @property
    def protected(self) -> str:
        """What a guarantee protects, as a ledger says it: records, or persons by their column."""
        return "records" if self.codebook is None else self.codebook.protected

    @property
    def arms(self) -> tuple[str, ...]:
        """Labels of the arms of the treatment, in the order of their numbers."""
        return ("0", "1") if self.codebook is None else self.codebook.treatment.labels

    @property
    def of_records(self) -> Domain:
        """The domain of public records that are made up, one of every person.

        Each counts what persons may.
        """
        book = self.codebook
        if book is None or book.unit is None:
            return self
        weights = book.sampling_weights
        if book.unit.count > 1:
            weights = weights or SamplingWeights(book.unit.column, 1.0)
            weights = replace(weights, mean=weights.mean * book.unit.mass)
        return replace(self, codebook=replace(book, unit=None, sampling_weights=weights))

    @property
    def uneven(self) -> bool:
        """True if units may count by shares of the largest count, and not by all of it or none.

        Units are records, or persons with all of theirs.
        """
        if self.sampling is not None:
            return True
        if self.codebook is None or self.codebook.unit is None:
            return False
        return self.codebook.unit.count > 1

    @property
    def weighted(self) -> bool:
        """True if a record may count less than 1, as cells that a codebook reads may be missing."""
        return self.codebook is not None

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of records in each of which an effect is estimated, if any are declared."""
        return () if self.codebook is None else self.codebook.groups

    @property
    def mass(self) -> float:
        """A public guess of what records count on average.

        They count by sampling weights, eligibility and ``where``. Of the levels of a column each is
        guessed to have as many records, unless ``center`` declares a share.
        """
        book = self.codebook
        if book is None:
            return 1.0
        mass = 1.0
        if book.sampling_weights is not None:
            mass *= book.sampling_weights.mass
        if book.unit is not None:
            mass *= book.unit.mass
        if book.eligible:
            mass *= book.eligible_share
        centers = self.center if isinstance(self.center, Mapping) else {}
        for column, level in book.where.items():
            even_share = 1.0 / len(book.level_sets[column])
            share = centers.get(f"{column}={level or 'missing'}", even_share)
            mass *= min(max(share, _LEAST_SHARE), 1.0)
        return mass

    @property
    def features_bound(self) -> float:
        """Bound on the scaled covariates without the intercept: ``sqrt(M^2 - intercept^2)``."""
        return self.space.features_bound

    @cached_property
    def space(self) -> Space:
        """The public bounds on records once they are mapped.

        Programs and their bounds read nothing else.
        """
        lower, upper = self._box()
        return Space(
            covariate_bound=self.covariate_bound,
            outcome_bound=self.outcome_bound,
            intercept=self.intercept,
            arm_floor=self.arm_floor,
            relation=self.relation,
            lower=lower,
            upper=upper,
            scale=self._scale(),
            columns=self.columns,
            units=self.units,
            weighted=self.weighted,
            n_arms=len(self.arms),
            n_groups=len(self.groups),
            mean_count=self.mass,
        )

    def _scale(self) -> Scale | None:
        """How covariates are scaled by the ranges; None where none are declared."""
        if self.ranges is None:
            return None
        low, high = np.array(self.range_pairs, dtype=np.float64).T
        half_middles = low / 4 + high / 4
        if self.center is not None:
            half_middles = np.array(self.middles(len(self.ranges))) / 2
        half_widths = high / 4 - low / 4
        return Scale(tuple(half_middles.tolist()), tuple(half_widths.tolist()))

    def _box(self) -> tuple[Ends, Ends]:
        """The least and the largest value of scaled covariates: one for all, one each, or none."""
        declared = self.coordinate_bound
        if self.ranges is None:
            if declared is None:
                return None, None
            if isinstance(declared, Sequence):
                return tuple(-width for width in declared), tuple(declared)
            return -declared, declared
        left, right = self._range_ends()
        largest = np.array(math.inf if declared is None else declared)
        lower = np.maximum(-largest, left)
        upper = np.minimum(largest, right)
        return tuple(lower.tolist()), tuple(upper.tolist())

    def _range_ends(self) -> tuple[Array, Array]:
        """Scaled values of both ends of every range (k,): -1 and 1, unless a center is declared."""
        scale = self._scale()
        if scale is None or self.center is None:
            k = len(self.range_pairs)
            return -np.ones(k), np.ones(k)
        low, high = np.array(self.range_pairs).T
        middle = np.array(scale.half_middles)
        half = np.array(scale.half_widths)
        return (low / 2 - middle) / half, (high / 2 - middle) / half

    def features(self, X: ArrayLike) -> Array:
        """Rows (n, k + intercept) of raw covariates (n, k); a read-only view where none changes."""
        return self.space.features(X)

    def net_outcome(self, a: ArrayLike, y: ArrayLike) -> Array:
        """Centered, cost-adjusted outcome clipped to ``[-M', M']``."""
        with np.errstate(over="ignore"):  # an infinity is clipped like any other large value
            net = np.asarray(y, dtype=np.float64) - self.treatment_cost * np.asarray(a)
            net -= self.outcome_center
        if self.binary_outcome:
            net = self.outcome_bound * np.sign(net)
        return np.clip(net, -self.outcome_bound, self.outcome_bound)

    def records(
        self,
        X: ArrayLike,
        a: ArrayLike,
        y: ArrayLike,
        sampling: ArrayLike | None = None,
        person: ArrayLike | None = None,
        repeats: ArrayLike | None = None,
    ) -> Records:
        """Map finite raw data into the universe by the fixed clipping rule.

        Parameters
        ----------
        X, a, y
            Covariates (n, k), arms (n,) and outcomes (n,), in their units.
        sampling
            (n,): sampling weights in their own unit, where the domain declares any; None: all the
            largest. With a codebook without them a record counts fully where this is positive, else
            not at all. Of K declared groups it is (n, K), and a record is in the first where it
            counts.
        person
            (n,): needed where the domain declares units; from 0 to N - 1, or negative for none. The
            k records of a person that count then do so by 1/max(k, m) of what they would.
        repeats
            (n,): these k, where other records of the persons are elsewhere.

        Raises
        ------
        DeclarationError
            For another shape.
        """
        arms = np.asarray(a, dtype=np.int64)
        unit = None
        factors = self.factors(sampling, len(arms))
        if self.codebook is not None and self.codebook.unit is not None:
            if factors is None:
                factors = np.ones(len(arms))
            factors, unit = self.codebook.unit.shared(factors, person, repeats)
        features = self.features(X)
        outcomes = self.net_outcome(arms, y)
        return Records(features, arms, outcomes, self.space, factors, unit)

    def factors(self, sampling: ArrayLike | None, n_rows: int) -> Array | None:
        """What rows count before persons share it.

        Parameters
        ----------
        sampling
            As of :meth:`records`.
        n_rows
            Number of rows.

        Returns
        -------
        Array or None
            (n,), or (n, K) in K groups, in [0, 1]; None where all rows count the same.

        Raises
        ------
        DeclarationError
            Where groups are declared, and ``sampling`` has another shape.
        """
        factors = None
        if sampling is not None and self.weighted:
            if self.sampling is not None:
                factors = self.sampling.factors(sampling)
            else:
                factors = (np.asarray(sampling, dtype=np.float64) > 0.0).astype(np.float64)
        if self.groups:
            if factors is None or factors.shape != (n_rows, len(self.groups)):
                raise DeclarationError(
                    f"sampling: must say what records count in {len(self.groups)} groups"
                )
            # a record is in one group, whatever is handed in
            is_first = np.cumsum(factors > 0.0, axis=1) == 1
            factors = np.where(is_first, factors, 0.0)
        return factors

    def restricted(self, columns: Sequence[int]) -> Domain:
        """The universe with these covariates alone, by number and in this order."""
        ranges = picked(self.ranges, columns)
        features_bound = self.features_bound
        if ranges is not None:
            features_bound = min(features_bound, norm_within(ranges, self.codebook))
        if isinstance(self.center, Mapping):
            center = {name: value for name, value in self.center.items() if name in ranges} or None
        else:
            center = picked(self.center, columns)
        return replace(
            self,
            ranges=ranges,
            covariate_bound=math.hypot(self.intercept, features_bound),
            coordinate_bound=picked(self.coordinate_bound, columns),
            center=center,
        )

    @classmethod
    def of_space(cls, space: Space) -> Domain:
        """The domain of records that are in a space already, and that its rule leaves as they are.

        Raises
        ------
        DeclarationError
            Where a codebook, ranges or unequal ends of covariates led into the space.
        """
        domain = cls(
            covariate_bound=space.covariate_bound,
            outcome_bound=space.outcome_bound,
            intercept=space.intercept,
            arm_floor=space.arm_floor,
            relation=space.relation,
            coordinate_bound=space.upper,
        )
        if domain.space != space:
            raise DeclarationError(
                "space: is that of another domain, which has to be declared instead"
            )
        return domain

    def to_dict(self) -> dict[str, Any]:
        """The declared constants as plain JSON types."""
        declared = {field.name: json_types(getattr(self, field.name)) for field in fields(self)}
        for name in ("coordinate_bound", "center", "codebook", "binary_outcome", "released"):
            if not declared[name]:  # files of before there were any stay as they are
                del declared[name]
        return declared

    @classmethod
    def from_dict(cls, declared: Mapping[str, Any]) -> Domain:
        """Build a domain from plain values.

        Raises
        ------
        DeclarationError
            On an unknown or missing name.
        """
        return declared_by_name(cls, "domain", declared)


def _as_many(name: str, declared: Sized, n_features: int) -> None:
    """Raise DeclarationError where another number is declared than there are covariates."""
    if len(declared) != n_features:
        raise DeclarationError(f"{name}: {len(declared)} are declared for {n_features} covariates")
