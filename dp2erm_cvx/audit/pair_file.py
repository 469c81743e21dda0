"""Pairs of neighbors in files: one format for every audit that keeps a pair or repeats one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import DataError, DeclarationError

#: X (n, k), a (n,) and y (n,) of one dataset.
Columns = tuple[Array, NDArray[np.int64], Array]

_FORMAT = "dp2erm-cvx pair 1"
_DATASETS = ("first", "second")


@dataclass(frozen=True, eq=False)
class SavedPair:
    """Two neighbors and what one audit saw on them.

    Parameters
    ----------
    first, second
        Datasets that differ in at most one row: in the units of the data, or, where ``mapped``, records
        inside of the ``domain`` as programs see them.
    first_stage
        The program whose weights were audited, by ``name`` and ``settings``.
    audit
        Which audit saved the pair, such as "density" or "stability".
    finding
        What it saw, in plain JSON types of its own.
    private
        False where the finding may depend on private records.
    """

    first: Columns = field(repr=False)
    second: Columns = field(repr=False)
    mapped: bool
    domain: Domain
    first_stage: dict[str, Any]
    audit: str
    finding: dict[str, Any]
    private: bool

    @property
    def changed(self) -> int:
        """The row that differs; the last one where none does."""
        differ = differing_rows(self.first, self.second)
        return int(np.argmax(differ)) if differ.any() else len(differ) - 1

    def raw(self) -> tuple[Columns, Columns]:
        """Both datasets in the units of the data."""
        if not self.mapped:
            return self.first, self.second
        skip = 1 if self.domain.intercept else 0
        one, other = (unscaled(self.domain, X[:, skip:], a, y) for X, a, y in (self.first, self.second))
        return one, other

    def records(self) -> tuple[Records, Records]:
        """Both datasets as records of the domain."""
        if self.mapped:
            return Records(*self.first, self.domain), Records(*self.second, self.domain)
        return self.domain.records(*self.first), self.domain.records(*self.second)

    def save(self, path: str | Path) -> tuple[Path, Path]:
        """Write the datasets to ``path``.npz and everything else to ``path``.json; the two paths."""
        arrays, facts = paths_of(path)
        datasets = zip(_DATASETS, (self.first, self.second), strict=True)
        columns = {
            f"{name}_{which}": part
            for which, all_ in datasets
            for name, part in zip("Xay", all_, strict=True)
        }
        np.savez_compressed(arrays, **columns)  # type: ignore[arg-type]
        stated = {
            "format": _FORMAT,
            "mapped": self.mapped,
            "domain": self.domain.to_dict(),
            "first_stage": self.first_stage,
            "audit": self.audit,
            "finding": self.finding,
            "private": self.private,
        }
        facts.write_text(json.dumps(stated, indent=2, default=float) + "\n", encoding="utf-8")
        return arrays, facts

    @classmethod
    def load(cls, path: str | Path) -> SavedPair:
        """Read what :meth:`save` wrote. Raises DataError for files that hold no pair of neighbors."""
        arrays, facts = paths_of(path)
        try:
            stated = json.loads(facts.read_text(encoding="utf-8"))
            if stated.pop("format") != _FORMAT:
                raise DataError(f"{path}: a pair in another format: save it again with this version")
            with np.load(arrays, allow_pickle=False) as held:
                first, second = (tuple(held[f"{name}_{which}"] for name in "Xay") for which in _DATASETS)
            stated["domain"] = Domain.from_dict(stated["domain"])
            pair = cls(first, second, **stated)
            _check(pair)
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, DeclarationError) as wrong:
            raise DataError(f"{path}: not a saved pair ({type(wrong).__name__})") from None
        return pair


def paths_of(path: str | Path) -> tuple[Path, Path]:
    """The two files of a pair, whether ``path`` names one of them or neither."""
    path = Path(path)
    stem = path.stem if path.suffix in (".npz", ".json") else path.name
    return path.with_name(f"{stem}.npz"), path.with_name(f"{stem}.json")


def differing_rows(first: Columns, second: Columns) -> NDArray[np.bool_]:
    """Which rows of two datasets of one shape differ, (n,)."""
    (X, a, y), (X2, a2, y2) = first, second
    return np.asarray(np.any(X != X2, axis=1) | (a != a2) | (y != y2), dtype=bool)


def unscaled(domain: Domain, X: Array, a: NDArray[np.int64], y: Array) -> Columns:
    """Records in the units of the data from scaled covariates X (n, k) and net outcomes y (n,)."""
    if domain.ranges is not None:
        low, high = np.array(domain.range_pairs, dtype=np.float64).T
        X = (low / 2 + high / 2) + X * (high / 2 - low / 2)
    return X, a, y + domain.treatment_cost * a + domain.outcome_center


def _check(pair: SavedPair) -> None:
    """Raise ValueError where the datasets are no neighbors, or mapped records leave the domain."""
    for X, a, y in (pair.first, pair.second):
        if X.ndim != 2 or a.shape != y.shape or a.shape != X.shape[:1] or X.shape != pair.first[0].shape:
            raise ValueError("datasets of different shapes")
        if not (np.isfinite(X).all() and np.isfinite(y).all() and np.isin(a, (0, 1)).all()):
            raise ValueError("records that are none")
        if pair.mapped and not _inside(pair.domain, X, a, y):
            raise ValueError("records outside of the domain")
    if int(differing_rows(pair.first, pair.second).sum()) > 1:
        raise ValueError("more than one record differs")


def _inside(domain: Domain, X: Array, a: NDArray[np.int64], y: Array) -> bool:
    covariates = X[:, 1:] if domain.intercept else X
    return bool(
        (np.linalg.norm(covariates, axis=1) <= domain.features_bound).all()
        and (np.abs(covariates) <= np.array(domain.widths(covariates.shape[1]) or np.inf)).all()
        and (not domain.intercept or (X[:, 0] == domain.intercept).all())
        and (np.abs(y) <= domain.outcome_bound).all()
        and min(a.sum(), len(a) - a.sum()) >= (domain.arm_floor or 0)
    )
