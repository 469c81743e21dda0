"""Second stages: perturbed weighted empirical risk minimization over theta."""

from __future__ import annotations

import abc
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.program.stage import Instance, Program
from dp2erm_cvx.universe import Universe


class SecondStage(Program):
    """Weighted empirical risk minimization with objective perturbation.

    ``theta_priv = argmin over Theta of (1/n) sum w_i l(theta; d_i) + R + gamma/2 ||theta||^2 + <b, theta>/n``
    (equation weighted_convex_opt_DP).
    """

    #: Whether every record gets the same recommendation, whatever its covariates.
    constant_rule: ClassVar[bool] = False

    @abc.abstractmethod
    def instance(
        self, records: Records, weights: Array, *, gamma: float, noise: Array | None = None
    ) -> Instance:
        """Bind the program to data, first-stage weights (n,), ``gamma`` and ``noise`` b (p,)."""

    @abc.abstractmethod
    def loss_constants(self, universe: Universe) -> LossConstants:
        """zeta_c, trace bound and mu_R over the domain; zeta_c may be infinite over an unbounded Theta."""

    @abc.abstractmethod
    def feasible(self, domain: Domain) -> ConvexSet:
        """Theta."""

    def constants(self, universe: Universe) -> LossConstants:
        """The constants, all finite. Raises CalibrationError where zeta_c is not."""
        found = self.loss_constants(universe)
        found.refuse_unbounded(self.name, type(self.feasible(universe.domain)).__name__)
        return found

    def unconstrained(self) -> Self:
        """The same loss over R^p. Raises CalibrationError where that is not a plain squared loss."""
        raise CalibrationError(f"{self.name} is not a squared loss, which Theorems 7 and 8 need")

    def certified_radius(self, universe: Universe, gamma: float, noise_bound: float) -> float | None:
        """Public bound on the radius that a solve is sure to be certified to, in the norm of theta.

        For all records of the domain, all weights >= 0 of sum n and every noise with ``||b|| <=
        noise_bound``. None where no such bound is known.
        """
        return None

    @abc.abstractmethod
    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        """Name of every coordinate of theta."""

    @abc.abstractmethod
    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        """Estimated net treatment effect (m,) at raw covariates X (m, k), in units of the outcome."""

    def choices(self, theta: Array, domain: Domain, X: Array) -> NDArray[np.int64]:
        """Recommended treatment (m,) in {0, 1} at raw covariates X (m, k): 1 where the effect is positive.

        A program may have another rule of its own. What asks for it is ``recommendations``.
        """
        return (np.asarray(self.effect(theta, domain, X)) > 0).astype(np.int64)


def recommendations(second: SecondStage, theta: Array, domain: Domain, X: ArrayLike) -> NDArray[np.int64]:
    """What ``second`` chooses (n,) in {0, 1} at raw covariates X (n, k), whatever else stands in X.

    Methods of an author's own are asked about one record at a time. A rule that looked at other records
    would move the choices of all of them with one record, which no noise of a released value or of a
    selection covers. A choice counts as 1 where it is above 0.
    """
    table = np.asarray(X)
    methods = (getattr(second, name, None) for name in _ASKED)
    if all(one is None or str(getattr(one, "__module__", "")).startswith(_LIBRARY) for one in methods):
        return second.choices(theta, domain, table)  # row by row already
    alone = (second.choices(theta, domain, row) for row in table[:, None])
    return np.array([bool(np.all(np.asarray(one) > 0)) for one in alone], dtype=np.int64)


#: The methods that see covariates on the way to a choice, and the home of those that look at rows alone.
_ASKED, _LIBRARY = ("choices", "effect", "covariates"), "dp2erm_cvx."
