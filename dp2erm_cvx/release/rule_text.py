"""A released rule in plain words: what it is, how reliable, for whom, and what it does not cover."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dp2erm_cvx.display import grid, pairs
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.release.guarantee_text import (
    confounding,
    guaranteed,
    sampled,
    spent_by_step,
    stood_for,
    titled,
    warned,
)
from dp2erm_cvx.release.shown import parameter_table

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.release.rule_release import RuleRelease

#: What of a rule confounding biases.
DECIDES = "the mean effect by which this rule decides"
#: Predicted share of flipped decisions from which a rule says little.
LITTLE = 0.25


def rule_blocks(release: RuleRelease) -> Iterator[Block]:
    """Everything that the release says, from what was released and public numbers alone."""
    domain = Domain.from_dict(release.domain)
    yield titled("Private treatment rule", release)
    net = ", net of the treatment cost" if domain.treatment_cost else ""
    scaled = "mapped to [-1, 1] by their public ranges" if domain.ranges is not None else "as they are"
    if release.covariate_mean:
        scaled += ", less their released mean"
    if release.covariate_scale != 1.0:
        scaled += f", multiplied by {release.covariate_scale:.4g}"
    yield (
        "Treat where intercept + <theta, x> > 0, the estimated effect of treatment in units of the "
        f"outcome{net}. Covariates x are {scaled}, and shrunk to a norm of at most "
        f"{release.covariate_scale * release.norm:.4g}."
    )
    rows = [(name, f"{value:+.4g}") for name, value in zip(release.parameters, release.theta, strict=True)]
    known = release.own_units
    yield parameter_table(grid("parameter", "theta"), known, rows)
    if known is not None:
        yield known.told()
    yield from reliability(release)
    yield from gain_blocks(release)
    yield ""
    yield rule_population(release)
    yield from sampled(release)
    yield rule_assumption(release)
    yield from confounding(release.kept_confounding, DECIDES)
    skewed = (
        "; an outcome that is skewed in opposite directions with and without treatment, which turns some "
        "signs (a larger slope helps)"
    )
    yield (
        "Not covered: unmeasured confounding; effects that are not linear in the covariates"
        f"{skewed if release.settings.get('response_bound') is None else ''}. "
        "Every other release from these data adds to epsilon."
    )
    yield ""
    yield spent_by_step(release)
    yield ""
    yield pairs(guaranteed(release))
    yield from warned(release)


def reliability(release: RuleRelease) -> Iterator[str]:
    """What noise is predicted to do to the decisions."""
    settings = release.settings
    guessed = f"an outcome of standard deviation {float(settings['outcome_scale']):.4g}"
    if float(settings["mass"]) < 1.0:
        guessed += f" and factors that add up to {float(settings['mass']):g} n"
    yield (
        f"Noise moves the effect of one record by {release.noise_effect:.3g} (root mean square) and flips "
        f"{release.flipped_share:.0%} of the decisions. Both are predicted from public guesses: {guessed}, "
        "at a public covariate spread. They are no bounds, and leave out sampling."
    )
    if release.flipped_share >= LITTLE:
        yield "NOISE DOMINATES: this rule says little about the data."


def gain_blocks(release: RuleRelease) -> Iterator[Block]:
    """What the rule gains over others, where that was paid for."""
    if not release.gains:
        return
    table = grid("value of the rule over", "gain", "95 % interval")
    for gain in release.gains:
        low, high = gain.interval.low, gain.interval.high
        table.add_row(gain.over, f"{gain.estimate:+.3g}", f"{low:+.3g} to {high:+.3g}")
    yield table
    yield (
        f"{_about_gains(release)} They take the rule as given: fitted to the same records, it looks a little "
        "better than it is."
    )


def _about_gains(release: RuleRelease) -> str:
    """What the intervals of gains are about."""
    if any(gain.interval.bias for gain in release.gains):
        return (
            "The intervals are for the mean gain of all records. They count sampling, noise, and what noise "
            "and shrinkage of the released regressions leave of the confounding: where outcomes are linear "
            "in the covariates in either arm, and the arms on one side of the rule lie at most one standard "
            "deviation apart."
        )
    return (
        "The intervals are for the mean gain of all records at the public probability of treatment, and "
        "count sampling and noise."
    )


def rule_population(release: RuleRelease) -> str:
    """Which records count how much."""
    told = f"Population: {stood_for(release)}"
    counted = {"matching": "min(e, 1 - e)", "overlap": "e (1 - e)"}
    how = counted.get(str(release.settings["balance"]))
    on_response = release.settings.get("response_bound") is not None
    if release.settings["propensity"] is None or how is None or on_response:
        return told + ", each counted alike."
    return told + f", each counted by {how}, e its probability of treatment: where either is likely."


def rule_assumption(release: RuleRelease) -> str:
    """When the rule has the sign of the effect."""
    centered = any(part.step == "center" for part in release.nuisances)
    stated = release.settings["propensity"]
    if stated == "logistic" and centered:
        right = "the released center, or the released propensity, is right"
    elif stated == "logistic":
        right = "the released propensity is right"
    elif stated is not None:
        right = "treatment was assigned with the public probability that is declared"
    elif centered:
        right = (
            "the released center is right, the outcome on covariates without regard to treatment. Even then "
            "a linear rule is drawn to where either treatment is likely"
        )
    else:
        right = (
            "half of the records are treated whatever their covariates, or the outcome varies about its "
            "public center by the effect alone"
        )
    return f"That the rule has the sign of the effect is an assumption: {right}."
