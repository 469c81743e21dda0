"""Rules learned from one sample, private ones and others, judged by what is known of fresh records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.datasets import Simulation
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.effect_methods import PublishedMethod
from dp2erm_cvx.studies.engine import Row, StudyCell
from dp2erm_cvx.studies.published import PUBLISHED_RULES, PublishedRule
from dp2erm_cvx.studies.rule_source import RuleSource
from dp2erm_cvx.studies.scheme import Rule, StudyScheme
from dp2erm_cvx.studies.trial import Trial

#: Where nothing is private.
_NO_BUDGET = float("inf")
#: What of a row is kept.
_SHOWN = ("status", "reason", "epsilon", "accuracy", "value", "certified")


@dataclass(frozen=True)
class LearnedRules:
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
    return list(LearnedRules(source, schemes, published, source.trial(samples, cell.seed), cell).rows())


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
