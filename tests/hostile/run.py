"""Many seeded cases of arrays; ``python -m tests.hostile.run NUMBER`` repeats one."""

import multiprocessing
import resource
import sys
import warnings
from collections.abc import Iterable

import numpy as np

from tests.hostile import arrays, outcome
from tests.hostile.outcome import Outcome, judge

#: Bytes of address space of one worker: an input that wants more is a failure, not a slow machine.
MEMORY = 6 * 2**30


def one(number: int) -> tuple[int, Outcome]:
    """Case ``number``, the same on every machine."""
    rng = np.random.default_rng([0, number])
    return number, judge(lambda: arrays.case(rng))


def count(numbers: Iterable[int], processes: int) -> list[tuple[int, Outcome]]:
    """Run cases in so many fresh processes with a limit on their memory."""
    with multiprocessing.get_context("spawn").Pool(processes, _limit) as pool:
        return list(pool.imap_unordered(one, numbers, chunksize=50))


def failures(result: list[tuple[int, Outcome]]) -> str:
    """The failures, each with what repeats it."""
    return "\n\n".join(
        f"python -m tests.hostile.run {number}: {outcome.name}\n{outcome.detail}"
        for number, outcome in result
        if outcome.failed
    )


def _limit() -> None:
    outcome.SECONDS = 10.0
    for category in (RuntimeWarning, UserWarning):
        warnings.filterwarnings("error", category=category, module=r"(dp2erm_cvx|numpy|problems|tests)\b")
    warnings.filterwarnings("ignore", message=r".*\(for the data holder only\)")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    print(one(int(sys.argv[1])))
