"""The whole audit: wrong bounds are reported, right ones are not, and what it says can be
repeated.
"""

import dataclasses
import json
import math

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Claim, Quantity, SearchPlan, audit_stability, replay, surrogates
from dp2erm_cvx.audit.weighing import ProgramWeights
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.privacy import Neighboring
from tests.audit.stability import reference
from tests.audit.stability.reference import ipw, reference_audit, reference_program, wrong_bounds
from tests.rows import slow

IPW = reference_program("ipw_logistic", ridge=0.1, radius=1.0)
UNIT = Domain(1.0, 1.0)
#: Seconds of the second solver that no machine takes, however loaded: nothing depends on the clock.
PATIENCE = 1e5


def test_nothing_is_violated_where_the_bounds_are_right():
    search = SearchPlan(1500, solver_seconds=PATIENCE)
    outcome = reference_audit(ipw(400, 0.1, 1.0, 5.41), search)
    result = outcome.audit
    assert outcome.as_expected
    names = {(v.claim.name, v.claim.quantity) for v in result.verdicts}
    paper = {("paper, printed", quantity) for quantity in (Quantity.L2, Quantity.LARGEST)}
    assert {*paper, ("sharp", Quantity.V), ("universal", Quantity.W2)} <= names
    assert "no proof" in str(result.verdict("sharp"))
    assert "not a proof" in str(result)
    assert result.check.datasets >= 20
    assert result.check.disagreement <= 1.0
    assert 0.0 < result.check.radius < 0.1
    assert result.check.unsolved == 0
    assert result.private
    assert json.loads(json.dumps(result.to_dict()))["proof"] is False


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("setting", wrong_bounds()[1:], ids=lambda setting: setting.name)
def test_planted_wrong_bounds_are_reported(setting):
    evaluations = 3000 if setting.name.endswith("diameter") else 600
    result = reference_audit(setting, SearchPlan(evaluations)).audit
    wrong, right = result.verdicts
    assert wrong.violated
    assert not right.violated
    assert wrong.movement.low > wrong.claim.bound
    assert "violated by this pair" in str(wrong)
    assert result.violations == (wrong,)
    assert result.check.disagreement <= 1.0


def test_the_printed_kernel_bound_is_violated_by_a_flip_and_the_pair_can_be_replayed(tmp_path):
    setting = wrong_bounds()[0]
    result = reference_audit(setting, SearchPlan(300)).audit
    printed = result.verdict("paper, printed", Quantity.L2)
    assert printed.violated
    assert printed.claim.bound == pytest.approx(2 * math.sqrt(2) * 5 * 100 / 1e4, rel=1e-6)
    pair = printed.worst
    assert pair.first.a[pair.changed] != pair.second.a[pair.changed]
    assert not result.verdict("sharp").violated
    assert "false under replace-one" in result.refused["paper, usable"]
    result.save(tmp_path / "pair", printed)
    for solver in ("osqp", "clarabel", "newton"):
        again = replay(tmp_path / "pair", solver=solver)
        assert again.violated
        assert again.agrees
    keep = dataclasses.replace(
        setting.universe.domain, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT
    )
    assert not audit_stability(
        setting.program, None, Universe(keep, 100, 2), search=SearchPlan(200)
    ).violations


def some_data(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (rng.random(n) < 0.4).astype(int), np.zeros(n)


def test_data_are_read_and_it_says_so():
    domain = Domain(2.0, 1.0)
    result = audit_stability(IPW, some_data(), domain, search=SearchPlan(400))
    assert not result.private
    assert "not private" in result._repr_html_()
    assert not result.violations
    assert result.resolved > 150
    assert result.check.datasets >= 5
    assert result.check.disagreement <= 1.0
    wrong = {"bounds": [Claim("too small", Quantity.V, 2.5)], "search": SearchPlan(60)}
    for name in ("extreme", "flips", "each", "ascent", "held-out"):
        actual = audit_stability(IPW, some_data(), domain, strategies=[name], **wrong)
        assert actual.violations, name
        assert actual.verdicts[0].worst.origin == name


def test_the_second_solver_sees_what_verdicts_rest_on_and_a_sample(monkeypatch):
    seen = []
    again = ProgramWeights.again

    def counted(self, records, solver, seconds):
        seen.append(records)
        return again(self, records, solver, seconds)

    monkeypatch.setattr(ProgramWeights, "again", counted)
    records = UNIT.records(*some_data())
    result = audit_stability(
        IPW, records, UNIT, strategies=["random", "each"], search=SearchPlan(3000)
    )
    worst = [verdict.worst for verdict in result.verdicts]
    ends = {id(end) for pair in worst for end in (pair.first, pair.second)}
    drawn = [one for one in seen if id(one) not in ends]
    assert ends <= {id(one) for one in seen}
    assert 1 <= len(drawn) <= 3
    assert result.check.datasets == len(seen)
    assert result.check.disagreement <= 1.0


@pytest.mark.parametrize(
    ("source", "strategies", "evaluations"),
    [(None, None, 500), slow((some_data(30, 2), ("flips", "ascent", "base"), 4000))],
)
def test_an_audit_that_was_stopped_and_resumed_finds_the_same(
    source, strategies, evaluations, tmp_path, monkeypatch
):
    """Its state is written at the end of every wave of attempts for which evaluations suffice."""
    monkeypatch.setattr(surrogates, "CHEAP", surrogates.Effort(30, 1, 30))
    universe, path = Universe(Domain(2.0, 1.0), 30, 2), tmp_path / "state.json"

    def audited(seed=5, **how):
        search = SearchPlan(evaluations=evaluations, seed=seed, **how)
        result = audit_stability(IPW, source, universe, strategies=strategies, search=search)
        return {name: value for name, value in result.to_dict().items() if name != "seconds"}

    def stop_after(share):
        def watch(done, *_):
            if done > share:
                raise KeyboardInterrupt

        return watch

    for share in (0.2, 0.55):
        with pytest.raises(KeyboardInterrupt):
            audited(checkpoint=path, progress=stop_after(share))
    assert path.exists()
    assert audited(checkpoint=path) == audited()
    with pytest.raises(DataError, match="another audit"):
        audited(checkpoint=path, seed=6)
    path.write_text("no state")
    with pytest.raises(DataError, match="not the state"):
        audited(checkpoint=path)


BARE = Universe(dataclasses.replace(UNIT, arm_floor=11), 20, 2)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"universe": UNIT}, "n_samples"),
        ({"universe": BARE}, "arm_floor"),
        ({"data": some_data(20, 3)}, "3 covariates"),
        ({"strategies": ["flips"]}, "search"),
        ({"strategies": []}, "search"),
        ({"bounds": []}, "bounds"),
        ({"bounds": [3.0]}, "bounds"),
        ({"solver": "newton"}, "must reach the declared problem"),
        ({"program": reference_program("ipw_private")}, "noise"),
    ],
)
def test_settings_that_an_audit_cannot_follow_are_refused(change, names):
    call = {
        "program": IPW,
        "data": None,
        "universe": Universe(UNIT, 20, 2),
        "search": SearchPlan(5),
    }
    with pytest.raises(DeclarationError, match=names) as caught:
        audit_stability(**call | change)
    assert "\n" not in str(caught.value)


LIMITS = (
    {},
    {"evaluations": 0},
    {"evaluations": 1.5},
    {"seconds": 0},
    {"seconds": math.inf},
    {"evaluations": 5, "seed": -1},
)


@pytest.mark.parametrize("wrong", LIMITS, ids=str)
def test_wrong_limits_of_a_search_are_refused(wrong):
    with pytest.raises(DeclarationError):
        SearchPlan(**wrong)


#: Neighbors per row: 32 rows in about five minutes.
NEIGHBORS = 80_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [*reference.worst_cases(), *wrong_bounds()], ids=lambda s: s.name
)
def test_the_outcome_is_the_known_one(setting):
    search = SearchPlan(NEIGHBORS, seed=2602, solver_seconds=PATIENCE)
    outcome = reference_audit(setting, search)
    assert outcome.as_expected
    assert outcome.audit.check.disagreement <= 1.0
    assert outcome.audit.check.unsolved == 0
