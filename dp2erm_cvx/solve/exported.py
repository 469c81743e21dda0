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
from dp2erm_cvx.weighting.solving.dual import DualSolution

#: Claims are rounded up by this factor, so that the checker proves them in its own arithmetic.
_CLAIM_ROUND_UP = 1.0 + 1e-6
#: What a computed curvature is rounded down by, for the same.
_CURVATURE_ROUND_DOWN = 1.0 - 1e-6
#: Slopes of a price at most this part of its largest slope stay at most that, rounded.
_SLOPE_ROUND_DOWN = 1.0 - 1e-14
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
    if not _is_plain_scheme(resolved):
        raise CertificateError(f"{program.name}: V of its form is none that the checker bounds")
    assert isinstance(resolved, SeparableFirstStage)
    ball = resolved.ball(universe.space)
    radius = None
    if math.isfinite(ball):
        radius = ball
    (curves,) = resolved.curves
    assert isinstance(curves.loss, Curve)
    assert isinstance(curves.weight, LogWeight)
    problem = {
        "n": universe.n_samples,
        "ridge": resolved.mu,
        "row_norm": resolved.row_bound(universe.space),
        "radius": radius,
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
        "claim": {"V": float(proved) * _CLAIM_ROUND_UP},
    }
    return body | {"digest": checker.digest(body)}


def _is_plain_scheme(program: FirstStage) -> bool:
    """Whether it is a scheme by margins of one curve for all records, and nothing beside."""
    if isinstance(program, PrivateFirstStage | BalancedProgram):
        return False
    if not isinstance(program, SeparableFirstStage):
        return False
    return program.is_plain and len(program.curves) == 1


def _of_margins(model: MarginModel, solution: Solution, records: Records) -> dict[str, Any]:
    """Problem, data, point, proof and claim of a sum over records."""
    problem = _problem(model)
    point = solution.point.tolist()
    near, normal, slopes = _multipliers(model, solution.point)
    proof: dict[str, Any] = {
        "at": near.tolist(),
        "normal": _listed(normal),
        "slopes": _listed(slopes),
    }
    stated = checker.MarginProblem(problem)
    evidence = checker.MarginProof(stated, proof)
    exact_point = [checker.exact(number) for number in point]
    radius, proof["curvature"] = _proved_radius(model, solution, evidence, exact_point)
    weights = None
    weights_radius = None
    if model.weight is not None:
        weights = solution.value.tolist()
        exact_weights = [checker.exact(number) for number in weights]
        exact_radius = checker.exact(radius)
        distance = checker.distance_of_weights(stated, exact_point, exact_radius, exact_weights)
        weights_radius = max(solution.certificate.output_radius, float(distance) * _CLAIM_ROUND_UP)
    rows_are = _made_of(problem["rows"], records)
    stated_records = None
    if rows_are is not None:
        stated_records = {"x": records.X.tolist(), "a": records.a.tolist()}
    return {
        "problem": problem,
        "rows_are": rows_are,
        "records": stated_records,
        "point": point,
        "proof": proof,
        "claim": {"radius": radius, "weights": weights, "weights_radius": weights_radius},
    }


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


def _losses(loss: Loss) -> list[Any]:
    """The loss of all records, or those of both arms."""
    curves = loss.each if isinstance(loss, CurvesByArm) else (loss,)
    return [_loss(curve) for curve in curves]


def _loss(curve: Curve) -> list[dict[str, Any]]:
    """The parts of a loss."""
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


def _log_weights(weight: LogOfWeight) -> list[Any]:
    """The log weight of all records, or those of both arms."""
    log_weights = weight.each if isinstance(weight, LogWeightsByArm) else (weight,)
    return [_tree(log_weight) for log_weight in log_weights]


def _tree(node: LogWeight) -> dict[str, Any]:
    """A log weight and all that it is made of."""
    tree = {
        "operation": node.operation,
        "number": node.number,
        "parts": [_tree(part) for part in node.parts],
    }
    if node.atom is not None:
        tree |= {"atom": node.atom.kind, "number": node.atom.number}
    return tree


def _set(penalty: Penalty) -> dict[str, Any]:
    """The set of a penalty: its kind and its size."""
    feasible = penalty.set
    if isinstance(feasible, L2Ball):
        return {"kind": "l2", "size": feasible.radius}
    if isinstance(feasible, L1Ball):
        return {"kind": "l1", "size": feasible.radius}
    if isinstance(feasible, Box):
        return {"kind": "box", "size": feasible.bound}
    return {"kind": "space"}


def _multipliers(model: MarginModel, point: Array) -> tuple[Array, Array | None, Array | None]:
    """A point near the given one, a normal vector of the set there, and slopes of the sizes.

    Where a set or sizes are felt, the point is one prox-gradient step away: it has exact zeros.
    """
    penalty = model.penalty
    curvature = max(model.spectrum(point)[1], 1e-300)
    near = penalty.prox(point - model.gradient(point) / curvature, 1 / curvature)
    has_sizes = bool(np.any(penalty.l1))
    is_on_boundary = False
    if isinstance(penalty.set, ConvexSet):
        is_on_boundary = not penalty.set.is_inside(near, _ON_BOUNDARY)
    if not has_sizes and not is_on_boundary:
        return point, None, None
    pull = -model.gradient(near)
    slopes = _slopes_of_sizes(penalty, near, pull)
    normal = None
    if is_on_boundary:
        normal = _normal(penalty, near, pull - slopes)
    if not has_sizes:
        return near, normal, None
    if normal is not None:
        slopes = _slopes_of_sizes(penalty, near, pull - normal)
    return near, normal, slopes


def _slopes_of_sizes(penalty: Penalty, point: Array, pull: Array) -> Array:
    """Slopes of the prices of the sizes of all entries; at 0 those that are nearest to the pull."""
    at_zero = np.clip(pull, -np.asarray(penalty.l1), penalty.l1)
    return np.where(point == 0.0, at_zero, np.sign(point) * penalty.l1)


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


def _proved_radius(
    model: MarginModel, solution: Solution, evidence: checker.MarginProof, point: Sequence[Any]
) -> tuple[float, float]:
    """The radius that is claimed, and the curvature that proves it; CertificateError for none.

    The checker proves a distance D to the point of its proof where ``c D^2 > r D + m``, r the
    residual, m what is missing, and c the curvature. That is from
    ``D = (r + sqrt(r^2 + 4 c m)) / (2 c)`` on. The ridge is a curvature anywhere, any other one
    within a distance of the point alone, which is tried in multiples of 4.
    """
    residual = float(evidence.residual)
    missing = float(evidence.missing)
    to_point = float(evidence.distance(point)) * _CLAIM_ROUND_UP
    near = np.array([float(number) for number in evidence.x])
    claimed = solution.certificate.radius
    largest_distance = claimed if math.isfinite(claimed) else 1.0
    for _ in range(40):
        for curvature in _curvatures(model, near, largest_distance):
            if curvature <= 0.0:
                continue
            root = math.sqrt(residual**2 + 4.0 * curvature * missing)
            distance = (residual + root) / (2.0 * curvature)
            radius = distance * _CLAIM_ROUND_UP + to_point + 1e-300
            if math.isfinite(claimed):
                radius = max(radius, claimed)
            if radius > largest_distance * _CLAIM_ROUND_UP and curvature != model.ridge:
                continue
            if evidence.proves(point, checker.exact(radius), checker.exact(curvature)):
                return radius, curvature
        largest_distance *= 4.0
    raise CertificateError("nothing is proved about this point by the method of the checker")


def _curvatures(model: MarginModel, point: Array, distance: float) -> tuple[float, ...]:
    """Curvatures of a model within a distance of a point: of its ridge, its rows, its Hessian."""
    by_rows = model.lowest_within(point, distance) * _CURVATURE_ROUND_DOWN
    return model.ridge, by_rows, _local_curvature(model, point, distance)


def _local_curvature(model: MarginModel, point: Array, distance: float) -> float:
    """The least eigenvalue of the Hessian within a distance of a point, by self-concordance."""
    if math.isinf(model.self_concordance) or model.shifted:
        return 0.0
    lowest, _ = model.spectrum(point)
    exponent = min(model.self_concordance * distance, 700.0)
    return lowest * math.exp(-exponent) * _CURVATURE_ROUND_DOWN


def _made_of(rows: list[list[float]], records: Records) -> str | None:
    """How rows were made of the records, where that is read."""
    makings = {"x": records.X, "(2a - 1) x": (2 * records.a - 1)[:, None] * records.X}
    for making, made in makings.items():
        if np.array_equal(made, rows):
            return making
    return None


def _of_weights(name: str, model: WeightsModel, solution: Solution) -> dict[str, Any]:
    """Problem, point, proof and claim of weights that are the variable."""
    if model.dual is None or model.form.hard:
        raise CertificateError(f"{name}: no distance is proved under constraints of the imbalance")
    data = model.dual.data
    if data.similarities:
        raise CertificateError(f"{name}: prices of kernels are none that the checker reads")
    problem = _weight_problem(name, data)
    proof = {
        "weights": model.anchor.weights.tolist(),
        "slopes": _allowed(data, model.anchor.prices).tolist(),
        "multipliers": _multipliers_of_sums(data, model.anchor),
    }
    evidence = checker.WeightProof(checker.WeightProblem(problem), proof)
    point = solution.point.tolist()
    radius = _proved_radius_of_weights(name, model.form.n, solution, evidence)
    return {"problem": problem, "point": point, "proof": proof, "claim": {"radius": radius}}


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


def _dispersion(dispersion: Dispersion) -> list[dict[str, Any]]:
    """The parts of a dispersion."""
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


def _price(name: str, priced: PricedColumns) -> dict[str, Any]:
    """A price of an imbalance. Raises CertificateError for one that the checker does not read."""
    penalty = priced.penalty
    columns = priced.columns
    norms = {None: "entries", 2.0: "euclidean", math.inf: "largest"}
    if not isinstance(penalty, ImbalancePenalty) or penalty.norm not in norms:
        raise CertificateError(f"{name}: the price of its imbalance is none that the checker reads")
    stated_tolerance = np.asarray(penalty.tolerance, dtype=np.float64)
    tolerances = np.broadcast_to(stated_tolerance, columns.stop - columns.start)
    factor = None
    price = None
    if math.isfinite(penalty.factor):
        factor = penalty.factor
    else:
        price = penalty.price
    knee = None
    if math.isfinite(penalty.knee):
        knee = penalty.knee
    return {
        "columns": [columns.start, columns.stop],
        "norm": norms[penalty.norm],
        "sided": penalty.sided,
        "factor": factor,
        "price": price,
        "tolerances": tolerances.tolist(),
        "knee": knee,
        "envelope": penalty.envelope,
    }


def _allowed(data: WeightingData, slopes: Array) -> Array:
    """The slopes of prices (K,), no larger than any slope of a price that has a largest one."""
    allowed = slopes.copy()
    for priced in data.priced:
        penalty = priced.penalty
        if not isinstance(penalty, ImbalancePenalty):
            continue
        largest = _largest_slope(penalty)
        of_columns = allowed[priced.columns]
        size = _dual_size(penalty, of_columns)
        if math.isfinite(largest) and size > largest * _SLOPE_ROUND_DOWN:
            allowed[priced.columns] = of_columns * (largest / size * _SLOPE_ROUND_DOWN)
        if penalty.sided:
            allowed[priced.columns] = np.maximum(allowed[priced.columns], 0.0)
    return allowed


def _largest_slope(penalty: ImbalancePenalty) -> float:
    """The largest slope of a price: of a norm its factor, of a square that of its knee."""
    if math.isinf(penalty.factor):
        return penalty.price
    return 2.0 * penalty.factor * penalty.knee


def _dual_size(penalty: ImbalancePenalty, slopes: Array) -> float:
    """The size of slopes that a price of this norm bounds."""
    if penalty.norm is None:
        return float(np.max(np.abs(slopes)))
    if penalty.norm == math.inf:
        return float(np.sum(np.abs(slopes)))
    return float(np.linalg.norm(slopes))


def _multipliers_of_sums(data: WeightingData, anchor: DualSolution) -> list[float]:
    """A multiplier of the sum of every block, by which the slopes of weights in boxes vanish."""
    ratios = anchor.weights
    if data.curve.base is not None:
        ratios = anchor.weights / data.curve.base
    slope = data.curve.dispersion.slope(ratios)
    slope = slope + data.rows @ anchor.prices + data.linear
    is_inside = (anchor.weights > data.curve.low) & (anchor.weights < data.curve.cap)
    multipliers = []
    for block in data.blocks:
        multipliers.append(-_middle(slope[block.members], is_inside[block.members]))
    return multipliers


def _middle(slopes: Array, is_inside: Any) -> float:
    """The middle of the slopes of weights inside of their boxes, or of all where none is inside."""
    if np.any(is_inside):
        slopes = slopes[is_inside]
    return 0.5 * (float(np.min(slopes)) + float(np.max(slopes)))


def _proved_radius_of_weights(
    name: str, n: int, solution: Solution, evidence: checker.WeightProof
) -> float:
    """The radius that is claimed of weights; CertificateError where none is proved.

    The checker proves a distance D to the weights of its proof where ``D^2 > (r D + m) R(D)``, r
    the residual, m what is missing, and R(D) the response within D of them. With R at a larger
    distance this holds from ``D = r R / 2 + sqrt((r R / 2)^2 + R m)`` on.
    """
    point = [checker.exact(number) for number in solution.point.tolist()]
    to_point = float(evidence.distance(point)) * _CLAIM_ROUND_UP
    largest_distance = 1e-12 * n
    for _ in range(60):
        exact_distance = checker.exact(largest_distance)
        response = float(evidence.problem.response(evidence.w, exact_distance))
        half = 0.5 * response * float(evidence.residual)
        distance = half + math.sqrt(half * half + response * float(evidence.missing))
        distance = distance * _CLAIM_ROUND_UP + 1e-300
        radius = max(distance + to_point, solution.certificate.radius)
        if distance <= largest_distance and evidence.proves(point, checker.exact(radius)):
            return radius
        largest_distance *= 4.0
    raise CertificateError(
        f"{name}: nothing is proved about these weights by the method of the checker"
    )


def _listed(numbers: Array | None) -> list[float] | None:
    """An array as a list; None for None."""
    return None if numbers is None else numbers.tolist()
