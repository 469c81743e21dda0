"""Hostile arrays, universes, budgets and settings through the estimator; ``... arrays NUMBER``
repeats one.

Tables by name say how each part is drawn, from a generator, the number of records and that of
columns.
"""

import datetime
import decimal
import fractions
import multiprocessing
import resource
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.errors import DataError, Dp2ermError
from dp2erm_cvx.model.sets import ElasticNet, L2Ball
from dp2erm_cvx.program import Box, Gaussian, L1Ball, Moments, WholeSpace, registry
from dp2erm_cvx.program.kernels import Laplace, Linear, PublicSample, RandomFourier
from dp2erm_cvx.program.scheme import Scheme
from dp2erm_cvx.program.stage import fields_of
from tests.hostile import outcome
from tests.hostile.outcome import Failure, Outcome, judge, public_refusal, standing, strict_json

Generator = np.random.Generator

TINY = (5e-324, 2.3e-308, 1e-300, 1e-160, 1e-100, 1e-20, 1e-9)
HUGE = (1e9, 1e20, 1e100, 1e154, 1e160, 1e300, 1.7976931348623157e308)
WRONG: tuple[Any, ...] = (
    float("nan"), float("inf"), -float("inf"), 0, -0.0, -1, -1e300, None, True, "", "1", "abc",
    "nan", b"1",
    (), [1.0, 2.0], {"a": 1}, 1j, 10**400, 10**5000, decimal.Decimal("sNaN"),
    decimal.Decimal("1e999"),
    fractions.Fraction(1, 3), np.float32(0.5), np.int64(1), np.array(1.0), np.array([1.0]),
    np.zeros((9, 9)), np.ma.masked, datetime.date(2020, 1, 1), np.datetime64("2020-01-01"),
    np.timedelta64(5, "ns"), object, "a\nb", "\ud800", "x" * 5000,
)  # fmt: skip


#: Whether public settings are nearly always valid, so that hostile records come to be solved for.
CALM = [False]


def pick(rng: Generator, pool: Any) -> Any:
    """One entry as it is (``rng.choice`` would turn it into a numpy type)."""
    pool = tuple(pool)
    if CALM[0]:
        pool = tuple(one for one in pool if not (isinstance(one, str) and one == "nope")) or pool
    return pool[int(rng.integers(len(pool)))]


def setting(rng: Generator, tame: Any, wild: float = 0.1) -> Any:
    """A public number: one of ``tame``, now and then extreme, more rarely no number at all."""
    luck = rng.uniform()
    wild = 0.01 * wild if CALM[0] else wild
    if luck < 0.25 * wild:
        return pick(rng, WRONG)
    if luck < wild:
        return pick(rng, (*TINY, *HUGE))
    return pick(rng, tame)


def happens(rng: Generator, chance: float) -> bool:
    return bool(rng.uniform() < chance)


Draw = Callable[[Generator, int, int], Any]
INF = float("inf")


def of(*tame: Any, wild: float = 0.1) -> Draw:
    return lambda rng, n, columns: setting(rng, tame, wild)


def one_of(*pool: Any) -> Draw:
    return lambda rng, n, columns: pick(rng, pool)


def kind(*kinds: Any, of: Draw) -> Draw:
    return lambda rng, n, columns: pick(rng, kinds)(of(rng, n, columns))


#: Settings of programs, each of which is drawn half of the time.
SETTINGS: Mapping[str, Draw] = {
    "ridge": of(1.0, 0.1, 10.0, 0.001, 0.0),
    "radius": of(1.0, 0.5, 10.0, INF),
    "trim": of(5.0, 2.0, 1.5, 100.0, INF),
    "cap": of(5.0, 2.0, INF),
    "treated": of(0.5, 0.1, 0.9, 1e-9),
    "propensity": of(0.5, 0.1, 0.999, 1e-9),
    "share": of(0.3, 0.01, 0.99),
    "constant": of(1.0, 0.1, 10.0),
    "alpha": of(0.5, 0.0, 1.0),
    "tolerance": of(0.05, 0.5, 1e-3),
    "threshold": of(1.0, 1e-3, 1e3),
    "features_bound": of(1.0, 0.1),
    "arm_mass": one_of("equal", "proportional", "nope"),
    "balance": lambda rng, n, columns: (
        Moments(pick(rng, (1, 2, 3, 10))) if happens(rng, 0.9) else "x"
    ),
    "kernel": kind(Gaussian, Laplace, Linear, RandomFourier, of=of(1.0, 0.1, 10.0)),
    "target": lambda rng, n, columns: PublicSample(
        covariates(rng, 5, columns - happens(rng, 0.1) or 1)
    ),
    "base_measure": lambda rng, n, columns: tuple(setting(rng, (1.0, 2.0)) for _ in range(n)),
    "coefficient": lambda rng, n, columns: tuple(
        setting(rng, (0.1, -2.0, 30.0, 1000.0)) for _ in range(columns + happens(rng, 0.1))
    ),
    "theta_set": kind(L1Ball, L2Ball, Box, lambda size: WholeSpace(), of=of(1.0, 0.1, 50.0)),
    "regularizer": lambda rng, n, columns: ElasticNet(
        *(setting(rng, (0.0, 0.1, 10.0)) for _ in "12")
    ),
    "features": one_of((0,), (1, 0), ("x1",), (0, 0), (), ("x9",), (99,), "x1", (True,)),
}
#: What may be declared of the universe, and how often.
UNIVERSE: Mapping[str, tuple[float, Draw]] = {
    "covariate_bound": (1.0, of(1.0, 2.0, 0.01, 1000.0)),
    "outcome_bound": (1.0, of(1.0, 0.01, 1000.0)),
    "intercept": (0.3, of(0.001, 0.5)),
    "outcome_center": (0.2, of(0.0, -3.5, 100.0, wild=0.3)),
    "treatment_cost": (0.2, of(0.0, -3.5, 100.0, wild=0.3)),
    "ranges": (0.3, lambda rng, n, columns: ranges(rng, columns - happens(rng, 0.1))),
    "arm_floor": (0.4, lambda rng, n, columns: setting(rng, (1, 1, 2, n // 2), wild=0.05)),
    "relation": (0.2, one_of("replace-one", "replace-one-keep-treatment", "nope")),
}
#: How a release is asked for.
SOLVERS = ("newton", "clarabel", "scs", "projected_gradient", "osqp", "nope")
OPTIONS: Mapping[str, Draw] = {
    "calibration": one_of(
        *("sharp",) * 6, "paper", "paper-corrected", "renyi", "output", "auto", "nope"
    ),
    "noise": one_of(*("gamma",) * 12, *("gaussian",) * 6, "nope", None),
    "split": of(None, None, 0.5, 0.01, 0.99),
    "solver": one_of(*("first_certified",) * 12, *SOLVERS),
    "tolerance": of(1e-6, 1e-6, 1e-6, 1e-6, 1e-7, wild=0.03),
    "arithmetic": one_of(*("auto",) * 8, "counted", "assumed", "nope"),
    "numerical_share": of(0.005, 0.005, 0.5, 1e-6, wild=0.03),
}
EPSILON = of(1.0, 0.1, 10.0, 1e-3, 1e-6, 1e-100, 50.0, 1e3, 1e6, 1e7)
DELTA = of(0.0, 0.0, 1e-6, 1e-6, 0.1, 0.5, 1e-12, 1e-100, 1e-300, 0.999, 1 - 1e-16)
#: What a rule of an author's own may return at one record: what reads it, and what is no choice.
RULES = (
    lambda effect, x: effect,
    lambda effect, x: np.nan,
    lambda effect, x: np.inf if effect > 0 else -np.inf,
    lambda effect, x: np.ones((2, 3)),
    lambda effect, x: -1.0,
)


def ranges(rng: Generator, width: int) -> Any:
    pairs = [
        (setting(rng, (-1.0, 0.0), 0.05), setting(rng, (1.0, 5.0), 0.05)) for _ in range(width)
    ]
    return pairs if happens(rng, 0.5) else {f"x{k + 1}": pair for k, pair in enumerate(pairs)}


def stage(rng: Generator, known: Mapping[str, Any], n: int, columns: int) -> Any:
    """A program by name or at random settings, or what is none; of a rule now and then one's own
    choices.
    """
    if happens(rng, 0.06):
        return pick(rng, ("itr", "uniform", "itr", "uniform", "nope", None, 3))
    made = known[name := pick(rng, known)]
    if happens(rng, 0.3):
        return name
    declared = [field for field in fields_of(made) if field in SETTINGS]
    drawn = [one for one in declared if happens(rng, 0.1 if one == "base_measure" else 0.5)]
    settings = {one: SETTINGS[one](rng, n, columns) for one in drawn}
    if happens(rng, 0.15) and "features" in declared:
        parts = made.function, made.family, made.settings, made.formulas
        made = Scheme(*parts, {**made.options, "treats": pick(rng, RULES)}, "of_an_author")
    return made(**settings)


def covariates(rng: Generator, n: int, p: int) -> np.ndarray:
    X = rng.uniform(-1, 1, (n, p))
    ends, column = (*HUGE, *TINY), int(rng.integers(p))
    match pick(rng, ("plain", "constant", "duplicates", "scaled", "separated", "cells", "zero")):
        case "constant":
            X[:, column] = pick(rng, (0.0, 1.0, *ends))
        case "duplicates":
            X[:] = X[0]
        case "scaled":
            X *= np.array([pick(rng, (1.0, *HUGE[:-1], *TINY)) for _ in range(p)])
        case "cells":
            X[rng.integers(n), column] = pick(rng, (*ends, -1e300, 0.0))
        case "zero":
            X[:] = 0.0
        case "separated":
            X[:, 0] = np.sort(X[:, 0])
    return X


def treatments(rng: Generator, n: int) -> Any:
    same, single = np.full(n, int(rng.integers(2))), np.arange(n) == int(rng.integers(n))
    half = (np.arange(n) >= n // 2).astype(int)
    return pick(rng, (*[rng.integers(0, 2, n)] * 3, same, single, half))


def outcomes(rng: Generator, n: int) -> Any:
    y, cells = rng.normal(size=n), rng.normal(size=n)
    cells[rng.integers(n)] = pick(rng, (*HUGE, *TINY, -1e300))
    constant = np.full(n, pick(rng, (0.0, 1.0, *HUGE, *TINY)))
    return pick(rng, (y, y, constant, y * pick(rng, (*HUGE[:-1], *TINY)), cells))


def with_cell(rng: Generator, values: np.ndarray, cell: Any) -> np.ndarray:
    values = values.astype(np.float64 if isinstance(cell, float) else object)
    values.flat[int(rng.integers(values.size))] = cell
    return values


def in_frame(rng: Generator, values: np.ndarray) -> Any:
    """A data frame with a strange name, or a column of a strange kind."""
    frame = pd.DataFrame(values, columns=[f"x{k + 1}" for k in range(values.shape[1])])
    if happens(rng, 0.5):
        last = pick(rng, ("x1", "a", "y", "", "\n", 3, None, ("t", 1)))
        frame.columns = pd.Index([*frame.columns[:-1], last], tupleize_cols=False)
        return frame
    try:
        dtype = pick(rng, ("category", "string", "Float64", "boolean", "datetime64[ns]", "object"))
        frame["x1"] = frame["x1"].astype(dtype)
    except (TypeError, ValueError, RuntimeWarning):  # a UnicodeEncodeError is a ValueError
        frame["x1"] = pd.NA
    return frame


#: Ways to spoil an array: a wrong cell, dtype, shape or container.
SPOILS: tuple[Callable[[Generator, np.ndarray], Any], ...] = (
    lambda rng, v: with_cell(rng, v, pick(rng, (thing for thing in WRONG if np.ndim(thing) == 0))),
    lambda rng, v: with_cell(rng, v, pick(rng, (np.nan, np.inf, -np.inf))),
    lambda rng, v: np.clip(v.astype(np.float64), -1e4, 1e4).astype(
        pick(
            rng,
            (
                "S8",
                "U8",
                "float32",
                "float16",
                "complex128",
                "int64",
                "bool",
                "longdouble",
                "object",
            ),
        )
    ),
    lambda rng, v: np.ma.masked_array(v, mask=rng.uniform(size=v.shape) < 0.2),
    lambda rng, v: v.tolist(),
    lambda rng, v: pick(rng, (v[:-1], v[..., None], v.ravel()[:1], v[:0], v.T, v[:1])),
    lambda rng, v: [*v.tolist()[:-1], pick(rng, ([1.0, [2.0]], [], None, "x", [[]]))],
    lambda rng, v: pick(
        rng, (None, 1.0, "abc", {}, {1, 2}, object(), iter([1]), b"\xff", [], [[]], range(5))
    ),
    lambda rng, v: in_frame(rng, v) if v.ndim == 2 else v,
    lambda rng, v: pd.Series(list(v), dtype=object),
)


def case(rng: Generator) -> Outcome:
    CALM[0] = happens(rng, 0.5)
    n, p = int(pick(rng, (2, 2, 3, 5, 8, 12, 20, 30))), int(rng.integers(1, 7))
    data: list[Any] = [covariates(rng, n, p), treatments(rng, n), outcomes(rng, n)]
    public = {abs(value) for value in (*HUGE, *TINY)}
    private = [value for value in (*data[0].ravel(), *data[2]) if abs(value) not in public]
    data = [pick(rng, SPOILS)(rng, one) if happens(rng, 0.15) else one for one in data]
    domain = Domain(
        **{
            name: draw(rng, n, p)
            for name, (chance, draw) in UNIVERSE.items()
            if happens(rng, chance)
        }
    )
    columns = p + (1 if domain.intercept else 0)
    budget = Budget(EPSILON(rng, n, p), DELTA(rng, n, p))
    stages = [
        stage(rng, known(), n, columns) for known in (registry.first_stages, registry.second_stages)
    ]
    options = {name: draw(rng, n, p) for name, draw in OPTIONS.items()}
    model = PrivateTwoStageERM(domain, budget, *stages, **options)
    try:
        model.fit(*data, conditional=True)
    except Dp2ermError as error:
        if not isinstance(error, DataError):  # which are for the data holder
            public_refusal(error, private)
            same_for_everyone(model, data, error)
        raise
    strict_json(model.release_.to_json())
    if not np.all(np.isfinite(model.theta_)):
        raise Failure(f"non-finite theta: {model.theta_}")
    guarantee = model.release_.guarantee
    told = standing(guarantee.standing.value, guarantee.assumptions, str(model))
    if told.name == "release, private" and not model.private_workings_.theta.certified:
        raise Failure(f"private without a certificate: {model}")
    return told


def same_for_everyone(model: PrivateTwoStageERM, data: list[Any], error: Dp2ermError) -> None:
    """Records of the universe must not decide whether there is a release: easy ones get the same
    refusal.
    """
    try:
        dataset = Dataset.from_arrays(*data)
    except DataError:
        return
    n, p = dataset.X.shape
    X = pd.DataFrame(np.linspace(-0.9, 0.9, n * p).reshape(n, p), columns=list(dataset.columns))
    told = "a release"
    try:
        model.fit(X, np.arange(n) % 2, np.linspace(-0.5, 0.5, n), conditional=True)
    except Dp2ermError as other:
        if type(other) is type(error) and (str(other) == str(error) or "columns" in str(error)):
            return
        told = repr(other)
    raise Failure(
        f"refusal depends on the records: {error!r} here, {told} for easy records"
    ) from None


def one(number: int) -> tuple[int, Outcome]:
    """Case ``number``, the same on every machine."""
    rng = np.random.default_rng([0, number])
    return number, judge(lambda: case(rng))


def count(numbers: Iterable[int], processes: int) -> list[tuple[int, Outcome]]:
    """Run cases in so many fresh processes with a limit on their memory."""
    with multiprocessing.get_context("spawn").Pool(processes, _limit) as pool:
        return list(pool.imap_unordered(one, numbers, chunksize=50))


def failures(result: list[tuple[int, Outcome]]) -> str:
    """The failures, each with what repeats it."""
    wrong = [(number, one) for number, one in result if one.failed]
    return "\n\n".join(
        f"python -m {__name__} {number}: {one.name}\n{one.detail}" for number, one in wrong
    )


def _limit() -> None:
    """No small input may cost more seconds of the processor, or bytes of address space."""
    outcome.SECONDS = 10.0
    for category in (RuntimeWarning, UserWarning):
        warnings.filterwarnings(
            "error", category=category, module=r"(dp2erm_cvx|numpy|problems|tests)\b"
        )
    warnings.filterwarnings("ignore", message=r".*\(for the data holder only\)")
    resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))


if __name__ == "__main__":
    print(one(int(sys.argv[1])))
