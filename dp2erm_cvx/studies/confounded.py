"""A scenario in which weights of 1 are clearly wrong, to see where weighting pays under privacy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import expit

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets import EffectScenario, Scenario, Simulation
from dp2erm_cvx.datasets.effect_scenarios import people_of, population_domain
from dp2erm_cvx.domain import Array
from dp2erm_cvx.studies.engine import Experiment, Listing, Row, StudyCell
from dp2erm_cvx.studies.listing import InForce, constants_listing
from dp2erm_cvx.studies.plans import PLAIN
from dp2erm_cvx.studies.scheme import Constants, Rule, RulesDesign
from dp2erm_cvx.studies.summary import means, with_interval
from dp2erm_cvx.studies.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

N_COVARIATES = 5


class Strength(BaseModel):
    """``Y = mean + main X_1 + (A - 1/2)(X_3 - X_2) + noise``, ``logit P(A = 1) = share + confounding X_1``.

    X is uniform on [-1, 1]^5. Most records are treated, so in a regression of ``2 Y (2A - 1)`` with weights 1
    neither the mean outcome nor the main effect of X_1 cancels: a public center removes the mean, no constant
    removes the main effect. Weights that give each arm half of the mass at every x remove both.

    ``main_curve`` and ``treatment_curve`` times ``3 X_1^2 - 1`` are added to the outcome and to the log odds:
    no line is the center then, or none the propensity. The noise is normal, or exponential and centered:
    skewed "alike" in both arms, or "opposite", with its sign turned in the untreated arm.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    main: float
    share: float
    confounding: float
    noise: float = Field(gt=0)
    main_curve: float = 0.0
    treatment_curve: float = 0.0
    skewed: Literal["no", "alike", "opposite"] = "no"

    def draw(self, n_samples: int, rng: np.random.Generator) -> Simulation:
        """``n_samples`` records with what is unknown in real data."""
        X = _covariates(rng, n_samples)
        propensity = self._propensity(X)
        a = (rng.random(n_samples) < propensity).astype(np.int64)
        contrast = X[:, 2] - X[:, 1]
        main = self._main(X)
        y = main + (a - 0.5) * contrast + self.noise * self._noise(a, rng)
        return Simulation(self.scenario, Dataset.from_arrays(X, a, y), propensity, contrast, main)

    @property
    def scenario(self) -> Scenario:
        """The outcome mechanism, with normal noise."""
        return Scenario(
            "confounded",
            self._main,
            lambda rows: rows[:, 2] - rows[:, 1],
            lambda rows, arm: np.full(len(rows), self.noise**2),
        )

    def population(self) -> EffectScenario:
        """The same with normal noise, whose average effect is 0, as is that among the treated.

        Covariates are not clipped, and outcomes within 5 of their mean, which is public in simulations.
        """
        return EffectScenario(
            "confounded",
            0.0,
            population_domain(math.sqrt(N_COVARIATES), 5.0, self.mean),
            self.noise,
            people_of(_covariates, self.scenario.outcomes),
            self._propensity,
            effect_on_treated=0.0,
        )

    def _propensity(self, X: Array) -> Array:
        bent = 3.0 * X[:, 0] ** 2 - 1.0
        found: Array = expit(self.share + self.confounding * X[:, 0] + self.treatment_curve * bent)
        return found

    def _main(self, X: Array) -> Array:
        total: Array = self.mean + self.main * X[:, 0] + self.main_curve * (3.0 * X[:, 0] ** 2 - 1.0)
        return total

    def _noise(self, a: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Of mean 0 and variance 1, (n,)."""
        if self.skewed == "no":
            return rng.standard_normal(len(a))
        drawn = rng.exponential(size=len(a)) - 1.0
        return drawn if self.skewed == "alike" else (2 * a - 1) * drawn


#: The population of the study, as ``designs/confounded.toml`` states it.
CONFOUNDED = Strength(mean=3.0, main=2.0, share=1.0, confounding=1.0, noise=0.5)


def _covariates(rng: np.random.Generator, n_samples: int) -> Array:
    return rng.uniform(-1.0, 1.0, (n_samples, N_COVARIATES))


class ConfoundedDesign(RulesDesign):
    """See ``designs/confounded.toml``. ``centers`` names sets of public constants to compare.

    ``populations`` name what is changed in the ``strength``; without any there is that one.
    """

    n_samples: list[int]
    n_test: int = Field(ge=10)
    strength: Strength
    populations: dict[str, dict[str, Any]] = Field(default={})
    centers: dict[str, Constants]

    def drawn_from(self, cell: StudyCell) -> Strength:
        """The population of a cell."""
        changes = self.populations[str(cell.key["population"])] if self.populations else {}
        return Strength.model_validate({**self.strength.model_dump(), **changes})


class Confounded(Experiment[ConfoundedDesign]):
    """Schemes over n, with and without a public outcome center, directly calibrated and composed."""

    name = "confounded"
    summary = "A confounded scenario over n: where weighting starts to pay under privacy."
    text_columns = 4
    design = ConfoundedDesign

    def keys(self, design: ConfoundedDesign) -> Iterable[Mapping[str, str | int | float]]:
        """Replicates of every n, in every population."""
        for name in design.populations or [None]:
            place: dict[str, str | int | float] = {} if name is None else {"population": name}
            for n in design.n_samples:
                for replicate in range(design.replicates):
                    yield {**place, "n": n, "replicate": replicate}

    def rows(self, design: ConfoundedDesign, cell: StudyCell, shared: Mapping[str, Any]) -> list[Row]:
        """Every center, scheme, family, noise and budget on one dataset."""
        population = design.drawn_from(cell)
        train = population.draw(int(cell.key["n"]), cell.rng("train"))
        test = population.draw(design.n_test, cell.rng("test"))
        rows: list[Row] = []
        trial = Trial(design, train, test)
        for center, constants in design.centers.items():
            for name, scheme in design.schemes.items():
                head, rule = {"center": center, "scheme": name}, Rule(scheme, constants)
                rows.append({**head, **trial.plain_row(rule)})
                for family in design.families:
                    if family.startswith("composition") and scheme.program != "ipw_logistic":
                        continue  # only a logistic propensity has a private form
                    for noise in design.noises:
                        rng = cell.rng(f"{center}/{name}/{family}/{noise}")
                        found = trial.private_rows(rule, family, noise, rng)
                        rows += [{**head, **row} for row in found]
            for name in design.methods:
                for noise in design.noises:
                    rng = cell.rng(f"{center}/{name}/{noise}")
                    found = trial.method_rows(name, constants.outcome_center, noise, rng)
                    rows += [{"center": center, **row} for row in found]
        return rows

    def summary_table(
        self, design: ConfoundedDesign, table: pd.DataFrame
    ) -> tuple[list[str], list[list[str]]]:
        """Accuracy over n at the budget nearest to 1, beside no privacy at the largest n."""
        epsilon = min(design.epsilons, key=lambda known: abs(known - 1.0))
        first = ["population"] if design.populations else []
        parts = [*first, "center", "scheme", "family", "noise"]
        found = means(table, [*parts, "epsilon", "n"], ["accuracy"])
        private = found[found["epsilon"] == epsilon]
        lines = []
        for place, group in private.groupby(parts, sort=False):
            shown = map(with_interval, group["accuracy"].tolist(), group["accuracy_half"].tolist())
            known = dict(zip(group["n"].tolist(), shown, strict=True))
            plain = found[(found["family"] == PLAIN) & (found["n"] == max(design.n_samples))]
            for name, value in zip(parts[:-2], place[:-2], strict=True):
                plain = plain[plain[name] == value]
            at_last = with_interval(float(plain["accuracy"].iloc[0]), float("nan")) if len(plain) else ""
            lines.append([*map(str, place), *(known.get(n, "") for n in design.n_samples), at_last])
        headers = [*first, "center", "scheme", "calibration", f"noise, epsilon {epsilon:g}"]
        return [*headers, *(f"n = {n:,}" for n in design.n_samples), "without privacy"], lines

    def listings(
        self, design: ConfoundedDesign, table: pd.DataFrame, shared: Mapping[str, Any]
    ) -> list[Listing]:
        """The constants in force."""
        entries = [
            InForce(center, name, family, Rule(scheme, constants))
            for center, constants in design.centers.items()
            for name, scheme in design.schemes.items()
            for family in (*design.families, PLAIN)
            if not (family.startswith("composition") and scheme.program != "ipw_logistic")
        ]
        return [constants_listing("center", entries, table)]
