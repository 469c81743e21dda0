"""The table of caveats: a code is one sentence of one kind of release, and some release reaches it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, PrivateRanges, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.cells import Treatment
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release.caveats import CAVEATS, caveats_of, sentences
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.reading import parsed
from dp2erm_cvx.report import release_page

DOMAIN = Domain(1.5, 2.0, ranges={"u": (-1.0, 1.0), "v": (-1.0, 1.0)})
GROUPS = replace(DOMAIN, ranges={"u": (-1.0, 1.0)}, codebook=Codebook(levels={"sex": ["F", "M"]}))
EFFECTS = ({}, {"estimand": "overlap"}, {"settings": {"propensity": 0.5}})
EFFECTS += ({"settings": {"mean_share": None, "spread_share": None}},)
WORTH = {"propensity": "logistic", "value_share": 0.2}


@pytest.fixture(scope="module")
def releases():
    rng = np.random.default_rng(0)
    X, sex = pd.DataFrame(rng.uniform(-1, 1, (400, 2)), columns=["u", "v"]), rng.choice(["F", "M"], 400)
    a = rng.integers(0, 2, 400)
    y, nine = X["u"] + 0.5 * a + 0.1 * rng.standard_normal(400), Budget(9.0)
    by = PrivateEffect(GROUPS, Budget(30.0), by="sex", prognostic=["u"], seed=1)
    models = [PrivateEffect(DOMAIN, nine, seed=1, **more) for more in EFFECTS]
    models += [
        PrivateRule(DOMAIN, nine, settings=WORTH, seed=1),
        PrivateTwoStageERM(DOMAIN, nine, "ipw_private"),
    ]
    models += [PrivateTwoStageERM(DOMAIN, Budget(e), "uniform", "arm_means") for e in (0.001, 90.0)]
    made = [by.fit(X[["u"]].assign(sex=sex), a, y).release_, *(one.fit(X, a, y).release_ for one in models)]
    counts = replace(DOMAIN, outcome_center=2.0)
    made.append(PrivateEffect(counts, nine, residual_scale=0.2, seed=1).fit(X, a, y).release_)
    ranged = PrivateEffect(PrivateRanges(0.5), Budget(90.0), seed=1).fit(X, a, y).release_
    effect, rule, weights = made[1], made[-5], made[-4]
    weak = replace(effect.guarantee, epsilon=11.0, delta=0.01)
    made += [
        replace(effect, **one)
        for one in (
            {"guarantee": weak},
            {"capped": 0.5},
            {"target": "score"},
            {"narrow": ("u",)},
            {"skewed": 9.0},
        )
    ]
    arms = Codebook(treatment=Treatment(levels=["a", "b", "c"]))
    event = replace(DOMAIN, outcome_center=0.5, outcome_bound=0.5, binary_outcome=True, codebook=arms)
    labels, happened = np.array(["a", "b", "c"])[np.arange(400) % 3], (X["u"] > 0.0).astype(float)
    several = (event, happened), (replace(DOMAIN, codebook=arms), y)
    made += [PrivateEffect(one, nine, seed=1).fit(X, labels, told).release_ for one, told in several]
    book = {"missing": {"u": 0.0}, "unit": {"column": "id", "number": 400, "count": 1}}
    share = {"outcome_center": 0.5, "outcome_bound": 0.5}
    made += [replace(effect, domain={**effect.domain, **more}) for more in ({"codebook": book}, share)]
    made += [ranged, replace(rule, flipped_share=0.4), replace(rule, residual_bias=0.9)]
    return made + [replace(weights, residual_imbalance=share) for share in (0.1, 0.9)]


def test_skewed_outcomes_of_the_untreated_are_told_where_their_sums_show_them() -> None:
    """A fit of bounded influence misses a mean by more where it is larger."""
    told = []
    for law in ("lognormal", "normal"):
        rng = np.random.default_rng(5)
        x = rng.uniform(-1, 1, (60_000, 2))
        a = rng.binomial(1, 1 / (1 + np.exp(0.5 - 1.2 * x[:, 0])))
        noise = rng.lognormal(-0.5, 1.0, 60_000) if law == "lognormal" else 1 + 0.3 * rng.normal(size=60_000)
        y = (2.0 + x[:, 0]) * noise + 0.5 * a
        domain = Domain(1.5, 20.0, outcome_center=20.0, ranges=[(-1, 1)] * 2)
        release = PrivateEffect(domain, Budget(20.0), estimand="att", seed=1).fit(x, a, y).release_
        told.append(
            (
                release.skewed > 0.0,
                "is not counted" in " ".join(sentences(release, "warns")),
            )
        )
        assert parsed(release.to_json(), EffectRelease).skewed == release.skewed
    assert told == [(True, True), (False, False)]


def test_every_caveat_is_reached_and_some_release_is_without_it(releases) -> None:
    always = (
        "not-covered",
        "sign",
        "larger",
        "balanced",
        "skewed",
        "gains",
        "remaining-bias",
        "remaining-imbalance",
    )
    for caveat in CAVEATS:
        held = {bool(caveat.when(one)) for one in releases if one.goal in caveat.goals}
        assert True in held, caveat.code
        assert False in held or caveat.code in always, caveat.code


def test_complete_records_alone_leave_nothing_unadjusted(releases) -> None:
    (caveat,) = (one for one in CAVEATS if one.code == "missing")
    (release,) = (one for one in releases if "unit" in (one.domain.get("codebook") or {}))
    assert "what u or v confounds where it is missing" in caveat.say(release)
    for eligible, told in (
        (["u >= -1", "v > 0"], False), (["v >= 0 and u >= -1"], False), (["u >= -1"], True),
        (["u >= -1 or v > 0"], True), (['u == ""', "v > 0"], True), (["v > 0"], True),
    ):  # fmt: skip
        book = {**release.domain["codebook"], "eligible": eligible}
        book["missing"], columns = {"u": 0.0}, (*release.columns, "u=missing")  # a mark is no column
        marked = replace(release, domain={**release.domain, "codebook": book}, columns=columns)
        assert bool(caveat.when(marked)) is told
        assert not told or "=missing" not in caveat.say(marked)


def test_a_code_is_one_sentence_wherever_it_is_shown(releases) -> None:
    for release in releases:
        codes = [caveat.code for caveat in caveats_of(release)]
        assert len(set(codes)) == len(codes)
        assert json.loads(release.to_json())["caveats"] == codes
        shown, page = " ".join(release.summary(10_000).split()), release_page(release)
        for sentence in sentences(release, "warns", "notes", "assumes", "excludes"):
            assert (shown.count(sentence), page.count(sentence)) == (1, 1), sentence
        for sentence in sentences(release, "warns"):  # stands first
            assert page.index(sentence) < page.index("What the result counts")


@pytest.mark.parametrize("forge", [lambda codes: [], lambda codes: codes[1:], lambda codes: [*codes, "x"]])
def test_forged_codes_are_refuted(releases, forge) -> None:
    for release in (releases[1], releases[5], releases[6]):  # of an effect, a rule and weights
        tree = json.loads(release.to_json())
        with pytest.raises(DeclarationError, match="caveats does not follow"):
            type(release).from_json(json.dumps(tree | {"caveats": forge(tree["caveats"])}))
