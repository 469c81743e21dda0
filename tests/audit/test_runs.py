"""The black-box audit: its bound is right, and it finds what is wrong, with a pair, whatever comes
out.
"""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.audit import Attack, Declared, Finding, SearchPlan, audit_runs, search_runs
from dp2erm_cvx.audit.events import CountBound, lower, upper
from dp2erm_cvx.audit.finding import differing_rows
from dp2erm_cvx.errors import DeclarationError
from tests.audit.bugs import MEAN, HalfTheNoise, HardlyAnyGamma, release
from tests.audit.pairs import aligned, drawn, lone
from tests.audit.plant import plant, used_twice

# floating-point noise does leak through its lowest bits
CONTINUOUS = (
    "values",
    "tails",
    "learned",
)


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


#: By what leaks all that is allowed: the number, delta (None for mu), and its chances on both
#: datasets.
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
    """The exact probability, for an event, or a test of N(0, 1) against N(mu, 1), that leaks all it
    may.
    """
    declared, delta, p, q = LEAKS[name]
    runs = 150
    bound = CountBound(runs, risk, delta)
    k, other = (grid.ravel() for grid in np.meshgrid(np.arange(runs + 1), np.arange(runs + 1)))
    chance = stats.binom.pmf(k, runs, p) * stats.binom.pmf(other, runs, q)
    wrong = float(chance[bound(k, other) > declared * (1 + 1e-9) + 1e-12].sum())
    assert wrong <= 2 * risk
    if declared in (0.7, 1.0) and risk == 0.25:
        assert wrong > 0.02  # not by being far too low


@pytest.mark.parametrize("delta", [0.05, None])
def test_no_counts_exceed_the_ceiling(delta):
    counts, bound, p = np.arange(61), CountBound(60, 0.01, delta), 0.01 ** (1 / 60)
    most = math.log((p - 0.05) / (1 - p)) if delta else 2 * stats.norm.ppf(p)
    assert (
        max(float(np.max(bound(counts, np.full(61, other)))) for other in counts) == bound.ceiling
    )
    assert bound.ceiling == pytest.approx(most, rel=1e-6)
    # never seen on one side, or always on the other: nothing follows
    assert np.all(bound(np.zeros(61), counts) == 0.0)
    assert np.all(bound(counts, np.full(61, 60)) == 0.0)


def gaussian(scale):
    return lambda x, rng: x + scale * rng.standard_normal()


def test_what_is_said_of_mu_is_the_power_of_a_test():
    attack = Attack(runs=1000, takes_rng=True, seed=0, events=CONTINUOUS)
    honest, wrong = (
        audit_runs(gaussian(scale), 0, 1, Declared(mu=1.0), attack=attack) for scale in (1.0, 0.5)
    )
    assert 0.6 < honest.mu_low <= 1.0
    assert not honest.exceeds
    assert 1.5 < wrong.mu_low <= 2.0
    assert wrong.low == wrong.mu_low == wrong.best.mu_low
    assert "mu >= " in str(wrong)
    assert "mu = 1: VIOLATED" in str(wrong)
    # the same counts bound epsilon as well
    best = wrong.best
    assert best.epsilon_low == pytest.approx(math.log(best.low / best.high), rel=1e-6)
    assert best.mu_low == pytest.approx(
        stats.norm.ppf(best.low) - stats.norm.ppf(best.high), rel=1e-6
    )


def rarely(x, rng):
    return x if rng.random() < 0.2 else 0.5


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(
    ("mechanism", "events", "declared", "sees"),
    [
        (laplace(1.0), CONTINUOUS, {"epsilon": 1.0}, True),
        (response, ("values", "tails", "learned", "bits"), {"epsilon": 1.0}, True),
        (geometric, ("values", "tails"), {"epsilon": 1.0}, True),
        (gaussian(1.0), CONTINUOUS, {"mu": 1.0}, True),
        (lambda x, rng: rng.normal(), CONTINUOUS, {"epsilon": 0.0}, False),
        (rarely, CONTINUOUS, {"epsilon": 1.0, "delta": 0.2}, False),
    ],
    ids=["laplace", "response", "geometric", "gaussian", "nothing", "rarely"],
)
def test_a_mechanism_that_keeps_its_word_is_not_flagged(mechanism, events, declared, sees):
    attacks = [Attack(240, takes_rng=True, seed=seed, events=events) for seed in range(4)]
    result = [
        audit_runs(mechanism, 0, 1, Declared(**declared), attack=attack) for attack in attacks
    ]
    assert not any(one.exceeds for one in result)
    # and yet it sees that something leaks
    assert (np.mean([one.low for one in result]) > 0.05) == sees


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


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    ("mechanism", "settings", "event"),
    [
        (laplace(0.5), {"events": CONTINUOUS}, ""),
        (laplace(0.5), {"epsilon": 0.0}, ""),
        (rarely, {"delta": 0.05}, ""),
        # half of 0 + noise lies off the grid that 1 + noise cannot leave (Mironov 2012)
        (laplace(1.0), {}, "lowest set bit"),
        (
            nearly_noiseless_direction,
            {"runs": 400, "epsilon": 3.0, "events": ("learned",)},
            "Fisher",
        ),
        (spread, {"events": ("learned",)}, ""),
        (spread, {"events": ("tails",)}, ""),
        (interval_between_atoms, {"events": ("learned",)}, ""),
        (selection, {"epsilon": 2.0}, "log odds"),
    ],
)
def test_a_leak_is_found_wherever_it_is(mechanism, settings, event):
    result = audit(mechanism, **settings)
    assert result.exceeds
    assert "VIOLATED" in result._repr_html_()
    assert not result.private
    assert event in result.best.event
    assert mechanism is not interval_between_atoms or result.best.other_hits == 0
    assert settings != {"events": CONTINUOUS} or result.epsilon_low <= 2.0


def leaks(make):
    """Whether a mechanism that gives make(0) instead of make(1) in a fifth of the runs is
    caught.
    """

    def mechanism(x, rng):
        return make(int(x and rng.random() < 0.4), rng)

    return audit(mechanism, epsilon=1.0, runs=400)


def refusing(bit, rng, words="too small"):
    if bit:
        raise ValueError(words)
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
    "what a refusal says": lambda bit, rng: (
        refusing(1, rng, "one" if bit else "two") if rng.random() < 0.9 else 0.0
    ),
}


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", OUTPUTS)
def test_every_difference_is_an_event(name):
    assert leaks(OUTPUTS[name]).exceeds


def test_a_refusal_leaks_and_is_counted():
    result = audit(lambda x, rng: refusing(x and rng.random() < 0.5, rng))
    assert result.exceeds
    assert "raised" in result.best.event
    assert result.raised[0] == 0
    assert 400 < result.raised[1] < 600
    with pytest.raises(DeclarationError, match="every run raised ValueError: too small"):
        audit(lambda x, rng: refusing(1, rng))


INVALID = {"epsilon": (-1.0, math.nan), "delta": (1.0, -0.1), "runs": (39, 100.5), "seed": (-1,)}
INVALID |= {"confidence": (1.0, 0.0), "workers": (0,), "events": (("tail",), ())}


@pytest.mark.parametrize(
    "settings", [{name: v} for name, wrong in INVALID.items() for v in wrong], ids=str
)
def test_invalid_arguments_are_refused(settings):
    with pytest.raises(DeclarationError):
        audit(laplace(1.0), **settings)


def seeded(model, raw, rng):
    return model.set_params(seed=int(rng.integers(2**31))).fit(*raw).theta_


def thetas(model):
    return partial(seeded, model)


def audited(model, kind, runs):
    # assumed arithmetic does leak through the lowest bits, see below
    attack = Attack(runs=runs, events=CONTINUOUS, takes_rng=True, seed=0)
    return audit_runs(
        thetas(model), *drawn(kind, 4, 1), Declared(model.budget.epsilon), attack=attack
    )


@pytest.mark.parametrize(
    ("settings", "bug", "kind", "runs"),
    [
        ({"second": MEAN, "epsilon": 2.0, "calibration": "output"}, HalfTheNoise, aligned, 300),
        pytest.param({"second": "arm_means"}, HardlyAnyGamma, lone, 800, marks=pytest.mark.slow),
    ],
)
def test_planted_bugs_are_caught_in_complete_releases(settings, bug, kind, runs):
    settings |= {"arithmetic": "assumed"}
    assert not audited(release(**settings), kind, 40).exceeds
    assert audited(release(cls=bug, **settings), kind, runs).exceeds


@pytest.mark.slow
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
        "counted", lambda model: lambda raw: model.fit(*raw).theta_, runs=40, confidence=1 - 1e-10
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
    pair = drawn(aligned, 4, 1)

    def result(runs):
        # the two releases together are promised 2 epsilon
        attack = Attack(runs=runs, events=CONTINUOUS, takes_rng=True, seed=0)
        return audit_runs(both(model), *pair, Declared(0.5), attack=attack)

    assert not result(40).exceeds
    plant(monkeypatch, used_twice)
    assert result(60).exceeds


SMALL = Universe(Domain(1.0, 1.0, arm_floor=5), 40, 2)


def noisy_sum(dataset, rng, scale=2.0):
    """The sum of the treated outcomes moves by at most 2, so that this is epsilon = 2 / scale."""
    _, a, y = dataset
    return float(np.sum(y[a == 1]) + rng.laplace(scale=scale))


def half_the_noise(dataset, rng):
    return noisy_sum(dataset, rng, scale=1.0)


def intercept_without_noise(dataset, rng):
    _, a, y = dataset
    return [y.sum() + rng.laplace(scale=2.0), a.mean()]


def one_scalar_for_a_vector(dataset, rng):
    """Each sum alone has all the noise that it needs, but it is the same noise."""
    _, a, y = dataset
    return np.array([y[a == 1].sum(), y[a == 0].sum()]) + rng.laplace(scale=4.0)


def centered_by_the_data(dataset, rng):
    """Clipping after a standardization by the data bounds no record's share."""
    _, _, y = dataset
    spread = y.std()
    z = np.clip((y - y.mean()) / (spread if spread > 0 else 1.0), -1, 1)
    return float(z.sum() + rng.laplace(scale=2.0))


def jumps_at_a_share(dataset, rng):
    """Only neighbors on both sides of one share of treated records are far apart."""
    _, a, _ = dataset
    return 5.0 * (a.mean() > 0.62) + rng.laplace(scale=1.0)


def search(mechanism, seed=0, universe=SMALL, **settings):
    attack = Attack(runs=800, takes_rng=True, seed=seed, events=CONTINUOUS)
    plan = SearchPlan(evaluations=settings.pop("evaluations", 25), seed=seed)
    return search_runs(mechanism, universe, Declared(1.0), attack=attack, search=plan, **settings)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    "wrong",
    [
        half_the_noise,
        intercept_without_noise,
        one_scalar_for_a_vector,
        centered_by_the_data,
        jumps_at_a_share,
    ],
)
def test_what_is_planted_is_found(wrong):
    result = search(wrong)
    assert result.exceeds
    assert "VIOLATED" in str(result)
    assert not result.private
    assert differing_rows(result.first, result.second).sum() == 1


def test_a_mechanism_with_enough_noise_is_not_flagged():
    result = search(noisy_sum)
    assert not result.exceeds
    # though the search finds a pair on which much is lost of what may be
    assert result.audit.epsilon_low > 0.4


COUNTEREXAMPLES = Path(__file__).parents[2] / "docs/experiments/counterexamples"


@pytest.mark.parametrize("path", sorted(COUNTEREXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_counterexamples_of_the_docs_say_what_they_count(path):
    pair = Finding.load(path)
    assert differing_rows(pair.first, pair.second).sum() == 1
    audit = pair.facts["audit"]
    assert audit["epsilon_low"] > audit["epsilon"]
    runs = audit["counted"][0]["runs"]
    bound = CountBound(runs, (1 - audit["confidence"]) / 4, audit["delta"])
    result = [bound.one(way["hits"], way["other_hits"]) for way in audit["counted"]]
    assert max(result) == pytest.approx(audit["epsilon_low"], rel=1e-12)
    file, name = pair.facts["mechanism"].split(":")
    assert f"def {name}(" in (COUNTEREXAMPLES / file).read_text()
    page = (COUNTEREXAMPLES.parent / "audited_methods.md").read_text()
    assert f"**{audit['epsilon_low']:.2f}**" in page
    assert f"`{path.stem}`" in page


@pytest.mark.parametrize(("counted", "shown"), [(4_000, 1.01), (20_000, 1.18)])
def test_the_best_event_of_a_noisy_count_shows_what_the_page_says(counted, shown):
    """One value, 1 or 0, with Laplace noise of scale 2 / |c|: outputs in an interval that holds
    1.
    """
    count = 1 + stats.laplace.ppf((np.arange(20_000) + 0.5) / 20_000, scale=2)
    rate = np.abs(count)[:, None] / 2
    assert np.log(np.mean(rate) / np.mean(rate * np.exp(-rate))) == pytest.approx(1.43, abs=0.005)
    below = np.linspace(0.0, 0.5, 26)
    above = np.linspace(0.2, 4.0, 39)
    inside = np.mean(-np.expm1(-rate * below), axis=0) / 2
    outside = np.mean(-np.expm1(-rate * above), axis=0) / 2
    of_one = np.add.outer(inside, outside).ravel()
    nearest = np.mean(np.exp(-rate * (1 - below)), axis=0) / 2
    farthest = np.mean(np.exp(-rate * (1 + above)), axis=0) / 2
    of_zero = np.subtract.outer(nearest, farthest).ravel()
    bound = CountBound(counted, 0.0025, 0.0)
    best = np.max(bound(np.rint(counted * of_one), np.rint(counted * of_zero)))
    assert best == pytest.approx(shown, abs=0.01)
