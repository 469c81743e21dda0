"""Theta in own units: the same decisions inside the domain, from released and public numbers
alone.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Budget, Domain, PrivateRule, PrivateTwoStageERM, read_release
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.release.rule import RuleRelease, effects

RANGES = {"age": (20.0, 80.0), "dose": (-0.003, 0.001), "income": (0.0, 3e6)}
LOW, HIGH = np.array(list(RANGES.values())).T
DOMAIN = Domain(1.2, 2.0, ranges=RANGES)
MODELS = {
    "rule": PrivateRule(
        replace(DOMAIN, treatment_cost=0.5), Budget(2.0), outcome_scale=1.0, seed=1
    ),
    **{
        name: PrivateTwoStageERM(
            replace(DOMAIN, intercept=one), Budget(2.0), "uniform", second, seed=1
        )
        for name, second, one in (
            ("all", "itr", 0.0),
            ("constant", "itr_huber", 0.4),
            ("chosen", itr(features=("income", "age"), features_bound=0.5), 0.4),
            ("regression", "regression", 0.0),
        )
    },
}


def data(n=60):
    rng = np.random.default_rng(0)
    return (
        LOW + (HIGH - LOW) * rng.uniform(0, 1, (n, 3)),
        rng.integers(0, 2, n),
        rng.standard_normal(n),
    )


@pytest.fixture(scope="module")
def releases():
    return {name: model.fit(*data()).release_ for name, model in MODELS.items()}


def inside(release, n, seed):
    """Raw records (n, 3) whose scaled norm is at most that of the domain and of the rule."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 3))
    z *= (
        release.own_units.norm * rng.random(n) ** (1 / 3) * (1 - 1e-9) / np.linalg.norm(z, axis=1)
    )[:, None]
    return (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.clip(z, -1, 1)


NUMBERS = st.floats(-1e3, 1e3).map(lambda value: round(value, 6))


@settings(max_examples=25)
@given(st.sampled_from([*MODELS]), st.lists(NUMBERS, min_size=4, max_size=4), st.integers(0, 10**6))
def test_decisions_inside_the_domain_are_the_same(releases, kind, theta, seed) -> None:
    release = replace(releases[kind], theta=tuple(theta[: len(releases[kind].theta)]))
    known, X = release.own_units, inside(release, 50, seed)
    expected = effects(release, X)
    result = known.at(X[:, [release.columns.index(name) for name in known.columns]])
    rounding = 1e-10 * (1.0 + abs(known.constant) + sum(map(abs, theta)))
    np.testing.assert_allclose(result, expected, rtol=0, atol=rounding)
    clear = np.abs(expected) > rounding
    np.testing.assert_array_equal(result[clear] > 0, expected[clear] > 0)


@pytest.mark.parametrize(("bound", "reached"), [(1.8, False), (3.0, True)])
def test_a_center_lets_fewer_records_reach_the_rule_as_they_are(
    bound: float, reached: bool
) -> None:
    """Records that the domain shrinks around its center were said to be within the norm of own
    units.
    """
    X, a, y = data(4000)
    domain = replace(DOMAIN, covariate_bound=bound, center={"age": 26.0})
    release = PrivateRule(domain, Budget(50.0), seed=1).fit(X, a, y).release_
    known = release.own_units
    assert release.covariate_mean
    z = np.linalg.norm((X - release.middles) / ((HIGH - LOW) / 2), axis=1)
    inside = z <= known.norm * (1 - 1e-9)
    assert inside.all() if reached else 0.01 < inside.mean() < 1.0
    np.testing.assert_allclose(known.at(X[inside]), effects(release, X[inside]), rtol=0, atol=1e-12)


def test_a_mean_beyond_the_domain_is_released_all_the_same() -> None:
    """It was paid for, and could be neither written nor shown."""
    _, a, y = data()
    domain, X = (
        replace(DOMAIN, covariate_bound=0.5),
        np.random.default_rng(0).uniform(0, 1, (60, 3)),
    )
    model = PrivateRule(domain, Budget(0.1), settings={"mean_share": 0.3}, seed=1)
    release = model.fit(X, a, y).release_
    # in the ball of all records
    assert np.linalg.norm(release.covariate_mean) == pytest.approx(0.5)
    assert release.own_units.norm < 1e-9
    assert read_release(release.to_json(), RuleRelease) == release
    assert release.summary()


def test_the_json_states_what_follows_and_nothing_else(releases) -> None:
    chosen = releases["chosen"].own_units  # shrunk to their own norm
    assert (chosen.columns, chosen.norm) == (("income", "age"), 0.5)
    for release in releases.values():
        plain = json.loads(release.to_json())
        assert plain["own_units"] == release.own_units.to_dict()
        # files of before it was stated
        before = replace(release, version="0.0.9")
        plain |= {"version": before.version, "own_units": None}
        assert read_release(json.dumps(plain)) == before
        del plain["own_units"]
        assert read_release(json.dumps(plain)) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda own: own | {"constant": own["constant"] + 1e-6},
        lambda own: own | {"slopes": own["slopes"] | {"age": 0}},
        lambda own: own | {"slopes": {f"{name}s": value for name, value in own["slopes"].items()}},
        lambda own: own | {"effect": 3.0},
        lambda own: own | {"constant": True},
        lambda own: [own],
    ],
)
def test_a_changed_number_is_refused(releases, change) -> None:
    plain = json.loads(releases["rule"].to_json())
    with pytest.raises(DeclarationError, match="own_units does not follow"):
        read_release(json.dumps(plain | {"own_units": change(plain["own_units"])}), RuleRelease)
