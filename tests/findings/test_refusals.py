"""What the paper's family refuses: one case per row of the table on its page."""

import math

import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import BoundFamily, Neighboring
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.mmd import MMD, PooledMMD
from dp2erm_cvx.stability import paper_ipw_logistic, usable
from dp2erm_cvx.universe import Universe

DOMAIN = Domain(1.0, 1.0)
FLOOR = Domain(1.0, 1.0, arm_floor=20)
PRINTED = {"scaling": "paper", "arm_mass": "proportional", "ridge": 1.0, "radius": 1.0}


@pytest.mark.parametrize(
    ("program", "domain", "reason"),
    [
        (MMD(cap=5.0), FLOOR, "false under replace-one"),
        (EntropyBalancing(**PRINTED), DOMAIN, "declare a public floor"),
        (EntropyBalancing(ridge=1.0), FLOOR, "scaling='paper' and arm_mass='proportional'"),
        (EntropyBalancing(**PRINTED | {"arm_mass": "equal"}), FLOOR, "arm_mass='proportional'"),
        (ipw_logistic(ridge=1.0, trim=5.0), DOMAIN, "untrimmed"),
        (ipw_logistic(ridge=0.0, radius=1.0), DOMAIN, "declare a positive ridge"),
        (ipw_private(), DOMAIN, "no stability bound"),
        (PooledMMD(), DOMAIN, "no stability bound"),
    ],
)
def test_programs(program, domain, reason):
    with pytest.raises(CalibrationError, match=reason):
        program.resolve(domain).stability(Universe(domain, 100, 2), BoundFamily.PAPER)


def test_and_what_it_grants():
    keep = Domain(1.0, 1.0, arm_floor=20, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    for program, domain in (
        (MMD(cap=5.0), keep),
        (EntropyBalancing(**PRINTED), FLOOR),
        (ipw_logistic(ridge=1.0, radius=1.0), DOMAIN),
    ):
        bound = program.resolve(domain).stability(Universe(domain, 100, 2), BoundFamily.PAPER)
        assert 2.0 < bound.V <= 4 * 100 * (1 + 1e-9)
        assert "2602.12604" in bound.theorem


def test_an_eigenvalue_that_no_dataset_reaches():
    with pytest.raises(DeclarationError, match="no dataset reaches it"):
        usable(100, paper_ipw_logistic(100, 1.0, 1.0, math.inf, eigenvalue_floor=1.5))
