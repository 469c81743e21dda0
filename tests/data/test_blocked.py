"""Records in blocks are those of the same table in memory, wherever the blocks are read."""

import dataclasses
import math
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx.data import blocks, pieces
from dp2erm_cvx.data import records as data_records
from dp2erm_cvx.data.blocked import BlockedDataset, RecordBlocks, _aligned
from dp2erm_cvx.data.cells import Treatment
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DataError, DeclarationError, ProgramError

pa = pytest.importorskip("pyarrow")
dask = pytest.importorskip("dask")
from pyarrow import parquet  # noqa: E402

#: Rows of a block in these tests, and of a row group, which no block begins with.
LENGTH, GROUP, PERSONS = 64, 37, 200


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", LENGTH)


def raw(n: int = 500) -> dict[str, object]:
    """Rows of a person far apart; cells of all kinds, of which some are missing."""
    rng = np.random.default_rng(5)
    age, bmi, treated = rng.normal(50, 15, n), rng.normal(25, 5, n), rng.random(n)
    arm = treated < 1 / (1 + np.exp((50 - age) / 20))
    y = 0.02 * age + 0.5 * arm + rng.normal(0, 0.5, n)
    age[rng.random(n) < 0.1] = np.nan
    arms = [None if k % 47 == 0 else ("no", "yes")[int(one)] for k, one in enumerate(arm)]
    region = [("N", "S", "W", None)[k] for k in rng.integers(0, 4, n)]
    count = pa.array([None if k % 11 == 0 else int(k) for k in rng.integers(0, 40, n)])
    person = [None if k % 41 == 0 else f" p{k}" for k in rng.integers(0, PERSONS, n)]
    columns = {"age": age, "bmi": bmi, "arm": arms, "region": region, "count": count, "y": y}
    return {**columns, "counts": rng.uniform(0, 3, n), "id": person}


def written(folder: Path, table: dict[str, object]) -> Path:
    path = folder / "records.parquet"
    parquet.write_table(pa.table(table), path, row_group_size=GROUP)
    return path


def book() -> Domain:
    codes = Codebook(
        Treatment("arm", "yes", "no"),
        "y",
        levels={"region": ["N", "S", "other"]},
        missing={"age": 50.0},
    )
    ranges = codes.ranges({"age": (0.0, 100.0), "count": (0.0, 40.0)})
    return Domain(2.0, 3.0, ranges=ranges, codebook=codes, intercept=1.0)


def moved(rows: Records, beside: np.ndarray) -> tuple[Records, np.ndarray]:
    return rows, beside


def opened(path: object) -> BlockedDataset:
    return BlockedDataset.read(path, treatment="arm", outcome="y")  # type: ignore[arg-type]


def as_in_memory(data: BlockedDataset, path: Path) -> bool:
    """Whether the blocks hold the records of the file, bit for bit, and their rows beside them."""
    domain, table = book(), parquet.read_table(path).to_pandas()
    whole = Dataset.coded(domain, table, table["arm"].to_numpy(), table["y"].to_numpy())
    made = data.coded(domain).records(Made(domain), domain)
    row = np.arange(data.n_samples)
    result = made.blocks.map(moved, row)
    assert np.array_equal(np.concatenate([beside for _, beside in result]), row)
    columns = [np.concatenate([getattr(rows, name) for rows, _ in result]) for name in "Xay"]
    return same(Records(*columns, domain.space), domain.records(whole.X, whole.a, whole.y))  # type: ignore[arg-type]


class Made:
    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def __call__(self, data: Dataset) -> Records:
        return self.domain.records(data.X, data.a, data.y, data.sampling)


def same(one: Records, other: Records) -> bool:
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in "Xay")


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("keep", [0, 10_000, 10**9])
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_cells_of_all_kinds_become_the_same_records(tmp_path, monkeypatch, keep, scheduler):
    monkeypatch.setattr(pieces, "KEEP", keep)
    path = written(tmp_path, raw())
    with dask.config.set(scheduler=scheduler, num_workers=3):
        assert as_in_memory(opened(path), path)


@pytest.mark.parametrize(("keep", "left"), [(10**9, 8), (10_000, 2), (0, 0)])
def test_blocks_in_memory_are_not_read_again(tmp_path, monkeypatch, keep, left):
    monkeypatch.setattr(pieces, "KEEP", keep)
    path, held, persisted = written(tmp_path, raw()), [], pieces.DaskBlocks.persisted

    def watched(self, nbytes):
        held.append(persisted(self, nbytes))
        return held[0]

    monkeypatch.setattr(pieces.DaskBlocks, "persisted", watched)
    made = opened(path).coded(book()).records(Made(book()), book())
    path.unlink()
    assert len(dask.compute(*held[0].tasks[:left])) == left
    if left == 8:
        assert sum(block.n_samples for block in made.blocks.each()) == 500
    else:
        with pytest.raises(DataError, match="cannot be read"):
            made.blocks.each()


def test_arrays_that_come_back_misaligned_are_aligned_first():
    """Products of misaligned arrays round differently."""
    rng = np.random.default_rng(2)
    rows = book().records(rng.normal(size=(64, 6)), rng.integers(0, 2, 64), rng.normal(size=64))
    arrays = []
    for one in (rows.X, rows.a, rows.y):
        room = np.empty(one.nbytes + 17, np.uint8)
        begin = (8 - room.ctypes.data) % 16 + 1  # no multiple of anything
        back = room[begin : begin + one.nbytes].view(one.dtype).reshape(one.shape)
        back[:] = one
        assert not back.flags.aligned
        arrays.append(back)
    result = _aligned(book().space, arrays)
    assert same(result, rows)
    assert all(getattr(result, name).ctypes.data % 16 == 0 for name in "Xay")


@pytest.mark.parametrize("n", [2, 63, 64, 65, 129])
def test_tables_of_any_length_are_read_as_in_memory(tmp_path, n):
    path = written(tmp_path, raw(n))
    assert opened(path).n_samples == n
    assert as_in_memory(opened(path), path)


def test_files_in_a_folder_follow_each_other(tmp_path):
    table, folder = pa.table(raw()), tmp_path / "many"
    folder.mkdir()
    for number, (begin, end) in enumerate([(0, 10), (10, 10), (10, 301), (301, 500)]):
        part = table.slice(begin, end - begin)
        parquet.write_table(part, folder / f"part{number}.parquet", row_group_size=23)
    for name in (folder, f"{folder}/part*.parquet"):
        assert as_in_memory(opened(name), written(tmp_path, raw()))
    parquet.write_table(table.select(["age", "y"]), folder / "part9.parquet")
    for name, message in ((folder, "other columns"), (tmp_path / "*.pq", "no Parquet files")):
        with pytest.raises(DataError, match=message):
            opened(name)


def test_a_dask_frame_in_partitions_of_any_length(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    path = written(tmp_path, raw())
    frame = parquet.read_table(path).to_pandas()
    data = BlockedDataset.from_dask(
        dd.from_pandas(frame, npartitions=7), treatment="arm", outcome="y"
    )
    assert as_in_memory(data, path)
    with pytest.raises(DeclarationError, match="not a Dask data frame"):
        BlockedDataset.from_dask(frame, treatment="arm", outcome="y")


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("counted", [True, False])
def test_dask_arrays_in_chunks_of_any_lengths(tmp_path, width, counted):
    da, path, names = (
        pytest.importorskip("dask.array"),
        written(tmp_path, raw()),
        ["age", "region", "count"],
    )
    frame = parquet.read_table(path).to_pandas()
    chunks = {"arm": (41,), "y": (500,)}
    X = da.from_array(frame[names].to_numpy(), chunks=((100, 150, 7, 243), width))
    a, y = (da.from_array(frame[name].to_numpy(), chunks=own) for name, own in chunks.items())
    if not counted:
        kept = da.ones(500, chunks=(41,)) > 0
        X, a, y = X[kept], a[kept], y[kept]
    data = BlockedDataset.from_dask_arrays(X, a, y, names)
    assert data.columns == tuple(names)
    assert np.isnan(X.shape[0]) != counted  # what was given is as it was
    assert as_in_memory(data, path)


def test_dask_arrays_without_names_are_those_of_memory():
    da = pytest.importorskip("dask.array")
    rng = np.random.default_rng(1)
    X, a, y = (
        rng.normal(size=(200, 3)).astype(np.float32),
        rng.random(200) < 0.5,
        rng.normal(size=200),
    )
    given = (da.from_array(one, chunks=33) for one in (X, a, y))
    data, known = BlockedDataset.from_dask_arrays(*given), Dataset.from_arrays(X, a, y)
    assert (data.columns, data.treatment, data.outcome) == (known.columns, "a", "y")
    for name in "Xay":
        result = np.concatenate([getattr(block, name) for block in data.blocks.each()])
        assert result.tobytes() == getattr(known, name).tobytes()
    masked = da.from_array(np.ma.masked_equal(np.arange(200.0), 150.0), chunks=33)
    data = BlockedDataset.from_dask_arrays(da.from_array(X), da.from_array(a), masked)
    with pytest.raises(DataError, match="row 151, column 'y': the value is missing"):
        data.blocks.each()


def test_what_are_no_dask_arrays_of_records_are_refused():
    da = pytest.importorskip("dask.array")
    X, v = da.ones((10, 2)), da.ones(10)
    for message, wrong in (
        ("X: 'ndarray' is not a Dask array", (np.ones((10, 2)), v, v)),
        (r"X has 1 dimension\(s\): must be \(n, p\)", (v, v, v)),
        (r"y has 2 dimension\(s\): must be \(n,\)", (X, v, X)),
        ("a has 9 values for the 10 rows of X", (X, v[1:], v)),
        ("1 names for the 2 columns of X", (X, v, v, ["age"])),
        ("two columns named 'age'", (X, v, v, ["age", "age"])),
    ):
        with pytest.raises((DataError, DeclarationError), match=message):
            BlockedDataset.from_dask_arrays(*wrong)
    narrow = X.map_blocks(lambda chunk: chunk[:, :1], dtype=float, chunks=X.chunks)
    tall = v.map_blocks(lambda chunk: chunk[:, None], dtype=float, chunks=v.chunks)
    for wrong in ((narrow, v, v), (X, v, tall)):
        with pytest.raises(DataError, match="a chunk has another shape than its array says"):
            BlockedDataset.from_dask_arrays(*wrong).blocks.each()


def test_covariates_that_are_none_are_refused_as_in_memory(tmp_path):
    path = written(tmp_path, raw())
    for covariates in ([], (), "age"):
        messages = set()
        for read in (Dataset.read, BlockedDataset.read):
            with pytest.raises(DataError) as refused:
                read(path, treatment="arm", outcome="y", covariates=covariates)
            messages.add(str(refused.value))
        assert len(messages) == 1


def test_what_needs_all_records_is_refused_with_their_size(tmp_path):
    records = opened(written(tmp_path, raw())).coded(book()).records(Made(book()), book())
    for name in "Xay":
        with pytest.raises(ProgramError, match=r"0\.036 MB of 500 records"):
            getattr(records, name)


def test_what_no_codebook_reads_is_refused_by_its_place(tmp_path):
    x = np.where(np.arange(200) == 150, np.nan, 1.0)
    path = written(tmp_path, {"x": x, "arm": [0, 1] * 100, "y": [1.0] * 200})
    with pytest.raises(DataError, match="row 151, column 'x'"):
        opened(path).blocks.map(str)


def on_blocks(path: Path) -> tuple[Records, RecordBlocks]:
    """The same records in memory and in blocks."""
    domain, table = book(), parquet.read_table(path).to_pandas()
    whole = Dataset.coded(domain, table, table["arm"].to_numpy(), table["y"].to_numpy())
    return Made(domain)(whole), opened(path).coded(domain).records(Made(domain), domain)


def beside(block: Records, own: np.ndarray, numbers: range) -> tuple[np.ndarray, np.ndarray]:
    return own, np.array(numbers)


def test_columns_stay_beside_the_blocks_and_are_those_of_memory(tmp_path):
    memory, blocked = on_blocks(written(tmp_path, raw()))
    array = np.arange(500.0)
    column = blocked.column(attrgetter("y"))
    placed = blocked.blocks.placed(array)
    for kept, known in ((column, memory.column(attrgetter("y"))), (placed, array)):
        assert isinstance(kept, blocks.KeptColumn)
        assert blocked.blocks.placed(kept) is kept
        rows = blocked.blocks.then(beside, kept, range(500)).each()
        assert len(rows) == 8
        own, numbers = (np.concatenate(one) for one in zip(*rows, strict=True))
        assert own.tobytes() == np.asarray(known).tobytes()
        assert numbers.tolist() == list(range(500))
    assert memory.blocks.placed(array) is array
    with pytest.raises(TypeError, match="stays beside the blocks"):
        memory.blocks.map(moved, column)


@pytest.mark.parametrize("n", [2, 64, 65, 500])
def test_totals_are_those_of_memory_to_the_bit(tmp_path, monkeypatch, n):
    monkeypatch.setattr(blocks, "GROUP", 2)
    monkeypatch.setattr(pieces, "GROUP", 2)
    for module in (blocks, data_records):
        monkeypatch.setattr(module, "VIEW", 16)
    memory, blocked = on_blocks(written(tmp_path, raw(n)))
    totals = [one.blocks.total(total_of, added) for one in (memory, blocked)]
    assert totals[0] == totals[1]
    assert memory.blocks.total(total_of, blocks.tree_sum) == blocks.tree_sum(
        memory.blocks.map(total_of)
    )


def total_of(block: Records) -> np.float64:
    return np.sum(block.X)


def added(parts: Sequence[float]) -> float:
    """In an order of its own, so that other groups give another sum."""
    return math.fsum(part * (1.0 + 1e-3 * place) for place, part in enumerate(parts))


def test_records_that_a_step_makes_are_kept_within_the_same_room(tmp_path, monkeypatch):
    path, times = written(tmp_path, raw()), []

    def doubled(block: Records) -> Records:
        times.append(len(block.a))
        return dataclasses.replace(block, X=0.5 * block.X)

    for keep, left in ((10**9, 0), (0, 500)):
        monkeypatch.setattr(pieces, "KEEP", keep)
        memory, blocked = on_blocks(path)
        made = blocked.mapped(doubled, attrgetter("y"), blocked.space, blocked.n_columns)
        again = made.mapped(doubled, attrgetter("y"), blocked.space, blocked.n_columns)
        known = 0.25 * memory.X
        times.clear()
        assert np.concatenate(again.blocks.map(attrgetter("X"))).tobytes() == known.tobytes()
        assert sum(times) == 2 * left
