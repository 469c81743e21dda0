"""Which solvers certify every dataset of the universe, so that whether they do tells nothing about it."""

from __future__ import annotations

from dp2erm_cvx.solve.solvers import FirstCertified, Newton, ProjectedGradient, Solver, solver_by_name

#: Tried in this order, with the same noise, after a solver that is named.
CERTIFYING = (Newton(), ProjectedGradient())


def private_solver(solver: str | Solver) -> Solver:
    """Settings for a private fit: a name stands for that solver followed by ``CERTIFYING``.

    A settings object is taken as it is. Raises SolverError naming the known solvers.
    """
    settings = solver_by_name(solver)
    if isinstance(solver, Solver) or isinstance(settings, FirstCertified):
        return settings
    return FirstCertified((settings, *(other for other in CERTIFYING if other != settings)))


def by_design(settings: Solver) -> bool:
    """Whether the settings go at least as far as ``CERTIFYING``: a public property of the declaration."""
    if not isinstance(settings, FirstCertified):
        return False
    return all(
        any(
            isinstance(one, type(asked)) and one.max_iterations >= asked.max_iterations
            for one in settings.solvers
        )
        for asked in CERTIFYING
    )
