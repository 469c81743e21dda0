"""Records of one block, made of its raw cells: functions that travel to other processes."""

from __future__ import annotations

from typing import ClassVar

from dp2erm_cvx.curves import Curves
from dp2erm_cvx.data import Dataset, Public
from dp2erm_cvx.tables import Table


class DatasetBlock(Dataset):
    """Some consecutive records of a dataset: the last block may hold a single one."""

    least: ClassVar[int] = 1


def plain_block(table: Table, *, treatment: str, outcome: str, covariates: tuple[str, ...]) -> Dataset:
    """The records of a block of numbers."""
    return DatasetBlock.from_table(table, treatment, outcome, covariates)


def coded_block(
    table: Table, *, public: Public, treatment: str, outcome: str, columns: tuple[str, ...]
) -> Dataset:
    """The records of a block by a codebook."""
    return DatasetBlock.coded(public, table, table.cells(treatment), table.cells(outcome), columns)


def restricted_block(data: Dataset, *, columns: list[int], curves: Curves | None) -> Dataset:
    """A block with some of its covariates, and their curves."""
    return data.restricted(columns, curves)
