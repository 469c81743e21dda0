"""Pairs of neighbors on disk: solved again, by another solver, they show the same movement."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx import registry
from dp2erm_cvx.audit.stability.claims import Claim, Quantity
from dp2erm_cvx.audit.stability.movement import Interval
from dp2erm_cvx.audit.stability.resolve import Pair, Resolved, resolve
from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.program import FirstStage, Gaussian, Kernel, Laplace, Linear, Moments, RandomFourier
from dp2erm_cvx.solve import Solver

_FORMAT = "dp2erm-cvx counterexample 1"


@dataclass(frozen=True)
class Replay:
    """A saved pair, solved again and certified: ``movement`` holds the exact movement."""

    claim: Claim
    movement: Interval
    saved: Interval
    resolved: Resolved

    @property
    def violated(self) -> bool:
        """Whether the movement exceeds the bound whatever the numerical error is."""
        return self.movement.low > self.claim.bound

    @property
    def agrees(self) -> bool:
        """Whether both intervals have a point in common, as two right certificates must."""
        return self.movement.low <= self.saved.high and self.saved.low <= self.movement.high


def save_pair(
    path: Path, program: FirstStage, claim: Claim, found: Resolved, private: bool
) -> tuple[Path, Path]:
    """Write ``path.npz`` (the records) and ``path.json`` (program, settings, domain, bound, movement)."""
    pair = found.pair
    arrays, facts = path.with_suffix(".npz"), path.with_suffix(".json")
    np.savez_compressed(
        arrays,
        X=pair.first.X,
        a=pair.first.a,
        y=pair.first.y,
        X_after=pair.second.X,
        a_after=pair.second.a,
        y_after=pair.second.y,
    )
    stated = {
        "format": _FORMAT,
        "program": program.name,
        "settings": program.settings(),
        "domain": pair.first.domain.to_dict(),
        "claim": claim.to_dict(),
        "movement": found.movements[claim.quantity].to_dict(),
        "changed": pair.changed,
        "origin": pair.origin,
        "private": private,
    }
    facts.write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")
    return arrays, facts


def replay(path: str | Path, *, solver: str | Solver = "newton", program: FirstStage | None = None) -> Replay:
    """Solve a saved pair again with ``solver`` and certify it.

    ``program`` is needed where the settings hold a function of the user's own. Raises DataError for files
    that hold no pair of neighbors, DeclarationError for a program other than the saved one, SolverError where
    the solver returns no point.
    """
    stem = Path(path)
    try:
        stated = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
        with np.load(stem.with_suffix(".npz"), allow_pickle=False) as arrays:
            held = {name: arrays[name] for name in arrays.files}
        if stated.get("format") != _FORMAT:
            raise DataError(f"{stem}: not a saved counterexample")
        domain = Domain.from_dict(stated["domain"])
        ends = [
            _inside(domain, *(held[f"{name}{mark}"] for name in ("X", "a", "y"))) for mark in ("", "_after")
        ]
        claim = Claim(**{**stated["claim"], "quantity": Quantity(stated["claim"]["quantity"])})
        saved, changed = Interval(**stated["movement"]), int(stated["changed"])
        name, settings, origin = str(stated["program"]), dict(stated["settings"]), str(stated["origin"])
    except DataError:
        raise
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{stem}: not a saved counterexample ({type(error).__name__})") from None
    _check_neighbors(stem, ends[0], ends[1], changed)
    if program is None:
        program = registry.build(
            registry.first_stages(), name, **{key: _value(key, value) for key, value in settings.items()}
        )
    if (program.name, program.settings()) != (name, settings):
        raise DeclarationError(f"program: the pair was saved for {name} with {settings}")
    (found,) = resolve(program, [Pair(ends[0], ends[1], changed, origin)], solver)
    return Replay(claim, found.movements[claim.quantity], saved, found)


def _inside(domain: Domain, X: Any, a: Any, y: Any) -> Records:
    covariates = X[:, 1:] if domain.intercept else X
    inside = bool(
        np.isfinite(X).all()
        and np.isin(a, (0, 1)).all()
        and (np.linalg.norm(covariates, axis=1) <= domain.features_bound).all()
        and (not domain.intercept or (X[:, 0] == domain.intercept).all())
        and (np.abs(y) <= domain.outcome_bound).all()
        and min(a.sum(), len(a) - a.sum()) >= (domain.arm_floor or 0)
    )
    if not inside or not len(X) == len(a) == len(y):
        raise ValueError("records outside of the domain")
    return Records(X, a, y, domain)


def _check_neighbors(path: Path, first: Records, second: Records, changed: int) -> None:
    same = first.X.shape == second.X.shape and 0 <= changed < first.n_samples
    if same:
        differ = np.any(first.X != second.X, axis=1) | (first.a != second.a) | (first.y != second.y)
        same = not np.delete(differ, changed).any()
    if not same:
        raise DataError(f"{path}: the two datasets are not neighbors in record {changed}")


def _value(name: str, value: Any) -> Any:
    """A setting from its plain JSON form. Raises DeclarationError where it stands for a function."""
    if value == "inf":
        return math.inf
    if isinstance(value, list):
        return tuple(value)
    if value in ("Gaussian", "Laplace", "Linear", "RandomFourier"):
        value = {value: {}}
    if isinstance(value, dict):
        ((kind, inner), *rest) = value.items()
        kernels: dict[str, Callable[..., Kernel]] = {
            "Gaussian": Gaussian,
            "Laplace": Laplace,
            "Linear": Linear,
            "RandomFourier": RandomFourier,
        }
        if kind in kernels and not rest:
            return kernels[kind](**inner)
        if kind == "moments" and not rest:
            return Moments(inner)
        raise DeclarationError(f"{name}: pass the program, because {kind!r} is not stored")
    return value
