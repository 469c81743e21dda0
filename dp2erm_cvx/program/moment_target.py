"""Hard moment targets, why they cannot be met, and how far they would have to be relaxed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import optimize

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import InfeasibleError


@dataclass(frozen=True, eq=False)
class MomentTargets:
    """Weights ``w >= 0`` (n,) with ``totals.T @ w = total_values`` and ``moments.T @ w`` near ``values``.

    ``moments`` (n, m) are in units in which one ``tolerance`` is meant for all of them; ``names`` say which
    covariate and arm each belongs to. The data are private, and so is what is computed from them.
    """

    totals: Array = field(repr=False)
    total_values: Array = field(repr=False)
    moments: Array = field(repr=False)
    values: Array = field(repr=False)
    names: tuple[str, ...]
    tolerance: float


#: A tolerance is called too small only beyond what the linear program may be wrong by.
_SLACK = 1e-7


def refuse_infeasible(targets: MomentTargets) -> None:
    """Raise InfeasibleError where no weights meet the targets within their tolerance.

    The linear program ``minimize s subject to |moments - values| <= s, w >= 0`` gives the smallest tolerance
    that weights exist for; the moments that hold it up are those with a positive multiplier.
    """
    n, m = targets.moments.shape
    upper = np.vstack(
        [
            np.column_stack([targets.moments.T, -np.ones(m)]),
            np.column_stack([-targets.moments.T, -np.ones(m)]),
        ]
    )
    totals = np.column_stack([targets.totals.T, np.zeros(len(targets.total_values))])
    solved = optimize.linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=upper,
        b_ub=np.concatenate([targets.values, -targets.values]),
        A_eq=totals,
        b_eq=targets.total_values,
        bounds=(0, None),
        method="highs",
    )
    if solved.status == 2:
        raise InfeasibleError("an arm without records cannot hold its share of the weight: both need some")
    if solved.status != 0 or solved.fun is None or solved.fun <= targets.tolerance + _SLACK:
        return
    pull = -np.asarray(solved.ineqlin.marginals)
    held = pull[:m] + pull[m:]
    order = np.argsort(-held)
    names = tuple(targets.names[k] for k in order if held[k] > 1e-9 * max(float(np.sum(held)), 1e-300))
    smallest = float(solved.fun)
    shown = _rounded_up(smallest)
    told = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    # exact balance is a program of its own, without a tolerance to raise
    allow = (
        f"Allow {shown} or more"
        if targets.tolerance
        else f"Use a program with a tolerance of {shown} or more"
    )
    raise InfeasibleError(
        f"no weights meet the targets within {targets.tolerance:g}: {told} cannot be balanced better than "
        f"{smallest:.3g}. {allow}, drop those balance functions, or use a program with a ridge",
        covariates=names,
        smallest_tolerance=smallest,
    )


def _rounded_up(number: float) -> str:
    """Three digits that are no less than the number: fewer would be refused again."""
    text = f"{number:.2e}"
    if float(text) <= number:
        digits, exponent = text.split("e")
        text = f"{float(digits) + 0.01:.2f}e{exponent}"
    return f"{float(text):.3g}"
