"""The cells: one training subset of one form of outcomes each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from dp2erm_cvx.datasets import Simulation as Simulated
from dp2erm_cvx.datasets import read_twins
from dp2erm_cvx.studies.engine import Cell, Experiment, Listing, Part, Row
from dp2erm_cvx.studies.rules import constants_listing
from dp2erm_cvx.studies.simulation.design import StudyDesign
from dp2erm_cvx.studies.simulation.grid import all_rows, taken
from dp2erm_cvx.studies.simulation.tuning import Choice, in_force, places, tune
from dp2erm_cvx.studies.summary import means
from dp2erm_cvx.studies.twins.outcomes import Outcomes

if TYPE_CHECKING:
    import pandas as pd


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
        read_twins(design.data, sha256=design.sha256)
        found = hashlib.sha256(Path(design.data).read_bytes()).hexdigest()
        return design.model_copy(update={"sha256": found})

    def parts(self, design: TwinsDesign) -> Iterable[Part]:
        """Forms, schemes and families."""
        return places(design, design.forms)

    def needs(self, design: TwinsDesign, cell: Cell) -> Iterable[Part]:
        """Those of its form."""
        return places(design, [str(cell.key["form"])])

    def share(self, design: TwinsDesign, part: Part) -> Choice:
        """Settings tuned on the smaller pool of the form."""
        form, name, family = part
        pool, _ = _pools(design, form)
        rows = np.random.default_rng([design.seed, 5]).permutation(pool.dataset.n_samples)
        return tune(design, taken(pool, rows[: design.n_samples]), name, family)

    def rows(self, design: TwinsDesign, cell: Cell, shared: Mapping[str, Any]) -> list[Row]:
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


def _pools(design: TwinsDesign, form: str) -> tuple[Simulated, Simulated]:
    """The pool for tuning and the pool for evaluation: the same for every cell."""
    X = read_twins(design.data, sha256=design.sha256).X
    whole = design.forms[form].draw(X, np.random.default_rng([design.seed, 3]))
    order = np.random.default_rng([design.seed, 4]).permutation(len(X))
    cut = round(design.tuning_share * len(X))
    return taken(whole, order[:cut]), taken(whole, order[cut:])
