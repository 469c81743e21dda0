"""Second stages: perturbed weighted empirical risk minimization over theta."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import chosen_columns, declared_choice, public_number, setting
from dp2erm_cvx.curves.curves import SQUARE, Curve
from dp2erm_cvx.curves.loss_constants import LossConstants, RowBox
from dp2erm_cvx.curves.suprema import Saturation
from dp2erm_cvx.data.blocks import Beside
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space, clip_norm
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.composite import Composite, Penalty
from dp2erm_cvx.model.kinked import KinkedProblem
from dp2erm_cvx.model.quadratics import WithQuadratic
from dp2erm_cvx.model.sets import Box, ConvexSet, ElasticNet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.model.sums import noisy_sum, weighted_total
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.declaration import (
    SIZES,
    Declaration,
    Params,
    Value,
    printed,
    refuse_misread,
    with_n,
)
from dp2erm_cvx.program.form import Form, MarginTerm, at_size
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows, MarginSum, RowBounds
from dp2erm_cvx.program.penalties import PublicPenalty
from dp2erm_cvx.program.reach import Called
from dp2erm_cvx.program.rows import DeclaredRecords, Range
from dp2erm_cvx.program.scheme import STANDARD
from dp2erm_cvx.program.stage import DeclaredProgram, Instance
from dp2erm_cvx.program.stated import DeclaredExpressions
from dp2erm_cvx.program.stated_losses import stated_loss

#: Largest ratio of curvatures for which a solve is sure of its radius where Newton's method may
#: stall: of a loss whose Hessian jumps, and beside public quadratic terms, which may be steep in
#: some directions alone. Beyond 1e7 projected gradient has been seen to miss it as well.
STEEPEST = 1e6
#: Numbers of records and of columns that a declaration is read at where it stands: the same must be
#: read.
PLACES = ((SIZES[0], 3), (SIZES[1], 4), (1009, 7))
#: Thetas at which a reading is compared with CVXPY, repeated to their number of entries. They
#: repeat no entry.
_EXAMPLE_THETAS = 0.3 * np.array([[1.0, 0.2, -0.4], [-0.3, 0.7, 0.5], [0.1, -0.9, 0.6]])
#: Units below it leave floating point when they are divided by.
_LEAST_UNIT = 1e-300


def _feature_list(name: str, value: Any) -> tuple[Any, ...]:
    """A list of covariates. Raises DeclarationError for anything else."""
    if not isinstance(value, tuple | list) or not value:
        raise DeclarationError(f"{name} = {value!r}: must be a list of covariates")
    return tuple(value)


@dataclass(frozen=True)
class LossReading:
    """What was read of a declared loss, and where.

    Parameters
    ----------
    form
        The sum over records, with its penalties in units of one record.
    text
        The declared problem in words.
    space
        The space that it was read in; None for the standard one, which says nothing of sizes of
        theta.
    """

    form: Form
    text: str
    space: Space | None = None


@dataclass(frozen=True, repr=False)
class SecondStage(DeclaredProgram):
    """Weighted minimization of a declared loss of one margin, with objective perturbation.

    Its minimizer over Theta is theta_priv (equation weighted_convex_opt_DP), that of
    ``(1/n) sum w_i l(theta; d_i) + R(theta) + gamma/2 ||theta||^2 + <b, theta>/n``;
    n times this is

    minimize    sum_i w_i (c_i phi(s_i) + t_i s_i) + <noise, theta>
                + curvature/2 ||theta||^2 + n R(theta)
    subject to  s_i = <z_i, theta> - o_i,  theta in Theta

    The declared problem may add public penalties of theta: linear and quadratic terms, norms,
    absolute values, maxima and Huber's function of affine functions of theta.

    Parameters
    ----------
    theta_set
        Theta, the public set of the parameter; None leaves it to the program and the domain.
    regularizer
        An elastic net in the place of the l1 norm and the squares of theta that the program
        declares.
    features
        Names that the space has, or column numbers without the intercept; default: all.
    features_bound
        Norm that the chosen features are shrunk to, radially; default: the domain's own bound.
    """

    by_blocks: ClassVar[bool] = True
    theorem: ClassVar[str] = "Theorems 1, 2 and 15 to 19, derived from the declaration"
    defaults: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "theta_set": "the set that it declares",
            "features": "all",
            "features_bound": "that of the domain",
        }
    )
    theta_set: ConvexSet | None = setting(
        None, declared_choice, kinds=(WholeSpace, L1Ball, L2Ball, Box)
    )
    regularizer: ElasticNet = setting(ElasticNet(), declared_choice, kinds=(ElasticNet,))
    features: tuple[str | int, ...] | None = setting(None, _feature_list)
    features_bound: float | None = setting(None, above=0)

    @property
    def coordinates(self) -> tuple[str, ...] | None:
        """Names of the entries of theta where rows are no covariates, or None.

        None stands for the columns of the design.
        """
        names: tuple[str, ...] | None = self.scheme.options["coordinates"]
        return names

    @property
    def own_columns(self) -> int | None:
        """Number of columns of the design that it is declared for; None for any."""
        columns: int | None = self.scheme.options["columns"]
        return columns

    @property
    def _example_columns(self) -> int:
        """Columns of the records that its declaration is compared with CVXPY at."""
        return self.own_columns or PLACES[0][1]

    @property
    def loss(self) -> Curve:
        """Phi."""
        read: LossReading = self.reading
        return read.form.term.curve

    def form(self, space: Space) -> Form:
        """Form of the declared problem."""
        read: LossReading = self.reading
        if read.space != space:
            read = self.resolve(space).reading
        return read.form

    def first_reading(self) -> LossReading:
        numbers = super().resolve(STANDARD)
        if numbers is not self:
            read: LossReading = numbers.reading
            return read
        # chosen features change the columns of the design alone
        # functions of the library are compared with CVXPY by its tests, those of authors here
        if not self.scheme.of_library:
            self.compare()
        return self._read(STANDARD)

    def resolve(self, space: Space) -> Self:
        if self.reading.space == space:
            return self
        program = super().resolve(space)
        read = program._read(space)
        if read.form.term.curve != program.loss:
            raise DeclarationError(
                f"{self.name}: make what its loss takes from records.M a setting"
            )
        net = program.regularizer
        if net == ElasticNet():
            net = ElasticNet(read.form.l1, read.form.ridge)
        theta_set = program.theta_set or read.form.feasible
        return program.changed(
            reading=replace(read, space=space), theta_set=theta_set, regularizer=net
        )

    def reading_at(self, space: Space, n: int, p: int) -> LossReading:
        declared: LossReading = self.reading
        # a function of an author's own may remember; what is stated of the library's does not
        times = 2 if stated_loss(self.scheme) is None else 1
        readings = [self._read_once(space, n, p) for _ in range(times)]
        form = at_size(readings[0].form, n, declared.form.is_mean)
        form_here = replace(declared.form, public=form.public)
        for read in readings:
            self._refuse_other(declared, form_here, read, space, n, p)
        if form.public is not None:
            # what a penalty of so many columns is at other numbers of records
            for other_n in SIZES:
                read = self._read_once(space, other_n, p)
                self._refuse_other(declared, form_here, read, space, other_n, p)
        return replace(declared, space=space, form=form_here)

    def _refuse_other(
        self, declared: LossReading, known: Form, read: LossReading, space: Space, n: int, p: int
    ) -> None:
        """Raise DeclarationError where n records of p columns do not have the known form."""
        form = at_size(read.form, n, known.is_mean)
        one_column = self._columns(space, p) == 1
        part = known.differs(form, one_column=one_column)
        if not part:
            part = declared.form.differs(form, one_column=one_column)
        if part:
            raise DeclarationError(
                f"{self.name}: {part} changes with the records: {declared.text} is declared, "
                f"{read.text} is read at n = {n}, p = {p}: state one for all"
            )

    def _read_once(self, space: Space, n: int, p: int) -> LossReading:
        """What the function returns for n records of p columns, with its penalties."""
        columns = self._columns(space, p)
        if self.own_columns not in (None, columns):
            raise DeclarationError(
                f"{self.name}: it is declared for {self.own_columns} columns of records.x, here "
                f"are {columns}"
            )
        stated = stated_loss(self.scheme)
        if stated is not None:
            stated_records = self._records(space, n, columns, stated=True)
            form = stated.form(stated_records, dict(self.own_settings()))
            return LossReading(form, f"the loss of {self.name}")
        records, theta, problem = self.declared_problem(space, n, columns)
        form = replace(Form.of(problem, theta), own=records.own)
        return LossReading(form, _in_words(problem))

    def _read(self, space: Space) -> LossReading:
        """Form of the declared problem, per record, of a program without open formulas.

        It is read at several numbers of records and columns, of which it must be the same: a loss
        may be declared as a sum or as a mean, its penalties with it.
        """
        places = [(n, self.own_columns or p) for n, p in PLACES]
        if stated_loss(self.scheme) is not None:
            # What is stated of a function of the library holds at every size.
            return self._read_once(space, *places[1])
        readings = [self._read_once(space, n, p) for n, p in places]
        first = readings[0]
        # at the second number of records, and of as many columns as the first where that matters
        chosen = 1
        if first.form.public is not None:
            # penalties are compared between readings of as many columns
            chosen = len(places)
            columns = places[0][1]
            for n, _ in places[1:]:
                places.append((n, columns))
                readings.append(self._read_once(space, n, columns))
        first_differing: dict[str, LossReading] = {}
        for is_mean in (False, True):
            forms = [
                at_size(read.form, n, is_mean)
                for (n, _), read in zip(places, readings, strict=True)
            ]
            parts = [forms[0].differs(form) for form in forms]
            if not any(parts):
                return replace(first, form=forms[chosen])
            for part, reading in zip(parts, readings, strict=True):
                if part:
                    first_differing.setdefault(part, reading)
                    break
        raise DeclarationError(f"{self.name}: {_changed_in_words(first, first_differing)}")

    def compare(self) -> None:
        """Compare what is read in the standard space, of all covariates, with CVXPY's own values.

        Raises DeclarationError where values, slopes or the set differ.
        """
        plain = self.changed(features=None, features_bound=None, theta_set=None)
        plain._compare(plain._read(STANDARD).form)

    def _compare(self, form: Form) -> None:
        """Compare a form in the standard space with CVXPY, at a few records and thetas."""
        n = 7
        p = self._example_columns
        records = _example_records(n, p)
        read = self.changed(
            reading=LossReading(form, "", STANDARD), regularizer=ElasticNet(form.l1, form.ridge)
        )
        model = read._bound(records, np.ones(n), 0.0, None).composite
        _, theta, problem = read.declared_problem(STANDARD, n, p)
        for datum in problem.parameters():
            datum.value = datum.of(records)
        per_record = n if form.is_mean else 1.0
        kinks = None if form.public is None else form.public.loaded_kinks(float(n))

        def reading(v: Array) -> tuple[float, Array]:
            value = model.value(v) + n * form.l1 * np.sum(np.abs(v))
            gradient = model.gradient(v) + n * form.l1 * np.sign(v)
            if kinks is not None:
                still = np.zeros_like(v)
                value += kinks.values(v, still)[0][0]
                gradient = gradient + kinks.plane(v, still, kinks.slopes_at(v), np.ones(1)).slope
            return value / per_record, gradient / per_record

        # entries that differ by place, so that no difference of theta is at a kink
        multiples = 1.0 + 0.1 * np.arange(theta.size)
        points = [
            form.feasible.project(np.resize(point, theta.size) * multiples)
            for point in _EXAMPLE_THETAS
        ]
        refuse_misread(problem.objective.args[0], theta, reading, points, shifted=True)
        form.refuse_other_set(problem, theta)

    def _penalty(self, space: Space) -> PublicPenalty | None:
        """Penalties of theta beside its l1 norm and squares; None where there are none."""
        return self.form(space).public

    def strong_convexity(self, space: Space) -> float:
        """mu_R of a program that was read at its place, in the units of one record."""
        penalty = self._penalty(space)
        of_penalty = 0.0 if penalty is None else penalty.strong_convexity
        return self.regularizer.strong_convexity + of_penalty

    def feasible(self, space: Space) -> ConvexSet:
        """Theta."""
        return self.theta_set or self.form(space).feasible

    def rows(self, records: Records) -> MarginRows:
        """z, o and c of every record."""
        term = self.form(records.space).term
        offset = term.numbers("offset", records)
        factor = term.numbers("factor", records)
        return MarginRows(term.rows.of(records), None if offset is None else -offset, factor)

    def row_bounds(self, universe: MappedUniverse) -> RowBounds:
        """Public bounds on the rows, and on the numbers o, c and t."""
        term = self.form(universe.space).term
        low, high = term.interval("offset")
        within = term.rows.within
        assert not isinstance(within, Range)
        return RowBounds(
            within.radius,
            offset=(-high, -low),
            factor=term.interval("factor"),
            tilt=term.interval("tilt"),
            vertices=within.vertices,
        )

    def own_data(self) -> tuple[str, ...]:
        read: LossReading = self.reading
        return read.form.own

    def own_calls(self) -> dict[str, Called]:
        rule = self.scheme.options["treats"]
        return {} if rule is None else {"treats": rule}

    def declared_at(self, universe: MappedUniverse) -> DeclaredExpressions:
        columns = self._columns(universe.space, universe.n_columns)
        records, _, problem = self.declared_problem(universe.space, universe.n_samples, columns)
        return DeclaredExpressions.of_problem(problem, records)

    def declared_problem(self, space: Space, n: int, p: int) -> tuple[DeclaredRecords, Any, Any]:
        """Records of p columns as the function sees them, theta, and the problem it returns."""
        records = self._records(space, n, p)
        size = p if self.coordinates is None else len(self.coordinates)
        theta = cp.Variable(size, name="theta")
        return records, theta, records.used(self.called(theta, records))

    def _records(self, space: Space, n: int, p: int, *, stated: bool = False) -> DeclaredRecords:
        """Records of p columns as the function sees them, or with data that are ``stated``."""
        if self.coordinates is not None:
            return DeclaredRecords(space, n, p, stated=stated)
        return DeclaredRecords(space, n, p, self.covariates, self.row_norm(space), stated=stated)

    def _columns(self, space: Space, p: int) -> int:
        """Columns of the design of records with p columns."""
        return p if self.features is None else len(self.features) + bool(space.intercept)

    def public_numbers(self, space: Space) -> dict[str, float]:
        bound = self.row_norm(space) if self.coordinates is None else space.covariate_bound
        return super().public_numbers(space) | {"M": bound}

    def columns(self, space: Space, n_features: int) -> list[int]:
        """Column numbers of the chosen features.

        Raises DeclarationError on an unknown or repeated one.
        """
        if self.features is None:
            return list(range(n_features))
        return chosen_columns("features", self.features, space.columns or (), n_features)

    def covariates(self, space: Space, X: Array) -> Array:
        """Rows of the design from records already in the space (intercept column included)."""
        if self.features is None and self.features_bound is None:
            return X
        constant = 1 if space.intercept else 0
        chosen = X[:, constant:][:, self.columns(space, X.shape[1] - constant)]
        if self.features_bound is not None:
            chosen = clip_norm(chosen, self.features_bound)
        return np.hstack([X[:, :constant], chosen])

    def row_norm(self, space: Space) -> float:
        """Bound on the norm of the rows of the design."""
        bound = space.features_bound if self.features_bound is None else self.features_bound
        return min(space.covariate_bound, float(np.hypot(space.intercept, bound)))

    def declared_formula(self) -> str:
        """The program in one line."""
        k = self._example_columns
        texts = [printed(self.declared_problem(STANDARD, n, k)[2].objective.args[0]) for n in SIZES]
        text = with_n(*texts)
        return f"theta = argmin {text} with weights w_i + n gamma/2 |theta|^2 + b'theta"

    def refuse_misread(self) -> None:
        self.resolve(STANDARD)  # which compares

    def parameter_names(self, columns: tuple[str, ...], space: Space) -> tuple[str, ...]:
        """Name of every coordinate of theta."""
        if self.coordinates is not None:
            return self.coordinates
        chosen = tuple(columns[index] for index in self.columns(space, len(columns)))
        return ("intercept", *chosen) if space.intercept else chosen

    def effect(self, theta: Array, space: Space, X: ArrayLike) -> Array:
        """Estimated net treatment effect (m,) at raw covariates X (m, k), in units of the outcome.

        Where the outcome itself is predicted, the prediction under treatment less that under
        control. Rows are made of covariates and the arm, with an outcome of 0.
        """
        features = space.features(X)
        if self.coordinates is None:
            rows = self.covariates(space, features)
        else:
            term = self.form(space).term
            predicts_outcome = term.offset is not None and term.offset[1].name() == "y"
            rows = _rows_in_arm(term, features, space, 1)
            if predicts_outcome:
                rows = rows - _rows_in_arm(term, features, space, 0)
        # row by row: in a matrix product the rounding of a row may depend on where it stands
        return np.asarray(np.sum(rows * theta, axis=1))

    @property
    def squared(self) -> bool:
        """True if the loss is ``s^2``."""
        return self.loss == SQUARE

    def choices(self, theta: Array, space: Space, X: ArrayLike) -> NDArray[np.int64]:
        """Recommended treatment (m,) in {0, 1} at raw covariates X (m, k).

        It is 1 where the effect is positive.

        A rule of the author's own is asked about one record at a time, so that no record moves the
        choice of another.
        """
        table = np.asarray(X)
        effect = self.effect(theta, space, table)
        called = self.scheme.options["treats"]
        if called is None:
            return (effect > 0).astype(np.int64)
        rule = called.unchanged()
        choices = []
        for gain, x in zip(effect, table, strict=True):
            chosen = np.asarray(rule(float(gain), x)) > 0
            choices.append(bool(np.all(chosen)))
        return np.array(choices, np.int64)

    def unconstrained(self) -> Self:
        """The loss over R^p. Raises CalibrationError where that is not a plain squared loss."""
        if not self.squared:
            raise CalibrationError(
                f"{self.name} is not a squared loss, which Theorems 7 and 8 need"
            )
        form = self.reading.form
        declared = form.public is not None or form.l1 or form.ridge
        if declared or self.regularizer != ElasticNet():
            raise CalibrationError(
                f"{self.name}: Theorems 7 and 8 cover no regularizer; leave it out"
            )
        return self.changed(theta_set=WholeSpace())

    def n_parameters(self, universe: MappedUniverse) -> int:
        """Length p of theta."""
        columns = tuple(map(str, range(universe.n_features)))
        return len(self.parameter_names(columns, universe.space))

    def loss_constants(self, universe: MappedUniverse) -> LossConstants:
        """All constants, derived from the curve, the bounds of the rows and Theta (Lemma 1).

        The gradient radius may be infinite over an unbounded Theta.
        """
        program = self.at(universe)
        curve = program.loss
        bounds = program.row_bounds(universe)
        theta_set = program.feasible(universe.space)
        p = self.n_parameters(universe)
        size = bounds.size(theta_set, p)
        theta_bound = theta_set.norm_bound(p)
        gradient_radius, largest_gradient = bounds.constants(curve, size)
        largest_curvature = curve.largest_curvature(bounds.reach(size))
        is_regression = program.squared and bounds.plain
        outcome_bound = universe.space.outcome_bound
        if not is_regression:
            outcome_bound = bounds.loss_at_zero(curve, size)
        return LossConstants(
            n_parameters=p,
            gradient_radius=gradient_radius,
            hessian_trace=bounds.factor[1] * largest_curvature * bounds.norm**2,
            strong_convexity=program.strong_convexity(universe.space),
            theta_bound=theta_bound if math.isfinite(theta_bound) else None,
            outcome_bound=outcome_bound,
            gradient_bound=largest_gradient,
            covariate_bound=bounds.norm if is_regression else None,
            response_bound=bounds.largest_offset if is_regression else None,
            is_mean=is_regression and bounds.vertices == 1,
            saturation=_saturation(curve, bounds, size),
            is_margin=True,
            box=program._row_box(universe, bounds, largest_gradient),
        )

    def _row_box(
        self, universe: MappedUniverse, bounds: RowBounds, largest_gradient: float
    ) -> RowBox | None:
        """The box that rows of covariates lie in, with the largest slope of the loss.

        None where the domain states none, and for an author's own rows, which lie in a ball alone.
        """
        widths = universe.widths
        rows = self.form(universe.space).term.rows.name()
        if widths is None or rows not in ("x", "signed", "favored"):
            return None
        constant = 1 if universe.space.intercept else 0
        chosen = self.columns(universe.space, universe.n_features)
        of_columns = [widths[constant + index] for index in chosen]
        return RowBox((*widths[:constant], *of_columns), largest_gradient / bounds.norm)

    def constants(self, universe: MappedUniverse) -> LossConstants:
        """The constants, all finite. Raises CalibrationError where the gradient radius is not."""
        constants = self.loss_constants(universe)
        constants.refuse_unbounded(self.name, type(self.feasible(universe.space)).__name__)
        return constants

    def certified_radius(
        self, universe: MappedUniverse, gamma: float, noise_bound: float
    ) -> float | None:
        """Public bound on the radius that a solve is sure to be certified to, in the norm of theta.

        It holds on every dataset, for all weights >= 0 of sum at most n and every noise with
        ``||b|| <= noise_bound``. None for penalties with kinks beside an elastic net, and for a
        curvature too small for floating point; of a loss that is not squared also over an unbounded
        Theta; and where its Hessian jumps, or there are linear and quadratic terms, and the
        declared curvature is below a millionth of the largest.

        Parameters
        ----------
        universe
            The public sizes that the program is used at.
        gamma
            The ridge of the calibration, per record.
        noise_bound
            Bound on the norm of the noise b.

        Raises
        ------
        DeclarationError
            For numbers below 0.
        """
        gamma = public_number("gamma", gamma, at_least=0)
        noise_bound = public_number("noise_bound", noise_bound, at_least=0)
        n = universe.n_samples
        p = self.loss_constants(universe).n_parameters
        program = self.at(universe)
        penalty = program._penalty(universe.space)
        if penalty is not None and penalty.kinks:
            return None
        quadratic = None if penalty is None else penalty.times(n)
        rows = program.row_bounds(universe)
        theta_set = program.feasible(universe.space)
        is_regression = program.squared and rows.plain
        if not is_regression and not math.isfinite(theta_set.norm_bound(p)):
            return None
        sizes = MarginSum(
            n,
            p,
            program.loss,
            rows,
            theta_set,
            ridge=n * (gamma + program.regularizer.strong_convexity),
            linear=noise_bound,
            weighted=True,
            n_rows=universe.most_rows,
            quadratic=quadratic,
        ).sizes()
        if sizes is None:
            return None
        hessian_jumps = not is_regression and math.isinf(program.loss.concordance)
        may_stall = hessian_jumps or quadratic is not None
        if may_stall and sizes.smoothness > STEEPEST * sizes.strong_convexity:
            return None
        return sizes.radius()

    def instance(
        self, records: Records, weights: Beside, *, gamma: float, noise: Array | None = None
    ) -> Instance:
        """Bind the program to data, first-stage weights (n,), ``gamma`` and ``noise`` b (p,)."""
        space = records.space
        place = space, records.n_samples, records.n_features + bool(space.intercept)
        program = self if self.place == place else self.read_at(*place)
        return program._bound(records, weights, gamma, noise)

    def _bound(
        self, records: Records, weights: Beside, gamma: float, noise: Array | None
    ) -> Instance:
        """Bind a program that was read at its place to data."""
        n = records.n_samples
        net = self.regularizer
        weights = records.blocks.placed(weights)
        exact_noise = None if noise is None else np.asarray(noise, dtype=np.float64)
        penalty = self._penalty(records.space)
        has_kinks = penalty is not None and bool(penalty.kinks)
        ridge = n * (gamma + net.l2)
        l1 = 0.0 if has_kinks else n * net.l1  # a norm beside other kinks is one of them
        tilts = records.rows(self._pulls).map(weighted_total, weights)
        plain = MarginModel(
            records.rows(self.rows),
            self.loss,
            ridge,
            Penalty(self.feasible(records.space), l1),
            multipliers=weights,
            linear=noisy_sum(tilts, exact_noise),
        )
        if penalty is None:
            if not self.squared:  # whose curve has a unit of its own
                return Instance(self, plain.declared, plain)
            unit, objective = self._units(records, ridge, exact_noise)
            scaled = partial(plain.declared_in, unit, objective)
            return Instance(self, plain.declared, plain, scaled=scaled, unit=unit)

        model: Composite = plain
        if penalty.is_curved:
            model = WithQuadratic(plain, penalty.times(n))

        def load() -> dict[str, Value]:
            data = plain.declared()
            if net.l1:
                data = data | {"l1": n * net.l1}
            return data | {"n_samples": float(n)}

        if not has_kinks:
            return Instance(self, load, model)
        unit, _ = self._units(records, ridge, exact_noise)
        kinks = penalty.loaded(net.l1, float(n))
        problem = KinkedProblem(kinks, plain.penalty.set, model.ridge, model, scale=unit)
        return Instance(self, load, model, model.ridge, lambda: problem)

    def _units(self, records: Records, ridge: float, noise: Array | None) -> tuple[float, float]:
        """Sizes of theta and of the objective, in whose units solvers work.

        They follow from public bounds and the noise.

        Theta is of the size of a gradient step from 0 at the largest public gradient and curvature,
        or of the set. Nothing is claimed by them.
        """
        n = records.n_samples
        universe = MappedUniverse(records.space, n, records.n_features)
        bounds = self.row_bounds(universe)
        theta_set = self.feasible(records.space)
        offset = bounds.largest_offset
        largest_factor = bounds.factor[1]
        largest_tilt = max(map(abs, bounds.tilt))
        curvature = self.loss.largest_curvature(offset) * largest_factor * bounds.norm**2
        slope = self.loss.largest_slope(offset) * largest_factor + largest_tilt
        smoothness = n * curvature + ridge
        gradient = n * slope * bounds.norm
        if noise is not None:
            gradient += float(np.linalg.norm(noise))
        step = gradient / smoothness if smoothness > 0 else 1.0
        unit = min(step, theta_set.norm_bound(self.n_parameters(universe)))
        objective = max(smoothness * unit * unit, gradient * unit)
        if not math.isfinite(objective) or not min(unit, objective) > _LEAST_UNIT:
            return 1.0, 1.0
        return unit, objective

    def _pulls(self, records: Records) -> Array | None:
        """Rows of the linear term (n, p), ``t_i z_i``; None for 0."""
        tilts = self.form(records.space).term.numbers("tilt", records)
        return None if tilts is None else tilts[:, None] * self.rows(records).Z

    def declare(self, data: Params) -> Declaration:
        assert self.theta_set is not None
        declaration = MarginRows.declare(data, "theta", self.loss, self.theta_set)
        penalty = self.reading.form.public
        if penalty is not None:
            terms = penalty.expression(declaration.variables["theta"])
            declaration.objective += data("n_samples", nonneg=True) * terms
        return declaration


def _in_words(problem: Any) -> str:
    """The declared problem in one line."""
    parts = [problem.objective.args[0], *problem.constraints]
    return ", ".join(map(printed, parts))


def _changed_in_words(first: LossReading, differing: Mapping[str, LossReading]) -> str:
    """What changes with the records, and what to state.

    Parameters
    ----------
    first
        What was read at the first numbers of records and columns.
    differing
        The first other reading by the part that differs, of a sum and then of a mean.
    """
    if "its penalty" in differing:
        return "a sum over records goes with records.n * R(theta), a mean with R(theta)"
    part, other = next(iter(differing.items()))
    return f"{part} changes with the records: {first.text} and {other.text}: state one for all"


def _example_records(n: int, p: int) -> Records:
    """Public records of the standard space, without equal entries."""
    places = np.arange(n)
    x = np.sin(np.outer(places + 1.0, np.arange(1.0, p + 1)))
    return Records.within(STANDARD, x, places % 2, np.cos(2.0 * places))


def _rows_in_arm(term: MarginTerm, features: Array, space: Space, arm: int) -> Array:
    """Rows of records (m, k) in one arm, with an outcome of 0."""
    m = len(features)
    rows: Array = term.rows.of(Records(features, np.full(m, arm), np.zeros(m), space))
    return rows


def _saturation(curve: Curve, bounds: RowBounds, size: float) -> Saturation | None:
    """Where the slope of a loss saturates; None of a loss with tilts."""
    if any(bounds.tilt):
        return None
    # the ball of margins around 0 says nothing of margins with offsets
    ball = math.inf if any(bounds.offset) else bounds.norm * size
    return Saturation.of(curve, bounds.norm, bounds.factor[1], ball)
