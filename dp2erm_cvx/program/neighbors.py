"""What one replaced record changes in a model that is a sum over rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Records


@dataclass(frozen=True, eq=False)
class ReplacedRows:
    """m neighboring models: row ``index[k]`` becomes ``rows[k]``, and the target (if any) ``target[k]``.

    ``rows`` is (m, d), in the coordinates of the model's own rows before any centering; ``target`` is (m, d).
    """

    rows: Array
    target: Array | None = None

    def __repr__(self) -> str:
        # the records are private
        return f"ReplacedRows(n_neighbors={len(self.rows)})"


#: From the indices (m,) and m new records to the rows that stand in place of the old ones.
RowNeighbors = Callable[[NDArray[np.int64], Records], ReplacedRows]
