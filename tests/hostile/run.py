"""Many seeded cases, counted by kind and outcome; a number repeats one case."""

import contextlib
import multiprocessing
import resource
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

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


@dataclass
class Count:
    """How often each outcome came up, by kind, and a reproducer of the first few that need a look."""

    cases: Counter[tuple[str, str]] = field(default_factory=Counter)
    shown: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, kind: str, number: int, outcome: Outcome) -> None:
        key = kind, outcome.name
        self.cases[key] += 1
        if outcome.detail and self.cases[key] <= 5:
            repeat = f"python -m tests.hostile.run {kind} {number}"
            self.shown.setdefault(key, []).append(f"{repeat}\n{outcome.detail}")

    def failures(self) -> str:
        return "\n\n".join(
            f"{kind}: {name} ({self.cases[kind, name]} times)\n" + "\n".join(told)
            for (kind, name), told in sorted(self.shown.items())
            if name.startswith("FAILURE")
        )

    def names(self) -> Counter[str]:
        """How often each outcome came up in all kinds together."""
        total: Counter[str] = Counter()
        for (_, name), number in self.cases.items():
            total[name] += number
        return total


def count(cases: Iterable[tuple[str, int]], processes: int = 1) -> Count:
    """Run cases here, or in so many fresh processes with a limit on their memory."""
    found = Count()
    listed = list(cases)
    if processes == 1:
        for kind, number in listed:
            found.add(kind, number, one(kind, number))
        return found
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _limit) as pool:
        for kind, number, outcome in pool.imap_unordered(_worker, listed, chunksize=_CHUNK):
            found.add(kind, number, outcome)
    return found


def _limit() -> None:
    outcome.SECONDS = SECONDS
    for category in (RuntimeWarning, UserWarning):
        warnings.filterwarnings("error", category=category, module=r"(dp2erm_cvx|numpy|problems|tests)\b")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _worker(case: tuple[str, int]) -> tuple[str, int, Outcome]:
    return (*case, one(*case))


if __name__ == "__main__":
    print(one(sys.argv[1], int(sys.argv[2])))
