"""The stability audit: weights of neighbors are computed anew, and held against every bound."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.changes import Strategy
from dp2erm_cvx.audit.finding import REPLAYS, Finding
from dp2erm_cvx.audit.movement import (
    Claim,
    Interval,
    NeighborPair,
    Quantity,
    SolverCheck,
    Verdict,
    claims_of,
    resolve,
)
from dp2erm_cvx.audit.rounds import BASE, SEARCHING, STRATEGIES, Rounds
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.audit.weighing import (
    FUNCTION,
    FunctionWeights,
    ProgramWeights,
    Weighing,
    WeightFunction,
)
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.display import Shown
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, registry
from dp2erm_cvx.release.declaration import rebuilt
from dp2erm_cvx.solve.solvers import ConicSolver, solver_by_name

#: Records up to which a declared CVXPY problem is solved for a check: seconds each.
LARGEST_DECLARED = 100_000
#: Records: raw (X, a, y), a dataset, or records that are mapped already.
Data = tuple[ArrayLike, ArrayLike, ArrayLike] | Dataset | Records
#: Draws records.
Generator = Callable[[np.random.Generator], Data]
#: Names of strategies, or functions of records and a generator.
Strategies = str | Strategy | Sequence[str | Strategy]


@dataclass(frozen=True)
class StabilityAudit(Shown):
    """Verdicts of a search for neighbors whose weights move far.

    The search refutes a bound, and never proves one.

    Parameters
    ----------
    program
        What weighs the records.
    universe
        What the bounds are about.
    verdicts
        The verdict on every claim.
    worst
        The pairs that are reported, each certified.
    refused
        Why a family states no bound, by its name.
    searched
        Names of the strategies.
    scouted
        Neighbors that were solved for on their distinct records.
    resolved
        Neighbors that were solved for in full, with a certificate; only these are reported.
    rounds
        Rounds of the search.
    seconds
        How long the audit took.
    seed
        Repeats the search.
    check
        Compares with another solver.
    private
        False where data were given: movements then depend on them.
    title
        The title that a report shows it under.
    """

    program: FirstStage | FunctionWeights
    universe: Universe
    verdicts: tuple[Verdict, ...]
    worst: tuple[NeighborPair, ...] = field(repr=False)
    refused: dict[str, str]
    searched: tuple[str, ...]
    scouted: int
    resolved: int
    rounds: int
    seconds: float
    seed: int
    check: SolverCheck
    private: bool
    title: str = ""

    @property
    def violated(self) -> bool:
        """True if a bound was violated."""
        return bool(self.violations)

    @property
    def violations(self) -> tuple[Verdict, ...]:
        """The claims that were refuted."""
        return tuple(verdict for verdict in self.verdicts if verdict.violated)

    @property
    def numerical_error(self) -> float:
        """Largest sum of two certified radii among the pairs reported."""
        return max(verdict.worst.radius for verdict in self.verdicts)

    @property
    def unseen(self) -> float | None:
        """Factor below which the first bound on V could be too small unseen, at least 1.

        It is V over the largest movement that was found. None where no bound on V was audited, or
        nothing moved.
        """
        verdict = self._first_on_V
        if verdict is None or not verdict.ratio > 0:
            return None
        return max(1.0, 1.0 / verdict.ratio)

    def catches(self, factor: float) -> bool:
        """True if the pairs found refute the first bound on V, divided by ``factor``.

        Such a bound is a planted error.
        """
        verdict = self._first_on_V
        if verdict is None:
            return False
        return verdict.movement.low > verdict.claim.bound / factor

    @property
    def _first_on_V(self) -> Verdict | None:
        """The verdict on the first bound on V."""
        for verdict in self.verdicts:
            if verdict.claim.quantity is Quantity.V:
                return verdict
        return None

    def verdict(self, name: str, quantity: str = "V") -> Verdict:
        """The verdict on one claim; raises KeyError where there is none."""
        by_claim = {(one.claim.name, str(one.claim.quantity)): one for one in self.verdicts}
        return by_claim[name, quantity]

    def save(self, path: str | Path, verdict: Verdict | None = None) -> tuple[Path, Path]:
        """Write a pair to files, which hold its records.

        Parameters
        ----------
        path
            Of the files, beside .npz and .json.
        verdict
            Whose pair is written; default: the one nearest to its bound.

        Returns
        -------
        arrays, facts
            The paths of the two files.
        """
        verdict = verdict or max(self.verdicts, key=lambda one: one.ratio)
        pair = verdict.worst
        saved = Finding(
            first=(pair.first.X, pair.first.a, pair.first.y),
            second=(pair.second.X, pair.second.a, pair.second.y),
            domain=self.universe.domain,
            kind="stability",
            facts={
                "claim": asdict(verdict.claim),
                "movement": asdict(pair.movements[verdict.claim.quantity]),
                "origin": pair.origin,
            },
            mapped=True,
            first_stage={"name": self.program.name, "settings": self.program.settings()},
            private=self.private,
        )
        return saved.save(path)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; no record."""
        return {
            "program": {"name": self.program.name, "settings": self.program.settings()},
            "domain": self.universe.domain.to_dict(),
            "n_samples": self.universe.n_samples,
            "n_features": self.universe.n_features,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "refused": dict(self.refused),
            "searched": list(self.searched),
            "check": asdict(self.check),
            "scouted": self.scouted,
            "resolved": self.resolved,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "seed": self.seed,
            "numerical_error": self.numerical_error,
            "unseen": self.unseen,
            "private": self.private,
            "proof": False,
        }

    def __str__(self) -> str:
        return "\n".join([*map(str, self.verdicts), self.notes()])

    def notes(self) -> str:
        """The lines besides the verdicts: bounds refused, what was searched, and how surely."""
        lines = [f"{name}: no bound: {reason}" for name, reason in self.refused.items()]
        lines.append(
            f"searched: {', '.join(self.searched)}; seed {self.seed}; a search, not a proof"
        )
        lines.append(
            f"{self.scouted} neighbors tried quickly, {self.resolved} re-solved in full and "
            f"certified; largest numerical error {self.numerical_error:.2g}"
        )
        lines.append(str(self.check))
        if self.unseen is not None:
            lines.append(f"an error of V below a factor {self.unseen:.2f} would not be seen here")
        if not self.private:
            lines.append("this audit read the records it was given: not private")
        return "\n".join(lines)


def audit_stability(
    program: FirstStage,
    data: Data | Generator | None,
    universe: MappedUniverse | Domain | Space,
    *,
    bounds: Iterable[Claim | StabilityBound] | None = None,
    strategies: Strategies | None = None,
    held_out: Data | None = None,
    solver: str = "clarabel",
    search: SearchPlan | None = None,
) -> StabilityAudit:
    """Search for neighbors whose weights move more than a bound allows.

    Parameters
    ----------
    program
        A first stage without noise of its own.
    data
        Raw records (X, a, y), which are mapped into the domain; a function of a random generator
        that returns such records; or None, to search over datasets of the universe alone.
    universe
        What the bounds are about. Data have their own size, so that a domain is enough for them,
        or the space that they were mapped into.
    bounds
        Claims to audit, default: every one that is known for the program.
    strategies
        Any of "random", "held-out", "extreme", "flips", "each", "ascent" (neighbors of the given
        data) and "base" (a search over datasets of few distinct records); default: all that apply,
        but "ascent" above ``LARGEST_DECLARED`` records, which it passes over for every few. Besides
        names, functions of the auditor's own: of the given records and a random generator, they
        return
        :class:`~dp2erm_cvx.neighbors.Replacements` of them, of which those outside of the universe
        are left out.
    held_out
        Records whose covariates replace those of a record; default: those of the data themselves.
    solver
        The conic solver of the declared CVXPY problem that every pair is compared with which a
        verdict rests on, and neighbors that are drawn: one at least, and one in ``1000 sqrt(n)``,
        or one in 100 where they are solved one by one. Above ``LARGEST_DECLARED`` records, where
        each of its solves would take minutes, it is the first certified one on one neighbor at a
        time. It runs in a process of its own, which is ended after the ``solver_seconds`` of the
        search.
    search
        Its evaluations are neighbors solved for; default: 60 seconds. Of its seconds the search
        takes three quarters, and the certified solves of what it found, with those of the checking
        solver, the rest.

    Returns
    -------
    audit
        The verdict on every claim.

    Raises
    ------
    DeclarationError
        For an invalid argument.
    CalibrationError
        Where no family states a finite bound.
    DataError
        For invalid records or a checkpoint of another audit.
    """
    _refuse_noise(program)
    if not isinstance(solver_by_name(solver), ConicSolver):
        raise DeclarationError(
            f"solver = {solver!r}: must reach the declared problem, such as 'clarabel'"
        )
    asked = _Asked(data, universe, strategies, held_out, search)
    # read once, not for every dataset
    program = program.resolve(asked.domain.space).at(asked.universe)
    refused: dict[str, str] = {}
    if bounds is None:
        claims, refused = claims_of(program, asked.universe)
    else:
        claims = _claims(bounds)
    checking = solver if asked.few else "first_certified"
    return asked.searched(program, ProgramWeights(program), claims, refused, checking)


def audit_weights(
    function: WeightFunction,
    bound: float | Iterable[Claim | StabilityBound],
    universe: MappedUniverse | Domain | Space,
    data: Data | Generator | None = None,
    *,
    strategies: Strategies | None = None,
    held_out: Data | None = None,
    search: SearchPlan | None = None,
) -> StabilityAudit:
    """Search for neighbors whose weights, by any function, move more than is claimed.

    Nothing is declared of the function: its weights may come from R or another library. What it
    returns is what is audited, with its numerical errors; certificates have no part in it.

    Parameters
    ----------
    function
        Maps covariates (n, d), in the units of the data, and treatments (n,) to n weights >= 0 of
        sum n. It may return None for records that it has no weights for.
    bound
        What is claimed of V, above 0; or claims and bounds as of :func:`audit_stability`.
    universe
        What the bound is about. Data have their own size, so that a domain is enough for them,
        or the space that they were mapped into.
    data, strategies, held_out, search
        As of :func:`audit_stability`; without data, datasets of the universe are searched.

    Returns
    -------
    StabilityAudit
        Its ``violations`` refute the bound, each by a pair that ``save`` writes out.

    Raises
    ------
    DeclarationError
        For an invalid argument.
    DataError
        For invalid records, and where the function returns anything else, or other weights for the
        same records.
    """
    weighing = FunctionWeights(function)
    if isinstance(bound, int | float):
        claims: tuple[Claim, ...] = (Claim("claimed", Quantity.V, bound),)
    else:
        claims = _claims(bound)
    asked = _Asked(data, universe, strategies, held_out, search)
    audit = asked.searched(weighing, weighing, claims, {}, f"{weighing.name}, once more")
    if audit.check.disagreement > 0.0:
        raise DataError(weighing.differs())
    return audit


class _Asked:
    """What is searched, and for how long, of either audit.

    Parameters
    ----------
    data, universe, strategies, held_out, search
        As of :func:`audit_stability`.
    """

    def __init__(
        self,
        data: Data | Generator | None,
        universe: MappedUniverse | Domain | Space,
        strategies: Strategies | None,
        held_out: Data | None,
        search: SearchPlan | None,
    ) -> None:
        self.began = time.perf_counter()
        self.search = search or SearchPlan(seconds=60.0)
        self.limit = self.search.deadline()
        domain = _domain(universe)
        self.domain = domain
        self.source: Any = data
        if callable(data):
            self.source = lambda rng: records_of(data(rng), domain)
        elif data is not None:
            self.source = records_of(data, domain)
        self.example: Records | None = self.source
        if callable(self.source):
            self.example = self.source(np.random.default_rng([self.search.seed, 0]))
        self.universe = _universe(universe, domain, self.example)
        self.few = self.universe.n_samples <= LARGEST_DECLARED
        self.private = data is None or callable(data)
        #: Names of the strategies, and the functions among them.
        self.names, self.functions = _named(strategies, has_data=data is not None, few=self.few)
        #: Covariates that replace those of a record.
        self.pool: Array | None = None
        if held_out is not None:
            self.pool = records_of(held_out, domain).covariates

    def searched(
        self,
        program: FirstStage | FunctionWeights,
        weighing: Weighing,
        claims: tuple[Claim, ...],
        refused: dict[str, str],
        checking: str,
    ) -> StabilityAudit:
        """Search, and audit what was found."""
        search = self.search
        rounds = Rounds(
            weighing=weighing,
            universe=self.universe,
            claims=claims,
            names=self.names,
            source=self.source,
            pool=self.pool,
            seed=search.seed,
            solver=checking,
            few=self.few,
            until=self.limit.part(SEARCHING),
            solver_seconds=search.solver_seconds,
            functions=self.functions,
        )
        digest = None
        if self.example is not None:
            digest = _digest(self.example)
        state = rounds.explored(search, digest)
        verdicts, worst, checked = rounds.reported(state, self.limit)
        return StabilityAudit(
            program=program,
            universe=self.universe,
            verdicts=verdicts,
            worst=worst,
            refused=refused,
            searched=tuple(self.names),
            scouted=int(state.counts.get("scouted", 0)),
            resolved=int(state.counts.get("resolved", 0)) + len(worst),
            rounds=state.attempts,
            seconds=time.perf_counter() - self.began,
            seed=search.seed,
            check=checked,
            private=self.private,
        )


def _named(
    strategies: Strategies | None, *, has_data: bool, few: bool
) -> tuple[list[str], dict[str, Strategy]]:
    """Names of strategies, and the functions among them by name.

    Parameters
    ----------
    strategies
        What was asked for; None: all that apply.
    has_data
        Whether there are data, or a generator of some.
    few
        Whether the records are so few that the ascent runs without being named.

    Raises
    ------
    DeclarationError
        For what is no strategy.
    """
    available: tuple[str, ...] = (BASE,)
    if has_data:
        available = (*STRATEGIES, BASE)
    if strategies is None:
        return [name for name in available if few or name != "ascent"], {}
    if isinstance(strategies, str) or callable(strategies):
        strategies = [strategies]
    functions: dict[str, Strategy] = {}
    names = []
    for strategy in strategies:
        name = _name_of(strategy)
        if not isinstance(strategy, str) and callable(strategy) and has_data:
            if name in functions or name in available:
                raise DeclarationError(f"strategies: two are called {name!r}")
            functions[name] = strategy
        names.append(name)
    names = list(dict.fromkeys(names))
    if not names or not set(names) <= {*available, *functions}:
        hint = "" if has_data else " without data or a generator"
        raise DeclarationError(
            f"search = {names}: must be of {', '.join(available)}, or functions of records{hint}, "
            "at least one"
        )
    return names, functions


def _name_of(strategy: str | Strategy) -> str:
    """The name of a strategy, or that of its function."""
    if isinstance(strategy, str):
        return strategy
    return str(getattr(strategy, "__name__", type(strategy).__name__))


def _claims(bounds: Iterable[Claim | StabilityBound]) -> tuple[Claim, ...]:
    """The claims of all bounds; raises DeclarationError for anything else."""
    claims = list[Claim]()
    for bound in bounds:
        if isinstance(bound, StabilityBound):
            claims += Claim.of(bound.theorem, bound)
        else:
            claims.append(bound)
    if not claims or not all(isinstance(claim, Claim) for claim in claims):
        raise DeclarationError("bounds: must be Claims or StabilityBounds, at least one")
    return tuple(claims)


def records_of(data: Data, domain: Domain) -> Records:
    """Records of the domain.

    Raises
    ------
    DataError
        For invalid records.
    DeclarationError
        For records of another domain.
    """
    if isinstance(data, Records):
        if data.space != domain.space:
            raise DeclarationError("the records were mapped into another domain")
        return data
    dataset = data if isinstance(data, Dataset) else Dataset.from_arrays(*data)
    return dataset.records(lambda part: domain.records(part.X, part.a, part.y), domain)


def _digest(records: Records) -> str:
    """SHA-256 of records, by which a checkpoint knows its data."""
    digest = hashlib.sha256()
    for part in (records.X, records.a, records.y):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _domain(declared: MappedUniverse | Domain | Space) -> Domain:
    """The domain of what is declared.

    Of records that are mapped already it is one that leaves them as they are.
    """
    if isinstance(declared, Domain):
        return declared
    if isinstance(declared, Universe):
        return declared.domain
    return Domain.of_space(declared if isinstance(declared, Space) else declared.space)


def _universe(
    declared: MappedUniverse | Domain | Space, domain: Domain, example: Records | None
) -> Universe:
    """The universe that the data belong to, or that is declared; raises DeclarationError."""
    universe = None
    if isinstance(declared, MappedUniverse):
        universe = Universe(domain, declared.n_samples, declared.n_features)
    if example is not None:
        of_data = Universe(domain, example.n_samples, example.n_features)
        if universe not in (None, of_data):
            size = f"{of_data.n_samples} records, {of_data.n_features} covariates"
            raise DeclarationError(f"universe = {declared}: the data have {size}")
        return of_data
    if universe is None:
        raise DeclarationError("n_samples: needed where no data are given: declare a Universe")
    n = universe.n_samples
    floor = universe.space.arm_floor or 0
    if 2 * floor > n:
        raise DeclarationError(f"arm_floor = {floor:g}: {n} records cannot hold two such arms")
    return universe


def _again(
    pair: Finding,
    program: FirstStage | WeightFunction | None,
    *,
    solver: Any,
    seconds: float,
    **_: Any,
) -> Callable[[], Verdict]:
    """Weights by ``solver`` against the saved claim, or the sharp bound on V for another pair."""
    name = str(pair.first_stage["name"])
    settings = dict(pair.first_stage["settings"])
    origin = str(pair.facts.get("origin", f"{pair.kind} audit"))
    claim = None
    saved = None
    if pair.kind == "stability":
        claim = Claim(**pair.facts["claim"])
        saved = Interval(**pair.facts["movement"])

    def again() -> Verdict:
        """The verdict on the weights that are computed now."""
        weighing = _weighing_of(program, name, settings)
        first, second = pair.records()
        audited = claim or _sharp_claim(weighing, name, first)
        neighbors = NeighborPair(first, second, pair.changed, origin)
        resolved = list(resolve(weighing, [neighbors], solver, seconds=seconds))
        if not resolved:
            solver_name = solver if isinstance(solver, str) else solver.name
            raise DataError(
                f"{name}: a dataset of the pair has no weights, or {solver_name} left none within "
                f"{seconds:.3g} s: choose another solver"
            )
        (certified,) = resolved
        movement = certified.movements[audited.quantity]
        return Verdict(audited, movement, certified, 1, saved)

    return again


def _sharp_claim(weighing: Weighing, name: str, records: Records) -> Claim:
    """The sharp bound on V of the program ``name``; raises DeclarationError for a function."""
    if not isinstance(weighing, ProgramWeights):
        raise DeclarationError(
            f"{name}: a function states no bound: replay a pair of audit_weights"
        )
    universe = MappedUniverse(records.space, records.n_samples, records.covariates.shape[1])
    bound = weighing.program.stability(universe)
    return Claim("sharp", Quantity.V, bound.V, bound.theorem)


REPLAYS["stability"] = _again


def _weighing_of(
    subject: FirstStage | WeightFunction | None, name: str, settings: dict[str, Any]
) -> Weighing:
    """What a pair was saved for, by the given program or function, or else by the registry.

    Raises
    ------
    DeclarationError
        For another one.
    """
    if settings == FUNCTION:
        if subject is None or isinstance(subject, FirstStage):
            raise DeclarationError(f"the pair was saved for the function {name}: hand it over")
        return FunctionWeights(subject)
    if subject is not None and not isinstance(subject, FirstStage):
        raise DeclarationError(f"program: the pair was saved for {name} with {settings}")
    audited = subject
    if audited is None:
        values = {setting: rebuilt(value) for setting, value in settings.items()}
        audited = registry.build(registry.first_stages(), name, **values)
    if (audited.name, audited.settings()) != (name, settings):
        raise DeclarationError(f"program: the pair was saved for {name} with {settings}")
    _refuse_noise(audited)
    return ProgramWeights(audited)


def _refuse_noise(program: FirstStage) -> None:
    """Raise DeclarationError for a program with noise of its own."""
    if isinstance(program, PrivateFirstStage):
        raise DeclarationError(
            f"{program.name} adds noise to its weights: its bound is about no re-solve"
        )
