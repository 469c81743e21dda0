"""Datasets larger than memory: read in blocks by local threads or a Dask cluster."""

from dp2erm_cvx.blocked.dataset import BlockedDataset, RecordBlocks, size_text
from dp2erm_cvx.blocked.pieces import KEEP

__all__ = ["KEEP", "BlockedDataset", "RecordBlocks", "size_text"]
