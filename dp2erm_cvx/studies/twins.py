"""Rules for semi-synthetic outcomes on the covariates of Twins (Table 1 of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import expit

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets import Scenario, Simulation, read_twins, twins_digest
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.studies.engine import Experiment, Listing, Part, Row, StudyCell
from dp2erm_cvx.studies.listing import constants_listing
from dp2erm_cvx.studies.scheme import StudyDesign
from dp2erm_cvx.studies.summary import means
from dp2erm_cvx.studies.trial import Choice, all_rows, choose, in_force, places, taken

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

#: Nonlinearities, one of which the seed draws for each score.
_CURVES: tuple[Callable[[Array], Array], ...] = (
    np.abs,
    lambda u: np.exp(-(u**2) / 2),
    lambda u: 1 / (1 + u**2),
    np.cos,
    np.arctan,
    np.tanh,
    np.sin,
    lambda u: np.log1p(u**2),
    lambda u: np.sqrt(1 + u**2),
    np.cosh,
)


class Outcomes(BaseModel):
    """The generator; everything that the paper leaves open is declared.

    ``n_important`` columns are prognostic, as many predictive for either arm, drawn without overlap from
    ``seed``, with coefficients uniform on [-1, 1]. ``nonlinearity`` = omega mixes the linear score u with a
    curve of it: ``(1 - omega) u + omega chi(u)``. ``treat_share`` is the share of records whose effect is
    positive: a constant is subtracted from the outcome under treatment until it holds. ``outcome_scale``
    multiplies outcomes. ``propensity`` is expit of ``propensity_strength`` times the z-score of the effect
    ("pred"), of the prognostic score ("prog") or of a column that matters to nothing ("irrelevant").
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_important: int = Field(ge=1)
    nonlinearity: float = Field(ge=0, le=1)
    treat_share: float = Field(gt=0, lt=1)
    outcome_scale: float = Field(gt=0)
    propensity: Literal["pred", "prog", "irrelevant"]
    propensity_strength: float = Field(ge=0)
    noise: float = Field(ge=0)
    seed: int = Field(ge=0)

    def draw(self, X: Array, rng: np.random.Generator) -> Simulation:
        """Treatments and outcomes for the rows of X (n, d), with the truth behind them.

        The truth depends on X and on ``seed`` alone; ``rng`` draws treatments and noise. Raises
        DeclarationError where X has fewer than ``3 n_important + 1`` columns.
        """
        k, d = self.n_important, X.shape[1]
        if 3 * k + 1 > d:
            raise DeclarationError(f"n_important = {k}: needs {3 * k + 1} columns, there are {d}")
        truth = np.random.default_rng([self.seed, k, d])
        order = truth.permutation(d)
        scores = []
        for part in range(3):
            u = X[:, order[part * k : (part + 1) * k]] @ truth.uniform(-1.0, 1.0, k)
            curve = _CURVES[int(truth.integers(len(_CURVES)))]
            scores.append((1 - self.nonlinearity) * u + self.nonlinearity * curve(u))
        prognostic, control, treated = scores
        effect = treated - control
        effect = effect - np.quantile(effect, 1 - self.treat_share)
        score = {"pred": effect, "prog": prognostic, "irrelevant": X[:, order[3 * k]]}[self.propensity]
        propensity = expit(self.propensity_strength * _standardized(score))
        a = (rng.random(len(X)) < propensity).astype(np.int64)
        contrast = self.outcome_scale * effect
        main = self.outcome_scale * (prognostic + control) + contrast / 2
        y = main + (a - 0.5) * contrast + self.noise * rng.standard_normal(len(X))
        unknown = Scenario("twins", _unknown, _unknown, lambda rows, arm: np.full(len(rows), self.noise**2))
        return Simulation(unknown, Dataset.from_arrays(X, a, y), propensity, contrast, main)


def _standardized(score: Array) -> Array:
    spread = float(np.std(score))
    centered: Array = score - np.mean(score)
    return centered / spread if spread > 0 else centered


def _unknown(rows: Array) -> Array:
    raise NotImplementedError("the truth of these records is that of the rows they were drawn for")


class TwinsDesign(StudyDesign):
    """See ``designs/twins.toml``. ``data`` is the path of the file, ``sha256`` its digest."""

    places: ClassVar[frozenset[str]] = frozenset({"data"})

    data: str
    sha256: str | None = None
    n_samples: int = Field(ge=10)
    tuning_share: float = Field(gt=0, lt=1)
    forms: dict[str, Outcomes]


class TwinsStudy(Experiment[TwinsDesign]):
    """Rules learned from subsets of a pool, judged by the known effects on the rest of it."""

    name = "twins"
    summary = "Table 1 of the paper: semi-synthetic outcomes on the covariates of Twins."
    text_columns = 4
    parts_are = "settings tuned"
    design = TwinsDesign

    def keys(self, design: TwinsDesign) -> Iterable[Mapping[str, str | int | float]]:
        """Training subsets of every form."""
        for form in design.forms:
            for replicate in range(design.replicates):
                yield {"form": form, "replicate": replicate}

    def opened(self, design: TwinsDesign) -> TwinsDesign:
        """The design with the digest of its file, which stands for the file wherever it is."""
        return design.model_copy(update={"sha256": twins_digest(design.data, sha256=design.sha256)})

    def parts(self, design: TwinsDesign) -> Iterable[Part]:
        """Forms, schemes and families."""
        return places(design, design.forms)

    def needs(self, design: TwinsDesign, cell: StudyCell) -> Iterable[Part]:
        """Those of its form."""
        return places(design, [str(cell.key["form"])])

    def share(self, design: TwinsDesign, part: Part) -> Choice:
        """Settings tuned on the smaller pool of the form."""
        form, name, family = part
        pool, _ = _pools(design, form)
        rows = np.random.default_rng([design.seed, 5]).permutation(pool.dataset.n_samples)
        return choose(design, taken(pool, rows[: design.n_samples]), name, family)

    def rows(self, design: TwinsDesign, cell: StudyCell, shared: Mapping[str, Any]) -> list[Row]:
        """Every scheme, family, noise and budget on one subset."""
        form = str(cell.key["form"])
        _, pool = _pools(design, form)
        order = cell.rng("subset").permutation(pool.dataset.n_samples)
        train, test = taken(pool, order[: design.n_samples]), taken(pool, order[design.n_samples :])
        return all_rows(design, form, train, test, cell, shared)

    def summary_table(self, design: TwinsDesign, table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Mean accuracy (standard deviation over subsets) by budget."""
        by = ["form", "scheme", "noise", "family"]
        found = means(table, [*by, "epsilon"], ["accuracy"])
        lines = []
        for place, group in found.groupby(by, sort=False):
            shown = {
                epsilon: f"{mean:.2f} ({half * np.sqrt(design.replicates) / 1.959964:.2f})"
                for epsilon, mean, half in zip(
                    group["epsilon"], group["accuracy"], group["accuracy_half"], strict=True
                )
            }
            cells = [shown.get(epsilon, shown.get(float("inf"), "")) for epsilon in design.epsilons]
            lines.append([*map(str, place), *cells])
        return [*by, *(f"{epsilon:g}" for epsilon in design.epsilons)], lines

    def listings(self, design: TwinsDesign, table: pd.DataFrame, shared: Mapping[str, Any]) -> list[Listing]:
        """The constants in force, tuned or declared."""
        return [constants_listing("form", in_force(design, design.forms, shared), table)]


def _pools(design: TwinsDesign, form: str) -> tuple[Simulation, Simulation]:
    """The pool for tuning and the pool for evaluation: the same for every cell."""
    X = read_twins(design.data, sha256=design.sha256).X
    whole = design.forms[form].draw(X, np.random.default_rng([design.seed, 3]))
    order = np.random.default_rng([design.seed, 4]).permutation(len(X))
    cut = round(design.tuning_share * len(X))
    return taken(whole, order[:cut]), taken(whole, order[cut:])
