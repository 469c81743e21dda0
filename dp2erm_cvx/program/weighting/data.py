"""Data of a declared problem in the weights, each told by features of one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.balance import Balance, BalanceFunctions, Moments
from dp2erm_cvx.program.rows import Ball, Datum, DeclaredRecords, PublicPoints, Range, Vertices
from dp2erm_cvx.weighting.forms.features import (
    BallSet,
    ConstantSet,
    Features,
    IntervalSet,
    PublicSet,
    SimilaritySet,
)
from dp2erm_cvx.weighting.forms.form import Arms, Imbalance

#: Name of the feature that is 1 for every record.
ONE = "one"
#: Name of the feature of the covariates without the intercept.
COVARIATES = "covariates"

#: A linear function of features, by their names: matrices (2, K, width), one for each arm.
ByFeature = dict[str, Array]


@dataclass
class FeatureTable:
    """The features that the data of a problem are made of.

    Parameters
    ----------
    records
        The records as the problem sees them.
    features
        Features by name, as far as data have asked for them.
    points
        Public points of kernels by the name of the feature, as far as means have asked for them.
    """

    records: DeclaredRecords
    features: dict[str, Features] = field(default_factory=dict)
    points: dict[str, PublicPoints] = field(default_factory=dict)

    @property
    def n_covariates(self) -> int:
        """Number of covariates without the intercept."""
        return self.records.n_columns - bool(self.records.space.intercept)

    def one(self) -> Features:
        """The feature that is 1 for every record."""
        return self._taken(Features(ONE, ConstantSet(), 1, of=_ones))

    def _taken(self, features: Features) -> Features:
        """The feature of this name, which is taken up where nothing has asked for it before.

        Raises
        ------
        DeclarationError
            Where another feature has the name.
        """
        of_this_name = self.features.setdefault(features.name, features)
        if of_this_name != features:
            raise DeclarationError(
                f"two features are called {features.name!r}: choose another name for one"
            )
        return of_this_name

    def parts(self, datum: Datum) -> ByFeature:
        """A datum (k entries) as a linear function of features.

        Parameters
        ----------
        datum
            A parameter that the records have made.

        Returns
        -------
        ByFeature
            Matrices (2, k, width) whose products with the features of a record add up to its
            entries.

        Raises
        ------
        DeclarationError
            For data of a second stage, whose covariates are others than those of the records.
        """
        name = datum.name()
        if is_mean(datum):
            raise DeclarationError(f"{name}: is no datum of one record")
        if hasattr(datum, "kernel"):
            return self._of_kernel(datum)
        if hasattr(datum, "functions"):
            return self._of_balance(datum)
        if name in self.records.own and name not in _LIBRARY:
            return self._own(datum)
        if self.records.bound is not None:
            raise DeclarationError(f"{name}: weights are declared on the records of a first stage")
        make = _LIBRARY[name]
        return make(self, datum)

    def parts_of_mean(self, datum: Datum) -> tuple[ByFeature, Array]:
        """The mean of an arm or of public points, linear (k entries) in means of features.

        Parameters
        ----------
        datum
            A mean that the records have made.

        Returns
        -------
        tuple
            Matrices (3, k, width) of the means of features over both arms and public points, 0 but
            for one of the three; and public numbers (k,), what the mean of the number 1 makes.

        Raises
        ------
        DeclarationError
            For the means of one kernel over two samples of public points.
        """
        base, averaged_over = datum.averaged
        if isinstance(averaged_over, PublicPoints):
            # of a kernel, the only feature that has values at public points
            name, matrices = next(iter(self.parts(base).items()))
            self._set_points(name, averaged_over)
            of_points = np.zeros((3, *matrices.shape[1:]))
            of_points[2] = matrices[0]
            return {name: of_points}, np.zeros(n_entries(datum))
        arm = averaged_over
        parts: ByFeature = {}
        public_numbers = np.zeros(n_entries(datum))
        for name, matrices in self.parts(base).items():
            if name == ONE:
                public_numbers = public_numbers + matrices[arm, :, 0]
                continue
            of_arm = np.zeros((3, *matrices.shape[1:]))
            of_arm[arm] = matrices[arm]
            parts[name] = of_arm
        return parts, public_numbers

    def _set_points(self, name: str, points: PublicPoints) -> None:
        """Set the public points of a kernel. Raises DeclarationError where it has others."""
        if self.points.setdefault(name, points) != points:
            raise DeclarationError(
                f"{name}: has means over two samples of public points: write one"
            )
        self.features[name] = replace(self.features[name], points=points.X)

    def features_at(self, records: Records, rng: np.random.Generator) -> dict[str, Array]:
        """Values (n, width) of all features by name; any numbers of features that are no vectors.

        Parameters
        ----------
        records
            The records.
        rng
            Draws the latter: of kernels, and of functions of covariates whose number is not known
            yet.
        """
        values = {}
        for name, features in self.features.items():
            if features.of is not None:
                values[name] = features.of(records)
                continue
            values[name] = rng.standard_normal((records.n_samples, features.width))
            if features.points is not None:
                values[features.name_at_points] = rng.standard_normal((1, features.width))
        return values

    def is_drawn(self, datum: Datum) -> bool:
        """Whether any feature of a datum is no vector, so that it is compared at drawn numbers."""
        base = datum.averaged[0] if is_mean(datum) else datum
        return any(self.features[name].of is None for name in self.parts(base))

    def with_points(self, imbalance: Imbalance) -> Imbalance:
        """An imbalance whose kernels have its public points, also where others ask for them."""
        if not self.points:
            return imbalance
        groups = []
        for group in imbalance.groups:
            parts = [replace(part, features=self.features[part.features.name]) for part in group]
            groups.append(tuple(parts))
        return replace(imbalance, groups=tuple(groups))

    def _of_kernel(self, datum: Datum) -> ByFeature:
        """Features of a kernel, with a factor by arm for every block of their width."""
        kernel = datum.kernel
        bound = self.records.space.features_bound
        within = SimilaritySet(kernel.bound(bound), kernel.negative_within(bound))
        width = n_entries(datum) // len(datum.arm_factors)
        features = self._taken(Features(f"kernel {kernel!r}", within, width, kernel=kernel))
        return _in_blocks(features, datum.arm_factors)

    def _of_balance(self, datum: Datum) -> ByFeature:
        """Values of balance functions, with a factor by arm for every block of them."""
        functions = datum.functions
        width = n_entries(datum) // len(datum.arm_factors)
        if functions == Moments(1):
            return _in_blocks(self._covariates(), datum.arm_factors)
        label = repr(functions)
        of: Callable[[Records], Array] | None = _values_of(functions)
        if isinstance(functions, BalanceFunctions):
            label = functions.name
            if not self.records.tried:
                of = None  # nobody knows how many they are of covariates that are an example
        within = BallSet(datum.within.radius)
        features = self._taken(
            Features(f"balance {label}", within, width, of=of, labels=functions.names)
        )
        return _in_blocks(features, datum.arm_factors)

    def _own(self, datum: Datum) -> ByFeature:
        """An author's rows, numbers or cells: a feature of their own."""
        width = n_entries(datum)
        features = Features(
            f"own {datum.name()}", _public_set(datum.within), width, of=_columns_of(datum)
        )
        return {self._taken(features).name: _for_both_arms(np.eye(width))}

    def _covariates(self) -> Features:
        """The feature of the covariates without the intercept."""
        within = BallSet(self.records.space.features_bound)
        names = Moments(1).names
        return self._taken(
            Features(COVARIATES, within, self.n_covariates, of=_covariates_of, labels=names)
        )

    def _x(self, datum: Datum) -> ByFeature:
        """Covariates x with the intercept."""
        return self._covariates_times((1.0, 1.0))

    def _signed(self, datum: Datum) -> ByFeature:
        """Covariates (2a - 1) x with the intercept."""
        return self._covariates_times((-1.0, 1.0))

    def _covariates_times(self, factors: tuple[float, float]) -> ByFeature:
        """Covariates with the intercept, times a factor of the arm."""
        intercept = float(self.records.space.intercept)
        by_arm = np.array(factors)[:, None, None]
        p = self.n_covariates
        if not intercept:
            return {self._covariates().name: by_arm * np.eye(p)}
        of_one = np.zeros((1 + p, 1))
        of_one[0, 0] = intercept
        of_covariates = np.vstack([np.zeros((1, p)), np.eye(p)])
        return {
            self.one().name: by_arm * of_one,
            self._covariates().name: by_arm * of_covariates,
        }

    def _by_arm(self, datum: Datum) -> ByFeature:
        """Rows ``e_a (x) (constant, covariates)``."""
        declared_constant = datum.source
        constant = self.records.space.features_bound
        if declared_constant is not None:
            constant = float(declared_constant)
        p = self.n_covariates
        of_one = np.zeros((2, 2 * (1 + p), 1))
        of_covariates = np.zeros((2, 2 * (1 + p), p))
        for arm in (0, 1):
            begin = arm * (1 + p)
            of_one[arm, begin, 0] = constant
            of_covariates[arm, begin + 1 : begin + 1 + p] = np.eye(p)
        return {self.one().name: of_one, self._covariates().name: of_covariates}

    def _arms(self, datum: Datum) -> ByFeature:
        """The unit vector e_a of the arm: (1, 0) of a control, (0, 1) of a treated record."""
        return {self.one().name: np.array([[[1.0], [0.0]], [[0.0], [1.0]]])}

    def _treatment(self, datum: Datum) -> ByFeature:
        """The treatment a, 0 or 1."""
        return {self.one().name: np.array([[[0.0]], [[1.0]]])}

    def _ones(self, datum: Datum) -> ByFeature:
        """The number 1."""
        return {self.one().name: np.ones((2, 1, 1))}

    def _favored(self, datum: Datum) -> ByFeature:
        """Covariates times sign(y) (2a - 1): a feature of their own."""
        width = n_entries(datum)
        within = BallSet(datum.within.radius)
        features = self._taken(Features("favored covariates", within, width, of=_columns_of(datum)))
        return {features.name: _for_both_arms(np.eye(width))}

    def _outcome(self) -> Features:
        """The feature of the outcome."""
        bound = self.records.space.outcome_bound
        return self._taken(Features("outcome", IntervalSet(-bound, bound), 1, of=_outcome_of))

    def _y(self, datum: Datum) -> ByFeature:
        """The outcome y."""
        return {self._outcome().name: np.ones((2, 1, 1))}

    def _response(self, datum: Datum) -> ByFeature:
        """The response 2 (2a - 1) y."""
        return {self._outcome().name: np.array([[[-2.0]], [[2.0]]])}

    def _outcome_size(self, datum: Datum) -> ByFeature:
        """The absolute value of the outcome: a feature of its own."""
        within = IntervalSet(0.0, self.records.space.outcome_bound)
        features = self._taken(Features("size of the outcome", within, 1, of=_columns_of(datum)))
        return {features.name: np.ones((2, 1, 1))}


#: What makes the parts of data of the library.
_LIBRARY: Mapping[str, Callable[[FeatureTable, Datum], ByFeature]] = {
    "x": FeatureTable._x,
    "signed": FeatureTable._signed,
    "by_arm": FeatureTable._by_arm,
    "arms": FeatureTable._arms,
    "treatment": FeatureTable._treatment,
    "ones": FeatureTable._ones,
    "favored": FeatureTable._favored,
    "y": FeatureTable._y,
    "response": FeatureTable._response,
    "outcome_size": FeatureTable._outcome_size,
}


def at_features(parts: ByFeature, phi: Mapping[str, Array], a: Arms) -> Array:
    """Values (n, K) of a linear function of features.

    Parameters
    ----------
    parts
        The linear function.
    phi
        Features (n, width) by name.
    a
        The arm (n,) of every record.
    """
    total: Array | None = None
    for name, matrices in parts.items():
        of_arms = [phi[name] @ matrix.T for matrix in matrices]
        values = np.where((a == 1)[:, None], of_arms[1], of_arms[0])
        total = values if total is None else total + values
    assert total is not None
    return total


def n_entries(datum: Datum) -> int:
    """Number of entries of one record, or of a mean."""
    if is_mean(datum):
        return int(datum.size)
    if len(datum.shape) == 2:
        return int(datum.shape[1])
    return 1


def is_mean(datum: Datum) -> bool:
    """Whether a datum is a mean over the records of an arm, or over public points."""
    return hasattr(datum, "averaged")


def _in_blocks(features: Features, factors: tuple[tuple[float, float], ...]) -> ByFeature:
    """A feature in blocks of entries, each times its factors of both arms."""
    width = features.width
    by_arm = np.transpose(np.array(factors))
    blocks = [np.vstack([factor * np.eye(width) for factor in of_arm]) for of_arm in by_arm]
    return {features.name: np.array(blocks)}


def _values_of(functions: Balance) -> Callable[[Records], Array]:
    """The map from records to values of functions of their covariates."""

    def values(records: Records) -> Array:
        return functions(records.covariates)

    return values


def _for_both_arms(matrix: Array) -> Array:
    """One matrix for both arms."""
    return np.array([matrix, matrix])


def _public_set(within: Ball | Range | Vertices) -> PublicSet:
    """The public set of a feature of an author's own."""
    if isinstance(within, Ball):
        return BallSet(within.radius)
    if isinstance(within, Range):
        return IntervalSet(within.low, within.high)
    return SimilaritySet(1.0, signed=False)


def _columns_of(datum: Datum) -> Callable[[Records], Array]:
    """The map to the values (n, k) of a datum as it is now.

    An author holds the object, and may change it later.
    """
    of = datum.of

    def columns(records: Records) -> Array:
        values = np.asarray(of(records), dtype=np.float64)
        return values.reshape(len(values), -1)

    return columns


def _ones(records: Records) -> Array:
    """The number 1 (n, 1) of every record."""
    return np.ones((records.n_rows, 1))


def _covariates_of(records: Records) -> Array:
    """Covariates (n, p) without the intercept."""
    return np.asarray(records.covariates)


def _outcome_of(records: Records) -> Array:
    """Outcomes (n, 1)."""
    return np.asarray(records.y)[:, None]
