"""All passes of a run read one and the same table: another one is refused in one line."""

import os
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.files import read_parquet
from dp2erm_cvx.data.opening import FileMark
from dp2erm_cvx.data.tables import cells_digest
from dp2erm_cvx.errors import DataError, FileError

pa = pytest.importorskip("pyarrow")
dask = pytest.importorskip("dask")
from pyarrow import parquet  # noqa: E402


def written(path: Path, shift: float = 0.0, n: int = 400) -> Path:
    """Records in row groups, as Parquet or CSV, whose numbers all take as many characters."""
    numbers = 10.0 + shift + np.arange(n) / 1024
    table = pa.table({"x": numbers, "a": np.arange(n) % 2, "y": numbers})
    if path.suffix == ".parquet":
        parquet.write_table(
            table, path, row_group_size=150, compression="none", use_dictionary=False
        )
        return path
    rows = [f"{x:.10f},{a},{y:.10f}" for x, a, y in zip(*table.to_pydict().values(), strict=True)]
    path.write_text("\n".join(["x,a,y", *rows]))
    return path


def opened(path: Path) -> BlockedDataset:
    return BlockedDataset.read(path, treatment="a", outcome="y")


def total(data: BlockedDataset) -> float:
    return sum(float(block.y.sum()) for block in data.blocks.each())


def with_time(path: Path, time: int) -> None:
    os.utime(path, ns=(time, time))


def replaced(path: Path, time: int) -> None:
    """By another file of as many rows and bytes."""
    written(path, shift=1.0)


def replaced_in_its_time(path: Path, time: int) -> None:
    """By one that seems to be as old."""
    written(path, shift=1.0)
    with_time(path, time)


def truncated(path: Path, time: int) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def longer(path: Path, time: int) -> None:
    written(path, n=500)


def gone(path: Path, time: int) -> None:
    path.unlink()


@pytest.mark.parametrize("name", ["records.parquet", "records.csv"])
@pytest.mark.parametrize("change", [replaced, replaced_in_its_time, truncated, longer, gone])
def test_a_file_that_changes_between_passes_is_refused(tmp_path, name, change):
    path = written(tmp_path / name)
    time = 10**18
    with_time(path, time)
    data = opened(path)
    assert total(data) == total(data)
    size = path.stat().st_size
    change(path, time)
    if change is replaced:
        assert path.stat().st_size == size
    with pytest.raises(
        FileError, match="cannot be read" if change is gone else "is not the file that it was"
    ):
        total(data)


def test_columns_in_memory_come_from_one_file(tmp_path):
    path = written(tmp_path / "records.parquet")
    table = read_parquet(path)
    table.cells("x")
    written(path, shift=1.0)
    with pytest.raises(FileError, match="is not the file that it was"):
        table.cells("y")


def test_a_mark_knows_a_footer_of_any_length(tmp_path):
    """Statistics of many columns make a footer longer than what is compared of other files."""
    path = tmp_path / "wide.parquet"
    marks = []
    for shift in (0.0, 1.0):
        parquet.write_table(pa.table({f"x{k}": [shift * (k == 7)] for k in range(400)}), path)
        with_time(path, 10**18)
        marks.append(FileMark.of(str(path)))
    assert marks[0].size == marks[1].size
    assert marks[0].digest != marks[1].digest


def test_rows_of_a_dask_frame_in_another_order_are_refused():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    n = 300
    passes: list[int] = []

    def shuffled(part):
        passes.append(len(passes))
        return part.sample(frac=1.0, random_state=len(passes))

    frame = pd.DataFrame({"x": np.arange(n) / n, "a": np.arange(n) % 2, "y": np.ones(n)})
    steady = dd.from_pandas(frame, npartitions=3)
    with dask.config.set(scheduler="sync"):
        data = BlockedDataset.from_dask(steady, treatment="a", outcome="y")
        assert total(data) == total(data) == n
        data = BlockedDataset.from_dask(
            steady.map_partitions(shuffled, meta=frame), treatment="a", outcome="y"
        )
        with pytest.raises(DataError, match=r"other cells in column '\w' than in an earlier pass"):
            total(data)


def test_chunks_of_dask_arrays_that_are_drawn_anew_are_refused():
    da = pytest.importorskip("dask.array")
    rng = np.random.default_rng(1)
    X = da.ones((90, 2), chunks=40).map_blocks(
        lambda chunk: chunk * rng.random(chunk.shape), dtype=float
    )
    with dask.config.set(scheduler="sync"):
        data = BlockedDataset.from_dask_arrays(X, da.arange(90) % 2, da.ones(90))
        with pytest.raises(DataError, match="column 'x1' than in an earlier pass"):
            total(data)


def test_digests_tell_cells_and_their_order_apart():
    cells = [1, 1.0, "1", None, np.nan, b"1"]
    columns = [np.array([one, "x"], dtype=object) for one in cells]
    columns += [columns[0][::-1], np.array([1.0, 2.0]), np.array([1, 2]), np.array([2.0, 1.0])]
    assert len({cells_digest(one) for one in columns}) == len(columns)
    for one in columns:
        assert cells_digest(one) == cells_digest(one.copy())
