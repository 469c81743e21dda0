"""First stages: programs whose solution is a vector of sample weights."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import stability
from dp2erm_cvx.arrays import CLOSED_FORM, UNIT, Array
from dp2erm_cvx.checks import declared_choice, public_size, setting
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.model.composite import Composite, LocalError
from dp2erm_cvx.model.sums import exact_sum
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.balance import BALANCES, Balance, BalanceFunctions, Moments
from dp2erm_cvx.program.declaration import PARAMETER_LIMIT, Compiled, Declaration, Params, Value
from dp2erm_cvx.program.stage import Instance, Kind, Program, RowNeighbors


class FirstStage(Program):
    """Weights w(D) >= 0 with sum n, computed by a convex program from covariates and treatments."""

    #: The form of the program, which decides what can be proved about it.
    kind: ClassVar[Kind] = Kind.DIRECT

    @property
    def balances_arms(self) -> bool:
        """Whether the weights are computed to make the arms alike."""
        return True

    @property
    def mu(self) -> float:
        """The ridge of a program with one.

        Raises
        ------
        ProgramError
            Where it is still left to the domain.
        """
        return self.number("ridge")

    @abc.abstractmethod
    def data(self, records: Records) -> dict[str, Value]:
        """Parameters of the declaration."""

    @abc.abstractmethod
    def model(self, records: Records) -> Composite:
        """Exact smooth-plus-prox form; its ``output`` is the weights (n,)."""

    def problem(self, records: Records) -> cp.Problem:
        """The declared problem with the data of records in it.

        It is meant for solvers of one's own, their options and duals. It is private: it holds the
        records. Data are parameters with values, or constants where they would be too large to
        compile; variables are named as in the declaration, ``weights`` where those are one.

        Parameters
        ----------
        records
            The records.

        Returns
        -------
        cvxpy.Problem
        """
        program = self.at(MappedUniverse(records.space, records.n_samples, records.n_features))
        data = program.data(records)
        embed = Compiled.cost(data) > PARAMETER_LIMIT
        compiled = Compiled(program.declare, data, embed=embed)
        if not embed:
            compiled.load(data)
        return compiled.problem

    def bound(self, universe: MappedUniverse) -> StabilityBound:
        """The bound of a resolved program: by default what any weights of sum n obey.

        Raises
        ------
        CalibrationError
            Where a kind with a theorem states no bound.
        """
        if self.kind is Kind.DIRECT:
            return stability.any_weights(universe.n_samples, Kind.DIRECT.proved, self.relations)
        raise CalibrationError(f"{self.name} is declared {self.kind.value!r} and states no bound")

    def stability(self, universe: MappedUniverse) -> StabilityBound:
        """Bound on the movement of the weights, from public quantities alone.

        Parameters
        ----------
        universe
            The public sizes that the program is used at.

        Raises
        ------
        CalibrationError
            Where no theorem covers the declared program or domain.
        """
        return self.at(universe).bound(universe)

    def instance(self, records: Records) -> Instance:
        """Bind the program to data."""
        program = self.resolve(records.space)
        return Instance(program, lambda: program.data(records), program.model(records))

    def certified_error(self, universe: MappedUniverse) -> float | None:
        """Public bound on ``||w_hat - w||_1 / n`` that every solve is certified to.

        Returns
        -------
        float or None
            ``inf`` where floating point is not sure of anything; None where nothing is known, as by
            default.
        """
        return None

    def unused_bound(self, universe: MappedUniverse) -> str | None:
        """Why a bound that an author states is not used, or None."""
        return None

    def cost(self, universe: MappedUniverse) -> str | None:
        """Memory and time of a long solve, by public numbers, in words; None for a short one."""
        return None

    def row_neighbors(self, records: Records) -> RowNeighbors | None:
        """Rows of the models of neighbors, of a resolved program with one row per record.

        None where a replaced record changes more than its row and the target: neighbors are then
        solved alone.
        """
        return None


@dataclass(frozen=True)
class BalancedStage(FirstStage):
    """First stages about ``g = (constant, balance(x))``.

    Parameters
    ----------
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        c_0 > 0, the value of the constant balance function; default: the norm bound of ``balance``.
    """

    balance: Balance = setting(Moments(), declared_choice, kinds=BALANCES)
    constant: float | None = setting(None, public_size)

    def own_data(self) -> tuple[str, ...]:
        if isinstance(self.balance, BalanceFunctions):
            return (self.balance.name,)
        return ()

    def bounds(self, space: Space) -> tuple[float, float]:
        """(G_x, c_0): norm bound of the balance functions and value of the constant."""
        balance_bound = self.balance.bound(space.features_bound)
        constant = balance_bound
        if self.constant is not None:
            constant = self.constant
        return balance_bound, constant

    def public_numbers(self, space: Space) -> dict[str, float]:
        balance_bound, constant = self.bounds(space)
        return super().public_numbers(space) | {"G_x": balance_bound, "c": constant}

    def functions(self, records: Records) -> Array:
        """The functions g (n, k) at records, the constant first."""
        balanced = self.balance(records.covariates)
        _, constant = self.bounds(records.space)
        return np.column_stack([np.full(len(balanced), constant), balanced])

    def in_arm(self, records: Records, arm: NDArray[np.int64], scale: Array) -> Array:
        """Rows that hold g of a record, scaled, in the columns of an arm; other columns are 0.

        Parameters
        ----------
        records
            The n records.
        arm
            The arm (n,), 0 or 1, whose columns g of each record stands in.
        scale
            What g is multiplied by in either arm, (2,).

        Returns
        -------
        Array
            (n, 2k), the columns of arm 0 first.
        """
        g = self.functions(records)
        in_columns_of_0 = np.where(arm == 0, scale[0], 0.0)[:, None] * g
        in_columns_of_1 = np.where(arm == 1, scale[1], 0.0)[:, None] * g
        return np.hstack([in_columns_of_0, in_columns_of_1])


class ClosedFormWeights(FirstStage):
    """Weights proportional to a function f > 0 of each record alone: ``w = n f / sum(f)``.

    They solve ``minimize sum_i w_i^2 / f_i`` subject to ``sum(w) = n`` and ``w >= 0``, where
    ``2 w_i / f_i`` is the multiplier nu of the sum. A class states log f and a public interval of
    it, which is enforced. The bound V = 2 w_max is attained, where w_max is the largest weight when
    all others are as small as they can be.
    """

    #: What the bound assumes of f.
    assumption: ClassVar[str] = "each weight is a public function of its own record"

    by_blocks: ClassVar[bool] = True

    kind: ClassVar[Kind] = Kind.CLOSED_FORM

    @property
    def balances_arms(self) -> bool:
        return False

    def certified_error(self, universe: MappedUniverse) -> float | None:
        return CLOSED_FORM

    @abc.abstractmethod
    def log_weights(self, records: Records) -> Array:
        """The logarithm of f (n,) at each record."""

    @abc.abstractmethod
    def log_range(self, space: Space) -> tuple[float, float]:
        """Public interval of log f, which log f is cut off at; within 690 of 0."""

    def unnormalized(self, records: Records) -> Array:
        """The function f (n,) of each record."""
        low, high = self.log_range(records.space)
        factors: Array = np.exp(np.clip(self.log_weights(records), low, high))
        return factors

    def bound(self, universe: MappedUniverse) -> StabilityBound:
        low, high = self.log_range(universe.space)
        w_max = stability.largest_weight(universe.n_samples, high - low)
        return stability.fixed_up_to_scale(universe.n_samples, w_max, self.assumption)

    def data(self, records: Records) -> dict[str, Value]:
        return {"cost": 1.0 / self.unnormalized(records)}

    def declare(self, data: Params) -> Declaration:
        cost = data("cost", nonneg=True)
        n = cost.shape[0]
        weights = cp.Variable(n, name="weights", nonneg=True)
        objective = cp.sum(cp.multiply(cost, cp.square(weights)))
        return Declaration(objective, {"weights": weights}, {"total": cp.sum(weights) == n})

    def model(self, records: Records) -> Composite:
        return _ScaleModel(np.concatenate(records.rows(self.unnormalized).each()))

    def read(
        self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]
    ) -> Array:
        model: Any = instance.composite
        # nu = 2 sum(w) / sum(f)
        return np.array([2 * float(np.sum(values["weights"])) / model.total])


class _ScaleModel(Composite):
    """Dual of the closed-form program, a function of the multiplier nu alone.

    With w = nu f/2 it is D(nu) = nu^2 sum(f)/4 - n nu, which is minimized.

    Parameters
    ----------
    unnormalized
        f (n,) at every record.
    """

    dimension = 1
    self_concordance = 0.0

    def __init__(self, unnormalized: Array) -> None:
        self.n = len(unnormalized)
        # a common factor of f cancels in the weights; without it nothing over- or underflows
        self.unnormalized = unnormalized / np.max(unnormalized)
        self.total = exact_sum(self.unnormalized)
        # D'' = sum(f) / 2 everywhere
        self.ridge = self.total / 2
        self.smoothness = self.total / 2

    def value(self, v: Array) -> float:
        nu = float(v[0])
        return 0.25 * self.total * nu**2 - self.n * nu

    def gradient(self, v: Array) -> Array:
        return 0.5 * self.total * v - self.n

    def hessian(self, v: Array) -> Array:
        return np.array([[self.total / 2]])

    def rounding(self, v: Array) -> float:
        return 4 * UNIT * (self.total * abs(float(v[0])) + self.n)

    def output(self, v: Array) -> Array:
        return 0.5 * float(v[0]) * self.unnormalized

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        return 0.5 * self.total * radius + 8 * UNIT * self.n

    def output_scale(self, v: Array) -> float:
        return float(self.n)
