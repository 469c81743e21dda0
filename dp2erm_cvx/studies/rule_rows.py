"""Rules learned from one sample, private ones and others, judged by what is known of fresh records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from dp2erm_cvx.datasets import SCENARIOS, Simulation, read_twins, simulate
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.confounded import CONFOUNDED
from dp2erm_cvx.studies.effect_methods import PublishedMethod
from dp2erm_cvx.studies.engine import Row, StudyCell
from dp2erm_cvx.studies.published import PUBLISHED_RULES, PublishedRule
from dp2erm_cvx.studies.scheme import Constants, Rule, RuleMethod, RulesDesign, StudyScheme
from dp2erm_cvx.studies.trial import Trial, taken
from dp2erm_cvx.studies.twins import Outcomes

#: Where nothing is private.
_NO_BUDGET = float("inf")


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


@dataclass(frozen=True)
class RuleRows:
    """Every method at every budget on one sample. ``schemes`` and ``published`` are by their labels."""

    source: RuleSource
    schemes: dict[str, StudyScheme]
    published: dict[str, PublishedMethod]
    trial: Trial
    cell: StudyCell

    def rows(self) -> Iterator[Row]:
        """Accuracy against the optimal rule and value, by method and budget."""
        for label in self.source.pipelines:
            center, rng = self.source.constants.outcome_center, self.cell.rng(label)
            yield from _named(label, self.trial.method_rows(label, center, "gamma", rng))
        for label, scheme in self.schemes.items():
            rule = Rule(scheme, self.source.constants)
            families = ["sharp", *(["composition-sharp"] if scheme.program == "ipw_logistic" else [])]
            for family in families:
                found = self.trial.private_rows(rule, family, "gamma", self.cell.rng(f"{label}/{family}"))
                yield from _named(f"{'direct' if family == 'sharp' else 'composed'} {label}", found)
            yield from _named(f"weighted rule, {label}", [self.trial.plain_row(rule)])
        for label, chosen in self.published.items():
            yield from self._published(label, chosen)
        everyone = np.ones((1, self.trial.test.dataset.n_samples), dtype=bool)
        for label, treated in (("treat all", everyone), ("treat none", ~everyone)):
            yield {"method": label, "epsilon": _NO_BUDGET, **_kept(self.trial.judge.rules(treated))}

    def _published(self, label: str, chosen: PublishedMethod) -> Iterator[Row]:
        """A rule of others at every budget, and without noise. Raises KeyError for an unknown one."""
        train, test = self.trial.train, self.trial.test
        domain = self.source.others.domain(train.dataset.n_samples)
        records = domain.records(train.dataset.X, train.dataset.a, train.dataset.y)
        rows = domain.features(test.dataset.X)
        rule: PublishedRule = PUBLISHED_RULES[chosen.method](**chosen.settings)

        def judged(budget: Budget | None, rng: np.random.Generator) -> Row:
            theta: Array = rule(records, train.propensity, budget, rng)
            return _kept(self.trial.judge.rules((rows @ theta > 0)[None]))

        for epsilon in self.source.epsilons:
            start = time.process_time()
            found = judged(Budget(epsilon, chosen.delta), self.cell.rng(f"{label}/{epsilon}"))
            seconds = time.process_time() - start
            yield {"method": label, "epsilon": epsilon, "delta": chosen.delta, **found, "seconds": seconds}
        yield {"method": label, "epsilon": _NO_BUDGET, **judged(None, self.cell.rng(label))}


def rule_rows(
    source: RuleSource,
    schemes: dict[str, StudyScheme],
    published: dict[str, PublishedMethod],
    samples: tuple[Simulation, Simulation],
    cell: StudyCell,
) -> list[Row]:
    """The rows of one sample."""
    design = RulesDesign(
        seed=cell.seed,
        replicates=1,
        draws=1,
        epsilons=source.epsilons,
        noises=["gamma"],
        families=[],
        schemes={},
        methods=source.pipelines,
    )
    return list(RuleRows(source, schemes, published, Trial(design, *samples), cell).rows())


#: What of a row is kept.
_SHOWN = ("status", "reason", "epsilon", "accuracy", "value", "certified")


def _kept(found: dict[str, float]) -> Row:
    return {"status": "done", "accuracy": found["accuracy"], "value": found["value"]}


def _named(label: str, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of a method of this library, with the seconds that each took."""
    found = iter(rows)
    while True:
        start = time.process_time()
        row = next(found, None)
        if row is None:
            return
        seconds: Row = {"seconds": time.process_time() - start}
        yield {"method": label, **{name: row[name] for name in _SHOWN if name in row}, **seconds}
