"""A saved pair of neighbors, audited once more by its exact densities."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dp2erm_cvx.audit.density.audit import DensityAudit, audit_density
from dp2erm_cvx.audit.pair_file import SavedPair
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM

#: The name of this audit in a file.
DENSITY = "density"


def audited_model(model: PrivateTwoStageERM) -> dict[str, Any]:
    """What a density audit depends on, in plain JSON types."""
    second = model.resolved_second_stage()
    return {
        "first_stage": audited_weights(model),
        "second_stage": {"name": second.name, "settings": second.settings()},
        "domain": model.domain.to_dict(),
        "budget": asdict(model.budget),
        **{name: getattr(model, name) for name in ("calibration", "noise", "split", "tolerance")},
        **{name: getattr(model, name) for name in ("arithmetic", "numerical_share", "value_share")},
    }


def audited_weights(model: PrivateTwoStageERM) -> dict[str, Any]:
    """The first stage of ``model``, in plain JSON types."""
    first = model.resolved_first_stage()
    return {"name": first.name, "settings": first.settings()}


def replay_pair(path: str | Path, model: PrivateTwoStageERM) -> tuple[DensityAudit, float | None]:
    """Audit a saved pair once more: the audit, and the loss that was saved with it.

    The settings are those of the saved audit. Another ``solver`` of the model checks the weights that the
    densities rest on. A pair that a stability audit saved is audited with the usual settings, and its loss is
    None. Raises DataError where the files are missing or damaged, DeclarationError where ``model`` is not the
    one they were saved for.
    """
    pair = SavedPair.load(path)
    mine: dict[str, Any] = {"first_stage": audited_weights(model), "domain": model.domain.to_dict()}
    theirs: dict[str, Any] = {"first_stage": pair.first_stage, "domain": pair.domain.to_dict()}
    settings, loss = {}, None
    if pair.audit == DENSITY:
        try:
            theirs, settings = dict(pair.finding["model"]), dict(pair.finding["settings"])
            loss = float(pair.finding["audit"]["loss"])
        except (KeyError, TypeError, ValueError) as wrong:
            raise DataError(f"{path}: not a saved pair ({type(wrong).__name__})") from None
        mine = audited_model(model)
    for name, value in json.loads(json.dumps(mine, default=float)).items():
        if json.loads(json.dumps(theirs.get(name), default=float)) != value:
            raise DeclarationError(f"{path}: was saved for another model: {name} differs")
    return audit_density(model, *pair.raw(), **settings), loss
