"""Entropy balancing: rows b_i and targets t of its programs, and the dual that weights are read from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, cast

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.blocks import VIEW, Blocks, tree_sum, whole
from dp2erm_cvx.domain import Array, Domain, Records, Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError, InfeasibleError
from dp2erm_cvx.model.atoms import atom
from dp2erm_cvx.model.composite import CLOSED_FORM, LocalError, Penalty, Sizes
from dp2erm_cvx.model.sets import L2Ball, WholeSpace
from dp2erm_cvx.model.sums import UNIT, column_sums, compensated_sum, dot_error, rounded_sum, sum_error
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.curves import Curve, LogWeight, Part
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.first_stage import BalancedStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.program.scheme import Setting
from dp2erm_cvx.program.stage import Kind, RowNeighbors
from dp2erm_cvx.public import declared_choice, public_size, setting
from dp2erm_cvx.stability.balancing import ArmMass


@dataclass(frozen=True)
class EntropyFirstStage(BalancedStage):
    """Entropy balancing of ``g = (constant, balance(x))`` within each arm.

    Parameters
    ----------
    arm_mass
        "equal": both arms get weight n/2, which the regression of 2Y(2A-1) needs;
        "proportional": arm a gets n_a, the printed form of the paper.
    scaling
        "public": ``b_i = e_{a_i} (x) g(x_i)``; "paper": ``b_i = (n / n_{a_i}) e_{a_i} (x) g(x_i)`` with
        ``||b_i|| <= 1``, where the arm sizes are at least the domain's ``arm_floor`` (without a declared
        floor they are read off the data, and no bound covers that).
    """

    kind: ClassVar[Kind] = Kind.EXPONENTIAL
    formulas: ClassVar[Mapping[str, Setting]] = MappingProxyType({"constant": "G_x"})

    arm_mass: ArmMass = setting("equal", declared_choice, words=("equal", "proportional"))
    scaling: Literal["public", "paper"] = setting("public", declared_choice, words=("public", "paper"))

    def moments(self, records: Records) -> tuple[Array, Array]:
        """Rows B (n, 2k) and targets t (2k,): weights meet ``B.T @ w / n = t`` where balance is exact."""
        rows, target = self.balanced(records)
        return np.concatenate(rows.each()), target

    def balanced(self, records: Records) -> tuple[Blocks[Array], Array]:
        """The rows in blocks."""
        n = records.n_samples
        totals = records.rows(self._totals).each()
        treated = sum(count for count, _ in totals)
        mean, size = rounded_sum([total for _, total in totals]) / n, np.array([n - treated, treated])
        scale, share = np.ones(2), size / n
        if self.scaling == "paper":
            floor = records.domain.arm_floor or max(int(np.min(size)), 1)
            # an arm below the floor counts as being at the floor, so that proportional targets stay
            # (gbar, gbar)
            share = np.maximum(size, floor) / n
            balance_bound, constant = self.bounds(records.domain)
            scale = floor / n / np.hypot(constant, balance_bound) / share
        if self.arm_mass == "equal":
            share = np.full(2, 0.5)
        target = np.concatenate([scale[0] * share[0] * mean, scale[1] * share[1] * mean])
        return records.rows(partial(self._rows, scale=scale)), target

    def _totals(self, records: Records) -> tuple[int, tuple[Array, Array]]:
        """The number of treated records, and the sums of g."""
        return int(np.sum(records.a)), compensated_sum(self.functions(records))

    def _rows(self, records: Records, scale: Array) -> Array:
        return self.in_arm(records, records.a, scale)

    def data(self, records: Records) -> dict[str, Value]:
        B, target = self.moments(records)
        return {"B": B, "target": target}


@dataclass(frozen=True)
class RidgedEntropyFirstStage(EntropyFirstStage):
    """Entropy balancing relaxed by a ridge and a ball on the dual, in either of its two forms.

    Its constants are stated, as those of kernel weights and of kernel mean matching: a log of a mean of
    exponentials is no sum of losses of single records, which the theorems on separable schemes are about.

    Parameters
    ----------
    ridge
        Relaxes exact balance; default: the squared norm bound of g, so that the stability bound does not
        depend on how the covariates are scaled.
    radius
        Bound on the dual; ``inf`` for none.
    """

    by_blocks: ClassVar[bool] = True
    #: A public cap on ``exp(<b_i, v>)`` before weights are normalized, and a base measure q, one public
    #: number per record: settings of one of the forms.
    trim = math.inf
    base_measure = cast("tuple[float, ...] | None", None)

    ridge: float | None = setting(None, public_size, zero=True)
    radius: float = setting(math.inf, public_size, infinite=True)

    formulas: ClassVar[Mapping[str, Setting]] = MappingProxyType({"constant": "G_x", "ridge": "squared"})
    defaults = MappingProxyType({"constant": "G", "ridge": "squared norm bound of (constant, g)"})

    def public_numbers(self, domain: Domain) -> dict[str, float]:
        # the paper's scaling has rows of norm at most 1
        bound, constant = self.bounds(domain)
        squared = 1.0 if self.scaling == "paper" else constant**2 + bound**2
        return super().public_numbers(domain) | {"squared": squared}

    def certified_error(self, universe: Universe) -> float | None:
        """``||w_hat - w||_1 / n`` for rows ``||b|| <= row_bound`` and ``||t - mean(b)|| <= slope``.

        Rows are centered, so their norms are at most ``2 row_bound``, the target's at most ``row_bound +
        slope``, and a score is wrong by ``(dot_error + 2 u) 2 row_bound ||v||``. The minimizer obeys ``mu
        ||v||^2 <= <t - mean(b), v>``. A trim breaks the common shift of all scores. With a base measure q,
        ``|log(n q_i)| <= log_base`` is added to every score, which rounds by four units of it, and the mean
        is that under q.
        """
        balance_bound, constant = self.bounds(universe.domain)
        G = math.hypot(constant, balance_bound)
        # || t - mean(b) || is at most G / sqrt(2) for rows e_a (x) g, and 2 for rows of norm at most 1
        row_bound, slope = (1.0, 2.0) if self.scaling == "paper" else (G, 0.75 * G)
        n, spread, ridge, log_base = universe.n_samples, 2 * row_bound, self.mu, 0.0
        if self.base_measure is not None:  # otherwise no array of n numbers is made for a plan
            log_base = float(np.max(np.abs(self.log_base(n))))
        if log_base > 0.0:
            slope = 2 * row_bound  # the mean is that under the base measure
        dimension = 2 * (1 + self.balance.size(universe.n_features))
        per_norm = (dot_error(dimension) + 2 * UNIT) * spread  # error of a score, per unit of ||v||
        size = spread + 2 * row_bound
        base_error = 4 * UNIT * log_base
        terms = 18 * UNIT + 2.2 * base_error + sum_error(n)
        sizes = Sizes(
            strong_convexity=n * ridge,
            smoothness=n * spread**2 + n * ridge,
            slope=n * slope,
            rounding=n * (spread * terms + 4 * UNIT * (row_bound + slope + size)),
            rounding_growth=n * (spread * 2.2 * per_norm + 4 * UNIT * ridge),
            minimizer_norm=min(slope / ridge, self.radius) if ridge > 0 else self.radius,
            set_norm=self.radius,
            set_rounding=L2Ball(1.0).rounding(dimension),
        )
        radius = sizes.radius()
        if radius is None:
            return math.inf
        norm = sizes.minimizer_norm + radius
        if not per_norm * norm + base_error <= 0.01:  # the growth above linearizes exp
            return math.inf
        kappa = spread * radius + per_norm * norm + base_error
        if math.isfinite(self.trim):
            log_trim = abs(math.log(self.trim))
            kappa += size * (radius + dot_error(dimension) * norm) + 2 * UNIT * log_trim
        return kappa + CLOSED_FORM

    def log_base(self, n_samples: int) -> Array:
        """log(n q_i), (n,). Raises DeclarationError unless q has one entry per record."""
        if self.base_measure is None:
            return np.zeros(n_samples)
        if len(self.base_measure) != n_samples:
            raise DeclarationError(
                f"base_measure has {len(self.base_measure)} entries for {n_samples} records"
            )
        log_q: Array = np.log(np.array(self.base_measure))
        return log_q - math.log(math.fsum(self.base_measure) / n_samples)

    def model(self, records: Records) -> ExponentialModel:
        log_base = None if self.base_measure is None else self.log_base(records.n_samples)
        rows, target = self.balanced(records)
        return ExponentialModel(rows, target, self.mu, self.radius, trim=self.trim, log_base=log_base)

    def row_neighbors(self, records: Records) -> RowNeighbors | None:
        if self.scaling == "paper":
            return None  # a flip changes the arm sizes, by which every row is scaled
        n, totals = records.n_samples, records.rows(self._totals).each()
        treated = sum(count for count, _ in totals)
        total = rounded_sum([part for _, part in totals])

        def replaced(old: Records, new: Records) -> tuple[Array, Array | None]:
            mean = (total - self.functions(old) + self.functions(new)) / n
            share = (treated - old.a + new.a) / n
            if self.arm_mass == "equal":
                share = np.full(len(share), 0.5)
            target = np.hstack([(1 - share)[:, None] * mean, share[:, None] * mean])
            return self.in_arm(new, new.a, np.ones(2)), target

        return replaced

    def bound(self, universe: Universe) -> StabilityBound:
        """Theorem 4, or Theorem 4' for the paper's scaling."""
        n, domain = universe.n_samples, universe.domain
        if self.base_measure is not None:
            raise CalibrationError(
                "entropy balancing with a base_measure has no sharp bound: leave it out, or use the paper's"
            )
        if self.scaling == "paper":
            arguments = self._paper_arguments(domain, "Theorem 4'")
            return stability.entropy_balancing_paper_scaling(n, **arguments)
        constants = stability.EntropyConstants(
            *self.bounds(domain), self.mu, self.radius, self.arm_mass, domain.arm_floor, self.trim
        )
        return stability.ridged_entropy_balancing(n, constants)

    def printed_bound(self, universe: Universe) -> StabilityBound:
        arguments, q = self._paper_arguments(universe.domain, "the paper's theorem"), self.base_measure
        ratio = 1.0 if q is None else max(q) / min(q) * (1 + 1e-12)
        return stability.paper_entropy_balancing(universe.n_samples, **arguments, base_measure_ratio=ratio)

    def _paper_arguments(self, domain: Domain, theorem: str) -> dict[str, Any]:
        """Constants of a theorem about rows scaled by arm sizes.

        Raises CalibrationError for what it does not cover: trims, the public scaling and equal arm mass.
        """
        if math.isfinite(self.trim):
            raise CalibrationError(f"{theorem} does not cover trimmed weights: leave the trim out")
        if self.scaling != "paper" or self.arm_mass != "proportional":
            raise CalibrationError(
                "the paper's entropy balancing has scaling='paper' and arm_mass='proportional': declare both "
                "or use scaling='public' under the sharp theorems"
            )
        return {"ridge": self.mu, "radius": self.radius, "arm_floor": domain.arm_floor}


class ExponentialModel(MarginModel):
    """f(v) = n (log mean_i exp(<b_i, v>) - <target, v> + ridge/2 ||v||^2) over ``||v|| <= radius``.

    ``rows`` B are (n, d) or blocks of such. The output is the weights ``w_i = n exp(<b_i, v>) / sum``
    (Proposition entropy_weight_duality). ``log_base`` (n,) is ``log(n q_i)`` of a base measure q, added to
    every score; ``trim`` caps ``exp(<b_i, v>)`` in the output; ``row_error`` is the norm of the error with
    which the rows were computed. Sums of exponentials are those of
    :class:`~dp2erm_cvx.program.margin_model.MarginModel`, normalized.
    """

    shifted = True
    #: Directions of v in the coordinates of the rows, where it is taken along fewer than these.
    basis: Array

    @classmethod
    def hard(cls, B: Array, target: Array, *, rank_tolerance: float = 1e-10) -> ExponentialModel:
        """The dual without ridge, on the directions in which it is not flat.

        ``v = basis @ u``, the basis that of the span of ``b_i - mean(b)``: along every other direction the
        dual is constant where the targets can be met. Raises InfeasibleError where the target leaves the
        affine span of the b_i.
        """
        center = B.mean(axis=0)
        # the triangular factor has the singular values of all rows
        _, singular, rows = np.linalg.svd(np.linalg.qr(B - center, mode="r"))
        largest = float(np.max(singular, initial=0.0))
        basis = rows[: len(singular)][singular > rank_tolerance * max(largest, 1e-300)].T
        gap = target - center
        missed = gap - basis @ (basis.T @ gap)
        if np.linalg.norm(missed) > 1e-9 * (1.0 + np.linalg.norm(gap)):
            raise InfeasibleError(
                "the moment targets lie outside the span of the records: a balance function is constant "
                "within an arm. Set a positive ridge or drop that balance function"
            )
        # B @ basis rounds entry by entry
        row_error = dot_error(B.shape[1]) * math.sqrt(B.shape[1]) * float(np.max(np.linalg.norm(B, axis=1)))
        model = cls(B @ basis, basis.T @ target, 0.0, math.inf, row_error=row_error)
        model.basis = basis
        return model

    def __init__(
        self,
        rows: Array | Blocks[Array],
        target: Array,
        ridge: float,
        radius: float,
        *,
        row_error: float = 0.0,
        trim: float = math.inf,
        log_base: Array | None = None,
    ) -> None:
        blocks = rows if isinstance(rows, Blocks) else whole(rows, len(rows))
        self.trim, self.log_base, self.row_error = trim, log_base, row_error
        # log mean exp(<b, v>) - <t, v> is unchanged by a common shift of b and t, which is chosen to lose
        # no digits
        n = blocks.n_samples
        self.center: Array = tree_sum(blocks.map(column_sums)) / n
        self.target: Array = target - self.center
        weight = LogWeight()
        if math.isfinite(trim):  # the cap is on the score without the common shift
            weight = LogWeight("minimum", (weight, LogWeight("constant", number=math.log(trim))))
        beside = () if log_base is None else (log_base,)
        centered = blocks.then(partial(_centered, center=self.center, trimmed=math.isfinite(trim)), *beside)
        super().__init__(
            whole(MarginRows.whole(centered), n) if blocks.here and n <= VIEW else centered,
            Curve((Part(1.0, atom("exp")),)),
            n * ridge,
            Penalty(WholeSpace() if math.isinf(radius) else L2Ball(radius)),
            linear=-n * self.target,
            weight=weight,
        )

    def _bend(self, gram: Array, far: float) -> None:
        self.size = self.spread + 2 * float(np.linalg.norm(self.center))  # what centering rounds against
        self.smoothness = self.n * self.spread**2 + self.ridge
        # third central moments are at most the range 2 * spread * ||v|| times the variance
        self.self_concordance = 2 * self.spread

    def value(self, v: Array) -> float:
        sums = self._at(v)
        log_mean = sums.top + math.log(sums.value / self.n)
        return self.n * (log_mean - float(self.target @ v)) + 0.5 * self.ridge * float(v @ v)

    def gradient(self, v: Array) -> Array:
        sums = self._at(v)
        return self.n * (sums.gradient / sums.value - self.target) + self.ridge * v

    def hessian(self, v: Array) -> Array:
        sums = self._at(v, curved=True)
        assert sums.hessian is not None
        mean = sums.gradient / sums.value
        covariance: Array = sums.hessian / sums.value - np.outer(mean, mean)
        return self.n * covariance + self.ridge * np.eye(self.dimension)

    def rounding(self, v: Array) -> float:
        shift = 4 * UNIT * (float(np.linalg.norm(self.target)) + self.size) + 2 * self.row_error
        return self.n * (self._mean_error(v)[1] + shift) + 4 * UNIT * self.ridge * float(np.linalg.norm(v))

    def hessian_rounding(self, v: Array) -> float:
        sums = self._at(v, curved=True)
        assert sums.hessian is not None
        mean, error = self._mean_error(v)
        second = float(np.trace(sums.hessian)) / sums.value
        # of the second moment as of the mean, of the square of the mean, and what either rounds beside
        wrong = _ratio_error(sums.hessian_rounding / sums.value, second, sums.value_rounding / sums.value)
        wrong += 2 * mean * error + error**2 + 32 * UNIT * second + 4 * self.row_error * self.spread
        return self.n * wrong + 4 * UNIT * self.ridge

    def _mean_error(self, v: Array) -> tuple[float, float]:
        """The norm of the tilted mean of rows, and a bound on its error."""
        sums = self._at(v)
        mean = float(np.linalg.norm(sums.gradient)) / sums.value
        return mean, _ratio_error(sums.rounding / sums.value, mean, sums.value_rounding / sums.value)

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        # tilt lemma without a changed record: the range of <b_i, error> is at most 2 kappa
        kappa = self.spread * radius
        if math.isfinite(self.trim):
            # a cap breaks the common shift: every score counts with its own size
            kappa = self.size * (radius + dot_error(self.dimension) * float(np.linalg.norm(v)))
            kappa += 2 * UNIT * abs(math.log(self.trim))
        elif local is not None:
            kappa = min(kappa, self.largest_move(local))
        kappa += self._at(v).margin_error
        return 2 * self.n * math.tanh(kappa / 2) + 16 * UNIT * self.n

    def lowest_within(self, v: Array, distance: float) -> float:
        return self.ridge


def _ratio_error(error: float, size: float, share: float) -> float:
    """Bound on the error of a sum M over the sum T of exponentials, ``size`` the norm of the computed ratio.

    M and T are off by at most ``error`` and ``share`` times the computed T': ``|M'/T' - M/T| <= error + |M/T|
    share``, and ``|M/T|`` is at most ``size`` plus what is sought.
    """
    return (error + size * share) / (1.0 - share) * (1 + 1e-9) if share < 0.5 else math.inf


def _centered(rows: Array, log_base: Array | None = None, *, center: Array, trimmed: bool) -> MarginRows:
    offset = None if log_base is None else -log_base
    return MarginRows(rows - center, offset, weight_rows=rows if trimmed else None)
