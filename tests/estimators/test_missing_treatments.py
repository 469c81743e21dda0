"""Records without treatment or outcome do not count: not in the effect, and not in what comes before it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, EffectRelease, PrivateEffect
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.cells import Treatment
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release.reading import parsed
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.steps.step import Execution

CODED = Codebook(Treatment("drug", "vasopressor", "none"), "pressure")
DOMAIN = Domain(
    covariate_bound=1.5,
    outcome_bound=60.0,
    outcome_center=90.0,
    ranges={"age": (20.0, 90.0), "score": (0.0, 10.0)},
    codebook=CODED,
)
EFFECT = 4.08


def table(n=20_000, unknown=0.08, seed=1, confounded=True):
    """Confounded by the score, or a trial; which treatments are unknown depends on it as well."""
    rng = np.random.default_rng(seed)
    age, score = rng.uniform(20, 90, n), rng.uniform(0, 10, n)
    a = rng.random(n) < (1 / (1 + np.exp(-0.4 * (score - 5))) if confounded else 0.3)
    y = 70 + 0.2 * age + 2 * score + EFFECT * a + 6 * rng.standard_normal(n)
    drug = np.where(a, "vasopressor", "none").astype(object)
    drug[rng.random(n) < unknown * score / 5] = ""
    return pd.DataFrame({"age": age, "score": score}), drug, y


def model(budget=None, domain=DOMAIN, **changes):
    return PrivateEffect(domain, budget or Budget(1.0), **({"residual_scale": 6.0, "seed": 1} | changes))


@pytest.mark.parametrize("settings", [{}, {"propensity": "constant"}, {"propensity": 0.3}])
def test_eight_percent_of_unknown_treatments_leave_the_effect(settings):
    X, drug, y = table(confounded="propensity" not in settings)
    known = int((drug != "").sum())
    for seed in range(3):
        release = model(seed=seed, settings=settings).fit(X, drug, y).release_
        assert release.interval.low < EFFECT < release.interval.high
        assert release.interval.high - release.interval.low < 3.0
        assert release.counted == pytest.approx(known, abs=100)
        assert release.counted != known


@pytest.mark.parametrize("estimand", ["att", "overlap"])
def test_other_effects_leave_them_out(estimand):
    for seed in range(3):
        fit = model(estimand=estimand, seed=seed).fit(*table(unknown=0.3))
        low, high = fit.interval_
        assert low < EFFECT < high
        # what is said of whom it is about: not of all records, where the effect may be another one
        shown = " ".join(fit.release_.summary(1000).split())
        assert "those among the 20,000 records with treatment and outcome" in shown
        assert "gaps that the outcome decides" in shown
        assert high - low < 3.0


STEPS = [
    {},
    {"propensity": "constant"},
    {"cells": {"age": 4, "score": 4}},
    {"first_fit": 0.5},
    {"rows": "mix"},
]


@pytest.mark.parametrize("settings", STEPS)
@pytest.mark.parametrize("estimand", ["ate", "att", "overlap"])
def test_nothing_of_such_a_record_enters(settings, estimand):
    X, drug, y = table(400, unknown=0.2)
    plan, data = model(estimand=estimand, settings=settings).prepared(X, drug, y)
    lost = drug == ""
    other = replace(
        data,
        X=np.where(lost[:, None], [80.0, 9.0], data.X),
        y=np.where(lost, 140.0, data.y),
        a=np.where(lost, 1 - data.a, data.a),
    )
    one, same = (plan.run(part, Execution("newton", 1e-6, 3)).released for part in (data, other))
    assert one.keys() == same.keys()
    for name, numbers in one.items():
        assert np.array_equal(numbers, same[name]), name


@pytest.mark.parametrize("estimand", ["ate", "att", "overlap"])
def test_the_form_of_what_is_released_does_not_tell_whether_there_are_any(estimand):
    """It follows from the declaration: a table without such records has the same plan and the same sums."""
    forms = []
    for unknown in (0.0, 0.2):
        plan, data = model(estimand=estimand).prepared(*table(400, unknown=unknown))
        released = plan.run(data, Execution("newton", 1e-6, 3)).released
        forms.append((plan, [(name, len(numbers)) for name, numbers in released.items()]))
        assert np.any(data.sampling == 0.0) == (unknown > 0.0)
    assert forms[0] == forms[1]


@pytest.mark.parametrize(
    ("noise", "settings"), [("gamma", {}), ("gaussian", {"cells": {"age": 4, "score": 4}})]
)
def test_that_costs_no_noise_of_the_mean(noise, settings):
    """Which form is used follows from the declaration: 0 and 1 without a codebook are as they were.

    Cells and their score have Laplace noise, which is shorter than Gaussian noise at this delta.
    """
    budget = Budget(1.0, 1e-6)
    changes = {"noise": noise, "settings": settings}
    plain = model(budget, replace(DOMAIN, codebook=None), **changes).plan(1000, 2).main.calibration
    coded = model(budget, **changes).plan(1000, 2).main.calibration
    assert len(plain.multipliers) == 2
    assert coded.noise is plain.noise is Noise.GAMMA
    # half the score over half a record
    assert 2 * coded.scales[0] == pytest.approx(plain.scales[0], rel=1e-5)
    assert coded.sensitivity == 4 * coded.largest**2


@pytest.mark.parametrize("settings", [{}, {"propensity": "constant"}, {"propensity": 0.3}])
@pytest.mark.parametrize("estimand", ["ate", "att", "overlap"])
def test_the_release_says_so_and_follows_from_what_it_states(estimand, settings):
    release = model(estimand=estimand, settings=settings).fit(*table(2000)).release_
    assert EffectRelease.from_json(release.to_json()) == release
    assert not verify(release, DOMAIN).refuted
    told = " ".join(release.summary().split())
    assert "a record without treatment or outcome does not count" in told
    if estimand == "ate":
        assert f"About {release.counted:,.0f} of the 2,000 records count, noise included" in told
        lied = json.loads(release.to_json()) | {"counted": 2000.0}
        (refuted,) = verify(parsed(json.dumps(lied), EffectRelease)).refuted
        assert refuted.startswith("counted: 2000.0 stated, 1")


def test_what_a_record_counts_is_0_or_1_whatever_is_handed_in():
    records = DOMAIN.records(np.zeros((4, 2)), [0, 1, 0, 1], np.zeros(4), [0.3, -2.0, np.nan, 7.0])
    assert records.counts.tolist() == [1.0, 0.0, 0.0, 1.0]
    plain = replace(DOMAIN, codebook=None)
    assert plain.records(np.zeros((2, 2)), [0, 1], np.zeros(2), [0.0, 1.0]).sampling is None
    with pytest.raises(DeclarationError):
        replace(DOMAIN, codebook=3)
