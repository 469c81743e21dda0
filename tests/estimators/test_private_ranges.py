"""Released ranges: the domain that they make, what rests on it, who is charged, and forged
pairs.
"""

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dp2erm_cvx import (
    Budget,
    Codebook,
    Domain,
    Ledger,
    OpenDomain,
    PrivateEffect,
    PrivateRanges,
    PrivateRule,
    PrivateTwoStageERM,
    RangesRelease,
    Treatment,
    Within,
    read_release,
)
from dp2erm_cvx.errors import DeclarationError, LedgerError
from dp2erm_cvx.release.ranges import resting_on
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.report.words import meaning, promised
from tests.every_release import release_of

KNOWN = OpenDomain({"u": (0, 2), "v": Within(0, 1e7)}, Within(-1e6, 1e6))
SEED = 3


def table(n=6000, seed=0):
    """An effect of 800 beside a confounder of incomes."""
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(0, 2, n), rng.standard_normal(n)
    a = rng.binomial(1, 1 / (1 + np.exp(-v)))
    y = 800 * (u + a + 0.5 * v + 0.5 * rng.standard_normal(n))
    return pd.DataFrame({"u": u, "v": 3e4 * np.exp(0.1 * v)}), a, y


@pytest.fixture(scope="module")
def pair():
    """A release of ranges, and an effect that rests on it, neither of a seed."""
    ranges = PrivateRanges(KNOWN, Budget(0.5)).fit(*table())
    effect = PrivateEffect(ranges.domain_, Budget(1.5)).fit(*table())
    return ranges.release_, effect.release_


def test_every_estimator_takes_the_domain_of_released_ranges():
    data = table()
    domain = PrivateRanges(KNOWN, Budget(0.5), seed=SEED).fit(*data).domain_
    assert type(domain) is Domain
    assert domain.ranges["u"] == (0.0, 2.0)
    low, high = domain.ranges["v"]
    assert 1e4 < low < 3e4 < high < 6e4
    effect = PrivateEffect(domain, Budget(2.0), seed=SEED).fit(*data)
    assert effect.interval_[0] < 800 < effect.interval_[1]
    assert effect.interval_[1] - effect.interval_[0] < 400
    curved = PrivateEffect(domain, Budget(2.0), curved=["v"], seed=SEED).fit(*data)
    rule = PrivateRule(domain, Budget(2.0), seed=SEED).fit(*data)
    weighted = PrivateTwoStageERM(domain, Budget(2.0), "uniform", "arm_means", seed=SEED).fit(*data)
    for model in (effect, curved, rule, weighted):
        assert verify(model.release_).holds
        assert model.release_.public.released == domain.released


def test_ranges_are_drawn_and_charged_once_and_the_rest_adds_up(tmp_path):
    book = Ledger(tmp_path / "book.db")
    book.declare("trial", Budget(2.0))
    account = {"ledger": book, "dataset": "trial"}
    ranges = PrivateRanges(KNOWN, Budget(0.5), **account)
    plan = ranges.plan(6000, ["u", "v"])
    assert (plan.guarantee, plan.counted, plan.proven) == (Budget(0.5), True, True)
    ranges.fit(*table())
    assert ranges.receipt_.budget == Budget(0.5)
    PrivateEffect(ranges.domain_, Budget(1.5), **account).fit(*table())
    assert [one.budget.epsilon for one in book.account("trial").receipts] == [0.5, 1.5]
    with pytest.raises(LedgerError):
        clone(ranges).fit(*table())


def test_a_release_says_that_its_domain_was_released_and_that_epsilons_add_up(pair):
    ranges, effect = pair
    assert ranges.private
    assert effect.private
    stated = effect.to_dict()["domain"]["released"]
    assert stated == {"digest": ranges.digest, "epsilon": 0.5, "private": True}
    assert effect.guarantee.epsilon == 1.5
    assert effect.whole_guarantee.epsilon == 2.0
    (told,) = (
        one for one in effect.guarantee.assumptions if "released from the same records" in one
    )
    assert f"epsilon = 0.5 (SHA-256 {ranges.digest})" in told
    assert told.endswith("guarantee the sum together, epsilon = 2")
    assert (
        "the released ranges that it rests on included, by a factor of at most 7.39 (epsilon = 2)"
        in meaning(effect)
    )
    assert "at most 0.89" in promised(effect)[1][0]
    assert "released-ranges" in effect.caveats
    assert ranges.digest in " ".join(ranges.summary(10_000).split())
    assert list(ranges.to_frame()["range"]) == ["public", "released", "released"]
    assert read_release(ranges.to_json(), RangesRelease) == ranges
    assert ranges.as_domain() == effect.public


def test_nobody_takes_seeded_ranges_for_private_ones():
    data = table(2000)
    domain = PrivateRanges(KNOWN, Budget(2.0), seed=SEED).fit(*data).domain_
    with pytest.raises(DeclarationError, match="the noise of the ranges of its domain was seeded"):
        PrivateEffect(domain, Budget(1.0)).fit(*data)
    release = PrivateEffect(domain, Budget(1.0)).fit(*data, conditional=True).release_
    assert not domain.released.private
    assert not release.private
    assert verify(release).holds
    forged = replace(release, guarantee=replace(release.guarantee, standing="private"))
    assert not verify(forged).holds


def test_a_pair_belongs_together_or_is_refuted(pair):
    ranges, effect = pair
    assert list(resting_on(effect, ranges)) == []
    assert verify(effect).holds
    # declared ranges are another domain, and other draws are of another release
    alone = replace(
        effect, domain={name: one for name, one in effect.domain.items() if name != "released"}
    )
    assert "domain.released: nothing is stated" in next(resting_on(alone, ranges))
    silent = tuple(one for one in effect.guarantee.assumptions if "released from" not in one)
    assert not verify(
        replace(effect, guarantee=replace(effect.guarantee, assumptions=silent))
    ).holds
    other = PrivateRanges(KNOWN, Budget(0.5)).fit(*table()).release_
    assert any(line.startswith("domain.released.digest") for line in resting_on(effect, other))
    for name, changed in (("epsilon", 0.1), ("digest", "0" * 64)):
        stamp = {**effect.domain["released"], name: changed}
        forged = replace(effect, domain={**effect.domain, "released": stamp})
        assert any(
            line.startswith(f"domain.released.{name}") for line in resting_on(forged, ranges)
        )
        assert not verify(forged).holds  # of its own guarantee, which states them as well
    wider = {**effect.domain, "outcome_bound": 2 * effect.domain["outcome_bound"]}
    assert any(
        "y ranges from" in line for line in resting_on(replace(effect, domain=wider), ranges)
    )
    moved = {**effect.domain, "ranges": {**effect.domain["ranges"], "v": [0.0, 1.0]}}
    assert any(
        "v ranges from" in line for line in resting_on(replace(effect, domain=moved), ranges)
    )
    assert any(
        line.startswith("n_samples") for line in resting_on(replace(effect, n_samples=9), ranges)
    )
    assert any(
        line.startswith("study") for line in resting_on(replace(effect, study="0" * 64), ranges)
    )


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("ranges", 1, "low"), 0.0, "ranges.1.low"),
        (("ranges", 1, "chosen"), [1.0, 3.25e4], "off the public grid"),
        (("ranges", 1, "chosen"), None, "ranges.1.chosen"),
        (("ranges", 0, "chosen"), [0.0, 2.0], "ranges.0.chosen"),
        (("ranges", 2, "within"), None, "ranges.2.within"),
        (("ranges", 0, "high"), 3.0, "ranges.0.high"),
        (("domain", "outcome_bound"), 1.0, "domain.outcome_bound"),
        (("steps", 0, "scale"), 1.0, "steps.0.scale"),
        (("guarantee", "epsilon"), 0.1, "guarantee.epsilon"),
        (("declared", "budget", "epsilon"), 0.1, "ranges.1.low"),
        (("digest",), "0" * 64, "digest does not follow"),
    ],
)  # fmt: skip
def test_a_changed_entry_of_ranges_is_refuted(pair, path, value, told):
    plain = json.loads(pair[0].to_json())
    *outer, last = path
    inside = plain
    for key in outer:
        inside = inside[key]
    inside[last] = value
    with pytest.raises(DeclarationError, match="release JSON") as refused:
        read_release(json.dumps(plain), RangesRelease)
    assert told in str(refused.value)


def test_a_neighbor_has_the_same_plan_of_ranges():
    X, a, y = table(2000)
    own = PrivateRanges(KNOWN, Budget(2.0), seed=SEED)
    one = clone(own).fit(X, a, y).release_
    X.iloc[0], y[0] = 1e300, -1e300
    other = clone(own).fit(X, 1 - a, y).release_
    assert (other.steps, other.declared, other.guarantee) == (
        one.steps,
        one.declared,
        one.guarantee,
    )


def test_without_opendp_nothing_is_read(monkeypatch):
    find, own = importlib.util.find_spec, PrivateRanges(KNOWN, Budget(1.0))
    hidden = lambda name: None if name == "opendp" else find(name)  # noqa: E731
    monkeypatch.setattr("dp2erm_cvx.noise.find_spec", hidden)
    for call in (
        lambda: own.fit(object(), object(), object()),
        lambda: own.check(["u", "v"]),
    ):  # no data at all
        with pytest.raises(DeclarationError, match=r"dp2erm-cvx\[secure\]"):
            call()


def test_missing_cells_levels_and_further_outcomes_have_their_places():
    rng, n = np.random.default_rng(0), 5000
    frame = pd.DataFrame({"age": rng.normal(50, 9, n).round(), "sex": rng.choice(["F", "M"], n)})
    frame["drug"], frame["sbp"] = rng.choice(["yes", "no"], n), rng.normal(140, 20, n)
    frame["days"] = rng.gamma(2.0, 3.0, n)
    frame.loc[:400, "age"] = np.nan
    book = Codebook(
        Treatment("drug", "yes", "no"), "sbp", levels={"sex": ["F", "M"]}, missing={"age": 60}
    )
    known = OpenDomain(book.ranges({"age": None}), None, {"days": Within(0, 1000)}, codebook=book)
    fitted = PrivateRanges(known, Budget(3.0), seed=SEED).fit(frame, frame["drug"], frame["sbp"])
    release = fitted.release_
    assert [one.column for one in release.ranges] == [
        "age",
        "age=missing",
        "sex=F",
        "sex=M",
        "days",
        "sbp",
    ]
    assert release.columns == ("age", "age=missing", "sex=F", "sex=M")
    ends = {one.column: one.pair for one in release.ranges}
    assert 20 < ends["age"][0] < 45 < 55 < ends["age"][1] < 90
    assert 0 <= ends["days"][0] < 2 < 10 < ends["days"][1] < 40
    assert 60 < ends["sbp"][0] < 120 < 160 < ends["sbp"][1] < 230
    assert fitted.domain_.covariate_bound <= np.sqrt(3)
    effect = PrivateEffect(fitted.domain_, Budget(2.0), seed=SEED).fit(
        frame, frame["drug"], frame["sbp"]
    )
    assert list(resting_on(effect.release_, release)) == []


def test_a_page_counts_released_ranges_once():
    from dp2erm_cvx.report.page import _together

    ranges, effect = release_of("ranges"), release_of("on released ranges")
    assert _together([effect]).guarantee.epsilon == pytest.approx(9.5)
    same = replace(ranges, n_samples=effect.n_samples)
    resting = replace(effect, domain={**effect.domain, "released": {**vars(same.stamp)}})
    assert _together([same, resting]).guarantee.epsilon == pytest.approx(15.0)
    assert _together([resting, resting]).guarantee.epsilon == pytest.approx(24.0)
