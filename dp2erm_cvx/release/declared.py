"""What a release declares, in tables: it was public before the data were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.display import grid, pairs
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.record import BaseRelease, Release

if TYPE_CHECKING:
    from rich.table import Table


def declared_tables(release: BaseRelease) -> Iterator[Table]:
    """The range or the levels of every covariate, then all other declarations."""
    domain = declared_domain_of(release)
    if domain.ranges is not None:
        yield _covariates(domain, getattr(release, "columns", ()))
    yield pairs(list(declared_facts(release)))


def declared_domain_of(release: BaseRelease) -> Domain:
    """The domain that a release of any kind states. Raises DeclarationError where it is none."""
    return Domain.from_dict(release.domain)


def declared_facts(release: BaseRelease) -> Iterator[tuple[str, str]]:
    """What is declared beside the covariates, and how it reads."""
    domain = declared_domain_of(release)
    yield "records", f"{release.n_samples:,}, a public number"
    if not isinstance(release, EffectRelease):  # which has a table of all that it clips
        low, high = (domain.outcome_center + sign * domain.outcome_bound for sign in (-1.0, 1.0))
        net = "net outcome" if domain.treatment_cost else "outcome"
        yield net, f"clipped to {low:.4g} to {high:.4g}{_of(domain.codebook)}"
    if domain.treatment_cost:
        yield "treatment cost", f"{domain.treatment_cost:g} in units of the outcome, for every treated record"
    yield "norm", f"scaled covariates are shrunk to at most {domain.features_bound:.4g}"
    if domain.sampling is not None:
        yield "sampling weights", domain.sampling.told()
    if domain.arm_floor:
        yield "arms", f"at least {domain.arm_floor:,} records in each"
    yield "neighbors", str(domain.relation)
    settings: Any = getattr(release, "settings", None)
    if isinstance(release, Release):
        stages = (release.first_stage, release.second_stage)
        for which, stage in zip(("first stage", "second stage"), stages, strict=True):
            yield which, f"{stage.get('name')}{_listed(stage.get('settings'), ': ')}"
    elif isinstance(settings, Mapping):
        # where no center of the effect is declared, it is one that was released
        yield "settings", _listed({name: one for name, one in settings.items() if name != "effect_center"})


def _covariates(domain: Domain, columns: tuple[str, ...]) -> Table:
    table = grid("covariate", "from", "to", "unit")
    book = domain.codebook or Codebook()
    for column, (low, high) in zip(columns, domain.range_pairs, strict=True):
        origin, level = book.origin(column)
        if level is None:
            table.add_row(column, f"{low:.4g}", f"{high:.4g}", book.units.get(origin, ""))
        else:
            table.add_row(column, "0", "1", "yes or no")
    return table


def _of(book: Codebook | None) -> str:
    unit = None if book is None or book.outcome is None else book.units.get(book.outcome)
    return f" {unit}" if unit else ""


def _listed(settings: Any, before: str = "") -> str:
    if not isinstance(settings, Mapping) or not settings:
        return ""
    known = (f"{name} = {value}" for name, value in settings.items() if value not in (None, [], {}))
    return before + ", ".join(known)
