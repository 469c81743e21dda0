"""Who does the work changes nothing, nor in which blocks; workers end with their parent, however it
ends.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Attack, Declared, SearchPlan, audit_runs, audit_stability
from dp2erm_cvx.data.blocks import VIEW, tree_sum, views
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.program.registry import build, first_stages


def halved(number: int) -> float:
    if number == 7:
        raise ArithmeticError("seven")
    return number / 2


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.one_row_in(2)
def test_results_come_in_the_order_of_the_tasks_and_errors_come_through(workers):
    assert list(run_tasks(halved, [(k,) for k in range(7)], workers=workers)) == [
        k / 2 for k in range(7)
    ]
    with pytest.raises(ArithmeticError, match="seven"):
        list(run_tasks(halved, [(k,) for k in range(9)], workers=workers))
    # one worker does a task when it is asked for
    assert next(run_tasks(halved, [(6,), (7,)], workers=1)) == 3.0


def test_wrong_numbers_of_workers_are_refused():
    for workers in (0, -2, 1.5, 1e300, float("nan"), "all", True, None):
        with pytest.raises(DeclarationError, match="workers"):
            run_tasks(halved, [], workers=workers)


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(60, 3)), (rng.random(60) < 0.4).astype(int), np.zeros(60)


def facts(workers: int) -> dict:
    program = build(first_stages(), "ipw_logistic", ridge=0.1, radius=1.0)
    result = audit_stability(
        program, data(), Domain(2.0, 1.0), search=SearchPlan(110, seed=4, workers=workers)
    )
    return {name: value for name, value in result.to_dict().items() if name != "seconds"}


def noisy_mean(values: np.ndarray, rng: np.random.Generator) -> float:
    return float(np.mean(values) + rng.laplace(scale=2.0 / len(values)))


def privacy_facts(workers: int) -> str:
    attack = Attack(runs=100, takes_rng=True, seed=1, workers=workers)
    return str(audit_runs(noisy_mean, np.zeros(10), np.eye(10)[0], Declared(1.0), attack=attack))


def all_facts(workers: int) -> tuple[dict, str]:
    return facts(workers), privacy_facts(workers)


@pytest.fixture(scope="module")
def alone() -> tuple[dict, str]:
    return all_facts(1)


def test_two_processes_find_what_one_finds(alone):
    assert all_facts(2) == alone


@pytest.mark.slow
def test_a_cluster_finds_what_one_process_finds(alone):
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    # on a busy machine a worker takes its time to start: nothing here is to be given up for that
    patient = {f"distributed.comm.timeouts.{name}": "1h" for name in ("connect", "tcp")}
    with (
        dask.config.set(patient),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, timeout="1h"),
        parallel_config(backend="dask", wait_for_workers_timeout=3600),
    ):
        assert all_facts(-1) == alone


#: Prints the workers, then a line from the middle of what it does, and never ends by itself.
START = """
import os, time
from dp2erm_cvx.parallel import run_tasks

print(*run_tasks(os.getpid, [()] * 2, workers=2), flush=True)
print(flush=True)
"""
DOING = {
    "nothing": "time.sleep(1e6)",
    "long tasks": 'list(run_tasks(exec, [("while True: pass",)] * 2, workers=2))',
}


@pytest.mark.parametrize("doing", DOING)
def test_workers_end_with_a_process_that_is_killed(doing: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", START + DOING[doing]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(words, cwd=tmp_path, **pipes) as parent:
        workers = [int(word) for word in parent.stdout.readline().split()]
        try:
            assert workers
            assert parent.stdout.readline()
            parent.kill()
            # all of them write to this pipe: it ends with the last
            parent.communicate(timeout=3600)  # what hangs, and not what is slow
        except subprocess.TimeoutExpired:
            for worker in set(workers):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGTERM)
            pytest.fail(f"{workers} outlived their parent")


@pytest.mark.parametrize("n", [1, VIEW - 1, VIEW, VIEW + 1, 3 * VIEW + 5])
def test_a_pass_sees_every_row_once_beside_its_own_slices(n: int) -> None:
    blocks = views(n, np.arange(n).__getitem__)
    seen = blocks.then(np.add, -np.arange(n)).map(lambda zero, own: (zero, own), np.arange(n))
    assert blocks.n_samples == n
    assert [len(own) for _, own in seen] == [min(VIEW, n - k) for k in range(0, n, VIEW)]
    assert np.array_equal(np.concatenate([own for _, own in seen]), np.arange(n))
    assert not np.any(np.concatenate([zero for zero, _ in seen]))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_a_tree_adds_every_part_at_most_the_logarithm_times(count: int) -> None:
    class Depth(float):
        def __add__(self, other: float) -> "Depth":
            return Depth(max(float(self), float(other)) + 1.0)

    deepest = tree_sum([Depth(0) for _ in range(count)])  # type: ignore[list-item]
    assert float(deepest) <= np.ceil(np.log2(count))
    assert tree_sum([np.full(2, k) for k in range(count)]).tolist() == [count * (count - 1) / 2] * 2
