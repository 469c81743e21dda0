"""The ideal vector lies within the stated distance, whatever the bits; the noise has the stated
law.
"""

import itertools
import math
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from flint import arb, ctx
from scipy import stats

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.noise import (
    LazyUniform,
    _evaluate,
    _uniforms_needed,
    draw,
    draw_within,
    secure_available,
    simulate_noise,
)
from tests.noise.laws import STREAMS, calibration_of, forced_uniforms, p_value

TAILS = [lambda: 0, lambda: 2**300 - 1, lambda: random.SystemRandom().getrandbits(300)]


def continued(uniform, tail):
    """The uniform with 300 further bits, exactly."""
    assert uniform.length + 300 < mp.mp.prec
    return mp.ldexp((uniform.prefix << 300) | tail(), -uniform.length - 300)


def ideal(calibration, uniforms):
    """The noise vector from the definition of the laws, at the working precision, 400 digits or
    more.
    """
    p = calibration.n_parameters
    if calibration.noise is Noise.BOX:
        rho = -mp.fsum(mp.log(u) for u in uniforms[p:]) * mp.mpf(calibration.scale)
        return [
            rho * mp.mpf(m) * (2 * u - 1)
            for m, u in zip(calibration.box, uniforms[:p], strict=True)
        ]
    pairs = 2 * math.ceil(p / 2)
    gaussian = []
    for length, angle in zip(uniforms[:pairs:2], uniforms[1:pairs:2], strict=True):
        r = mp.sqrt(-2 * mp.log(length))
        gaussian += [r * mp.cos(2 * mp.pi * angle), r * mp.sin(2 * mp.pi * angle)]
    del gaussian[p:]
    scale = mp.mpf(calibration.scale)
    if calibration.noise is Noise.GAUSSIAN:
        return [scale * g for g in gaussian]
    radius = mp.fsum(-mp.log(u) for u in uniforms[pairs:]) * scale
    norm = mp.sqrt(mp.fsum(g * g for g in gaussian))
    return [radius * g / norm for g in gaussian]


def ratios(stream, noise, p, scale, error, evaluate=_evaluate):
    """True distance over stated distance, for three ways in which the bits may go on."""
    calibration = calibration_of(noise, p, scale)
    uniforms = forced_uniforms(stream, _uniforms_needed(calibration))
    drawn = evaluate(calibration, error, uniforms)
    with mp.workdps(max(400, 150 + uniforms[0].length // 3)):
        value = [mp.mpf(float(v)) for v in drawn.value]
        size = mp.sqrt(mp.fsum(v * v for v in value))
        # what the rounding may cost: half a unit in the last place, or half the smallest double
        # each
        stated = mp.mpf(error) + mp.ldexp(size, -53) + math.sqrt(p) * mp.ldexp(1, -1075)
        result = []
        for tail in TAILS:
            target = ideal(calibration, [continued(u, tail) for u in uniforms])
            distance = mp.sqrt(mp.fsum((a - b) ** 2 for a, b in zip(value, target, strict=True)))
            result.append(float(distance / drawn.distance) if drawn.distance else math.inf)
    return max(result), drawn.distance / stated


#: Number of parameters, scale, and the error.
SETTINGS = [
    (1, 2.5, 2.5e-12),
    (2, 2.5, 2.5e-40),
    (3, 1e290, 1e278),
    (3, 1e-290, 1e-302),
    (5, 2.5, 0.6),
]
#: Where doubles give out.
ENDS = [(3, scale, 5e-324) for scale in (5e-324, 1e-310, 1e307)]


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("noise", Noise)
def test_the_ideal_draw_is_within_the_stated_distance(stream, noise):
    for p, scale, error in [*SETTINGS, (12, 1e-3, 1e-18), *(ENDS if stream == "random" else ())]:
        true, stated = ratios(stream, noise, p, scale, error)
        assert true <= 1.0
        assert stated <= (2.0 if error < 1e-320 else 1.0 + 1e-9)


def test_a_draw_beyond_doubles_states_an_infinite_distance():
    uniforms = forced_uniforms("long Gaussians", 2)
    drawn = _evaluate(calibration_of(Noise.GAUSSIAN, 2, 1.7e308), 1.0, uniforms)
    assert np.all(np.isfinite(drawn.value))
    assert np.max(np.abs(drawn.value)) == sys.float_info.max
    assert drawn.distance == math.inf


def without_rounding(calibration, error, uniforms):
    return replace(_evaluate(calibration, error, uniforms), distance=error)


def violations(evaluate=_evaluate):
    """Streams in which a distance is exceeded."""
    settings = itertools.product(STREAMS, Noise, SETTINGS)
    return {
        stream
        for stream, noise, case in settings
        if ratios(stream, noise, *case, evaluate)[0] > 1.0
    }


def test_a_distance_without_the_rounding_is_seen():
    # but for numbers so small that the error allowed for is larger than their rounding
    assert {*STREAMS} - violations(without_rounding) <= {"ones"}


def truncated(self):
    """32 bits taken for the whole number."""
    return arb(self.prefix >> (self.length - 32), 0) / 2**32 + arb(1) / 2**33


def clipped(self):
    """The smallest value a generator of doubles gives, in place of a long run of zero bits."""
    low = arb(1) / 2**53
    ball = arb((2 * self.prefix + 1, -self.length - 1), (1, -self.length - 1))
    return low if ball < low else ball


def narrow(self):
    """What is known, as if nothing were left to know."""
    return arb((2 * self.prefix + 1, -self.length - 1))


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(
    ("bug", "seen_in"), [(truncated, "random"), (clipped, "zeros"), (narrow, "ones")]
)
def test_a_wrong_uniform_is_seen(monkeypatch, bug, seen_in):
    monkeypatch.setattr(LazyUniform, "ball", bug)
    assert seen_in in violations()


def test_bits_are_appended_and_never_redrawn():
    uniform = LazyUniform(random.Random(7))
    prefixes = []
    for length in (3, 64, 64, 200, 100):
        uniform.extend_to(length)
        prefixes.append((uniform.prefix, uniform.length))
    assert prefixes[1] == prefixes[2]
    assert prefixes[3] == prefixes[4]
    for (short, n), (long, m) in itertools.pairwise(prefixes):
        assert long >> (m - n) == short


@pytest.mark.parametrize("length", [1, 53, 700])
def test_the_ball_of_a_uniform_is_the_interval_of_its_known_bits(length):
    uniform = LazyUniform(random.Random(length))
    uniform.extend_to(length)
    with ctx.workprec(20):
        ball = uniform.ball()
    ends = []
    for sign in (-1, 1):
        center, radius = (
            Fraction(int(m)) * Fraction(2) ** int(e)
            for m, e in (ball.mid().man_exp(), ball.rad().man_exp())
        )
        ends.append(center + sign * radius)
    assert ends == [Fraction(uniform.prefix + k, 2**length) for k in (0, 1)]


def test_precision_of_other_users_is_left_alone(monkeypatch):
    calibration = calibration_of(Noise.GAMMA, 5)
    with ctx.workprec(77):
        with ThreadPoolExecutor(4) as pool:
            drawn = list(
                pool.map(lambda seed: draw_within(calibration, 1e-9, seed=seed), range(60))
            )
        assert ctx.prec == 77
        monkeypatch.setattr("dp2erm_cvx.noise._enclose", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            draw_within(calibration, 1e-9)
        assert ctx.prec == 77
    monkeypatch.undo()
    for seed, one in enumerate(drawn):
        assert np.array_equal(one.value, draw_within(calibration, 1e-9, seed=seed).value)


def test_an_invalid_error_and_a_missing_extra_are_refused(monkeypatch):
    for error in (0.0, -1.0, math.nan, math.inf, "small", None):
        with pytest.raises(DeclarationError, match="error"):
            draw_within(calibration_of(Noise.GAMMA, 2), error)
    assert secure_available()
    monkeypatch.setattr("dp2erm_cvx.noise.find_spec", lambda name: None)
    assert not secure_available()
    with pytest.raises(DeclarationError, match=r"python-flint: install dp2erm-cvx\[secure\]"):
        draw_within(calibration_of(Noise.GAMMA, 2), 1e-9)


def test_import_needs_neither_package():
    program = (
        "import sys; sys.modules['flint'] = sys.modules['opendp'] = None\n"
        "from dp2erm_cvx.noise import draw, draw_within, perturb_on_grid\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


KINDS = ["draw", "draw_within", "simulate_noise"]


def sample(kind, calibration, size):
    if kind == "simulate_noise":
        return simulate_noise(calibration, size, np.random.default_rng(5))
    if kind == "draw_within":
        return np.array([draw_within(calibration, 1e-9, seed=seed).value for seed in range(size)])
    return np.array([draw(calibration, seed=seed) for seed in range(size)])


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("noise", "p"), [(Noise.GAMMA, 1), (Noise.GAMMA, 3), (Noise.GAUSSIAN, 3)])
def test_radii_have_their_law_and_directions_are_uniform(kind, noise, p):
    b, law = sample(kind, calibration_of(noise, p), 2000), stats.gamma if noise.pure else stats.chi
    assert b.shape == (2000, p)
    radius = np.linalg.norm(b, axis=1)
    assert p_value(radius, law(p, scale=2.5)) > 1e-3
    # the same test tells a wrong shape or half the scale apart
    assert p_value(radius, law(p + 1, scale=2.5)) < 1e-6
    assert p_value(radius, law(p, scale=1.25)) < 1e-6
    direction = b / radius[:, None]
    turned = direction @ np.linalg.qr(np.random.default_rng(0).normal(size=(p, p)))[0]
    for column in (*direction.T, *turned.T):
        assert stats.binomtest(int(np.sum(column > 0)), 2000).pvalue > 1e-3
        # on the sphere in three dimensions every projection is uniform on [-1, 1]
        assert p == 1 or p_value(column, stats.uniform(-1, 2)) > 1e-3
        assert p == 1 or stats.spearmanr(column, radius).pvalue > 1e-3


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 4])
def test_box_noise_is_uniform_in_its_box_with_one_gamma_more(kind, p):
    calibration = calibration_of(Noise.BOX, p)
    inside = sample(kind, calibration, 2000) / np.array(calibration.box)
    sizes = np.abs(inside)
    length = np.max(sizes, axis=1)
    assert np.array_equal(length, calibration.norms(inside * calibration.box))
    # Gamma(p + 1) times the largest of p uniforms is Gamma(p)
    assert p_value(length, stats.gamma(p, scale=2.5)) > 1e-3
    # the law whose length of a uniform point is Gamma(p) itself, and one without the box
    assert (
        p_value(length * stats.beta(p, 1).rvs(2000, random_state=1), stats.gamma(p, scale=2.5))
        < 1e-6
    )
    assert p > 1 or p_value(inside[:, 0], stats.laplace(scale=2.5)) > 1e-3
    for k in range(p):
        # P(|b_k| > t m_k) = E (1 - t / rho)_+ for rho ~ Gamma(p + 1)
        t = sizes[:, k] / 2.5
        upper = stats.gamma(p + 1).sf(t) - t / p * stats.gamma(p).sf(t)
        assert p_value(upper, stats.uniform) > 1e-3
        assert stats.binomtest(int(np.sum(inside[:, k] > 0)), 2000).pvalue > 1e-3
        shares = (inside[:, k] / length)[sizes[:, k] < length]
        assert p == 1 or p_value(shares, stats.uniform(-1, 2)) > 1e-3
        assert stats.spearmanr(inside[:, k], length).pvalue > 1e-3


@pytest.mark.parametrize("noise", Noise)
def test_simulated_norms_have_the_stated_mean_and_variances(noise):
    calibration = calibration_of(noise, 7)
    b = simulate_noise(calibration, 40_000, np.random.default_rng(1))
    norms = np.linalg.norm(b, axis=1)
    assert norms.mean() == pytest.approx(calibration.expected_noise, rel=0.01)
    np.testing.assert_allclose(np.mean(b**2, axis=0), calibration.variances, rtol=0.06)
    assert np.all(
        norms <= calibration.unit / calibration.scale * calibration.norms(b) * (1 + 1e-12)
    )


ONE = {
    "draw": draw,
    "draw_within": lambda calibration, seed=None: draw_within(calibration, 1e-9, seed=seed).value,
}


@pytest.mark.fresh_noise  # among 80 draws of 53 bits two are equal with probability below 1e-12
@pytest.mark.parametrize("one", ONE.values(), ids=ONE.keys())
@pytest.mark.parametrize("noise", Noise)
def test_every_bit_is_the_operating_systems_or_those_of_a_seed(noise, one, monkeypatch):
    calibration, draws = calibration_of(noise, 4), []
    for _ in range(20):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        draws.append(tuple(one(calibration)))
    assert len(set(draws)) == 20
    assert len({coordinate for vector in draws for coordinate in vector}) == 80
    monkeypatch.setattr(random, "SystemRandom", lambda *size: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        one(calibration)
    first, again, other = (one(calibration, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.all(np.isfinite(first))


@pytest.mark.parametrize(
    "sampler", [draw, lambda calibration, seed: draw_within(calibration, 1e-9, seed=seed).value]
)
def test_blocks_have_noise_of_their_own(sampler):
    noise = sampler(replace(calibration_of(Noise.GAMMA, 6), blocks=3), seed=1)
    assert len(np.unique(noise)) == 6
    assert len(np.unique(np.linalg.norm(noise.reshape(3, 2), axis=1))) == 3
