"""What is declared about a private average effect before any record is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dp2erm_cvx import registry
from dp2erm_cvx.calibration import Noise, calibrator
from dp2erm_cvx.calibration.grid import Arithmetic
from dp2erm_cvx.errors import DeclarationError, known_names, shown
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.plan.effect_plan import EffectPlan
from dp2erm_cvx.plan.effect_rule import CAP, EffectSettings, effect_rule
from dp2erm_cvx.plan.pipeline import (
    LONGEST,
    NUMERICAL_SHARE,
    Pipeline,
    chosen_noise,
    logistic_propensity,
    shares_in_turn,
)
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.private_ranges import PrivateRanges
from dp2erm_cvx.program import SecondStage
from dp2erm_cvx.public import one_of, public_fraction, public_number, public_size
from dp2erm_cvx.sampling import refuse_sampling
from dp2erm_cvx.steps import (
    AverageScore,
    CellNuisances,
    CellSums,
    Center,
    ColumnRanges,
    EffectScore,
    LinearNuisances,
    MeanScore,
    Nuisances,
    OutcomeRows,
    OverlapScore,
    Refit,
    RiskScores,
    Rows,
    Step,
    StepPlan,
    Term,
    TreatedScore,
    TreatmentRate,
    declared_partition,
)
from dp2erm_cvx.universe import Universe

#: Norm bound that the outcome regression scales covariates to, so that their declared units do not matter.
NORM = 3.0
#: What may be estimated.
SCORES = {kind.estimand: kind for kind in (AverageScore, TreatedScore, OverlapScore, RiskScores)}


@dataclass(frozen=True)
class EffectStudy(Pipeline[EffectPlan]):
    """Private nuisances, then one score per record (Theorems 10 and 12).

    Parameters
    ----------
    universe, budget
        The datasets that the guarantee is about, and (epsilon, delta).
    estimand
        "ate", the average effect; "att", that among the treated; "overlap", that where either treatment is
        likely, by matching factors; "risks", those of an outcome in [0, 1] under both treatments, with their
        difference, their ratio and the odds ratio.
    residual_scale
        Public guess of the standard deviation of the outcome given the covariates, in units of the outcome.
        Without one, losses and clips follow the outcome bound, for about twice the noise.
    effect_center
        Public guess of the effect, from which the score is measured; None: the released effect where all
        scaled covariates are 0.
    public_center
        A regression of the centered outcome that is public: known coefficients, or those of an earlier
        release. What is fitted here is fitted to what it leaves.
    declared
        Settings that replace those of the public rule, by the names of
        :class:`~dp2erm_cvx.plan.EffectSettings`.
    noise
        "gamma" (pure), "gaussian", "box" (pure, needs ranges; Laplace noise on numbers), or "auto": gamma or
        box noise, the shorter for regressions on (1, x).
    ranges
        What is public about the raw records, where their ranges are released first; ``universe`` is then that
        of the normalized records, and whatever else is declared is in their units.
    arithmetic, numerical_share
        Whether that share of each solved step covers its numerical error.

    Raises DeclarationError for an invalid argument.
    """

    universe: Universe
    budget: Budget
    estimand: str = "ate"
    residual_scale: float | None = None
    effect_center: float | None = None
    public_center: Term | None = None
    declared: Mapping[str, Any] = field(default_factory=dict)
    noise: Noise | str = Noise.GAMMA
    arithmetic: Arithmetic | str = Arithmetic.ASSUMED
    numerical_share: float = NUMERICAL_SHARE
    ranges: PrivateRanges | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "noise", chosen_noise(self.noise, self.universe))
        if self.estimand not in SCORES:
            raise DeclarationError(f"estimand = {shown(self.estimand)}: must be one of {', '.join(SCORES)}")
        if self.estimand == RiskScores.estimand:
            self._check_risks()
        public_fraction("numerical_share", self.numerical_share)
        if self.residual_scale is not None:
            put(self, "residual_scale", public_size("residual_scale", self.residual_scale))
        if self.public_center is not None:
            if self.ranges is not None:
                raise DeclarationError("public_center: needs declared ranges, whose units it would be in")
            self._check(self.public_center)
        if self.estimand == RiskScores.estimand:
            refuse_sampling(
                self.universe.domain.sampling,
                "two risks and the size of the population are three private means; estimand = 'ate' is the "
                "risk difference",
            )
        list(self.steps(None))  # what is declared is judged here, not where it is used

    @property
    def scale(self) -> float:
        """The guess of the residual's standard deviation, which predictions of errors rest on."""
        if self.residual_scale is None:
            return self.universe.domain.outcome_bound / 3.0
        return self.residual_scale

    @property
    def settings(self) -> EffectSettings:
        """The settings in force: those of the public rule, with what is declared in their place."""
        known = [one.name for one in fields(EffectSettings)]
        for name in self.declared:
            if name not in known:
                raise DeclarationError(f"{name}: is no setting of an effect; {known_names(name, known)}")
        declared = dict(self.declared)
        if declared.get("rows") is not None:
            declared["rows"] = one_of("rows", declared["rows"], Rows)
        if declared.get("cells") is not None:
            if self.public_center is not None:
                raise DeclarationError("cells: take the place of a center, and of a public_center")
            if self.ranges is not None:
                raise DeclarationError("cells: need public ranges, which cuts are in")
            declared = {"rows": None, "propensity": "cells"} | declared
        cap = public_number("cap", declared.get("cap", CAP), at_least=2.0)
        left = Budget(self._kept * self.budget.epsilon, self.budget.delta)
        released = self.ranges is not None and not self.ranges.public_outcome
        # a released range reaches to about three standard deviations of the outcome
        found = effect_rule(self.universe, left, self.scale if released else self.residual_scale, cap)
        if self.estimand == OverlapScore.estimand:
            # its factors are at most 1, whatever the cap
            found = replace(found, score_bound=found.residual_bound)
        once = self.public_center is None and declared.get("first_fit", found.first_fit) is None
        if self.estimand == RiskScores.estimand and once:
            found = replace(found, squared_radius=1.0)  # few records: a small ball keeps noise out
        return replace(found, **declared)

    def steps(self, numerical_share: float | None) -> Iterator[Step]:
        """Perhaps ranges; cells, or center, perhaps a refit of its residuals, and propensity; score."""
        settings, exact = self.settings, numerical_share is not None
        if settings.rows is not None:
            steps, nuisances = self._lines(settings, settings.rows, numerical_share)
        else:
            partition = declared_partition(settings.cells, self.universe)
            share = settings.center_share + (settings.propensity_share if settings.known is None else 0.0)
            steps = [CellSums(partition, share, self.noise, exact)]
            nuisances = CellNuisances(self.scale, settings.known)
        if self.ranges is not None:
            steps.insert(0, ColumnRanges(self.ranges, self.ranges.share))
        yield from shares_in_turn(steps, self._kept)
        yield MeanScore(self._score(nuisances, settings), self.noise, exact)

    def _lines(
        self, settings: EffectSettings, rows: Rows, numerical_share: float | None
    ) -> tuple[list[Any], Nuisances]:
        terms = [] if self.public_center is None else [self.public_center]
        program = self._regression(settings)
        regressions = [(Center, settings.center_share)]
        if settings.first_fit is not None:
            first = settings.first_fit * settings.center_share
            regressions = [(Center, first), (Refit, settings.center_share - first)]
        steps: list[Any] = []
        law, scale = calibrator("sharp"), NORM / self.universe.domain.features_bound
        for kind, share in regressions:
            mapped = OutcomeRows(rows, tuple(terms), scale)
            steps.append(kind(None, program, law, self.noise, None, 0.0, numerical_share, mapped, share))
            terms.append(Term(rows, kind.name))
        if settings.propensity == "constant":
            steps.append(TreatmentRate(settings.propensity_share, self.noise, numerical_share is not None))
        elif settings.known is None:
            steps.append(logistic_propensity(self, settings, numerical_share))
        treated = "propensity" if settings.known is None else settings.known
        return steps, LinearNuisances(tuple(terms), treated, settings.propensity == "constant")

    @property
    def _kept(self) -> float:
        """Of epsilon: what the ranges leave, which the other shares are of."""
        return 1.0 if self.ranges is None else 1.0 - self.ranges.share

    def _score(self, nuisances: Nuisances, settings: EffectSettings) -> EffectScore:
        clips = settings.cap, settings.residual_bound, settings.score_bound
        if self.estimand == RiskScores.estimand:
            return RiskScores(nuisances, *clips, other_bound=self.universe.domain.outcome_bound)
        sampled = self.universe.domain.sampling is not None
        return SCORES[self.estimand](nuisances, *clips, self.effect_center, sampled)

    def planned(self, steps: Sequence[StepPlan]) -> EffectPlan:
        return EffectPlan(self, tuple(steps))

    def _regression(self, settings: EffectSettings) -> SecondStage:
        bound, stages = self.universe.domain.outcome_bound, registry.second_stages()
        if settings.squared_radius is not None:
            return registry.build(stages, "regression", theta_set=L2Ball(settings.squared_radius * bound))
        # no theorem needs this ball; within it every solve is certified to a public radius
        ball = L2Ball(LONGEST * bound)
        return registry.build(stages, "saturating_regression", slope=settings.slope, theta_set=ball)

    def _check_risks(self) -> None:
        domain = self.universe.domain
        low, high = (domain.outcome_center + side * domain.outcome_bound for side in (-1.0, 1.0))
        if domain.treatment_cost or low > 0.0 or high < 1.0 or self.effect_center is not None:
            raise DeclarationError(
                "estimand = 'risks': needs an outcome in [0, 1] inside the domain, without a treatment cost "
                "and without an effect_center"
            )
        if self.ranges is not None and not self.ranges.public_outcome:
            raise DeclarationError("estimand = 'risks': needs a public range of the outcome")

    def _check(self, center: Term) -> None:
        names = center.rows.names(tuple(f"x{k}" for k in range(self.universe.n_features)))
        if isinstance(center.source, str) or len(center.source) != len(names):
            raise DeclarationError(f"public_center: {len(names)} public coefficients are needed")
        for value in center.source:
            public_number("public_center", value)
