"""The black-box audit: its bound is right, it finds what is wrong, and it takes whatever comes out."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.audit import Attack, Declared
from dp2erm_cvx.audit.events import CountBound, lower, lowest_bits, of_exception, upper
from dp2erm_cvx.audit.runs import audit_runs
from dp2erm_cvx.errors import DeclarationError
from tests.audit.bugs import MEAN, HalfTheNoise, HardlyAnyGamma, release
from tests.audit.pairs import aligned, lone
from tests.audit.plant import plant, used_twice

CONTINUOUS = ("values", "tails", "learned")  # floating-point noise does leak through its lowest bits


def audit(mechanism, first=0, second=1, epsilon=1.0, **settings):
    delta = settings.pop("delta", 0.0)
    attack = Attack(**{"seed": 0, "runs": 1000, "takes_rng": True, **settings})
    return audit_runs(mechanism, first, second, Declared(epsilon, delta), attack=attack)


def laplace(scale):
    return lambda x, rng: x + rng.laplace(scale=scale)


def response(x, rng, epsilon=1.0):
    """Tell the truth about a bit with probability exp(epsilon) / (1 + exp(epsilon))."""
    return x if rng.random() < 1 / (1 + math.exp(-epsilon)) else 1 - x


def geometric(x, rng, epsilon=1.0):
    p = -math.expm1(-epsilon)
    return int(x + rng.geometric(p) - rng.geometric(p))


@pytest.mark.parametrize("runs", [1, 400])
@pytest.mark.parametrize("risk", [1e-6, 0.3])
def test_bounds_of_a_probability_are_those_of_clopper_and_pearson(runs, risk):
    hits = np.unique(np.linspace(0, runs, 5).astype(int))
    for k, low, high in zip(hits, lower(hits, runs, risk), upper(hits, runs, risk), strict=True):
        for side, result in (("greater", low), ("less", high)):
            test = stats.binomtest(int(k), runs, alternative=side)
            known = test.proportion_ci(confidence_level=1 - risk, method="exact")
            wanted = known.low if side == "greater" else known.high
            assert result == pytest.approx(wanted, rel=1e-8, abs=2e-10)
        # what the definition asks for
        assert stats.binom.sf(k - 1, runs, low) <= risk or k == 0
        assert stats.binom.cdf(k, runs, high) <= risk or k == runs


#: By what leaks all that is allowed: the number, delta (None for mu), and its chances on both datasets.
LEAKS = {
    **{
        f"epsilon {epsilon}, delta {delta}": (epsilon, delta, math.exp(epsilon) * q + delta, q)
        for epsilon, delta in ((0.0, 0.1), (1.0, 0.0), (1.0, 0.1), (4.0, 0.0))
        for q in [(1 - delta) / (1 + math.exp(epsilon))]
    },
    **{
        f"mu {mu}, level {level}": (mu, None, stats.norm.cdf(stats.norm.ppf(level) + mu), level)
        for mu, level in ((0.0, 0.3), (0.7, 0.02), (0.7, 0.3), (3.0, 0.02))
    },
}


@pytest.mark.parametrize("risk", [0.0025, 0.25])
@pytest.mark.parametrize("name", LEAKS)
def test_the_bound_is_wrong_as_rarely_as_it_says(name, risk):
    """The exact probability, for an event, or a test of N(0, 1) against N(mu, 1), that leaks all it may."""
    declared, delta, p, q = LEAKS[name]
    runs = 150
    bound = CountBound(runs, risk, delta)
    k, other = (grid.ravel() for grid in np.meshgrid(np.arange(runs + 1), np.arange(runs + 1)))
    chance = stats.binom.pmf(k, runs, p) * stats.binom.pmf(other, runs, q)
    wrong = float(chance[bound(k, other) > declared * (1 + 1e-9) + 1e-12].sum())
    assert wrong <= 2 * risk
    if declared in (0.7, 1.0) and risk == 0.25:
        assert wrong > 0.02  # not by being far too low


def test_no_counts_exceed_the_ceiling():
    counts = np.arange(61)
    p, q = 0.01 ** (1 / 60), 1 - 0.01 ** (1 / 60)
    for bound, most in (
        (CountBound(60, 0.01, 0.05), math.log((p - 0.05) / q)),
        (CountBound(60, 0.01, None), stats.norm.ppf(p) - stats.norm.ppf(q)),
    ):
        assert max(float(np.max(bound(counts, np.full(61, other)))) for other in counts) == bound.ceiling
        assert bound.ceiling == pytest.approx(most, rel=1e-6)
        # never seen on one side, or always on the other: nothing follows
        assert np.all(bound(np.zeros(61), counts) == 0.0)
        assert np.all(bound(counts, np.full(61, 60)) == 0.0)


def gaussian(scale):
    return lambda x, rng: x + scale * rng.standard_normal()


def test_gaussian_noise_keeps_its_mu_and_half_of_it_does_not():
    attack = Attack(runs=1000, takes_rng=True, seed=0, events=CONTINUOUS)
    honest, wrong = (
        audit_runs(gaussian(scale), 0, 1, Declared(mu=1.0), attack=attack) for scale in (1.0, 0.5)
    )
    assert 0.6 < honest.mu_low <= 1.0
    assert not honest.exceeds
    assert 1.5 < wrong.mu_low <= 2.0
    assert wrong.exceeds
    assert wrong.low == wrong.mu_low == wrong.best.mu_low
    assert "mu >= " in str(wrong)
    assert "mu = 1: VIOLATED" in str(wrong)
    # the same counts bound epsilon as well, and what they say of mu is the power of the test
    best = wrong.best
    assert best.epsilon_low == pytest.approx(math.log(best.low / best.high), rel=1e-6)
    assert best.mu_low == pytest.approx(stats.norm.ppf(best.low) - stats.norm.ppf(best.high), rel=1e-6)


@pytest.mark.parametrize(
    ("mechanism", "events", "declared"),
    [
        (laplace(1.0), CONTINUOUS, {"epsilon": 1.0}),
        (response, ("values", "tails", "learned", "bits"), {"epsilon": 1.0}),
        (geometric, ("values", "tails"), {"epsilon": 1.0}),
        (gaussian(1.0), CONTINUOUS, {"mu": 1.0}),
    ],
    ids=["laplace", "response", "geometric", "gaussian"],
)
def test_a_mechanism_that_keeps_its_word_is_not_flagged(mechanism, events, declared):
    attacks = [Attack(240, takes_rng=True, seed=seed, events=events) for seed in range(4)]
    result = [audit_runs(mechanism, 0, 1, Declared(**declared), attack=attack) for attack in attacks]
    assert not any(one.exceeds for one in result)
    # and yet it sees that something leaks
    assert np.mean([one.low for one in result]) > 0.05


def test_less_noise_than_is_declared_is_found():
    result = audit(laplace(0.5), events=CONTINUOUS)
    assert result.exceeds
    assert result.epsilon_low <= 2.0
    assert "VIOLATED" in result._repr_html_()
    assert not result.private
    # epsilon = 0 is a guarantee, too
    assert not audit(lambda x, rng: rng.normal(), epsilon=0.0).exceeds
    assert audit(laplace(0.5), epsilon=0.0).exceeds
    # and delta is taken off
    for delta in (0.05, 0.2):
        rarely = audit(lambda x, rng: x if rng.random() < 0.2 else 0.5, epsilon=1.0, delta=delta)
        assert rarely.exceeds == (delta < 0.2)


def test_noise_of_naive_floating_point_leaks_through_the_lowest_bits():
    """Half of 0 + noise lies off the grid that 1 + noise cannot leave (Mironov 2012)."""
    assert not audit(laplace(1.0), events=CONTINUOUS).exceeds
    result = audit(laplace(1.0))
    assert result.exceeds
    assert "lowest set bit" in result.best.event


def test_lowest_bits():
    values = np.array([1.0, -0.5, 3.0, 6.0, 0.1, 2.0**-1074, 0.0])
    assert lowest_bits(values).tolist() == [0, -1, 0, 1, -55, -1074, 1100]


def nearly_noiseless_direction(x, rng):
    noise = rng.normal()
    return np.array([noise, x * 1e-6 - noise + 1e-9 * rng.normal()])


def spread(x, rng):
    return rng.normal(size=3) * (1.0 + 2 * x)


def interval_between_atoms(x, rng):
    """Clipped outputs of either dataset are at both ends; only the first has any between them."""
    value = float(np.clip(5 * rng.normal(), -1, 1))
    return value if x == 0 else math.copysign(1.0, value)


def selection(x, rng):
    odd = rng.random() < (0.95 if x else 0.05)
    return f"candidate {2 * rng.integers(10) + odd}"


@pytest.mark.parametrize(
    ("mechanism", "settings", "event"),
    [
        (nearly_noiseless_direction, {"runs": 400, "epsilon": 3.0, "events": ("learned",)}, "Fisher"),
        (spread, {"events": ("learned",)}, ""),
        (spread, {"events": ("tails",)}, ""),
        (interval_between_atoms, {"events": ("learned",)}, ""),
        (selection, {"epsilon": 2.0}, "log odds"),
    ],
)
def test_a_leak_is_found_wherever_it_is(mechanism, settings, event):
    result = audit(mechanism, **settings)
    assert result.exceeds
    assert event in result.best.event
    assert mechanism is not interval_between_atoms or result.best.other_hits == 0


def leaks(make):
    """Whether a mechanism that gives make(0) instead of make(1) in a fifth of the runs is caught."""

    def mechanism(x, rng):
        return make(int(x and rng.random() < 0.4), rng)

    return audit(mechanism, epsilon=1.0, runs=400)


def refusing(bit, rng):
    if bit:
        raise ValueError("too small")
    return 1.0


OUTPUTS = {
    "None": lambda bit, rng: None if bit else rng.normal(),
    "nan": lambda bit, rng: math.nan if bit else rng.normal(),
    "infinity": lambda bit, rng: [rng.normal(), -math.inf if bit else 0.0],
    "length": lambda bit, rng: rng.normal(size=2 + bit),
    "shape": lambda bit, rng: np.zeros((2, 3) if bit else (3, 2)),
    "atom": lambda bit, rng: 0.25 if bit else rng.uniform(),
    "signed zero": lambda bit, rng: -0.0 if bit else 0.0,
    "text": lambda bit, rng: {"theta": rng.normal(size=2), "said": "yes" if bit else "no"},
    "type": lambda bit, rng: np.float32(1) * np.ones(2, dtype=np.float32 if bit else np.float64),
    "boolean": lambda bit, rng: bool(bit),
    "whole number": lambda bit, rng: 2**80 + bit,
    "complex": lambda bit, rng: complex(0, bit),
    "huge": lambda bit, rng: 1.7e308 * (1 - 2 * bit),
    "refusal": refusing,
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_difference_is_an_event(name):
    assert leaks(OUTPUTS[name]).exceeds


def test_a_refusal_leaks_and_is_counted():
    def refuse(x, rng):
        if x and rng.random() < 0.5:
            raise ValueError("an arm is empty")
        return rng.normal()

    result = audit(refuse)
    assert result.exceeds
    assert "raised" in result.best.event
    assert result.raised[0] == 0
    assert 400 < result.raised[1] < 600

    def always(x, rng):
        raise ValueError("record 0")

    with pytest.raises(DeclarationError, match="every run raised ValueError: record 0"):
        audit(always)
    # what a refusal says leaks
    first, second = (of_exception(ValueError(text)) for text in ("one", "two"))
    assert len(first.marks - second.marks) == 1


INVALID = {"epsilon": (-1.0, math.nan), "delta": (1.0, -0.1), "runs": (39, 100.5), "seed": (-1,)}
INVALID |= {"confidence": (1.0, 0.0), "workers": (0,), "events": (("tail",), ())}


@pytest.mark.parametrize("settings", [{name: v} for name, wrong in INVALID.items() for v in wrong], ids=str)
def test_invalid_arguments_are_refused(settings):
    with pytest.raises(DeclarationError):
        audit(laplace(1.0), **settings)


def seeded(model, raw, rng):
    return model.set_params(seed=int(rng.integers(2**31))).fit(*raw).theta_


def thetas(model):
    return partial(seeded, model)


RELEASES = {
    "half the noise, output": (
        release(second=MEAN, epsilon=2.0, calibration="output", arithmetic="assumed"),
        HalfTheNoise,
        aligned,
    ),
    "hardly any gamma, arm means": (release(second="arm_means", arithmetic="assumed"), HardlyAnyGamma, lone),
}


def audited(model, kind, runs):
    pair = kind(np.random.default_rng(0), 4, 1)
    # assumed arithmetic does leak through the lowest bits, see below
    attack = Attack(runs=runs, events=CONTINUOUS, takes_rng=True, seed=0)
    return audit_runs(thetas(model), *pair, Declared(model.budget.epsilon), attack=attack)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("half the noise, output", 350),
        pytest.param("hardly any gamma, arm means", 800, marks=pytest.mark.slow),
    ],
)
def test_planted_bugs_are_caught_in_complete_releases(name, runs):
    sound, bug, kind = RELEASES[name]
    assert not audited(sound, kind, 60).exceeds
    wrong = bug(**sound.get_params(deep=False))
    assert audited(wrong, kind, runs).exceeds


def test_assumed_arithmetic_leaks_where_counted_arithmetic_does_not():
    """The mean is 0 and then -1: added to -1 in doubles, the noise loses the bits below 2^-53."""
    pytest.importorskip("opendp")
    pytest.importorskip("flint")
    X, a, y = np.zeros((4, 1)), np.ones(4, dtype=int), np.array([1.0, 1.0, -1.0, -1.0])
    pair = (X, a, y), (X, a, np.array([-1.0, 1.0, -1.0, -1.0]))

    def result(arithmetic, mechanism, **attack):
        model = release(second=MEAN, arithmetic=arithmetic, calibration="output")
        return audit_runs(mechanism(model), *pair, Declared(1.0), attack=Attack(**attack))

    assumed = result("assumed", thetas, runs=300, takes_rng=True, seed=0)
    assert assumed.exceeds
    assert "lowest set bit" in assumed.best.event
    # counted arithmetic takes no seed
    assert not result(
        "counted", lambda model: lambda raw: model.fit(*raw).theta_, runs=60, confidence=1 - 1e-10
    ).exceeds


def both(model):
    """Two releases of the same records: of the outcome, and of minus the outcome."""

    def mechanism(raw, rng):
        X, a, y = raw
        return [seeded(model, (X, a, side * y), rng) for side in (1, -1)]

    return mechanism


def test_noise_that_two_releases_share_is_caught(monkeypatch):
    """The difference of the two releases is then known exactly."""
    model = release(second=MEAN, epsilon=0.25, calibration="output", arithmetic="assumed")
    pair = aligned(np.random.default_rng(0), 4, 1)

    def result():
        # the two releases together are promised 2 epsilon
        attack = Attack(runs=80, events=CONTINUOUS, takes_rng=True, seed=0)
        return audit_runs(both(model), *pair, Declared(0.5), attack=attack)

    assert not result().exceeds
    plant(monkeypatch, used_twice)
    assert result().exceeds
