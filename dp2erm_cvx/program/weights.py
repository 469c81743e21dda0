"""Decorators: schemes of weights, separable or not, and second stages; a program on one screen."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import setting, whole_number
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.first_stage import ClosedFormWeights, FirstStage
from dp2erm_cvx.program.given_problem import scheme_of_problem
from dp2erm_cvx.program.moment_weights import moment_scheme
from dp2erm_cvx.program.reach import Called
from dp2erm_cvx.program.rows import DeclaredRecords, by_record
from dp2erm_cvx.program.scheme import Function, Scheme, Setting
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.separable import (
    KEYWORDS,
    BalancedProgram,
    PrivateFirstStage,
    RecordNumber,
    SeparableFirstStage,
)
from dp2erm_cvx.program.stage import DeclaredProgram, Program
from dp2erm_cvx.program.standing import standing_of_program
from dp2erm_cvx.program.stated import assumed_in_words
from dp2erm_cvx.weighting.forms.form import WeightingForm


@dataclasses.dataclass(frozen=True, repr=False)
class KnownWeights(DeclaredProgram, ClosedFormWeights):
    """Weights proportional to a public function of one record, cut to a public interval.

    Parameters
    ----------
    least, most
        Above 0: the interval of the function, which is enforced.
    """

    theorem = "V = 2 w_max, of an interval that is enforced"
    assumption = "each weight is a public function of its own record, within a declared interval"

    least: float = setting(1.0, above=0)
    most: float = setting(1.0, above=0)

    def first_reading(self) -> Called:
        # nothing is read of a function of numbers: its values are cut off
        return Called.of(self.name, self.scheme.function)

    def reading_at(self, space: Space, n: int, p: int) -> Called:
        declared: Called = self.reading
        declared.unchanged()
        return declared

    def refuse_misread(self) -> None:
        if not self.number("least") <= self.number("most"):
            raise DeclarationError(
                f"{self.name}: least = {self.least:g} is above most = {self.most:g}"
            )

    def declared_formula(self) -> str:
        """The program in one line."""
        return f"w_i = n f_i / sum f,  f_i = {self.name}(x_i, a_i), cut off at its interval"

    def own_data(self) -> tuple[str, ...]:
        return ("the weight",)

    def own_calls(self) -> dict[str, Called]:
        return {"the weight": self.reading}

    def log_weights(self, records: Records) -> Array:
        function = self.reading.unchanged()
        settings = dict(self.own_settings())
        first = 1 if records.space.intercept else 0
        weight = by_record("the weight", lambda x, a, y: function(x[first:], a, **settings), 0)
        with np.errstate(divide="ignore"):  # what is not above 0 is cut off
            logs: Array = np.log(np.maximum(weight(records), 0.0))
        return logs

    def bound(self, universe: MappedUniverse) -> StabilityBound:
        function = self.scheme.function
        settings = dict(self.own_settings())

        def weight(x: Array, a: int, y: float) -> Any:
            return function(x, a, **settings)

        at_zeros = DeclaredRecords.at_zeros(self.name, weight, universe.n_features, 1)
        if np.any(np.isnan(at_zeros)):
            raise DeclarationError(f"{self.name!r} is no number at a record of zeros")
        return super().bound(universe)

    def log_range(self, space: Space) -> tuple[float, float]:
        self.refuse_misread()
        return math.log(self.number("least")), math.log(self.number("most"))


class Decorators:
    """Decorators of first stages.

    ``scheme`` itself
        is for weights w that are the variable of a problem.
    ``scheme.separable``
        is for weights read from the minimizer of a sum of losses of margins.
    ``scheme.known``
        is for weights that are a public function of one record.
    ``scheme.moments``
        is for a ridged balance of functions of the covariates.
    ``scheme.from_problem``
        takes a problem of CVXPY that stands already.
    """

    def __call__(
        self,
        function: Function | None = None,
        /,
        *,
        smoothing: float | None = None,
        kinks: bool = True,
        **settings: Any,
    ) -> Callable[[Function], Any]:
        """Decorator of ``function(w, records, **settings) -> cp.Problem`` in the weights w (n,).

        The library adds ``w >= 0`` and, where no sums are written, ``sum(w) = n``. The objective
        holds a strictly convex dispersion such as ``cp.sum_squares(w - 1)``, and prices of
        imbalances: of sums of the weights times data of single records, less targets. Its V,
        certificate and public radius are derived (page on weights as the variable). Of other convex
        problems V is 2n, and only those whose weights a duality gap certifies are taken (page on
        solving). An author may state a smaller bound: ``@f.bound`` of a function of n, M,
        outcome_bound and settings that returns a
        :class:`~dp2erm_cvx.stability.Bound`.

        Parameters
        ----------
        function
            The function, where the decorator has no settings.
        smoothing
            Public parameter of the Moreau envelopes that stand in the place of kinks of an
            imbalance, over n and in units of the largest norm of its rows: a sum and a mean are
            smoothed alike.
        kinks
            Whether the problem may have kinks; without any there is no setting ``smoothing``.
        settings
            Settings of the function by name, each with its default: a number; a formula of public
            numbers; a kernel; :class:`~dp2erm_cvx.program.Moments` or
            :class:`~dp2erm_cvx.program.BalanceFunctions`; or a :func:`~dp2erm_cvx.program.setting`
            with a check of its own. Formulas may ask for M, outcome_bound, M_x (the norm bound of
            the covariates without the intercept), C (the bound of a kernel among the settings), G_x
            (the norm bound of balance functions among them), and settings that are numbers or whose
            formulas stand before.

        Returns
        -------
        Callable
            The decorator; the scheme, where the function was given.

        Raises
        ------
        DeclarationError
            In one line, for what is not read.
        """

        def decorate(function: Function) -> Any:
            family_defaults = {} if smoothing is None else {"smoothing": smoothing}
            hidden = () if kinks else ("smoothing",)
            return Scheme.declared(
                function, WeightsProgram, family_defaults, settings, hidden=hidden
            )

        return decorate if function is None else decorate(function)

    from_problem = staticmethod(scheme_of_problem)

    @staticmethod
    def separable(
        function: Function | None = None,
        /,
        *,
        ridge: Setting | None = None,
        radius: Setting = math.inf,
        by_arm: bool = False,
        offset: tuple[Function, float, float] | None = None,
        base: tuple[Function, float, float] | None = None,
        **settings: Any,
    ) -> Callable[[Function], Any]:
        """Decorator of ``function(s, **settings) -> (loss, log weight)``, expressions of a margin.

        The program minimizes ``sum_i loss(<z_i, v>) + n ridge/2 ||v||^2`` over ``||v|| <= radius``;
        then ``w_i`` is proportional to ``exp(log weight)`` at the same margin, with sum n. The
        margin is told by the name of the first argument: s has ``z_i = (2 a_i - 1) x_i``, and u has
        ``z_i = x_i``. The loss is convex, the log weight any expression. Stability, certificates
        and noise are derived (Theorems 3, 22 and 23).

        A second argument called ``arm`` is 0 or 1, a plain number: ``function(u, arm, **settings)``
        is asked for either arm and returns its loss and log weight. A loss may have no curvature in
        one arm, where the log weight of that arm is constant.

        Parameters
        ----------
        ridge
            Ridge of the mean loss, which has to be stated: a number or a formula.
        radius
            Bound on ``||v||``; ``inf`` for none.
        by_arm
            Whether the function is ``function(s, t, **settings)`` of the margins of
            ``g = (constant, balance(x))`` at the coefficients of the record's own arm and of the
            other one: t may be added to the loss. ``balance`` and ``constant`` are then settings as
            well, and formulas may ask for G, the norm bound of g, and G_x, that of ``balance``.
        offset
            ``(function, low, high)``: a number that is added to the margin, by a function of one
            record ``(x, a)``, its scaled covariates (p,) and treatment. It is cut off at the
            interval.
        base
            The same for a number above 0 that multiplies loss and weight, as sampling weights do.
        settings
            Settings of the function by name, and those of the family:

            - ``target``, a :class:`~dp2erm_cvx.program.kernels.PublicSample` of raw covariates,
              takes ``n <t, v>`` from the objective, t the mean of the sample: weights ``loss'(u)``
              are then calibrated to t.
            - ``l1`` is the price of a record of ``||v||_1``, so that imbalances of up to it are
              free.
            - ``box`` bounds every ``|v_k|`` in the place of a radius.
            - ``normalize="arm"`` gives the weights of either arm the sum n/2, which asks for an arm
              floor of the domain.
            - ``arm_total`` tau divides them by no less than n tau before they are scaled to the sum
              n, which asks for none.

            A default with a check of its own is a :func:`~dp2erm_cvx.program.setting`.

        Returns
        -------
        Callable
            The decorator, which makes a scheme.

        Raises
        ------
        DeclarationError
            In one line, for what is not read.
        """
        _refuse_bare("separable(ridge=1.0)", function, ridge)
        family_defaults: dict[str, Any] = {"ridge": ridge, "radius": radius}
        options: dict[str, Any] = {}
        if offset is not None:
            options["offset"] = RecordNumber.declared("the offset", offset, positive=False)
        if base is not None:
            options["base"] = RecordNumber.declared("the base weight", base, positive=True)
        for name in KEYWORDS.intersection(settings):
            family_defaults[name] = settings.pop(name)
        normalize = settings.pop("normalize", "all")
        if normalize not in ("all", "arm"):
            raise DeclarationError(f"normalize = {normalize!r}: must be 'all' or 'arm'")
        if normalize == "arm":
            options["normalize"] = normalize
        elif "arm_total" in family_defaults:
            raise DeclarationError("arm_total is for normalize='arm'")
        if by_arm and (options or not KEYWORDS.isdisjoint(family_defaults)):
            raise DeclarationError(
                "by_arm: offset, base, target, l1, box and normalize are for schemes of one margin"
            )
        hidden = tuple(KEYWORDS.difference(family_defaults))
        family: Any = SeparableFirstStage
        if by_arm:
            family = BalancedProgram
            family_defaults["constant"] = "G_x"

        def decorate(function: Function) -> Scheme:
            return Scheme.declared(
                function, family, family_defaults, settings, hidden=hidden, **options
            )

        return decorate

    @staticmethod
    def known(
        function: Function | None = None,
        /,
        *,
        least: Setting | None = None,
        most: Setting | None = None,
        **settings: Any,
    ) -> Callable[[Function], Any]:
        """Decorator of ``function(x, a, **settings) -> float``, the weight of one record.

        The function is asked about one record at a time: x (p,) are its scaled covariates, a in
        {0, 1} its treatment. Its values are cut off at an interval and normalized, so that
        V = 2 w_max.

        Parameters
        ----------
        least, most
            The interval, above 0, before normalization. Both have to be stated.
        settings
            Settings of the function by name, each with its default.

        Returns
        -------
        Callable
            The decorator, which makes a scheme.

        Raises
        ------
        DeclarationError
            In one line, where the interval is missing or is none.
        """
        _refuse_bare("known(least=0.1, most=10.0)", function, least, most)
        family_defaults: dict[str, Any] = {"least": least, "most": most}

        def decorate(function: Function) -> Scheme:
            return Scheme.declared(function, KnownWeights, family_defaults, settings)

        return decorate

    @staticmethod
    def moments(
        function: Function | None = None,
        /,
        *,
        norm_bound: float = 0.0,
        ridge: float | None = None,
        alpha: float = 1.0,
    ) -> Callable[[Function], Any]:
        """Decorator of ``function(x) -> values`` (k,) of one record, which are balanced.

        x (p,) are the scaled covariates of the record. The weights are those of
        ``stable_balancing`` with these functions: they minimize a squared imbalance and
        ``n ridge ||w||^2`` (Theorem 5 of weights as the variable).

        Parameters
        ----------
        norm_bound
            Norm that the values are shrunk to, which has to be stated.
        ridge
            Default of the ridge; None for the squared norm bound of the functions and the constant.
        alpha
            Default of alpha in [0, 1]: 1 for the imbalance of the arms with the sample, 0 for that
            of the arms with each other.

        Returns
        -------
        Callable
            The decorator, which makes a scheme.

        Raises
        ------
        DeclarationError
            In one line, for what is no function, and for other numbers.
        """
        _refuse_bare("moments(norm_bound=1.0)", function, norm_bound or None)

        def decorate(function: Function) -> Any:
            return moment_scheme(function, norm_bound, ridge, alpha)

        return decorate


def _refuse_bare(call: str, function: Function | None, *needed: object) -> None:
    """Raise DeclarationError where a decorator that needs settings has none.

    The error shows a call that works.
    """
    if function is not None or None in needed:
        raise DeclarationError(
            f"scheme.{call.split('(')[0]}: state its settings, as in @scheme.{call}"
        )


#: Decorators of first stages, ``@scheme(...)`` and ``@scheme.separable(...)``, see
#: :class:`Decorators`.
scheme = Decorators()


def second_stage(
    function: Function | None = None,
    /,
    *,
    coordinates: tuple[str, ...] | None = None,
    treats: Function | None = None,
    columns: int | None = None,
    **settings: Setting,
) -> Callable[[Function], Any]:
    """Decorator of ``function(theta, records, **settings) -> cp.Problem``, a sum of losses.

    Weights, the ridge gamma and noise are the library's. The loss is a sum of curves of one margin
    per record, with a factor, an offset and a tilt; the set of theta is a ball, an l1 ball or a
    box; ``records`` are a :class:`~dp2erm_cvx.program.rows.DeclaredRecords`. Constants, noise and
    certificates are derived (Theorems 1, 2 and 15 to 19).

    Penalties of theta beside the loss are public convex terms without data: ``c @ theta``,
    ``quad_form(theta, P)``, ``sum_squares``, norms of order 1, 2 and inf, ``tv``, maxima and
    ``huber`` of affine functions of theta.

    Parameters
    ----------
    function
        The function, where the decorator has no settings.
    coordinates
        Names of the entries of theta, where rows are cells; by default theta has one entry for
        every column of ``records.x``.
    treats
        The rule of the release: a record with raw covariates x is treated where
        ``treats(effect, x)`` is true; by default where the effect is positive.
    columns
        Number of columns of ``records.x`` that the function is for, the constant of an intercept
        among them: of a function that names entries of theta, as those of a group.
    settings
        Settings of the function by name, each with its default.

    Returns
    -------
    Callable
        The decorator; the scheme, where the function was given.

    Raises
    ------
    DeclarationError
        In one line, for what is not read.
    """
    options: dict[str, Any] = {"coordinates": None, "treats": None, "columns": None}
    if treats is not None:
        options["treats"] = _rule(treats)
    if columns is not None:
        options["columns"] = whole_number("columns", columns, at_least=1)
    hidden: tuple[str, ...] = ()
    if coordinates is not None:
        if columns is not None:
            raise DeclarationError("columns: theta has the coordinates that are named")
        options["coordinates"] = tuple(coordinates)
        hidden = ("features", "features_bound")

    def decorate(function: Function) -> Any:
        return Scheme.declared(function, SecondStage, {}, settings, hidden=hidden, **options)

    return decorate if function is None else decorate(function)


def _rule(treats: Function) -> Called:
    """An author's rule of an effect and covariates, with what it reaches."""
    try:
        inspect.signature(treats).bind(0.0, np.zeros(1))
    except TypeError:
        raise DeclarationError("treats: must be a function of an effect and covariates") from None
    return Called.of("treats", treats)


def describe(program: Program, universe: MappedUniverse) -> tuple[tuple[str, str], ...]:
    """Rows about a program in a universe: what was read of it, and what was derived.

    All numbers in them are public. A theorem that does not cover the program is a row with its
    reason.

    Parameters
    ----------
    program
        The program, at some settings.
    universe
        The public sizes that it is used at: their space, n and the number of columns.

    Returns
    -------
    tuple of (label, text)
        Settings, formula, data, constants, theorem, V, what is known in advance of a release, and
        what is assumed.
    """
    return tuple(_rows(program.at(universe), universe))


def _rows(program: Program, universe: MappedUniverse) -> Iterator[tuple[str, str]]:
    """Rows about a resolved program."""
    settings = ", ".join(
        f"{name} = {value}"
        for name, value in program.settings().items()
        if value not in (None, "", [])
    )
    yield "settings", settings or "none"
    yield "minimize", program.formula
    yield from _rows_of_data(program, universe.space)
    try:
        yield from _rows_of_constants(program, universe)
        yield from _rows_of_theorem(program, universe)
        yield "standing", standing_of_program(program, universe)
    except CalibrationError as error:
        yield "theorem", f"none: {error}"
    yield "assumed", assumed_in_words(program, universe) or "nothing"


def _rows_of_data(program: Program, space: Space) -> Iterator[tuple[str, str]]:
    """Rows and numbers of a record, with the public sets that they lie in."""
    if isinstance(program, SecondStage):
        term = program.form(space).term
        yield "data", f"{term.rows.name()}: {term.rows.within}"
        for which in ("offset", "tilt", "factor"):
            part = getattr(term, which)
            if part is not None:
                multiple, numbers = part
                yield "", f"{which} {multiple:g} {numbers.name()}: {numbers.within}"
    elif isinstance(program, SeparableFirstStage):
        yield "data", _rows_in_words(program, space)


def _rows_in_words(program: SeparableFirstStage, space: Space) -> str:
    """The rows z of a program of margins, and the bound on their norm."""
    size = program.row_bound(space)
    varying = program.varying(space)
    if varying is not None:
        return (
            f"rows e_a (x) g: ||g|| <= {size:.4g}, all but a constant at most {varying * size:.4g}"
        )
    kind = "rows" if "u" in program.margins else "signed rows"
    return f"{kind}: ||z|| <= {size:.4g}"


def _rows_of_constants(program: Program, universe: MappedUniverse) -> Iterator[tuple[str, str]]:
    """Constants that the theorem of a resolved program takes, by its kind."""
    if isinstance(program, SecondStage | PrivateFirstStage):
        yield "derived", _loss_in_words(program, universe)
    elif isinstance(program, SeparableFirstStage):
        yield from _rows_of_movement(program, universe)
    elif isinstance(program, WeightsProgram):
        yield from _rows_of_form(program, universe)


def _loss_in_words(program: SecondStage | PrivateFirstStage, universe: MappedUniverse) -> str:
    """Constants of Theorems 1 and 2 of a loss that is perturbed."""
    constants = program.loss_constants(universe)
    if isinstance(program, SecondStage):
        program.constants(universe)  # refuses one that is unbounded
    text = (
        f"gradient radius {constants.gradient_radius:.6g}, "
        f"trace of the Hessian {constants.hessian_trace:.6g}"
    )
    if constants.gradient_bound is not None:
        text += f", largest gradient {constants.gradient_bound:.6g}"
    if constants.theta_bound is not None:
        text += f", norm of the parameter at most {constants.theta_bound:.6g}"
    return text


def _rows_of_movement(
    program: SeparableFirstStage, universe: MappedUniverse
) -> Iterator[tuple[str, str]]:
    """Constants of Theorems 3, 22 and 23 of a program of margins."""
    movement = program.movement(universe)
    yield (
        "derived",
        f"margins at most {movement.reach:.4g}, log weights {movement.log_weight_range:.4g} apart",
    )
    yield "", f"gradients in a set of diameter {movement.gradient_diameter:.6g}"
    variance = f"{movement.variance:.4g}"
    if math.isinf(movement.variance):
        variance = "inf, as the loss is flat where a weight moves"
    yield (
        "",
        f"mean weight of the others at least {movement.least_mean:.4g}, C of Theorem 22 {variance}",
    )


def _rows_of_form(program: WeightsProgram, universe: MappedUniverse) -> Iterator[tuple[str, str]]:
    """The form of a problem in the weights, and what certifies its weights."""
    form = program.form(universe)
    if isinstance(form, WeightingForm):
        certificate = _certified_by_dual(form, program.certified_error(universe))
        yield from program.form_in(universe).in_words()
    else:
        certificate = "duality gap, on every solve"
        unread = program.unread(universe)
        if unread is not None:
            certificate = f"none, so that it is refused: {unread}"
        yield "not read", form
    yield "certificate", certificate


def _certified_by_dual(form: WeightingForm, error: float | None) -> str:
    """How weights of a form are certified; ``error`` is public, in units of n."""
    if form.hard:
        return (
            "a backward error in place of a distance, on every solve: targets and sums that they "
            "meet"
        )
    if form.kinked:
        kink = "a norm, absolute value or maximum has a kink"
        return f"by the dual, with half of the digits, on every solve: {kink}"
    if error is None:
        return "by the dual, on every solve: no radius is public that is small beside V"
    return f"by the dual: weights within {error:.2g} n of the minimizer on every dataset"


def _rows_of_theorem(program: Program, universe: MappedUniverse) -> Iterator[tuple[str, str]]:
    """The theorem that covers a resolved program, and V of a program of weights."""
    if not isinstance(program, FirstStage):
        yield "theorem", program.theorem
        return
    n = universe.n_samples
    bound = program.stability(universe)
    yield "theorem", bound.theorem
    place = f"n = {n}, M = {universe.space.covariate_bound:.6g}"
    share = f"{bound.V / (2 * n):.2g} of 2n"
    yield "V", f"{bound.V:.6g} at {place} ({share}), largest weight {bound.w_max:.6g}"
    unused = program.unused_bound(universe)
    if unused is not None:
        yield "stated", unused
