"""What a stability audit reports: a verdict per bound, the pair behind it, and the pair solved once more."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dp2erm_cvx import registry
from dp2erm_cvx.audit.finding import Finding
from dp2erm_cvx.audit.movement import Claim, Interval, NeighborPair, Quantity, SolverCheck, resolve
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.program import FirstStage, PrivateFirstStage
from dp2erm_cvx.release.declaration import rebuilt
from dp2erm_cvx.solve import Solver
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class Verdict:
    """The largest movement met of what one claim bounds.

    ``movement`` holds the exact movement of the ``worst`` pair of ``neighbors``, whose weights are certified.
    ``saved`` is that in the file of a pair that is replayed, None where another audit wrote it.
    """

    claim: Claim
    movement: Interval
    worst: NeighborPair = field(repr=False)
    neighbors: int
    saved: Interval | None = None

    @property
    def violated(self) -> bool:
        """Whether the movement exceeds the bound whatever the numerical error is."""
        return self.movement.low > self.claim.bound

    @property
    def agrees(self) -> bool | None:
        """Whether movement and saved one have a point in common, as those of two right certificates must."""
        if self.saved is None:
            return None
        return self.movement.low <= self.saved.high and self.saved.low <= self.movement.high

    @property
    def ratio(self) -> float:
        """The lower end of the movement over the bound."""
        return self.movement.low / self.claim.bound if self.claim.bound > 0 else float("inf")

    @property
    def sentence(self) -> str:
        """What came out for the claim."""
        if self.violated:
            limit = f"{self.movement} > {self.claim.bound:.6g}"
            return f"violated by this pair ({self.worst.origin}): movement in {limit}"
        share = f"{100 * self.ratio:.3g} % of the bound: no proof"
        return f"not violated in {self.neighbors} re-solves; the largest movement is {share}"

    def __str__(self) -> str:
        return f"{self.claim.name}: {self.claim.quantity} <= {self.claim.bound:.6g}: {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; no record."""
        return {
            **asdict(self.claim),
            "movement": asdict(self.movement),
            "violated": self.violated,
            # a bound of 0 has no ratio, and JSON no infinity
            "ratio": self.ratio if math.isfinite(self.ratio) else None,
            "origin": self.worst.origin,
            "numerical_error": self.worst.radius,
            "verdict": str(self),
        }


@dataclass(frozen=True)
class TightnessCell:
    """The largest V that a short search met with ``n_samples`` records and a ``ridge``.

    ``bounds`` are the finite bounds on V by name, those on W1 >= V among them. ``ridge`` is None where the
    program has none; ``movement`` is None where there is no bound or no search, which ``refusal`` explains,
    or where the search met no neighbors.
    """

    n_samples: int
    ridge: float | None
    bounds: dict[str, float]
    movement: Interval | None
    refusal: str | None = None

    @property
    def violations(self) -> tuple[str, ...]:
        """The bounds that the certified movement exceeds, whatever the numerical error is."""
        low = 0.0 if self.movement is None else self.movement.low
        return tuple(name for name, bound in self.bounds.items() if low > bound)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**dataclasses.asdict(self), "violations": list(self.violations)}


@dataclass(frozen=True)
class StabilityAudit:
    """What was searched, and what it met. A search refutes a bound or says nothing: it never proves one.

    ``scouted`` neighbors were solved for on their distinct records, ``resolved`` ones in full and with a
    certificate; only the latter are reported. ``check`` compares with another solver. ``private`` is False
    where data were given: movements then depend on them. ``refused`` gives, by family, why it states no
    bound. A report shows it under its ``title``, with short searches of :func:`tightness` beside it.
    """

    program: FirstStage
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
    tightness: tuple[TightnessCell, ...] = ()

    @property
    def violated(self) -> bool:
        """Whether a bound was violated, by the audit itself or in a cell of its tightness."""
        return bool(self.violations) or any(cell.violations for cell in self.tightness)

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
        """Factor below which the first bound on V could be too small unseen: V over the movement met.

        At least 1. None where no bound on V was audited, or nothing moved.
        """
        first = self._first_of_v()
        return None if first is None or not first.ratio > 0 else max(1.0, 1.0 / first.ratio)

    def catches(self, factor: float) -> bool:
        """Whether the pairs met refute the first bound on V, divided by ``factor``: a planted error."""
        first = self._first_of_v()
        return first is not None and first.movement.low > first.claim.bound / factor

    def _first_of_v(self) -> Verdict | None:
        return next((found for found in self.verdicts if found.claim.quantity is Quantity.V), None)

    def verdict(self, name: str, quantity: str = "V") -> Verdict:
        """The verdict on one claim. Raises KeyError."""
        for verdict in self.verdicts:
            if (verdict.claim.name, verdict.claim.quantity) == (name, quantity):
                return verdict
        raise KeyError((name, quantity))

    def save_counterexample(self, path: str | Path, verdict: Verdict | None = None) -> tuple[Path, Path]:
        """Write the pair of ``verdict`` (default: the first violation) to ``path`` with .npz and .json.

        The files hold the records of the pair. Raises DeclarationError where nothing was violated and no
        verdict is named.
        """
        if verdict is None:
            if not self.violations:
                raise DeclarationError("no bound was violated: name the verdict whose pair is to be saved")
            verdict = self.violations[0]
        pair, movement = verdict.worst, verdict.worst.movements[verdict.claim.quantity]
        facts = {"claim": asdict(verdict.claim), "movement": asdict(movement), "origin": pair.origin}
        first, second = ((end.X, end.a, end.y) for end in (pair.first, pair.second))
        weights = {"name": self.program.name, "settings": self.program.settings()}
        saved = Finding(
            first, second, pair.first.domain, "stability", facts, None, True, weights, self.private
        )
        return saved.save(path)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; no record."""
        names = ("scouted", "resolved", "rounds", "seconds", "seed", "numerical_error", "unseen", "private")
        return {
            "program": {"name": self.program.name, "settings": self.program.settings()},
            "domain": self.universe.domain.to_dict(),
            "n_samples": self.universe.n_samples,
            "n_features": self.universe.n_features,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "refused": dict(self.refused),
            "searched": list(self.searched),
            "check": asdict(self.check),
            **{name: getattr(self, name) for name in names},
            "proof": False,
        }

    def __str__(self) -> str:
        return "\n".join([*map(str, self.verdicts), self.notes()])

    def notes(self) -> str:
        """Everything besides the verdicts: bounds that were refused, what was searched, and how surely."""
        lines = [f"{name}: no bound: {reason}" for name, reason in self.refused.items()]
        lines.append(f"searched: {', '.join(self.searched)}; seed {self.seed}; a search, not a proof")
        lines.append(
            f"{self.scouted} neighbors scouted, {self.resolved} re-solved in full and certified; largest "
            f"numerical error {self.numerical_error:.2g}"
        )
        lines.append(str(self.check))
        if self.unseen is not None:
            lines.append(f"an error of V below a factor {self.unseen:.2f} would not be seen here")
        if not self.private:
            lines.append("this audit read the records it was given: not private")
        return "\n".join(lines)


def replay(
    path: str | Path, *, solver: str | Solver = "newton", program: FirstStage | None = None
) -> Verdict:
    """Solve a saved pair again with ``solver`` and certify it.

    The claim is the saved one, or the sharp bound on V for a pair that another audit saved. ``program`` is
    needed where the settings hold a function of the user's own. Raises DataError for files that hold no pair
    of neighbors, DeclarationError for a program other than the saved one, SolverError where the solver
    returns no point.
    """
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
