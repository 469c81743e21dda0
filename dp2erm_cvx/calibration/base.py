"""What calibrations, pure functions of public numbers, consume and return, and what they refuse."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, RenyiCurve, StabilityBound
from dp2erm_cvx.public import public_number, whole_number

#: Relative margin that absorbs the rounding of the closed forms; always spent on more noise.
MARGIN = 1e-12

#: Smallest epsilon that is calibrated; the noise leaves floating point near there.
SMALLEST_EPSILON = 1e-100
#: Range of double precision: beyond the first epsilon - s^2/2 loses its digits, below the second the survival
#: function of chi_p underflows.
LARGEST_EPSILON, SMALLEST_DELTA = 1e6, 1e-300
# squares of noise vectors have to stay finite as well
_SMALLEST, _LARGEST = 1e-140, 1e140


class Noise(enum.StrEnum):
    """Law of the linear term ``b``.

    ``GAMMA``: density proportional to ``exp(-||b|| / scale)``; pure. ``GAUSSIAN``: ``N(0, scale^2 I)``; needs
    a delta. ``BOX``: density proportional to ``exp(-max |b_j| / (m_j scale))`` for a box of half widths m;
    pure.
    """

    GAMMA = "gamma"
    GAUSSIAN = "gaussian"
    BOX = "box"

    @property
    def pure(self) -> bool:
        """Whether it gives pure differential privacy."""
        return self is not Noise.GAUSSIAN

    @property
    def on_numbers(self) -> Noise:
        """The law in its place on numbers: box noise in one dimension is a Laplace variable."""
        return Noise.GAMMA if self is Noise.BOX else self

    @property
    def mechanism(self) -> str:
        """What the mechanism on numbers is called: one coordinate of gamma noise is a Laplace variable."""
        return "Laplace" if self.pure else "Gaussian"


class Perturbed(enum.StrEnum):
    """What the noise of a step is added to."""

    OBJECTIVE = "objective"
    UNCONSTRAINED = "unconstrained objective, theta projected afterwards"
    OUTPUT = "output"


@dataclass(frozen=True)
class Calibration:
    """A calibrated mechanism: the noise law, the ridge, and the guarantee (``epsilon``, ``delta``) they give.

    ``scale`` is 1/beta for gamma and box noise, and sigma of one coordinate for Gaussian noise, in units of
    ``n`` times the gradient of the averaged objective, which the noise enters as ``<b, theta> / n``; for box
    noise over those of its half widths ``box`` (p,). ``gamma`` is the coefficient of ``||theta||^2 / 2``,
    ``split`` the share q of epsilon that pays for the noise, the rest paying for the Jacobian.
    ``sensitivity``, ``zeta_c V``, bounds the movement of the summed gradient in the norm of the noise. Noise
    on an output, a mean, is in units of the outcome. ``private`` says whether a theorem certifies the
    guarantee, as it does for all but the paper's formulas; where it is False, ``delta`` is what Theorem 2
    proves. Raises DeclarationError for box noise without p half widths.
    """

    noise: Noise
    scale: float
    gamma: float
    split: float
    n_parameters: int
    V: float
    sensitivity: float
    epsilon: float
    delta: float
    theorem: str
    box: tuple[float, ...] | None = field(default=None, kw_only=True)
    perturbed: Perturbed = field(default=Perturbed.OBJECTIVE, kw_only=True)
    private: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if (self.noise is Noise.BOX) is not (self.box is not None and len(self.box) == self.n_parameters):
            raise DeclarationError(f"box: {self.n_parameters} half widths for box noise, none for another")

    def curve(self) -> RenyiCurve | None:
        """Renyi divergences where a theorem states more than epsilon and delta."""
        return None

    @property
    def expected_noise(self) -> float:
        """``E ||b||_2``, in units of n times the gradient; of noise on an output in those of the outcome."""
        return self.scale * mean_norm(self.noise, self.n_parameters, self.box)

    @property
    def unit(self) -> float:
        """Largest Euclidean length of noise whose own norm is ``scale``."""
        return self.scale if self.box is None else self.scale * math.hypot(*self.box)

    @property
    def variances(self) -> NDArray[np.float64]:
        """``E b_j^2`` of every coordinate (p,)."""
        p, square = self.n_parameters, self.scale**2
        if self.box is not None:
            return np.square(self.box) * ((p + 1) * (p + 2) / 3.0 * square)
        return np.full(p, (p + 1) * square if self.noise is Noise.GAMMA else square)

    def norms(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """The norm of noise vectors (..., p) that their density falls with, in the units of ``scale``."""
        if self.box is not None:
            largest: NDArray[np.float64] = np.max(np.abs(noise) / self.box, axis=-1)
            return largest
        return np.asarray(np.linalg.norm(noise, axis=-1))


def mean_norm(noise: Noise, n_parameters: int, box: tuple[float, ...] | None = None) -> float:
    """``E ||b||_2`` at unit scale: p for gamma noise, the mean of chi_p for Gaussian noise.

    ``(p + 1) E (sum m_j^2 U_j^2)^(1/2)`` for box noise, U uniform on the cube.
    """
    if box is not None:
        return (n_parameters + 1) * _mean_of_box(box)
    if noise is Noise.GAMMA:
        return float(n_parameters)
    half = n_parameters / 2
    return math.sqrt(2.0) * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))


@lru_cache(maxsize=256)
def _mean_of_box(box: tuple[float, ...]) -> float:
    """Mean norm of a uniform point, by ``E Q^(1/2) = integral (1 - E exp(-s^2 Q)) / s^2 ds / pi^(1/2)``."""
    size = math.hypot(*box)
    nodes, weights = np.polynomial.legendre.leggauss(128)
    v = 0.5 * (nodes + 1.0)
    x = np.outer(v / (1.0 - v), np.array(box) / size)
    # E exp(-x^2 U^2) = pi^(1/2) erf(x) / (2 x)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.where(x > 0.0, math.sqrt(math.pi) / 2.0 * special.erf(x) / x, 1.0))
    left = -np.expm1(np.sum(logs, axis=1))
    return size * float(np.sum(0.5 * weights * left / v**2)) / math.sqrt(math.pi)


def gradient_size(loss: LossConstants, noise: Noise) -> float:
    """zeta_c in the norm of this noise. Raises CalibrationError where box noise has no box."""
    if noise is not Noise.BOX:
        return loss.gradient_radius
    if loss.box is None:
        raise CalibrationError(
            "box noise needs rows in a public box: declare ranges or a coordinate_bound in the domain, and a "
            "program that is linear in the covariates"
        )
    return loss.box.slope


def box_of(loss: LossConstants, noise: Noise) -> tuple[float, ...] | None:
    """The half widths of the box of box noise, None for another law."""
    return None if loss.box is None or noise is not Noise.BOX else loss.box.widths


def check_loss(loss: LossConstants) -> None:
    """Raise DeclarationError naming a constant that is not positive, or a strong convexity below 0."""
    whole_number("n_parameters", loss.n_parameters, at_least=1)
    public_number("gradient_radius", loss.gradient_radius, above=0.0)
    public_number("hessian_trace", loss.hessian_trace, above=0.0)
    public_number("strong_convexity", loss.strong_convexity, at_least=0.0)
    public_number("outcome_bound", loss.outcome_bound, above=0.0)
    if loss.theta_bound is not None:
        public_number("theta_bound", loss.theta_bound, above=0.0)
    if loss.box is not None:
        for width in (*loss.box.widths, loss.box.slope):
            public_number("box", width, above=0.0, infinite=True)


def in_range(name: str, value: float, setting: str) -> float:
    """Return ``value``; raises CalibrationError, naming the ``setting``, where floating point gives out."""
    if not _SMALLEST < value < _LARGEST:
        raise CalibrationError(
            f"{name} = {value:g} is out of floating-point range at {setting}: rescale the outcome or change "
            "the budget"
        )
    return value


@dataclass(frozen=True)
class Objective:
    """The weighted objective that a release minimizes, by what is public of it.

    ``bound`` is that of the movement of its weights between neighbors of the ``relation``; ``name``,
    ``weights`` and ``theta_set`` are what texts call the program, the first stage and the set.
    ``restriction`` says why the program is no plain squared loss over R^p, None where it is one without its
    set (Theorems 7 and 8). Raises DeclarationError.
    """

    bound: StabilityBound
    loss: LossConstants
    n_samples: int
    relation: Neighboring = Neighboring.REPLACE_ONE
    name: str = "the second stage"
    weights: str = "the first stage"
    theta_set: str = "the parameter set"
    restriction: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_samples", whole_number("n_samples", self.n_samples, at_least=2))

    def calibrated(
        self, noise: Noise, budget: Budget, scale: float, gamma: float, setting: str, **facts: Any
    ) -> Calibration:
        """The mechanism of this noise and ridge; the ``setting`` is named where floating point gives out.

        ``facts`` are ``sensitivity`` and ``theorem``, and a ``split`` where it is not 1.
        """
        return Calibration(
            noise=noise,
            scale=in_range("noise scale", scale * (1.0 + MARGIN), setting),
            gamma=in_range("gamma", gamma, setting),
            n_parameters=self.loss.n_parameters,
            V=self.bound.V,
            epsilon=budget.epsilon,
            delta=0.0 if noise.pure else budget.delta,
            box=box_of(self.loss, noise),
            **({"split": 1.0} | facts),
        )

    def refuse_restricted(self) -> None:
        """Raise CalibrationError where the program has no form over R^p, which Theorems 7 and 8 need."""
        if self.restriction is not None:
            raise CalibrationError(self.restriction)

    def refuse_unbounded(self) -> None:
        """Raise CalibrationError where zeta_c is infinite, which Theorems 1 and 2 need finite."""
        self.loss.refuse_unbounded(self.name, self.theta_set)


def refuse_uncovered(bound: StabilityBound, relation: Neighboring, budget: Budget, kind: Noise) -> None:
    """Raise CalibrationError where a bound does not cover what is declared, or a budget is out of range."""
    if not bound.private:
        raise CalibrationError(
            f"the stability bound of {bound.theorem} was read off the data: declare its constants publicly"
        )
    if relation not in bound.relations:
        raise CalibrationError(
            f"{bound.theorem} does not cover the neighboring relation {relation.value!r}: "
            f"it covers {', '.join(sorted(known.value for known in bound.relations)) or 'none'}"
        )
    if not (math.isfinite(bound.V) and bound.V > 0.0):
        raise CalibrationError(
            f"{bound.theorem} gives V = {bound.V!r}: no finite noise covers it; use a larger ridge, "
            "a smaller radius or a trim"
        )
    if not SMALLEST_EPSILON <= budget.epsilon <= LARGEST_EPSILON:
        raise CalibrationError(
            f"epsilon = {budget.epsilon!r}: must be between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}"
        )
    if kind is Noise.GAUSSIAN and budget.delta < SMALLEST_DELTA:
        raise CalibrationError(
            f"delta = {budget.delta!r}: Gaussian noise needs at least {SMALLEST_DELTA:g}: declare one, or "
            "take gamma noise"
        )
