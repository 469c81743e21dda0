"""Tables in many files, here and on other file systems, are those of one file in memory."""

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx.data import files, pieces
from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.files import PLAIN, CsvLayout
from dp2erm_cvx.data.listing import part_files
from dp2erm_cvx.errors import DataError, DeclarationError, FileError

pa = pytest.importorskip("pyarrow")
pytest.importorskip("dask")
fsspec = pytest.importorskip("fsspec")
from pyarrow import parquet  # noqa: E402

HEAD = "x,arm,y\n"


def lines(begin: int, end: int) -> str:
    return "".join(f"{k / 8},{k % 2},{k}\n" for k in range(begin, end))


def columns(
    path: object, names: str = "x arm y", layout: CsvLayout = PLAIN
) -> dict[str, list[Any]]:
    """All cells that blocks hold of a name, by column."""
    wanted = names.split()
    tables = pieces.file_pieces(str(path), layout).tables(wanted).each()
    return {name: [cell for table in tables for cell in table.cells(name)] for name in wanted}


def wanted(n: int) -> dict[str, list[float]]:
    return {
        "x": [k / 8 for k in range(n)],
        "arm": [k % 2 for k in range(n)],
        "y": [*map(float, range(n))],
    }


@pytest.fixture(autouse=True)
def short_parts(monkeypatch):
    monkeypatch.setattr(files, "PART", 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Parts of CSV, of which some hold no records, and other files beside them."""
    made = tmp_path / "records"
    (made / "more").mkdir(parents=True)
    texts = {
        "a.csv": HEAD + lines(0, 30),
        "b.csv": "",
        "c.csv": HEAD,
        "more/d.csv": HEAD + lines(30, 41),
    }
    for name, text in (texts | {"_SUCCESS": "", ".a.csv.crc": "x", "notes.md": "x"}).items():
        (made / name).write_text(text)
    return made


def test_parts_of_csv_in_a_folder_and_by_a_pattern_follow_each_other(folder):
    for name in (folder, f"{folder}/**/*.csv"):
        assert columns(name) == wanted(41)
    assert columns(f"{folder}/[abc].csv") == wanted(30)
    data = BlockedDataset.read(folder, treatment="arm", outcome="y")
    assert (data.n_samples, data.columns) == (41, ("x",))


def test_files_of_both_kinds_without_an_ending_are_refused(tmp_path):
    parquet.write_table(pa.table({"x": [1.0], "arm": [0], "y": [2.0]}), tmp_path / "part-1")
    (tmp_path / "part-2").write_text(HEAD + lines(0, 3))
    for number in (1, 2):
        assert columns(f"{tmp_path}/part-[{number}]")
    with pytest.raises(DataError, match="holds Parquet files and others"):
        columns(f"{tmp_path}/part-*")


def test_files_that_are_no_table_together_are_refused(folder, tmp_path):
    (folder / "e.csv").write_text("x,arm,z\n1,2,3\n")
    with pytest.raises(DataError, match=r"e\.csv: has other columns than .*a\.csv"):
        columns(folder)
    (folder / "e.csv").unlink()
    parquet.write_table(pa.table({"x": [1.0]}), folder / "e.parquet")
    with pytest.raises(DataError, match="holds Parquet files and others"):
        part_files(f"{folder}/*.[cp]*")
    assert [Path(file.name).name for file in part_files(str(folder))] == ["e.parquet"]
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="holds no Parquet files and no CSV files"):
        columns(tmp_path / "none")
    (tmp_path / "none" / "a.csv").touch()
    (tmp_path / "none" / "b.csv").touch()
    with pytest.raises(DataError, match="all files are empty"):
        columns(tmp_path / "none")
    (tmp_path / "none" / "a.csv.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(DeclarationError, match="unpack it"):
        columns(f"{tmp_path}/none/*.gz")


def test_one_file_without_records_has_none_and_one_without_a_header_is_refused(tmp_path):
    path = tmp_path / "records.csv"
    path.write_text(HEAD)
    assert pieces.file_pieces(path, PLAIN).rows == []
    path.write_text("")
    with pytest.raises(DataError, match="is empty: a header line is needed"):
        pieces.file_pieces(path, PLAIN)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_of_folders_are_columns(tmp_path, ending):
    for place, (year, region) in enumerate(
        (("2020", "N%2FA"), ("2021", "S"), ("2021", "__HIVE_DEFAULT_PARTITION__"))
    ):
        part = tmp_path / f"year={year}" / f"region={region}" / f"part0.{ending}"
        part.parent.mkdir(parents=True)
        if ending == "csv":
            part.write_text(HEAD + lines(3 * place, 3 * place + 3))
        else:
            rows = range(3 * place, 3 * place + 3)
            table = {
                "x": [k / 8 for k in rows],
                "arm": [k % 2 for k in rows],
                "y": [*map(float, rows)],
            }
            parquet.write_table(pa.table(table), part)
    known = columns(tmp_path, "x arm y year region")
    assert known["x"] == wanted(9)["x"]
    assert known["year"] == [2020.0] * 3 + [2021.0] * 6
    assert known["region"] == ["N/A"] * 3 + ["S"] * 3 + [""] * 3
    written = pieces.file_pieces(tmp_path, PLAIN).tables(["year", "x"], ["year"]).each()
    assert next(iter(written[0].cells("year"))) == "2020"
    one = columns(f"{tmp_path}/year=2021/*/*.{ending}", "x region")
    assert one["region"] == ["S"] * 3 + [""] * 3
    with pytest.raises(DataError, match="year"):  # the root of the pattern states it
        columns(f"{tmp_path}/year=2021/*/*.{ending}", "year")
    twice = tmp_path / "year=2020" / "x=1" / f"part.{ending}"
    twice.parent.mkdir()
    twice.write_bytes(part.read_bytes())
    with pytest.raises(DataError, match="its folder and the file have a column 'x'"):
        columns(tmp_path)


def test_files_on_another_file_system(tmp_path):
    memory = fsspec.filesystem("memory")
    base = f"memory://{tmp_path.name}"
    with fsspec.open(f"{base}/year=1/a.csv", "wb") as file:
        file.write((HEAD + lines(0, 30)).encode())
    with fsspec.open(f"{base}/year=2/b.csv", "wb") as file:
        file.write((HEAD + lines(30, 41)).encode())
    with fsspec.open(f"{base}/records.parquet", "wb") as file:
        parquet.write_table(pa.table(wanted(41)), file, row_group_size=7)
    try:
        assert columns(f"{base}/records.parquet") == wanted(41)
        assert columns(f"{base}/year=1/a.csv") == wanted(30)
        for name in (f"{base}/*/*.csv", f"{base}/**/*.csv"):
            assert columns(name) == wanted(41)
            assert columns(name, "year")["year"] == [1.0] * 30 + [2.0] * 11
        assert columns(f"{base}/year=2") == {name: cells[30:] for name, cells in wanted(41).items()}
        data = pieces.file_pieces(f"{base}/*/*.csv", PLAIN).tables(["x"])
        with fsspec.open(f"{base}/year=2/b.csv", "wb") as file:
            file.write((HEAD + lines(31, 42)).encode())
        with pytest.raises(FileError, match="is not the file that it was"):
            data.each()
        with pytest.raises(FileError, match="cannot be read"):
            columns(f"{base}/none.csv")
    finally:
        memory.rm(f"/{tmp_path.name}", recursive=True)
    with pytest.raises(DeclarationError, match="nowhere:// is no file system that fsspec knows"):
        columns("nowhere://records.csv")


class Parts(http.server.SimpleHTTPRequestHandler):
    """A server that sends the bytes of a file that are asked for."""

    def log_message(self, *words: object) -> None:
        pass

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.exists():
            self.send_error(404)
            return
        raw = path.read_bytes()
        first, last = 0, len(raw) - 1
        asked = self.headers.get("Range", "")
        if asked:
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(int(end or last), last)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(raw)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        self.wfile.write(raw[first : last + 1])


@contextlib.contextmanager
def served(folder: Path, handler: Any) -> Iterator[str]:
    made = functools.partial(handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_files_that_a_server_sends(tmp_path):
    pytest.importorskip("aiohttp")
    (tmp_path / "records.csv").write_text(HEAD + lines(0, 30))
    parquet.write_table(pa.table(wanted(30)), tmp_path / "records.parquet", row_group_size=7)
    with served(tmp_path, Parts) as base:
        for name in ("records.csv", "records.parquet"):
            assert columns(f"{base}/{name}") == wanted(30)
        with pytest.raises(FileError, match="cannot be read"):
            columns(f"{base}/none.csv")


def test_cells_in_memory_are_those_of_blocks_on_another_file_system(tmp_path):
    base = f"memory://{tmp_path.name}.csv"
    with fsspec.open(base, "wb") as file:
        file.write((HEAD + lines(0, 30)).encode())
    table = files.read_table(base)
    known = columns(base)
    for name in "x", "arm", "y":
        assert np.array_equal(table.cells(name), known[name])
    fsspec.filesystem("memory").rm(f"/{tmp_path.name}.csv")
