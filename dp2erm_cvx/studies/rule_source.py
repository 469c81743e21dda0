"""What rules are learned from, and what is declared of it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from dp2erm_cvx.datasets import SCENARIOS, Simulation, read_twins, simulate
from dp2erm_cvx.studies.confounded import CONFOUNDED
from dp2erm_cvx.studies.engine import StudyCell
from dp2erm_cvx.studies.scheme import Constants, RuleMethod, RulesDesign
from dp2erm_cvx.studies.trial import Trial, taken
from dp2erm_cvx.studies.twins import Outcomes


class RuleSource(BaseModel):
    """One population that rules are learned from. ``replicates`` maps n to a number of samples.

    ``constants`` are those of direct schemes, ``pipelines`` rules by the default pipeline with theirs, and
    ``others`` the constants of published rules. ``outcomes`` are drawn for the covariates of Twins.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    replicates: dict[int, int]
    epsilons: list[float]
    n_test: int = Field(default=10_000, ge=10)
    constants: Constants
    pipelines: dict[str, RuleMethod]
    others: Constants
    outcomes: Outcomes | None = None

    def samples(
        self, name: str, n_samples: int, cell: StudyCell, twins: tuple[str | None, str | None]
    ) -> tuple[Simulation, Simulation]:
        """A sample to learn from and one to judge by. Raises KeyError for an unknown name."""
        if self.outcomes is not None:
            path, digest = twins
            assert path is not None  # or the cell would not be there
            pool = self.outcomes.draw(read_twins(path, sha256=digest).X, cell.rng("records"))
            order = cell.rng("subset").permutation(pool.dataset.n_samples)
            return taken(pool, order[:n_samples]), taken(pool, order[n_samples:])
        rngs = cell.rng("records"), cell.rng("test")
        if name in SCENARIOS:
            train, test = (
                simulate(name, n, rng=rng) for n, rng in zip((n_samples, self.n_test), rngs, strict=True)
            )
            return train, test
        drawn = {"confounded": CONFOUNDED}[name]
        return drawn.draw(n_samples, rngs[0]), drawn.draw(self.n_test, rngs[1])

    def trial(self, samples: tuple[Simulation, Simulation], seed: int) -> Trial:
        """The two samples, with what is declared of rules."""
        design = RulesDesign(
            seed=seed,
            replicates=1,
            draws=1,
            epsilons=self.epsilons,
            noises=["gamma"],
            families=[],
            schemes={},
            methods=self.pipelines,
        )
        return Trial(design, *samples)
