"""What is released from blocks is what is released from the same records in memory."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx import (
    Budget,
    Codebook,
    Domain,
    Ledger,
    OpenDomain,
    PrivateEffect,
    PrivateRanges,
    PrivateRule,
    PrivateTwoStageERM,
    Treatment,
)
from dp2erm_cvx.data import blocks, pieces
from dp2erm_cvx.data import records as data_records
from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.errors import DataError, ProgramError, WorkerError
from dp2erm_cvx.program import Moments
from dp2erm_cvx.program.kernels import RandomFourier
from dp2erm_cvx.program.registry import build, first_stages
from tests.data.test_blocked import PERSONS, opened, raw, written
from tests.plugins.literature import bounded_influence, matching, poisson
from tests.rows import default_rows, slow, slow_rows

pa = pytest.importorskip("pyarrow")
dask = pytest.importorskip("dask")
from pyarrow import parquet  # noqa: E402

LENGTH, VIEW = 128, 64


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", LENGTH)
    monkeypatch.setattr(pieces, "KEEP", 20_000)  # no more than two blocks
    for module in (blocks, data_records):
        monkeypatch.setattr(module, "VIEW", VIEW)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("records"), raw(601))


def declared(**changed: Any) -> Domain:
    book = Codebook(Treatment("arm", "yes", "no"), "y", levels={"region": ["N", "S"]}, **changed)
    ranges = book.ranges({"age": (0.0, 100.0), "bmi": (10.0, 50.0)})
    return Domain(2.0, 3.0, outcome_center=1.0, ranges=ranges, codebook=book)


def both(model: Any, path: Path) -> tuple[Any, Any]:
    """The releases in memory and in blocks."""
    frame = parquet.read_table(path).to_pandas()
    model.fit(frame, frame["arm"].to_numpy(), frame["y"].to_numpy())
    return model.release_, model.fit(opened(path)).release_


def dask_arrays(path: Path) -> BlockedDataset:
    """The same records in Dask arrays of other chunks."""
    da = pytest.importorskip("dask.array")
    frame = parquet.read_table(path).to_pandas()
    names = ["age", "bmi", "region", "counts"]
    X, a, y = frame[names].to_numpy(), frame["arm"].to_numpy(), frame["y"].to_numpy()
    given = (
        da.from_array(X, chunks=(53, 3)),
        da.from_array(a, chunks=97),
        da.from_array(y, chunks=600),
    )
    return BlockedDataset.from_dask_arrays(*given, names)


def alike(one: Any, other: Any) -> bool:
    return bool(one.to_json() == other.to_json())


def of_arms(public: Domain, **declared: Any) -> Domain:
    levels = Treatment("arm", levels=("no", "yes", "later"), contrasts="pairs", **declared)
    return replace(public, codebook=replace(public.codebook, treatment=levels))


WEIGHTS = {"sampling_weights": {"column": "counts", "largest": 3.0, "mean": 1.5}}
PLAIN, SURVEY, BUDGET, SEEDED = declared(), declared(**WEIGHTS), Budget(4.0), {"seed": 3}
HALF = replace(PLAIN, outcome_bound=0.5, outcome_center=0.5)
RANGES = OpenDomain(PLAIN.ranges, None, {"counts": None}, codebook=PLAIN.codebook)
SHARES = {"expected": ["main effect"], "settings": {"value_share": 0.2, "center_share": 0.2}}
MULTINOMIAL = {"rows": "common", "propensity": "multinomial"}
MODELS = {
    "overlap": PrivateEffect(PLAIN, BUDGET, estimand="overlap", **SEEDED),
    "trial": PrivateEffect(PLAIN, BUDGET, settings={"propensity": 0.5}, **SEEDED),
    "risks": PrivateEffect(HALF, BUDGET, estimand="risks", **SEEDED),
    "ranges": PrivateRanges(RANGES, BUDGET, **SEEDED),
    "weighted rule": PrivateRule(SURVEY, BUDGET, **SEEDED),
    "rule": PrivateRule(PLAIN, BUDGET, **SHARES, **SEEDED),
    "arms": PrivateEffect(of_arms(PLAIN), BUDGET, settings={"rows": "arms"}, **SEEDED),
    "arms of rates": PrivateEffect(of_arms(PLAIN, rates=(0.4, 0.5, 0.1)), BUDGET, **SEEDED),
    "multinomial": PrivateEffect(of_arms(PLAIN), BUDGET, settings=MULTINOMIAL, **SEEDED),
    **{
        f"{getattr(first, 'name', first)}, {getattr(second, 'name', second)}": PrivateTwoStageERM(
            PLAIN, Budget(epsilon), first, second, **SEEDED
        )
        for first, second, epsilon in (
            (matching().private(), bounded_influence(), 2.0),
            ("uniform", poisson(), 2.0),
            ("ipw_private", "itr", 50.0),
            ("ipw_logistic", "itr_logistic", 50.0),
            ("inverse_probability_tilting", "regression", 50.0),
        )
    },
}


#: Fits that take seconds, of steps that others have as well.
LONG = ("risks", "multinomial", "arms of rates", "ipw_logistic, itr_logistic", "ipw_private, itr")


@pytest.mark.one_row_in(18)
@pytest.mark.parametrize("name", slow_rows(MODELS, *LONG))
def test_blocks_release_what_memory_releases(path, name):
    assert alike(*both(MODELS[name], path))


def of_persons(count: int, public: Any = PLAIN) -> Any:
    unit = {"column": "id", "number": PERSONS, "count": count}
    return replace(
        public, codebook=declared(unit=unit, **(WEIGHTS if public is SURVEY else {})).codebook
    )


SCALED = {"residual_scale": 0.4, **SEEDED}
OF_PERSONS = {
    "ate": PrivateEffect(of_persons(1), Budget(9.0), **SCALED),
    "att": PrivateEffect(of_persons(3), Budget(9.0), estimand="att", **SCALED),
    "overlap": PrivateEffect(of_persons(1), Budget(9.0), estimand="overlap", **SCALED),
    "scale": PrivateEffect(of_persons(1), Budget(9.0), settings={"scale_share": 0.1}, **SEEDED),
    "by": PrivateEffect(of_persons(3, SURVEY), Budget(9.0), by="region", **SEEDED),
    "arms": PrivateEffect(of_arms(of_persons(3)), Budget(9.0), **SCALED),
    "ranges": PrivateRanges(
        of_persons(1, replace(RANGES, ranges={**RANGES.ranges, "age": None})), Budget(9.0), **SEEDED
    ),
    "rule": PrivateRule(of_persons(3), Budget(9.0), **SEEDED),
}


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("asked", default_rows(OF_PERSONS, "ate", "scale", "by", "ranges"))
def test_fits_of_persons_in_blocks_are_those_in_memory(path, asked):
    """Rows of a person come together from all blocks, a part of the persons at a time."""
    with dask.config.set(scheduler="sync"):
        one, other = both(OF_PERSONS[asked], path)
    assert one.n_samples == PERSONS
    assert alike(one, other)


@pytest.mark.parametrize("rows", [0, 1])
def test_persons_without_rows(path, tmp_path, rows):
    few = tmp_path / "few.parquet"
    parquet.write_table(parquet.read_table(path).slice(3, rows), few)
    assert alike(*both(PrivateEffect(of_persons(1), Budget(9.0), **SCALED), few))
    with pytest.raises(DataError, match=rf"{rows} record\(s\): at least 2"):
        PrivateEffect(PLAIN, Budget(9.0)).fit(opened(few))
    records = PrivateEffect(replace(PLAIN, codebook=None), Budget(9.0))
    with pytest.raises(DataError, match="are not those of the domain"):
        records.fit(opened(few).coded(of_persons(1)))
    assert not hasattr(records, "receipt_")  # before the charge


@pytest.mark.parametrize("first", ["mmd_pooled", "mmd"])
@pytest.mark.slow
def test_kernel_weights_of_few_features(path, first):
    program = build(first_stages(), first, kernel=RandomFourier(1.0, 8))
    public = replace(PLAIN, arm_floor=100)
    assert alike(
        *both(PrivateTwoStageERM(public, Budget(50.0), program, "arm_means", seed=3), path)
    )
    public = replace(PLAIN, arm_floor=500)
    with pytest.raises(DataError, match="an arm has fewer than the declared arm_floor"):
        PrivateTwoStageERM(public, Budget(50.0), program, "arm_means").fit(opened(path))


@pytest.mark.parametrize("settings", [{}, {"alpha": 0.3, "balance": Moments(2), "constant": 0.3}])
@pytest.mark.slow
def test_stable_balancing(path, settings):
    program = build(first_stages(), "stable_balancing", **settings)
    public = replace(PLAIN, arm_floor=100)
    assert alike(
        *both(PrivateTwoStageERM(public, Budget(50.0), program, "arm_means", seed=3), path)
    )


@pytest.mark.parametrize("model", [PrivateEffect, slow(PrivateTwoStageERM)])
def test_dask_arrays(path, model):
    asked = model(SURVEY if model is PrivateEffect else PLAIN, BUDGET, **SEEDED)
    assert alike(asked.fit(dask_arrays(path)).release_, both(asked, path)[0])


class Dies:
    """The records of a block, made by a worker that dies at the last block, some times."""

    def __init__(self, folder: Path, times: int = 1) -> None:
        self.folder, self.times = folder, times

    def __call__(self, data: Dataset) -> Dataset:
        dead = len(list(self.folder.glob("dead*")))
        if data.n_samples < LENGTH and dead < self.times:
            (self.folder / f"dead{dead}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return data


@pytest.mark.slow
def test_two_workers_of_a_cluster_release_the_same_and_one_that_dies_is_replaced(
    path, tmp_path, monkeypatch
):
    for module in (blocks, data_records):  # other processes know nothing of shorter ones
        monkeypatch.setattr(module, "VIEW", 2**13)
    distributed = pytest.importorskip("distributed")
    book = Ledger(tmp_path / "ledger.db")
    book.declare("trial", Budget(12.0))
    model = PrivateEffect(PLAIN, Budget(4.0), seed=3)
    known = model.fit(opened(path)).release_
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, timeout="1h"),
    ):
        assert alike(known, both(model, path)[1])
        data = opened(path).coded(declared())
        deadly = replace(data, blocks=data.blocks.then(Dies(tmp_path)))
        charged = PrivateEffect(PLAIN, Budget(4.0), ledger=book, dataset="trial")
        assert charged.fit(deadly).release_.private
        assert len(book.account("trial").receipts) == 1
        assert (tmp_path / "dead0").exists()
        assert alike(known, model.fit(dask_arrays(path)).release_)
        with pytest.raises(WorkerError, match="died again and again"):
            model.fit(replace(data, blocks=data.blocks.then(Dies(tmp_path, 99))))


@pytest.mark.parametrize("first", ["mmd_pooled"])
def test_programs_that_need_all_records_are_refused_before_anything_is_spent(path, tmp_path, first):
    book = Ledger(tmp_path / "ledger.json")
    book.declare("trial", Budget(1.0))
    data = opened(path)
    model = PrivateTwoStageERM(declared(), Budget(1.0), first, ledger=book, dataset="trial")
    with pytest.raises(
        ProgramError, match=rf"{first} needs all records in memory at once, 0\.0288 MB"
    ):
        model.fit(data)
    with pytest.raises(ProgramError, match="clarabel needs all records"):
        PrivateTwoStageERM(declared(), Budget(1.0), "ipw_private", solver="clarabel").fit(data)
    assert book.account("trial").receipts == ()


@pytest.mark.slow
def test_a_first_pass_leaves_the_configuration_of_distributed(path):
    pytest.importorskip("distributed")
    code = f"""
import dask
from dp2erm_cvx import BlockedDataset
data = BlockedDataset.read({str(path)!r}, treatment="arm", outcome="y", covariates=["bmi"])
data.tables.map(repr)
data.tables.map(repr)
assert dask.config.get("distributed.comm.timeouts.connect")
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def largest(result: Any) -> int:
    """Entries of the largest array in a result."""
    if isinstance(result, list | tuple):
        return max(map(largest, result), default=0)
    return int(np.size(result))


def test_passes_of_an_effect_send_no_numbers_of_records_and_bring_sums_back(path, monkeypatch):
    sent, brought = set(), []
    then, called = pieces.DaskBlocks.then, pieces.DaskBlocks.map

    def watched(self, function, *beside):
        sent.update(type(one) for one in beside)
        return then(self, function, *beside)

    def weighed(self, function, *beside):
        results = called(self, function, *beside)
        brought.append(largest(results))
        return results

    monkeypatch.setattr(pieces.DaskBlocks, "then", watched)
    monkeypatch.setattr(pieces.DaskBlocks, "map", weighed)
    PrivateEffect(PLAIN, BUDGET, **SCALED).fit(opened(path))
    assert sent == {blocks.KeptColumn, range}
    assert max(brought) < VIEW


def test_a_cluster_in_threads_tells_of_its_passes_and_names_what_it_does(path, caplog):
    distributed = pytest.importorskip("distributed")
    told, keys = [], set()
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        pieces.passes_told(lambda *words: told.append(words)),
    ):
        assert pieces.cluster_in_force().client is client
        data = opened(path)
        assert sum(data.tables.map(sizes)) == 601
        (worker,) = cluster.workers.values()
        keys = {event[0] for event in worker.state.log if event[1] == "compute-task"}
        with dask.config.set(scheduler="sync"):
            assert pieces.cluster_in_force() is None
            data.tables.map(sizes)
    assert pieces.cluster_in_force() is None
    assert {dask.utils.key_split(key) for key in keys} == {"read", "cut", "sizes"}
    assert told[0] == ("blocks of records, pass 1", 0, 5)
    assert told[-1][0] == "blocks of records, pass 2"
    assert told[-1][1] == told[-1][2]


def sizes(table: Any) -> int:
    return len(table.cells("bmi"))
