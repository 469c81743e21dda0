"""Blocks of records that a worker keeps from one pass to the next, in a stated number of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class KeptBlocks:
    """Blocks by their number, the first ones that fit into ``most`` bytes."""

    most: int
    blocks: dict[int, Any] = field(default_factory=dict)
    nbytes: int = 0

    def offer(self, k: int, block: Any) -> None:
        """Keep the block where there is room: whoever dropped the oldest would never find the next one."""
        size = sum(one.nbytes for one in vars(block).values() if isinstance(one, np.ndarray))
        if k not in self.blocks and self.nbytes + size <= self.most:
            self.nbytes += size
            self.blocks[k] = block


#: Of the table that this worker read last.
_KEPT: dict[str, KeptBlocks] = {}


def kept_blocks(token: str, most: int) -> KeptBlocks:
    """What this worker keeps of a table; of any other one it keeps nothing any more."""
    if token not in _KEPT:
        _KEPT.clear()
    return _KEPT.setdefault(token, KeptBlocks(most))


def forget(token: str) -> None:
    """Keep nothing of a table."""
    _KEPT.pop(token, None)
