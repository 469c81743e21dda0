"""Files of schema 2, which kept what the steps spent in three places."""

from __future__ import annotations

from typing import Any

#: What composition put behind the theorem of theta.
_VALUE = ", then Laplace noise for the value"
_PROPENSITY = {"epsilon", "delta", "noise", "scale", "gamma", "theorem"}
_MECHANISM = {
    *("perturbed", "noise", "scale", "gamma", "split", "stability", "weight_bound", "sensitivity"),
    *("gradient_radius", "hessian_trace", "strong_convexity", "reason"),
}


def upgraded(plain: dict[str, Any]) -> dict[str, Any]:
    """The same release in schema 3, for the reader to judge.

    A file of schema 2 does not state what theta spent: it is what the others leave of the whole, the most
    that it can have spent. Raises ValueError or TypeError for what is no file of schema 2.
    """
    if "steps" in plain:
        raise ValueError("schema_version 2 has no steps")
    rest = {name: stated for name, stated in plain.items() if name not in ("mechanism", "value")}
    guarantee, value = _named("guarantee", plain.get("guarantee")), plain.get("value")
    mechanism = _named("mechanism", plain.get("mechanism"), _MECHANISM, {"propensity", "numerical"})
    others, last = [], []
    if (propensity := mechanism.pop("propensity", None)) is not None:
        stated = _named("mechanism.propensity", propensity, _PROPENSITY, {"numerical"})
        # Theorem 9: at weights 1
        fixed = {"step": "propensity", "perturbed": "objective", "stability": 2.0, "weight_bound": 1.0}
        others.append(fixed | stated)
    if value is not None:
        last.append(_value(_named("value", value), mechanism))
    theta = {
        "step": "theta",
        "epsilon": _left(guarantee, others + last, "epsilon"),
        "delta": 0.0 if mechanism["noise"] == "gamma" else _left(guarantee, others + last, "delta"),
        "theorem": _theorem_of_theta(str(guarantee.get("theorem")), others),
    }
    return rest | {"steps": [*others, theta | mechanism, *last], "value": value, "schema_version": 3}


def _named(
    name: str, stated: Any, required: set[str] | None = None, optional: set[str] | None = None
) -> dict[str, Any]:
    if not isinstance(stated, dict):
        raise ValueError(f"{name}: must be an object")
    if required is not None and not required <= stated.keys() <= required | (optional or set()):
        odd = sorted((required - stated.keys()) | (stated.keys() - required - (optional or set())))
        raise ValueError(f"{name}: {odd[0]} is missing, or has no place here")
    return dict(stated)


def _value(value: dict[str, Any], mechanism: dict[str, Any]) -> dict[str, Any]:
    return {
        "step": "value",
        "epsilon": value.get("epsilon"),
        "delta": 0.0,
        "theorem": _VALUE.removeprefix(", then "),
        "perturbed": "output",
        "noise": "gamma",
        "scale": value.get("scale"),
        "gamma": 0.0,
        "stability": mechanism["stability"],
        "weight_bound": mechanism["weight_bound"],
    }


def _left(guarantee: dict[str, Any], others: list[dict[str, Any]], name: str) -> float:
    return float(guarantee.get(name, "nothing")) - sum(float(other[name]) for other in others)


def _theorem_of_theta(theorem: str, others: list[dict[str, Any]]) -> str:
    alone = theorem.removesuffix(_VALUE)
    for other in others:
        alone = alone.removeprefix(f"Theorem 9 (composition) of {other['theorem']} and ")
    return alone
