"""Solvers, certificates and the one function that joins them."""

from dp2erm_cvx.solve.certificate import Certificate, certify
from dp2erm_cvx.solve.given_weights import GivenWeights, certify_weights
from dp2erm_cvx.solve.solvers import (
    OSQP,
    SCS,
    SOLVERS,
    Clarabel,
    FirstCertified,
    Newton,
    OwnSolver,
    ProjectedGradient,
    Solver,
    Status,
    by_design,
    private_solver,
    solver_by_name,
)
from dp2erm_cvx.solve.solving import (
    GAP_TOLERANCE,
    TOLERANCE,
    Solution,
    minimizer,
    solve,
    uncertified_start,
)

__all__ = [
    "GAP_TOLERANCE",
    "OSQP",
    "SCS",
    "SOLVERS",
    "TOLERANCE",
    "Certificate",
    "Clarabel",
    "FirstCertified",
    "GivenWeights",
    "Newton",
    "OwnSolver",
    "ProjectedGradient",
    "Solution",
    "Solver",
    "Status",
    "by_design",
    "certify",
    "certify_weights",
    "minimizer",
    "private_solver",
    "solve",
    "solver_by_name",
    "uncertified_start",
]
