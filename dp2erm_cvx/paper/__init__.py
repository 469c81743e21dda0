"""The paper as printed: its measures of movement, its bounds and its noise.

A :class:`PrintedBound` states W1 and W2, and V <= W1. The functions named ``paper_`` and the two
corollaries map public numbers to such a bound; none of them sees data. ``PRINTED`` says which
statement is about which program of the library.
"""

from dp2erm_cvx.paper.bound import BoundFamily, PrintedBound
from dp2erm_cvx.paper.calibration import calibrate_paper
from dp2erm_cvx.paper.printed import (
    PRINTED,
    bound_of_family,
    in_paper,
    printed_bound,
    usable_bound,
)
from dp2erm_cvx.paper.scaled_by_arm_sizes import entropy_balancing_paper_scaling
from dp2erm_cvx.paper.statements import (
    fixed_weights,
    paper_entropy_balancing,
    paper_ipw_logistic,
    paper_kernel_balancing,
    paper_known_coefficient,
    paper_randomized_trial,
    universal_corollary,
    usable,
)

__all__ = [
    "PRINTED",
    "BoundFamily",
    "PrintedBound",
    "bound_of_family",
    "calibrate_paper",
    "entropy_balancing_paper_scaling",
    "fixed_weights",
    "in_paper",
    "paper_entropy_balancing",
    "paper_ipw_logistic",
    "paper_kernel_balancing",
    "paper_known_coefficient",
    "paper_randomized_trial",
    "printed_bound",
    "universal_corollary",
    "usable",
    "usable_bound",
]
