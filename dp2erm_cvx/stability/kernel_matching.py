"""Kernel mean matching: weights on a source sample that bring its mean feature to that of a target."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.stability.declared import declared_floor, sample_size, treatment_may_flip
from dp2erm_cvx.stability.kernel import KernelConstants, UnitKernel, centered_norm
from dp2erm_cvx.stability.one_sided import outward
from dp2erm_cvx.stability.tilt import BOTH_RELATIONS, EXACT


def kernel_mean_matching(
    n: int,
    constants: KernelConstants,
    *,
    public_target: bool,
    arm_floor: int | None = None,
    relation: Neighboring = Neighboring.REPLACE_ONE,
) -> StabilityBound:
    """Bound for weights ``w = n p``, p the minimizer of ``||m - mu||^2 + ridge ||p||^2`` over a simplex.

    m is the mean feature under the law p on the m source records, mu that of the target.

    Parameters
    ----------
    n
        Number of records, at least 2.
    constants
        Of the kernel and the program, with ``alpha = 1``.
    public_target
        Whether mu is a public constant and every record a source. Otherwise the treated records are the
        target, the others the source, and a replaced record may be either.
    arm_floor
        Without a public target: public, from 2 to n/2; the source and the target have as many records each
        in every dataset of the universe.
    relation
        Under REPLACE_ONE a record may change between source and target.

    As in Theorem 6 with one block, ``lambda (p_i - 1/m) <= <phibar - phi_i, m - mu> <= 2 C``
    bounds every weight by ``tau = 1/m + 2 C/lambda``; with the changed record's share taken out, the laws on
    the common sources differ by d, where ``X^2 - g X + lambda (d^2 - q d) <= 0`` for some ``X <= k d``, ``g =
    sqrt(2 C) (tau + the change of mu)``. A replaced target record moves mu by ``sqrt(2 C)/n_T`` at most.
    Raises CalibrationError without a floor where one is needed, DeclarationError for an invalid number.
    """
    n = sample_size(n, at_least=2 if public_target else 4)
    unit = UnitKernel(n, constants)
    assumptions = [constants.assumption]
    fewest, most, change = n, n, 0.0
    flips = treatment_may_flip(relation)
    if public_target:
        assumptions.append("the target sample is public")
    else:
        fewest = declared_floor(n, arm_floor, at_least=2)
        most, change = n - fewest, 1.0 / fewest
        assumptions.append(f"source and target have at least {fewest} records each in every dataset")
    excess = (4.0 if unit.signed else 2.0) / unit.ridge
    tau = min(1.0, 1.0 / fewest + excess)
    spread = float(centered_norm(excess, np.array([float(most)]))[0])
    pulls = [(tau + change, tau)] if flips else [(tau, tau), (change, 0.0)]
    largest = 0.0
    for pull, share in pulls:
        g, q = np.array([unit.record_change * pull]), np.array([share * spread])
        d = float(unit.law_movement(g, q, unit.displacement(most))[0])
        largest = max(largest, math.sqrt(most) * d + 2.0 * share)
    return StabilityBound(
        V=min(2.0 * n, outward(n * largest)),
        theorem="Theorem 6 with one block (kernel mean matching)",
        assumptions=(*assumptions, EXACT),
        relations=BOTH_RELATIONS if flips else frozenset({Neighboring.REPLACE_ONE_KEEP_TREATMENT}),
        w_max=min(float(n), outward(n * tau)),
    )
