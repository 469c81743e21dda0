"""Where the covariates lie: their mean, which is subtracted, and how far they spread around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dp2erm_cvx.arrays import ROUND_UP_SUMS, Array
from dp2erm_cvx.calibration import IntegerNoise, Noise
from dp2erm_cvx.calibration.base import bracketed
from dp2erm_cvx.data.blocks import VIEW
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space, clip_norm
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.record_map import UNIT, Rows
from dp2erm_cvx.steps.sums import IntegerSums, in_parts, released_mass, totals

#: What squares along the difference of the arms are cut at: at three standard deviations.
SQUARE_CUT = 9
#: Share of the records that miss a number whose gaps are marked, where nothing is declared.
MISSING = 0.05


@dataclass(frozen=True)
class CovariateLaw:
    """Public guess of the scaled covariates: normal, independent but for levels of one column.

    Parameters
    ----------
    spreads
        Standard deviations (k,).
    offsets
        How far the means (k,) lie off 0.
    shares
        Shares of ones (k,) of switches, which are 0 or 1 before they are centered; 0 for the
        others.
    zeros
        What scales to 0 (k,), as a share of ones of a switch; 0 for the others.
    columns
        The number of the raw column of which each (k,) is a level; numbers of their own for all
        others.
    complete
        The numbers of raw columns that have several levels, one of them in every record.
    """

    spreads: tuple[float, ...]
    offsets: tuple[float, ...]
    shares: tuple[float, ...]
    zeros: tuple[float, ...]
    columns: tuple[int, ...]
    complete: tuple[int, ...] = ()

    @classmethod
    def of(cls, domain: Domain, n_features: int) -> CovariateLaw:
        """The law that is guessed from a domain.

        Numbers spread over a third of half their range, around what scales to 0. A covariate that
        is 0 or 1 has its expected share of ones: that of the declared center, else one in as many
        as its column has levels, an undeclared one among them unless it counts as "other". Without
        ranges all lie at two thirds of the norm bound.

        Parameters
        ----------
        domain
            What is declared of the covariates.
        n_features
            k, the number of covariates.
        """
        spreads = np.full(n_features, 1.0 / 3.0)
        if domain.ranges is None:
            spreads[:] = domain.features_bound / (1.5 * math.sqrt(n_features))
        offsets = np.zeros(n_features)
        shares = np.zeros(n_features)
        zeros = np.zeros(n_features)
        columns = np.arange(n_features)
        book = domain.codebook or Codebook()
        sets = book.covariate_levels
        declared = domain.center if isinstance(domain.center, Mapping) else {}
        named = () if domain.codebook is None or domain.columns is None else domain.columns
        for index, name in enumerate(named):
            column, level = book.origin(name)
            if level is None:
                continue
            expected = MISSING
            if column in sets:
                columns[index] = n_features + list(sets).index(column)
                # levels that are not declared are one more
                undeclared = 0 if book.is_complete(column) else 1
                expected = 1.0 / (len(sets[column]) + undeclared)
            share = min(max(declared.get(name, expected), 0.01), 0.99)
            spreads[index] = math.sqrt(share * (1.0 - share))
            shares[index] = share
            zeros[index] = declared.get(name, 0.0)
            offsets[index] = share - zeros[index]
        complete = []
        for number, (column, levels) in enumerate(sets.items(), n_features):
            all_are_covariates = np.sum(columns == number) == len(levels)
            if book.is_complete(column) and all_are_covariates and len(levels) > 1:
                complete.append(number)
        return cls(
            spreads=tuple(spreads.tolist()),
            offsets=tuple(offsets.tolist()),
            shares=tuple(shares.tolist()),
            zeros=tuple(zeros.tolist()),
            columns=tuple(columns.tolist()),
            complete=tuple(complete),
        )

    @property
    def numbers(self) -> tuple[int, ...]:
        """Places of those that are no switches."""
        return tuple(place for place, share in enumerate(self.shares) if not share)

    @property
    def correlations(self) -> Array:
        """Correlations (k, k): of levels of one column, of which one at most is on."""
        same = np.equal.outer(self.columns, self.columns)
        share = np.array(self.shares)
        share = np.minimum(share / np.maximum(same @ share, 1.0), 1.0 - 1e-9)
        odds = np.sqrt(share / (1.0 - share))
        matrix: Array = np.where(same, -np.outer(odds, odds), 0.0)
        np.fill_diagonal(matrix, 1.0)
        return matrix

    def beyond(self, slopes: Array, low: float, high: float) -> float:
        """The share of this law whose log odds lie outside of an interval.

        Covariates are centered. Of the switches of one column one at most is on; their spreads say
        the scale of each. Numbers make a normal part of the log odds, and columns of switches make
        atoms.

        Parameters
        ----------
        slopes
            Those of the log odds (k,).
        low
            Lower end of the interval.
        high
            Upper end of the interval.
        """
        effects = slopes * self.spreads
        share = np.array(self.shares)
        numbers = effects[share == 0.0]
        deviation = max(math.sqrt(float(np.sum(np.square(numbers)))), 1e-300)
        effects /= np.where(share, np.sqrt(share * (1.0 - share)), 1.0)
        atoms, mass = self._atoms(effects)
        below = special.ndtr((low - atoms) / deviation)
        above = special.ndtr((atoms - high) / deviation)
        return float(np.sum(mass * (below + above)))

    def _atoms(self, effects: Array) -> tuple[Array, Array]:
        """Centered sums of what switches add to log odds, and their probabilities.

        Columns are convolved, from some thousand atoms on in a grid.

        Parameters
        ----------
        effects
            What every covariate (k,) adds where it is 1.
        """
        share = np.array(self.shares)
        columns = np.array(self.columns)
        sums: Array = np.zeros(1)
        mass: Array = np.ones(1)
        for column in dict.fromkeys(columns[share > 0.0].tolist()):
            own = (columns == column) & (share > 0.0)
            rates = share[own] / max(float(np.sum(share[own])), 1.0)
            none_is_on = max(1.0 - float(np.sum(rates)), 0.0)
            mean = float(np.sum(rates * effects[own]))
            sums = np.add.outer(sums, np.append(effects[own], 0.0) - mean).ravel()
            mass = np.outer(mass, np.append(rates, none_is_on)).ravel()
            if len(sums) > 4096:
                step = max(float(np.ptp(sums)) / 1024.0, 1e-300)
                grid, place = np.unique(np.rint(sums / step), return_inverse=True)
                sums = grid * step
                mass = np.bincount(place, mass).astype(np.float64)
        return sums, mass

    def box(self, universe: MappedUniverse) -> tuple[Array, Array]:
        """The least and the largest value (k,) of every scaled covariate.

        A switch is at least 0 and at most 1. Both ends hold 0, which a record that does not count
        adds.
        """
        low, high = _box(universe)
        low = np.where(self.shares, -np.array(self.zeros), low)
        high = np.where(self.shares, 1.0 - np.array(self.zeros), high)
        return np.minimum(low, 0.0), np.maximum(high, 0.0)

    @cached_property
    def _squared(self) -> tuple[float, float]:
        """Scale and degrees of freedom of a chi-squared law: it has the squared norm's moments."""
        squares = np.square(self.spreads)
        shifts = np.square(self.offsets)
        mean = float(np.sum(squares + shifts))
        variance = float(np.sum(2.0 * squares**2 + 4.0 * shifts * squares))
        return variance / (2.0 * mean), 2.0 * mean**2 / variance

    def quantile(self, level: float) -> float:
        """Quantile of the norm."""
        scale, degrees = self._squared
        return math.sqrt(scale * float(special.chdtri(degrees, 1.0 - level)))

    def mean_square(self, factor: float, bound: float) -> float:
        """``E min(factor ||x||^2, bound^2) / bound^2``."""
        scale, degrees = self._squared
        z = bound**2 / (factor * scale)
        inner = factor * scale * degrees / bound**2 * float(special.chdtr(degrees + 2.0, z))
        return inner + float(special.chdtrc(degrees, z))

    def within(self, bound: float) -> tuple[float, ...]:
        """Root mean squares (k,) of what a norm ``bound`` leaves of the centered covariates."""
        part = bound * math.sqrt(self.mean_square(1.0, bound)) / math.hypot(*self.spreads)
        return tuple(part * spread for spread in self.spreads)

    def factor(self, share: float, bound: float) -> float:
        """The factor of squared norms at which :meth:`mean_square` is ``share``: .001 to 30."""

        def reaches(factor: float) -> bool:
            return self.mean_square(factor, bound) >= share

        return bracketed(reaches, 30.0, 1e-3)


@dataclass(frozen=True, kw_only=True)
class CovariateMean(IntegerSums):
    """The mean of the scaled covariates: it is subtracted from all of them.

    The records of later steps are then shrunk radially. Both are maps of single records at what was
    released (Theorem 10), into a space that is public whatever the mean is.

    Parameters
    ----------
    law
        What is guessed of the covariates.
    norm
        Bound on the norm of the covariates of later steps.
    subtracted
        False to release the mean alone.
    """

    name: str = "mean"
    law: CovariateLaw
    norm: float
    subtracted: bool = True

    def hands(self, universe: MappedUniverse) -> MappedUniverse:
        """Records whose covariates differ from a point of the box by another point of it."""
        if not self.subtracted:
            return universe
        low, high = _box(universe)
        bound = math.hypot(universe.space.intercept, self.norm)
        width = tuple((high - low).tolist())
        space = replace(
            universe.space,
            covariate_bound=bound,
            lower=tuple(-one for one in width),
            upper=width,
            scale=None,
            columns=None,
        )
        return universe.within(space)

    def calibrate(self, universe: MappedUniverse, budget: Budget) -> IntegerNoise:
        """The noise of the sums, by the box of the covariates or their norm.

        The smaller one counts. Raises CalibrationError where sums do not fit into 64 bits.
        """
        low, high = self.law.box(universe)
        if not UNIT * universe.n_samples * float(np.max(np.maximum(-low, high))) <= 2.0**62:
            text = f"n_samples = {universe.n_samples}, covariates up to {np.max(high):.3g}"
            raise CalibrationError(f"{text}: their sums are beyond 64-bit integers: declare ranges")
        k = universe.n_features
        norm = 2.0 * universe.space.features_bound
        if Noise(self.noise).on_numbers is Noise.GAMMA:
            movement = min(float(np.sum(high - low)), norm * math.sqrt(k))
        else:
            movement = min(float(np.linalg.norm(high - low)), norm)
        return _rounded(movement * ROUND_UP_SUMS, k, budget, self.noise)

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of one mean of a scaled covariate."""
        return super().predicted_error / (self.universe.mass * self.universe.n_samples) ** 2

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """Sums (k,) of scaled covariates in units of ``1/UNIT``."""
        low, high = self.law.box(self.universe)
        return totals(records, partial(_sums, of=np.asarray, low=low, high=high))

    def mean(self, released: Mapping[str, Array]) -> Array:
        """The released mean (k,) of the scaled covariates, in their box and ball."""
        low, high = self.law.box(self.universe)
        mean = np.clip(self.noisy_mean(released), low, high)
        return clip_norm(mean, self.universe.space.features_bound)

    def noisy_mean(self, released: Mapping[str, Array]) -> Array:
        """The mean (k,) as it was released, wherever its noise put it."""
        sums = np.asarray(released[self.name], dtype=np.float64) / UNIT
        return np.asarray(sums / _mass(self.universe, released))

    def around(self, released: Mapping[str, Array]) -> CovariateLaw:
        """The law of covariates around the released mean.

        Switches spread by their share of ones. What is left of the offsets is noise.
        """
        law = self.law
        noise = math.sqrt(self.predicted_error)
        ones = np.array(law.zeros) + self.mean(released)
        ones = np.clip(ones, min(noise, 0.5), max(1.0 - noise, 0.5))
        share = np.where(law.shares, ones, 0.0)
        spreads = np.where(law.shares, np.sqrt(share * (1.0 - share)), law.spreads)
        return replace(
            law,
            spreads=tuple(spreads.tolist()),
            offsets=(noise,) * len(spreads),
            shares=tuple(share.tolist()),
        )

    def mapped(self, records: Records, released: Mapping[str, Array]) -> Records:
        """The records less the mean, shrunk into the ball of the later universe."""
        if not self.subtracted:
            return records
        return _moved(records, self.hands(self.universe), partial(np.add, -self.mean(released)))


@dataclass(frozen=True, kw_only=True)
class ArmMeans(CovariateMean):
    """The number of records of every arm and the sums of their covariates.

    The mean of all covariates follows from them. Covariates are scaled to z in [-1, 1], a switch to
    -1 or 1. A record adds ``(c, c z)`` to the block of its arm, in K-ths, rounded row by row, so
    that no entry is larger than its whole number c; what the rows of a person add has entries of at
    most K in all blocks together. In the norm that adds up the largest entry of every block, a
    replacement moves the sums by at most ``2 K``, for any number of arms and covariates (Theorem
    30).
    """

    @property
    def theorem(self) -> str:
        return "Theorem 30 (integers, noise by arm)"

    def calibrate(self, universe: MappedUniverse, budget: Budget) -> IntegerNoise:
        """Pure noise on the block of every arm; sums must fit into 64 bits."""
        if not UNIT * universe.n_samples <= 2.0**62:
            raise CalibrationError(
                f"n_samples = {universe.n_samples}: sums of so many are beyond 64 bits"
            )
        return in_parts(2 * UNIT, budget, Noise.GAMMA, block=1 + universe.n_features)

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of one mean of a scaled covariate, over all of these."""
        n_arms = self.universe.space.n_arms
        size = self.universe.mass * self.universe.n_samples
        half_widths = self._scaling()[1]
        return float(n_arms * self.calibration.variance * np.mean(half_widths**2) / size**2)

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """For every arm the mass of its records and the sums of z (k,), in units of ``1/UNIT``."""
        middle, half_widths = self._scaling()
        n_arms = self.universe.space.n_arms
        add_up = partial(_sums_of_arms, middle=middle, half_widths=half_widths, n_arms=n_arms)
        return totals(records, add_up)

    def noisy_mean(self, released: Mapping[str, Array]) -> Array:
        middle, half_widths = self._scaling()
        sums = self.by_arm(released)[:, 1:].sum(axis=0)
        return np.asarray(middle + half_widths * sums / _mass(self.universe, released))

    def by_arm(self, released: Mapping[str, Array]) -> Array:
        """Mass and sums of z (K, 1 + k) of every arm, in records, as they were released."""
        n_arms = self.universe.space.n_arms
        return np.reshape(np.asarray(released[self.name], dtype=np.float64) / UNIT, (n_arms, -1))

    def apart(self, released: Mapping[str, Array]) -> tuple[Array, Array]:
        """Means of the covariates of every arm less those of all, and their noise.

        Parameters
        ----------
        released
            Numbers by the names of the steps.

        Returns
        -------
        tuple of Array
            The differences (K, k), and the covariances of their noise (K, k, k).
        """
        means, masses = self._means_by_arm(released)
        half_widths = self._scaling()[1]
        size = _mass(self.universe, released)
        of_all = half_widths * self.by_arm(released)[:, 1:].sum(axis=0) / size
        of_others = (len(masses) - 1) / size**2
        noise = []
        for mass, mean in zip(masses.tolist(), means, strict=True):
            of_sums = (1.0 / mass - 1.0 / size) ** 2 + of_others
            covariance = of_sums * np.diag(half_widths**2) + np.outer(mean, mean) / mass**2
            noise.append(self.calibration.variance * covariance)
        return means - of_all, np.array(noise)

    def difference(self, released: Mapping[str, Array]) -> tuple[Array, Array]:
        """Means of the covariates of the second arm less those of the first, and their noise.

        Parameters
        ----------
        released
            Numbers by the names of the steps.

        Returns
        -------
        tuple of Array
            The difference (k,), and the covariances of the noise of both means (2, k, k).
        """
        means, masses = self._means_by_arm(released)
        of_sums = np.diag(self._scaling()[1] ** 2)
        noise = [
            self.calibration.variance / mass**2 * (of_sums + np.outer(mean, mean))
            for mass, mean in zip(masses.tolist(), means, strict=True)
        ]
        return means[1] - means[0], np.array(noise)

    def _means_by_arm(self, released: Mapping[str, Array]) -> tuple[Array, Array]:
        """Means (K, k) of the covariates of every arm, and masses (K,), at least a fiftieth of all.

        The mass that a sum is divided by has noise as well: where the mean of an arm lies off the
        middle of the box, it moves all its covariates together.
        """
        sums = self.by_arm(released)
        masses = np.maximum(sums[:, 0], _mass(self.universe, released) / 50.0)
        means = self._scaling()[1] * np.clip(sums[:, 1:] / masses[:, None], -1.0, 1.0)
        return means, masses

    def names(self, columns: Sequence[str], arms: Sequence[str]) -> tuple[str, ...]:
        """What every released integer is of: the records of an arm, and its columns."""
        names: list[str] = []
        for arm in arms:
            names.extend(f"{name} | {arm}" for name in ("records", *columns))
        return tuple(names)

    def _scaling(self) -> tuple[Array, Array]:
        """Middle and half the width (k,) of the box of the scaled covariates."""
        low, high = self.law.box(self.universe)
        return 0.5 * (low + high), 0.5 * (high - low)


@dataclass(frozen=True, kw_only=True)
class MeanSquare(IntegerSums):
    """The mean square of the norm of the covariates over its bound, or those of numbers.

    It is the curvature that a regression has in its slopes, so that shrinkage is predicted from it.
    What it says of the size of covariates, against what was guessed, divides them, and they are
    shrunk: a map of single records at what was released (Theorem 10).

    Parameters
    ----------
    law
        What is guessed of the covariates, before any mean is released.
    norm
        Bound on the norm of the covariates of later steps.
    numbers
        Places of the covariates whose mean squares are released one by one. Without them all
        covariates are divided by one factor: they are taken to be alike.
    mean
        The planned step that released the mean before; None for none.
    """

    name: str = "spread"
    law: CovariateLaw
    norm: float
    numbers: tuple[int, ...] = ()
    mean: CovariateMean | None = None

    def hands(self, universe: MappedUniverse) -> MappedUniverse:
        """Records whose covariates have at most this norm."""
        return universe.shrunk(self.norm)

    def plan(self, universe: MappedUniverse, budget: Budget, earlier: Mapping[str, Any]) -> Self:
        step = replace(self, mean=earlier.get("mean"))
        return step.planned(universe, step.calibrate(universe, budget))

    def calibrate(self, universe: MappedUniverse, budget: Budget) -> IntegerNoise:
        """One record moves the sum by one at most, or every sum of k numbers.

        Its squares v over their cuts u are at most 1 each, and ``s = B^2 / min(u)`` together, none
        negative, so that two records differ by at most ``min(k, 2 s)`` in the l1 norm. In the l2
        norm it is the root of ``min(k, 2 s min(s, 1))``, as ``|v - v'|^2 <= |v|^2 + |v'|^2`` and
        ``|v|^2 <= max(v) sum(v)``.
        """
        if not self.numbers:
            return in_parts(UNIT, budget, self.noise)
        k = len(self.numbers)
        total = universe.space.features_bound**2 / float(np.min(self._cuts)) * ROUND_UP_SUMS
        if Noise(self.noise).on_numbers is Noise.GAMMA:
            movement = min(k, 2.0 * total)
        else:
            movement = math.sqrt(min(k, 2.0 * total * min(total, 1.0)))
        return _rounded(movement, k, budget, self.noise)

    @property
    def _cuts(self) -> Array:
        """Cuts of the squares of the numbers (m,): nine times those that are guessed."""
        return np.asarray(9.0 * np.square(np.array(self.law.spreads)[list(self.numbers)]))

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of a mean square, over the squared bound or its cut."""
        return super().predicted_error / (self.universe.mass * self.universe.n_samples) ** 2

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The sum of squared norms over their bound, or of squares over their cut.

        It is in units of ``1/UNIT``.
        """
        of = partial(_squared_norm, bound=self.universe.space.features_bound)
        if self.numbers:
            of = partial(_squares, numbers=self.numbers, cuts=self._cuts)
        return totals(records, partial(_sums, of=of))

    def size(self, released: Mapping[str, Array]) -> tuple[CovariateLaw, Array, Array]:
        """Sizes that follow for covariates: their law, mean squares, and what multiplies each.

        Parameters
        ----------
        released
            Numbers by the names of the steps.

        Returns
        -------
        tuple
            The law around a released mean; the mean square (1,) as a share of the squared bound, at
            least what its noise may be, or those of ``numbers`` as shares (m,) of their cuts; and
            the factors (k,) of the covariates.
        """
        law = self.law
        if self.mean is not None:
            law = self.mean.around(released)
        if self.numbers:
            return self._size_of_numbers(law, released)
        outer = self.universe.space.features_bound
        part = (self.hands(self.universe).space.features_bound / outer) ** 2
        n = _mass(self.universe, released)
        least = self.calibration.scale * self.calibration.unit / n
        share = min(max(float(released[self.name][0]) / UNIT / n, 2.0 * least, 0.02 * part), 1.0)
        upper = law.factor(min(share + math.sqrt(self.predicted_error), 0.999), outer)
        scales: Array = np.ones(len(law.spreads))
        if part < 1.0 or upper < 0.8:  # no record reaches farther than the bound
            scales *= math.sqrt(max(1.0 / upper, part))
        return law, np.array([share]), scales

    def _size_of_numbers(
        self, law: CovariateLaw, released: Mapping[str, Array]
    ) -> tuple[CovariateLaw, Array, Array]:
        """The same where mean squares of numbers were released one by one."""
        own = list(self.numbers)
        n = _mass(self.universe, released)
        noise = math.sqrt(self.predicted_error)
        shares = np.asarray(released[self.name], dtype=np.float64) / UNIT / n
        shares -= np.square(law.offsets)[own] / self._cuts
        # those that may be noise are taken to be alike: the mean of m of them is known better
        likely = shares.copy()
        few = shares < 2.0 * noise
        if few.any():
            likely[few] = max(float(np.mean(shares[few])), noise / math.sqrt(np.sum(few)))
        shares = np.clip(shares, noise, 1.0)
        likely = np.minimum(likely, 1.0)
        scales: Array = np.ones(len(law.spreads))
        scales[own] = np.array(law.spreads)[own] / np.sqrt(self._variances(likely, released))
        # rarer levels than guessed leave room in the ball, which all share
        room = min(max(self.law.quantile(0.95) / law.quantile(0.95), 1.0), 3.0)
        outside = self.universe if self.mean is None else self.mean.universe
        if outside.space.scale is None:
            # a declared norm is that of the records, which do not leave it half empty
            room *= math.sqrt(max(9.0 * float(np.mean(likely)), 1.0))
        widened = replace(
            law,
            spreads=tuple(room * spread for spread in law.spreads),
            offsets=tuple(room * offset for offset in law.offsets),
        )
        return widened, shares, room * scales

    def _variances(self, shares: Array, released: Mapping[str, Array]) -> Array:
        """Variances of the numbers (m,), of whose squares the cut ones have these means.

        A cut takes most of the square of a rare end of a range, where a mean was subtracted: a
        number whose mean square is at least half of what a coin of its mean would have is taken to
        be one.
        """
        variances: Array = shares * self._cuts
        if self.mean is None or self.mean.universe.space.scale is None:
            return variances
        own = list(self.numbers)
        low, high = self.law.box(self.mean.universe)
        mean = self.mean.mean(released)[own]
        above = high[own] - mean
        below = mean - low[own]
        cut_above = np.minimum(above**2 / self._cuts, 1.0)
        cut_below = np.minimum(below**2 / self._cuts, 1.0)
        coin = below * cut_above + above * cut_below
        is_coin = shares >= 0.5 * coin / (high[own] - low[own])
        return np.where(is_coin, np.maximum(variances, above * below), variances)

    def relative_error(self, released: Mapping[str, Array]) -> Array:
        """Noise of the mean square of every covariate (k,): its deviation as a share of that."""
        _, shares, _ = self.size(released)
        errors = np.zeros(len(self.law.spreads))
        places = list(self.numbers) or slice(None)
        errors[places] = math.sqrt(self.predicted_error) / shares
        return errors

    def spreads(self, released: Mapping[str, Array]) -> Array:
        """Root mean squares (k,) of the covariates that are handed on."""
        law, shares, scales = self.size(released)
        outer = self.universe.space.features_bound
        bound = self.hands(self.universe).space.features_bound
        if self.numbers:
            return np.array(law.within(bound))
        square = float(shares[0])
        scale = float(scales[0])
        if scale != 1.0 or bound < outer:
            squares = law.factor(square, outer)
            square = law.mean_square(squares * scale**2, bound)
        if self.mean is not None:
            noise = math.hypot(*law.offsets) * scale / bound
            square = max(square - noise**2, 0.3 * square)
        return np.array(law.spreads) * (bound * math.sqrt(square) / math.hypot(*law.spreads))

    def deviations(self, released: Mapping[str, Array]) -> Array:
        """Standard deviations (k,) of the covariates before they are scaled and shrunk."""
        law, _, scales = self.size(released)
        spreads = np.array(law.spreads) if self.numbers else self.spreads(released)
        return np.asarray(spreads / scales)

    def narrow(self, released: Mapping[str, Array]) -> tuple[int, ...]:
        """Covariates whose mean square may be its noise: how far they spread is not known."""
        error = self.relative_error(released)
        return tuple(place for place in self.numbers if error[place] > 0.9)

    def mapped(self, records: Records, released: Mapping[str, Array]) -> Records:
        """The records, scaled and shrunk into the ball of the later universe."""
        _, _, scale = self.size(released)
        later = self.hands(self.universe)
        if np.all(scale == 1.0) and later.space == self.universe.space:
            return records
        of = partial(_scaled, scale=scale, bound=later.space.features_bound)
        return _moved(records, later, of)


@dataclass(frozen=True, kw_only=True)
class DifferenceSquare(IntegerSums):
    """The mean square of the covariates along the released difference of two arms.

    It is in released spreads, and says how far covariates are from independent along that
    difference: of independent ones it is 1. Each square is cut, so that one record moves the sum by
    at most ``SQUARE_CUT``; the direction was released before (Theorem 10).

    Parameters
    ----------
    law
        What is guessed of the covariates.
    mean
        The planned step that releases the means by arm.
    spread
        The planned step that releases mean squares; None for none.
    """

    name: str = "along"
    law: CovariateLaw
    mean: ArmMeans | None = None
    spread: MeanSquare | None = None

    def plan(self, universe: MappedUniverse, budget: Budget, earlier: Mapping[str, Any]) -> Self:
        step = replace(self, mean=earlier["mean"], spread=earlier.get("spread"))
        return super(DifferenceSquare, step).plan(universe, budget, earlier)

    def calibrate(self, universe: MappedUniverse, budget: Budget) -> IntegerNoise:
        """One record moves the sum by its largest term at most."""
        return in_parts(SQUARE_CUT * UNIT, budget, self.noise)

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the mean square."""
        return super().predicted_error / (self.universe.mass * self.universe.n_samples) ** 2

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The sum of the cut squares, in units of ``1/UNIT``."""
        of = partial(_square_along, slopes=self._slopes(released))
        return totals(records, partial(_sums, of=of, high=float(SQUARE_CUT)))

    def mean_square(self, released: Mapping[str, Array]) -> float:
        """The mean square, as it was released."""
        return float(released[self.name][0]) / UNIT / _mass(self.universe, released)

    def _slopes(self, released: Mapping[str, Array]) -> Array:
        """What covariates (k,), as they are handed on, are multiplied by."""
        assert self.mean is not None
        difference, _ = self.mean.difference(released)
        deviations = np.array(self.law.spreads)
        spreads = deviations
        if self.spread is not None:
            deviations = self.spread.deviations(released)
            spreads = self.spread.spreads(released)
        direction = difference / deviations
        length = float(np.linalg.norm(direction))
        if not 0.0 < length < math.inf:
            direction = np.ones(len(direction))
            length = math.sqrt(len(direction))
        return np.asarray(direction / (length * spreads))


def _rounded(movement: float, k: int, budget: Budget, noise: Noise | str) -> IntegerNoise:
    """Noise of k sums that one replacement moves this far together, before it is rounded.

    Every entry of a record is rounded to an integer: that of a difference moves by at most 1.
    """
    law = Noise(noise).on_numbers
    by_rounding = k if law is Noise.GAMMA else math.isqrt(k) + 1
    return in_parts(math.ceil(UNIT * movement) + by_rounding, budget, law)


def _box(universe: MappedUniverse) -> tuple[Array, Array]:
    ends = universe.space.ends(universe.n_features)
    if ends is None:
        bound = np.full(universe.n_features, universe.space.features_bound)
        return -bound, bound
    return ends


def _sums(
    block: Records, of: Callable[[Array], Array], low: ArrayLike = 0.0, high: ArrayLike = 1.0
) -> NDArray[np.int64]:
    """Sums (m,) in K-ths of the numbers (n, m) that ``of`` makes of covariates.

    Numbers lie between ``low`` and ``high``. A person's sum lies between 0 and one of both,
    whatever its many terms round to.
    """
    counted = block.counts[:, None] * np.clip(of(block.covariates), low, high)
    columns = np.array(block.by_unit(*counted.T)).T
    columns = np.clip(columns, np.minimum(low, 0.0), np.maximum(high, 0.0))
    return np.asarray(np.rint(UNIT * columns).astype(np.int64).sum(axis=0))


def _sums_of_arms(
    block: Records, middle: Array, half_widths: Array, n_arms: int
) -> list[NDArray[np.int64]]:
    """What the records of every arm count, and the sums of their z, in K-ths: (1 + k,) each.

    A row counts a whole number of K-ths, rounded down, so that a person's rows count at most K.
    Clipped after it is divided, z lies in [-1, 1] whatever the division rounds to; where a range
    has no width it is 0.
    """
    counted = np.floor(UNIT * block.counts)
    away = block.covariates - middle
    z = np.divide(away, half_widths, out=np.zeros_like(away), where=half_widths > 0.0)
    z = np.clip(np.nan_to_num(z, nan=0.0, posinf=0.0, neginf=0.0), -1.0, 1.0)
    rows = np.rint(np.column_stack([counted, counted[:, None] * z])).astype(np.int64)
    return [rows[block.a == arm].sum(axis=0) for arm in range(n_arms)]


def _squared_norm(rows: Array, bound: float) -> Array:
    return np.asarray(np.square(np.linalg.norm(rows, axis=1, keepdims=True) / bound))


def _square_along(rows: Array, slopes: Array) -> Array:
    along = Rows.POOLED.predict(np.append(0.0, slopes), rows, 0.0)
    return np.asarray(np.square(along)[:, None])


def _squares(rows: Array, numbers: Sequence[int], cuts: Array) -> Array:
    return np.asarray(np.square(rows[:, list(numbers)]) / cuts)


def _mass(universe: MappedUniverse, released: Mapping[str, Array]) -> float:
    """Mass of all records together: n, or the released sum of their weights, or a guess of it."""
    if not universe.space.weighted or "rate" not in released:
        return universe.mass * universe.n_samples
    return max(released_mass(released["rate"], universe.space.n_arms), 1.0)


def _scaled(rows: Array, scale: Array, bound: float) -> Array:
    return clip_norm(scale * rows, bound)


def _moved(records: Records, later: MappedUniverse, of: Callable[[Array], Array]) -> Records:
    make = partial(_remade, of, later.space)
    return records.mapped(make, attrgetter("y"), later.space, later.n_columns)


def _remade(of: Callable[[Array], Array], space: Space, block: Records) -> Records:
    """The records of a block with other covariates (n, k), in the box and the ball of a space.

    A few rows are made at a time, as several tables of them are made on the way.
    """
    covariates = block.covariates
    first = 1 if space.intercept else 0
    rows = np.empty((len(covariates), first + covariates.shape[1]))
    rows[:, :first] = space.intercept
    for begin in range(0, len(rows), VIEW):
        own = slice(begin, begin + VIEW)
        rows[own, first:] = space.inside(of(covariates[own]))
    return replace(block, X=rows, space=space)
