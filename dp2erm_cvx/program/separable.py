"""Weights read from the minimizer of a sum of margin losses: a stable one, or a private one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.arrays import ROUND_UP, Array
from dp2erm_cvx.checks import public_fraction, public_number, public_size, setting
from dp2erm_cvx.curves.curves import Curve, CurvesByArm, Loss
from dp2erm_cvx.curves.log_weights import LogOfWeight, LogWeight, LogWeightsByArm
from dp2erm_cvx.curves.loss_constants import LossConstants, RowBox
from dp2erm_cvx.curves.suprema import Saturation
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import CalibrationError, DeclarationError, ProgramError
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import Box, ConvexSet, L2Ball, WholeSpace
from dp2erm_cvx.model.sums import noisy_sum, weighted_total
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.declaration import Declaration, Params, Value, printed
from dp2erm_cvx.program.first_stage import BalancedStage, FirstStage
from dp2erm_cvx.program.form import read_curve, read_log_weight
from dp2erm_cvx.program.kernels import PublicSample, declared_sample
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows, MarginSum, RowBounds
from dp2erm_cvx.program.reach import Called
from dp2erm_cvx.program.rows import DeclaredRecords, Range, by_record
from dp2erm_cvx.program.scheme import Function, Scheme, Setting, asked, scheme_settings
from dp2erm_cvx.program.stage import DeclaredProgram, Instance, Kind, RowNeighbors
from dp2erm_cvx.program.stated import DeclaredExpressions
from dp2erm_cvx.program.stated_losses import StatedMargins, stated_margins
from dp2erm_cvx.stability import (
    ArmCurves,
    MarginMovement,
    margin_movement,
    minimizer_norm,
    record_diameter,
)

#: The largest margin that a set may allow for where a loss is exponential: it is exp(12) there.
_LARGEST_MARGIN = 12.0
#: Margins of an unbounded coefficient are taken to be at most this, so that products stay finite.
_LARGEST_REACH = 1e300

#: Margins of one variable that a function may ask for by name, and what they are.
MARGINS: Mapping[str, str] = MappingProxyType({"s": "(2a - 1) <x, v>", "u": "<x, v>"})
#: Name of the argument that is the arm of a record.
ARM = "arm"
#: What no private variant is made of.
_NOT_PRIVATE = (
    "a private coefficient is fitted without offset, base, target, l1, box and normalization by arm"
)
#: Settings of the family that a scheme has where its decorator names them.
KEYWORDS = frozenset({"target", "l1", "box", "arm_total"})
#: The arms in words, controls first.
_ARMS = ("controls", "treated")


@dataclass(frozen=True)
class MarginReading:
    """What was read of a declared loss of margins and of its log weight.

    It holds for all records or for an arm.

    Parameters
    ----------
    curve
        The loss phi of the margin s.
    beside
        The coefficient of the other margin beside it; 0 without one.
    log_weight
        The log weight h = log f.
    loss_text, weight_text
        Loss and log weight in words.
    """

    curve: Curve
    beside: float
    log_weight: LogWeight
    loss_text: str
    weight_text: str


@dataclass(frozen=True)
class RecordNumber:
    """A number of every record by an author's function of ``(x, a)``, cut off at a public interval.

    Parameters
    ----------
    called
        The function, with what it reached when it was declared.
    within
        The interval, which is enforced.
    """

    called: Called
    within: Range

    @staticmethod
    def declared(name: str, given: Any, *, positive: bool) -> RecordNumber:
        """What a keyword of the decorator declares.

        Parameters
        ----------
        name
            What messages and releases call it.
        given
            ``(function, low, high)``.
        positive
            Whether the interval has to lie above 0.

        Raises
        ------
        DeclarationError
            For anything else.
        """
        if not isinstance(given, tuple) or len(given) != 3 or not callable(given[0]):
            raise DeclarationError(f"{name}: must be (function, low, high), a function of x and a")
        function, low, high = given
        within = Range(low, high)
        if positive and not within.low > 0:
            raise DeclarationError(
                f"{name}: its interval must lie above 0, or a record has no weight"
            )
        return RecordNumber(Called.of(name, function), within)

    def of(self, records: Records) -> Array:
        """The numbers (n,) of records; x is without the intercept."""
        function = self.called.unchanged()
        first = 1 if records.space.intercept else 0
        number = by_record(self.called.name, lambda x, a, y: function(x[first:], a), 0)
        return self.within.project(number(records))

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the interval."""
        return self.within.low, self.within.high


@dataclass(frozen=True)
class SchemeReading:
    """What was read of a separable scheme.

    Parameters
    ----------
    arms
        One reading for all records; or that of controls, and that of the treated.
    """

    arms: tuple[MarginReading, ...]

    @property
    def curve(self) -> Loss:
        """The loss."""
        if len(self.arms) == 1:
            return self.arms[0].curve
        controls, treated = self.arms
        return CurvesByArm((controls.curve, treated.curve))

    @property
    def log_weight(self) -> LogOfWeight:
        """The log weight."""
        if len(self.arms) == 1:
            return self.arms[0].log_weight
        controls, treated = self.arms
        return LogWeightsByArm((controls.log_weight, treated.log_weight))

    @property
    def beside(self) -> float:
        """The coefficient of the other margin; 0 where the loss depends on the arm."""
        return self.arms[0].beside

    @property
    def text(self) -> str:
        """Losses and log weights in words."""
        return "; ".join(f"({one.loss_text}, {one.weight_text})" for one in self.arms)


@dataclass(frozen=True, repr=False)
class SeparableFirstStage(DeclaredProgram, FirstStage):
    """``w_i ~ f(<z_i, lam>)``, lam the minimizer of a ridged sum of margin losses.

    minimize    sum_i phi(<z_i, lam>) + <linear, lam> + n ridge/2 ||lam||^2
    subject to  ||lam||_2 <= radius

    Loss phi and log weight f are declared, for all records or for each arm. Rows are
    ``z_i = (2 a_i - 1) x_i`` where the function asks for s, and ``z_i = x_i`` where it asks for u.
    A number of each record may be added to its margin (``offset``), or multiply its loss and its
    weight (``base``), and the mean of public covariates (``target``) times v may be taken from the
    mean loss. Its constants are derived.

    Parameters
    ----------
    ridge
        Penalty on the fitted coefficient: more of it costs balance and gains stability. In units of
        the squared norm bound of the rows, the stability bound does not depend on how covariates
        are scaled.
    radius
        Bound on ``||lam||``; ``inf`` for none.
    target
        Public covariates, whose mean t is the target: ``-n <t, lam>`` is added to the objective.
    l1
        Price of a record of ``||lam||_1``: ``n l1 ||lam||_1`` is added to the objective, so that
        imbalances of up to ``l1`` are free.
    box
        Bound on every ``|lam_k|`` in the place of the radius; ``inf`` for none.
    arm_total
        Of a normalization by arm, tau: weights are f over the sum of f over the own arm, or over n
        tau where that is more. None for the sum alone, which asks for an arm floor of the domain.
    """

    kind: ClassVar[Kind] = Kind.EXPONENTIAL
    by_blocks: ClassVar[bool] = True
    theorem: ClassVar[str] = "Theorems 3, 22 and 23, derived from the declaration"
    arguments: ClassVar[tuple[str, ...]] = (ARM,)

    ridge: float | None = setting(None, public_size, zero=True)
    radius: float | None = setting(math.inf, public_size, infinite=True)
    target: PublicSample | None = setting(None, declared_sample)
    l1: float | None = setting(0.0, public_size, zero=True)
    box: float | None = setting(math.inf, public_size, infinite=True)
    arm_total: float | None = setting(None, public_size)

    @property
    def offset(self) -> RecordNumber | None:
        """What is added to the margin of a record; None for 0."""
        held: RecordNumber | None = self.scheme.options.get("offset")
        return held

    @property
    def base(self) -> RecordNumber | None:
        """What multiplies the loss and the weight of a record; None for 1."""
        held: RecordNumber | None = self.scheme.options.get("base")
        return held

    @property
    def by_own_arm(self) -> bool:
        """Whether weights are normalized by arm, not over all records."""
        return self.scheme.options.get("normalize") == "arm"

    @property
    def is_plain(self) -> bool:
        """Whether the coefficient is that of plain rows over a ball, with one normalization."""
        if self.own_calls() or self.by_own_arm:
            return False
        return not self.number("l1") and math.isinf(self.number("box"))

    def own_calls(self) -> dict[str, Called]:
        numbers = (self.offset, self.base)
        return {one.called.name: one.called for one in numbers if one is not None}

    def own_data(self) -> tuple[str, ...]:
        return tuple(self.own_calls())

    @classmethod
    def leading(cls, function: Function) -> int:
        """Number of arguments of a function before its settings.

        They are the margin, and the arm where it asks for it.
        """
        names = _parameter_names(function)
        if not names or names[0] not in MARGINS:
            raise DeclarationError(
                f"{function.__name__}: its first argument is s, the margin (2a - 1) <x, v>, or u, "
                "that is <x, v>"
            )
        return 2 if names[1:2] == (ARM,) else 1

    @property
    def margins(self) -> Mapping[str, str]:
        """Margins that the function asks for, and what they are."""
        name = _parameter_names(self.scheme.function)[0]
        return {name: MARGINS[name]}

    @property
    def arms(self) -> tuple[int | None, ...]:
        """Arms that the function is asked for, (0, 1); (None,) where it is one for all records."""
        by_arm = self.leading(self.scheme.function) > len(self.margins)
        return (0, 1) if by_arm else (None,)

    @property
    def declared_margins(self) -> SchemeReading:
        """What was read of the declaration.

        Raises ProgramError where a setting of its own is still open.
        """
        self.own_settings()
        held: SchemeReading = self.reading
        return held

    @property
    def loss(self) -> Loss:
        """Phi."""
        return self.declared_margins.curve

    @property
    def log_weight(self) -> LogOfWeight:
        """Log f."""
        return self.declared_margins.log_weight

    def first_reading(self) -> SchemeReading | None:
        try:
            settings = dict(self.own_settings())
        except ProgramError:
            return None
        # functions of the library are compared with CVXPY by its tests, those of authors here
        first = self._asked(settings, compared=not self.scheme.of_library)
        second = self._asked(settings, compared=False)
        self._refuse_changed(first, second)
        return first

    def _asked(self, settings: Mapping[str, float], *, compared: bool) -> SchemeReading:
        """What the function returns, for all records or for each arm."""
        stated = stated_margins(self.scheme)
        if stated and not compared:
            return SchemeReading(tuple(_reading_of(arm, settings) for arm in stated))
        readings = []
        for arm in self.arms:
            reading = margins_read(
                self.scheme.function, tuple(self.margins), settings, compared=compared, arm=arm
            )
            readings.append(reading)
        if all(reading.curve.is_line for reading in readings):
            raise DeclarationError(
                f"{readings[-1].loss_text} has no curvature: nothing keeps the coefficient stable"
            )
        return SchemeReading(tuple(readings))

    def reading_at(self, space: Space, n: int, p: int) -> SchemeReading:
        again = self.first_reading()
        assert again is not None
        self._refuse_changed(self.declared_margins, again)
        features = p - (1 if space.intercept else 0)
        for called in self.own_calls().values():
            _refuse_no_number(called, features)
        return again

    def _refuse_changed(self, declared: SchemeReading, read: SchemeReading) -> None:
        """Raise DeclarationError where the function returns another thing than before."""
        if declared != read:
            raise DeclarationError(
                f"{self.name}: its function returns {declared.text} and, asked again, {read.text}: "
                "it must depend on its settings alone"
            )

    def declared_at(self, universe: MappedUniverse) -> DeclaredExpressions:
        margins = [cp.Variable(name=name) for name in self.margins]
        parts: dict[str, Any] = {}
        for arm in self.arms:
            of_arm = "" if arm is None else f" of {_ARMS[arm]}"
            loss, weight = self.called(*margins, *_argument(arm))
            parts[f"loss{of_arm}"] = _expression_of(loss)
            parts[f"log weight{of_arm}"] = _expression_of(weight)
        sets = {
            number.called.name: number.within
            for number in (self.offset, self.base)
            if number is not None
        }
        return DeclaredExpressions(parts, sets, self.own_calls())

    def refuse_misread(self) -> None:
        _ = self.declared_margins  # read, compared with CVXPY and refused on the way
        self._refuse_two_sets()

    def _refuse_two_sets(self) -> None:
        """Raise DeclarationError for a box beside a radius, or beside a loss that needs one."""
        if math.isinf(self.number("box")):
            return
        if self.radius is None or math.isfinite(self.radius):
            raise DeclarationError(
                f"{self.name}: declare a radius or a box of the coefficient, not both"
            )
        if math.isinf(self.loss.largest_curvature(math.inf)):
            raise DeclarationError(
                f"{self.name}: an exponential loss needs a radius: leave out the box"
            )

    def declared_formula(self) -> str:
        """The program in one line."""
        margins = ", ".join(f"{name} = {text}" for name, text in self.margins.items())
        if self.offset is not None:
            margins += " + offset"
        penalty = self._penalty_in_words()
        normalized = ", normalized by arm" if self.by_own_arm else ""
        factor = "" if self.base is None else "base * "
        readings = self.declared_margins.arms
        loss = "l"
        weight = "h"
        by_arm = ""
        if len(readings) == 1:
            weight = readings[0].weight_text
            loss = readings[0].loss_text
            if factor:
                loss = f"({loss})"
        else:
            for arm, reading in zip(_ARMS, readings, strict=True):
                by_arm += f";  {arm}: l = {reading.loss_text}, h = {reading.weight_text}"
        return (
            f"v = argmin sum {factor}{loss}{penalty}, {margins};  w_i ~ {factor}exp({weight})"
            f"{normalized}{by_arm}"
        )

    def _penalty_in_words(self) -> str:
        """Terms of the coefficient beside the loss, and its set."""
        text = "" if self.target is None else " - n <t, v>"
        if "l1" in self.scheme.settings:
            text += " + n l1 |v|_1"
        bound = "|v_k| <= box" if "box" in self.scheme.settings else "|v| <= R"
        return f"{text} + n mu/2 |v|^2, {bound}"

    def private(self, share: float = 0.3) -> Any:
        """The scheme at these settings with a private coefficient (Theorem 9).

        Parameters
        ----------
        share
            Share of the budget that buys the coefficient.

        Raises
        ------
        DeclarationError
            Where there are offsets, base weights, a target, an l1 norm or a box.
        """
        variant = self.scheme.variant or private(self.scheme, ridge=0.01, radius=2.0)
        settings = {}
        for name in self.setting_fields():
            value = self.value(name)
            if value is not None:
                settings[name] = value
        return variant(**settings, share=share)

    def rows(self, records: Records) -> Array:
        """The rows z_i, (n, k), each a function of its own record."""
        if "u" in self.margins:
            return records.X
        signs = 2.0 * records.a - 1.0  # a product with whole numbers takes twice as long
        return np.asarray(signs[:, None] * records.X)

    def row_bound(self, space: Space) -> float:
        """Bound on ``||z_i||`` over the domain."""
        return space.covariate_bound

    def n_rows(self, universe: MappedUniverse) -> int:
        """k, a public number."""
        return universe.n_columns

    def linear_terms(self, records: Records) -> Array | None:
        """Rows (n, k) whose sum over records is the linear term of the objective; None for 0."""
        return None

    def linear_bound(self, space: Space) -> float:
        """Bound on the norm of one row of :meth:`linear_terms`."""
        return abs(self.declared_margins.beside) * self.row_bound(space)

    def varying(self, space: Space) -> float | None:
        """Bound on all of g but a constant, in units of the row bound.

        Rows are ``e_a (x) g``.

        The linear terms are then multiples of the same g in the other arm. None for other rows.
        """
        return None

    def public_numbers(self, space: Space) -> dict[str, float]:
        return super().public_numbers(space) | {"G": self.row_bound(space)}

    def ball(self, space: Space) -> float:
        """The radius, or that which no minimizer without noise exceeds.

        Exponentials need a small one.
        """
        radius = self.number("radius")
        if math.isfinite(self.loss.largest_curvature(math.inf)):
            return radius
        G = self.row_bound(space)
        if self.kind is not Kind.PRIVATE and self.mu > 0:
            radius = min(radius, self._gradient_at_zero(space) / self.mu * ROUND_UP)
        room = _LARGEST_MARGIN - max(map(abs, self._offsets))
        if not G * radius <= room:
            raise DeclarationError(
                f"radius = {radius:g}: weights of exp({G * radius:.3g}) are out of reach; declare "
                f"a radius of at most {room:g}/G = {room / G:.3g}"
            )
        return radius

    def _gradient_at_zero(self, space: Space) -> float:
        """Bound on the norm of the mean gradient at 0; over the ridge it bounds the minimizer."""
        offsets = np.array(self._offsets)
        slopes = [reading.curve.slope(offsets) for reading in self.declared_margins.arms]
        slope = max(float(np.max(np.abs(of_arm))) for of_arm in slopes)
        slope *= 1.0 if self.base is None else self.base.within.high
        G = self.row_bound(space)
        # that of the other margin is in a block of its own
        gradient = math.hypot(slope, self.declared_margins.beside) * G
        if self.target is not None:
            gradient += (
                G  # the target is a mean of rows that are mapped into the ball of the domain
            )
        return gradient

    def declare(self, data: Params) -> Declaration:
        feasible: ConvexSet = WholeSpace()
        if data.has("radius"):
            feasible = L2Ball(1.0)
        elif data.has("bound"):
            feasible = Box(1.0)
        return MarginRows.declare(data, "coefficient", self.loss, feasible)

    def data(self, records: Records) -> dict[str, Value]:
        return self.model(records).declared()

    def model(
        self,
        records: Records,
        gamma: float = 0.0,
        noise: Array | None = None,
        *,
        counted: bool = False,
    ) -> MarginModel:
        """The exact form, with ``n gamma/2 ||lam||^2 + <noise, lam>`` added to the objective.

        Where losses are ``counted``, sampling weights multiply them.
        """
        return MarginModel(
            records.rows(partial(self._margin_rows, counted=counted)),
            self.loss,
            records.n_samples * (self.mu + gamma),
            Penalty(self._feasible(records.space), records.n_samples * self.number("l1")),
            linear=self._linear(records, noise),
            weight=self.log_weight,
            arm_total=(self.arm_total or 0.0) if self.by_own_arm else None,
        )

    def _margin_rows(self, records: Records, *, counted: bool) -> MarginRows:
        """z, o and c of every record, with its arm where losses or weights depend on it."""
        factor = None
        if counted and records.sampling is not None:
            factor = records.counts
        base = None
        if self.base is not None:
            base = self.base.of(records)
            factor = base if factor is None else factor * base
        offset = None if self.offset is None else -self.offset.of(records)
        depends_on_arm = self.by_own_arm or self.arms != (None,)
        arm = records.a if depends_on_arm else None
        return MarginRows(self.rows(records), offset=offset, factor=factor, arm=arm, base=base)

    def mean_target(self, space: Space, columns: int) -> Array | None:
        """The mean t of the target on the scale of the rows, (k,), or None.

        The intercept comes first.
        """
        if self.target is None:
            return None
        features = columns - (1 if space.intercept else 0)
        mean = np.mean(self.target.scaled(space, features), axis=0)
        return np.concatenate([np.full(columns - features, float(space.intercept or 0.0)), mean])

    def _linear(self, records: Records, noise: Array | None = None) -> Array | None:
        """The sum of all linear terms and the noise, (k,), rounded once."""
        columns = records.n_features + (1 if records.space.intercept else 0)
        target = self.mean_target(records.space, columns)
        if target is not None:  # no other linear term, and no noise: the product is rounded once
            return -records.n_samples * target
        return noisy_sum(records.rows(self.linear_terms).map(weighted_total), noise)

    def _feasible(self, space: Space) -> ConvexSet:
        """The set of the coefficient."""
        self._refuse_two_sets()
        box = self.number("box")
        if math.isfinite(box):
            return Box(box)
        ball = self.ball(space)
        return WholeSpace() if math.isinf(ball) else L2Ball(ball)

    def margin_sum(
        self, universe: MappedUniverse, gamma: float = 0.0, noise_bound: float = 0.0
    ) -> MarginSum:
        """Public bounds of the model.

        Parameters
        ----------
        universe
            The public sizes that the program is used at.
        gamma
            What is added to the ridge, per record.
        noise_bound
            Bound on the norm of the noise.
        """
        n = universe.n_samples
        space = universe.space
        linear = self.linear_bound(space) + self.pull(universe)
        return MarginSum(
            n,
            self.n_rows(universe),
            self.loss,
            RowBounds(self.row_bound(space), self._offsets, self._factors),
            self._feasible(space),
            ridge=n * (self.mu + gamma),
            linear=n * linear + noise_bound,
            weighted=space.weighted or self.base is not None,
            n_rows=universe.most_rows,
        )

    def movement(self, universe: MappedUniverse) -> MarginMovement:
        """Numbers of Theorems 3, 22 and 23 of a resolved program, from losses and log weights."""
        space = universe.space
        Z = self.row_bound(space)
        settings: dict[str, Any] = {
            "beside": self.linear_bound(space) / Z,
            "varying": self.varying(space),
            "pull": self.pull(universe),
            "l1": self.number("l1"),
            "box": self.number("box"),
            "dimension": self.n_rows(universe),
        }
        if self.by_own_arm:
            settings["normalization"] = "arm"
            settings["arm_total"] = self.arm_total
        if self.by_own_arm or self.arms != (None,):
            settings["arm_floor"] = space.arm_floor
        if math.isinf(self.number("box")):
            settings["radius"] = self.ball(space)
        else:
            self._refuse_two_sets()
        return margin_movement(universe.n_samples, self.mu, Z, self.curves, **settings)

    @property
    def _offsets(self) -> tuple[float, float]:
        """The interval of offsets."""
        return (0.0, 0.0) if self.offset is None else self.offset.interval

    @property
    def _factors(self) -> tuple[float, float]:
        """The interval of base weights."""
        return (1.0, 1.0) if self.base is None else self.base.interval

    @property
    def curves(self) -> tuple[ArmCurves, ...]:
        """Loss and log weight, for all records or by arm, with offsets and factors.

        The latter two are intervals.
        """
        return tuple(
            ArmCurves(
                reading.curve,
                reading.log_weight,
                offset=self._offsets,
                factor=self._factors,
                tied=self.base is not None,
            )
            for reading in self.declared_margins.arms
        )

    def pull(self, universe: MappedUniverse) -> float:
        """Norm of the target t; 0 without one."""
        target = self.mean_target(universe.space, universe.n_columns)
        return 0.0 if target is None else float(np.linalg.norm(target)) * ROUND_UP

    def bound(self, universe: MappedUniverse) -> StabilityBound:
        """Theorem 3, or 22 and 23."""
        return self.movement(universe).bound

    def gradient_diameter(self, space: Space) -> float:
        """D_psi: diameter of the gradients of the loss of one record, linear term included.

        Of a resolved program, at one and the same coefficient, the largest over the ball (Lemma 1).
        """
        Z = self.row_bound(space)
        beside = self.linear_bound(space) / Z
        reach = min(Z * self.ball(space), _LARGEST_REACH)
        return Z * record_diameter(self.curves, reach, beside, self.varying(space))

    def row_neighbors(self, records: Records) -> RowNeighbors | None:
        if not self.is_plain:
            return None  # the fast path has plain rows, over a ball, and one normalization
        total = self._linear(records)

        def replaced(old: Records, new: Records) -> tuple[Array, Array | None]:
            rows = self.rows(new)
            if total is None:
                return rows, None
            old_terms = self.linear_terms(old)
            new_terms = self.linear_terms(new)
            if old_terms is None or new_terms is None:
                return rows, np.tile(total, (len(rows), 1))
            return rows, total - old_terms + new_terms

        return replaced

    def certified_error(self, universe: MappedUniverse) -> float | None:
        return self.margin_sum(universe).weights(self.log_weight, by_arm=self.by_own_arm)


@dataclass(frozen=True, repr=False)
class PrivateFirstStage(SeparableFirstStage):
    """Weights read from a coefficient that is itself private.

    Its noise b is one more linear term of its model.

    A ``share`` of the budget buys it. Theorems 1 and 2 calibrate b at uniform weights from the
    constants of one record; given lam each weight depends on its own record and the normalization
    only, hence V = 2 w_max (Theorem 9). Its constants follow from the loss.

    Parameters
    ----------
    share
        Share of the budget that buys the coefficient.
    ridge
        Of the coefficient. No ridge is needed for stability.
    radius
        Bound on ``||lam||``, hence on weights.
    """

    kind: ClassVar[Kind] = Kind.PRIVATE
    theorem = "Theorem 9: V = 2 w_max, given lam"

    radius: float | None = setting(None, public_size, infinite=True)
    share: float = setting(0.3, public_fraction)

    def perturbed(self, records: Records, gamma: float, noise: Array) -> Instance:
        """Bind the program to data, with the ridge and the noise of its calibration.

        Parameters
        ----------
        records
            The records.
        gamma
            What is added to the ridge, per record.
        noise
            b (k,), which is added to the linear term.
        """
        program = self.resolve(records.space)
        model = program.model(records, gamma, noise, counted=True)
        return Instance(program, model.declared, model)

    def certified_radius(
        self, universe: MappedUniverse, gamma: float, noise_bound: float
    ) -> float | None:
        """Public bound on the radius that the coefficient is certified to on every dataset.

        For every noise with ``||b|| <= noise_bound``. None where no such bound is known.
        """
        gamma = public_number("gamma", gamma, at_least=0)
        noise_bound = public_number("noise_bound", noise_bound, at_least=0)
        program = self.resolve(universe.space)
        sizes = program.margin_sum(universe, gamma, noise_bound).sizes()
        return None if sizes is None else sizes.radius()

    def certified_error(self, universe: MappedUniverse, norm: float | None = None) -> float | None:
        # given a coefficient of at most this public norm, which follows from its calibration
        bound = self.row_bound(universe.space)
        length = self.ball(universe.space)
        if norm is None and math.isinf(length):
            return None
        if norm is not None:
            length = min(norm, length)
        return self.log_weight.error_at(self.n_rows(universe), bound, length)

    def loss_constants(self, universe: MappedUniverse) -> LossConstants:
        """Constants of the loss of the coefficient, for Theorems 1 and 2 at uniform weights."""
        Z = self.row_bound(universe.space)
        ball = self.ball(universe.space)
        if self.mu == 0 and math.isinf(ball):
            raise CalibrationError(f"{self.name}: declare a positive ridge or a finite radius")
        pull = self.linear_bound(universe.space)
        slope = self.loss.largest_slope(Z * ball)
        theta_bound = ball
        if math.isinf(ball):
            theta_bound = minimizer_norm(self.curves, self.mu / Z**2, math.inf, pull / Z) / Z
        saturation = None
        if isinstance(self.loss, Curve) and not pull:
            saturation = Saturation.of(self.loss, Z, 1.0, Z * ball)
        box = None
        has_one_margin = len(self.margins) == 1
        if has_one_margin and not pull and universe.widths is not None:
            box = RowBox(universe.widths, slope)
        return LossConstants(
            n_parameters=self.n_rows(universe),
            gradient_radius=self.gradient_diameter(universe.space) / 2,
            hessian_trace=self.loss.largest_curvature(Z * ball) * Z**2,
            strong_convexity=self.mu,
            theta_bound=theta_bound if math.isfinite(theta_bound) else None,
            outcome_bound=1.0,
            gradient_bound=None if pull else Z * slope,
            saturation=saturation,
            is_margin=not pull,
            box=box,
        )

    def bound(self, universe: MappedUniverse) -> StabilityBound:
        n = universe.n_samples
        margin = self.row_bound(universe.space) * self.ball(universe.space)
        w_max = stability.largest_weight(n, self.log_weight.log_range(margin))
        if math.isinf(margin) and w_max >= n:
            raise CalibrationError(
                f"{self.name}: declare a finite radius or trim, or no weight is bounded"
            )
        return stability.fixed_up_to_scale(
            n, w_max, "the coefficient is a private output of the first stage"
        )


@dataclass(frozen=True, repr=False)
class BalancedProgram(BalancedStage, SeparableFirstStage):
    """A separable scheme at margins of ``g = (constant, balance(x))``.

    They are s in the own arm, and t in the other one.

    ``s = <b_i, v>`` with ``b_i = e_a (x) g(x_i)``; t, of ``c_i = e_(1-a) (x) g(x_i)``, may enter
    the loss linearly.
    """

    @property
    def margins(self) -> Mapping[str, str]:
        """The margins of a record at the coefficients of its own arm and of the other one."""
        return {"s": "<g(x), v_a>", "t": "<g(x), v_(1-a)>"}

    @classmethod
    def leading(cls, function: Function) -> int:
        """The two margins, by their names."""
        names = list(inspect.signature(function).parameters)
        if names[:2] != ["s", "t"]:
            raise DeclarationError(
                f"{function.__name__}: by_arm asks for the margins s and t, of the own and the "
                "other arm"
            )
        return 2

    def row_bound(self, space: Space) -> float:
        """G: norm bound of g."""
        return math.hypot(*self.bounds(space)) * ROUND_UP

    def varying(self, space: Space) -> float:
        return self.bounds(space)[0] / self.row_bound(space)

    def n_rows(self, universe: MappedUniverse) -> int:
        """2 (1 + k) for k balance functions."""
        return 2 * (1 + self.balance.size(universe.n_features))

    def rows(self, records: Records) -> Array:
        return self.in_arm(records, records.a, np.ones(2))

    def linear_terms(self, records: Records) -> Array | None:
        beside = self.declared_margins.beside
        if not beside:
            return None
        return self.in_arm(records, 1 - records.a, np.full(2, beside))


@dataclass(frozen=True, repr=False)
class PrivateBalancedProgram(PrivateFirstStage, BalancedProgram):
    """A separable scheme of balance functions with a private coefficient (Theorem 9)."""


@lru_cache(maxsize=256)
def _parameter_names(function: Function) -> tuple[str, ...]:
    """Names of the parameters of a function, which every pass over records asks for."""
    return tuple(inspect.signature(function).parameters)


def _argument(arm: int | None) -> tuple[int, ...]:
    """The arm as an argument of a function; none where it is one for all records."""
    return () if arm is None else (arm,)


def _reading_of(stated: StatedMargins, settings: Mapping[str, float]) -> MarginReading:
    """What is stated of a function, as if it had been read at these settings."""
    log_weight, weight_text = stated.weight(settings)
    return MarginReading(stated.curve, stated.beside, log_weight, stated.loss_text, weight_text)


def _refuse_no_number(called: Called, features: int) -> None:
    """Raise DeclarationError for an author's function that is no number at records of zeros."""
    function = called.unchanged()

    def of_record(x: Array, a: int, y: float) -> Any:
        return function(x, a)

    DeclaredRecords.at_zeros(called.name, of_record, features, 1)


def margins_read(
    function: Function,
    margins: tuple[str, ...],
    settings: Mapping[str, float],
    *,
    compared: bool,
    arm: int | None = None,
) -> MarginReading:
    """What a function of margins returns, for all records or for an arm.

    Parameters
    ----------
    function
        The author's function.
    margins
        Names of the margins that it is a function of.
    settings
        Its settings by name.
    compared
        Whether what was read is compared with values and slopes of CVXPY.
    arm
        0 for controls, 1 for the treated; None where the function does not ask for the arm.

    Returns
    -------
    MarginReading

    Raises
    ------
    DeclarationError
        For what is not read, for weights that may be 0, and for a loss without curvature where the
        log weight is not constant.
    """
    variables = [cp.Variable(name=name) for name in margins]
    returned = asked(function, *variables, *_argument(arm), **settings)
    _refuse_no_pair(function, returned, margins[0])
    loss, weight = map(_expression_of, returned)
    curve, beside = read_curve(loss, *variables, compared=compared)
    log_weight = read_log_weight(weight, variables[0], compared=compared)
    if curve.is_line and not log_weight.is_constant:
        raise DeclarationError(
            f"{printed(loss)} has no curvature: nothing keeps the log weight {printed(weight)} "
            "stable"
        )
    if not np.all(np.isfinite(log_weight.log(np.zeros(1)))):
        raise DeclarationError(
            f"{printed(weight)} is no finite log weight: a record that is left out has no bound; "
            "give it a small weight"
        )
    return MarginReading(curve, beside, log_weight, printed(loss), printed(weight))


def _refuse_no_pair(function: Function, returned: Any, margin: str) -> None:
    """Raise DeclarationError where a function of a margin returns no loss and log weight."""
    kinds = int | float | cp.Expression
    if isinstance(returned, tuple):
        if len(returned) == 2 and all(isinstance(part, kinds) for part in returned):
            return
        what = "other values"
    elif isinstance(returned, cp.Expression):
        what = f"the expression {printed(returned)} alone"
    else:
        what = f"an object of the class {type(returned).__name__}"
    raise DeclarationError(
        f"{function.__name__}: returns {what}: return (loss, log weight) of the margin {margin}"
    )


def _expression_of(part: Any) -> Any:
    """A loss or a log weight as an expression, which may be one number."""
    return part if isinstance(part, cp.Expression) else cp.Constant(part)


def private(
    scheme: Scheme,
    *,
    ridge: Setting,
    radius: Setting,
    share: float = 0.3,
    name: str = "",
    **settings: Any,
) -> Scheme:
    """Variant of a separable scheme whose coefficient is private itself (Theorem 9), as a scheme.

    Parameters
    ----------
    scheme
        The separable scheme.
    ridge, radius
        Defaults of the ridge and of the radius of the coefficient.
    share
        Default of the share of the budget that buys the coefficient.
    name
        Its name; by default that of the scheme with ``_private`` behind it.
    settings
        Defaults of other settings.

    Raises
    ------
    DeclarationError
        For a scheme with offsets, base weights, a target, an l1 norm, a box or a normalization by
        arm.
    """
    if scheme.options or not KEYWORDS.isdisjoint(scheme.settings):
        raise DeclarationError(f"{scheme.name}: {_NOT_PRIVATE}")
    family: Any = PrivateFirstStage
    if issubclass(scheme.family, BalancedProgram):
        family = PrivateBalancedProgram
    defaults = {**scheme.formulas, "ridge": ridge, "radius": radius, "share": share, **settings}
    fields, formulas = scheme_settings(
        family, defaults, base=scheme.settings, hidden=tuple(KEYWORDS)
    )
    variant = Scheme(
        scheme.function, family, fields, formulas, scheme.options, name or f"{scheme.name}_private"
    )
    vars(scheme)["variant"] = variant
    return variant
