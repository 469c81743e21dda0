"""What a design is asked: everything about it is public."""

from __future__ import annotations

from dataclasses import dataclass, field

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import whole_number
from dp2erm_cvx.steps import Confounding
from dp2erm_cvx.tuning.designs.guess import Guess, rounded
from dp2erm_cvx.tuning.designs.world import driver_columns
from dp2erm_cvx.universe import Universe

#: What may be asked for, and of whom an effect may be.
GOALS, ESTIMANDS = ("effect", "rule"), ("ate", "att", "overlap")
#: Records that are simulated at most.
MOST_RECORDS = 1_000_000


@dataclass(frozen=True)
class DesignQuestion:
    """Which pipeline and which settings to take, for so many records and such a budget.

    Parameters
    ----------
    domain, n_samples, n_features, budget
        What is public about the records, and what may be spent on them.
    goal
        "effect", an average effect with an interval; "rule", whom to treat.
    guess
        The world that records are simulated from, see :class:`Guess`.
    estimand
        Of an effect: "ate", "att" or "overlap".
    replicates, seed
        Simulated datasets, and what makes them repeatable.

    Raises DeclarationError for an invalid argument.
    """

    domain: Domain
    n_samples: int
    n_features: int
    budget: Budget
    goal: str = "effect"
    guess: Guess = field(default_factory=Guess)
    estimand: str = "ate"
    replicates: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        put, universe = object.__setattr__, self.universe
        if not isinstance(self.budget, Budget):
            raise DeclarationError(f"budget = {shown(self.budget)}: must be a Budget")
        self.domain.middles(universe.n_features)  # as many as there are ranges
        if universe.n_samples > MOST_RECORDS:
            raise DeclarationError(
                f"n_samples = {universe.n_samples}: at most {MOST_RECORDS:,} records are simulated; with so "
                "many, take the default pipeline"
            )
        for name, known in (("goal", GOALS), ("estimand", ESTIMANDS)):
            if getattr(self, name) not in known:
                raise DeclarationError(
                    f"{name} = {shown(getattr(self, name))}: must be one of {', '.join(known)}"
                )
        for name in ("n_samples", "n_features"):
            put(self, name, getattr(universe, name))
        put(self, "replicates", whole_number("replicates", self.replicates, at_least=10))
        put(self, "seed", whole_number("seed", self.seed, at_least=0))
        driver_columns(self.guess, self.domain, self.n_features)

    @property
    def universe(self) -> Universe:
        """The datasets that the guarantee would be about."""
        return Universe(self.domain, self.n_samples, self.n_features)

    @property
    def filled(self) -> Guess:
        """The guess with a number for everything."""
        return self.guess.filled(self.domain, self.goal)

    @property
    def outcome_scale(self) -> float:
        """The guessed standard deviation of the outcome."""
        return self.filled.outcome_scale or 0.0

    @property
    def net_effect(self) -> float:
        """The guessed average effect, net of the cost of treatment."""
        return (self.filled.effect or 0.0) - self.domain.treatment_cost

    @property
    def residual_scale(self) -> float:
        """What a line leaves of it."""
        return self.filled.left(self.outcome_scale, binary=self.filled.binary)

    @property
    def heterogeneity(self) -> float:
        """What is declared of effects that vary: at least the default, which the guess may round."""
        found = rounded((self.filled.effect_spread or 0.0) / self.residual_scale)
        return found if found > 1.05 * Confounding.heterogeneity else Confounding.heterogeneity
