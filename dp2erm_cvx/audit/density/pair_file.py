"""Pairs of datasets in files: to replay what an audit found, and to go on searching."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.audit.density.audit import audit_density
from dp2erm_cvx.audit.density.pair_makers import Pair, Records
from dp2erm_cvx.audit.density.result import DensityAudit
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM

_FIELDS = ("X", "a", "y", "others")


def describe(model: PrivateTwoStageERM) -> dict[str, Any]:
    """What a density audit depends on, in plain JSON types."""
    first, second = model.resolved_first_stage(), model.resolved_second_stage()
    return {
        "first_stage": {"name": first.name, "settings": first.settings()},
        "second_stage": {"name": second.name, "settings": second.settings()},
        "domain": model.domain.to_dict(),
        "budget": asdict(model.budget),
        **{name: getattr(model, name) for name in ("calibration", "noise", "split", "tolerance")},
        **{name: getattr(model, name) for name in ("arithmetic", "numerical_share", "value_share")},
    }


def save_pair(
    path: str | Path,
    model: PrivateTwoStageERM,
    first: Records,
    second: Records,
    audit: DensityAudit,
    settings: dict[str, int],
) -> None:
    """Write both datasets to ``path``.npz, and what was found on them to ``path``.json.

    ``settings`` are the ``seed``, ``starts`` and ``draws`` of the audit.
    """
    names = [f"{name}_{which}" for which in ("first", "second") for name in "Xay"]
    np.savez(_with(path, ".npz"), **dict(zip(names, (*first, *second), strict=True)))  # type: ignore[arg-type]
    found = {"model": describe(model), "settings": settings, "audit": asdict(audit), "private": False}
    text = json.dumps(found, indent=2, default=float) + "\n"
    _with(path, ".json").write_text(text, encoding="utf-8")


def replay_pair(path: str | Path, model: PrivateTwoStageERM) -> tuple[DensityAudit, float]:
    """Audit a saved pair once more, with the settings that it was found with: the audit, and the saved loss.

    Another ``solver`` of the model checks the weights that the densities rest on. Raises DataError where the
    files are missing or damaged, DeclarationError where ``model`` is not the one they were saved for.
    """
    try:
        saved = json.loads(_with(path, ".json").read_text(encoding="utf-8"))
        with np.load(_with(path, ".npz"), allow_pickle=False) as held:
            first, second = (
                tuple(held[f"{name}_{which}"] for name in "Xay") for which in ("first", "second")
            )
        known, settings, loss = saved["model"], saved["settings"], float(saved["audit"]["loss"])
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise DataError(f"{path}: no pair of an audit can be read from it ({wrong})") from None
    mine = json.loads(json.dumps(describe(model), default=float))
    for name, value in mine.items():
        if known.get(name) != value:
            raise DeclarationError(f"{path}: was saved for another model: {name} differs")
    return audit_density(model, first, second, **settings), loss


def save_state(
    path: Path, label: str, step: int, counts: NDArray[np.int64], best: list[tuple[float, Pair]]
) -> None:
    """Write a search in progress, whole or not at all."""
    arrays = {f"{name}_{i}": getattr(pair, name) for i, (_, pair) in enumerate(best) for name in _FIELDS}
    heights = np.array([height for height, _ in best])
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as target:
        np.savez(target, label=label, step=step, counts=counts, heights=heights, **arrays)
    fresh.replace(path)


def load_state(path: Path, label: str) -> tuple[int, NDArray[np.int64], list[tuple[float, Pair]]]:
    """What :func:`save_state` wrote. Raises DataError for a damaged file, or one of another search."""
    try:
        with np.load(path, allow_pickle=False) as held:
            if str(held["label"]) != label:
                raise DataError(f"{path}: belongs to a search of another model or with other settings")
            heights = held["heights"].tolist()
            pairs = [Pair(*(held[f"{name}_{i}"] for name in _FIELDS)) for i in range(len(heights))]
            return int(held["step"]), held["counts"], list(zip(heights, pairs, strict=True))
    except DataError:
        raise
    except (OSError, ValueError, KeyError) as wrong:
        raise DataError(f"{path}: no search can be read from it ({wrong})") from None


def _with(path: str | Path, ending: str) -> Path:
    path = Path(path)
    stem = path.stem if path.suffix in (".npz", ".json") else path.name
    return path.with_name(stem + ending)
