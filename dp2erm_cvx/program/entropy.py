"""What the three entropy-balancing programs share: the rows b_i and the targets t."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.blocks import Blocks
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.model.certified_radius import entropy_weights_error
from dp2erm_cvx.model.sums import compensated_sum, rounded_sum
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.exponential import ExponentialModel
from dp2erm_cvx.program.first_stage import BalancedStage
from dp2erm_cvx.program.stage import (
    Kind,
    ReplacedRows,
    RowNeighbors,
    Setting,
    one_of_words,
    resolved,
    setting,
)
from dp2erm_cvx.public import public_size
from dp2erm_cvx.stability import EntropyConstants
from dp2erm_cvx.universe import Universe

ArmMass = Literal["equal", "proportional"]
Scaling = Literal["public", "paper"]


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

    arm_mass: ArmMass = setting("equal", one_of_words, words=("equal", "proportional"))
    scaling: Scaling = setting("public", one_of_words, words=("public", "paper"))

    def moments(self, records: Records) -> tuple[Array, Array]:
        """Rows B (n, 2k) and targets t (2k,): weights meet ``B.T @ w / n = t`` where balance is exact."""
        rows, target = self.balanced(records)
        return np.concatenate(rows.each()), target

    def balanced(self, records: Records) -> tuple[Blocks[Array], Array]:
        """The same rows in blocks."""
        n = records.n_samples
        found = records.rows(self._totals).each()
        treated = sum(count for count, _ in found)
        mean, size = rounded_sum([total for _, total in found]) / n, np.array([n - treated, treated])
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
        return records.rows(partial(self._in_arm, scale=scale)), target

    def _totals(self, records: Records) -> tuple[int, tuple[Array, Array]]:
        """The number of treated records, and the sums of g."""
        return int(np.sum(records.a)), compensated_sum(self.functions(records))

    def _in_arm(self, records: Records, scale: Array) -> Array:
        """The rows B of some records: g, times the scale of its arm, in the columns of its arm."""
        g = self.functions(records)
        k = g.shape[1]
        B = np.empty((len(g), 2 * k))
        for arm in (0, 1):
            np.multiply(
                g, np.where(records.a == arm, scale[arm], 0.0)[:, None], out=B[:, arm * k : (arm + 1) * k]
            )
        return B


@dataclass(frozen=True)
class RidgedEntropyFirstStage(EntropyFirstStage):
    """Entropy balancing relaxed by a ridge and a ball on the dual, in either of its two forms.

    Parameters
    ----------
    ridge
        Relaxes exact balance; default: the squared norm bound of g, so that the stability bound does not
        depend on how the covariates are scaled.
    radius
        Bound on the dual; ``inf`` for none.
    """

    by_blocks: ClassVar[bool] = True

    ridge: float | None = setting(None, public_size, zero=True)
    radius: float = setting(math.inf, public_size, infinite=True)

    formulas: ClassVar[Mapping[str, Setting]] = MappingProxyType({"constant": "G_x", "ridge": "squared"})
    defaults = MappingProxyType({"constant": "G", "ridge": "squared norm bound of (constant, g)"})

    @property
    def mu(self) -> float:
        """The ridge. Raises ProgramError where it is still left to the domain."""
        return resolved("ridge", self.ridge)

    def public_numbers(self, domain: Domain) -> dict[str, float]:
        # the paper's scaling has rows of norm at most 1
        bound, constant = self.bounds(domain)
        squared = 1.0 if self.scaling == "paper" else constant**2 + bound**2
        return super().public_numbers(domain) | {"squared": squared}

    def certified_error(self, universe: Universe) -> float | None:
        balance_bound, constant = self.bounds(universe.domain)
        G = math.hypot(constant, balance_bound)
        # || t - mean(b) || is at most G / sqrt(2) for rows e_a (x) g, and 2 for rows of norm at most 1
        row_bound, slope = (1.0, 2.0) if self.scaling == "paper" else (G, 0.75 * G)
        trim, log_base = self.trim_bound, self.largest_log_base(universe.n_samples)
        if log_base > 0.0:
            slope = 2 * row_bound  # the mean is that under the base measure
        found = entropy_weights_error(
            universe.n_samples,
            2 * (1 + self.balance.size(universe.n_features)),
            row_bound=row_bound,
            slope=slope,
            ridge=self.mu,
            radius=self.radius,
            log_trim=math.log(trim) if math.isfinite(trim) else None,
            log_base=log_base,
        )
        return math.inf if found is None else found

    def largest_log_base(self, n_samples: int) -> float:
        """Largest ``|log(n q_i)|`` of the base measure q: 0 unless a program has one."""
        return 0.0

    def model(self, records: Records) -> ExponentialModel:
        return ExponentialModel(*self.balanced(records), self.mu, self.radius)

    def row_neighbors(self, records: Records) -> RowNeighbors | None:
        if self.scaling == "paper":
            return None  # a flip changes the arm sizes, by which every row is scaled
        n, found = records.n_samples, records.rows(self._totals).each()
        treated = sum(count for count, _ in found)
        total = rounded_sum([part for _, part in found])

        def replaced(old: Records, new: Records) -> ReplacedRows:
            h = self.functions(new)
            mean = (total - self.functions(old) + h) / n
            share = (treated - old.a + new.a) / n
            if self.arm_mass == "equal":
                share = np.full(len(share), 0.5)
            inside = new.a[:, None]
            rows = np.hstack([(1 - inside) * h, inside * h])
            target = np.hstack([(1 - share)[:, None] * mean, share[:, None] * mean])
            return ReplacedRows(rows, target)

        return replaced

    @property
    def trim_bound(self) -> float:
        """A public cap on ``exp(<b_i, v>)`` before weights are normalized; ``inf`` for none."""
        return math.inf

    @property
    def base_measure_ratio(self) -> float:
        """Largest over smallest value of the base measure."""
        return 1.0

    def constants(self, universe: Universe) -> EntropyConstants:
        """Constants of a resolved program, for Theorem 4: the public scaling."""
        domain = universe.domain
        return EntropyConstants(
            *self.bounds(domain), self.mu, self.radius, self.arm_mass, domain.arm_floor, self.trim_bound
        )

    def bound(self, universe: Universe) -> StabilityBound:
        """Theorem 4, or Theorem 4' for the paper's scaling."""
        n = universe.n_samples
        if self.scaling == "paper":
            self._refuse_trim("Theorem 4'")
            return stability.entropy_balancing_paper_scaling(n, **self.paper_arguments(universe.domain))
        return stability.entropy_balancing(n, self.constants(universe))

    def unrefined_bound(self, universe: Universe) -> StabilityBound | None:
        if self.scaling != "paper":
            return None
        arguments = self.paper_arguments(universe.domain)
        return stability.entropy_balancing_paper_scaling(universe.n_samples, **arguments, refined=False)

    def printed_bound(self, universe: Universe) -> StabilityBound:
        self._refuse_trim("the paper's theorem")
        arguments = self.paper_arguments(universe.domain)
        ratio = self.base_measure_ratio
        return stability.paper_entropy_balancing(universe.n_samples, **arguments, base_measure_ratio=ratio)

    def _refuse_trim(self, theorem: str) -> None:
        if math.isfinite(self.trim_bound):
            raise CalibrationError(f"{theorem} does not cover trimmed weights: leave the trim out")

    def paper_arguments(self, domain: Domain) -> dict[str, Any]:
        """What Theorem 4' and the paper's theorem need to know: rows scaled by arm sizes.

        Raises CalibrationError for the public scaling and for equal arm mass, which they do not cover.
        """
        if self.scaling != "paper" or self.arm_mass != "proportional":
            raise CalibrationError(
                "the paper's entropy balancing has scaling='paper' and arm_mass='proportional': declare both "
                "or use scaling='public' under the sharp theorems"
            )
        return {"ridge": self.mu, "radius": self.radius, "arm_floor": domain.arm_floor}
