"""What a release by a program of one's own is covered by."""

from __future__ import annotations

import cvxpy as cp
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, stability
from dp2erm_cvx.conformance import CheckStatus
from dp2erm_cvx.conformance.solutions import certified_in_advance
from dp2erm_cvx.conformance.statement import kind
from dp2erm_cvx.conformance.subject import check_domain
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import L2Ball, UserRegularizer
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.registry import programs
from dp2erm_cvx.universe import Universe
from tests.conformance.own_file import BEFORE, changed, outcomes_of, program_of


def test_a_program_that_changes_another_needs_a_name_of_its_own():
    class Claims(programs()["overlap"]):
        def stability(self, universe, family=None):
            return stability.uniform_weights(universe.n_samples)

    with pytest.raises(DeclarationError, match="name of its own"):
        PrivateTwoStageERM(Domain(1.0, 1.0), Budget(1.0), Claims(), "itr").plan(100, 2)


def test_a_program_of_no_kind_cannot_state_its_own_stability(tmp_path):
    direct = program_of(tmp_path / "mine.py", changed("direct"))

    class Claims(direct):
        def stability(self, universe, family=None):
            return stability.uniform_weights(universe.n_samples)

    with pytest.raises(CalibrationError, match="declare the kind"):
        PrivateTwoStageERM(Domain(1.0, 1.0), Budget(1.0), Claims(), "itr").plan(100, 2)


def test_a_program_without_a_kind_is_covered_by_the_universal_corollary(tmp_path):
    cls = program_of(tmp_path / "mine.py", changed("direct"))
    assert issubclass(cls, FirstStage)
    assert cls().stability(Universe(check_domain(50), 50, 2)).V == 100
    assert {found.status for found in outcomes_of(kind, cls)} == {CheckStatus.NOTED}


def test_a_release_is_conditional_where_the_error_of_the_weights_has_no_public_bound(tmp_path):
    """A certificate that is found on one dataset says nothing about the next."""
    data = simulate("linear", 100, rng=0).dataset
    unknown = (BEFORE, "    def n_rows(self, universe):\n        return None\n\n" + BEFORE)
    for pairs, private in (((), True), ((unknown,), False)):
        cls = program_of(tmp_path / "mine.py", changed("exponential", *pairs))
        model = PrivateTwoStageERM(Domain(1.0, 2.0), Budget(epsilon=2.0), cls(), "arm_means")
        release = model.fit(data.X, data.a, data.y).release_
        assert release.private is private
        assert any("is not known to" in one for one in release.guarantee.assumptions) is not private


def test_weights_without_a_theorem_need_no_certificate_and_carry_the_noise_of_all_weights(tmp_path):
    """V = 2n covers whatever the solver returns; a second stage judged by its gap is not covered by it."""
    data = simulate("linear", 60, rng=0).dataset
    cls = program_of(tmp_path / "mine.py", changed("direct"))
    for found in outcomes_of(certified_in_advance, cls):
        assert (found.status, "covers all weights" in found.detail) == (CheckStatus.PASSED, True)
    domain, own = Domain(1.0, 2.0), UserRegularizer(lambda theta: cp.norm(theta, 1))
    for second, private in (("arm_means", True), (itr(L2Ball(1.0), own), False)):
        model = PrivateTwoStageERM(domain, Budget(epsilon=2.0), cls(), second)
        release = model.fit(data.X, data.a, data.y).release_
        assert model.private_workings_.weights.certificate.basis == "multiplier residual"
        assert release.mechanism.stability == 2 * 60
        assert release.private is private
