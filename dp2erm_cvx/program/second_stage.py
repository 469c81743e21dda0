"""Second stages: perturbed weighted empirical risk minimization over theta."""

from __future__ import annotations

import abc
import dataclasses
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.domain import Array, Domain, Records, clip_norm
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import Box, ConvexSet, ElasticNet, L1Ball, L2Ball, UserRegularizer, WholeSpace
from dp2erm_cvx.model.sums import compensated_sum, rounded_sum
from dp2erm_cvx.privacy import LossConstants, RowBox
from dp2erm_cvx.program.curves import SQUARE, Curve
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows, MarginSum, RowBounds
from dp2erm_cvx.program.stage import Instance, Program, declared_choice, setting
from dp2erm_cvx.public import chosen_columns, public_number
from dp2erm_cvx.suprema import Saturation
from dp2erm_cvx.universe import Universe

#: Largest ratio of curvatures for which a solve of a loss whose Hessian jumps is sure of its radius: Newton's
#: method may stall on such a loss, and beyond 1e7 projected gradient has been seen to miss it as well.
STEEPEST = 1e6


@dataclass(frozen=True)
class SecondStage(Program):
    """Weighted empirical risk minimization of one margin per record, with objective perturbation.

    ``theta_priv = argmin over Theta of (1/n) sum w_i l(theta; d_i) + R + gamma/2 ||theta||^2 + <b, theta>/n``
    (equation weighted_convex_opt_DP); n times this is

    minimize    sum_i w_i (c_i phi(s_i) + t_i s_i) + <noise, theta> + curvature/2 ||theta||^2 + n R(theta)
    subject to  s_i = <z_i, theta> - o_i,  theta in Theta

    The margins are variables of their own because a product of two Parameters is not DPP. A squared loss is
    declared in Gram form, up to a constant: ``||F theta||^2 + <linear, theta>`` with ``F'F = sum w_i c_i z_i
    z_i'``, ``linear = -2 sum w_i c_i o_i z_i``. A user's regularizer is for squared losses: no gap
    certificate covers it elsewhere.

    Parameters
    ----------
    theta_set
        Theta, the public set of the parameter; None leaves it to the program and the domain.
    regularizer
        R, added to the loss: an elastic net, or one of your own.
    """

    by_blocks: ClassVar[bool] = True
    cone: ClassVar[str] = "exponential or QP (SOCP over an l2 ball)"
    theorem: ClassVar[str] = "Theorems 1, 2 and 15 to 19, constants derived from the loss and its rows"
    # they define the margins; Theta is fixed
    moving: ClassVar[frozenset[str]] = frozenset({"Z", "offset"})
    #: The kind of set that :meth:`default_set` returns; its size comes in as a Parameter.
    default_kind: ClassVar[ConvexSet]

    theta_set: ConvexSet | None = setting(None, declared_choice, kinds=(WholeSpace, L1Ball, L2Ball, Box))
    regularizer: ElasticNet | UserRegularizer = setting(
        ElasticNet(), declared_choice, kinds=(ElasticNet, UserRegularizer)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.regularizer) is not ElasticNet and not self.squared:
            raise DeclarationError(f"regularizer: {self.name} takes an ElasticNet only")

    @property
    @abc.abstractmethod
    def loss(self) -> Curve:
        """Phi of a resolved program."""

    @property
    def squared(self) -> bool:
        """True if the loss is ``s^2``."""
        return self.loss == SQUARE

    @abc.abstractmethod
    def rows(self, records: Records) -> MarginRows:
        """z, o and c of every record."""

    @abc.abstractmethod
    def row_bounds(self, universe: Universe) -> RowBounds:
        """Public bounds on the rows, and on the numbers o, c and t."""

    @abc.abstractmethod
    def default_set(self, domain: Domain) -> ConvexSet:
        """Theta where none is chosen: a public function of the domain."""

    @abc.abstractmethod
    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        """Name of every coordinate of theta."""

    @abc.abstractmethod
    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        """Estimated net treatment effect (m,) at raw covariates X (m, k), in units of the outcome."""

    def choices(self, theta: Array, domain: Domain, X: Array) -> NDArray[np.int64]:
        """Recommended treatment (m,) in {0, 1} at raw covariates X (m, k): 1 where the effect is positive.

        A program may have another rule; what asks for it is ``recommendations``.
        """
        return (np.asarray(self.effect(theta, domain, X)) > 0).astype(np.int64)

    def feasible(self, domain: Domain) -> ConvexSet:
        """Theta."""
        return self.theta_set or self.default_set(domain)

    def resolve(self, domain: Domain) -> Self:
        program = super().resolve(domain)
        if program.theta_set is not None:
            return program
        return dataclasses.replace(program, theta_set=self.feasible(domain))

    def unconstrained(self) -> Self:
        """The loss over R^p. Raises CalibrationError where that is not a plain squared loss."""
        if not self.squared:
            raise CalibrationError(f"{self.name} is not a squared loss, which Theorems 7 and 8 need")
        if self.regularizer != ElasticNet():
            raise CalibrationError(f"{self.name}: Theorems 7 and 8 cover no regularizer; leave it out")
        return dataclasses.replace(self, theta_set=WholeSpace())

    def n_parameters(self, universe: Universe) -> int:
        """Length p of theta."""
        columns = tuple(map(str, range(universe.n_features)))
        return len(self.parameter_names(columns, universe.domain))

    def box(self, universe: Universe, slope: float) -> RowBox | None:
        """That of the rows; None without one. Gradients are at most ``slope`` times a row."""
        return None

    def loss_constants(self, universe: Universe) -> LossConstants:
        """All constants, derived from the curve, the bounds of the rows and Theta (Lemma A).

        The gradient radius may be infinite over an unbounded Theta.
        """
        program, bounds = self.resolve(universe.domain), self.row_bounds(universe)
        curve, theta_set, p = program.loss, program.feasible(universe.domain), self.n_parameters(universe)
        size, far = bounds.size(theta_set, p), theta_set.norm_bound(p)
        radius, largest = bounds.constants(curve, size)
        ball = math.inf if any(bounds.offset) else bounds.norm * size
        saturation = Saturation.of(curve, bounds.norm, bounds.factor[1], ball)
        plain = program.squared and bounds.plain
        return LossConstants(
            n_parameters=p,
            gradient_radius=radius,
            hessian_trace=bounds.factor[1] * curve.largest_curvature(bounds.reach(size)) * bounds.norm**2,
            strong_convexity=program.regularizer.strong_convexity,
            theta_bound=far if math.isfinite(far) else None,
            outcome_bound=universe.domain.outcome_bound if plain else bounds.loss_at_zero(curve),
            gradient_bound=largest,
            covariate_bound=bounds.norm if plain else None,
            response_bound=max(map(abs, bounds.offset)) if plain else None,
            is_mean=plain and bounds.vertices == 1,
            saturation=None if any(bounds.tilt) else saturation,
            is_margin=True,
            box=self.box(universe, largest / bounds.norm),
        )

    def constants(self, universe: Universe) -> LossConstants:
        """The constants, all finite. Raises CalibrationError where the gradient radius is not."""
        found = self.loss_constants(universe)
        found.refuse_unbounded(self.name, type(self.feasible(universe.domain)).__name__)
        return found

    def certified_radius(self, universe: Universe, gamma: float, noise_bound: float) -> float | None:
        """Public bound on the radius that a solve is sure to be certified to, in the norm of theta.

        On every dataset, for all weights >= 0 of sum at most n and every noise with ``||b|| <= noise_bound``:
        where Newton's method stops. None for a user's regularizer, which a duality gap
        judges, and for a curvature too small for floating point. Of a loss that is not squared also None over
        an unbounded Theta, where flat tails may take too many steps, and where its Hessian jumps and gamma is
        below about a millionth of its curvature. Raises DeclarationError, and ProgramError for a user's
        regularizer that no gap can be measured for.
        """
        extra = public_number("gamma", gamma, at_least=0)
        noise = public_number("noise_bound", noise_bound, at_least=0)
        n, found = universe.n_samples, self.loss_constants(universe)
        if isinstance(self.regularizer, UserRegularizer):
            self.regularizer.refuse_unchecked(found.n_parameters)
            return None
        program, p = self.resolve(universe.domain), found.n_parameters
        theta_set, ridge = program.feasible(universe.domain), n * (extra + program._net[1])
        loss, rows = program.loss, self.row_bounds(universe)
        squares = program.squared and rows.plain
        if not squares and not math.isfinite(theta_set.norm_bound(p)):
            return None
        sizes = MarginSum(n, p, loss, rows, theta_set, ridge=ridge, linear=noise, weighted=True).sizes()
        if sizes is None:
            return None
        if (
            not squares
            and math.isinf(loss.concordance)
            and sizes.smoothness > STEEPEST * sizes.strong_convexity
        ):
            return None
        return sizes.radius()

    def tilts(self, records: Records) -> Array | None:
        """Numbers t (n,), None for 0: their terms are linear, so that solvers see them beside the noise."""
        return None

    def instance(
        self, records: Records, weights: Array, *, gamma: float, noise: Array | None = None
    ) -> Instance:
        """Bind the program to data, first-stage weights (n,), ``gamma`` and ``noise`` b (p,)."""
        return self.resolve(records.domain)._bound(records, weights, gamma, noise)

    def _bound(self, records: Records, weights: Array, gamma: float, noise: Array | None) -> Instance:
        n, domain = records.n_samples, records.domain
        l1, l2 = self._net
        model = MarginModel(
            records.rows(self.rows),
            self.loss,
            n * (gamma + l2),
            Penalty(self.feasible(domain), n * l1),
            multipliers=weights,
            linear=self._linear(records, weights, noise),
        )
        own = isinstance(self.regularizer, UserRegularizer)

        def data() -> dict[str, Value]:
            return {**self.loss_data(model), **self.penalty_data(domain, n, gamma, model.linear)}

        return Instance(self, data, None if own else model, model.ridge, model if own else None)

    @property
    def _net(self) -> tuple[float, float]:
        """Factors of the l1 norm and of half the squared norm in R."""
        net = self.regularizer
        return (net.l1, net.l2) if isinstance(net, ElasticNet) else (0.0, 0.0)

    def _linear(self, records: Records, weights: Array, noise: Array | None) -> Array | None:
        """Noise, and the sum of ``w_i t_i z_i``."""
        pulls = records.rows(self._pulls).map(_weighted_sum, weights)
        sums = [part for part in pulls if part is not None]
        if not sums:
            return None if noise is None else np.asarray(noise, dtype=np.float64)
        return rounded_sum(sums if noise is None else [*sums, (noise, np.zeros_like(noise))])

    def _pulls(self, records: Records) -> Array | None:
        tilts = self.tilts(records)
        return None if tilts is None else tilts[:, None] * self.rows(records).Z

    def loss_data(self, model: MarginModel) -> dict[str, Value]:
        """Leaves of the loss."""
        if self.squared:
            Z, weights = model.Z, model.multipliers
            eigenvalues, vectors = np.linalg.eigh((Z.T * weights) @ Z)
            return {
                "factor": np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T,
                "linear": -2 * (Z.T @ (weights * model.whole.offsets)),
            }
        return {"Z": model.Z, "offset": model.whole.offsets, "multipliers": model.multipliers}

    def penalty_data(self, domain: Domain, n: int, gamma: float, noise: Array) -> dict[str, Value]:
        """Leaves of :meth:`penalties`: noise b (p,), n gamma, and what Theta and R have."""
        data: dict[str, Value] = {
            "noise": noise,
            "curvature": n * gamma,
            "n_samples": float(n),
            **self.feasible(domain).bounds(),
        }
        if isinstance(self.regularizer, UserRegularizer):
            return data
        return data | {"l1": n * self.regularizer.l1, "l2": n * self.regularizer.l2}

    def penalties(self, leaf: Leaves, theta: cp.Variable) -> tuple[Any, dict[str, Any]]:
        """``<noise, theta> + curvature/2 ||theta||^2 + n R(theta)``, and Theta as constraints."""
        objective = leaf("noise") @ theta + leaf("curvature", nonneg=True) / 2 * cp.sum_squares(theta)
        if isinstance(self.regularizer, UserRegularizer):
            objective += leaf("n_samples", nonneg=True) * self.regularizer.declared(theta)
        else:
            if self.regularizer.l1:
                objective += leaf("l1", nonneg=True) * cp.norm(theta, 1)
            if self.regularizer.l2:
                objective += leaf("l2", nonneg=True) / 2 * cp.sum_squares(theta)
        kind = self.theta_set or self.default_kind
        bounds = [leaf(name, nonneg=True) for name in kind.parameters]
        return objective, kind.constraints(theta, *bounds)

    def declare(self, leaf: Leaves) -> Declaration:
        if self.squared:
            factor = leaf("factor")
            theta = cp.Variable(factor.shape[1], name="theta")
            penalties, constraints = self.penalties(leaf, theta)
            squares = cp.sum_squares(factor @ theta) + leaf("linear") @ theta
            return Declaration(squares + penalties, {"theta": theta}, constraints)
        Z = leaf("Z")
        theta, s = cp.Variable(Z.shape[1], name="theta"), cp.Variable(Z.shape[0], name="margins")
        penalties, constraints = self.penalties(leaf, theta)
        objective = leaf("multipliers", nonneg=True) @ self.loss.declared(s) + penalties
        margins = {"margins": s == Z @ theta - leaf("offset")}
        return Declaration(objective, {"theta": theta, "margins": s}, margins | constraints)


def _feature_list(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list) or not value:
        raise DeclarationError(f"{name} = {value!r}: must be a list of covariates")
    return tuple(value)


@dataclass(frozen=True)
class LinearStage(SecondStage):
    """``<x, theta>`` over all covariates, or over a public choice of them.

    Parameters
    ----------
    features
        Names declared by the domain's ranges, or column numbers without the intercept; default: all.
    features_bound
        Norm that the chosen features are shrunk to, radially; default: the domain's own bound.
    """

    features: tuple[str | int, ...] | None = setting(None, _feature_list)
    features_bound: float | None = setting(None, above=0)

    defaults = MappingProxyType(
        {"theta_set": "l2 ball of radius M'/M", "features": "all", "features_bound": "that of the domain"}
    )
    default_kind: ClassVar[ConvexSet] = L2Ball(1.0)

    def default_set(self, domain: Domain) -> ConvexSet:
        return L2Ball(domain.outcome_bound / domain.covariate_bound)

    def columns(self, domain: Domain, n_features: int) -> list[int]:
        """Column numbers of the chosen features. Raises DeclarationError on an unknown or repeated one."""
        if self.features is None:
            return list(range(n_features))
        return chosen_columns("features", self.features, domain.columns or (), n_features)

    def covariates(self, domain: Domain, X: Array) -> Array:
        """Rows of the design from records already in the domain (intercept column included)."""
        if self.features is None and self.features_bound is None:
            return X
        constant = 1 if domain.intercept else 0
        columns = self.columns(domain, X.shape[1] - constant)
        if self.features_bound is None and columns == list(range(X.shape[1] - constant)):
            return X
        chosen = X[:, constant:][:, columns]
        if self.features_bound is not None:
            chosen = clip_norm(chosen, self.features_bound)
        return np.hstack([X[:, :constant], chosen])

    def row_norm(self, domain: Domain) -> float:
        """Bound on the norm of the rows of the design."""
        bound = domain.features_bound if self.features_bound is None else self.features_bound
        return min(domain.covariate_bound, float(np.hypot(domain.intercept, bound)))

    def box(self, universe: Universe, slope: float) -> RowBox | None:
        domain, widths = universe.domain, universe.widths
        # rows of one's own may lie anywhere
        if widths is None or type(self).covariates is not LinearStage.covariates:
            return None
        constant = 1 if domain.intercept else 0
        chosen = (widths[constant + index] for index in self.columns(domain, universe.n_features))
        return RowBox((*widths[:constant], *chosen), slope)

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        chosen = tuple(columns[index] for index in self.columns(domain, len(columns)))
        return ("intercept", *chosen) if domain.intercept else chosen

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        # row by row: in a matrix product the rounding of a row may depend on where it stands
        rowwise: Array = np.sum(self.covariates(domain, domain.features(X)) * theta, axis=1)
        return rowwise


def _weighted_sum(rows: Array | None, weights: Array) -> tuple[Array, Array] | None:
    return None if rows is None else compensated_sum(weights[:, None] * rows)


def recommendations(second: SecondStage, theta: Array, domain: Domain, X: ArrayLike) -> NDArray[np.int64]:
    """What ``second`` chooses (n,) in {0, 1} at raw covariates X (n, k), whatever else stands in X.

    Methods of an author's own are asked about one record at a time: a rule that looked at other records would
    move the choices of all of them with one record, which no noise covers.
    """
    table = np.asarray(X)
    methods = (getattr(second, name, None) for name in _ASKED)
    if all(one is None or str(getattr(one, "__module__", "")).startswith(_LIBRARY) for one in methods):
        return second.choices(theta, domain, table)  # row by row already
    alone = (second.choices(theta, domain, row) for row in table[:, None])
    return np.array([bool(np.all(np.asarray(one) > 0)) for one in alone], dtype=np.int64)


#: The methods that see covariates on the way to a choice, and the home of those that look at rows alone.
_ASKED, _LIBRARY = ("choices", "effect", "covariates"), "dp2erm_cvx."
