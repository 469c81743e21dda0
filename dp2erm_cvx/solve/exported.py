"""Certificates as plain JSON, for a checker that knows nothing of this package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dp2erm_cvx import checker
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.curves import Curve, CurvesByArm, Loss
from dp2erm_cvx.curves.dispersion import Dispersion
from dp2erm_cvx.curves.log_weights import LogOfWeight, LogWeight, LogWeightsByArm
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import CertificateError
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import Box, ConvexSet, L1Ball, L2Ball
from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.program.entropy import ExponentialModel
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.separable import BalancedProgram, PrivateFirstStage, SeparableFirstStage
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.solve.solving import Solution
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty
from dp2erm_cvx.weighting.forms.proximal import PricedColumns
from dp2erm_cvx.weighting.solving.dataset import WeightingData

#: Parts of a radius by which claims are rounded up.
_ROUND_UP = 1.0 + 1e-6
#: A point this near to the boundary of its set, relative to the size of the set, is taken to be on
#: it.
_ON_BOUNDARY = 1e-9


def document_of(certificates: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Certificates as one document, as it is written to a file."""
    return {
        "format": checker.CERTIFICATE,
        "schema_version": checker.CERTIFICATE_SCHEMA,
        "certificates": list(certificates),
    }


def exported(instance: Instance, solution: Solution, records: Records) -> dict[str, Any]:
    """The certificate of a solution: problem, data, point, multipliers and the claim they prove.

    It holds the records. The radius that is claimed is that of the solution's own certificate,
    where the checker proves it by the method that is written down; else the least that this method
    proves.

    Parameters
    ----------
    instance
        The program on its data.
    solution
        A solution of the instance.
    records
        The records that the instance was made of.

    Returns
    -------
    dict
        Plain JSON types.

    Raises
    ------
    CertificateError
        Where the form of the program is not one that the checker reads, or nothing is proved about
        the point.
    """
    model = instance.model
    name = instance.program.name
    if isinstance(model, MarginModel) and model.whole.weight_rows is None:
        parts = {"form": "sum over records", **_of_margins(model, solution, records)}
    elif isinstance(model, WeightsModel):
        parts = {"form": "weights as the variable", **_of_weights(name, model, solution)}
    else:
        raise CertificateError(f"{name}: its form is none that the checker reads")
    body = {
        "program": name,
        "formula": instance.program.formula,
        "settings": instance.program.settings(),
        "solver": solution.solver,
        **parts,
    }
    return body | {"digest": checker.digest(body)}


def exported_bound(program: FirstStage, universe: MappedUniverse) -> dict[str, Any]:
    """A bound of V for the constants of a scheme by margins, which the checker proves by itself.

    Parameters
    ----------
    program
        The first stage.
    universe
        Public sizes and bounds of the records.

    Returns
    -------
    dict
        Plain JSON types. V is what the checker proves, above the bound in force by a few percent.

    Raises
    ------
    CertificateError
        Where the scheme is none that the checker bounds: by arm, with offsets or bases, or not by
        margins.
    """
    resolved = program.at(universe)
    plain = (
        isinstance(resolved, SeparableFirstStage)
        and resolved.is_plain
        and len(resolved.curves) == 1
    )
    if not plain or isinstance(resolved, PrivateFirstStage | BalancedProgram):
        raise CertificateError(f"{program.name}: V of its form is none that the checker bounds")
    assert isinstance(resolved, SeparableFirstStage)
    ball = resolved.ball(universe.space)
    (curves,) = resolved.curves
    assert isinstance(curves.loss, Curve)
    assert isinstance(curves.weight, LogWeight)
    problem = {
        "n": universe.n_samples,
        "ridge": resolved.mu,
        "row_norm": resolved.row_bound(universe.space),
        "radius": ball if math.isfinite(ball) else None,
        "loss": _loss(curves.loss),
        "log_weight": _tree(curves.weight),
    }
    if resolved.mu == 0.0 or resolved.target is not None:
        raise CertificateError(
            f"{program.name}: the checker bounds V of schemes with a ridge and no target"
        )
    proved, _ = checker.StabilityOfScheme(problem).bound()
    body = {
        "form": "bound of a scheme",
        "program": program.name,
        "formula": resolved.formula,
        "settings": resolved.settings(),
        "solver": "by theorems 3, 22 and 23",
        "problem": problem,
        "claim": {"V": float(proved) * _ROUND_UP},
    }
    return body | {"digest": checker.digest(body)}


def _of_margins(model: MarginModel, solution: Solution, records: Records) -> dict[str, Any]:
    """Problem, data, point, proof and claim of a sum over records."""
    problem = _problem(model)
    point = solution.point
    near, normal, slopes = _multipliers(model, point)
    proof: dict[str, Any] = {
        "at": near.tolist(),
        "normal": _listed(normal),
        "slopes": _listed(slopes),
    }
    stated = checker.MarginProblem(problem)
    evidence = checker.MarginProof(stated, proof)
    exact_point = [checker.exact(number) for number in point.tolist()]
    radius, proof["curvature"] = _radius(model, solution, evidence, exact_point)
    weights = None
    weights_radius = None
    if model.weight is not None:
        weights = solution.value.tolist()
        exact_weights = [checker.exact(number) for number in weights]
        bound = checker.distance_of_weights(
            stated, exact_point, checker.exact(radius), exact_weights
        )
        weights_radius = max(solution.certificate.output_radius, float(bound) * _ROUND_UP)
    made = _made_of(problem["rows"], records)
    return {
        "problem": problem,
        "rows_are": made,
        "records": None if made is None else {"x": records.X.tolist(), "a": records.a.tolist()},
        "point": point.tolist(),
        "proof": proof,
        "claim": {"radius": radius, "weights": weights, "weights_radius": weights_radius},
    }


def _of_weights(name: str, model: WeightsModel, solution: Solution) -> dict[str, Any]:
    """Problem, point, proof and claim of weights that are the variable."""
    if model.dual is None or model.form.hard:
        raise CertificateError(f"{name}: no distance is proved under constraints of the imbalance")
    data = model.dual.data
    anchor = model.anchor
    if data.similarities:
        raise CertificateError(f"{name}: prices of kernels are none that the checker reads")
    problem = _weight_problem(name, data)
    slope = data.curve.dispersion.slope(_ratios(data, anchor.weights))
    slope = slope + data.rows @ anchor.prices + data.linear
    inside = (anchor.weights > data.curve.low) & (anchor.weights < data.curve.cap)
    multipliers = [-_middle(slope[block.members], inside[block.members]) for block in data.blocks]
    proof = {
        "weights": anchor.weights.tolist(),
        "slopes": _allowed(data, anchor.prices).tolist(),
        "multipliers": multipliers,
    }
    evidence = checker.WeightProof(checker.WeightProblem(problem), proof)
    point = solution.point.tolist()
    exact_point = [checker.exact(number) for number in point]
    apart = float(evidence.distance(exact_point)) * _ROUND_UP
    reach = 1e-12 * model.form.n
    for _ in range(60):
        response = float(evidence.problem.response(evidence.w, checker.exact(reach)))
        half = 0.5 * response * float(evidence.residual)
        needed = (
            half + math.sqrt(half * half + response * float(evidence.missing))
        ) * _ROUND_UP + 1e-300
        radius = max(needed + apart, solution.certificate.radius)
        if needed <= reach and evidence.proves(exact_point, checker.exact(radius)):
            break
        reach *= 4.0
    else:
        raise CertificateError(
            f"{name}: nothing is proved about these weights by the method of the checker"
        )
    return {"problem": problem, "point": point, "proof": proof, "claim": {"radius": radius}}


def _allowed(data: WeightingData, slopes: Array) -> Array:
    """The slopes of prices (K,), no larger than any slope of a price that has a largest one."""
    allowed = slopes.copy()
    for one in data.priced:
        penalty = one.penalty
        if not isinstance(penalty, ImbalancePenalty):
            continue
        largest = (
            penalty.price if math.isinf(penalty.factor) else 2.0 * penalty.factor * penalty.knee
        )
        own = allowed[one.columns]
        size = _dual_size(penalty, own)
        if math.isfinite(largest) and size > largest * (1.0 - 1e-14):
            allowed[one.columns] = own * (largest / size * (1.0 - 1e-14))
        if penalty.sided:
            allowed[one.columns] = np.maximum(allowed[one.columns], 0.0)
    return allowed


def _dual_size(penalty: ImbalancePenalty, slopes: Array) -> float:
    """The size of slopes that a price of this norm bounds."""
    if penalty.norm is None:
        return float(np.max(np.abs(slopes)))
    if penalty.norm == math.inf:
        return float(np.sum(np.abs(slopes)))
    return float(np.linalg.norm(slopes))


def _ratios(data: WeightingData, weights: Array) -> Array:
    return weights if data.curve.base is None else weights / data.curve.base


def _middle(slopes: Array, inside: Any) -> float:
    """The middle of the slopes of weights inside of their boxes, or of all."""
    own = slopes[inside] if np.any(inside) else slopes
    return 0.5 * (float(np.min(own)) + float(np.max(own)))


def _weight_problem(name: str, data: WeightingData) -> dict[str, Any]:
    """The problem in the weights of a dataset, number by number."""
    n = len(data.rows)
    curve = data.curve
    return {
        "rows": data.rows.tolist(),
        "targets": data.targets.tolist(),
        "linear": data.linear.tolist(),
        "base": _listed(curve.base),
        "low": curve.low.tolist(),
        "cap": curve.cap.tolist(),
        "dispersion": _dispersion(curve.dispersion),
        "prices": [_price(name, one) for one in data.priced],
        "blocks": [
            {"members": np.arange(n)[block.members].tolist(), "total": block.total}
            for block in data.blocks
        ],
    }


def _price(name: str, priced: PricedColumns) -> dict[str, Any]:
    """A price of an imbalance. Raises CertificateError for one that the checker does not read."""
    penalty = priced.penalty
    columns = priced.columns
    norms = {None: "entries", 2.0: "euclidean", math.inf: "largest"}
    if not isinstance(penalty, ImbalancePenalty) or penalty.norm not in norms:
        raise CertificateError(f"{name}: the price of its imbalance is none that the checker reads")
    tolerances = np.broadcast_to(
        np.asarray(penalty.tolerance, dtype=np.float64), columns.stop - columns.start
    )
    return {
        "columns": [columns.start, columns.stop],
        "norm": norms[penalty.norm],
        "sided": penalty.sided,
        "factor": penalty.factor if math.isfinite(penalty.factor) else None,
        "price": None if math.isfinite(penalty.factor) else penalty.price,
        "tolerances": tolerances.tolist(),
        "knee": penalty.knee if math.isfinite(penalty.knee) else None,
        "envelope": penalty.envelope,
    }


def _listed(numbers: Array | None) -> list[float] | None:
    return None if numbers is None else numbers.tolist()


def _made_of(rows: list[list[float]], records: Records) -> str | None:
    """How rows were made of the records, where that is read."""
    plain = {"x": records.X, "(2a - 1) x": (2 * records.a - 1)[:, None] * records.X}
    return next((name for name, made in plain.items() if np.array_equal(made, rows)), None)


def _problem(model: MarginModel) -> dict[str, Any]:
    """The problem of a model, number by number."""
    rows = model.whole
    weight = model.weight
    exponential = isinstance(model, ExponentialModel)
    l1 = model.penalty.l1
    return {
        "rows": rows.Z.tolist(),
        "offsets": _listed(rows.offset),
        "multipliers": _listed(rows.factor),
        "base": _listed(rows.base),
        "arm": None if rows.arm is None else rows.arm.tolist(),
        "sum": "log of exponentials" if exponential else "plain",
        "losses": [] if exponential else _losses(model.loss),
        "ridge": model.ridge,
        "linear": model.linear.tolist(),
        "l1": l1.tolist() if isinstance(l1, np.ndarray) else float(l1),
        "set": _set(model.penalty),
        "log_weights": None if weight is None else _log_weights(weight),
        "arm_total": model.arm_total,
    }


def _set(penalty: Penalty) -> dict[str, Any]:
    feasible = penalty.set
    for kind, name in ((L2Ball, "l2"), (L1Ball, "l1")):
        if isinstance(feasible, kind):
            return {"kind": name, "size": feasible.radius}
    if isinstance(feasible, Box):
        return {"kind": "box", "size": feasible.bound}
    return {"kind": "space"}


def _losses(loss: Loss) -> list[Any]:
    curves = loss.each if isinstance(loss, CurvesByArm) else (loss,)
    return [_loss(curve) for curve in curves]


def _loss(curve: Curve) -> list[dict[str, Any]]:
    return [
        {
            "coefficient": part.coefficient,
            "atom": part.atom.kind,
            "number": part.atom.number,
            "scale": part.scale,
            "shift": part.shift,
        }
        for part in curve.parts
    ]


def _dispersion(dispersion: Dispersion) -> list[dict[str, Any]]:
    return [
        {
            "coefficient": part.scale,
            "atom": part.atom,
            "number": part.number,
            "scale": part.factor,
            "shift": part.offset,
        }
        for part in dispersion.parts
    ]


def _log_weights(weight: LogOfWeight) -> list[Any]:
    each = weight.each if isinstance(weight, LogWeightsByArm) else (weight,)
    return [_tree(one) for one in each]


def _tree(node: LogWeight) -> dict[str, Any]:
    tree = {
        "operation": node.operation,
        "number": node.number,
        "parts": [_tree(part) for part in node.parts],
    }
    if node.atom is not None:
        tree |= {"atom": node.atom.kind, "number": node.atom.number}
    return tree


def _multipliers(model: MarginModel, point: Array) -> tuple[Array, Array | None, Array | None]:
    """A point near the given one, a normal vector of the set there, and slopes of the sizes.

    The point is one prox-gradient step away, where a set or sizes are felt: it has exact zeros.
    """
    penalty = model.penalty
    gradient = model.gradient(point)
    curvature = max(model.spectrum(point)[1], 1e-300)
    near = penalty.prox(point - gradient / curvature, 1 / curvature)
    sized = bool(np.any(penalty.l1))
    held = isinstance(penalty.set, ConvexSet) and _is_held(penalty.set, near)
    if not sized and not held:
        return point, None, None
    pull = -model.gradient(near)
    slopes = np.clip(pull, -np.asarray(penalty.l1), penalty.l1) if sized else np.zeros_like(near)
    slopes = np.where(near == 0.0, slopes, np.sign(near) * penalty.l1)
    normal = _normal(penalty, near, pull - slopes) if held else None
    if sized and normal is not None:
        slopes = np.where(
            near == 0.0, np.clip(pull - normal, -np.asarray(penalty.l1), penalty.l1), slopes
        )
    return near, normal, slopes if sized else None


def _is_held(feasible: ConvexSet, point: Array) -> bool:
    """True if the point is at the boundary of the set, up to rounding."""
    longer = point * (1.0 + _ON_BOUNDARY)
    return not np.array_equal(feasible.project(longer), longer)


def _normal(penalty: Penalty, point: Array, pull: Array) -> Array | None:
    """The normal vector of the set at the boundary point that is nearest to what pulls there."""
    feasible = penalty.set
    if isinstance(feasible, Box):
        at_end = np.abs(point) >= feasible.bound * (1.0 - _ON_BOUNDARY)
        return np.where(at_end & (pull * point > 0.0), pull, 0.0)
    if isinstance(feasible, L1Ball):
        signs = np.sign(point)
        share = float(pull @ signs) / max(float(np.sum(np.abs(signs))), 1.0)
        if share <= 0.0:
            return None
        return np.where(point == 0.0, np.clip(pull, -share, share), share * signs)
    share = float(pull @ point) / float(point @ point)
    return share * point if share > 0.0 else None


def _radius(
    model: MarginModel, solution: Solution, evidence: checker.MarginProof, point: Sequence[Any]
) -> tuple[float, float]:
    """The radius that is claimed, and the curvature that proves it; CertificateError for none."""
    residual = float(evidence.residual)
    missing = float(evidence.missing)
    apart = float(evidence.distance(point)) * _ROUND_UP
    near = np.array([float(number) for number in evidence.x])
    claimed = solution.certificate.radius
    reach = claimed if math.isfinite(claimed) else 1.0
    for _ in range(40):
        for curvature in (
            model.ridge,
            model.lowest_within(near, reach) * (1.0 - 1e-6),
            _local(model, near, reach),
        ):
            if curvature <= 0.0:
                continue
            needed = (residual + math.sqrt(residual**2 + 4.0 * curvature * missing)) / (
                2.0 * curvature
            )
            needed = needed * _ROUND_UP + apart + 1e-300
            radius = max(needed, claimed) if math.isfinite(claimed) else needed
            if radius > reach * _ROUND_UP and curvature != model.ridge:
                continue
            if evidence.proves(point, checker.exact(radius), checker.exact(curvature)):
                return radius, curvature
        reach *= 4.0
    raise CertificateError("nothing is proved about this point by the method of the checker")


def _local(model: MarginModel, point: Array, reach: float) -> float:
    """The least eigenvalue of the Hessian within a reach of a point, by self-concordance."""
    if math.isinf(model.self_concordance) or model.shifted:
        return 0.0
    lowest, _ = model.spectrum(point)
    return lowest * math.exp(-min(model.self_concordance * reach, 700.0)) * (1.0 - 1e-6)
