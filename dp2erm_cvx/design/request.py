"""The request of a design, the guessed data-generating process, and records drawn from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import (
    check_settings,
    chosen_columns,
    public_fraction,
    public_number,
    public_size,
    setting,
    whole_number,
)
from dp2erm_cvx.data.counts import refuse
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.design.samples import DesignSample, PublicData, SimulatedRun
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.plan.predict import public_covariates
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.nuisances import Confounding

#: Strengths of confounding by name: standard deviations of the log odds of treatment.
CONFOUNDING = {"none": 0.0, "weak": 0.4, "moderate": 0.8, "strong": 1.6}
#: The strength that is guessed where nothing is said of it.
MODERATE = "moderate"
#: The largest standard deviation of log odds that a declared distance of the arms leads to: hardly
#: any record could then have had the other treatment.
_LARGEST_ODDS = 6.0
#: Scores of a normal covariate that distances are computed at.
_NORMAL = ndtri((np.arange(1000) + 0.5) / 1000)


@dataclass(frozen=True)
class DesignScenario:
    """A public guess of the data-generating process. Parts that are None are filled in.

    Attributes
    ----------
    effect
        Average effect of the treatment, in units of the outcome, before its cost. None: half of
        ``outcome_scale``; for a rule the cost, so that nobody knows in advance whom to treat.
    effect_spread
        Standard deviation of the effect over covariates. None: a quarter of what a line leaves of
        the outcome; half of ``outcome_scale`` for a rule.
    outcome_scale
        Standard deviation of the outcome without treatment, in its units. None: a third of its
        bound.
    explained
        Share of the variance of the outcome that covariates explain.
    curved
        Share of what covariates explain that no line sees: the square of one.
    confounding
        Standard deviation of the log odds of treatment: none, weak (.4), moderate (.8), strong
        (1.6), or a number of at least 0. They follow the line that the outcome follows. None:
        moderate; where arms are declared to lie more than one standard deviation apart, what puts
        them that far apart.
    treated
        Share of the records that are treated.
    binary
        Whether the outcome is one of the ends of its interval, which set ``outcome_scale``. So it
        is where the domain declares it.
    drivers
        Covariates that outcome and treatment depend on: all where none are named. Pipelines that
        adjust for them alone are tried.

    Raises
    ------
    DeclarationError
        For an invalid value.
    """

    effect: float | None = setting(None)
    effect_spread: float | None = setting(None, public_size, zero=True)
    outcome_scale: float | None = setting(None, public_size)
    explained: float = setting(0.5, at_least=0.0, below=1.0)
    curved: float = setting(0.1, at_least=0.0, below=1.0)
    confounding: str | float | None = None
    treated: float = setting(0.5, public_fraction)
    binary: bool = False
    drivers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        if self.confounding is None:
            return
        if not isinstance(self.confounding, str):
            public_number("confounding", self.confounding, at_least=0.0)
        elif self.confounding not in CONFOUNDING:
            known = ", ".join(CONFOUNDING)
            raise DeclarationError(
                f"confounding = {brief(self.confounding)}: must be {known}, or a number"
            )

    @property
    def log_odds(self) -> float:
        """The standard deviation of the log odds of treatment."""
        strength = self.confounding
        if strength is None:
            return CONFOUNDING[MODERATE]
        return CONFOUNDING[strength] if isinstance(strength, str) else float(strength)

    @property
    def distance(self) -> float:
        """How far apart the arms lie at these log odds, in standard deviations."""
        return distance_of(self.log_odds, self.treated)

    def filled(self, domain: Domain, goal: str, distance: float = 1.0) -> DesignScenario:
        """The scenario with numbers for every None.

        Parameters
        ----------
        domain, goal
            What suggests the size of outcomes and effects.
        distance
            How far apart the arms are declared to lie at most, in standard deviations.
        """
        is_rule = goal == "rule"
        binary = self.binary or domain.binary_outcome
        scale = self.outcome_scale
        if binary:
            scale = domain.outcome_bound
        elif scale is None:
            scale = rounded(domain.outcome_bound / 3.0)
        effect = self.effect
        if effect is None:
            effect = domain.treatment_cost
            if not is_rule:
                effect += rounded(0.5 * scale)
        spread = self.effect_spread
        if spread is None and is_rule:
            spread = rounded(0.5 * scale)
        elif spread is None:
            spread = rounded(0.25 * self.left(scale, binary=binary))
        confounding = self.confounding
        if confounding is None:
            confounding = MODERATE
            if distance > 1.0:
                confounding = rounded(log_odds_of(distance, self.treated))
        return replace(
            self,
            effect=effect,
            effect_spread=spread,
            outcome_scale=scale,
            confounding=confounding,
            binary=binary,
        )

    def left(self, scale: float, *, binary: bool) -> float:
        """Residual standard deviation of an outcome of this standard deviation."""
        if binary:
            return scale
        seen_by_lines = self.explained * (1.0 - self.curved)
        return rounded(scale * math.sqrt(1.0 - seen_by_lines))

    def stated(self, filled: DesignScenario) -> list[tuple[str, Any, bool]]:
        """Name and value of every part of the ``filled`` scenario.

        With each stands whether it is stated here.
        """
        default = DesignScenario()
        parts = []
        for name in vars(self):
            is_stated = getattr(self, name) != getattr(default, name)
            parts.append((name, getattr(filled, name), is_stated))
        return parts


def distance_of(log_odds: float, treated: float) -> float:
    """How far apart the arms lie where log odds of treatment are linear in a normal covariate.

    Parameters
    ----------
    log_odds
        Standard deviation of the log odds.
    treated
        Share of the treated.

    Returns
    -------
    float
        Difference of the means of both arms, in standard deviations of the covariate over both.
    """
    log_odds_along = log_odds * _NORMAL
    propensity = expit(_log_odds_of_share(log_odds_along, treated) + log_odds_along)
    return float(np.mean(_NORMAL * propensity)) / (treated * (1.0 - treated))


def _log_odds_of_share(log_odds: Array, treated: float) -> float:
    """What is added to log odds (m,) so that this share is treated on average."""

    def excess(shift: float) -> float:
        return float(np.mean(expit(shift + log_odds))) - treated

    return float(brentq(excess, -750.0, 750.0))


def log_odds_of(distance: float, treated: float) -> float:
    """The standard deviation of log odds at which arms lie so far apart, at most ``_LARGEST_ODDS``.

    The inverse of :func:`distance_of`.
    """
    if distance_of(_LARGEST_ODDS, treated) <= distance:
        return _LARGEST_ODDS
    return float(brentq(lambda odds: distance_of(odds, treated) - distance, 0.0, _LARGEST_ODDS))


def rounded(value: float) -> float:
    """Two significant digits, as a scenario has them: what is printed is what is simulated."""
    return float(f"{value:.2g}")


#: What may be asked for.
GOALS = ("effect", "rule")
#: Of whom an effect may be.
ESTIMANDS = ("ate", "att", "overlap")
#: Records that are simulated at most.
MOST_RECORDS = 1_000_000


def _among(name: str, value: object, *, known: tuple[str, ...]) -> object:
    """A value, which has to be one of the known ones."""
    if value not in known:
        raise DeclarationError(f"{name} = {brief(value)}: must be one of {', '.join(known)}")
    return value


@dataclass(frozen=True)
class DesignRequest:
    """The request which pipeline and which settings to take, for so many records and such a budget.

    Parameters
    ----------
    domain, budget
        What is public about the records, and what may be spent on them.
    n_samples
        Number of records, at least 2; not of persons.
    n_features
        As in :class:`~dp2erm_cvx.data.universe.Universe`.
    goal
        "effect", an average effect with an interval; "rule", whom to treat.
    scenario
        The population that records are simulated from, see :class:`DesignScenario`.
    estimand
        Of an effect: "ate", "att" or "overlap".
    replicates
        Number of simulated datasets.
    seed
        Makes the simulation repeatable.
    declared
        Settings of the estimator that hold whatever the design finds, such as those of a study
        file.
    public
        Public records to draw samples from, in place of simulated ones. The scenario then sets no
        more than what pipelines declare.

    Raises
    ------
    DeclarationError
        For an invalid argument.
    """

    domain: Domain
    n_samples: int
    n_features: int
    budget: Budget
    goal: str = setting("effect", _among, known=GOALS)
    scenario: DesignScenario = field(default_factory=DesignScenario)
    estimand: str = setting("ate", _among, known=ESTIMANDS)
    replicates: int = setting(50, whole_number, at_least=10)
    seed: int = setting(0, whole_number, at_least=0)
    declared: Mapping[str, Any] = field(default_factory=dict)
    public: PublicData | None = None

    def __post_init__(self) -> None:
        universe = self.universe
        if not isinstance(self.budget, Budget):
            raise DeclarationError(f"budget = {brief(self.budget)}: must be a Budget")
        refuse(self.domain.codebook, "a design, which simulates records,", "arms", "units")
        # refuses another number of covariates than there are ranges
        self.domain.middles(universe.n_features)
        if universe.n_samples > MOST_RECORDS:
            text = (
                f"at most {MOST_RECORDS:,} records are simulated; with so many, take the default "
                "pipeline"
            )
            raise DeclarationError(f"n_samples = {universe.n_samples}: {text}")
        object.__setattr__(self, "n_samples", universe.n_samples)
        object.__setattr__(self, "n_features", universe.n_features)
        check_settings(self)
        driver_columns(self.scenario, self.domain, self.n_features)
        if self.public is not None:
            if not isinstance(self.public, PublicData):
                raise DeclarationError(
                    "public: a choice made on private data reveals something of them; give "
                    "PublicData of other people's records"
                )
            self.public.check(self.domain, self.n_samples, left_out=self.goal == "rule")

    @property
    def universe(self) -> Universe:
        """The datasets that the guarantee would be about."""
        return Universe(self.domain, self.n_samples, self.n_features)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the covariates of the records that are simulated."""
        if self.public is not None:
            return self.public.dataset.columns
        return covariate_names(self.domain, self.n_features)

    @property
    def filled(self) -> DesignScenario:
        """The scenario with a number for everything.

        Its arms lie as far apart as is declared, where that is more than one standard deviation.
        """
        distance = float(self.declared.get("confounding", 1.0))
        return self.scenario.filled(self.domain, self.goal, distance)

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
        """Residual standard deviation of a linear regression."""
        return self.filled.left(self.outcome_scale, binary=self.filled.binary)

    @property
    def heterogeneity(self) -> float:
        """Declared heterogeneity of effects: at least the default, which the scenario may round."""
        ratio = rounded((self.filled.effect_spread or 0.0) / self.residual_scale)
        if ratio > 1.05 * Confounding.heterogeneity:
            return ratio
        return Confounding.heterogeneity


def covariate_names(domain: Domain, n_features: int) -> tuple[str, ...]:
    """Names of covariates: those that the domain declares, else x1, x2 and so on."""
    return domain.columns or tuple(f"x{k + 1}" for k in range(n_features))


def driver_columns(scenario: DesignScenario, domain: Domain, n_features: int) -> list[int]:
    """Numbers of the covariates that are guessed to matter.

    Raises
    ------
    DeclarationError
        On an unknown one.
    """
    if scenario.drivers is None:
        return list(range(n_features))
    book = domain.codebook
    chosen = scenario.drivers if book is None else book.expanded(scenario.drivers)
    return chosen_columns("drivers", chosen, domain.columns or (), n_features)


#: Records that the moments of covariates and true effects are computed from.
_CENSUS = 10_000
#: Records that rules are judged on.
_JUDGED = 4000
#: How far the mean outcome lies off its declared center, in standard deviations: nobody knows it in
#: advance.
_OFF = 0.5
#: How far the means of covariates lie off their typical values, in standard deviations: what an
#: interval for an effect assumes where it cannot see more.
_SHIFT = 0.25
#: The probabilities that two outcomes keep.
_LEAST = 0.02


def _lines(centered: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Two lines (k,) in centered covariates (m, k), drawn anew, of standard deviation 1.

    They are uncorrelated, unless only one covariate varies. Over its declared range every covariate
    matters as much as any other.
    """
    covariance = centered.T @ centered / len(centered)
    spread = centered.std(axis=0)
    varies = spread > 1e-9 * spread.max(initial=0.0)
    if not varies.any():
        raise DeclarationError("the domain leaves covariates no room to vary")
    first, second = np.where(varies, rng.standard_normal((2, len(spread))), 0.0)
    line = _unit(first, covariance)
    if np.sum(varies) == 1:
        return line, line
    uncorrelated = second - (second @ covariance @ line) * line
    return line, _unit(uncorrelated, covariance)


class Population:
    """One population that a filled scenario describes.

    Two lines in the scaled covariates are drawn: one that outcome and log odds of treatment follow
    alike, one that the effect follows. Both have a standard deviation of 1 in the population, so
    that the scenario states the sizes. Covariates are those of
    :func:`~dp2erm_cvx.plan.predict.public_covariates`.

    Parameters
    ----------
    domain
        What is public about the records.
    n_features
        Number of covariates.
    scenario
        The scenario, with a number for everything.
    seed
        Draws the lines.
    """

    def __init__(
        self,
        domain: Domain,
        n_features: int,
        scenario: DesignScenario,
        seed: tuple[int, ...] = (0,),
    ) -> None:
        self.domain = domain
        self.n_features = n_features
        self.scenario = scenario
        self.effect = scenario.effect or 0.0
        self.spread = scenario.effect_spread or 0.0
        self.scale = scenario.outcome_scale or 0.0
        self._columns = driver_columns(scenario, domain, n_features)
        rng = np.random.default_rng(seed)
        self.census = public_covariates(domain, n_features, _CENSUS, rng, _SHIFT)
        drivers = self._drivers(self.census)
        self._center = drivers.mean(axis=0)
        #: What outcomes and log odds follow, and what effects follow, (k,).
        self._outcome_line, self._effect_line = _lines(drivers - self._center, rng)
        along = self._centered(self.census) @ self._outcome_line
        self._share = _log_odds_of_share(scenario.log_odds * along, scenario.treated)
        # the square of the first line, less what a line explains of it, in standard deviations
        self._slope, self._constant = np.polyfit(along, along**2, 1)
        unexplained = float(np.std(along**2 - self._slope * along))
        self._square_scale = max(unexplained, 1e-300)

    def _drivers(self, X: Array) -> Array:
        """Those of the scaled covariates (n, k) that matter."""
        first = 1 if self.domain.intercept else 0
        columns = [first + column for column in self._columns]
        return self.domain.features(X)[:, columns]

    def _centered(self, X: Array) -> Array:
        """The same (n, k), less their means in the population."""
        return np.asarray(self._drivers(X) - self._center)

    def propensity(self, X: Array) -> Array:
        """P(A = 1 | x), (n,)."""
        log_odds = self._share + self.scenario.log_odds * (self._centered(X) @ self._outcome_line)
        return np.asarray(expit(log_odds))

    def means(self, X: Array) -> Array:
        """Mean outcomes without and with treatment, (n, 2), before any cost."""
        scenario = self.scenario
        centered = self._centered(X)
        line = centered @ self._outcome_line
        square = (line**2 - self._slope * line - self._constant) / self._square_scale
        bent = math.sqrt(1.0 - scenario.curved) * line + math.sqrt(scenario.curved) * square
        off_center = 0.0 if scenario.binary else _OFF * self.scale
        middle = self.domain.outcome_center + off_center
        control = middle + self.scale * math.sqrt(scenario.explained) * bent
        effect = self.effect + self.spread * (centered @ self._effect_line)
        control = control - 0.5 * (effect - self.domain.treatment_cost)
        means = np.column_stack([control, control + effect])
        if not scenario.binary:
            return means
        low, room = self._ends()
        return low + room * np.clip((means - low) / room, _LEAST, 1.0 - _LEAST)

    def _ends(self) -> tuple[float, float]:
        """Low end of the declared outcomes, and how far the high one lies above it."""
        bound = self.domain.outcome_bound
        return self.domain.outcome_center - bound, 2.0 * bound

    def effects(self, X: Array) -> Array:
        """True effects (n,) net of the cost of treatment."""
        control, treated = self.means(X).T
        return np.asarray(treated - control - self.domain.treatment_cost)

    def truth(self, estimand: str) -> float:
        """The mean net effect in the population that an estimand is about."""
        e = self.propensity(self.census)
        shares = {"ate": np.ones(len(e)), "att": e, "overlap": np.minimum(e, 1.0 - e)}
        return float(np.average(self.effects(self.census), weights=shares[estimand]))

    @property
    def confounded_by(self) -> float:
        """How far the plain difference of means is off, in units of the outcome."""
        e = self.propensity(self.census)
        control, treated = self.means(self.census).T
        naive = np.average(treated, weights=e) - np.average(control, weights=1.0 - e)
        return float(naive - np.mean(treated - control))

    def draw(
        self, n_samples: int, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.int64], Array]:
        """Independent raw records: covariates (n, k), treatments and outcomes (n,)."""
        X = public_covariates(self.domain, self.n_features, n_samples, rng, _SHIFT)
        a = (rng.random(n_samples) < self.propensity(X)).astype(np.int64)
        mean = self.means(X)[np.arange(n_samples), a]
        if self.scenario.binary:
            low, room = self._ends()
            is_high = rng.random(n_samples) < (mean - low) / room
            return X, a, low + room * is_high.astype(np.float64)
        noise = math.sqrt(1.0 - self.scenario.explained) * self.scale
        return X, a, mean + noise * rng.standard_normal(n_samples)

    def sample(self, request: DesignRequest, rng: np.random.Generator) -> DesignSample:
        """Independent records; decisions are judged by the true effects of others."""
        raw, a, y = self.draw(request.n_samples, rng)
        names = covariate_names(self.domain, self.n_features)
        data = Dataset.from_arrays(raw, a, y, names)
        weights = self.domain.sampling
        if weights is not None:
            # equal ones, as large as the public guess: they cost noise, and no sampling error
            data = replace(data, sampling=np.full(request.n_samples, weights.mean))
        census = self.census[:_JUDGED]
        effects = self.effects(census)

        def judge(treated: NDArray[np.bool_]) -> SimulatedRun:
            """The share of wrong decisions (m,), and what they forgo."""
            wrong = treated != (effects > 0)
            return SimulatedRun(float(np.mean(wrong)), lost=float(np.mean(wrong * np.abs(effects))))

        unknown = np.zeros(len(census))
        judged_at = Dataset.from_arrays(census, unknown, unknown, names)
        return DesignSample(
            data, self.truth(request.estimand), judged_at, judge, self.confounded_by
        )


def _unit(weights: Array, covariance: Array) -> Array:
    """The direction scaled so that covariates have a standard deviation of 1 along it."""
    return np.asarray(weights / math.sqrt(max(float(weights @ covariance @ weights), 1e-300)))
