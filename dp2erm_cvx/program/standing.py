"""What is known in advance of a release: private, conditional, or neither."""

from __future__ import annotations

import math

from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.separable import PrivateFirstStage
from dp2erm_cvx.program.stage import Program

#: What is said of a bound on V that no weights exceed.
COVERS_ALL = "V = 2n: the noise covers every possible weight"
#: What is said of a release whose exact minimizer no public number establishes.
CONDITIONAL = "conditional: do not publish"


def public_error(program: Program, universe: MappedUniverse) -> float | None:
    """Public bound on the numerical error of a resolved program over all datasets of a universe.

    Parameters
    ----------
    program
        A resolved program: of weights, whose error is ``||w_hat - w||_1 / n``, or of a parameter,
        whose error is a distance at a ridge of M^2.
    universe
        The public sizes that it is used at.

    Returns
    -------
    The bound; None where nothing is known before the data are, and ``inf`` where floating point is
    not sure.

    Raises CalibrationError where no theorem covers the program.
    """
    if isinstance(program, SecondStage | PrivateFirstStage):
        return program.certified_radius(universe, universe.space.covariate_bound**2, 0.0)
    assert isinstance(program, FirstStage)
    return program.certified_error(universe)


def standing_of_program(program: Program, universe: MappedUniverse) -> str:
    """What a release by a resolved program will be, as far as the program decides.

    The text has no full stop.

    Parameters
    ----------
    program
        The resolved program.
    universe
        The public sizes that it is used at.

    Raises CalibrationError where no theorem covers the program.
    """
    if isinstance(program, WeightsProgram) and program.unread(universe) is not None:
        return "refused: nothing certifies its weights"
    error = public_error(program, universe)
    if isinstance(program, FirstStage) and not isinstance(program, PrivateFirstStage):
        unsure = error is not None and math.isinf(error)
        if unsure or program.stability(universe).V >= 2.0 * universe.n_samples:
            return f"private. {COVERS_ALL}"
    if error is None or math.isinf(error):
        return f"{CONDITIONAL} (no public number bounds its numerical error)"
    return "private"
