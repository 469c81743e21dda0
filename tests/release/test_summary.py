"""What a release shows and recommends: text, HTML, a data frame and decisions, all from the release
alone.
"""

from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx import Domain, PrivateTwoStageERM, effects, recommend
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.plan.predict import planned_range
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.release.effect import Nuisance, capped_share
from dp2erm_cvx.release.verify import plan_of
from dp2erm_cvx.steps.covariates import CovariateLaw
from tests.every_release import RELEASES, WIDE, release_of, table_of


def test_the_sentence_and_the_warning_of_a_release_round_up() -> None:
    effect = release_of("average effect")
    own = replace(
        effect.guarantee, standing=Standing.PRIVATE, epsilon=11.0000004, delta=1.0000004e-2
    )
    shown = " ".join(replace(effect, guarantee=own).summary(200).split())
    assert shown.count("11.0001") >= 2
    assert shown.count("0.0100001") >= 3


SCHEMES = [name for name, model in RELEASES.items() if isinstance(model, PrivateTwoStageERM)]


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", [name for name in SCHEMES if RELEASES[name].domain is not WIDE])
def test_a_release_shows_what_its_plan_predicts(name):
    release = release_of(name)
    text, frame = release.summary(), release.to_frame()
    assert max(map(len, text.splitlines())) <= 100
    assert all(parameter in text for parameter in release.parameters)
    assert list(frame["parameter"])[: len(release.theta)] == list(release.parameters)
    np.testing.assert_array_equal(frame["value"][: len(release.theta)], release.theta)
    assert set(frame["standing"]) == {release.standing.value}
    assert (len(frame) > len(release.theta)) == (
        release.parameters == ("mean_control", "mean_treated")
    )
    if release.second_stage["name"] in ("itr_huber", "itr_logistic"):
        assert frame["noise_half_width"].isna().all()
        return
    planned = planned_range(RELEASES[name].plan(400, 2))
    shown = frame["noise_half_width"][: len(release.theta)].astype(float)
    np.testing.assert_allclose(shown, planned.half_width, rtol=1e-9)
    assert ("The noise dominates" in text) == planned.dominates


@pytest.mark.parametrize("name", ["average effect", "arms", "groups"])
def test_rows_are_those_of_the_release_and_of_its_parts(name):
    release = release_of(name)
    of = release.arms.contrasts if name == "arms" else (release, *release.groups)
    rows, cost = release.rows(), release.cost()
    for row, one in zip(rows, of, strict=True):
        assert (row["estimate"], row["low"], row["high"]) == (
            one.estimate,
            one.interval.low,
            one.interval.high,
        )
        assert cost.items() <= row.items()
        if one is not release:
            assert (row["joint_low"], row["joint_high"]) == (one.joint.low, one.joint.high)
        half = one.interval.half_width
        assert row["std_error"] == pytest.approx(half / 1.959964, rel=1e-6)
    if name == "arms":
        means = {one.level: one.estimate for one in release.arms.means}
        assert [row["arm_mean"] for row in rows] == [means["b"], means["c"]]
        assert [row["against_mean"] for row in rows] == [means["a"]] * 2
        assert [(row["arm"], row["against"]) for row in rows] == [("b", "a"), ("c", "a")]
    if name == "groups":
        assert [row["group"] for row in rows] == [None, "F", "M", "other"]
        assert [row.get("counted") for row in rows[1:]] == [one.counted for one in release.groups]
        apart = release.groups[1].contrast
        ends = apart.estimate, apart.interval.low, apart.interval.high
        assert tuple(rows[2][key] for key in ("contrast", "contrast_low", "contrast_high")) == ends


def test_both_risks_stand_beside_their_difference_and_an_unbounded_effect_has_no_standard_error():
    release = release_of("risks")
    (row,) = release.rows()
    assert (row["mean_treated"], row["mean_untreated"]) == release.risks
    assert release_of("unbounded").rows()[0]["std_error"] is None


def test_a_release_recommends_what_its_model_does():
    X, release = table_of("decisions")[0], release_of("decisions")
    assert np.array_equal(recommend(release, X), RELEASES["decisions"].predict(X))
    # by name, whatever else stands in the frame and in whatever order
    for other in (X.to_numpy(), X[["v", "u"]].assign(other="text")):
        assert np.array_equal(effects(release, other), effects(release, X))
    for error, message, call in (
        (DataError, "shape", lambda: effects(release, X.to_numpy()[:, :1])),
        (DataError, "row 2, column 'v'", lambda: recommend(release, [[0.1, 0.2], [0.1, np.nan]])),
        (DataError, "'v'", lambda: recommend(release, X.drop(columns="v"))),
        (
            DeclarationError,
            "release JSON",
            lambda: effects(replace(release, theta=release.theta[:1]), X),
        ),
    ):
        with pytest.raises(error, match=message):
            call()


def test_the_capped_share_is_that_of_covariates_as_they_are_known():
    rng = np.random.default_rng(0)
    for k in (1, 2, 7):
        x = rng.standard_normal((100_000, k))
        x *= (2.0 * rng.random(100_000) ** (1 / k) / np.linalg.norm(x, axis=1))[:, None]
        logit = rng.standard_normal(k + 1)
        e = 1 / (1 + np.exp(-(logit[0] + x @ logit[1:])))
        released = [Nuisance("propensity", "log odds of treatment", ("",) * (k + 1), tuple(logit))]
        for estimand, cut in (
            ("ate", (e < 0.25) | (e > 0.75)),
            ("att", e > 0.75),
            ("overlap", e > 2),
        ):
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
    assert capped_share("ate", 10.0, 1.0, [], 40) == 0.0


def test_domains_and_plans_are_tables_in_a_notebook():
    html, effect = (
        Domain(1.5, 2.0, ranges={"<u>": (-1.0, 1.0)})._repr_html_(),
        release_of("average effect"),
    )
    assert "ranges.&lt;u&gt;" in html
    assert "<tr><td>outcome_bound</td><td>2.0</td></tr>" in html
    html = plan_of(effect)._repr_html_()
    assert html.startswith(f"<p><b>Planned for {effect.n_samples:,} records. No data were read")
    assert html.count("<tr>") == 1 + len(effect.steps)
