"""What every release says of its guarantee, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.display import grid, heading
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.plan.predict import DIFFERENCE, HARDLY

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from dp2erm_cvx.release.record import BaseRelease, StepStatement

#: What each step releases.
_RELEASED = {
    "ranges": "ranges of the columns",
    "rate": "treated share",
    "mean": "mean of the scaled covariates",
    "spread": "mean square of the scaled covariates",
    "center": "outcome regression",
    "refit": "outcome regression of what the center left",
    "propensity": "propensity of treatment",
    "cells": "counts and outcomes by cell and arm",
    "rule": "treatment rule",
    "sides": "records by side of the rule and arm",
    "arms": "outcome regressions of both arms",
    "value": "what the rule gains",
    "score": "sums of the score and its square",
}


def titled(title: str, release: BaseRelease) -> Text:
    """The title, and the standing where it is not private."""
    return heading(title if release.private else f"{title}: {release.guarantee.standing.upper()}")


def guaranteed(release: BaseRelease) -> list[tuple[str, str]]:
    """What holds, by which theorems, and what that rests on."""
    guarantee = release.guarantee
    delta = f"delta = {guarantee.delta:g}" if guarantee.delta else "pure"
    stated = getattr(release, "domain", {}).get("codebook")
    fixed = getattr(release, "estimand", None) == "risks" or hasattr(release, "first_stage")
    coded = [] if stated is None else [("coded", Codebook.from_dict(stated).told(fixed=fixed))]
    return [
        *coded,
        ("guarantee", f"epsilon = {guarantee.epsilon:g} ({delta}); neighbors: {guarantee.relation}"),
        *(("caveat", told) for told in release.caveats or ()),
        ("standing", str(guarantee.standing)),
        ("theorems", f"{guarantee.theorem}; {guarantee.stability_theorem}"),
        ("assuming", "; ".join(guarantee.assumptions)),
    ]


def stood_for(release: Any) -> str:
    """Whom a release is about, as far as sampling weights say."""
    domain = Domain.from_dict(release.domain)
    weights, where = domain.sampling, {} if domain.codebook is None else domain.codebook.where
    told = " and ".join(f"{column} is {level or 'missing'}" for column, level in where.items())
    records = f"{release.n_samples:,} records" + (f" where {told}" if told else "")
    if weights is None:
        return f"that {'of those among' if told else 'of'} the {records}"
    whose = f"{'those among ' if told else ''}the {records}"
    return f"the one that {whose} stand for by the weights in {weights.column}"


def sampled(release: Any, *, interval: bool = False) -> Iterator[str]:
    """How many records count; what sampling weights cost, and what of a survey's design is not counted."""
    domain = Domain.from_dict(release.domain)
    weights, book = domain.sampling, domain.codebook
    if (counted := getattr(release, "counted", None)) is not None and book is not None:
        lost = "treatment" if book.outcome in book.missing else "treatment or outcome"
        others = [f"those without {lost}"]
        others += [
            f"those whose {column} is not {level or 'missing'}" for column, level in book.where.items()
        ]
        others += [] if book.group is None else [f"those of no declared {book.group}"]
        yield (
            f"About {max(counted, 0.0):,.0f} of the {release.n_samples:,} records count, noise included; "
            f"{' and '.join(others)} do not."
        )
    if weights is None:
        return
    # an average effect has a denominator now, of which its noise is 17/16 times what it was
    times = (17 / 16 if getattr(release, "estimand", "") == "ate" else 1.0) / weights.mass
    yield (
        f"Sampling weights count from 0 to the public bound {weights.largest:g}. Larger ones are clipped: "
        f"who stands for many then counts too little. Where they average {weights.mean:g}, which is a "
        f"guess, noise is up to {times:.3g} times that of equal weights."
    )
    if interval:
        yield (
            "The interval takes records to be drawn independently. The strata of a survey, which mostly "
            "allow a shorter one, and its clusters, which need a longer one, are not counted."
        )


def warned(release: BaseRelease) -> list[Text]:
    """The last line of a release that is not private, none otherwise."""
    told = f"{release.guarantee.standing.upper()}: do not publish this release"
    return [] if release.private else [heading(told)]


def stays(share: float | None, told: str, warning: str) -> Iterator[str]:
    """What is predicted to stay of a difference between the arms, with a warning above ``HARDLY``."""
    if share is not None:
        said = f"{told} about {min(share, 1.0):.0%}: predicted on synthetic records, from public quantities."
        yield said if share <= HARDLY else f"{said} {warning}"


def confounding(share: float | None, what: str) -> Iterator[str]:
    """What stays of the bias that one declared covariate makes, in an effect or a rule."""
    told = (
        f"Of the bias by a covariate that lies {DIFFERENCE:g} SD apart between the arms, and moves the "
        f"outcome as far as residuals spread, {what} keeps"
    )
    yield from stays(share, told, "THE CORRECTION HARDLY WORKS: expect confounding in what is released.")


def spent_by_step(release: BaseRelease) -> Table:
    """What every step released, and what it cost."""
    table = grid("step", "releases", "noise", "epsilon", "delta", left=3)
    for step in release.steps:
        # on numbers, gamma noise is Laplace noise
        noise = "Laplace" if step.noise.value == "gamma" and not step.gamma else step.noise.value
        noise = "exponential" if step.step == "ranges" else noise
        numbers = f"{step.epsilon:.4g}", f"{step.delta:.2g}"
        table.add_row(step.step, releases_of(step), noise, *numbers)
    return table


def releases_of(step: StepStatement) -> str:
    """What a step releases, in words."""
    return _RELEASED.get(step.step, step.theorem)
