"""A declared guarantee, and the pair of neighbors that it was held against, in files."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfinv

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import bracketed
from dp2erm_cvx.calibration.numbers import analytic_delta, analytic_ratio
from dp2erm_cvx.checks import check_settings, json_types, setting
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.display import Shown, digits_of
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import Solver
from dp2erm_cvx.solve.apart import SECONDS

#: Which dataset's density is divided by which.
DIRECTIONS = ("first over second", "second over first")


@dataclass(frozen=True)
class Declared:
    """A guarantee: ``epsilon`` with ``delta``, or ``mu`` of Gaussian differential privacy.

    A mechanism is mu-GDP where a test of level alpha has power at most ``Phi(Phi^-1(alpha) + mu)``
    (Dong, Roth and Su 2022): no better than N(0, 1) is told from N(mu, 1).

    Parameters
    ----------
    epsilon
        The epsilon, at least 0; None where mu is given.
    delta
        The delta beside epsilon, in [0, 1).
    mu
        The mu, at least 0; None where epsilon is given.

    Raises
    ------
    DeclarationError
        Unless exactly one of ``epsilon`` and ``mu`` is given, with ``delta`` only beside
        ``epsilon``.
    """

    # An epsilon of 0 is a guarantee, too, though it is no budget.
    epsilon: float | None = setting(None, at_least=0.0)
    delta: float = setting(0.0, at_least=0.0, below=1.0)
    mu: float | None = setting(None, at_least=0.0)

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.mu is None):
            raise DeclarationError("declare epsilon or mu, and not both")
        check_settings(self)
        if self.mu is not None and self.delta:
            raise DeclarationError("delta goes with epsilon, and mu stands for all deltas")

    @property
    def name(self) -> str:
        """Name of the number that is declared."""
        return "epsilon" if self.mu is None else "mu"

    @property
    def number(self) -> float:
        """Its value."""
        return float(getattr(self, self.name))

    @property
    def gaussian_mu(self) -> float:
        """The mu of a Gaussian mechanism that keeps the guarantee and no more.

        It needs a mu or a delta above 0.
        """
        if self.mu is not None:
            return self.mu
        if self.number == 0.0:
            # delta at epsilon = 0 is erf(mu / sqrt(8))
            return float(math.sqrt(8.0) * erfinv(self.delta))
        return analytic_ratio(self.number, self.delta)

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon at which a Gaussian mechanism has ``delta`` > 0, 1e-9 below at most."""
        mu = self.gaussian_mu
        delta_at_zero = math.erf(mu / math.sqrt(8.0))
        if mu == 0.0 or delta_at_zero <= delta:
            return 0.0
        top = 1.0
        while analytic_delta(mu, top) > delta:
            top *= 2.0
        return bracketed(lambda epsilon: analytic_delta(mu, epsilon) > delta, 0.0, top)

    def __str__(self) -> str:
        text = f"{self.name} = {digits_of(self.number)}"
        if self.mu is None:
            text += f", delta = {digits_of(self.delta)}"
        return text


#: X (n, k), a (n,) and y (n,) of one dataset; where persons are units, also the person (n,) of
#: every row.
Columns = tuple[Any, ...]

_FORMAT = "dp2erm-cvx pair 1"
#: Names of both datasets, and of their columns, in files.
_DATASETS = ("first", "second")
_COLUMNS = ("X", "a", "y", "person")


@dataclass(frozen=True, eq=False)
class Finding(Shown):
    """Two neighbors and what one audit saw on them, which files hold for a replay.

    Parameters
    ----------
    first, second
        Datasets (X, a, y) that differ in at most one row. Where persons with several records are
        units, also the person of every row, and all rows of one person may differ.
    domain
        The domain of both datasets.
    kind
        Which audit saw the pair, such as "density" or "stability".
    facts
        What it saw, in plain JSON types of its own; of a search also ``counts`` of pairs, and the
        ``records`` in words.
    audit
        The audit itself; None where the pair was read from files.
    mapped
        True if the datasets are records inside of the domain as programs see them; they are in the
        units of the data otherwise.
    first_stage
        The program whose weights were audited, by ``name`` and ``settings``.
    private
        False where the facts may depend on private records, or show what a mechanism can lose.
    """

    first: Columns = field(repr=False)
    second: Columns = field(repr=False)
    domain: Domain
    kind: str
    facts: dict[str, Any] = field(repr=False)
    audit: Any = None
    mapped: bool = False
    first_stage: dict[str, Any] = field(default_factory=dict, repr=False)
    private: bool = False

    @classmethod
    def of(cls, kind: str, pair: Any, domain: Domain, audit: Any, **facts: Any) -> Finding:
        """A ``pair`` of kinds of records that a search ends with, its ``audit`` among the facts."""
        first, second = pair.raw(domain)
        mechanism = facts.get("mechanism")
        if mechanism is not None:
            facts["mechanism"] = getattr(mechanism, "__name__", type(mechanism).__name__)
        weights = facts.pop("first_stage", {})
        facts["audit"] = json_types(audit)
        facts["records"] = in_words(first, second)
        return cls(first, second, domain, kind, facts, audit, first_stage=weights)

    @property
    def exceeds(self) -> bool:
        """True if the pair refutes what is declared, as far as its audit can tell."""
        return bool(self.audit.exceeds)

    @property
    def violated(self) -> bool:
        """True if it refutes that, or what the mechanism states of itself."""
        return self.exceeds or bool(getattr(self.audit, "beyond", False))

    @property
    def counts(self) -> dict[str, int]:
        """How many pairs a search looked at, and how."""
        return dict(self.facts.get("counts", {}))

    @property
    def changed(self) -> int:
        """The row that differs; the last one where none does."""
        differ = differing_rows(self.first, self.second)
        if not differ.any():
            return len(differ) - 1
        return int(np.argmax(differ))

    def raw(self) -> tuple[Columns, Columns]:
        """Both datasets in the units of the data."""
        if not self.mapped:
            return self.first, self.second
        return self._unscaled(*self.first), self._unscaled(*self.second)

    def _unscaled(self, X: Array, a: NDArray[np.int64], y: Array) -> Columns:
        """Mapped records in the units of the data."""
        skip = 1 if self.domain.intercept else 0
        return unscaled(self.domain, X[:, skip:], a, y)

    def records(self) -> tuple[Records, Records]:
        """Both datasets as records of the domain."""
        if self.mapped:
            return self._of_mapped(*self.first), self._of_mapped(*self.second)
        return self.domain.records(*self.first), self.domain.records(*self.second)

    def _of_mapped(self, X: Array, a: NDArray[np.int64], y: Array) -> Records:
        """Mapped records as records of the domain."""
        return Records(X, a, y, self.domain.space)

    def save(self, path: str | Path) -> tuple[Path, Path]:
        """Write the datasets to ``path``.npz and everything else to ``path``.json.

        Returns
        -------
        arrays, facts
            The paths of the two files.
        """
        arrays, facts = _paths_of(path)
        columns = {}
        for which, end in zip(_DATASETS, (self.first, self.second), strict=True):
            for name, part in zip(_COLUMNS, end, strict=False):
                columns[f"{name}_{which}"] = part
        np.savez_compressed(arrays, **columns)
        fields = {
            "format": _FORMAT,
            "mapped": self.mapped,
            "domain": self.domain.to_dict(),
            "first_stage": self.first_stage,
            "audit": self.kind,
            "finding": self.facts,
            "private": self.private,
        }
        facts.write_text(json.dumps(fields, indent=2, default=float) + "\n", encoding="utf-8")
        return arrays, facts

    @classmethod
    def load(cls, path: str | Path) -> Finding:
        """Read what :meth:`save` wrote, without the ``audit``.

        Raises
        ------
        DataError
            For files that hold no such pair.
        """
        arrays, facts = _paths_of(path)
        try:
            fields = json.loads(facts.read_text(encoding="utf-8"))
            if fields.pop("format") != _FORMAT:
                raise DataError(
                    f"{path}: a pair in another format: save it again with this version"
                )
            first, second = _datasets_of(arrays)
            domain = Domain.from_dict(fields.pop("domain"))
            kind = fields.pop("audit")
            pair = cls(first, second, domain, kind, fields.pop("finding"), **fields)
            _check(pair)
        except DataError:
            raise
        except _UNREADABLE as wrong:
            raise DataError(f"{path}: not a saved pair ({type(wrong).__name__})") from None
        return pair

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {how}" for how, count in self.counts.items() if count)
        return f"{self.kind}: the worst of the pairs ({counts}): {self.audit}"


#: What reading a file that holds no pair may raise.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, DeclarationError)

#: Kinds of records that are written out in words.
_KINDS = 20


def _datasets_of(arrays: Path) -> tuple[Columns, Columns]:
    """Both datasets in a file of arrays."""
    with np.load(arrays, allow_pickle=False) as file:
        names = _COLUMNS if "person_first" in file else _COLUMNS[:3]
        datasets = []
        for which in _DATASETS:
            datasets.append(tuple(file[f"{name}_{which}"] for name in names))
    first, second = datasets
    return first, second


def in_words(first: Columns, second: Columns) -> list[dict[str, Any]]:
    """The records of a pair whose first record, or person, changes.

    First come those that it has before and after, then the others, unless these are many.
    """
    listed = []
    for name, columns in zip(_DATASETS, (first, second), strict=True):
        records = np.column_stack(columns[:3])
        listed += [_in_words(f"{name} only", 1, row) for row in records[_own(columns)]]
    others = np.column_stack(first[:3])[~_own(first)]
    rows, counts = np.unique(others, axis=0, return_counts=True)
    # where all records differ, the arrays alone hold them
    if len(rows) + 2 <= _KINDS:
        for row, count in zip(rows, counts, strict=True):
            listed.append(_in_words("both", int(count), row))
    return listed


def _own(columns: Columns) -> NDArray[np.bool_]:
    """Mask (n,) of the rows of the first record, or of the first person."""
    person = columns[3] if len(columns) > 3 else np.arange(len(columns[1]))
    return np.asarray(person == 0, dtype=bool)


def _in_words(where: str, times: int, row: Array) -> dict[str, Any]:
    """One record (x, a, y) in plain JSON types: the datasets that have it, and how often."""
    return {
        "in": where,
        "times": times,
        "x": row[:-2].tolist(),
        "a": int(row[-2]),
        "y": float(row[-1]),
    }


def _paths_of(path: str | Path) -> tuple[Path, Path]:
    """The two files of a pair, whether ``path`` names one of them or neither."""
    path = Path(path)
    stem = path.stem if path.suffix in (".npz", ".json") else path.name
    return path.with_name(f"{stem}.npz"), path.with_name(f"{stem}.json")


def differing_rows(first: Columns, second: Columns) -> NDArray[np.bool_]:
    """Mask (n,) of the rows in which two datasets of one shape differ."""
    (X, a, y), (X2, a2, y2) = first, second
    return np.asarray(np.any(X != X2, axis=1) | (a != a2) | (y != y2), dtype=bool)


def differing_units(first: Columns, second: Columns) -> int:
    """How many rows differ, or persons where a fourth column names them."""
    if len(first) == 3:
        return int(differing_rows(first, second).sum())
    mine = _persons(first)
    theirs = _persons(second)
    return max((mine - theirs).total(), (theirs - mine).total())


def _persons(columns: Columns) -> Counter[bytes]:
    """How many persons have the same records, by the bytes of all records of one."""
    *rows, person = columns
    records = np.column_stack(rows)
    return Counter(records[person == number].tobytes() for number in np.unique(person))


def unscaled(domain: Domain, X: Array, a: NDArray[np.int64], y: Array) -> Columns:
    """Records in the units of the data from scaled covariates X (n, k) and net outcomes y (n,)."""
    return domain.space.raw(X), a, y + domain.treatment_cost * a + domain.outcome_center


def _check(pair: Finding) -> None:
    """Raise ValueError where the datasets are no neighbors, or mapped records leave the domain."""
    for columns in (pair.first, pair.second):
        X, a, y, *person = columns
        if X.ndim != 2 or any(column.shape != X.shape[:1] for column in (a, y, *person)):
            raise ValueError("datasets of different shapes")
        arms = np.isin(a, range(len(pair.domain.arms)))
        if not (np.isfinite(X).all() and np.isfinite(y).all() and arms.all()):
            raise ValueError("records that are none")
        if pair.mapped and not _inside(pair.domain, X, a, y):
            raise ValueError("records outside of the domain")
    X, a, *_ = pair.first
    X2, a2, *_ = pair.second
    if len(pair.first) == 3:
        if X.shape != X2.shape:
            raise ValueError("datasets of different shapes")
        if pair.domain.relation is not Neighboring.REPLACE_ONE and np.any(a != a2):
            raise ValueError("a treatment differs, which is not protected")
    if differing_units(pair.first, pair.second) > 1:
        raise ValueError("more than one record or person differs")


def _inside(domain: Domain, X: Array, a: NDArray[np.int64], y: Array) -> bool:
    """True if mapped records, as programs see them, lie in their domain."""
    covariates = X
    if domain.intercept:
        if not (X[:, 0] == domain.intercept).all():
            return False
        covariates = X[:, 1:]
    lengths = np.linalg.norm(covariates, axis=1)
    widths = np.array(domain.space.widths(covariates.shape[1]) or np.inf)
    treated = a.sum()
    smaller_arm = min(treated, len(a) - treated)
    return bool(
        (lengths <= domain.features_bound).all()
        and (np.abs(covariates) <= widths).all()
        and (np.abs(y) <= domain.outcome_bound).all()
        and smaller_arm >= (domain.arm_floor or 0)
    )


#: By kind of audit, what reads its saved facts and gives the function that audits the pair once
#: more.
REPLAYS: dict[str, Callable[..., Callable[[], Any]]] = {}


def replay(
    path: str | Path,
    subject: FirstStage | PrivateEstimator | Callable[..., Any] | None = None,
    *,
    solver: str | Solver = "newton",
    declared: Declared | None = None,
    attack: Any = None,
    seconds: float = SECONDS,
) -> Any:
    """Audit a saved pair once more, by new solves or runs, or at the same released values.

    Parameters
    ----------
    path
        Of the two files of a pair, with or without their endings.
    subject
        None, or a first stage whose settings hold a function of the user's own: the weights of both
        datasets are solved for by ``solver`` and certified, which gives a
        :class:`~dp2erm_cvx.audit.Verdict`. An estimator: the density audit. A mechanism of an audit
        of runs, or of known noise: that audit.
    declared, attack
        In place of what was saved, for a mechanism.
    seconds
        The solver has so long for every dataset, where it is reached through CVXPY.

    Returns
    -------
    audit
        The audit of the pair, or the verdict on its weights.

    Raises
    ------
    DataError
        For files that hold no pair of neighbors, or that of another audit.
    DeclarationError
        For another program or model than the saved one. What the audit raises comes through.
    """
    pair = Finding.load(path)
    kind = "density" if isinstance(subject, PrivateEstimator) else pair.kind
    if subject is None or isinstance(subject, FirstStage):
        kind = "stability"
    elif kind == "density" and not isinstance(subject, PrivateEstimator):
        raise DataError(f"{path}: the pair of a {kind} audit, which runs no mechanism")
    how = {"solver": solver, "declared": declared, "attack": attack, "seconds": seconds}
    try:
        again = REPLAYS[kind](pair, subject, **how)
    except (KeyError, ValueError, TypeError) as wrong:
        raise DataError(
            f"{path}: not a saved pair of this audit ({type(wrong).__name__}: {wrong})"
        ) from None
    return again()
