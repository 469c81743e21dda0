"""Experiments as cells: declared in TOML, each with a seed of its own, kept on disk as they finish.

An experiment states a design (a frozen pydantic model), the keys of its cells, and a function from one cell
to rows of plain values; what cells share, such as tuned settings, it states in parts, which are kept as cells
are. Everything else is here: reading the design, running cells on any number of workers, going on after a
kill, and one table of all rows that depends on the design alone.
"""

from dp2erm_cvx.studies.engine.experiment import (
    Design,
    Experiment,
    Listing,
    Part,
    Row,
    StudyCell,
    cells_of,
    load_design,
    part_label,
)
from dp2erm_cvx.studies.engine.run import run, run_one
from dp2erm_cvx.studies.engine.store import Store

__all__ = [
    "Design",
    "Experiment",
    "Listing",
    "Part",
    "Row",
    "Store",
    "StudyCell",
    "cells_of",
    "load_design",
    "part_label",
    "run",
    "run_one",
]
