"""The private overlap scheme as a declaration in a file of its own: examined, then audited."""

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.conformance import programs_of_file
from dp2erm_cvx.problems.arm_means import PlugInATE
from dp2erm_cvx.program import WholeSpace
from tests.audit.pairs import heavy, lone
from tests.command_line import run

SOURCE = '''"""Overlap weights and their private variant."""

import cvxpy as cp

from dp2erm_cvx.program import private, scheme


@scheme.separable(ridge="M**2 / 10")
def my_overlap(s):
    """Overlap weights (Li, Morgan & Zaslavsky 2018)."""
    return cp.logistic(-s), -cp.logistic(s)


my_overlap_private = private(my_overlap, ridge="M**2 / 100", radius="2 / M")
del my_overlap
'''


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("own") / "private_overlap.py"
    file.write_text(SOURCE, encoding="utf-8")
    return file


def test_the_file_passes_every_check(path):
    found = run("check-program", path, "--solves", 50)
    assert found.exit_code == 0
    assert "passed  gamma, noise" in found.stdout
    # a movement of weights between neighbors is about those of one coefficient
    assert found.stdout.count("no check failed; 2 notes to read: movement, audit") == 1


@pytest.mark.parametrize("kind", [lone, heavy])
def test_its_release_loses_no_more_than_epsilon(path, kind):
    (scheme,) = programs_of_file(path)
    model = PrivateTwoStageERM(Domain(1.0, 1.0), Budget(1.0), scheme(share=0.4), PlugInATE(WholeSpace()))
    found = audit_density(model, *kind(np.random.default_rng(1), 6, 1), starts=1)
    assert 0.2 < found.loss <= found.epsilon <= 1.0
    assert not found.exceeds
