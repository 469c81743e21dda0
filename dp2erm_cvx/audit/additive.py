"""Exact losses of mechanisms that split rows at random and add noise to values.

A mechanism says what is random in it. Its loss is that of one pair of neighbors, or of the worst
that a search meets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import ROUND_UP_SUMS, Array
from dp2erm_cvx.audit.events import of_exception, of_output
from dp2erm_cvx.audit.finding import REPLAYS, Declared, Finding
from dp2erm_cvx.audit.pairs import Pairs, next_pair
from dp2erm_cvx.audit.search import Gain, SearchPlan, State, explore
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.numbers import block_norm
from dp2erm_cvx.checks import json_types
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.display import Shown
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.noise import simulate_cubes
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.steps.sums import IntegerSums


@dataclass(frozen=True)
class Split:
    """Rows in random groups, whose sizes differ by at most one, whatever the records.

    Parameters
    ----------
    n
        The number of rows.
    count
        The number of groups.
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

    Raises
    ------
    DeclarationError
        For another noise or order, a scale that is no positive number, a negative sensitivity, and
        entries that are no whole number of blocks.
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
        orders = (1, 2) if self.noise is Noise.GAMMA else (2,)
        if self.order not in orders:
            raise DeclarationError(f"order = {self.order}: must be 2, or 1 for Laplace noise")
        divides = self.block >= 1 and self.center.size % self.block == 0
        if not divides or (self.block > 1 and self.order == 2):
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
        if self.order == 2:
            return float(np.linalg.norm(moved))
        return block_norm(moved, self.block)

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
        # gamma noise: a uniform direction and a length of the law Gamma(q, scale)
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
    """How far one noised value moved between neighbors, given earlier releases.

    Parameters
    ----------
    noise
        The kind of the noise.
    moved
        The distance of both values in the norm of the noise.
    scale
        The scale of the noise.
    sensitivity
        What the mechanism states as the most that ``moved`` may be; None: it states nothing.
    """

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


#: Numbers of an audit beside its fields, in plain data.
_NUMBERS = ("found", "allowed", "epsilon_found", "exceeds", "reached", "stated", "uncovered")


@dataclass(frozen=True)
class AdditiveAudit(Shown):
    """Exact losses of one pair of neighbors beside what is declared; nothing is sampled.

    Splits and noised values count as known: what the last output says alone may be less.

    Parameters
    ----------
    declared
        The guarantee.
    losses
        Of every noised value, given those before.
    leak
        What differs and has no noise that could hide it; None where nothing does.
    seed
        Draws the splits and the released values.
    private
        False: the audit reads the datasets.
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

        It is conditional on what earlier stages released. Those are drawn from their own noise:
        what only a release rarer than delta brings about proves nothing, and is drawn as seldom.
        """
        if self.leak:
            return math.inf
        losses = [stage.loss for stage in self.losses]
        if self.pure:
            return sum(losses)
        return max(losses, default=0.0)

    @property
    def allowed(self) -> float:
        """The declared number, as an epsilon or, beside Gaussian noise, as a mu."""
        if self.pure:
            return self.declared.number
        return self.declared.gaussian_mu

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
        """True if this pair is a counterexample to what is declared, beyond rounding."""
        return not self.found <= self.allowed * ROUND_UP_SUMS

    @property
    def reached(self) -> float:
        """The largest movement over the sensitivity that the mechanism itself states.

        It is 0 where the mechanism states none.
        """
        shares = [stage.moved / stage.sensitivity for stage in self.losses if stage.sensitivity]
        return max(shares, default=0.0)

    @property
    def beyond(self) -> bool:
        """True if a value moved by more than the mechanism states: its proof is refuted."""
        return not self.reached <= ROUND_UP_SUMS

    @property
    def stated(self) -> float:
        """The largest loss that a stage has by its own stated sensitivity, an epsilon or a mu."""
        losses = [(stage.sensitivity or 0.0) / stage.scale for stage in self.losses]
        return max(losses, default=0.0)

    @property
    def uncovered(self) -> bool:
        """True if a stage adds less noise than its own sensitivity asks for.

        Then no proof is left.
        """
        return not self.stated <= self.allowed * ROUND_UP_SUMS

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain JSON types; what is infinite or unknown is None."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return dict(json_types(asdict(self) | numbers))

    def __str__(self) -> str:
        name = "epsilon" if self.pure else "mu"
        text = f"{name} = {self.found:.6g} on this pair"
        if self.declared.delta:
            text += f", epsilon = {self.epsilon_found:.4g} at this delta"
        verdict = "VIOLATED" if self.exceeds else "no violation found, which is no proof"
        text += f"; declared {self.declared}: {verdict}"
        if self.leak:
            text += f" ({self.leak})"
        if self.reached:
            text += f"; {self.reached:.1%} of a stated sensitivity reached"
        if self.beyond:
            text += " EXCEEDED"
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

    Returns
    -------
    audit
        The loss of every noised value.

    Raises
    ------
    DeclarationError
        For noise of another kind, and for a mechanism that yields anything but stages.
    """
    return _walk(mechanism, (first, second), declared, seed)[0]


#: Groups of rows of every split that was drawn.
_Groups = list[list[NDArray[np.int64]]]


def _walk(
    mechanism: Staged, datasets: tuple[Any, Any], declared: Declared, seed: int
) -> tuple[AdditiveAudit, _Groups]:
    """Run both datasets through all stages: the audit, and the groups of rows that were drawn."""
    first_stages, second_stages = (mechanism(dataset) for dataset in datasets)
    rng = np.random.default_rng(seed)
    losses = list[StageLoss]()
    groups = _Groups()
    leak = None
    sent: Any = None
    while leak is None:
        one = _next(first_stages, sent)
        other = _next(second_stages, sent)
        if isinstance(one, Split) and one == other:
            sent = one.draw(rng)
            groups.append(sent)
        elif isinstance(one, Noised) and isinstance(other, Noised):
            leak = _different(one, other)
            if leak is None:
                sent, moved = _released(one, other, rng)
                losses.append(StageLoss(one.noise, moved, one.scale, one.sensitivity))
        elif _same_end(one, other):
            break
        else:
            leak = "outputs differ without noise"
    audit = AdditiveAudit(declared, tuple(losses), leak, seed)
    _check_noise(audit)
    return audit, groups


def _same_end(one: Any, other: Any) -> bool:
    """True if both datasets ended with the same output.

    Raises
    ------
    DeclarationError
        If both ended because the mechanism yields noise that there is not.
    """
    if isinstance(one, Split | Noised) or isinstance(other, Split | Noised):
        return False
    if one.key != other.key:
        return False
    if one.kind == f"raised {DeclarationError.__name__}":
        raise DeclarationError(f"mechanism: {one.key!s}")
    return True


def _check_noise(audit: AdditiveAudit) -> None:
    """Raise DeclarationError where a stage has noise of another kind than what is declared."""
    wanted = Noise.GAUSSIAN
    kind = "Gaussian"
    if audit.pure:
        wanted = Noise.GAMMA
        kind = "pure"
    if any(stage.noise is not wanted for stage in audit.losses):
        raise DeclarationError(
            f"mechanism: {audit.declared} is declared, which needs {kind} noise at every stage"
        )


def _next(stages: Stages[Any], sent: Any) -> Any:
    """The next Split or Noised of a mechanism, or the Observation of its end.

    A mechanism ends with an output or with an exception.

    Raises
    ------
    DeclarationError
        For a mechanism that yields anything else.
    """
    try:
        stage = stages.send(sent)
    except StopIteration as end:
        output = end.value
        if isinstance(output, tuple):
            output = list(output)
        return of_output(output)
    except Exception as raised:
        return of_exception(raised)
    if not isinstance(stage, Split | Noised):
        raise DeclarationError(
            f"mechanism: it yields {brief(stage)}: it must yield Split and Noised, and return its "
            "output"
        )
    return stage


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
    difference = np.nan_to_num(one.center - other.center)
    moved = one.norm(difference)
    if one.noise is Noise.GAUSSIAN:
        # as likely as it is: a loss given a rare release is none
        return one.draw(rng), moved
    anywhere = rng.standard_normal(difference.size)
    length = one.scale * 10.0 ** rng.uniform(-1.0, 1.0)
    direction = anywhere / np.linalg.norm(anywhere)
    if moved > 0.0:
        # beyond the first on the line through both, where pure noise loses most
        direction = difference / moved
    released = one.center + length * direction
    if np.ndim(one.value) == 0:
        return float(released[0]), moved
    return released, moved


def noised_sums(plan: Plan[Any], released: Mapping[str, ArrayLike]) -> Staged:
    """All sums of a plan as a mechanism of known noise.

    Declared is what the calibrations of the sums promise together. Steps that are fits are taken
    at what they released: their losses are those of :func:`~dp2erm_cvx.audit.audit_density`.

    Parameters
    ----------
    plan
        The plan.
    released
        What its fits released, by the name of the step.

    Returns
    -------
    mechanism
        A mechanism of datasets (X, a, y) or (X, a, y, person) in raw units.
    """
    domain = plan.study.start.domain

    def stages(dataset: Sequence[Any]) -> Stages[None]:
        """Every sum with its noise, given those before."""
        X, a, y, *person = dataset
        records = domain.records(X, a, y, np.ones(len(a)), *person)
        earlier = {name: np.asarray(value) for name, value in released.items()}
        for step in plan.steps:
            if not isinstance(step, IntegerSums) or step.integers is None:
                continue
            noise = step.integers
            drawn = yield Noised(
                value=np.array(step.exact_sums(records, earlier), dtype=np.float64),
                scale=noise.scale,
                noise=noise.noise,
                sensitivity=noise.sensitivity,
                order=1 if noise.noise.pure else 2,
                block=noise.block,
            )
            earlier[step.name] = np.rint(drawn).astype(np.int64)
            records = step.mapped(records, earlier)

    return stages


#: Share of the attempts of a search that begin with a new pair.
_FRESH = 0.35


def search_additive(
    mechanism: Staged, universe: Universe, declared: Declared, *, search: SearchPlan | None = None
) -> Finding:
    """The neighbors on which a mechanism of known noise loses most.

    They are found by its exact loss and the worst splits.

    Parameters
    ----------
    mechanism
        As of :func:`audit_additive`, of datasets ``(X, a, y)`` in the units of the data: X (n, k),
        a (n,) of 0 and 1, y (n,).
    universe
        The datasets that the guarantee is declared for; its domain says which of them are
        neighbors.
    declared
        The guarantee.
    search
        Its evaluations are pairs, in one process and without a checkpoint; default: 3,000.

    Returns
    -------
    finding
        The worst pair with its audit.

    Raises
    ------
    DeclarationError
        Where an arm floor leaves no pair. What :func:`audit_additive` raises comes through.
    """
    search = search or SearchPlan(evaluations=3000)
    attempt = partial(_attempt, mechanism, universe, declared, search.seed)
    state = explore(attempt, search, highest=_largest_loss, keep=8)
    worst, audit, _ = state.pairs("loss")[0]
    counts = {"screened": state.spent}
    return Finding.of("additive", worst, universe.domain, audit, mechanism=mechanism, counts=counts)


def _attempt(
    mechanism: Staged,
    universe: Universe,
    declared: Declared,
    search_seed: int,
    state: State,
    number: int,
    room: int,
) -> Gain:
    """Audit a new pair, or a change of one of the best, often with its splits and released values.

    Parameters
    ----------
    mechanism, universe, declared
        As of :func:`search_additive`.
    search_seed
        Of the search: an attempt is seeded by this and the evaluations before it.
    state, number, room
        As of :func:`~dp2erm_cvx.audit.search.explore`.
    """
    rng = np.random.default_rng([search_seed, state.spent])
    seed = int(rng.integers(2**31))
    best = state.elite("loss", rng)
    # shares of the attempts that repeat the draws of the best, and among them its groups
    starting_pair = None
    same_draws = 0.7
    same_groups = 1.0
    if rng.random() >= _FRESH:
        same_draws = 0.8
        same_groups = 0.2
        if best is not None:
            starting_pair, _, _ = best
    pair = next_pair(universe, starting_pair, rng)
    if best is not None and rng.random() < same_draws:
        _, audit, groups = best
        seed = audit.seed
        if groups and rng.random() < same_groups:
            pair = _grouped(pair, groups, universe.domain, rng)
    audit, groups = _walk(mechanism, pair.raw(universe.domain), declared, seed)
    height = (audit.found, sum(stage.loss for stage in audit.losses))
    return Gain(1, [({"loss": height}, (pair, audit, groups))])


def _grouped(pair: Pairs, groups: _Groups, domain: Domain, rng: np.random.Generator) -> Pairs:
    """The pair with its kinds of records in the groups that a walk drew, where that is allowed."""
    groups_of_stage = groups[int(rng.integers(len(groups)))]
    grouped = pair.by_groups(groups_of_stage, rng)
    if not grouped.admissible(domain.space):
        return pair
    return grouped


def _largest_loss(state: State) -> float:
    """The loss of the best pair so far."""
    height, *_ = state.best["loss"][0]
    return float(height[0])


def _again(pair: Finding, mechanism: Staged, *, declared: Declared | None, **_: Any) -> Any:
    """At the same splits and released values."""
    saved = pair.facts["audit"]
    declared = declared or Declared(**saved["declared"])
    first, second = pair.raw()
    return partial(audit_additive, mechanism, first, second, declared, seed=int(saved["seed"]))


REPLAYS["additive"] = _again
