"""Audits of functions that weigh records, and strategies of the auditor's own."""

import json
import math

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Claim, Quantity, SearchPlan, audit_stability, audit_weights, replay
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.neighbors import Replacements
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program.registry import programs
from tests.helpers import make_records

N = 40
DOMAIN = Domain(covariate_bound=1.0, outcome_bound=1.0)
UNIVERSE = Universe(DOMAIN, N, 2)
#: Largest V of :func:`known_odds`: twice the largest of N weights whose logs range over 2.
LARGEST = 2 * N / (1.0 + (N - 1) * math.exp(-2.0))
FEW = SearchPlan(evaluations=400, seed=1)


def known_odds(X, a):
    """Weights that are functions of their own record: V is twice the largest weight."""
    f = np.exp(np.where(a == 1, 1.0, -1.0) * X[:, 0])
    return N * f / np.sum(f)


def test_a_right_bound_is_reached_and_not_refuted():
    audit = audit_weights(known_odds, LARGEST * (1 + 1e-9), UNIVERSE, search=FEW)
    assert not audit.violations
    assert audit.verdict("claimed").ratio > 0.98
    assert audit.private
    assert audit.check.disagreement == 0.0
    assert audit.check.datasets > 0
    assert audit.to_dict()["program"] == {"name": "known_odds", "settings": {"function": True}}


def test_a_wrong_bound_is_refuted_by_a_pair_that_is_written_out(tmp_path):
    audit = audit_weights(known_odds, 0.9 * LARGEST, UNIVERSE, search=FEW)
    (verdict,) = audit.violations
    assert "violated by this pair" in str(audit)
    arrays, facts = audit.save(tmp_path / "pair")
    with np.load(arrays) as held:
        ends = [(held[f"X_{end}"], held[f"a_{end}"]) for end in ("first", "second")]
    w, v = (known_odds(X, a) for X, a in ends)
    changed = np.flatnonzero(np.any(ends[0][0] != ends[1][0], axis=1) | (ends[0][1] != ends[1][1]))
    assert len(changed) == 1
    moved = np.sum(np.abs(w - v)) + 2 * min(w[changed[0]], v[changed[0]])
    np.testing.assert_allclose(moved, verdict.movement.low, rtol=1e-8)
    assert moved > 0.9 * LARGEST
    assert json.loads(facts.read_text())["first_stage"]["name"] == "known_odds"
    again = replay(tmp_path / "pair", known_odds)
    assert again.violated
    assert again.agrees
    with pytest.raises(DeclarationError, match="hand it over"):
        replay(tmp_path / "pair")


def test_neighbors_of_given_data_are_searched():
    records = make_records(N, 2)
    audit = audit_weights(known_odds, 2 * N, records.space, records, search=FEW)
    assert not audit.private
    assert 0.1 < audit.verdict("claimed").movement.low < LARGEST
    assert set(audit.searched) == {
        "random",
        "held-out",
        "extreme",
        "flips",
        "each",
        "ascent",
        "base",
    }


def test_weights_in_the_units_of_the_data():
    """Ranges scale covariates for programs; a function sees them as they are."""
    seen = []

    def looked(X, a):
        seen.append(X)
        return np.ones(len(a))

    domain = Domain(covariate_bound=2.0, outcome_bound=1.0, ranges=((0.0, 100.0), (20.0, 40.0)))
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 100, N), rng.uniform(20, 40, N)])
    data = X, rng.integers(0, 2, N), np.zeros(N)
    audit = audit_weights(
        looked, 2.0, domain, data, strategies="random", search=SearchPlan(20, seed=1)
    )
    assert not audit.violations
    np.testing.assert_allclose(seen[0], X, rtol=1e-12)
    assert np.all((seen[-1] >= [0.0, 20.0]) & (seen[-1] <= [100.0, 40.0]))


def test_a_function_without_weights_for_some_records():
    def of_both_arms(X, a):
        return None if np.all(a == a[0]) else np.ones(len(a))

    audit = audit_weights(of_both_arms, 2.0, UNIVERSE, search=FEW)
    assert not audit.violations
    assert audit.verdict("claimed").ratio == pytest.approx(1.0)


NOISE = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X, a: np.ones(len(a) - 1), "finite weights"),
        (lambda X, a: np.full(len(a), np.nan), "finite weights"),
        (lambda X, a: np.ones(len(a)) / len(a), "multiply them by n / sum"),
        (
            lambda X, a: np.where(np.arange(len(a)) == 0, -1.0, (len(a) + 1.0) / (len(a) - 1)),
            "least weight",
        ),
        (lambda X, a: "weights", "are no weights"),
        (
            lambda X, a: (lambda f: len(a) * f / f.sum())(1.0 + 0.01 * NOISE.random(len(a))),
            "two calls",
        ),
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_what_is_no_weights_is_refused(function, message, given):
    data = make_records(N, 2) if given else None
    universe = data.space if given else UNIVERSE
    with pytest.raises(DataError, match=message):
        audit_weights(function, 2.0, universe, data, search=SearchPlan(100, seed=1))


def test_other_arguments_are_refused():
    with pytest.raises(DeclarationError, match="must map covariates"):
        audit_weights("ebal", 2.0, UNIVERSE)
    with pytest.raises(DeclarationError, match="bound 'claimed'"):
        audit_weights(known_odds, -1.0, UNIVERSE)
    with pytest.raises(DeclarationError, match="must be Claims"):
        audit_weights(known_odds, [], UNIVERSE)


def test_further_claims_of_a_function():
    claims = [Claim("mine", Quantity.LARGEST, 1.0), Claim("mine", Quantity.V, 2.0 * N)]
    audit = audit_weights(known_odds, claims, UNIVERSE, search=FEW)
    assert [verdict.claim.quantity for verdict in audit.violations] == [Quantity.LARGEST]


def to_the_corner(records, rng):
    """Every record goes to one end, with either treatment."""
    index = np.repeat(np.arange(records.n_samples), 2)
    X = np.tile([1.0, 0.0], (len(index), 1))
    new = Records.within(records.space, X, np.tile([0, 1], records.n_samples), np.zeros(len(index)))
    return Replacements.by_records(records, index, new)


def test_a_strategy_of_the_auditor():
    records = make_records(N, 2)
    program = programs()["ipw_logistic"](ridge=0.5)
    audit = audit_stability(
        program,
        records,
        records.space,
        strategies=[to_the_corner, "flips"],
        search=SearchPlan(200, seed=2),
    )
    assert audit.searched == ("to_the_corner", "flips")
    assert not audit.violations
    assert {pair.origin for pair in audit.worst} >= {"to_the_corner"}
    for pair in audit.worst:
        if pair.origin == "to_the_corner":
            np.testing.assert_allclose(pair.second.covariates[pair.changed], [1.0, 0.0], atol=1e-9)


def test_neighbors_outside_of_the_universe_are_left_out():
    drawn = make_records(N, 2)
    domain = Domain(1.0, 1.0, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    data = Dataset.from_arrays(drawn.covariates, drawn.a, drawn.y)
    audit = audit_weights(
        known_odds, 2 * N, domain, data, strategies=to_the_corner, search=SearchPlan(200, seed=2)
    )
    for pair in audit.worst:
        assert pair.first.a[pair.changed] == pair.second.a[pair.changed]


def test_strategies_that_are_none():
    records = make_records(N, 2)
    program = programs()["ipw_logistic"](ridge=0.5)

    def of_others(records, rng):
        return to_the_corner(make_records(N, 2), rng)

    for wrong in (of_others, lambda records, rng: None):
        with pytest.raises(DeclarationError, match="must return Replacements"):
            audit_stability(
                program, records, records.space, strategies=wrong, search=SearchPlan(20)
            )
    with pytest.raises(DeclarationError, match="two are called"):
        audit_stability(
            program,
            records,
            records.space,
            strategies=[to_the_corner, to_the_corner],
            search=SearchPlan(20),
        )
    with pytest.raises(DeclarationError, match="without data"):
        audit_stability(program, None, UNIVERSE, strategies=to_the_corner, search=SearchPlan(20))


def test_a_checkpoint_of_an_own_strategy_goes_on(tmp_path):
    records = make_records(N, 2)

    def audit(evaluations):
        plan = SearchPlan(evaluations, seed=2, checkpoint=tmp_path / "state.json")
        return audit_weights(
            known_odds,
            2 * N,
            records.space,
            records,
            strategies=[to_the_corner, "random"],
            search=plan,
        )

    audit(400)
    longer = audit(800)
    (tmp_path / "state.json").unlink()
    assert audit(800).verdict("claimed").movement == longer.verdict("claimed").movement
