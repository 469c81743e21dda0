"""Hostile arrays, universes, budgets and settings through the estimator."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, registry
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.errors import DataError, Dp2ermError
from dp2erm_cvx.model.sets import ElasticNet, L2Ball
from dp2erm_cvx.program import Box, Gaussian, L1Ball, Moments, WholeSpace
from dp2erm_cvx.program.kernels import Laplace, Linear, PublicSample, RandomFourier
from dp2erm_cvx.release import Standing
from tests.hostile.outcome import (
    CALM,
    HUGE,
    TINY,
    WRONG,
    Failure,
    Generator,
    Outcome,
    happens,
    pick,
    public_refusal,
    setting,
    strict_json,
)

SETTINGS: dict[str, tuple[Any, ...]] = {
    "ridge": (1.0, 0.1, 10.0, 0.001, 0.0), "radius": (1.0, 0.5, 10.0, float("inf")),
    "trim": (5.0, 2.0, 1.5, 100.0, float("inf")), "cap": (5.0, 2.0, float("inf")),
    "propensity": (0.5, 0.1, 0.999, 1e-9), "share": (0.3, 0.01, 0.99), "constant": (1.0, 0.1, 10.0),
    "alpha": (0.5, 0.0, 1.0), "arm_mass": ("equal", "proportional"),
    "scaling": ("public", "public", "paper"), "tolerance": (0.05, 0.5, 1e-3),
}  # fmt: skip


def first_stage(rng: Generator, n: int, columns: int) -> Any:
    known = registry.first_stages()
    name = pick(rng, known) if not happens(rng, 0.02) else pick(rng, ("itr", "nope", None, 3))
    if name not in known or happens(rng, 0.2):
        return name
    settings: dict[str, Any] = {}
    for field in known[name].__dataclass_fields__:
        if field == "coefficient":
            size = columns if not happens(rng, 0.1) else int(rng.integers(0, 5))
            settings[field] = tuple(setting(rng, (0.1, -2.0, 30.0, 1000.0)) for _ in range(size))
        elif happens(rng, 0.5):
            continue
        elif field == "balance":
            settings[field] = Moments(pick(rng, (1, 2, 3, 10))) if not happens(rng, 0.05) else "x"
        elif field == "kernel":
            kind = pick(rng, (Gaussian, Laplace, Linear, RandomFourier))
            settings[field] = kind(setting(rng, (1.0, 0.1, 10.0)))
        elif field == "target":
            width = columns if not happens(rng, 0.1) else int(rng.integers(1, 5))
            settings[field] = PublicSample(covariates(rng, int(rng.integers(1, 9)), width))
        elif field == "base_measure":
            if happens(rng, 0.1):
                settings[field] = tuple(setting(rng, (1.0, 2.0)) for _ in range(n))
        elif field in SETTINGS:
            wild = 0.1 if isinstance(SETTINGS[field][0], float) else 0.0
            settings[field] = setting(rng, SETTINGS[field], wild) if happens(rng, 0.97) else "nope"
    return known[name](**settings)


def second_stage(rng: Generator) -> Any:
    known = registry.second_stages()
    name = pick(rng, known) if not happens(rng, 0.02) else pick(rng, ("uniform", "nope", None))
    if name not in known or happens(rng, 0.4):
        return name
    settings: dict[str, Any] = {}
    if happens(rng, 0.6):
        kind = pick(rng, (L1Ball, L2Ball, Box, L1Ball, L2Ball, Box, WholeSpace))
        settings["theta_set"] = kind() if kind is WholeSpace else kind(setting(rng, (1.0, 0.1, 50.0)))
    if happens(rng, 0.3):
        settings["regularizer"] = ElasticNet(setting(rng, (0.0, 0.1, 10.0)), setting(rng, (0.0, 0.1, 10.0)))
    linear = "features" in known[name].__dataclass_fields__
    if "threshold" in known[name].__dataclass_fields__ and happens(rng, 0.5):
        settings["threshold"] = setting(rng, (1.0, 1e-3, 1e3))
    if linear and happens(rng, 0.2):
        settings["features"] = pick(rng, ((0,), (1, 0), ("x1",), (0, 0), (), ("x9",), (99,), "x1", (True,)))
    if linear and happens(rng, 0.2):
        settings["features_bound"] = setting(rng, (1.0, 0.1))
    return known[name](**settings)


#: What a rule of an author's own may return at one record: what reads it, and what is no choice.
RULES = {
    "effects": lambda effect, x: effect,
    "nothing": lambda effect, x: np.nan,
    "infinities": lambda effect, x: np.inf if effect > 0 else -np.inf,
    "another shape": lambda effect, x: np.ones((2, 3)),
    "one for all": lambda effect, x: True,
    "less than none": lambda effect, x: -1.0,
}


def with_choices(rng: Generator, second: Any) -> Any:
    """The same second stage with a rule of an author's own, if it is one."""
    known = registry.second_stages()
    try:
        program = known[second]() if isinstance(second, str) else second
    except (KeyError, Dp2ermError):
        return second
    if type(program) not in known.values():
        return second
    members = {"treats": staticmethod(RULES[pick(rng, RULES)]), "name": "of_an_author", "_made": True}
    made = type("OfAnAuthor", (type(program),), {"__module__": __name__, **members})
    settings = {field.name: getattr(program, field.name) for field in dataclasses.fields(program)}
    return dataclasses.dataclass(frozen=True)(made)(**settings)


def universe(rng: Generator, n: int, p: int) -> Domain:
    bound = setting(rng, (1.0, 2.0, 0.01, 1000.0))
    declared: dict[str, Any] = {"covariate_bound": bound, "outcome_bound": setting(rng, (1.0, 0.01, 1000.0))}
    if happens(rng, 0.3):
        declared["intercept"] = setting(rng, (0.001, 0.5 * bound if isinstance(bound, float) else 1.0))
    for name in ("outcome_center", "treatment_cost"):
        if happens(rng, 0.2):
            declared[name] = setting(rng, (0.0, -3.5, 100.0), wild=0.3)
    if happens(rng, 0.3):
        width = p if not happens(rng, 0.1) else int(rng.integers(0, 8))
        low = [setting(rng, (-1.0, 0.0), wild=0.05) for _ in range(width)]
        pairs = [(end, setting(rng, (1.0, 5.0), wild=0.05)) for end in low]
        declared["ranges"] = dict(zip((f"x{k + 1}" for k in range(width)), pairs, strict=True))
        if happens(rng, 0.5):
            declared["ranges"] = pairs
    if happens(rng, 0.4):
        declared["arm_floor"] = setting(rng, (1, 1, 2, n // 2), wild=0.05)
    if happens(rng, 0.2):
        kinds = ("replace-one", "replace-one-keep-treatment", "nope", None)
        declared["relation"] = pick(rng, kinds[: 2 if CALM[0] else 4])
    return Domain(**declared)


def budget(rng: Generator) -> Budget:
    epsilons = (1.0, 0.1, 10.0, 1e-3, 1e-6, 1e-100, 50.0, 1e3, 1e6, 1e7)
    deltas = (0.0, 0.0, 1e-6, 1e-6, 0.1, 0.5, 1e-12, 1e-100, 1e-300, 0.999, 1 - 1e-16)
    return Budget(setting(rng, epsilons), setting(rng, deltas))


def covariates(rng: Generator, n: int, p: int) -> np.ndarray:
    X = rng.uniform(-1, 1, (n, p))
    shape = pick(rng, ("plain", "constant", "duplicates", "scaled", "separated", "cells", "zero"))
    if shape == "constant":
        X[:, int(rng.integers(p))] = pick(rng, (0.0, 1.0, *HUGE, *TINY))
    elif shape == "duplicates":
        X[:] = X[0]
    elif shape == "scaled":
        X *= np.array([pick(rng, (1.0, *HUGE[:-1], *TINY)) for _ in range(p)])
    elif shape == "cells":
        for _ in range(int(rng.integers(1, 4))):
            X[rng.integers(n), rng.integers(p)] = pick(rng, (*HUGE, *TINY, -1e300, 0.0))
    elif shape == "zero":
        X[:] = 0.0
    elif shape == "separated":
        X[:, 0] = np.sort(X[:, 0])
    return X


def treatments(rng: Generator, n: int) -> np.ndarray:
    shape = pick(rng, ("random", "random", "random", "one", "single", "sorted"))
    if shape == "one":
        return np.full(n, int(rng.integers(2)))
    if shape == "single":
        return np.arange(n) == int(rng.integers(n))
    if shape == "sorted":
        return (np.arange(n) >= n // 2).astype(int)
    return rng.integers(0, 2, n)


def outcomes(rng: Generator, n: int) -> np.ndarray:
    y = rng.normal(size=n)
    shape = pick(rng, ("plain", "plain", "constant", "scaled", "cells"))
    if shape == "constant":
        y[:] = pick(rng, (0.0, 1.0, *HUGE, *TINY))
    elif shape == "scaled":
        y = y * pick(rng, (*HUGE[:-1], *TINY))
    elif shape == "cells":
        y[rng.integers(n)] = pick(rng, (*HUGE, *TINY, -1e300))
    return y


def spoiled(rng: Generator, values: np.ndarray, columns: list[str] | None = None) -> Any:
    """The array with a wrong cell, dtype, shape or container."""
    how = int(rng.integers(11))
    if how == 0:
        values = values.astype(object)
        scalars = (thing for thing in WRONG if np.ndim(thing) == 0)
        values.flat[int(rng.integers(values.size))] = pick(rng, scalars)
    elif how == 1:
        values = values.astype(np.float64)
        values.flat[int(rng.integers(values.size))] = pick(rng, (np.nan, np.inf, -np.inf))
    elif how == 2:
        kinds = ("S8", "U8", "float32", "float16", "complex128", "int64", "bool", "longdouble", "object")
        values = np.clip(values.astype(np.float64), -1e4, 1e4).astype(pick(rng, kinds))
    elif how == 3:
        return np.ma.masked_array(values, mask=rng.uniform(size=values.shape) < 0.2)
    elif how == 4:
        return values.tolist()
    elif how == 5:
        return pick(
            rng, (values[:-1], values[..., None], values.ravel()[:1], values[:0], values.T, values[:1])
        )
    elif how == 6:
        nested: list[Any] = values.tolist()
        nested[-1] = pick(rng, ([1.0, [2.0]], [], None, "x", [[]]))
        return nested
    elif how == 7:
        return pick(rng, (None, 1.0, "abc", {}, {1, 2}, object(), iter([1]), b"\xff", [], [[]], range(5)))
    elif how == 8 and values.ndim == 2:
        names = columns or [f"x{k + 1}" for k in range(values.shape[1])]
        names[-1] = pick(rng, (names[0], names[-1], "a", "y", "", "\n", 3, None, ("t", 1)))
        return pd.DataFrame(values, columns=names)
    elif how == 9 and values.ndim == 2:
        frame = pd.DataFrame(values, columns=columns)
        kind = pick(rng, ("category", "string", "Float64", "boolean", "datetime64[ns]", "object"))
        try:
            frame[frame.columns[0]] = frame[frame.columns[0]].astype(kind)
        except (TypeError, ValueError, RuntimeWarning):  # a UnicodeEncodeError is a ValueError
            frame[frame.columns[0]] = pd.NA
        return frame
    elif how == 10:
        return pd.Series(list(values), dtype=object)
    return values


def benign(n: int, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Easy records of the same shape, with both arms as even as can be."""
    X = np.linspace(-0.9, 0.9, n * p).reshape(n, p)
    return X, np.arange(n) % 2, np.linspace(-0.5, 0.5, n)


def case(rng: Generator) -> Outcome:
    CALM[0] = happens(rng, 0.5)
    n, p = int(pick(rng, (2, 2, 3, 5, 8, 12, 20, 30))), int(rng.integers(1, 7))
    data: list[Any] = [covariates(rng, n, p), treatments(rng, n), outcomes(rng, n)]
    public = {abs(value) for value in (*HUGE, *TINY)}
    private = [value for value in (*data[0].ravel(), *data[2]) if abs(value) not in public]
    for k in range(3):
        if happens(rng, 0.15):
            data[k] = spoiled(rng, data[k])
    domain = universe(rng, n, p)
    columns = p + (1 if domain.intercept else 0)
    model = PrivateTwoStageERM(
        domain,
        budget(rng),
        first_stage(rng, n, columns),
        second_stage(rng),
        calibration=pick(
            rng, ("sharp",) * 6 + ("paper", "paper-corrected", "renyi", "output", "auto", "nope")
        ),
        noise=pick(rng, ("gamma", "gamma", "gaussian", "nope", None)[: 3 if happens(rng, 0.95) else 5]),
        split=setting(rng, (None, None, 0.5, 0.01, 0.99)),
        solver=pick(
            rng,
            ("first_certified",) * 12 + ("newton", "clarabel", "scs", "projected_gradient", "osqp", "nope"),
        ),
        tolerance=setting(rng, (1e-6, 1e-6, 1e-6, 1e-6, 1e-7), wild=0.03),
        arithmetic=pick(rng, ("auto",) * 8 + ("counted", "assumed", "nope")),
        numerical_share=setting(rng, (0.005, 0.005, 0.5, 1e-6), wild=0.03),
    )
    if happens(rng, 0.15):
        model.second_stage = with_choices(rng, model.second_stage)
    try:
        model.fit(*data)
    except Dp2ermError as error:
        public_refusal(error, private)
        _same_for_everyone(model, data, error)
        raise
    return _judged(model)


def _same_for_everyone(model: PrivateTwoStageERM, data: list[Any], error: Dp2ermError) -> None:
    """Records of the universe must not decide whether there is a release: easy ones get the same refusal."""
    if isinstance(error, DataError):
        return
    try:
        dataset = Dataset.from_arrays(*data)
    except DataError:
        return
    X, a, y = benign(dataset.n_samples, dataset.X.shape[1])
    try:
        model.fit(pd.DataFrame(X, columns=list(dataset.columns)), a, y)
    except Dp2ermError as other:
        if type(other) is type(error) and (str(other) == str(error) or "columns" in str(error)):
            return
        raise Failure(f"refusal depends on the records: {error!r} here, {other!r} for easy records") from None
    raise Failure(f"refusal depends on the records: {error!r} here, a release for easy records") from None


def _judged(model: PrivateTwoStageERM) -> Outcome:
    release = model.release_
    strict_json(release.to_json())
    if not np.all(np.isfinite(model.theta_)):
        raise Failure(f"non-finite theta: {model.theta_}")
    standing = release.guarantee.standing
    if standing is Standing.UNPROVEN:
        return Outcome("release, says that it is not proven")
    told = (
        f"{model.first_stage!r}, {model.second_stage!r}, {model.domain}, {model.budget}, "
        f"{model.calibration}, {model.noise}, {model.solver}, tolerance {model.tolerance}, "
        f"n = {release.n_samples}"
    )
    if standing is Standing.CONDITIONAL:
        workings = model.private_workings_
        radii = [solution.certificate.radius for solution in (workings.weights, workings.theta)]
        if any("not known to" in one for one in release.guarantee.assumptions):
            # of the declaration, whatever the records are
            return Outcome("release, conditional on every dataset")
        return Outcome("release, conditional on certification", f"radii {radii}: {told}")
    if standing is not Standing.PRIVATE:
        raise Failure(f"not private without a seed: {standing}: {told}")
    if not model.private_workings_.theta.certified:
        raise Failure(f"private without a certificate: {told}")
    return Outcome("release, private and certified")
