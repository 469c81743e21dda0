"""The guarantee of a release for readers who know no differential privacy."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.release.record import BaseRelease, Guarantee, Standing

#: What stands for the promise where there is none.
_NONE = {
    Standing.NOT_PRIVATE: (
        "NONE. The noise came from a seed: anybody can draw it again and subtract it. Seeded releases are "
        "for tests; do not publish this one."
    ),
    Standing.UNPROVEN: (
        "NONE that is proven. The noise was calibrated by a rule that no theorem here certifies. Do not "
        "publish this as differentially private."
    ),
}


def promised(release: BaseRelease) -> Iterator[str]:
    """What one record can change, and what a reader can learn of it. Numbers are rounded up."""
    guarantee = release.guarantee
    if (instead := _NONE.get(guarantee.standing)) is not None:
        yield instead
        return
    if guarantee.standing is Standing.CONDITIONAL:
        yield (
            "CONDITIONAL: what follows holds for the exact solution of the declared problem. That this "
            "release is it, up to a proven distance, was not established."
        )
    kept = guarantee.relation is Neighboring.REPLACE_ONE_KEEP_TREATMENT
    yield (
        f"Replace any one of the {release.n_samples:,} records by any other"
        f"{' with the same treatment' if kept else ''}: the probability of whatever could have been released "
        f"changes by a factor of at most {largest_factor(guarantee)} ({told(guarantee)})."
    )
    yield (
        "Somebody who knows all other records, and that the remaining one is one of two, guesses which with "
        f"probability at most {largest_guess(guarantee)} after reading this; before, with one half."
    )
    if kept:
        yield "The treatment of a record is NOT protected; its covariates and its outcome are."
    if floor := getattr(release, "domain", {}).get("arm_floor"):
        yield f"It is promised for data with at least {floor:g} records in each arm, as was declared."
    yield (
        "Records are counted: a person with several of them is protected less. What holds for the "
        "population, and so for anybody in it, is not hidden. The number of records is public, and every "
        "other release from the same data weakens the promise."
    )


def told(guarantee: Guarantee) -> str:
    """Both numbers of it."""
    delta = f", delta = {guarantee.delta:.12g}" if guarantee.delta else ""
    return f"epsilon = {guarantee.epsilon:.12g}{delta}"


def largest_factor(guarantee: Guarantee) -> str:
    """``e^epsilon``, and delta on top, rounded up."""
    digits = guarantee.epsilon / math.log(10.0)
    factor = f"10^{math.ceil(digits)}" if digits > 6.0 else _up(math.exp(guarantee.epsilon))
    return f"{factor}, plus {guarantee.delta:g}" if guarantee.delta else factor


def largest_guess(guarantee: Guarantee) -> str:
    """The best probability to tell two neighbors apart, ``(e^epsilon + delta) / (e^epsilon + 1)``.

    No test of two neighbors has a higher sum of power and specificity than ``1 + (e^epsilon - 1 + 2 delta) /
    (e^epsilon + 1)``, as both pairs of errors obey ``P(S) <= e^epsilon Q(S) + delta``.
    """
    missed = (1.0 - guarantee.delta) / (1.0 + math.exp(min(guarantee.epsilon, 700.0)))
    # to two digits of what is missing to 1, rounded down
    unit = 10.0 ** (math.floor(math.log10(missed)) - 1) if missed > 0.0 else 1.0
    least = math.floor(missed / unit) * unit
    return "1" if least < 1e-6 else f"{1.0 - least:.7f}".rstrip("0")


def _up(number: float) -> str:
    """To three digits, never below: a promise is not rounded in its favor."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    found = math.ceil(number / unit) * unit
    return f"{found:,.0f}" if found >= 1000.0 else f"{found:.3g}"
