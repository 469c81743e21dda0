"""The whole audit: wrong bounds are reported, right ones are not, and what it says can be repeated."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Claim, Quantity, SearchPlan, audit_stability, replay, surrogates
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.privacy import Neighboring
from tests.audit.stability import reference
from tests.audit.stability.reference import ipw, reference_program, wrong_bounds
from tests.helpers import logistic_propensity, planted_diameters

IPW = reference_program("ipw_logistic", ridge=0.1, radius=1.0)
UNIT = Domain(1.0, 1.0)


def audited(case, solves, bounds=None):
    return audit_stability(case.program, None, case.universe, bounds=bounds, search=SearchPlan(solves))


def sharp(case):
    return case.program.stability(case.universe).V


def test_nothing_is_violated_where_the_bounds_are_right():
    case = ipw(400, 0.1, 1.0, 5.41)
    result = audited(case, 3000)
    assert not result.violations
    assert result.verdict("sharp").movement.low > 0.95 * case.known
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


def a_third_of_the_diameter():
    case = ipw(400, 0.003, 1.0, 16.1)
    with planted_diameters(1 / 3):
        wrong = Claim("a third of the diameter", Quantity.V, logistic_propensity(400, 1.0, 0.003, 1.0).V)
    return dataclasses.replace(case, bounds=(wrong, Claim("sharp", Quantity.V, sharp(case))))


@pytest.mark.parametrize("case", [*wrong_bounds()[1:], a_third_of_the_diameter()], ids=lambda case: case.name)
def test_planted_wrong_bounds_are_reported(case):
    result = audited(case, 3000 if case.name.startswith("IPW") else 600, case.bounds)
    wrong, right = result.verdicts
    assert wrong.violated
    assert not right.violated
    assert wrong.movement.low > wrong.claim.bound
    assert "violated by this pair" in str(wrong)
    assert result.violations == (wrong,)
    assert result.check.disagreement <= 1.0


def test_the_printed_kernel_bound_is_violated_by_a_flip_and_the_pair_can_be_replayed(tmp_path):
    program = reference_program("mmd", ridge=100.0, cap=4.0)
    domain = Domain(1.0, 1.0, arm_floor=25)
    result = audit_stability(program, None, Universe(domain, 100, 2), search=SearchPlan(300))
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
    keep = dataclasses.replace(domain, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    kept = audit_stability(program, None, Universe(keep, 100, 2), search=SearchPlan(200))
    assert not kept.violations


def test_files_that_hold_no_pair_of_neighbors_are_refused(tmp_path):
    case = ipw(20, 0.1, 1.0, 0)
    result = audited(case, 500, [Claim("too small", Quantity.V, 1.0)])
    arrays, facts = result.save(tmp_path / "pair")
    assert replay(facts).violated
    with np.load(arrays) as held:
        content = dict(held)
    for name, value in (
        ("X_first", content["X_first"] * 3),
        ("a_second", 1 - content["a_second"]),
        ("X_first", content["X_first"][1:]),
    ):
        np.savez(arrays, **{**content, name: value})
        with pytest.raises(DataError):
            replay(facts)
    np.savez(arrays, **content)
    facts.write_text(facts.read_text().replace("ipw_logistic", "uniform"))
    with pytest.raises(DeclarationError):
        replay(facts)
    facts.write_text("{}")
    with pytest.raises(DataError):
        replay(facts)


def some_data(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (rng.random(n) < 0.4).astype(int), np.zeros(n)


def test_data_are_read_and_it_says_so():
    result = audit_stability(IPW, some_data(), Domain(2.0, 1.0), search=SearchPlan(700))
    assert not result.private
    assert "not private" in result._repr_html_()
    assert not result.violations
    assert result.resolved > 300
    assert result.check.datasets >= 20
    assert result.check.disagreement <= 1.0
    wrong = [Claim("too small", Quantity.V, 2.5)]
    for name in ("extreme", "flips", "each", "ascent", "held-out"):
        actual = audit_stability(
            IPW, some_data(), Domain(2.0, 1.0), bounds=wrong, strategies=[name], search=SearchPlan(60)
        )
        assert actual.violations, name
        assert actual.verdicts[0].worst.origin == name


def facts(result):
    return {k: v for k, v in result.to_dict().items() if k != "seconds"}


@pytest.mark.parametrize("source", [None, some_data(30, 2)])
def test_a_stop_changes_nothing(source, tmp_path, monkeypatch):
    monkeypatch.setattr(surrogates, "CHEAP", (30, 1, 30))
    call = {"universe": Universe(Domain(2.0, 1.0), 30, 2)}
    if source is not None:
        call["strategies"] = ("flips", "ascent", "base")

    def audited_with(**how):
        return audit_stability(
            IPW, source, **call, search=SearchPlan(**{"evaluations": 700, "seed": 5, **how})
        )

    whole, path = audited_with(), tmp_path / "state.json"

    def stop_after(share):
        def watch(done, *_):
            if done > share:
                raise KeyboardInterrupt

        return watch

    for share in (0.2, 0.55):
        with pytest.raises(KeyboardInterrupt):
            audited_with(checkpoint=path, progress=stop_after(share))
    assert facts(audited_with(checkpoint=path)) == facts(whole)
    with pytest.raises(DataError, match="another audit"):
        audited_with(checkpoint=path, seed=6)
    path.write_text("no state")
    with pytest.raises(DataError, match="not the state"):
        audited_with(checkpoint=path)


@pytest.mark.parametrize(
    ("change", "error", "names"),
    [
        ({"universe": UNIT}, DeclarationError, "n_samples"),
        (
            {"universe": Universe(dataclasses.replace(UNIT, arm_floor=11), 20, 2)},
            DeclarationError,
            "arm_floor",
        ),
        ({"data": some_data(20, 3)}, DeclarationError, "3 covariates"),
        ({"strategies": ["flips"]}, DeclarationError, "search"),
        ({"strategies": []}, DeclarationError, "search"),
        ({"bounds": []}, DeclarationError, "bounds"),
        ({"bounds": [3.0]}, DeclarationError, "bounds"),
        ({"solver": "newton"}, DeclarationError, "must reach the declared problem"),
        ({"program": reference_program("ipw_private")}, DeclarationError, "noise"),
    ],
)
def test_refusals(change, error, names):
    call = {"program": IPW, "data": None, "universe": Universe(UNIT, 20, 2)}
    with pytest.raises(error, match=names) as caught:
        audit_stability(**{**call, **change}, search=SearchPlan(5))
    assert "\n" not in str(caught.value)


def test_limits_that_are_none():
    numbers = *({"evaluations": one} for one in (0, 1.5)), *({"seconds": one} for one in (0, math.inf))
    for wrong in ({}, *numbers, {"evaluations": 5, "seed": -1}):
        with pytest.raises(DeclarationError):
            SearchPlan(**wrong)


#: Neighbors per row: 32 rows in about five minutes.
NEIGHBORS = 80_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [*reference.worst_cases(), *reference.wrong_bounds()], ids=lambda s: s.name
)
def test_the_outcome_is_the_known_one(setting):
    outcome = reference.reference_audit(setting, SearchPlan(NEIGHBORS, seed=2602))
    assert outcome.as_expected
    assert outcome.audit.check.disagreement <= 1.0
    assert outcome.audit.check.unsolved == 0


def test_a_few_are_met_quickly_and_what_meets_too_little_is_not_as_expected():
    for setting in (reference.ipw(400, 1, math.inf, 2.98), reference.wrong_bounds()[1]):
        outcome = reference.reference_audit(setting, SearchPlan(1200))
        assert outcome.as_expected
        assert outcome.met <= outcome.bound
    assert not reference.reference_audit(reference.ipw(400, 1, math.inf, 3.4), SearchPlan(300)).as_expected
