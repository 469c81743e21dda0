"""What to do about the overlap of the arms, in a sentence."""

from __future__ import annotations

#: Where the advice changes: a share of records and an area that are ours, not a theorem's.
_MANY, _APART = 0.1, 0.9


def advice(nobody: bool, apart: bool, outside: float, auc: float) -> str:
    """One sentence, from whether an arm is empty, the supports are apart, the share outside and the area."""
    if nobody:
        return "one arm is empty: nothing can be compared."
    if apart:
        return (
            "the arms do not overlap: no weights on these records make them comparable; study a population "
            "in which both treatments occur."
        )
    if outside > _MANY:
        return (
            f"overlap is poor ({outside:.1%} of the records are outside the limits): the estimate will rest "
            "on few records; take a trim or a larger ridge, or narrow the population by a public rule rather "
            "than by these propensities."
        )
    if auc > _APART:
        return (
            f"few records are outside the limits, but the arms are nearly told apart (area {auc:.2f}): a "
            "smaller ridge of the propensity may show poor overlap."
        )
    if outside > 0:
        return f"{outside:.1%} of the records are outside the limits: expect large weights, or trim them."
    return "every record is within the limits: overlap is no reason against any first stage."
