"""Private value of a released rule against treating all and treating none."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.calibration.grid import GridNoise
from dp2erm_cvx.calibration.value import ValueStatistic, value_statistic
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.mechanism import draw, perturb_on_grid

#: The noise leaves ``half_widths`` with at most this probability.
NOISE_MISS = 1 / 20

EXACT_NOISE = "exact discrete Laplace noise; rounding is counted in its scale"
EXACT_ARITHMETIC = "exact arithmetic assumed"
PROVEN_WIDTH = "at least 95 % for the noise alone"
FIRST_ORDER_WIDTH = "about 95 % for the noise alone, to first order in it"


@dataclass(frozen=True)
class ValueRelease:
    """Value of the rule less that of treating all and of treating none, in units of the net outcome.

    ``released`` holds the 8 or 2 numbers that noise of ``scale`` was added to, ``epsilon``-differentially
    private together; everything else follows from them and from public constants. ``half_widths``, of
    ``against_all`` and ``against_none``, and ``width`` say how far the noise may have moved them: nothing
    about sampling error, bias or confounding. ``arithmetic`` says whether the noise is exact.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    against_all: float
    against_none: float
    half_widths: tuple[float, float]
    width: str
    statistic: ValueStatistic
    released: tuple[float, ...]
    scale: float
    epsilon: float
    arithmetic: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        plain = asdict(self)
        return plain | {
            "statistic": self.statistic.value,
            "half_widths": list(self.half_widths),
            "released": list(self.released),
        }


def value_contrasts(records: Records, weights: ArrayLike, chosen: ArrayLike) -> Array:
    """``(1/n) sum w_i t_i``, shape (2,): against all, against none. Not private.

    ``weights`` (n,) are nonnegative of sum n, ``chosen`` (n,) in {0, 1} is what the rule chooses at each
    record, a function of that record and of public numbers alone.
    ``t_i = 2 (1{a_i = d_i} - 1{a_i = 1}, 1{a_i = d_i} - 1{a_i = 0}) y_i`` with y the centered net outcome.
    The l1 error of the result is at most ``calibration.value.SUM_ERROR`` times 2 M'.

    Raises DataError on a wrong shape, a weight that is no finite number, an outcome beyond the domain's
    bound, and a choice other than 0 and 1. Solved weights and records of a domain raise none of these.
    """
    w, d = _checked(records, weights, chosen)
    # a rule that treats gains on treating none where it treats, and on treating all where it does not
    follows = np.where(records.a == d, 1.0, -1.0)
    terms = w * (follows * records.y)
    sums = [math.fsum(terms[d == choice]) for choice in (0, 1)]
    return np.array([2.0 * total / records.n_samples for total in sums])


def value_cells(records: Records, weights: ArrayLike, chosen: ArrayLike) -> Array:
    """``(1/n) sum w_i t_i``, shape (8,), ``t_i = e_cell (x) (y_i, M'/2)``. Not private.

    Four sums of outcomes, then four masses times M'/2, of the cells (choice, treatment) = (0, 0), (0, 1),
    (1, 0), (1, 1). The l1 error is at most ``calibration.value.SUM_ERROR`` times 1.5 M'. Arguments and
    errors are those of :func:`value_contrasts`.
    """
    w, d = _checked(records, weights, chosen)
    terms, n = w * records.y, records.n_samples
    cells = [(d == choice) & (records.a == arm) for choice in (0, 1) for arm in (0, 1)]
    outcomes = [math.fsum(terms[cell]) / n for cell in cells]
    half = 0.5 * records.domain.outcome_bound
    return np.array(outcomes + [half * math.fsum(w[cell]) / n for cell in cells])


def contrasts_from_cells(cells: ArrayLike, outcome_bound: float, scale: float) -> tuple[Array, Array]:
    """Contrasts (2,) from the eight numbers, and the standard deviation (2,) that their noise gives them.

    ``(m_0 + m_1) (S_1/m_1 - S_0/m_0)`` on either side of the rule: means within cells, so that it does not
    matter what the arms weigh. Masses are taken to be at least their noise ``scale / (M'/2)``, means at most
    M'. The deviations are of first order in the noise.
    """
    numbers, half = np.asarray(cells, dtype=np.float64), 0.5 * outcome_bound
    # in units of M'
    outcomes = numbers[:4].reshape(2, 2) / outcome_bound
    masses = np.maximum(numbers[4:].reshape(2, 2), scale) / half
    means = np.clip(outcomes / masses, -1.0, 1.0)
    side = np.minimum(masses.sum(axis=1, keepdims=True), 1.0)
    gains = side[:, 0] * (means[:, 1] - means[:, 0])
    slope = side / masses
    by_mass = (means[:, 1:] - means[:, :1]) + slope * means * [[1.0, -1.0]]
    unit = math.sqrt(2.0) * (scale / outcome_bound)  # of an outcome sum; a mass has twice as much
    deviation = unit * np.sqrt(np.sum(slope**2 + 4.0 * by_mass**2, axis=1))
    return outcome_bound * gains * [-1.0, 1.0], outcome_bound * deviation


def release_value(
    records: Records,
    weights: ArrayLike,
    chosen: ArrayLike,
    noise: GridNoise,
    *,
    statistic: ValueStatistic | str = ValueStatistic.CELLS,
    exact: bool,
    seed: int | None = None,
) -> ValueRelease:
    """Release a statistic with the ``noise`` of :func:`dp2erm_cvx.calibration.value.calibrate_value` for it.

    ``exact`` adds discrete Laplace noise on a grid, which needs the extra ``secure``; otherwise the noise is
    drawn in floating point as if arithmetic were exact. With a ``seed`` nothing is private.

    Raises DataError like :func:`value_contrasts`, DeclarationError where the noise is for another statistic
    or ``exact`` is not available.
    """
    kind = value_statistic(statistic)
    if noise.n_parameters != kind.n_numbers:
        raise DeclarationError(f"noise for {noise.n_parameters} numbers: {kind.value} are {kind.n_numbers}")
    compute = value_cells if kind is ValueStatistic.CELLS else value_contrasts
    numbers = compute(records, weights, chosen)
    if exact:
        # the other draws of a seeded fit must not be these
        numbers = perturb_on_grid(numbers, noise, seed=None if seed is None else f"value {seed}")
    else:
        seeds = [None if seed is None else f"value {k} {seed}" for k in range(kind.n_numbers)]
        numbers = numbers + np.array([draw(_law(noise), seed=each)[0] for each in seeds])
    if kind is ValueStatistic.CELLS:
        contrasts, deviations = contrasts_from_cells(numbers, records.domain.outcome_bound, noise.scale)
        widths, width = 2.0 * deviations, FIRST_ORDER_WIDTH
    else:
        contrasts, widths, width = numbers, np.full(2, noise_half_width(noise)), PROVEN_WIDTH
    return ValueRelease(
        against_all=float(contrasts[0]),
        against_none=float(contrasts[1]),
        half_widths=(float(widths[0]), float(widths[1])),
        width=width,
        statistic=kind,
        released=tuple(float(number) for number in numbers),
        scale=noise.scale,
        epsilon=noise.epsilon,
        arithmetic=EXACT_NOISE if exact else EXACT_ARITHMETIC,
    )


def noise_half_width(noise: GridNoise) -> float:
    """What a released number misses its noiseless value by, except with probability NOISE_MISS.

    ``P(|noise| > k g) <= exp(-k g / scale)`` on a grid of step g: one step rounds ``scale log 20`` up to the
    grid, half a step is the rounding of the number and another half its floating-point error.
    """
    return noise.scale * math.log(1.0 / NOISE_MISS) + math.ldexp(2.0, noise.exponent)


def _checked(records: Records, weights: ArrayLike, chosen: ArrayLike) -> tuple[Array, Array]:
    n = records.n_samples
    try:
        w, d = np.asarray(weights, dtype=np.float64), np.asarray(chosen, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("weights and chosen: must be arrays of numbers") from None
    if w.shape != (n,) or d.shape != (n,):
        raise DataError(f"weights {w.shape} and chosen {d.shape} must have shape ({n},)")
    if not np.all(np.isfinite(w)):
        raise DataError("weights: must be finite numbers")
    if not np.all(np.abs(records.y) <= records.domain.outcome_bound):
        raise DataError("records: an outcome lies beyond the outcome_bound of the domain")
    if not np.all((d == 0) | (d == 1)):
        raise DataError("chosen: must be 0 or 1")
    return w, d


def _law(noise: GridNoise) -> Calibration:
    """The Laplace law as one coordinate of gamma noise, of which only the scale is read."""
    return Calibration(
        noise=Noise.GAMMA,
        scale=noise.scale,
        gamma=0.0,
        split=1.0,
        n_parameters=1,
        V=0.0,
        sensitivity=noise.l1_sensitivity,
        epsilon=noise.epsilon,
        delta=0.0,
        theorem="Laplace",
    )
