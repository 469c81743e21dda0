"""What a release shows: text, HTML and a data frame, all from the release alone."""

from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateTwoStageERM, Release
from dp2erm_cvx.plan.predict import planned_range
from dp2erm_cvx.release import Standing
from dp2erm_cvx.release.effect import Nuisance, capped_share
from dp2erm_cvx.release.verify import plan_of
from dp2erm_cvx.steps.covariates import CovariateLaw

DOMAIN = Domain(1.5, 2.0, outcome_center=1.0, ranges={"<u>": (-1.0, 1.0), "[v]": (-1.0, 1.0)})


def data(n=300):
    rng = np.random.default_rng(0)
    X, a = rng.uniform(-1, 1, (n, 2)), rng.integers(0, 2, n)
    return X, a, 1.0 + X[:, 0] + a + 0.3 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def effect():
    return PrivateEffect(DOMAIN, Budget(2.0), seed=1).fit(*data()).release_


def test_the_sentence_and_the_warning_of_a_release_round_up(effect) -> None:
    own = replace(effect.guarantee, standing=Standing.PRIVATE, epsilon=11.0000004, delta=1.0000004e-2)
    release = replace(effect, guarantee=own)
    shown = " ".join(release.summary(200).split())
    assert shown.count("11.0000004") >= 2
    assert shown.count("0.010000004") >= 3


@pytest.mark.parametrize(
    ("second", "more"),
    [
        ("arm_means", {}),
        ("itr", {}),
        ("plug_in_ate", {"calibration": "output"}),
        ("arm_means", {"noise": "gaussian", "calibration": "renyi"}),
        ("itr_huber", {}),
    ],
)
def test_a_release_shows_what_its_plan_predicts(second, more):
    budget = Budget(2.0, 1e-4 if "noise" in more else 0.0)
    model = PrivateTwoStageERM(DOMAIN, budget, "uniform", second, seed=1, **more).fit(*data())
    release = Release.from_json(model.release_.to_json())
    text, frame = release.summary(), release.to_frame()
    assert text == model.release_.summary()
    assert max(map(len, text.splitlines())) <= 100
    for name in release.parameters:
        assert name in text
    assert list(frame["parameter"])[: len(release.theta)] == list(release.parameters)
    np.testing.assert_array_equal(frame["value"][: len(release.theta)], release.theta)
    assert set(frame["standing"]) == {release.standing.value}
    if second == "itr_huber":
        assert frame["noise_half_width"].isna().all()
        return
    planned = planned_range(model.plan(300, 2))
    np.testing.assert_allclose(
        frame["noise_half_width"][: len(release.theta)].astype(float), planned.half_width, rtol=1e-9
    )
    assert ("The noise dominates" in text) == planned.dominates
    assert (len(frame) > len(release.theta)) == (second == "arm_means")


def test_the_capped_share_is_that_of_covariates_as_they_are_known():
    rng = np.random.default_rng(0)
    for k in (1, 2, 7):
        x = rng.standard_normal((100_000, k))
        x *= (2.0 * rng.random(100_000) ** (1 / k) / np.linalg.norm(x, axis=1))[:, None]
        logit = rng.standard_normal(k + 1)
        e = 1 / (1 + np.exp(-(logit[0] + x @ logit[1:])))
        released = [Nuisance("propensity", "log odds of treatment", ("",) * (k + 1), tuple(logit))]
        for estimand, cut in (("ate", (e < 0.25) | (e > 0.75)), ("att", e > 0.75), ("overlap", e > 2)):
            result = capped_share(estimand, 4.0, 2.0, released, 100)
            assert result == pytest.approx(np.mean(cut), abs=0.01)
        spreads, normal = rng.random(k), rng.standard_normal((100_000, k))
        e = 1 / (1 + np.exp(-(logit[0] + (normal * spreads) @ logit[1:])))
        law = CovariateLaw(tuple(spreads), *[(0.0,) * k] * 3, tuple(range(k)))
        result = capped_share("ate", 4.0, 2.0, released, 100, law)
        assert result == pytest.approx(np.mean((e < 0.25) | (e > 0.75)), abs=0.01)
    flat = [Nuisance("propensity", "log odds of treatment", ("", ""), (0.3, 0.0))]
    assert capped_share("ate", 4.0, 2.0, flat, 100) == 0.0
    counted = [Nuisance("rate", "treated records", ("number",), (7.0,))]
    assert [capped_share(kind, 10.0, 1.0, counted, 100) for kind in ("ate", "att")] == [1.0, 0.0]
    cells = [Nuisance("cells", "records", ("", ""), (30.0, 10.0))]
    cells.append(Nuisance("cells", "treated share", ("", ""), (0.02, 0.5)))
    assert capped_share("ate", 10.0, 1.0, cells, 40) == 0.75
    assert capped_share("ate", 10.0, 1.0, [], 40) == 0.0


def test_domains_and_plans_are_tables_in_a_notebook(effect):
    assert "ranges.&lt;u&gt;" in DOMAIN._repr_html_()
    assert f"<tr><td>outcome_bound</td><td>{DOMAIN.outcome_bound}</td></tr>" in DOMAIN._repr_html_()
    html = plan_of(effect)._repr_html_()
    assert html.startswith(f"<p><b>Planned for {effect.n_samples:,} records. No data were read")
    assert html.count("<tr>") == 1 + len(effect.steps)
