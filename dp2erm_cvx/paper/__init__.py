"""The paper as printed: its own statements about programs of the library, by their names."""

from dp2erm_cvx.paper.printed import PRINTED, printed_statement
from dp2erm_cvx.paper.scaled_by_arm_sizes import entropy_balancing_paper_scaling

__all__ = ["PRINTED", "entropy_balancing_paper_scaling", "printed_statement"]
