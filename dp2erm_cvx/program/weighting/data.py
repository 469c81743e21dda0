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
    known
        Features by name, as far as data have asked for them.
    points
        Public points of kernels by the name of the feature, as far as means have asked for them.
    """

    records: DeclaredRecords
    known: dict[str, Features] = field(default_factory=dict)
    points: dict[str, PublicPoints] = field(default_factory=dict)

    @property
    def n_covariates(self) -> int:
        """Number of covariates without the intercept."""
        return self.records.n_columns - bool(self.records.space.intercept)

    def one(self) -> Features:
        """The feature that is 1 for every record."""
        return self._known(Features(ONE, ConstantSet(), 1, of=_ones))

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
        base, over = datum.averaged
        found: ByFeature = {}
        if isinstance(over, PublicPoints):
            name, tensor = next(iter(self.parts(base).items()))
            self._at_points(name, over)
            of_points = np.zeros((3, *tensor.shape[1:]))
            of_points[2] = tensor[0]
            return {name: of_points}, np.zeros(n_entries(datum))
        public = np.zeros(n_entries(datum))
        for name, tensor in self.parts(base).items():
            if name == ONE:
                public = public + tensor[over, :, 0]
                continue
            of_arm = np.zeros((3, *tensor.shape[1:]))
            of_arm[over] = tensor[over]
            found[name] = of_arm
        return found, public

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
        found = {}
        for name, features in self.known.items():
            if features.of is None:
                found[name] = rng.standard_normal((records.n_samples, features.width))
                if features.points is not None:
                    found[features.name_at_points] = rng.standard_normal((1, features.width))
            else:
                found[name] = features.of(records)
        return found

    def is_drawn(self, datum: Datum) -> bool:
        """Whether any feature of a datum is no vector, so that it is compared at drawn numbers."""
        base = datum.averaged[0] if is_mean(datum) else datum
        return any(self.known[name].of is None for name in self.parts(base))

    def with_points(self, imbalance: Imbalance) -> Imbalance:
        """An imbalance whose kernels have its public points, also where others ask for them."""
        if not self.points:
            return imbalance
        groups = []
        for group in imbalance.groups:
            parts = [replace(part, features=self.known[part.features.name]) for part in group]
            groups.append(tuple(parts))
        return replace(imbalance, groups=tuple(groups))

    def _at_points(self, name: str, points: PublicPoints) -> None:
        """Keep the public points of a kernel. Raises DeclarationError where it has others."""
        if self.points.setdefault(name, points) == points:
            self.known[name] = replace(self.known[name], points=points.X)
        else:
            raise DeclarationError(
                f"{name}: has means over two samples of public points: write one"
            )

    def _known(self, features: Features) -> Features:
        """The feature of this name. Raises DeclarationError where another one has it."""
        found = self.known.setdefault(features.name, features)
        if found != features:
            raise DeclarationError(
                f"two features are called {features.name!r}: choose another name for one"
            )
        return found

    def _own(self, datum: Datum) -> ByFeature:
        """An author's rows, numbers or cells are a feature of their own."""
        width = n_entries(datum)
        features = Features(
            f"own {datum.name()}", _public_set(datum.within), width, of=_columns_of(datum)
        )
        return {self._known(features).name: _alike(np.eye(width))}

    def _of_kernel(self, datum: Datum) -> ByFeature:
        """Features of a kernel, with a factor by arm for every block of their width."""
        kernel = datum.kernel
        bound = self.records.space.features_bound
        within = SimilaritySet(kernel.bound(bound), kernel.negative_within(bound))
        width = n_entries(datum) // len(datum.arm_factors)
        features = self._known(Features(f"kernel {kernel!r}", within, width, kernel=kernel))
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
        features = self._known(
            Features(f"balance {label}", within, width, of=of, labels=functions.names)
        )
        return _in_blocks(features, datum.arm_factors)

    def _covariates(self) -> Features:
        within = BallSet(self.records.space.features_bound)
        names = Moments(1).names
        return self._known(
            Features(COVARIATES, within, self.n_covariates, of=_covariates_of, labels=names)
        )

    def _x(self, datum: Datum) -> ByFeature:
        return self._times((1.0, 1.0))

    def _signed(self, datum: Datum) -> ByFeature:
        return self._times((-1.0, 1.0))

    def _times(self, factors: tuple[float, float]) -> ByFeature:
        """Covariates with the intercept, times a factor of the arm."""
        intercept = float(self.records.space.intercept)
        by_arm = np.array(factors)[:, None, None]
        p = self.n_covariates
        if not intercept:
            return {self._covariates().name: by_arm * np.eye(p)}
        first = np.zeros((1 + p, 1))
        first[0, 0] = intercept
        rest = np.vstack([np.zeros((1, p)), np.eye(p)])
        return {self.one().name: by_arm * first, self._covariates().name: by_arm * rest}

    def _by_arm(self, datum: Datum) -> ByFeature:
        """Rows ``e_a (x) (constant, covariates)``."""
        stated = datum.source
        constant = self.records.space.features_bound if stated is None else float(stated)
        p = self.n_covariates
        first = np.zeros((2, 2 * (1 + p), 1))
        rest = np.zeros((2, 2 * (1 + p), p))
        for arm in (0, 1):
            begin = arm * (1 + p)
            first[arm, begin, 0] = constant
            rest[arm, begin + 1 : begin + 1 + p] = np.eye(p)
        return {self.one().name: first, self._covariates().name: rest}

    def _arms(self, datum: Datum) -> ByFeature:
        return {self.one().name: np.array([[[1.0], [0.0]], [[0.0], [1.0]]])}

    def _treatment(self, datum: Datum) -> ByFeature:
        return {self.one().name: np.array([[[0.0]], [[1.0]]])}

    def _ones(self, datum: Datum) -> ByFeature:
        return {self.one().name: np.ones((2, 1, 1))}

    def _favored(self, datum: Datum) -> ByFeature:
        width = n_entries(datum)
        within = BallSet(datum.within.radius)
        features = self._known(Features("favored covariates", within, width, of=_columns_of(datum)))
        return {features.name: _alike(np.eye(width))}

    def _outcome(self) -> Features:
        bound = self.records.space.outcome_bound
        return self._known(Features("outcome", IntervalSet(-bound, bound), 1, of=_outcome_of))

    def _y(self, datum: Datum) -> ByFeature:
        return {self._outcome().name: np.ones((2, 1, 1))}

    def _response(self, datum: Datum) -> ByFeature:
        return {self._outcome().name: np.array([[[-2.0]], [[2.0]]])}

    def _outcome_size(self, datum: Datum) -> ByFeature:
        within = IntervalSet(0.0, self.records.space.outcome_bound)
        features = self._known(Features("size of the outcome", within, 1, of=_columns_of(datum)))
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
    """Values (n, K) of a linear function at features (n, width) by name and arms (n,)."""
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
    return int(datum.shape[1]) if len(datum.shape) == 2 else 1


def is_mean(datum: Datum) -> bool:
    """Whether a datum is a mean over the records of an arm."""
    return hasattr(datum, "averaged")


def _in_blocks(features: Features, factors: tuple[tuple[float, float], ...]) -> ByFeature:
    """A feature times factors by arm, one block of entries for each of them."""
    width = features.width
    by_arm = np.transpose(np.array(factors))
    blocks = [np.vstack([factor * np.eye(width) for factor in of_arm]) for of_arm in by_arm]
    return {features.name: np.array(blocks)}


def _values_of(functions: Balance) -> Callable[[Records], Array]:
    """The map from records to values of functions of their covariates."""

    def values(records: Records) -> Array:
        return functions(records.covariates)

    return values


def _alike(matrix: Array) -> Array:
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
    return np.ones((records.n_rows, 1))


def _covariates_of(records: Records) -> Array:
    return np.asarray(records.covariates)


def _outcome_of(records: Records) -> Array:
    return np.asarray(records.y)[:, None]
