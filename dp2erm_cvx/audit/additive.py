"""Exact losses of mechanisms that say what is random in them.

Rows are split at random, and noise is added to values.

Of one pair of neighbors, or of the worst that a search meets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.events import of_exception, of_output
from dp2erm_cvx.audit.finding import REPLAYS, Declared, Finding
from dp2erm_cvx.audit.pairs import Pairs, next_pair
from dp2erm_cvx.audit.search import Gain, SearchPlan, State, explore
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.numbers import block_norm
from dp2erm_cvx.checks import json_types
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.display import Shown
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.noise import simulate_cubes
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.steps.sums import IntegerSums


@dataclass(frozen=True)
class Split:
    """``n`` rows in ``count`` random groups.

    The sizes of the groups differ by at most one, whatever the records.
    """

    n: int
    count: int

    def draw(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers of every group."""
        return np.array_split(rng.permutation(self.n), self.count)


@dataclass(frozen=True, eq=False)
class Noised:
    """A number, or a vector (q,), that is released with noise of a known law.

    Parameters
    ----------
    value
        What the noise is added to, a function of the records and of what was released before.
    scale
        Of the noise, in units of ``value``: of ``exp(-|b| / scale)``, which is Laplace noise for
        one number, or the standard deviation of a coordinate.
    noise
        ``Noise.GAMMA`` for the first, ``Noise.GAUSSIAN`` for the second.
    sensitivity
        What the mechanism takes for the most that ``value`` moves by, in the norm of the noise;
        None: it says nothing.
    order
        Of that norm: 2, or 1 for independent noise on every block of entries.
    block
        The number of entries in every block where the order is 1: the norm is then the sum over the
        blocks of the largest entry, and noise on a block u has a density of
        ``exp(-max_j |u_j| / scale)``.

    Raises DeclarationError for another noise or order, a scale that is no positive number, a
    sensitivity that is none, entries that are no whole number of blocks.
    """

    value: float | Array
    scale: float
    noise: Noise = Noise.GAMMA
    sensitivity: float | None = None
    order: int = 2
    block: int = 1

    def __post_init__(self) -> None:
        if self.noise not in (Noise.GAMMA, Noise.GAUSSIAN):
            raise DeclarationError(f"noise = {self.noise!s}: must be gamma or gaussian")
        if self.order not in ((1, 2) if self.noise is Noise.GAMMA else (2,)):
            raise DeclarationError(f"order = {self.order}: must be 2, or 1 for Laplace noise")
        if self.block < 1 or self.center.size % self.block or (self.block > 1 and self.order == 2):
            raise DeclarationError(
                f"block = {self.block}: must divide the {self.center.size} entries, at order = 1"
            )
        if not 0.0 < self.scale < math.inf:
            raise DeclarationError("scale: the noise of a stage must have a positive scale")
        if self.sensitivity is not None and not self.sensitivity >= 0.0:
            raise DeclarationError(
                f"sensitivity = {self.sensitivity}: must be a number of at least 0, or None"
            )

    @property
    def center(self) -> Array:
        """The value as a vector (q,)."""
        return np.atleast_1d(np.asarray(self.value, dtype=np.float64))

    def norm(self, moved: Array) -> float:
        """Length of a movement (q,) in the norm of the noise."""
        return float(np.linalg.norm(moved)) if self.order == 2 else block_norm(moved, self.block)

    def draw(self, rng: np.random.Generator) -> Any:
        """The value with its noise, in floating point: a simulation, and nothing to publish."""
        size = np.shape(self.value) or None
        if self.block > 1:
            return self.value + simulate_cubes(self.scale, self.block, self.center.size, rng)
        if self.noise is Noise.GAMMA and (size is None or self.order == 1):
            return self.value + rng.laplace(scale=self.scale, size=size)
        direction = np.asarray(rng.standard_normal(size))
        if self.noise is Noise.GAUSSIAN:
            return self.value + self.scale * direction
        length = rng.gamma(direction.size, self.scale)
        return self.value + length / math.sqrt(float(np.sum(direction**2))) * direction


_T = TypeVar("_T")

#: Yields a :class:`Split` or a :class:`Noised` value, is sent what was drawn, and returns the
#: output.
Stages = Generator[Split | Noised, Any, _T]

#: A mechanism of one dataset, as its stages.
Staged = Callable[[Any], Stages[Any]]


def run_stages(stages: Stages[_T], rng: np.random.Generator) -> _T:
    """One output, with everything random drawn from ``rng``."""
    drawn = None
    while True:
        try:
            drawn = stages.send(drawn).draw(rng)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@dataclass(frozen=True)
class StageLoss:
    """How far one noised value ``moved``, given earlier releases; ``sensitivity`` is stated."""

    noise: Noise
    moved: float
    scale: float
    sensitivity: float | None

    @property
    def loss(self) -> float:
        """The largest log density ratio of pure noise, or the mu of Gaussian noise.

        Both are ``moved / scale``.
        """
        return self.moved / self.scale


#: A loss above what is declared by less than this factor is rounding.
_ROUNDED = 1.0 + 1e-9


@dataclass(frozen=True)
class AdditiveAudit(Shown):
    """Exact losses of one pair of neighbors beside what is ``declared``; nothing is sampled.

    ``losses`` has every noised value, given those before. Splits and noised values count as known:
    what the last output says alone may be less. ``leak`` says what has no noise that could hide it.
    ``seed`` draws the splits and the released values.
    """

    declared: Declared
    losses: tuple[StageLoss, ...]
    leak: str | None
    seed: int
    private: bool = field(default=False, init=False)

    @property
    def pure(self) -> bool:
        """True if losses are epsilons; otherwise they are mus."""
        return self.declared.mu is None and not self.declared.delta

    @property
    def found(self) -> float:
        """The epsilon of all stages together, or the largest mu of one.

        It is conditional on what earlier stages released.

        Those are drawn from their own noise: what only a release rarer than delta brings about
        proves nothing, and is drawn as seldom.
        """
        losses = [stage.loss for stage in self.losses]
        return math.inf if self.leak else sum(losses) if self.pure else max(losses, default=0.0)

    @property
    def allowed(self) -> float:
        """The declared number, as an epsilon or, beside Gaussian noise, as a mu."""
        return self.declared.number if self.pure else self.declared.gaussian_mu

    @property
    def epsilon_found(self) -> float:
        """The epsilon of this pair, at the declared delta if there is one.

        It is nan where mu is declared.
        """
        if self.pure or not math.isfinite(self.found):
            return self.found
        if self.declared.mu is not None:
            return math.nan
        return Declared(mu=self.found).epsilon_at(self.declared.delta)

    @property
    def exceeds(self) -> bool:
        """True if this pair is a counterexample to what is declared."""
        return not self.found <= self.allowed * _ROUNDED

    @property
    def reached(self) -> float:
        """The largest movement over the sensitivity that the mechanism itself states.

        It is 0 where the mechanism states none.
        """
        return max(
            (stage.moved / stage.sensitivity for stage in self.losses if stage.sensitivity),
            default=0.0,
        )

    @property
    def beyond(self) -> bool:
        """True if a value moved by more than the mechanism itself states.

        Then its proof is refuted.
        """
        return not self.reached <= _ROUNDED

    @property
    def stated(self) -> float:
        """The largest loss that a stage has by its own stated sensitivity, an epsilon or a mu."""
        return max(((stage.sensitivity or 0.0) / stage.scale for stage in self.losses), default=0.0)

    @property
    def uncovered(self) -> bool:
        """True if a stage adds less noise than its own sensitivity asks for.

        Then no proof is left.
        """
        return not self.stated <= self.allowed * _ROUNDED

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain JSON types; what is infinite or unknown is None."""
        names = ("found", "allowed", "epsilon_found", "exceeds", "reached", "stated", "uncovered")
        return dict(json_types(asdict(self) | {name: getattr(self, name) for name in names}))

    def __str__(self) -> str:
        name = "epsilon" if self.pure else "mu"
        at_delta = (
            f", epsilon = {self.epsilon_found:.4g} at this delta" if self.declared.delta else ""
        )
        verdict = "VIOLATED" if self.exceeds else "no violation found, which is no proof"
        verdict += f" ({self.leak})" if self.leak else ""
        text = (
            f"{name} = {self.found:.6g} on this pair{at_delta}; declared {self.declared}: {verdict}"
        )
        if self.reached:
            text += (
                f"; {self.reached:.1%} of a stated sensitivity reached" + " EXCEEDED" * self.beyond
            )
        if self.uncovered:
            text += f"; NOT COVERED: by its own sensitivity a stage has {name} = {self.stated:.4g}"
        return f"{text}; {len(self.losses)} noised values; not private"


def audit_additive(
    mechanism: Staged, first: Any, second: Any, declared: Declared, *, seed: int = 0
) -> AdditiveAudit:
    """The exact loss of a mechanism on two neighbors, by the values that it adds noise to.

    Where a value moves by d, noise of density ``exp(-|b| / s)`` has a log density ratio of at most
    d/s, met on a ray, and Gaussian noise of deviation s is exactly (d/s)-GDP, hence (epsilon,
    delta) by Balle and Wang (2018). Both datasets go through the stages with the same splits and
    released values. An output or a scale that still differs has no finite loss.

    Parameters
    ----------
    mechanism
        A generator function of one dataset: it yields every :class:`Split` of rows and every
        :class:`Noised` value, is sent what was drawn, and returns its output. Nothing else may be
        random.
    first, second
        Neighboring datasets, of whatever it takes; that they are neighbors is not checked.
    declared
        Epsilon alone for pure noise, epsilon with delta or mu for Gaussian noise.
    seed
        Draws the splits, and what a stage releases: a point on the line through both values, beyond
        the first, where pure noise loses most, and any point where they are the same.

    Raises DeclarationError for noise of another kind.
    """
    return _walk(mechanism, (first, second), declared, seed)[0]


#: Groups of rows of every split that was drawn.
_Groups = list[list[NDArray[np.int64]]]


def _walk(
    mechanism: Staged, datasets: tuple[Any, Any], declared: Declared, seed: int
) -> tuple[AdditiveAudit, _Groups]:
    """Run both datasets through all stages: the audit, and the groups of rows that were drawn."""
    sides, rng = [mechanism(dataset) for dataset in datasets], np.random.default_rng(seed)
    losses, groups, leak, sent = list[StageLoss](), _Groups(), None, cast(Any, None)
    while leak is None:
        one, other = (_next(side, sent) for side in sides)
        if isinstance(one, Split) and one == other:
            groups.append(sent := one.draw(rng))
        elif isinstance(one, Noised) and isinstance(other, Noised):
            if (leak := _different(one, other)) is None:
                sent, moved = _released(one, other, rng)
                losses.append(StageLoss(one.noise, moved, one.scale, one.sensitivity))
        elif (
            not any(isinstance(end, Split | Noised) for end in (one, other))
            and one.key == other.key
        ):
            if one.kind == f"raised {DeclarationError.__name__}":  # there is no such noise
                raise DeclarationError(f"mechanism: {one.key!s}")
            break
        else:
            leak = "outputs differ without noise"
    audit = AdditiveAudit(declared, tuple(losses), leak, seed)
    wanted, kind = (Noise.GAMMA, "pure") if audit.pure else (Noise.GAUSSIAN, "Gaussian")
    if any(stage.noise is not wanted for stage in losses):
        raise DeclarationError(
            f"mechanism: {declared} is declared, which needs {kind} noise at every stage"
        )
    return audit, groups


def _next(stages: Stages[Any], sent: Any) -> Any:
    """The next Split or Noised of a mechanism, or the Observation of its end.

    A mechanism ends with an output or with an exception.
    """
    try:
        return stages.send(sent)
    except StopIteration as end:
        return of_output(list(end.value) if isinstance(end.value, tuple) else end.value)
    except Exception as raised:
        return of_exception(raised)


def _different(one: Noised, other: Noised) -> str | None:
    """Why no loss is finite, whatever the values are; None where it is."""
    same_norm = (one.order, one.block) == (other.order, other.block)
    if one.noise != other.noise or not same_norm or one.center.shape != other.center.shape:
        return "noise of another kind or size"
    if one.scale != other.scale:
        return "the scale of the noise depends on the records"
    finite = np.isfinite(one.center) & np.isfinite(other.center)
    if not np.array_equal(one.center[~finite], other.center[~finite], equal_nan=True):
        return "a value is not finite on one side alone, or another one there"
    return None


def _released(one: Noised, other: Noised, rng: np.random.Generator) -> tuple[Any, float]:
    """A value that both sides are sent, and the distance of theirs in the norm of the noise."""
    apart = np.nan_to_num(one.center - other.center)
    moved = one.norm(apart)
    if one.noise is Noise.GAUSSIAN:  # as likely as it is: a loss given a rare release is none
        return one.draw(rng), moved
    away = rng.standard_normal(apart.size)
    length = one.scale * 10.0 ** rng.uniform(-1.0, 1.0)
    at = one.center + length * (apart / moved if moved > 0.0 else away / np.linalg.norm(away))
    return (float(at[0]) if np.ndim(one.value) == 0 else at), moved


def noised_sums(plan: Plan[Any], released: Mapping[str, ArrayLike]) -> Staged:
    """All sums of a plan as a mechanism of known noise.

    Its datasets are (X, a, y) or (X, a, y, person) in raw units.

    Steps that are fits are taken at what they ``released``, by name: their losses are those of
    :func:`~dp2erm_cvx.audit.audit_density`. Declared is what the calibrations of the sums promise
    together.
    """
    domain = plan.study.start.domain

    def stages(dataset: Sequence[Any]) -> Stages[None]:
        X, a, y, *person = dataset
        records = domain.records(X, a, y, np.ones(len(a)), *person)
        known = {name: np.asarray(value) for name, value in released.items()}
        for step in plan.steps:
            if isinstance(step, IntegerSums) and step.integers is not None:
                value, noise = (
                    np.array(step.exact_sums(records, known), dtype=np.float64),
                    step.integers,
                )
                order = 1 if noise.noise.pure else 2
                drawn = yield Noised(
                    value, noise.scale, noise.noise, noise.sensitivity, order, noise.block
                )
                known[step.name] = np.rint(drawn).astype(np.int64)
                records = step.mapped(records, known)

    return stages


def search_additive(
    mechanism: Staged, universe: Universe, declared: Declared, *, search: SearchPlan | None = None
) -> Finding:
    """The neighbors on which a mechanism of known noise loses most.

    They are found by its exact loss and the worst splits.

    The dataset of ``mechanism`` is ``(X, a, y)`` in the units of the data: X (n, k), a (n,) of 0
    and 1, y (n,). ``universe`` holds the datasets that the guarantee is declared for; its domain
    says which of them are neighbors. The evaluations of ``search`` are pairs, in one process and
    without a checkpoint; default: 3,000. Raises what :func:`audit_additive` raises, and
    DeclarationError where an arm floor leaves no pair.
    """
    search, domain = search or SearchPlan(evaluations=3000), universe.domain

    def attempt(state: State, number: int, room: int) -> Gain:
        """A new pair, or a change of one of the best, often with its splits and released values."""
        rng = np.random.default_rng([search.seed, state.spent])
        seed, known, fresh = int(rng.integers(2**31)), state.elite("loss", rng), rng.random() < 0.35
        pair: Pairs = next_pair(universe, None if known is None or fresh else known[0], rng)
        if known is not None and rng.random() < (0.7 if fresh else 0.8):
            _, audit, groups = known
            seed = audit.seed
            if groups and rng.random() < (1.0 if fresh else 0.2):
                # kinds of records by the groups that a walk drew
                grouped = pair.by_groups(groups[int(rng.integers(len(groups)))], rng)
                pair = grouped if grouped.admissible(domain.space) else pair
        audit, groups = _walk(mechanism, pair.raw(domain), declared, seed)
        height = audit.found, sum(stage.loss for stage in audit.losses)
        return Gain(1, [({"loss": height}, (pair, audit, groups))])

    state = explore(
        attempt, search, highest=lambda state: float(state.best["loss"][0][0][0]), keep=8
    )
    worst, audit, _ = state.pairs("loss")[0]
    counts = {"screened": state.spent}
    return Finding.of("additive", worst, domain, audit, mechanism=mechanism, counts=counts)


def _again(pair: Finding, mechanism: Staged, *, declared: Declared | None, **_: Any) -> Any:
    """At the same splits and released values."""
    known = pair.facts["audit"]
    declared, seed = declared or Declared(**known["declared"]), int(known["seed"])
    return partial(audit_additive, mechanism, *pair.raw(), declared, seed=seed)


REPLAYS["additive"] = _again
