"""The engine: one table whatever was stopped or who worked, and designs that are read as they stand."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.studies.engine import Design, Experiment, StudyCell, cells_of, load_design, run, run_one
from dp2erm_cvx.studies.engine import store as engine_store
from dp2erm_cvx.studies.engine.store import code_digest, digest_of


class Counts(Design):
    cells: int
    scale: float = 1.0


class Draws(Experiment[Counts]):
    """Random numbers of a cell."""

    name = "draws"
    summary = "draws"
    design = Counts

    def keys(self, design):
        return [{"part": "a", "number": k} for k in range(design.cells)]

    def parts(self, design):
        return [("offset", "2.5"), ("offset", "7")]

    def needs(self, design, cell):
        return [("offset", "2.5")]

    def share(self, design, part):
        return float(part[1])

    def rows(self, design, cell, shared):
        if cell.key["number"] == 3 and design.scale < 0:
            raise KeyboardInterrupt
        drawn = cell.rng("noise").normal(size=2) * design.scale + shared["offset/2.5"]
        return [{"k": k, "value": float(value), "status": "done"} for k, value in enumerate(drawn)]

    def summary_table(self, design, table):
        return ["k"], [[str(k)] for k in table["k"]]


class Interrupted(Draws):
    def rows(self, design, cell, shared):
        if cell.key["number"] == 4:
            raise KeyboardInterrupt
        return super().rows(design, cell, shared)


DESIGN = Counts(seed=3, cells=6)


def test_workers_and_stops_change_nothing(tmp_path):
    whole = run(Draws(), DESIGN, tmp_path / "whole")
    assert whole.equals(run(Draws(), DESIGN, tmp_path / "two", workers=2))
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(), DESIGN, tmp_path / "stopped")
    finished = list((tmp_path / "stopped" / "cells").glob("*.parquet"))
    assert len(finished) == 4
    seen = []
    again = run(
        Draws(), DESIGN, tmp_path / "stopped", progress=lambda what, *counts: seen.append((what, *counts))
    )
    assert seen == [("cells", 4, 6), ("cells", 5, 6), ("cells", 6, 6)]
    assert again.equals(whole)
    first, second = (tmp_path / name / "results.parquet" for name in ("whole", "stopped"))
    assert first.read_bytes() == second.read_bytes()


def test_a_half_written_cell_is_run_again(tmp_path):
    whole = run(Draws(), DESIGN, tmp_path)
    some = next((tmp_path / "cells").glob("*.parquet"))
    some.rename(some.with_suffix(".part"))
    assert run(Draws(), DESIGN, tmp_path).equals(whole)


@pytest.mark.parametrize("kept", [0, 100])
def test_a_damaged_cell_is_run_again(tmp_path, kept):
    whole = run(Draws(), DESIGN, tmp_path)
    some = next((tmp_path / "cells").glob("*.parquet"))
    some.write_bytes(some.read_bytes()[:kept])
    seen = []
    again = run(Draws(), DESIGN, tmp_path, progress=lambda what, done, total: seen.append(done))
    assert seen == [5, 6]
    assert again.equals(whole)


def test_a_killed_process_leaves_what_goes_on_to_the_same_table(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from tests.studies.test_engine import DESIGN, Draws, run\n"
        "run(Draws(), DESIGN, sys.argv[1], "
        "progress=lambda what, done, total: done == 3 and os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    root = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "killed")], cwd=root, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "killed" / "cells").glob("*.parquet"))) == 3
    assert not (tmp_path / "killed" / "results.parquet").exists()
    run(Draws(), DESIGN, tmp_path / "killed", workers=2)
    run(Draws(), DESIGN, tmp_path / "whole")
    first, second = (tmp_path / name / "results.parquet" for name in ("whole", "killed"))
    assert first.read_bytes() == second.read_bytes()


def test_a_cell_runs_alone_and_has_generators_of_its_own(tmp_path):
    whole = run(Draws(), DESIGN, tmp_path)
    rows = run_one(Draws(), DESIGN, "part=a,number=2")
    assert [row["value"] for row in rows] == whole[whole["number"] == 2]["value"].tolist()
    with pytest.raises(DeclarationError, match="there is none"):
        run_one(Draws(), DESIGN, "part=b")
    cell, other = cells_of(Draws(), DESIGN)[:2]
    values = [c.rng(p).random() for c in (cell, other) for p in ("noise", "test")]
    assert len(set(values)) == 4
    assert cell.rng("noise").random() == values[0]
    assert StudyCell(cell.key, 4).rng("noise").random() != values[0]


def test_cells_of_another_design_are_not_mixed_in(tmp_path):
    run(Draws(), DESIGN, tmp_path)
    with pytest.raises(DataError, match="another design"):
        run(Draws(), DESIGN.model_copy(update={"scale": 2.0}), tmp_path)
    assert json.loads((tmp_path / "design.json").read_text())["design"]["cells"] == 6


@pytest.mark.parametrize("content", [None, "", "[]"])
def test_cells_of_a_folder_without_its_marker_are_not_mixed_in(tmp_path, content):
    run(Draws(), DESIGN, tmp_path)
    (tmp_path / "design.json").unlink()
    if content is not None:
        (tmp_path / "design.json").write_text(content)
    with pytest.raises(DataError, match=r"for want of design.json: .* or delete this one"):
        run(Draws(), DESIGN, tmp_path)


def test_another_run_in_the_folder_takes_nothing_away(tmp_path):
    one, two = (engine_store.Store(tmp_path, "draws", DESIGN) for _ in range(2))
    one.keep_shared({"a": 1})
    two.keep_shared({"b": 2})
    assert one.shared() == {"a": 1, "b": 2}


def test_cells_of_other_code_are_not_mixed_in(tmp_path, monkeypatch):
    run(Draws(), DESIGN, tmp_path)
    monkeypatch.setattr(engine_store, "code_digest", lambda: "other")
    with pytest.raises(DataError, match=r"another version of the code: .*--output-dir.* or delete") as caught:
        run(Draws(), DESIGN, tmp_path)
    assert "\n" not in str(caught.value)


def test_the_code_is_known_by_every_name_and_content(tmp_path):
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "one.py"
    seen = set()
    for content in ("a = 1\n", "a = 2\n"):
        path.write_text(content)
        seen.add(digest_of([("package", tmp_path)]))
    path.rename(tmp_path / "inner" / "two.py")
    seen.add(digest_of([("package", tmp_path)]))
    assert len(seen) == 3
    (tmp_path / "notes.txt").write_text("no code")
    assert digest_of([("package", tmp_path)]) in seen
    (tmp_path / "data.csv").write_text("1,2\n")
    assert digest_of([("package", tmp_path)]) not in seen
    (tmp_path / "data.csv").unlink()
    # programs are the same code inside the package and beside it
    assert digest_of([("package", tmp_path), ("package/inner", tmp_path / "inner")]) in seen
    assert code_digest() == code_digest()


class Tuned(Draws):
    """Every cell has a part of its own, and the last of them cannot be computed once."""

    stops: ClassVar[list[str]] = []
    computed: ClassVar[list[str]] = []
    parts_are = "tunings"

    def parts(self, design):
        return [("offset", str(k)) for k in range(design.cells)]

    def needs(self, design, cell):
        return [("offset", str(cell.key["number"]))]

    def share(self, design, part):
        if part[1] in self.stops:
            raise KeyboardInterrupt
        self.computed.append(part[1])
        return float(part[1])

    def rows(self, design, cell, shared):
        return [{"value": shared[f"offset/{cell.key['number']}"], "status": "done"}]


def test_tuning_goes_on_where_it_was_stopped_and_is_counted(tmp_path):
    Tuned.stops[:], Tuned.computed[:] = ["4"], []
    with pytest.raises(KeyboardInterrupt):
        run(Tuned(), DESIGN, tmp_path)
    assert not list((tmp_path / "cells").glob("*.parquet"))
    assert Tuned.computed == ["0", "1", "2", "3"]
    Tuned.stops.clear()
    seen = []
    found = run(Tuned(), DESIGN, tmp_path, progress=lambda *counts: seen.append(counts))
    assert Tuned.computed == ["0", "1", "2", "3", "4", "5"]
    assert seen[:4] == [("tunings", 4, 6), ("tunings", 5, 6), ("tunings", 6, 6), ("cells", 0, 6)]
    assert found["value"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_damaged_tuning_is_done_again(tmp_path):
    Tuned.computed.clear()
    found = run(Tuned(), DESIGN, tmp_path)
    (tmp_path / "shared.json").write_text('{"offset/0": 0.0, "off')
    next((tmp_path / "cells").glob("*.parquet")).unlink()
    assert run(Tuned(), DESIGN, tmp_path).equals(found)
    assert len(Tuned.computed) == 7


def test_a_cell_alone_tunes_what_it_needs(tmp_path):
    Tuned.computed.clear()
    alone = run_one(Tuned(), DESIGN, "part=a,number=3")
    assert Tuned.computed == ["3"]
    assert alone == [{"value": 3.0, "status": "done"}]
    run(Tuned(), DESIGN, tmp_path)
    Tuned.computed.clear()
    assert run_one(Tuned(), DESIGN, "part=a,number=3", folder=tmp_path) == alone
    assert Tuned.computed == []


def test_two_cells_of_one_key_are_refused():
    class Twice(Draws):
        def keys(self, design):
            return [{"part": "a"}, {"part": "a"}]

    with pytest.raises(ValueError, match="same key"):
        cells_of(Twice(), DESIGN)


def test_designs_are_read_with_their_variants(tmp_path):
    path = tmp_path / "design.toml"
    path.write_text("seed = 1\ncells = 5\n[variants.quick]\ncells = 2\n")
    assert load_design(Counts, path) == Counts(seed=1, cells=5)
    assert load_design(Counts, path, "quick") == Counts(seed=1, cells=2)
    for text, complaint in (
        ("seed = 1", "cells"),
        ("seed = 1\ncells = 2\nsped = 3", "sped"),
        ("seed = -1\ncells = 2", "seed"),
        ("seed = ", "TOML"),
    ):
        path.write_text(text)
        with pytest.raises(DeclarationError, match=complaint):
            load_design(Counts, path)
    path.write_text("seed = 1\ncells = 5\n")
    with pytest.raises(DeclarationError, match="no variant"):
        load_design(Counts, path, "quick")
    with pytest.raises(DeclarationError):
        load_design(Counts, tmp_path / "none.toml")
    assert np.isfinite(Counts(seed=0, cells=1).scale)
