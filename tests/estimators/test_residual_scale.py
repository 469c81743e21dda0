"""A release says that its declared residual scale is too small where its own sums show it, and only
there.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, read_release
from dp2erm_cvx.data.cells import Treatment
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.inference.scale import clipped_residuals
from dp2erm_cvx.plan.effect import effect_facts
from dp2erm_cvx.release.verify import plan_of, released_numbers
from dp2erm_cvx.report.story import story_of

DOMAIN = Domain(1.5, 20.0, ranges=[(-1.0, 1.0)] * 2)
#: Standard deviation of the residuals.
SPREAD = 4.0


def table(seed, n=2000):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    a = (rng.random(n) < 1.0 / (1.0 + np.exp(-1.5 * X[:, 1]))).astype(int)
    return X, a, 3.0 * a - 8.0 * X[:, 1] - 2.0 * X[:, 0] + rng.normal(0.0, SPREAD, n)


def fitted(scale, *, seed=0, epsilon=4.0, domain=DOMAIN, **asked):
    X, a, y = table(seed)
    if domain.codebook is not None:
        a = np.where(a == 1, "b", np.where(np.arange(len(a)) % 2, "a", "c"))
    model = PrivateEffect(domain, Budget(epsilon), residual_scale=scale, seed=seed, **asked)
    return model.fit(X, a, y).release_


ARMS = replace(DOMAIN, codebook=Codebook(Treatment(levels=["a", "b", "c"])))
LOGISTIC = {"propensity": "logistic", "center_share": 0.45, "propensity_share": 0.2}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"estimand": "att"},
        {"estimand": "overlap"},
        {"domain": ARMS},
        {"settings": {"propensity": 0.5}},
        {"settings": LOGISTIC},
        pytest.param({"weights": "entropy_balancing"}, marks=pytest.mark.slow),
    ],
    ids=["average", "treated", "overlap", "arms", "trial", "logistic", "weights"],
)
def test_a_scale_that_is_ten_times_too_small_is_told_and_the_right_one_is_not(asked) -> None:
    right, wrong = fitted(SPREAD, **asked), fitted(SPREAD / 10, **asked)
    assert right.clipped_residuals == 0.0
    assert "scale" not in right.caveats
    assert "clipped_residuals" not in json.loads(right.to_json())
    assert 0.5 < wrong.clipped_residuals <= 1.0
    assert wrong.caveats[0] == "scale"
    told = "no confidence interval: most residuals lie beyond the declared scale of 0.4"
    assert told in story_of(wrong).headline


def test_a_forged_or_dropped_share_is_refuted() -> None:
    tree = json.loads(fitted(SPREAD / 10).to_json())
    read_release(json.dumps(tree))
    for forged in ({"clipped_residuals": 0.01}, {"clipped_residuals": 0.0}):
        with pytest.raises(DeclarationError, match=r"clipped_residuals: .* follows"):
            read_release(json.dumps(tree | forged))


def test_a_scale_that_nobody_declared_is_not_too_small() -> None:
    """Without one nothing is clipped, and there is nothing to say."""
    assert fitted(None).clipped_residuals == 0.0


def test_the_share_is_that_of_the_clipped_residuals_or_less() -> None:
    """At little noise: of normal residuals that are clipped at 3/2 of their deviation."""
    release = fitted(0.5 * SPREAD, epsilon=400.0)
    plan = plan_of(release)
    share = clipped_residuals(effect_facts(plan), released_numbers(release, plan))
    X, a, y = table(0)
    design = np.column_stack([np.ones(len(y)), a, X])
    bound = 3.0 * 0.5 * SPREAD
    residual = np.clip(y - design @ np.linalg.lstsq(design, y, rcond=None)[0], -bound, bound)
    assert share == pytest.approx(np.mean(residual**2) / bound**2, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("asked", [{}, {"estimand": "att"}], ids=["average", "treated"])
def test_the_right_scale_is_never_accused_in_two_hundred_fits(asked, epsilon) -> None:
    told = [
        fitted(SPREAD, seed=seed, epsilon=epsilon, **asked).clipped_residuals for seed in range(200)
    ]
    assert told == [0.0] * 200
