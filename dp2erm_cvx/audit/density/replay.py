"""A saved pair of neighbors, audited once more by its exact densities."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from dp2erm_cvx import registry
from dp2erm_cvx.audit.density.audit import DensityAudit, audit_density
from dp2erm_cvx.audit.pair_file import SavedPair
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.program import Program
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.replanned import public_center

#: The name of this audit in a file.
DENSITY = "density"


#: Parameters of an estimator that do not change the law of what it releases.
_HOW = frozenset({"solver", "seed", "level", "ledger", "dataset"})


def audited_model(model: PrivateEstimator) -> dict[str, Any]:
    """What a density audit depends on, in plain JSON types."""
    facts = model.get_params(deep=False)
    if isinstance(model, PrivateTwoStageERM):
        facts["first_stage"], facts["second_stage"] = (
            model.resolved_first_stage(),
            model.resolved_second_stage(),
        )
    return {name: _plain(value) for name, value in facts.items() if name not in _HOW}


def audited_weights(model: PrivateEstimator) -> dict[str, Any]:
    """The first stage of ``model``, in plain JSON types; weights are 1 where it has none."""
    if isinstance(model, PrivateTwoStageERM):
        return dict(_plain(model.resolved_first_stage()))
    return dict(_plain(registry.build(registry.first_stages(), "uniform")))


def _plain(value: Any) -> Any:
    if isinstance(value, Program):
        return {"name": value.name, "settings": value.settings()}
    if isinstance(value, Domain):
        return value.to_dict()
    if isinstance(value, EffectRelease):
        value = public_center(value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def replay_pair(path: str | Path, model: PrivateEstimator) -> tuple[DensityAudit, float | None]:
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
