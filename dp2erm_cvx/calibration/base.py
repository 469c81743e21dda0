"""Inputs, results and refusals of calibrations, and costs and tails of noise.

All are functions of public numbers.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp2erm_cvx.checks import check_settings, public_number, setting, whole_number
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget, Neighboring, RenyiCurve, StabilityBound

#: Relative margin that absorbs the rounding of the closed forms; always spent on more noise.
MARGIN = 1e-12

#: Smallest epsilon that is calibrated; the noise leaves floating point near there.
SMALLEST_EPSILON = 1e-100
#: Range of double precision: beyond the first epsilon - s^2/2 loses its digits, below the second
#: the survival function of chi_p underflows.
LARGEST_EPSILON = 1e6
SMALLEST_DELTA = 1e-300
# squares of noise vectors have to stay finite as well
_SMALLEST = 1e-140
_LARGEST = 1e140


class Noise(enum.StrEnum):
    """Law of the linear term ``b``.

    Attributes
    ----------
    GAMMA
        Density proportional to ``exp(-||b|| / scale)``.
    GAUSSIAN
        ``N(0, scale^2 I)``; it needs a delta.
    BOX
        Density proportional to ``exp(-max |b_j| / (m_j scale))`` for a box of half widths m.
    """

    GAMMA = "gamma"
    GAUSSIAN = "gaussian"
    BOX = "box"

    @property
    def pure(self) -> bool:
        """True if it gives pure differential privacy."""
        return self is not Noise.GAUSSIAN

    @property
    def on_numbers(self) -> Noise:
        """The law in its place on numbers: box noise in one dimension is a Laplace variable."""
        return Noise.GAMMA if self is Noise.BOX else self

    @property
    def mechanism(self) -> str:
        """Name of the mechanism on numbers: one coordinate of gamma noise is a Laplace variable."""
        return "Laplace" if self.pure else "Gaussian"


class Perturbed(enum.StrEnum):
    """The quantity that the noise of a step is added to."""

    OBJECTIVE = "objective"
    UNCONSTRAINED = "unconstrained objective, theta projected afterwards"
    OUTPUT = "output"


@dataclass(frozen=True)
class Calibration:
    """A calibrated mechanism: the law of its noise, its ridge, and the guarantee that they give.

    Parameters
    ----------
    noise
        Law of the noise.
    scale
        1/beta for gamma and box noise, and sigma of one coordinate for Gaussian noise. It is in
        units of ``n`` times the gradient of the averaged objective, which the noise enters as
        ``<b, theta> / n``; for box noise over those of its half widths, for an output in those of
        the outcome.
    gamma
        Coefficient of ``||theta||^2 / 2``.
    split
        Share of epsilon that pays for the noise, not the Jacobian.
    n_parameters
        The number p of entries of theta.
    V
        Bound on the coupled variation of the weights.
    sensitivity
        ``zeta_c V``, the bound on the movement of the summed gradient in the norm of the noise.
    epsilon, delta
        The guarantee; where ``private`` is False, delta is what Theorem 2 proves.
    theorem
        What proves it.
    box
        Half widths (p,) of box noise; None for other noise.
    perturbed
        What the noise is added to.
    private
        Whether a theorem certifies the guarantee.
    blocks
        Number of blocks of as many coordinates, independent of each other; of gamma noise alone.

    Raises
    ------
    DeclarationError
        For box noise without p half widths.
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
    blocks: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        has_widths = self.box is not None and len(self.box) == self.n_parameters
        if (self.noise is Noise.BOX) is not has_widths:
            raise DeclarationError(
                f"box: {self.n_parameters} half widths for box noise, none for another"
            )

    def curve(self) -> RenyiCurve | None:
        """Renyi divergences where a theorem states more than epsilon and delta."""
        return None

    @property
    def expected_noise(self) -> float:
        """The mean ``E ||b||_2``, in units of n times the gradient.

        Of noise on an output it is in units of the outcome.
        """
        if self.blocks > 1:  # to first order
            return math.sqrt(float(np.sum(self.variances)))
        return self.scale * mean_norm(self.noise, self.n_parameters, self.box)

    @property
    def of_block(self) -> Calibration:
        """The noise of one block."""
        return replace(self, n_parameters=self.n_parameters // self.blocks, blocks=1)

    @property
    def unit(self) -> float:
        """Largest Euclidean length of noise whose own norm is ``scale``."""
        return self.scale if self.box is None else self.scale * math.hypot(*self.box)

    @property
    def variances(self) -> NDArray[np.float64]:
        """``E b_j^2`` of every coordinate (p,)."""
        p = self.n_parameters
        square = self.scale**2
        if self.box is not None:
            return np.square(self.box) * ((p + 1) * (p + 2) / 3.0 * square)
        if self.noise is Noise.GAMMA:
            return np.full(p, (p // self.blocks + 1) * square)
        return np.full(p, square)

    def norms(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """The norm of noise vectors (..., p) that the density falls with, in units of ``scale``."""
        if self.box is not None:
            largest: NDArray[np.float64] = np.max(np.abs(noise) / self.box, axis=-1)
            return largest
        parts = np.reshape(noise, (*np.shape(noise)[:-1], self.blocks, -1))
        return np.asarray(np.linalg.norm(parts, axis=-1).sum(axis=-1))


def mean_norm(noise: Noise, n_parameters: int, box: tuple[float, ...] | None = None) -> float:
    """``E ||b||_2`` at unit scale: p for gamma noise, the mean of chi_p for Gaussian noise.

    ``(p + 1) E (sum m_j^2 U_j^2)^(1/2)`` for box noise, U uniform on the cube.

    Parameters
    ----------
    noise
        Law of the noise.
    n_parameters
        The number p of its entries.
    box
        Half widths m_j of the box of box noise; None for another law.

    Returns
    -------
    float
        The mean norm.
    """
    if box is not None:
        return (n_parameters + 1) * _mean_of_box(box)
    if noise is Noise.GAMMA:
        return float(n_parameters)
    half = n_parameters / 2
    return math.sqrt(2.0) * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))


@lru_cache(maxsize=256)
def _mean_of_box(box: tuple[float, ...]) -> float:
    """Mean norm of a uniform point of the box.

    It is ``E Q^(1/2)``, the integral of ``(1 - E exp(-s^2 Q)) / s^2`` over ``pi^(1/2)``.
    """
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
    """The gradient radius zeta_c in the norm of this noise.

    Parameters
    ----------
    loss
        Constants of the loss.
    noise
        Law of the noise.

    Returns
    -------
    float
        The radius.

    Raises
    ------
    CalibrationError
        Where box noise has no box.
    """
    if noise is not Noise.BOX:
        return loss.gradient_radius
    if loss.box is None:
        raise CalibrationError(
            "box noise needs rows in a public box: declare ranges or a coordinate_bound in the "
            "domain, and a program that is linear in the covariates"
        )
    return loss.box.slope


def box_of(loss: LossConstants, noise: Noise) -> tuple[float, ...] | None:
    """The half widths of the box of box noise, None for another law."""
    if loss.box is None or noise is not Noise.BOX:
        return None
    return loss.box.widths


@dataclass(frozen=True)
class Objective:
    """The weighted objective that a release minimizes, by what is public of it.

    Parameters
    ----------
    bound
        On the movement of its weights between neighbors.
    loss
        Constants of the second stage.
    n_samples
        Number of records, at least 2.
    relation
        Which datasets are neighbors.
    name, weights, theta_set
        What texts call the program, the first stage and the set of theta.
    restriction
        Why the program is no plain squared loss over R^p; None where it is one without its set
        (Theorems 7 and 8).
    blocks
        Number of blocks of coordinates, of which every row lies in one.

    Raises
    ------
    DeclarationError
        For an invalid number.
    """

    bound: StabilityBound
    loss: LossConstants
    n_samples: int = setting(check=whole_number, at_least=2)
    relation: Neighboring = Neighboring.REPLACE_ONE
    name: str = "the second stage"
    weights: str = "the first stage"
    theta_set: str = "the parameter set"
    restriction: str | None = None
    blocks: int = 1

    def __post_init__(self) -> None:
        check_settings(self)

    def calibrated(
        self, noise: Noise, budget: Budget, scale: float, gamma: float, **facts: Any
    ) -> Calibration:
        """The mechanism of this noise and ridge.

        Parameters
        ----------
        noise, budget, scale, gamma
            The law, what it may spend, its scale and the ridge.
        facts
            Sensitivity, theorem, and perhaps a split.

        Raises
        ------
        CalibrationError
            As :meth:`refuse_uncovered`, so that no calibration can leave that out.
        """
        self.refuse_uncovered(budget, noise)
        scale = self.in_range("noise scale", scale * (1.0 + MARGIN), budget)
        if facts.get("perturbed") is not Perturbed.OUTPUT:
            self.in_range("gamma", gamma, budget)
        return Calibration(
            noise=noise,
            scale=scale,
            gamma=gamma,
            n_parameters=self.loss.n_parameters,
            V=self.bound.V,
            epsilon=budget.epsilon,
            delta=0.0 if noise.pure else budget.delta,
            box=box_of(self.loss, noise),
            **({"split": 1.0} | facts),
        )

    def in_range(self, name: str, value: float, budget: Budget) -> float:
        """A value that floating point holds.

        Parameters
        ----------
        name, value
            The value and its name.
        budget
            The budget that it follows from.

        Returns
        -------
        float
            The value.

        Raises
        ------
        CalibrationError
            Where floating point gives out; it names what the value follows from.
        """
        if _SMALLEST < value < _LARGEST:
            return value
        sizes = {"epsilon": budget.epsilon, "delta": budget.delta, "V": self.bound.V}
        for fact in ("gradient_radius", "gradient_bound", "hessian_trace", "response_bound"):
            size = getattr(self.loss, fact)
            if size is not None:
                sizes[fact] = size
        facts = ", ".join(f"{fact} = {size:g}" for fact, size in sizes.items())
        raise CalibrationError(
            f"{name} = {value:g} is out of floating-point range at {facts}: rescale the outcome or "
            "change the budget"
        )

    def refuse_uncovered(self, budget: Budget, noise: Noise) -> None:
        """Raise CalibrationError where the bound does not cover the declaration or a budget is off.

        A search for noise asks first: without a finite V or a delta it has no end.
        """
        bound = self.bound
        relation = self.relation
        if not bound.private:
            raise CalibrationError(
                f"the bound of {bound.theorem} was read off the data: declare its constants "
                "publicly"
            )
        if relation not in bound.relations:
            covered = sorted(known.value for known in bound.relations)
            raise CalibrationError(
                f"{bound.theorem} does not cover the neighboring relation {relation.value!r}: "
                f"it covers {', '.join(covered) or 'none'}"
            )
        if not (math.isfinite(bound.V) and bound.V > 0.0):
            raise CalibrationError(
                f"{bound.theorem} gives V = {bound.V!r}: no finite noise covers it; use a larger "
                "ridge, a smaller radius or a trim"
            )
        if not SMALLEST_EPSILON <= budget.epsilon <= LARGEST_EPSILON:
            raise CalibrationError(
                f"epsilon = {budget.epsilon!r}: must be between {SMALLEST_EPSILON:g} and "
                f"{LARGEST_EPSILON:g}"
            )
        if noise is Noise.GAUSSIAN and budget.delta < SMALLEST_DELTA:
            raise CalibrationError(
                f"delta = {budget.delta!r}: Gaussian noise needs at least {SMALLEST_DELTA:g}: "
                "declare one, or take gamma noise"
            )


#: Norm of a usual theta in units of ``Z sqrt(2 / Lambda)``, which is M'/M for the squared loss of a
#: rule, M' for means. Small, as a rule does not suffer from being shrunk; chosen in simulations.
USUAL_SIZE = 0.125


def utility_bound(
    noise_norm: float,
    n_samples: int,
    calibration: Calibration,
    theta_norm: float,
    strong_convexity: float = 0.0,
) -> float:
    """Sharp bound on ``L(theta_priv) - L(theta_opt)``, in units of the objective L; it is attained.

    It is ``(||b||/n + gamma ||theta_opt||)^2 / (2 (rho + 2 gamma))``, where L is the objective
    without gamma and noise.

    Parameters
    ----------
    noise_norm
        Norm ``||b||_2`` of the noise.
    n_samples
        Number of records n.
    calibration
        The calibration, whose gamma is used.
    theta_norm
        Norm of the minimizer theta_opt of L.
    strong_convexity
        Strong convexity rho of L, at least 0.

    Returns
    -------
    float
        The bound.

    Raises
    ------
    DeclarationError
        For an invalid number.
    """
    norm = public_number("noise_norm", noise_norm, at_least=0.0)
    n = whole_number("n_samples", n_samples, at_least=1)
    theta = public_number("theta_norm", theta_norm, at_least=0.0)
    rho = public_number("strong_convexity", strong_convexity, at_least=0.0)
    total = norm / n + calibration.gamma * theta
    return total / (2.0 * (rho + 2.0 * calibration.gamma)) * total


def _usual_curvature(loss: LossConstants) -> float:
    """Curvature of records of the largest trace, evenly spread.

    It is exact for a mean and for two equal arms.
    """
    return loss.strong_convexity + loss.hessian_trace / loss.n_parameters


def predicted_distance(
    noise_norm: float, gamma: float, loss: LossConstants, n_samples: int
) -> float:
    """Predicted distance in theta that noise of norm ``||b||`` and a ridge gamma make.

    ``sqrt((||b|| / n)^2 + (gamma a)^2) / rho`` from public guesses: rho is ``mu_R + Lambda / p``,
    Lambda the ``hessian_trace``; the norm a of the minimizer is ``Z sqrt(2 / Lambda) / 8``, Z the
    ``outcome_bound``, and at most ``theta_bound``. What gamma takes off the noise does not count:
    it takes as much off the signal.

    Parameters
    ----------
    noise_norm
        Norm of the noise.
    gamma
        The ridge.
    loss
        Constants of the loss.
    n_samples
        Number of records n.

    Returns
    -------
    float
        The distance; infinite where the noise or gamma is.
    """
    if not (math.isfinite(noise_norm) and math.isfinite(gamma)):
        return math.inf
    size = USUAL_SIZE * loss.outcome_bound * math.sqrt(2.0 / loss.hessian_trace)
    if loss.theta_bound is not None:
        size = min(size, loss.theta_bound)
    return math.hypot(noise_norm / n_samples, gamma * size) / _usual_curvature(loss)


def least_predicted(
    objective: Objective, noise: Noise, scales: Iterable[float], gammas: Iterable[float]
) -> int:
    """Place of the least :func:`predicted_distance` at the expected noise.

    Parameters
    ----------
    objective
        What is perturbed.
    noise
        Law of the noise.
    scales, gammas
        Scales of the noise and ridges of all candidates.

    Returns
    -------
    int
        The place among the candidates.
    """
    loss = objective.loss
    unit = mean_norm(noise, loss.n_parameters, box_of(loss, noise))
    distances = []
    for scale, gamma in zip(scales, gammas, strict=True):
        norm = unit * float(scale)
        distances.append(predicted_distance(norm, float(gamma), loss, objective.n_samples))
    return int(np.argmin(distances))


def predicted_error(calibration: Calibration, loss: LossConstants, n_samples: int) -> float:
    """Predicted excess of the second-stage objective, by which calibrations are chosen.

    It is no guarantee: ``rho/2`` times the square of
    :func:`~dp2erm_cvx.calibration.base.predicted_distance` at the expected noise; of a mean the
    noise is the distance.
    """
    distance = calibration.expected_noise
    if calibration.perturbed is not Perturbed.OUTPUT:
        distance = predicted_distance(distance, calibration.gamma, loss, n_samples)
    return 0.5 * _usual_curvature(loss) * distance * distance


_TAIL_ROUND_UP = 1.0 + 1e-9
_ROOT_2 = math.sqrt(2.0)
#: Laplace scales closer than this have no stable closed form; both are then taken larger.
_APART = 1.002


def sum_tail(noise: Noise, x: float, deviation: float, *scales: float) -> float:
    """The probability ``P(N + sum L_j > x)``, rounded up, of independent noises.

    N is normal.

    Two Laplace variables of scales b > c have the law ``b^2/(b^2 - c^2)`` Laplace(b) less
    ``c^2/(b^2 - c^2)`` Laplace(c), and are enlarged by 1/500 where they are closer than that. For
    more of them the characteristic function is inverted.

    Parameters
    ----------
    noise
        Law of the L_j.
    x
        The number.
    deviation
        Standard deviation of N, which may be 0.
    scales
        Scales of the L_j, which may be 0.
    """
    if x == 0.0:
        return 0.5
    if x < 0.0:
        return 1.0 - sum_tail(noise, -x, deviation, *scales)
    if noise is Noise.GAUSSIAN:
        deviation = math.hypot(deviation, *scales)
        scales = ()
    if sum(scale > 0.0 for scale in scales) > 2:
        return _many_tail(x, deviation, scales)
    small, large = [0.0, 0.0, *sorted(scales)][-2:]
    if large < _APART * small:
        # both are taken larger
        small = large
        large = _APART * large
    ratio = small / large if large else 0.0
    weight = 1.0 / (1.0 - ratio * ratio)
    tail = weight * _one_tail(x, deviation, large)
    if small > 0.0:
        tail -= (weight - 1.0) * _one_tail(x, deviation, small)
    return tail * _TAIL_ROUND_UP


def sum_quantile(noise: Noise, tail: float, deviation: float, *scales: float) -> float:
    """The x >= 0 with ``sum_tail(noise, x, deviation, *scales) = tail``, rounded up.

    Parameters
    ----------
    noise, deviation, scales
        As of :func:`sum_tail`.
    tail
        Probability, above 0 and below 1/2.
    """
    # an upper end by the union bound: half for N, the other half for all noises alike
    normal = -float(special.ndtri(0.5 * tail))
    of_normal = (math.hypot(deviation, *scales) + deviation) * normal
    of_others = sum(scales) * math.log(max(len(scales), 2) / tail)

    def is_beyond(x: float) -> bool:
        return sum_tail(noise, x, deviation, *scales) <= tail

    return bracketed(is_beyond, (of_normal + of_others) * _APART)


def bracketed(
    holds: Callable[[float], bool], high: float, low: float = 0.0, halvings: int = 52
) -> float:
    """A number near which ``holds`` begins, on the side where it holds.

    Parameters
    ----------
    holds
        What is to hold.
    high, low
        Numbers between which it begins; it is taken to hold at ``high``, which may be the smaller
        one.
    halvings
        Steps of bisection.
    """
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _one_tail(x: float, deviation: float, scale: float) -> float:
    """``P(N + L > x)``, L Laplace.

    With ``v = x / deviation`` and ``r = deviation / scale`` it is ``sf(v)`` plus half of
    ``exp(r^2/2 - r v) Phi(v - r) - exp(r^2/2 + r v) Phi(-v - r)``.
    """
    if deviation == 0.0:
        return 0.5 * math.exp(-x / scale) if scale else 0.0
    v = x / deviation
    if scale == 0.0:
        return float(special.ndtr(-v))
    r = deviation / scale
    # exp(-v^2/2) = exp(r^2/2 - r v) exp(-(v - r)^2/2), and erfcx(t / sqrt(2)) / 2 = exp(t^2/2)
    # Phi(-t)
    density = math.exp(-0.5 * v * v)
    if v <= r:
        above = 0.5 * density * float(special.erfcx((r - v) / _ROOT_2))
    else:
        above = math.exp(0.5 * r * r - x / scale) * float(special.ndtr(v - r))
    below = 0.5 * density * float(special.erfcx((r + v) / _ROOT_2))
    return float(special.ndtr(-v)) + 0.5 * (above - below)


def _many_tail(x: float, deviation: float, scales: Sequence[float]) -> float:
    """Tail of a sum of Laplace variables to 1e-12, by inverting its characteristic function.

    A sum stands for the integral of Gil-Pelaez (Davies 1973).
    """
    # scales below a twentieth of the largest are enlarged to it
    largest = max(scales)
    wide = np.array([max(scale, 0.05 * largest) for scale in scales if scale > 0.0])
    reach = x + 10.0 * deviation + 32.0 * largest + 4.0 * float(np.sum(wide))
    step = 2.0 * math.pi / reach
    # where the characteristic function is below 1e-13
    count = len(wide)
    far = np.prod(wide / largest) ** (-1.0 / count) * 10.0 ** (6.5 / count)
    far = min(5e6, far) / largest
    if deviation > 0.0:
        far = min(far, 7.8 / deviation)
    t = (np.arange(math.ceil(far / step)) + 0.5) * step
    of_laplace = np.prod(1.0 + np.square(wide[:, None] * t), axis=0)
    size = np.exp(-0.5 * (deviation * t) ** 2) / of_laplace
    tail = 0.5 - step / math.pi * float(np.sum(np.sin(t * x) * size / t))
    return max(tail, 0.0) * _TAIL_ROUND_UP + 2e-12
