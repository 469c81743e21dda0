"""R of the theorems: certified concave envelopes of 1 over a curvature."""

import math

import mpmath
import numpy as np
import pytest

from dp2erm_cvx.curves.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.weighting.bounds.response import (
    base_response,
    controls_response,
    largest_response,
    mean_response,
    treated_response,
)

SQUARE = DispersionPart("square", 0.5)
ENTROPY = DispersionPart("entropy", 1.0)
LOG = DispersionPart("log", 1.0)


def of(*parts: DispersionPart) -> Dispersion:
    return Dispersion(parts)


def power(number: float) -> Dispersion:
    return of(DispersionPart("power", 1.0, number=number))


def logit(low: float, high: float) -> Dispersion:
    return of(DispersionPart("entropy", 1.0, 1.0, -low), DispersionPart("entropy", 1.0, -1.0, high))


#: Sums without a closed form.
SUMS = {
    "square and log": of(DispersionPart("square", 0.1), LOG),
    "entropy and log": of(ENTROPY, DispersionPart("log", 0.3)),
    "square and a power between 2 and 3": of(SQUARE, DispersionPart("power", 0.3, number=2.5)),
    "square and a fourth power": of(
        DispersionPart("square", 0.01), DispersionPart("power", 0.3, number=4.0)
    ),
    "two logs": of(LOG, DispersionPart("log", 1.0, -1.0, 4.5)),
    "square and huber": of(
        DispersionPart("square", 0.2), DispersionPart("huber", 0.5, 1.0, -1.0, 0.4)
    ),
    "huber, power and line": of(
        DispersionPart("huber", 0.5, 1.0, -1.0, 0.4),
        DispersionPart("power", 0.7, number=3.0, offset=0.2),
        DispersionPart("line", -3.0),
    ),
}


def chords(dispersion: Dispersion, low: float, high: float, mean: float) -> float:
    """The largest chord of q over pairs of 2,000 weights: never above the envelope."""
    weights = np.concatenate([[low + 1e-9], np.linspace(low, high, 2_003)[1:-1], [high - 1e-9]])
    q = 1.0 / dispersion.curvature(weights)
    left = weights <= mean
    x, y = weights[left][:, None], q[left][:, None]
    u, v = weights[~left][None, :], q[~left][None, :]
    return float(np.max(y + (v - y) * (mean - x) / (u - x)))


@pytest.mark.parametrize(
    ("dispersion", "low", "high", "response"),
    [
        (of(SQUARE), 0.0, math.inf, 1.0),
        (of(SQUARE, DispersionPart("size", 3.0, 1.0, -1.0)), 0.0, 4.0, 1.0),
        (of(ENTROPY), 0.0, math.inf, 1.0),
        (of(ENTROPY, DispersionPart("line", -7.0)), 0.0, 3.0, 1.0),
        (logit(0.1, 4.0), 0.1, 4.0, 0.9 * 3.0 / 3.9),
        (of(LOG), 0.2, 3.0, 0.2 + 3.0 - 0.6),
        (of(LOG), 0.0, 40.0, 40.0),
        (power(1.5), 0.0, 4.0, 1.0 / 0.75),
        (power(2.0), 0.0, 4.0, 0.5),
        (power(0.5), 0.0, 4.0, 4.0**1.5 / 0.25 / 4.0),
        (power(3.0), 0.5, 2.0, (1.0 / 3.0) + (0.5 / 1.5) * (1.0 / 12.0 - 1.0 / 3.0)),
        (of(SQUARE, ENTROPY), 0.0, 4.0, 0.5),
    ],
)
def test_mean_responses_are_those_of_their_closed_forms(
    dispersion: Dispersion, low: float, high: float, response: float
) -> None:
    assert mean_response(dispersion, low, high, 1.0) == pytest.approx(response, rel=1e-9)
    assert mean_response(dispersion, low, high, 1.0) >= response


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("ends", [(0.05, 3.0), (0.3, 4.2), (0.9, 1.7)])
@pytest.mark.parametrize("mean", [0.93, 1.0, 1.6])
def test_the_mean_response_is_above_every_chord_and_close_to_the_largest(
    name: str, ends: tuple[float, float], mean: float
) -> None:
    found = chords(SUMS[name], *ends, mean)
    response = mean_response(SUMS[name], *ends, mean)
    if math.isinf(found):
        assert math.isinf(response)
    else:
        # The weights of `chords` are 2e-3 apart.
        assert found <= response <= found * (1.0 + 6e-3)


@mpmath.workdps(30)
def test_the_envelope_of_a_sum_to_thirty_digits() -> None:
    """Square and log: q = w^2/(1 + w^2/5) is convex, then concave; its envelope at .3 is a tangent
    from 0.
    """
    # The tangent from (0, 0) touches where q' = q/w, that is where 2 = 1 + w^2/5.
    touch = mpmath.sqrt(5)
    slope = touch / (1 + touch**2 / 5)
    exact = float(slope * mpmath.mpf("0.3"))
    found = mean_response(SUMS["square and log"], 0.0, 4.0, 0.3)
    assert exact <= found <= exact * (1.0 + 1e-9)


@pytest.mark.parametrize("name", SUMS)
def test_the_largest_response_is_that_of_a_dense_grid(name: str) -> None:
    weights = np.linspace(0.3, 2.9, 300_001)
    found = float(np.max(1.0 / np.maximum(SUMS[name].curvature(weights), 1e-300)))
    if found > 1e200:
        assert math.isinf(largest_response(SUMS[name], 0.3, 2.9))
    else:
        assert found <= largest_response(SUMS[name], 0.3, 2.9) <= found * (1.0 + 1e-4)


def test_the_largest_response_at_ends_of_domains() -> None:
    assert largest_response(of(ENTROPY), 0.0, 7.0) == pytest.approx(7.0, rel=1e-9)
    assert largest_response(of(LOG), -3.0, 7.0) == pytest.approx(49.0, rel=1e-9)
    assert largest_response(logit(0.0, 5.0), 0.0, 5.0) == pytest.approx(1.25, rel=1e-9)
    assert largest_response(logit(0.0, 5.0), -1.0, 9.0) == pytest.approx(1.25, rel=1e-9)
    assert largest_response(of(ENTROPY), 0.0, 0.0) == 0.0


@pytest.mark.parametrize(
    "dispersion",
    [
        of(DispersionPart("line", 1.0)),
        of(DispersionPart("size", 1.0)),
        of(DispersionPart("huber", 1.0, number=2.0)),
        power(3.0),
        power(1.0),
        of(),
    ],
)
def test_what_may_be_flat_has_no_response(dispersion: Dispersion) -> None:
    assert math.isinf(mean_response(dispersion, 0.0, 4.0, 1.0))
    assert math.isinf(largest_response(dispersion, 0.0, 4.0))
    assert math.isinf(base_response(dispersion, (0.0, 4.0), (0.5, 2.0)))


def test_a_huber_function_within_its_knee_is_a_square() -> None:
    huber = of(DispersionPart("huber", 0.5, 1.0, -1.0, 3.0))
    assert mean_response(huber, 0.0, 4.0, 1.0) == pytest.approx(1.0, rel=1e-9)
    assert math.isinf(mean_response(huber, 0.0, 4.1, 1.0))


def test_a_mean_outside_of_the_interval_is_refused() -> None:
    with pytest.raises(DeclarationError, match="must be between"):
        mean_response(of(SQUARE), 1.5, 2.0, 1.0)
    with pytest.raises(DeclarationError, match="none is in"):
        largest_response(logit(0.0, 2.0), 3.0, 4.0)


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize(
    "dispersion", [of(SQUARE), of(ENTROPY), of(LOG), logit(0.0, 8.0), *SUMS.values()]
)
def test_the_response_of_bases_is_above_every_mixture(dispersion: Dispersion) -> None:
    """Means of d q(w/d) over drawn pairs (w, d) whose weights have mean 1."""
    generator = np.random.default_rng(7)
    bases, ratios = (0.6, 1.9), (0.2, 4.4)
    bound = base_response(dispersion, ratios, bases)
    largest = 0.0
    for _ in range(1_000):
        d = generator.uniform(*bases, 3)
        d[generator.random(3) < 0.3] = bases[1]
        w = d * np.exp(generator.uniform(math.log(ratios[0]), math.log(ratios[1]), 3))
        if not np.min(w) < 1.0 < np.max(w):
            continue
        light, heavy = int(np.argmin(w)), int(np.argmax(w))
        share = (1.0 - w[light]) / (w[heavy] - w[light])
        q = d / np.maximum(dispersion.curvature(w / d), 1e-300)
        largest = max(largest, share * q[heavy] + (1.0 - share) * q[light])
    assert largest <= bound
    assert math.isinf(bound) or largest >= 0.7 * bound


def test_bases_of_1_have_the_response_at_the_mean() -> None:
    for dispersion in SUMS.values():
        one = base_response(dispersion, (0.3, 3.0), (1.0, 1.0))
        assert one == pytest.approx(mean_response(dispersion, 0.3, 3.0, 1.0), rel=1e-8)


@pytest.mark.one_row_in(12)
@pytest.mark.parametrize(
    "dispersion", [of(SQUARE), of(ENTROPY), of(LOG), logit(0.5, 8.0), *SUMS.values()]
)
@pytest.mark.parametrize("total", [None, 1.0, 1.0125])
def test_the_response_of_controls_is_above_every_mixture(
    dispersion: Dispersion, total: float | None
) -> None:
    """Means over all records of q of the controls' weights; their sum is n, or ``total`` less their
    share.
    """
    generator = np.random.default_rng(9)
    shares, high = (0.5, 0.8), 4.0
    if total is None:
        bound = controls_response(dispersion, high, shares[1])
    else:
        bound = treated_response(dispersion, high, shares, total)
    largest = 0.0
    low = max(0.01, dispersion.ends[0])
    for _ in range(1_000):
        share = generator.choice([*shares, generator.uniform(*shares)])
        mean = (1.0 if total is None else total - share) / share
        w = (
            np.array([generator.uniform(low, mean), generator.uniform(mean, high)])
            if mean > low
            else None
        )
        if w is None:
            continue
        w = np.where(generator.random(2) < 0.3, [low + 1e-9, high - 1e-9], w)
        heavy = (mean - w[0]) / (w[1] - w[0])
        with np.errstate(over="ignore"):
            q = 1.0 / np.maximum(dispersion.curvature(w), 1e-300)
        largest = max(largest, share * ((1.0 - heavy) * q[0] + heavy * q[1]))
    assert largest <= bound
    assert math.isinf(bound) or largest >= 0.75 * bound
