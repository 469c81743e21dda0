"""The rows of the golden tables, and the part of them that the default tests compute.

The committed tables hold about a tenth of all rows that the cases give. Each row has facts: of a
bound its program in its family, setting, universe, size, theorem, relations and assumptions; of a
plan both stages, universe, size, what is declared, theorems, reason and refusal; of weights and
parameters their program; of a release its goal, universe, estimand, noise, stages, calibration,
arithmetic, interval, groups, and every field that it states. First come rows that together have
every fact, each time the row with the most facts that no earlier one has; then others up to a
tenth. Among equals the hash of the key decides, so that a row which comes or goes leaves most of
the others as they were.
"""

import hashlib
from collections.abc import Hashable, Iterable, Mapping

Key = tuple[str, ...]


def chosen(facts: Mapping[Key, Iterable[Hashable]], share: int = 10) -> set[Key]:
    """Keys of rows that have all facts, and of others up to one row of ``share``."""
    of_rows = {key: set(found) for key, found in facts.items()}
    in_order = sorted(of_rows, key=_digest)
    seen: set[Hashable] = set()
    taken: dict[Key, None] = {}
    while True:
        best = max(in_order, key=lambda key: len(of_rows[key] - seen))
        if of_rows[best] <= seen:
            break
        seen |= of_rows[best]
        taken[best] = None
    for key in in_order:
        if len(taken) * share >= len(in_order):
            break
        taken[key] = None
    return set(taken)


def is_sampled(key: Key, every: int) -> bool:
    """Whether the row of a key is in the sample of one row of ``every``."""
    return int.from_bytes(_digest(key)[:8], "big") % every == 0


def _digest(key: Key) -> bytes:
    return hashlib.sha256("\n".join(key).encode()).digest()
