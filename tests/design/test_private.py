"""Tuning on private data: charged first, covered as a whole; the law of the choice, and its privacy."""

import json
import math
import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Dataset, Domain, Ledger, PrivateTwoStageERM, Release, tune_privately
from dp2erm_cvx.design import private
from dp2erm_cvx.design.private import LEVELS, SENSITIVITY, total_gain, unit
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, LedgerError
from dp2erm_cvx.mechanism import private_choice, selection_scale
from dp2erm_cvx.release import Standing
from dp2erm_cvx.sampling import Unit
from tests.mechanism.laws import permute_and_flip

DOMAIN = Domain(1.5, 1.0)
PERSONS = Domain(1.5, 1.0, codebook=Codebook(unit=Unit("id", 40)))


def records(n: int = 400, seed: int = 0):
    """Randomized with probability 1/2; treatment helps where the first covariate is positive."""
    rng = np.random.default_rng(seed)
    X, a = rng.uniform(-1, 1, (n, 2)), rng.integers(0, 2, n)
    return X, a, np.clip((2 * a - 1) * np.sign(X[:, 0]) * 0.7 + 0.1 * rng.normal(size=n), -1, 1)


def candidate(epsilon: float = 0.5, second="itr", domain=DOMAIN, **changes) -> PrivateTwoStageERM:
    return PrivateTwoStageERM(domain, Budget(epsilon), "uniform", second, **changes)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "ledger.db")
    book.declare("trial", Budget(2.0, 1e-5))
    return book


def choose(models, ledger, data=None, **changes):
    given = {"dataset": "trial", "score_budget": Budget(0.5)} | changes
    return tune_privately(models, *(data or records()), ledger=ledger, **given)


def test_one_charge_covers_everything_and_what_is_published_holds_no_score(ledger):
    given = {"itr": candidate(0.5), "means": candidate(0.75, "arm_means")}
    result = choose(given, ledger, split=0.25)
    (receipt,) = ledger.account("trial").receipts
    assert receipt == result.receipt
    assert (receipt.budget, receipt.note) == (Budget(1.25), "tuning: 2 candidates")
    assert (result.guarantee.epsilon, result.guarantee.delta, result.private) == (1.25, 0.0, True)
    assert (result.n_fitted, result.n_scored, result.release.n_samples) == (100, 300, 100)
    assert [(one["name"], one["epsilon"]) for one in result.candidates] == [("itr", 0.5), ("means", 0.75)]
    assert result.release.guarantee == result.guarantee == result.model.release_.guarantee
    assert all(not hasattr(model, "release_") for model in given.values())
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (plain["private"], plain["best"] in given) == (True, True)
    assert Release.from_json(json.dumps(plain["release"])) == result.release
    assert set(plain["selection"]) == {"epsilon", "scale", "resolution", "propensity", "sampler"}
    assert plain["selection"]["sampler"] == "OpenDP make_noisy_max"
    # 2 B / (epsilon m) with B = M' / p
    assert result.selection["scale"] == pytest.approx(2 * 2.0 / (0.5 * 300))
    assert result.selection["resolution"] == pytest.approx(result.selection["scale"] * math.log(2 / 0.05))
    assert str(records()[2][0]) not in repr(result)


def test_groups_and_other_columns_are_refused_before_the_charge(ledger):
    """Counts (m, K) would be broadcast: at m = K one record would move a gain by K sensitivities."""
    book = Codebook(levels={"g": ["N", "S"]}, group="g")
    grouped = candidate(domain=Domain(1.5, 1.0, ranges=book.ranges({"u": (-1, 1)}), codebook=book))
    rows = pd.DataFrame({"u": [0.5] * 4, "g": ["N", "S"] * 2}), [0, 1] * 2, [0.0] * 4
    for call in (lambda: choose([grouped] * 2, ledger, rows), lambda: grouped.fit(*rows)):
        with pytest.raises(DeclarationError, match=r"by: .* has no groups"):
            call()
    arm = np.array([0, 1])
    with pytest.raises(DeclarationError, match=r"counts have shape \(2, 2\): must be \(2,\)"):
        private.total_gain(arm, arm, np.ones(2), DOMAIN, 0.5, np.eye(2))
    # columns in another order are another domain
    pairs = [("u", (-1.0, 1.0)), ("v", (0.0, 5.0))]
    one, same, other = (Domain(1.5, 1.0, ranges=dict(own)) for own in (pairs, pairs, pairs[::-1]))
    assert (one == same, hash(one) == hash(same), one == other) == (True, True, False)
    with pytest.raises(DeclarationError, match="declare different domains"):
        choose([candidate(domain=one), candidate(domain=other)], ledger)
    assert ledger.account("trial").receipts == ()


@pytest.mark.parametrize(("score", "total"), [(0.1, 0.3), (0.3, 0.3), (0.9, 0.9)])
def test_the_total_is_the_larger_part_and_deltas_add_up(ledger, score, total):
    # three times 0.1 are 0.3, as the ledger counts
    result = choose([candidate(0.1)] * 3, ledger, score_budget=Budget(score))
    assert result.receipt.budget.epsilon == result.guarantee.epsilon == total
    given = [PrivateTwoStageERM(DOMAIN, Budget(0.5, 1e-6), "uniform", noise="gaussian") for _ in range(2)]
    assert choose(given, ledger).receipt.budget == Budget(1.0, 2e-6)


def test_nothing_runs_before_a_charge_that_the_ledger_takes_and_keeps(ledger, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(n_samples, n_fitted, source):
        assert len(ledger.account("trial").receipts) == 1
        raise Killed

    monkeypatch.setattr(private, "fitted", lambda *_: pytest.fail("a candidate was fitted"))
    monkeypatch.setattr(private, "_divided", killed)
    with pytest.raises(LedgerError, match="does not fit"):
        choose([candidate(1.5), candidate(0.6)], ledger)
    with pytest.raises(LedgerError, match="no declared total"):
        choose([candidate()], ledger, dataset="another")
    assert ledger.account("trial").receipts == ()
    with pytest.raises(Killed):
        choose([candidate()], ledger)
    assert ledger.account("trial").spent.epsilon == 0.5


def test_candidates_see_a_random_part_and_scores_the_other(ledger, monkeypatch):
    parts, fits, scored = [], [], []
    divided, fitted, total_gain = private._divided, private.fitted, private.total_gain
    monkeypatch.setattr(private, "_divided", lambda *given: parts.append(divided(*given)) or parts[-1])

    def spy(model, dataset, rows, seed):
        assert seed is None
        fits.append(fitted(model, dataset, rows, seed))
        return fits[-1]

    monkeypatch.setattr(private, "fitted", spy)
    monkeypatch.setattr(private, "total_gain", lambda *given: scored.append(given[2]) or total_gain(*given))
    X, a, y = (column[np.argsort(records(80)[2])] for column in records(80))
    result = choose([candidate(), candidate(second="arm_means")], ledger, (X, a, y), split=0.35)
    assert result.model in fits
    choose([candidate()], ledger, (X, a, y), split=0.35)
    for fit, score in parts:
        assert (len(fit), len(score)) == (28, 52)
        assert sorted([*fit, *score]) == list(range(80))
        assert not np.array_equal(np.sort(fit), np.arange(28))
    assert not np.array_equal(parts[0][0], parts[1][0])
    for model, net, (fit, score) in zip(fits, scored, [parts[0], *parts], strict=True):
        assert np.array_equal(model.private_workings_.dataset.X, X[fit])
        assert np.array_equal(model.private_workings_.dataset.y, y[fit])
        assert model.release_.guarantee.standing is Standing.PRIVATE
        assert (model.ledger, model.seed, model.receipt_) == (None, None, None)
        assert np.array_equal(net, y[score])
    assert not np.array_equal(fits[0].private_workings_.noise, fits[1].private_workings_.noise)


def test_a_seeded_choice_is_repeatable_not_private_and_free_and_a_clear_winner_is_chosen(ledger):
    # constant rules against the one that treats where treatment helps
    given, won = {"means": candidate(50.0, "arm_means"), "itr": candidate(50.0)}, 0
    for seed in range(8):
        with pytest.warns(UserWarning, match="not private: nothing is charged"):
            first, again = (choose(given, ledger, records(400, seed), seed=seed) for _ in range(2))
        assert first == again
        assert first.release.theta == again.release.theta
        assert (first.private, first.to_dict()["private"], first.receipt) == (False, False, None)
        assert first.guarantee.standing is Standing.NOT_PRIVATE
        won += first.best == "itr"
    assert won >= 7
    assert ledger.account("trial").receipts == ()


def test_a_conditional_candidate_makes_the_whole_conditional(ledger, monkeypatch):
    fitted = private.fitted

    def uncertified(model, *rest):
        model = fitted(model, *rest)
        guarantee = replace(model.release_.guarantee, standing=Standing.CONDITIONAL)
        if model.budget.epsilon == 0.25:
            model.release_ = replace(model.release_, guarantee=guarantee)
        return model

    monkeypatch.setattr(private, "fitted", uncertified)
    result = choose([candidate(), candidate(0.25)], ledger)
    assert result.guarantee.standing is Standing.CONDITIONAL
    assert not result.release.private


@pytest.mark.parametrize(
    ("match", "changes"),
    [
        *(("a Ledger to charge", {"ledger": wrong}) for wrong in (None, "ledger.db")),
        ("dataset", {"dataset": None}), ("at least one candidate", {"models": []}),
        *(("of its own", {"models": [candidate(**own)]}) for own in ({"seed": 1}, {"dataset": "trial"})),
        ("a private choice", {"models": [candidate(domain=PERSONS)]}), ("propensity", {"propensity": 1.0}),
        ("arm_floor", {"models": [candidate(domain=Domain(1.5, 1.0, arm_floor=5))]}), ("seed", {"seed": -1}),
        *(("score_budget", {"score_budget": wrong}) for wrong in (Budget(0.5, 1e-6), 0.5)),
        *(("split", {"split": wrong}) for wrong in (0.0, 1.0, 1e300, 1e-3, math.nan)),
        ("candidate 2: ", {"models": [candidate(), candidate(0.1, calibration="renyi")]}),
        ("treatment", {"data": (records()[0], records()[1] + 1, records()[2])}),
    ],
)  # fmt: skip
def test_what_is_refused(match, changes, ledger):
    given = {"models": [candidate()], "ledger": ledger} | changes
    with pytest.raises((DeclarationError, CalibrationError, DataError), match=match):
        choose(given.pop("models"), given.pop("ledger"), **given)
    assert ledger.account("trial").receipts == ()


def test_an_unproven_plan_is_not_charged(ledger, monkeypatch):
    # here, because this file is also run outside of the tests
    from tests.plan.changed import unproven

    result = unproven(candidate().plan(200, 2))
    monkeypatch.setattr(PrivateTwoStageERM, "plan", lambda *_: result)
    with pytest.raises(CalibrationError, match=r"candidate 1: .* not proven"):
        choose([candidate()], ledger)
    assert ledger.account("trial").receipts == ()


def test_without_opendp_nothing_is_read_or_charged_and_a_seeded_choice_needs_none(ledger, monkeypatch):
    monkeypatch.setattr("dp2erm_cvx.mechanism.find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="not private"):
        result = choose([candidate(arithmetic="assumed")], None, seed=1)
    assert result.selection["sampler"] == "permute-and-flip in floating point"
    monkeypatch.setattr(Dataset, "declared", lambda *_: pytest.fail("data were read"))
    with pytest.raises(DeclarationError, match=r"need opendp: install dp2erm-cvx\[secure\]"):
        choose([candidate()], ledger)
    assert ledger.account("trial").receipts == ()


NARROW = Domain(1.0, 2.0)


def test_a_repeatable_choice_has_the_law_of_permute_and_flip():
    choose, scores, size = private_choice(2, 1.0, random.Random(1)), [0, -3, -7, 0], 20_000
    shares = np.bincount([choose(scores) for _ in range(size)], minlength=4) / size
    assert np.allclose(shares, permute_and_flip(scores, 0.25), atol=3.5 / math.sqrt(size))  # 7 deviations


@pytest.mark.parametrize("epsilon", [1e-300, 1e-3, 1.0, 1e3, 1e300])
@pytest.mark.parametrize("source", [None, 0])
def test_scales_of_any_size(source, epsilon):
    if source is None:
        pytest.importorskip("opendp")
    choose = private_choice(SENSITIVITY, epsilon, None if source is None else random.Random(source))
    # all three of them but for 3 (2/3)^80 < 1e-13
    places = {choose([0, 10 * SENSITIVITY, -SENSITIVITY]) for _ in range(80)}
    assert places == {1} if epsilon > 100 else places == {0, 1, 2} if epsilon < 0.1 else 1 in places
    with pytest.raises(CalibrationError, match="no scale of noise"):
        selection_scale(SENSITIVITY, 5e-324)


RECORDS = [(a, y) for a in (0, 1) for y in (-2.0, -0.7, 0.0, 2.0)]
RULES = np.array(list(product((0, 1), repeat=2)))


def scores(records: list[tuple[int, float]], rules: np.ndarray, p: float) -> list[int]:
    a, net = np.array([one[0] for one in records]), np.array([one[1] for one in records])
    return [total_gain(rule, a, net, NARROW, p) for rule in rules]


def worst_loss(rate: float, *, p: float = 0.3) -> float:
    """The largest log ratio over all pairs of datasets of two records that share the first, for 4 rules."""
    worst = 0.0
    for rest in RECORDS:
        laws = []
        for one in RECORDS:
            # what a rule says about the replaced record may be either, before and after
            for says in product((0, 1), repeat=4):
                rules = np.column_stack([RULES[:, 0], says])
                laws.append(permute_and_flip(scores([rest, one], rules, p), rate))
        table = np.log(np.array(laws))
        worst = max(worst, float(np.max(table.max(axis=0) - table.min(axis=0))))
    return worst


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_privacy_over_all_neighbors(epsilon):
    loss = worst_loss(1.0 / selection_scale(SENSITIVITY, epsilon))
    assert 0.5 * epsilon < loss <= epsilon * (1 + 1e-12)


def test_the_loss_is_attained_and_half_the_sensitivity_is_caught():
    # a lead that no record overturns, and one record whose score turns round for both rules
    lead, rules = [(1, 2.0)] * 4, np.array([[1] * 5, [0] * 5])
    pair = [scores([*lead, (1, y)], rules, 0.5) for y in (2.0, -2.0)]
    for believed, factor in ((SENSITIVITY, 1.0), (SENSITIVITY // 2, 2.0)):
        chances = [permute_and_flip(one, 0.8 / (2 * believed)) for one in pair]
        loss = max(abs(math.log(before / after)) for before, after in zip(*chances, strict=True))
        assert loss == pytest.approx(0.8 * factor)
    # flips are covered, and needed
    kept, flipped = (scores([*lead, (a, 2.0)], rules, 0.5) for a in (1, 0))
    assert max(abs(one - other) for one, other in zip(kept, flipped, strict=True)) == SENSITIVITY


@pytest.mark.parametrize("p", [1e-9, 0.2, 0.5, 0.9])
def test_scores_keep_their_range(p):
    hostile = math.nan, math.inf, -math.inf, 1e300, -2.0, 2.0, 5e-324
    for a, chosen, net in product((0, 1), (0, 1), hostile):
        assert abs(total_gain(np.array([chosen]), np.array([a]), np.array([net]), NARROW, p)) <= LEVELS


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_the_mean_gain_is_the_value_over_a_coin_toss(p):
    treated, control = np.array([1.5, -1.0, 0.3]), np.array([-0.5, 0.8, 0.3])
    rule = np.array([1, 0, 1])
    # the exact mean over randomized treatments
    mean = p * total_gain(rule, np.ones(3, int), treated, NARROW, p)
    mean += (1 - p) * total_gain(rule, np.zeros(3, int), control, NARROW, p)
    expected = np.mean(np.where(rule == 1, treated, control)) - np.mean(treated + control) / 2
    assert mean * unit(NARROW, p, 3) == pytest.approx(expected, abs=1e-4)
