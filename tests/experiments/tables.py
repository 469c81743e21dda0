"""A table of an experiment, computed in this process and kept nowhere."""

import pandas as pd
from common import cells


def table_of(rows, design, keys):
    """The rows of every cell."""
    found = [dict(cell.key) | row for cell in cells(design, keys) for row in rows(design, cell)]
    return pd.DataFrame(found)
