"""Many runs of a mechanism on two datasets, in an order and with randomness that no worker changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

import numpy as np

from dp2erm_cvx.audit.blackbox.outcome import Outcome, of_exception, of_output
from dp2erm_cvx.parallel import run_tasks

#: Runs of each dataset that one worker does at a time: fixed, so that no result depends on the workers.
CHUNK = 50


@dataclass(frozen=True)
class Runner:
    """A mechanism and what it is run on.

    ``mechanism(dataset)``, or ``mechanism(dataset, rng)`` where it ``takes_rng``: each run has a
    ``numpy.random.Generator`` of its own. ``statistics`` are numbers that the caller wants looked at.
    """

    mechanism: Callable[..., Any]
    first: Any
    second: Any
    takes_rng: bool
    seed: int
    statistics: Mapping[str, Callable[[Any], float]]

    def run(self, start: int, stop: int) -> list[tuple[Outcome, Outcome]]:
        """Runs ``start`` to ``stop`` on the first and the second dataset, in turns."""
        return [(self._once(0, run), self._once(1, run)) for run in range(start, stop)]

    def _once(self, which: int, run: int) -> Outcome:
        dataset = (self.first, self.second)[which]
        settings = (np.random.default_rng([self.seed, which, run]),) if self.takes_rng else ()
        try:
            output = self.mechanism(dataset, *settings)
        except Exception as raised:
            return of_exception(raised)
        found = of_output(output)
        own = {name: float(statistic(output)) for name, statistic in self.statistics.items()}
        return changed(found, own=own) if own else found


def run_all(runner: Runner, runs: int, workers: int) -> tuple[list[Outcome], list[Outcome]]:
    """``runs`` outcomes of each dataset; more than one worker goes through joblib and its backend."""
    chunks = [(start, min(start + CHUNK, runs)) for start in range(0, runs, CHUNK)]
    parts = run_tasks(runner.run, chunks, workers=workers)
    pairs = [pair for part in parts for pair in part]
    return [one for one, _ in pairs], [other for _, other in pairs]
