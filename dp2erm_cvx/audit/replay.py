"""Saved pairs: every audit repeats what it saved, or another one did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dp2erm_cvx import registry
from dp2erm_cvx.audit.additive import AdditiveAudit, audit_additive
from dp2erm_cvx.audit.density import DensityAudit, audit_density
from dp2erm_cvx.audit.finding import Declared, Finding
from dp2erm_cvx.audit.movement import Claim, Interval, NeighborPair, Quantity, Verdict, resolve
from dp2erm_cvx.audit.release_laws import audited_facts
from dp2erm_cvx.audit.runs import Attack, RunsAudit, audit_runs
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.program import FirstStage, PrivateFirstStage
from dp2erm_cvx.release.declaration import rebuilt
from dp2erm_cvx.solve import Solver
from dp2erm_cvx.universe import Universe

#: What a pair is audited by: nothing or a first stage for its weights, a release, or any mechanism.
Subject = FirstStage | PrivateEstimator | Callable[..., Any]


def replay(
    path: str | Path,
    subject: Subject | None = None,
    *,
    solver: str | Solver = "newton",
    declared: Declared | None = None,
    attack: Attack | None = None,
) -> Verdict | DensityAudit | RunsAudit | AdditiveAudit:
    """Audit a saved pair once more, by new solves or runs, or at the same released values.

    Parameters
    ----------
    path
        Of the two files of a pair, with or without their endings.
    subject
        None, or a first stage whose settings hold a function of the user's own: the weights of both datasets
        are solved for by ``solver`` and certified, and held against the saved claim, or the sharp bound on V
        for the pair of another audit. An estimator: the density audit with its saved settings, the usual ones
        for the pair of a stability audit. A mechanism of an audit of runs, or of known noise: that audit.
    declared, attack
        In place of what was saved, for a mechanism.

    Raises DataError for files that hold no pair of neighbors, or that of another audit, DeclarationError for
    another program or model than the saved one, and what the audit raises.
    """
    if subject is None or isinstance(subject, FirstStage):
        return _weights(path, subject, solver)
    if isinstance(subject, PrivateEstimator):
        return _density(path, subject)
    pair = Finding.load(path)
    try:
        known: dict[str, Any] = pair.facts["audit"]
        if pair.kind == "additive":
            held, seed = declared or Declared(**known["declared"]), int(known["seed"])
        elif pair.kind == "blackbox":
            held = declared or Declared(known["epsilon"], known["delta"], known.get("mu"))
            attack = attack or Attack(**pair.facts["attack"])
        else:
            raise DataError(f"{path}: the pair of a {pair.kind} audit, which runs no mechanism")
    except (KeyError, TypeError) as wrong:
        raise DataError(f"{path}: no finding of a {pair.kind} audit ({wrong})") from None
    if pair.kind == "additive":
        return audit_additive(subject, *pair.raw(), held, seed=seed)
    return audit_runs(subject, *pair.raw(), held, attack=attack)


def _weights(path: str | Path, program: FirstStage | None, solver: str | Solver) -> Verdict:
    pair = Finding.load(path)
    first, second = pair.records()
    try:
        name, settings = str(pair.first_stage["name"]), dict(pair.first_stage["settings"])
        claim, saved, origin = None, None, f"{pair.kind} audit"
        if pair.kind == "stability":
            stated = pair.facts["claim"]
            claim = Claim(**{**stated, "quantity": Quantity(stated["quantity"])})
            saved, origin = Interval(**pair.facts["movement"]), str(pair.facts["origin"])
    except (KeyError, ValueError, TypeError) as wrong:
        raise DataError(f"{path}: not a saved pair ({type(wrong).__name__})") from None
    if program is None:
        known = {setting: rebuilt(value) for setting, value in settings.items()}
        program = registry.build(registry.first_stages(), name, **known)
    if (program.name, program.settings()) != (name, settings):
        raise DeclarationError(f"program: the pair was saved for {name} with {settings}")
    if isinstance(program, PrivateFirstStage):
        raise DeclarationError(f"{program.name} adds noise to its weights: its bound is about no re-solve")
    if claim is None:
        bound = program.stability(Universe(pair.domain, first.n_samples, first.covariates.shape[1]))
        claim = Claim("sharp", Quantity.V, bound.V, bound.theorem)
    (moved,) = resolve(program, [NeighborPair(first, second, pair.changed, origin)], solver)
    return Verdict(claim, moved.movements[claim.quantity], moved, 1, saved)


def _density(path: str | Path, model: PrivateEstimator) -> DensityAudit:
    pair, (mine, weights) = Finding.load(path), audited_facts(model)
    settings: dict[str, Any] = {}
    if pair.kind == "density":
        try:
            theirs, settings = dict(pair.facts["model"]), dict(pair.facts["settings"])
        except (KeyError, TypeError, ValueError) as wrong:
            raise DataError(f"{path}: not a saved pair ({type(wrong).__name__})") from None
    else:
        mine = {"first_stage": weights, "domain": model.domain.to_dict()}
        theirs = {"first_stage": pair.first_stage, "domain": pair.domain.to_dict()}
    for name, value in json.loads(json.dumps(mine, default=float)).items():
        if json.loads(json.dumps(theirs.get(name), default=float)) != value:
            raise DeclarationError(f"{path}: was saved for another model: {name} differs")
    return audit_density(model, *pair.raw(), **settings)
