"""Certificates and releases that somebody changed, for the tests of the checker: none of them
holds.
"""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from dp2erm_cvx import checker

Document = dict[str, Any]


def sealed(certificate: Document) -> Document:
    """The certificate with the digest of its entries, as a careful forger leaves it."""
    certificate["digest"] = checker.digest(certificate)
    return certificate


def _at(entries: list[float], place: int, change: Callable[[float], float]) -> None:
    entries[place] = change(entries[place])


def _largest(entries: list[float]) -> int:
    return max(range(len(entries)), key=lambda place: abs(entries[place]))


def _moved_point(one: Document, draw: random.Random) -> None:
    distance = 3.0 * one["claim"]["radius"] + 1e-13 * abs(max(one["point"], key=abs))
    _at(one["point"], _largest(one["point"]), lambda number: number + distance)


def _smaller_radius(one: Document, draw: random.Random) -> None:
    one["claim"]["radius"] = 1e-30


def _other_row(one: Document, draw: random.Random) -> None:
    rows = one["problem"]["rows"]
    row = rows[draw.randrange(len(rows))]
    _at(row, _largest(row), lambda number: number + 0.01 * max(abs(number), 1.0))
    one["rows_are"] = None


def _other_record(one: Document, draw: random.Random) -> None:
    if one["records"] is None:
        _other_row(one, draw)
        return
    rows = one["records"]["x"]
    _at(rows[draw.randrange(len(rows))], 0, lambda number: number + 0.01)


def _other_ridge(one: Document, draw: random.Random) -> None:
    one["problem"]["ridge"] += 0.01 * max(one["problem"]["ridge"], 1.0)


def _other_term(one: Document, draw: random.Random) -> None:
    terms = one["problem"]["linear"]
    _at(terms, draw.randrange(len(terms)), lambda number: number + 0.1)


def _other_weights(one: Document, draw: random.Random) -> None:
    weights = one["claim"]["weights"]
    if weights is None:
        _smaller_radius(one, draw)
        return
    distance = 3.0 * one["claim"]["weights_radius"] + 1e-9
    _at(weights, draw.randrange(len(weights)), lambda number: number + distance)


def _other_curvature(one: Document, draw: random.Random) -> None:
    one["proof"]["curvature"] *= 1e6
    one["claim"]["radius"] /= 1e3


def _other_set(one: Document, draw: random.Random) -> None:
    one["problem"]["set"] = {"kind": "l2", "size": 1e-6}


def _other_target(one: Document, draw: random.Random) -> None:
    targets = one["problem"]["targets"]
    beyond = 2.0 * len(one["point"])  # any tolerance
    _at(targets, draw.randrange(len(targets)), lambda number: number + beyond)


def _other_features(one: Document, draw: random.Random) -> None:
    rows, beyond = one["problem"]["rows"], 4.0 * len(one["point"])
    row = rows[_largest(one["point"])]
    _at(row, draw.randrange(len(row)), lambda number: number + beyond)


def _other_sum(one: Document, draw: random.Random) -> None:
    draw.choice(one["problem"]["blocks"])["total"] += 0.1


def _other_dispersion(one: Document, draw: random.Random) -> None:
    one["problem"]["dispersion"].append(
        {"atom": "square", "coefficient": 0.1, "scale": 1.0, "shift": 0.0, "number": 0.0}
    )


def _other_slope(one: Document, draw: random.Random) -> None:
    slopes = one["proof"]["slopes"]
    _at(slopes, draw.randrange(len(slopes)), lambda number: number + 0.1 * max(abs(number), 0.1))


def _other_caps(one: Document, draw: random.Random) -> None:
    place = _largest(one["point"])
    one["problem"]["cap"][place] = 0.5 * one["point"][place]


CERTIFICATES = {
    "sum over records": (
        _moved_point,
        _smaller_radius,
        _other_row,
        _other_record,
        _other_ridge,
        _other_term,
        _other_weights,
        _other_curvature,
        _other_set,
    ),
    "weights as the variable": (
        _moved_point,
        _smaller_radius,
        _other_features,
        _other_target,
        _other_sum,
        _other_dispersion,
        _other_slope,
        _other_caps,
    ),
}


def forged_certificates(certificate: Document, seed: int) -> Iterator[tuple[str, Document]]:
    """Every forgery of a certificate, with its name and a digest made anew."""
    draw = random.Random(seed)
    for forge in CERTIFICATES[certificate["form"]]:
        one = copy.deepcopy(certificate)
        forge(one, draw)
        yield forge.__name__, sealed(one)


def _part(step: Document) -> float:
    """A part of a scale or an epsilon that is needed: a supremum in a ball is known to a
    thousandth.
    """
    return 1e-2 if step["theorem"].startswith("Theorem 19") else 1e-6


def _smaller_scale(one: Document, draw: random.Random) -> None:
    step = draw.choice(one["steps"])
    place = step if step["theorem"] != "Theorem 8 (output perturbation)" else step["numerical"]
    place["scale"] *= 1.0 - _part(step)


def _smaller_charge(one: Document, draw: random.Random) -> None:
    step = draw.choice(one["steps"])
    step["epsilon"] *= 1.0 - _part(step)


def _smaller_guarantee(one: Document, draw: random.Random) -> None:
    one["guarantee"]["epsilon"] *= 1.0 - 1e-6


def _larger_guarantee(one: Document, draw: random.Random) -> None:
    one["guarantee"]["epsilon"] *= 1.0 + 1e-6


def _smaller_stability(one: Document, draw: random.Random) -> None:
    draw.choice(one["steps"])["stability"] = 1.9


def _larger_sensitivity(one: Document, draw: random.Random) -> None:
    step = draw.choice(one["steps"])
    step["sensitivity"] *= 1.0 + _part(step)
    if step["gradient_radius"] is not None:
        step["gradient_radius"] *= 1.0 + _part(step)


def _unpaid_step(one: Document, draw: random.Random) -> None:
    one["steps"].append(copy.deepcopy(draw.choice(one["steps"])))


def _seeded(one: Document, draw: random.Random) -> None:
    one["guarantee"]["standing"] = "not private: seeded noise"


def _with_delta(one: Document, draw: random.Random) -> None:
    draw.choice(one["steps"])["delta"] = 1e-6


def _other_theorem(one: Document, draw: random.Random) -> None:
    draw.choice(one["steps"])["theorem"] = "Theorem 99 (of a forger)"


def _no_noise(one: Document, draw: random.Random) -> None:
    draw.choice(one["steps"])["scale"] = 0.0


def _other_goal(one: Document, draw: random.Random) -> None:
    one["declared"]["goal"] = "effect" if one["declared"]["goal"] == "weighted" else "weighted"
    one["guarantee"]["stability_theorem"] = "Theorem 5 (one sum)"


RELEASES = (
    _other_goal,
    _smaller_scale,
    _smaller_charge,
    _smaller_guarantee,
    _larger_guarantee,
    _smaller_stability,
    _larger_sensitivity,
    _unpaid_step,
    _seeded,
    _with_delta,
    _other_theorem,
    _no_noise,
)


def forged_releases(release: Document, seed: int) -> Iterator[tuple[str, Document]]:
    """Every forgery of a release, with its name."""
    draw = random.Random(seed)
    for forge in RELEASES:
        one = copy.deepcopy(release)
        forge(one, draw)
        yield forge.__name__, one
