"""First stages about a sum of margin losses: a stable coefficient (Theorem 3), a private one (Theorem 9)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.model.certified_radius import checked_perturbation
from dp2erm_cvx.privacy import LossConstants, RowBox, StabilityBound
from dp2erm_cvx.program.curves import saturation_of
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.first_stage import PrivateFirstStage
from dp2erm_cvx.program.log_weights import weights_given_coefficient
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.program.schemes.margin_stage import MarginFirstStage
from dp2erm_cvx.program.stage import Kind, ReplacedRows, RowNeighbors
from dp2erm_cvx.stability import Beside, MarginMovement, margin_movement, separable
from dp2erm_cvx.stability.suprema import gradient_diameter, log_weight_diameter, minimizer_norm
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class SeparableFirstStage(MarginFirstStage):
    """A sum of margin losses that states the constants of its theorem.

    Parameters
    ----------
    ridge
        Keeps lam stable; default: a tenth of the squared norm bound of the rows, so that the stability bound
        does not depend on how covariates are scaled.
    radius
        Bound on ``||lam||``; ``inf`` for none.
    """

    defaults = MappingProxyType({"ridge": "0.1 times the squared norm bound of the rows"})
    kind: ClassVar[Kind] = Kind.EXPONENTIAL

    radius: float = math.inf

    def movement(self, universe: Universe) -> MarginMovement:
        """Numbers of Theorems 3, 22 and 23 of a resolved program, derived from its loss and log weight.

        Raises CalibrationError where weights are read at other rows than those of the loss.
        """
        domain = universe.domain
        return margin_movement(
            universe.n_samples,
            self.mu,
            self.row_bound(domain),
            self.loss,
            self.log_weight,
            radius=self.ball(domain),
            clipped=self.log_weight.is_clipped,
            beside=self.beside(domain),
        )

    def beside(self, domain: Domain) -> Beside | None:
        """Constants of a linear term of every record beside its loss; None without one."""
        return None

    def bound(self, universe: Universe) -> StabilityBound:
        """Theorem 3, or 22 and 23, whichever is smaller."""
        if type(self).weight_rows is not MarginFirstStage.weight_rows:
            return self.bound_at_other_rows(universe)
        return self.movement(universe).bound

    def bound_at_other_rows(self, universe: Universe) -> StabilityBound:
        """Theorem 3 for weights that are read at other rows than those of the loss.

        Theorem 22 does not cover them: the loss then bends along other directions than the weights move.
        """
        domain, n = universe.domain, universe.n_samples
        Z, U = self.row_bound(domain), self.weight_row_bound(domain)
        r = minimizer_norm(self.loss, self.mu / Z**2, Z * self.ball(domain)) / Z
        H = self.log_weight.log_range(U * r)
        D_h = U * log_weight_diameter(self.log_weight, U * r, clipped=True)
        return separable(n, self.mu, Z * gradient_diameter(self.loss, Z * r), D_h, H, r)

    def data(self, records: Records) -> dict[str, Value]:
        return self.margin_data(records)

    def model(self, records: Records) -> MarginModel:
        return self.margin_model(records)

    def row_neighbors(self, records: Records) -> RowNeighbors | None:
        if self.weight_rows(records.at(np.zeros(1, dtype=np.int64))) is not None:
            return None  # a fast path moves one row of a record, not two
        total = self.linear(records)

        def replaced(old: Records, new: Records) -> ReplacedRows:
            rows, left, own = self.rows(new), self.linear_terms(old), self.linear_terms(new)
            if total is None or left is None or own is None:
                return ReplacedRows(rows)
            return ReplacedRows(rows, total - left + own)

        return replaced

    def certified_error(self, universe: Universe) -> float | None:
        terms = self.margin_sum(universe)
        if terms is None:
            return None
        found = terms.weights(self.log_weight, self.weight_row_bound(universe.domain))
        return math.inf if found is None else found


@dataclass(frozen=True)
class PrivateSeparable(MarginFirstStage, PrivateFirstStage):
    """A sum of margin losses under objective perturbation: noise b is one more linear term of its model.

    minimize    sum_i phi(<z_i, lam>) + <linear + b, lam> + n (ridge + gamma)/2 ||lam||^2
    subject to  ||lam||_2 <= radius

    Theorems 1 and 2 calibrate b at uniform weights from the constants of one record; given lam each weight
    depends on its own record and the normalization only, hence V = 2 w_max (Theorem 9). Its constants follow
    from the loss.

    Parameters
    ----------
    share
        Share of the budget that buys the coefficient.
    ridge
        Of the coefficient; default: a hundredth of the squared norm bound of the rows. No ridge is needed for
        stability.
    radius
        Bound on ``||lam||``, hence on weights; default: ``default_margin`` over the norm bound of the rows.
    """

    theorem = "Theorem 9: V = 2 w_max, given lam"
    defaults = MappingProxyType(
        {
            "ridge": "0.01 times the squared norm bound of the rows",
            "radius": "default_margin over the norm bound of the rows",
        }
    )
    default_ridge: ClassVar[float] = 0.01
    #: The largest margin that the default radius allows for.
    default_margin: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        MarginFirstStage.__post_init__(self)
        PrivateFirstStage.__post_init__(self)

    def gradient_diameter(self, domain: Domain) -> float:
        """D_psi: diameter of the gradients of the loss of one record, linear term included.

        Of a resolved program, at one and the same coefficient, the largest over the ball (Lemma A).
        """
        bound = self.row_bound(domain)
        return bound * gradient_diameter(self.loss, min(bound * self.ball(domain), 1e300))

    def resolve(self, domain: Domain) -> Self:
        program = super().resolve(domain)
        if program.radius is not None:
            return program
        return dataclasses.replace(program, radius=self.default_margin / program.row_bound(domain))

    def data(self, records: Records) -> dict[str, Value]:
        return self.margin_data(records)

    def model(self, records: Records) -> MarginModel:
        return self.margin_model(records)

    def perturbed_data(self, records: Records, gamma: float, noise: Array) -> dict[str, Value]:
        return self.margin_data(records, gamma, noise, counted=True)

    def perturbed_model(self, records: Records, gamma: float, noise: Array) -> MarginModel:
        return self.margin_model(records, gamma, noise, counted=True)

    def certified_radius(self, universe: Universe, gamma: float, noise_bound: float) -> float | None:
        extra, noise = checked_perturbation(gamma, noise_bound)
        terms = self.resolve(universe.domain).margin_sum(universe, extra, noise)
        return None if terms is None else terms.radius()

    def certified_error(self, universe: Universe) -> float | None:
        # given the coefficient; how large it may be is not known without its calibration or a radius
        ball = self.ball(universe.domain)
        return None if math.isinf(ball) else self.certified_error_at(universe, ball)

    def certified_error_at(self, universe: Universe, norm: float) -> float | None:
        bound, within = self.weight_row_bound(universe.domain), min(norm, self.ball(universe.domain))
        return weights_given_coefficient(self.log_weight, self._size(universe), bound, within)

    def loss_constants(self, universe: Universe) -> LossConstants:
        bound, ball = self.row_bound(universe.domain), self.ball(universe.domain)
        if self.mu == 0 and math.isinf(ball):
            raise CalibrationError(f"{self.name}: declare a positive ridge or a finite radius")
        # no loss is negative: ridge/2 |lam|^2 - pull |lam| is at most the loss at 0
        at_zero, pull = float(self.loss.value(np.zeros(1))[0]), self.linear_bound(universe.domain)
        if math.isfinite(ball):
            length = ball
        else:
            length = (pull + math.sqrt(pull**2 + 2 * self.mu * at_zero)) / self.mu
        slope, widths = self.loss.largest_slope(bound * ball), self.row_widths(universe)
        saturation = None if pull else saturation_of(self.loss, bound, ball=bound * ball)
        return LossConstants(
            n_parameters=self._size(universe),
            gradient_radius=self.gradient_diameter(universe.domain) / 2,
            hessian_trace=self.loss.largest_curvature(bound * ball) * bound**2,
            strong_convexity=self.mu,
            theta_bound=length,
            outcome_bound=1.0,
            gradient_bound=None if pull else bound * slope,
            saturation=saturation,
            is_margin=not pull,
            box=None if pull or widths is None else RowBox(widths, slope),
        )

    def bound(self, universe: Universe) -> StabilityBound:
        margin = self.weight_row_bound(universe.domain) * self.ball(universe.domain)
        w_max = self.log_weight.largest_weight(universe.n_samples, margin)
        if math.isinf(margin) and w_max >= universe.n_samples:
            raise CalibrationError(f"{self.name}: declare a finite radius or trim, or no weight is bounded")
        return stability.given_coefficient(universe.n_samples, w_max)

    def _size(self, universe: Universe) -> int:
        k = self.n_rows(universe)
        if k is None:
            raise CalibrationError(f"{self.name}: n_rows must be public, because noise has as many entries")
        return k
