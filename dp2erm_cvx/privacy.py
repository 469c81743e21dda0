"""Frozen statements about privacy. No arithmetic on data happens here."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from dp2erm_cvx.errors import DeclarationError


class Neighboring(enum.StrEnum):
    """Which datasets count as neighbors: same size ``n``, one record replaced.

    ``REPLACE_ONE`` lets the covariates, the treatment and the outcome of one record change.
    ``REPLACE_ONE_KEEP_TREATMENT`` is weaker: the treatment of that record is not protected.
    """

    REPLACE_ONE = "replace-one"
    REPLACE_ONE_KEEP_TREATMENT = "replace-one-keep-treatment"


@dataclass(frozen=True)
class Budget:
    """A privacy budget: ``epsilon`` > 0 and finite, 0 <= ``delta`` < 1.

    Raises :class:`~dp2erm_cvx.errors.DeclarationError` otherwise.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        epsilon = public_number("epsilon", self.epsilon, above=0.0)
        delta = public_number("delta", self.delta, at_least=0.0)
        if delta >= 1.0:
            raise DeclarationError(f"delta = {delta!r}: must be in [0, 1)")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)


class BoundFamily(enum.StrEnum):
    """Whose stability bound is in force: the sharp theorems, or the paper's statements as printed."""

    SHARP = "sharp"
    PAPER = "paper"


@dataclass(frozen=True)
class StabilityBound:
    """A proven bound on how far the weights move between neighboring datasets.

    ``V`` bounds the coupled variation ``||w - w'||_1 + 2 min(w_j, w'_j)``; ``W1`` and ``W2`` bound
    the paper's quantities where a theorem states them. All are computed from public quantities
    alone; ``private`` is False where something was read off the data.
    """

    V: float
    theorem: str
    assumptions: tuple[str, ...]
    relations: frozenset[Neighboring]
    w_max: float
    W1: float | None = None
    W2: float | None = None
    private: bool = True


def public_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    infinite: bool = False,
) -> float:
    """Check a declared public number and return it as a float.

    ``infinite`` admits ``+inf``. Raises DeclarationError naming the quantity, its value and the
    range it must lie in.
    """
    if isinstance(value, bool):
        raise DeclarationError(f"{name} = {value!r}: must be a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise DeclarationError(f"{name} = {value!r}: must be a number") from None
    if math.isnan(number) or (math.isinf(number) and not (infinite and number > 0)):
        raise DeclarationError(f"{name} = {value!r}: must be a finite number")
    if above is not None and number <= above:
        raise DeclarationError(f"{name} = {value!r}: must be greater than {above:g}")
    if at_least is not None and number < at_least:
        raise DeclarationError(f"{name} = {value!r}: must be at least {at_least:g}")
    return number


@dataclass(frozen=True)
class LossConstants:
    """What calibration needs of a second stage; every field is derived from the Domain.

    ``gradient_radius`` is the centered gradient radius zeta_c of Theorem 1, ``hessian_trace`` bounds
    the trace of the loss Hessian, ``strong_convexity`` is mu_R of the public regularizer,
    ``theta_bound`` bounds ||theta||_2 over the feasible set (None if unbounded) and
    ``outcome_bound`` is M'. ``gradient_bound`` is the paper's uncentered zeta, and a squared loss
    ``(z - <x, theta>)^2`` states bounds on ||x|| (``covariate_bound``) and on z (``response_bound``) and
    whether ``x = 1`` (``is_mean``), where its unconstrained minimizer is a weighted mean.
    """

    n_parameters: int
    gradient_radius: float
    hessian_trace: float
    strong_convexity: float
    theta_bound: float | None
    outcome_bound: float
    gradient_bound: float | None = None
    covariate_bound: float | None = None
    response_bound: float | None = None
    is_mean: bool = False
