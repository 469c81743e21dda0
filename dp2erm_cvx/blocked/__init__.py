"""Datasets larger than memory: read in blocks, by threads, processes or a Dask cluster."""

from dp2erm_cvx.blocked.dask_cluster import DaskCluster
from dp2erm_cvx.blocked.dataset import BlockedDataset
from dp2erm_cvx.blocked.engine import KEEP, Engine, Threads, told_bytes
from dp2erm_cvx.blocked.processes import Processes
from dp2erm_cvx.blocked.record_blocks import RecordBlocks

__all__ = [
    "KEEP",
    "BlockedDataset",
    "DaskCluster",
    "Engine",
    "Processes",
    "RecordBlocks",
    "Threads",
    "told_bytes",
]
