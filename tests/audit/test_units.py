"""Audits of whole persons, and of several arms: what is planted is found, and what is right is left
alone.
"""

from dataclasses import fields, replace

import numpy as np
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, Treatment, Universe
from dp2erm_cvx.audit import (
    Attack,
    Declared,
    SearchPlan,
    audit_additive,
    noised_sums,
    search_additive,
    search_runs,
)
from dp2erm_cvx.calibration import SumLaw
from dp2erm_cvx.steps.score import ArmScores
from tests.audit.bugs import weaker
from tests.audit.pairs import of_persons

N = 8


def of_arms(number, **declared):
    levels, rates = tuple("abcde"[:number]), [1.0 / number] * number
    book = Codebook(
        treatment=Treatment("arm", levels=levels, contrasts="pairs", rates=rates), **declared
    )
    return Domain(1.0, 6.0, ranges=[(-1, 1)], codebook=book)


def planned(domain, **settings):
    model = PrivateEffect(domain, Budget(1.0), residual_scale=0.5, settings=settings)
    return model.plan(domain.units or N, 1)


def sums(plan):
    """The sums given fits that released nothing."""
    fits = (step for step in plan.steps if step.integers is None)
    return noised_sums(plan, {step.name: np.zeros(step.calibration.n_parameters) for step in fits})


def declared(plan):
    return Declared(
        sum(step.calibration.epsilon for step in plan.steps if step.integers is not None)
    )


def worst(plan, evaluations=60, **how):
    search = SearchPlan(evaluations, seed=0, **how)
    return search_additive(sums(plan), plan.study.universe, declared(plan), search=search)


def test_a_search_over_persons_goes_on_from_its_checkpoint(tmp_path):
    plan, path = planned(of_persons(), propensity=0.5), tmp_path / "state"
    whole = worst(plan, 30)
    worst(plan, 12, checkpoint=path)
    result = worst(plan, 30, checkpoint=path)
    assert result.facts == whole.facts
    assert all(map(np.array_equal, (*result.first, *result.second), (*whole.first, *whole.second)))


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("count", [1, 2])
def test_sums_over_persons_lose_what_is_stated_and_three_times_that_at_a_third_of_the_noise(count):
    plan = planned(of_persons(count), propensity=0.5)
    right = worst(plan)
    assert not right.exceeds
    assert 0.9 < right.audit.reached <= 1.0
    weak = weaker(plan, "score", scale=1 / 3)
    wrong = audit_additive(
        sums(weak), right.first, right.second, declared(weak), seed=right.audit.seed
    )
    assert wrong.exceeds
    assert max(one.loss for one in wrong.losses) > 2.9 * plan.main.calibration.epsilon


def mean_of_persons(dataset, rng, whole=False):
    _, _, y, person = dataset
    share = 1.0 if whole else 1.0 / np.bincount(person, minlength=20)[person]
    return float(np.sum(share * y)) + rng.laplace(scale=4.0)


def mean_of_records(dataset, rng):
    return mean_of_persons(dataset, rng, whole=True)


@pytest.mark.parametrize("mechanism", [mean_of_persons, mean_of_records])
def test_runs_cover_whole_persons(mechanism):
    attack = Attack(800, takes_rng=True, seed=0, events=("values", "tails", "learned"))
    universe, search = Universe(of_persons(number=20), 20, 1), SearchPlan(20)
    result = search_runs(mechanism, universe, Declared(1.0), attack=attack, search=search)
    assert result.exceeds == (mechanism is mean_of_records)


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(
    ("number", "unit"), [(3, None), (5, None), (3, {"column": "id", "number": N})]
)
def test_disjoint_sums_of_any_number_of_arms_lose_what_is_stated(number, unit):
    """A record leaves one arm for another: it moves the sums of two of them, and of all never more.

    A person may have records in several arms.
    """
    plan = planned(of_arms(number, **({"unit": unit, "outcome": "y"} if unit else {})))
    result = worst(plan)
    assert not result.exceeds
    assert (0.9 if unit else 0.95) < result.audit.reached <= 1.0
    if not unit:
        assert plan.main.calibration.law is SumLaw.DISJOINT
        assert result.first[1][0] != result.second[1][0]


class InEveryArm(ArmScores):
    """A record adds to the sums of all arms, at the noise of disjoint ones."""

    def block_sums(self, block, released):
        score = self.score(self.parts(block, released))
        total, squares, number = self.calibration.totals(score, np.ones(len(block.a)))
        return (*[total, squares] * len(self.widenings), number)


def test_sums_that_are_not_disjoint_are_found_out():
    plan = planned(of_arms(3))
    own = {one.name: getattr(plan.main, one.name) for one in fields(ArmScores)}
    wrong = replace(plan, steps=(*plan.steps[:-1], InEveryArm(**own)))
    result = worst(wrong)
    assert result.exceeds
    assert result.audit.reached > 1.3
