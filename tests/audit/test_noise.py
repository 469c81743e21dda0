"""The black-box audits of noise and of repeated releases: quiet on fresh noise, loud on planted bugs."""

import math

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.audit import NoiseAudit, audit_noise, audit_repeats
from dp2erm_cvx.audit.noise import chance_of_pair, closest, log_peak_density
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.mechanism import draw, simulate_noise
from dp2erm_cvx.model.sets import ElasticNet, L2Ball, UserRegularizer
from dp2erm_cvx.problems.itr import itr
from tests.audit.bugs import MEAN, release
from tests.audit.pairs import aligned, drawn
from tests.audit.plant import by_coordinate, halved, one_byte, plant, used_twice
from tests.mechanism.laws import box_of, calibration_of

DATA, _ = drawn(aligned)
#: Wide enough that theta is hardly ever on the boundary.
WIDE = itr(L2Ball(30.0))


def law(noise="gamma", p=2):
    return calibration_of(Noise(noise), p, scale=3.0)


def rows(noise="gamma", p=2):
    return iter(simulate_noise(law(noise, p), 1000, np.random.default_rng(5)))


def model(second=WIDE, **settings):
    return release(second=second, epsilon=5.0, **settings)


def audit_fits(used, **settings):
    """The audit of the noise in the workings of an estimator."""
    stated = used.plan(12, 2).main.calibration
    return audit_noise(lambda: used.fit(*DATA).private_workings_.noise, stated, **settings)


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("noise", list(Noise))
def test_true_noise_raises_an_alarm_as_often_as_stated(noise, p):
    rng = np.random.default_rng(17 * p)
    level, trials = 0.2, 20
    alarms = 0
    for _ in range(trials):
        drawn_rows = iter(simulate_noise(law(noise, p), 40, rng))
        alarms += audit_noise(lambda own=drawn_rows: next(own), law(noise, p), size=40, level=level).alarm
    assert alarms <= stats.binom.ppf(1 - 1e-6, trials, level)
    assert alarms > 0  # it can raise one


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("p", [1, 3])
def test_the_peak_density_is_that_of_the_law(noise, p):
    # the share of draws in a small ball is its volume times the density at 0
    radius = 1e-3
    radial = stats.chi(p) if noise is Noise.GAUSSIAN else stats.gamma(p)
    volume = math.pi ** (p / 2) / math.gamma(p / 2 + 1) * radius**p
    if noise is Noise.BOX:
        volume = (2 * radius) ** p * math.prod(box_of(noise, p))
    expected = radial.cdf(radius / 3.0) / volume
    assert math.exp(log_peak_density(law(noise, p))) == pytest.approx(expected, rel=2e-3)


def test_the_chance_of_a_close_pair_is_an_upper_bound():
    rng = np.random.default_rng(4)
    near = [closest(simulate_noise(law(p=2), 30, rng), mirrored=True) for _ in range(200)]
    chances = [chance_of_pair(r, log_peak_density(law(p=2)), 30, 2, ways=2) for r in near]
    for level in (0.05, 0.2):
        assert np.mean(np.array(chances) < level) <= level + 0.03


@pytest.mark.parametrize(
    "wrong",
    [
        lambda b: b / 2,
        lambda b: 1.5 * b,
        lambda b: np.abs(b),
        lambda b: b[0] * np.array([0.8, 0.6]),
        lambda b: np.array([b[0], 0.3 * b[1]]),
        lambda b: b + np.array([3.0, 0.0]),
    ],
)
@pytest.mark.parametrize("noise", list(Noise))
def test_wrong_laws_raise_an_alarm(noise, wrong):
    right = rows(noise)
    result = audit_noise(lambda: wrong(next(right)), law(noise), size=300)
    assert result.alarm
    assert "NOT the stated law" in str(result)


@pytest.mark.parametrize("stated", list(Noise))
@pytest.mark.parametrize("other", list(Noise))
def test_one_law_is_not_taken_for_the_other(stated, other):
    right = rows(other, 3)
    assert audit_noise(lambda: next(right), law(stated, 3)).alarm is (stated is not other)


def box_noise(length, edge=1.0, coupled=False):
    """Box noise of another law: of its length, of one edge, or with two coordinates of one sign."""
    box, rng = np.array(law("box", 3).box), np.random.default_rng(8)

    def drawn():
        inside = rng.uniform(-1, 1, 3) * np.array([edge, 1, 1])
        if coupled:
            inside[1] = math.copysign(inside[1], inside[0])
        return rng.gamma(length, 3.0) * box * inside

    return drawn


def test_box_noise_of_another_law_is_caught():
    stated = law("box", 3)
    assert not audit_noise(box_noise(4), stated).alarm
    # Gamma(p) goes with the surface of the box, not with its inside
    assert audit_noise(box_noise(3), stated).p_values["radius"] < 1e-6
    assert audit_noise(box_noise(4, edge=0.8), stated).p_values["direction"] < 1e-6
    assert audit_noise(box_noise(4, coupled=True), stated).p_values["direction"] < 1e-6


def test_negated_noise_counts_as_repeated():
    signs = iter([1.0, -1.0] * 50)
    twice = iter(np.repeat(list(rows())[:50], 2, axis=0))
    result = audit_noise(lambda: next(signs) * next(twice), law(), size=100)
    assert result.p_values["repeats"] == 0.0
    assert result.closest == 0.0


ARITHMETIC = ["assumed", pytest.param("counted", marks=pytest.mark.slow)]


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
@pytest.mark.parametrize(
    ("bug", "size"), [(used_twice, 20), (one_byte, 64), (halved, 64), (by_coordinate, 300)]
)
def test_wrong_noise_is_caught_in_the_workings_and_repeated_one_in_theta(monkeypatch, bug, size, arithmetic):
    plant(monkeypatch, bug)
    used = model(arithmetic=arithmetic)
    assert audit_fits(used, size=size, level=0.2 if bug is by_coordinate else 0.01).alarm
    if bug in (used_twice, one_byte):
        result = audit_repeats(used, *DATA, size=4 if bug is used_twice else 64)
        assert result.alarm
        assert "REUSED" in str(result)


@pytest.mark.parametrize(
    "settings", [{}, {"arithmetic": "assumed"}, {"noise": "gaussian", "delta": 1e-3}], ids=str
)
def test_fresh_noise_is_left_alone(settings):
    # a part of counted noise is OpenDP's, which has no seed: the level is the chance of a false alarm
    result = audit_repeats(model(**settings), *DATA, size=24, level=1e-10)
    assert not result.alarm
    assert result.counted > 12
    result = audit_fits(model(**settings), size=40, level=1e-10)
    assert not result.alarm
    assert 0.5 < result.median_radius < 2.0
    assert "no proof" in str(result)
    assert "not private" in result._repr_html_()
    assert not result.private


@pytest.mark.parametrize("arithmetic", ["assumed", "counted"])
@pytest.mark.parametrize(
    "second", [itr(L2Ball(1e-3)), *(itr(L2Ball(30.0), ElasticNet(l1)) for l1 in (1.0, 50.0))]
)
def test_atoms_on_the_boundary_do_not_count(second, arithmetic):
    result = audit_repeats(model(second, arithmetic=arithmetic), *DATA, size=8, level=1e-10)
    assert result.counted < 8
    assert not result.alarm


def test_output_perturbation_is_audited_too(monkeypatch):
    mean = model(MEAN, calibration="output", arithmetic="assumed")
    assert not audit_repeats(mean, *DATA, size=20, level=1e-10).alarm
    plant(monkeypatch, used_twice)
    assert audit_repeats(mean, *DATA, size=4).alarm


OWN = itr(L2Ball(1.0), UserRegularizer(lambda theta: 0))
REPEATS = (model(seed=1), {}, "seeded"), (model(OWN), {}, "elastic net"), (model(), {"size": 1}, "size = 1")
DRAWS = ({"size": 3}, "size = 3"), ({"level": 1.0}, "level = 1"), ({"level": -1.0}, "level = -1")


def test_what_cannot_be_audited_is_refused():
    for used, wrong, words in REPEATS:
        with pytest.raises(DeclarationError, match=words):
            audit_repeats(used, *DATA, **wrong)
    for wrong, words in DRAWS:
        with pytest.raises(DeclarationError, match=words):
            audit_noise(lambda: draw(law()), law(), **wrong)
    for value in ([1.0], [math.nan, 1.0], [[1.0, 2.0]]):
        with pytest.raises(DeclarationError, match="finite vector"):
            audit_noise(lambda value=value: value, law(), size=20)


def test_what_is_no_number_is_an_alarm():
    assert math.isnan(chance_of_pair(math.nan, 0.0, 10, 2, 1))
    assert NoiseAudit({"repeats": 0.5, "radius": math.nan}, 1.0, 10, 10, 1e-3).alarm
