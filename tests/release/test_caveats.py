"""The table of caveats: a code is one sentence of one kind of release, and some release reaches
it.
"""

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateTwoStageERM, read_release
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.display import as_text
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release.caveats import CAVEATS, caveats_of
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.reading import parsed
from dp2erm_cvx.release.verify import plan_of, released_numbers
from dp2erm_cvx.report import release_page
from dp2erm_cvx.report.answers import answer_blocks, answers
from dp2erm_cvx.report.caveats import SENTENCES, WITHDRAWN, sentence_of, sentences, withdrawn
from dp2erm_cvx.report.plans import plan_blocks
from dp2erm_cvx.report.story import story_of
from tests.every_release import ARMS, DOMAIN, MORE, RELEASES, RISKS, release_of, table_of

#: Settings of inverse propensities.
LOGISTIC = {"propensity": "logistic", "center_share": 0.45, "propensity_share": 0.2}


@pytest.fixture(scope="module")
def releases():
    """Of every kind, and with what only some data or declarations lead to."""
    X, a, y = table_of("trial")
    effect, rule, weights = map(release_of, ("average effect", "rule of all", "private scheme"))
    event, unspread = (
        replace(RISKS, binary_outcome=True, codebook=ARMS),
        {"mean_share": None, "spread_share": None},
    )
    tabled = replace(DOMAIN, codebook=Codebook())
    two_values = replace(RISKS, binary_outcome=True)
    others = (
        (PrivateEffect(DOMAIN, MORE, settings=unspread, seed=1), a, y),
        (
            PrivateEffect(replace(DOMAIN, outcome_center=2.0), MORE, residual_scale=0.2, seed=1),
            a,
            y,
        ),
        (
            PrivateEffect(event, MORE, seed=1),
            np.array(["a", "b", "c"])[np.arange(400) % 3],
            1.0 * (y > 0.2),
        ),
        (PrivateEffect(tabled, MORE, weights="entropy_balancing", seed=1), a, y),
        (PrivateEffect(DOMAIN, MORE, confounding=1.3, settings=LOGISTIC, seed=1), a, y),
        (PrivateEffect(two_values, MORE, confounding=1.3, seed=1), a, 1.0 * (y > 0.2)),
        *(
            (PrivateTwoStageERM(DOMAIN, Budget(e), "uniform", "arm_means", seed=1), a, y)
            for e in (0.001, 90.0)
        ),
    )
    book = {"missing": {"u": 0.0}, "unit": {"column": "id", "number": 400, "count": 1}}
    changes = (
        {"guarantee": replace(effect.guarantee, epsilon=11.0, delta=0.01)},
        *({"capped": 0.25}, {"target": "score"}, {"narrow": ("u",)}, {"skewed": 9.0}),
        *({"capped": 0.98}, {"clipped_residuals": 0.9}),
        {"domain": {**effect.domain, "codebook": book}},
        {"domain": {**effect.domain, "outcome_center": 0.5, "outcome_bound": 0.5}},
    )
    return [
        *map(release_of, RELEASES),
        *(model.fit(X, arm, outcome).release_ for model, arm, outcome in others),
        *(replace(effect, **change) for change in changes),
        replace(release_of("groups"), narrow=("sex=F",)),
        *(replace(rule, **change) for change in ({"flipped_share": 0.4}, {"residual_bias": 0.9})),
        *(replace(weights, residual_imbalance=share) for share in (0.1, 0.9)),
    ]


def test_skewed_outcomes_of_the_untreated_are_told_where_their_sums_show_them() -> None:
    """A fit of bounded influence misses a mean by more where it is larger."""
    told, domain = [], Domain(1.5, 20.0, outcome_center=20.0, ranges=[(-1, 1)] * 2)
    for law in ("lognormal", "normal"):
        rng = np.random.default_rng(5)
        x = rng.uniform(-1, 1, (60_000, 2))
        a = rng.binomial(1, 1 / (1 + np.exp(0.5 - 1.2 * x[:, 0])))
        noise = (
            rng.lognormal(-0.5, 1.0, 60_000)
            if law == "lognormal"
            else 1 + 0.3 * rng.normal(size=60_000)
        )
        y = (2.0 + x[:, 0]) * noise + 0.5 * a
        release = PrivateEffect(domain, Budget(20.0), estimand="att", seed=1).fit(x, a, y).release_
        told.append(
            (release.skewed > 0.0, "is not counted" in " ".join(sentences(release, "warns")))
        )
        assert parsed(release.to_json(), EffectRelease).skewed == release.skewed
    assert told == [(True, True), (False, False)]


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({}, True),
        ({"confounding": 1.19}, False),
        ({"settings": None}, False),  # at 400 records a constant propensity
        ({"estimand": "att"}, False),
        ({"estimand": "overlap"}, False),
        ({"weights": "entropy_balancing", "settings": None}, False),
        ({"domain": replace(DOMAIN, codebook=ARMS)}, False),
        ({"domain": replace(DOMAIN, codebook=Codebook())}, True),
    ],
)
def test_inverse_propensities_name_what_errs_less_where_arms_are_declared_far_apart(
    declared, said
) -> None:
    """Of a plan by inverse propensities: those of one arm, of several and of no propensity say
    nothing.
    """
    own = {"domain": DOMAIN, "confounding": 1.3, "settings": LOGISTIC, **declared}
    if own["domain"].codebook is ARMS:
        own["settings"] = None
    model = PrivateEffect(budget=MORE, **own)
    told = " ".join(str(block) for block in plan_blocks(model.plan(400, 2)))
    assert ("inverse propensities err more than a regression alone" in told) == said


def test_intervals_of_events_are_warned_of_where_arms_are_declared_far_apart() -> None:
    """Whatever answers, unless the propensity is public."""
    told = []
    events = replace(RISKS, binary_outcome=True)
    declared = ({}, {"weights": "entropy_balancing"}, {"settings": {"propensity": 0.5}})
    for own in declared:
        plan = PrivateEffect(events, MORE, confounding=1.2, **own).plan(400, 2)
        text = " ".join(str(block) for block in plan_blocks(plan))
        told.append("two values hold the effect less often than they say" in text)
    assert told == [True, True, False]


@pytest.mark.slow
def test_every_caveat_is_reached_and_some_release_is_without_it(releases) -> None:
    held = [
        (one.code, {bool(one.when(r)) for r in releases if r.goal in one.goals}) for one in CAVEATS
    ]
    assert [code for code, some in held if True not in some] == []
    always = {code for code, some in held if False not in some}
    assert always == {"not-covered", "sign", "balanced", "skewed", "remaining-imbalance"}


def test_every_code_has_a_sentence_and_every_sentence_a_code() -> None:
    assert {one.code for one in CAVEATS} == set(SENTENCES)


@pytest.mark.slow
def test_no_headline_says_ci_where_a_caveat_says_that_it_is_none(releases) -> None:
    assert {one.code for one in CAVEATS if not one.confident} == set(WITHDRAWN)
    without = set()
    for release in releases:
        codes = [caveat.code for caveat in caveats_of(release) if not caveat.confident]
        headline, page = story_of(release).headline, release_page(release)
        assert bool(codes) == bool(withdrawn(release))
        if codes:
            assert "% CI" not in page + release.summary()
            if release.goal == "effect" or release.gains:
                assert f"no confidence interval: {withdrawn(release)}" in headline
        without.update(codes)
    assert without == set(WITHDRAWN)


def test_a_table_of_answers_has_no_ci_for_what_has_none() -> None:
    effect = release_of("average effect")
    sure, refuted = answers({"sure": effect, "refuted": replace(effect, clipped_residuals=0.9)})
    assert (sure.withdrawn, sure.row()["no_confidence_interval"]) == ("", "")
    assert "declared scale of 0.3" in refuted.row()["no_confidence_interval"]
    text = as_text(answer_blocks([sure, refuted]))
    assert "refuted has no confidence interval: most residuals lie beyond" in text
    assert re.search(r"refuted .* none +none", text)


def test_a_two_stage_effect_has_a_row_without_an_interval_and_does_not_widen_the_others() -> None:
    effect, scheme = release_of("average effect"), release_of("means")
    alone, (first, second) = answers({"one": effect}), answers({"one": effect, "two": scheme})
    assert first == alone[0]
    assert (second.question, second.estimate) == ("two", scheme.effect)
    assert (second.interval.low, second.withdrawn) == (None, "sampling is not counted")
    assert "two has no confidence interval: sampling is not counted." in as_text(
        answer_blocks([second])
    )
    assert answers({"rule": release_of("decisions")}) == []


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("share", "estimand", "least", "words"),
    [
        (0.1, "ate", 40.0, "(3, or 4 over the rarer arm's share where that is more"),
        (0.9, "att", 20.0, "(3, or 2 over the share of the untreated where that is more"),
    ],
)
def test_a_cap_counts_from_what_the_caveat_names(share, estimand, least, words) -> None:
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (4000, 2))
    score = 4.0 * x[:, 0] + rng.logistic(size=4000)
    a = (score > np.quantile(score, 1.0 - share)).astype(int)

    def fitted(cap):
        settings = {"propensity": "logistic", "cap": cap}
        model = PrivateEffect(DOMAIN, Budget(9.0), estimand=estimand, settings=settings, seed=1)
        return model.fit(x, a, x[:, 0]).release_

    low = fitted(3.0)
    assert words in " ".join(sentences(replace(low, capped=0.25), "warns"))
    assert fitted(0.9 * least).interval == low.interval
    assert fitted(1.2 * least).interval != low.interval


def test_the_cap_of_risks_is_the_one_that_they_are_scored_by() -> None:
    release = release_of("risks")
    plan = plan_of(release)
    few = {**released_numbers(release, plan), "rate": np.array([20])}  # of 400
    assert plan.main.at(plan.main.universe, few).cap == 20.0
    words = "(10, or 1 over the rarer arm's share where"
    assert words in " ".join(sentences(replace(release, capped=0.25), "warns"))


@pytest.mark.slow
def test_complete_records_alone_leave_nothing_unadjusted(releases) -> None:
    (caveat,) = (one for one in CAVEATS if one.code == "missing")
    (release,) = (
        one for one in releases if "u" in (one.domain.get("codebook") or {}).get("missing", ())
    )
    assert "what u or v confounds where it is missing" in sentence_of(caveat, release)
    for eligible, told in (
        (["u >= -1", "v > 0"], False), (["v >= 0 and u >= -1"], False), (["u >= -1"], True),
        (["u >= -1 or v > 0"], True), (['u == ""', "v > 0"], True), (["v > 0"], True),
    ):  # fmt: skip
        book = {**release.domain["codebook"], "eligible": eligible}
        # a mark is no column
        book["missing"], columns = (
            {"u": 0.0},
            (*release.columns, "u=missing"),
        )
        marked = replace(release, domain={**release.domain, "codebook": book}, columns=columns)
        assert bool(caveat.when(marked)) is told
        assert not told or "=missing" not in sentence_of(caveat, marked)


@pytest.mark.slow
def test_a_code_is_one_sentence_wherever_it_is_shown(releases) -> None:
    for release in releases[len(RELEASES) - 3 :]:  # tests of their pages walk the others
        codes = [caveat.code for caveat in caveats_of(release)]
        assert len(set(codes)) == len(codes)
        assert json.loads(release.to_json())["caveats"] == codes
        shown, page = " ".join(release.summary(10_000).split()), unescape(release_page(release))
        for sentence in sentences(release, "warns", "notes", "assumes", "excludes"):
            assert (shown.count(sentence), page.count(sentence)) == (1, 1), sentence
        for sentence in sentences(release, "warns"):  # stands first
            assert page.index(sentence) < page.index("What the result counts")


@pytest.mark.parametrize(
    ("name", "forge"),
    [
        ("average effect", lambda codes: []),
        ("rule", lambda codes: codes[1:]),
        ("average effect", lambda codes: [*codes, "x"]),
    ],
)
def test_forged_codes_are_refuted(name, forge) -> None:
    release = release_of(name)
    tree = json.loads(release.to_json())
    with pytest.raises(DeclarationError, match="caveats does not follow"):
        read_release(json.dumps(tree | {"caveats": forge(tree["caveats"])}))
