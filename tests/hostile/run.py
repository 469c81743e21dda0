"""Many seeded cases, counted by kind and outcome; a number repeats one case."""

import contextlib
import multiprocessing
import resource
import sys
import tempfile
import warnings
from collections.abc import Iterable

import numpy as np

from tests.hostile import arrays, outcome, tables
from tests.hostile.outcome import Outcome, judge

KINDS = {"arrays": arrays.case, "tables": tables.case}

#: Bytes of address space of one worker: an input that wants more is a failure, not a slow machine.
MEMORY = 6 * 2**30
#: No small input may cost one more of the processor, nor wait for three times as long.
SECONDS = 10.0
_CHUNK = 50


def one(kind: str, number: int) -> Outcome:
    """Case ``number`` of a kind, the same on every machine."""
    rng = np.random.default_rng([list(KINDS).index(kind), number])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return judge(lambda: KINDS[kind](rng))


#: Kind and number of cases, with what came of them.
Found = list[tuple[str, int, Outcome]]


def failures(result: Found) -> str:
    """The first failures, each with what repeats it."""
    failed = [one for one in result if one[2].failed]
    return "\n\n".join(
        f"python -m tests.hostile.run {kind} {number}: {outcome.name}\n{outcome.detail}"
        for kind, number, outcome in failed[:20]
    )


def count(cases: Iterable[tuple[str, int]], processes: int = 1) -> Found:
    """Run cases here, or in so many fresh processes with a limit on their memory."""
    if processes == 1:
        return [_worker(case) for case in cases]
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _limit) as pool:
        return list(pool.imap_unordered(_worker, cases, chunksize=_CHUNK))


def _limit() -> None:
    outcome.SECONDS = SECONDS
    for category in (RuntimeWarning, UserWarning):
        warnings.filterwarnings("error", category=category, module=r"(dp2erm_cvx|numpy|problems|tests)\b")
    warnings.filterwarnings("ignore", message=r".*\(for the data holder only\)")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _worker(case: tuple[str, int]) -> tuple[str, int, Outcome]:
    return (*case, one(*case))


if __name__ == "__main__":
    print(one(sys.argv[1], int(sys.argv[2])))
