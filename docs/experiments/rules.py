"""Rules on a training and a test set under every calibration.

The script has plans, draws of theta, and tuning of settings. A scheme is
``{"program", "settings", "paper", "composition"}``: a first stage by its name, what the paper's
statements need in place of its settings, and what ``ipw_private`` takes. Ridges are in units of the
squared norm bound of what they multiply.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import baselines
import numpy as np
import pandas as pd
from common import Cell, Design, Row, as_text, budget_of, cells, each, grid, run

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import Perturbed
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.datasets import Simulation
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.estimators import TOLERANCE
from dp2erm_cvx.noise import simulate_noise
from dp2erm_cvx.plan import Plan, RuleStudy, Study, make_plan
from dp2erm_cvx.plan.predict import rule_noise
from dp2erm_cvx.privacy import Budget, Neighboring
from dp2erm_cvx.program import FirstStage, L1Ball, L2Ball, PrivateFirstStage, SecondStage, registry
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.solve import Solution, solve
from dp2erm_cvx.steps.execution import Execution
from dp2erm_cvx.steps.record_map import Rows

Scheme = dict[str, Any]
#: Fits without noise, and the family with a bounded-influence loss in place of squared loss over a
#: ball.
PLAIN, SATURATING = "non-private", "saturating"


def is_printed(family: str) -> bool:
    """True for a family of calibrations of the paper, which takes the paper's settings as well."""
    return family.startswith("paper") or family == "composition-printed"


@dataclass(frozen=True)
class Constants:
    """Public constants of an experiment on rules.

    Norms beyond ``covariate_bound`` are shrunk, and outcomes clipped to center ± bound.

    Parameters
    ----------
    covariate_bound, outcome_bound
        Bounds of the domain.
    theta_set, paper_theta_set
        Norm of the ball Theta, and of that of the paper's calibrations.
    theta_radius, paper_theta_radius
        Radius of that ball in units of ``outcome_bound / covariate_bound``; None for the same.
    slope
        Slope of the loss of the family "saturating".
    outcome_center, intercept
        Center of the outcome, and the constant beside the covariates.
    arm_floor
        Share of n that either arm is declared to have; None for no declaration.
    """

    covariate_bound: float
    outcome_bound: float
    theta_set: Literal["l1", "l2"] = "l2"
    paper_theta_set: Literal["l1", "l2"] = "l1"
    theta_radius: float = 1.0
    paper_theta_radius: float | None = None
    slope: float | None = None
    outcome_center: float = 0.0
    intercept: float = 0.0
    arm_floor: float | None = None

    def domain(self, n: int, keeps_treatment: bool = False) -> Domain:
        """The public domain; ``keeps_treatment`` for neighbors that never differ in a treatment."""
        relation = (
            Neighboring.REPLACE_ONE_KEEP_TREATMENT if keeps_treatment else Neighboring.REPLACE_ONE
        )
        return Domain(
            self.covariate_bound,
            self.outcome_bound,
            outcome_center=self.outcome_center,
            intercept=self.intercept,
            arm_floor=None if self.arm_floor is None else max(1, int(self.arm_floor * n)),
            relation=relation,
        )

    def norm(self, family: str = "sharp") -> str:
        """The norm of the ball Theta under a family: "none" has no ball."""
        if family == SATURATING:
            return "none"
        return self.paper_theta_set if is_printed(family) else self.theta_set

    def second_stage(self, family: str = "sharp") -> SecondStage:
        """The linear rule over the ball of a family, or with its loss."""
        if self.norm(family) == "none":
            return registry.build(registry.second_stages(), "itr_saturating", slope=self.slope)
        radius = (self.paper_theta_radius if is_printed(family) else None) or self.theta_radius
        ball = L1Ball if self.norm(family) == "l1" else L2Ball
        theta_set = ball(radius * self.outcome_bound / self.covariate_bound)
        return registry.build(registry.second_stages(), "itr", theta_set=theta_set)


def first_stage(
    scheme: Scheme, domain: Domain, paper: bool = False, private: bool = False
) -> FirstStage:
    """The weights of a scheme, with the paper's settings or with a private propensity.

    Raises DeclarationError.
    """
    chosen = ({"share": 0.3} if private else {}) | scheme.get("settings", {})
    chosen |= scheme.get("paper", {}) if paper else scheme.get("composition", {}) if private else {}
    # the paper's settings may be those of a program of its own
    named = chosen.pop("program", scheme["program"])
    program = "ipw_private" if private else named
    if "kernel" in chosen:
        chosen["kernel"] = Kernel.from_text(chosen["kernel"], "kernel")
    if "ridge" in chosen and program.startswith("ipw"):
        chosen["ridge"] *= domain.covariate_bound**2
    elif "ridge" in chosen and program == "entropy_balancing":
        # the constant function is as large as the covariates
        chosen["ridge"] *= 2 * domain.features_bound**2
    return registry.build(registry.first_stages(), program, **chosen).resolve(domain.space)


@dataclass(frozen=True)
class PlannedRule:
    """A plan; ``note`` says what is weaker than replace-one privacy."""

    plan: Plan[Study]
    note: str = ""

    def facts(self) -> Row:
        """Facts that belong in every row."""
        calibration = self.plan.main.calibration
        facts = {
            "V": self.plan.bound.V,
            "gamma": getattr(calibration, "gamma", 0.0),
            "scale": calibration.scale,
        }
        facts |= {
            "split": getattr(calibration, "split", 1.0),
            "theorem": self.plan.theorem,
            "note": self.note,
        }
        return facts


@dataclass(frozen=True)
class RuleDeclaration:
    """What a rule is planned by: public quantities only.

    Parameters
    ----------
    scheme
        The first stage, as the head of this file describes it.
    constants
        Bounds of the domain, and the set of theta.
    family
        Calibration, such as "sharp", "paper" or "composition".
    noise
        The law of the noise.
    budget
        Privacy budget of the rule.
    shape
        Numbers of records and of covariates.
    """

    scheme: Scheme
    constants: Constants
    family: str
    noise: str
    budget: Budget
    shape: tuple[int, int]

    @property
    def printed(self) -> bool:
        """True where the calibration is that of the paper."""
        return is_printed(self.family)

    def study(self, domain: Domain, **settings: Any) -> Study:
        """The two stages in a domain, with further settings of the study."""
        return Study(
            first_stage(self.scheme, domain, paper=self.printed),
            self.constants.second_stage(self.family).resolve(domain.space),
            Universe(domain, *self.shape),
            self.budget,
            noise=self.noise,
            **settings,
        )


_PLANS: dict[str, PlannedRule | str] = {}


def plan_rule(declared: RuleDeclaration) -> PlannedRule | str:
    """The plan of a declared rule in exact arithmetic, or why it has none."""
    key = repr(declared)
    if key not in _PLANS:
        make = _composed if declared.family.startswith("composition") else _direct
        try:
            _PLANS[key] = make(declared)
        except (CalibrationError, DeclarationError) as error:
            _PLANS[key] = str(error)
    return _PLANS[key]


def _direct(declared: RuleDeclaration) -> PlannedRule:
    """One calibration of the second stage for the movement of the weights."""
    # the paper's kernel proposition holds only for neighbors of the same treatment
    weaker = declared.printed and declared.scheme["program"] == "mmd"
    domain = declared.constants.domain(declared.shape[0], keeps_treatment=weaker)
    study = declared.study(
        domain,
        calibration="sharp" if declared.family == SATURATING else declared.family,
        tolerance=TOLERANCE,  # V counts that of the weights as a release does
    )
    return PlannedRule(make_plan(study), "neighbors keep their treatment" if weaker else "")


def _composed(declared: RuleDeclaration) -> PlannedRule:
    """A private first stage and a private second stage, or the paper's baseline for them."""
    program = declared.scheme["program"]
    if program == "uniform":
        raise CalibrationError("weights 1 need no private first stage: see sharp")
    domain = declared.constants.domain(declared.shape[0])
    study = declared.study(domain)
    if program == "ipw_logistic" and not declared.printed:
        private = first_stage(declared.scheme, domain, private=True)
        study = dataclasses.replace(study, first=private, tolerance=TOLERANCE)
        return PlannedRule(make_plan(study))
    if program == "ipw_logistic":
        plan = baselines.ipw_composition(study)
    else:
        plan = baselines.universal(study, printed=declared.printed)
    return PlannedRule(plan, "" if plan.bound.private else "not private as argued")


class Weights:
    """Weights of first stages on one dataset, each solved once."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._known: dict[FirstStage, Solution] = {}

    def __call__(self, first: FirstStage) -> Solution:
        """Weights (n,) of a first stage without noise, with their certificate."""
        if first not in self._known:
            self._known[first] = _newton(first.instance(self.records))
        return self._known[first]


_newton = functools.partial(solve, solver="newton", throw=False)


def effective_share(w: Array) -> float:
    """Kish's effective sample size over n."""
    return float(np.sum(w)) ** 2 / float(w @ w) / len(w)


def draw_thetas(
    rule: PlannedRule, weights: Weights, draws: int, rng: np.random.Generator
) -> tuple[Array, float, bool]:
    """Thetas (draws, p) as a release would have them.

    Returned with them are the effective share, and whether all was certified.
    """
    first, records = rule.plan.study.first, weights.records
    if not isinstance(first, PrivateFirstStage):
        w = weights(first)
        thetas, fine = _thetas(rule, records, w.value, draws, rng)
        return thetas, effective_share(w.value), w.certified and fine
    calibration = rule.plan.step("propensity").calibration
    noises = simulate_noise(calibration, draws, rng)
    solved = [_newton(first.perturbed(records, calibration.gamma, noise)) for noise in noises]
    parts = [_thetas(rule, records, w.value, 1, rng) for w in solved]
    certified = all(w.certified for w in solved) and all(fine for _, fine in parts)
    share = float(np.mean([effective_share(w.value) for w in solved]))
    return np.concatenate([thetas for thetas, _ in parts]), share, certified


def without_noise(
    first: FirstStage, second: SecondStage, weights: Weights
) -> tuple[Array, float, bool]:
    """Two stages without privacy, and without the constraint that is there for its sake."""
    w = weights(first)
    solution = _newton(second.unconstrained().instance(weights.records, w.value, gamma=0.0))
    return solution.value[None], effective_share(w.value), w.certified and solution.certified


def _thetas(
    rule: PlannedRule, records: Records, w: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, bool]:
    plan, second = rule.plan, rule.plan.study.second
    calibration, program = plan.main.calibration, plan.main.solved()
    if calibration.perturbed is Perturbed.OUTPUT:
        exact = _newton(second.unconstrained().instance(records, w, gamma=0.0))
        thetas, certified = exact.value + simulate_noise(calibration, draws, rng), exact.certified
    else:
        noises = simulate_noise(calibration, draws, rng)
        solved = [
            _newton(program.instance(records, w, gamma=calibration.gamma, noise=b)) for b in noises
        ]
        thetas, certified = (
            np.array([one.value for one in solved]),
            all(one.certified for one in solved),
        )
    if plan.main.perturbed is not Perturbed.OBJECTIVE:  # theta is projected as in a release
        theta_set = second.feasible(records.space)
        thetas = np.array([theta_set.project(theta) for theta in thetas])
    return thetas, certified


def judged(test: Simulation, treated: Array) -> Row:
    """Mean accuracy and value of rules (m, n) on a test set.

    Beside them stands the value that the outcomes of the set estimate.
    """
    a, y = test.dataset.a, test.dataset.y
    weight = (treated == (a == 1)) / np.where(a == 1, test.propensity, 1.0 - test.propensity)
    return {
        "accuracy": float(np.mean(treated == test.optimal_rule.astype(bool))),
        "value": float(np.mean([test.value(rule) for rule in treated.astype(np.int64)])),
        "empirical_value": float(np.mean(weight @ y / np.maximum(weight.sum(axis=1), 1e-300))),
    }


def taken(sample: Simulation, rows: Array) -> Simulation:
    """These records with what is known of them."""
    data = sample.dataset
    part = dataclasses.replace(data, X=data.X[rows], a=data.a[rows], y=data.y[rows])
    known = (sample.propensity[rows], sample.contrast[rows], sample.main_effect[rows])
    return Simulation(sample.scenario, part, *known)


class Trial:
    """A training set and a test set. Weights are solved once for all calibrations."""

    def __init__(
        self, train: Simulation, test: Simulation, epsilons: list[float], draws: int = 1
    ) -> None:
        self.train, self.test, self.epsilons, self.draws = train, test, epsilons, draws
        self._weights: dict[tuple[Constants, bool], Weights] = {}

    def weights(self, constants: Constants, keeps_treatment: bool = False) -> Weights:
        """Weights of the training set in a domain."""
        key = (constants, keeps_treatment)
        if key not in self._weights:
            data = self.train.dataset
            domain = constants.domain(data.n_samples, keeps_treatment)
            self._weights[key] = Weights(domain.records(data.X, data.a, data.y))
        return self._weights[key]

    def private_rows(
        self,
        scheme: Scheme,
        constants: Constants,
        family: str,
        noise: str,
        rng: np.random.Generator,
    ) -> Iterator[Row]:
        """One row for every epsilon."""
        shape = self.train.dataset.X.shape
        for epsilon in self.epsilons:
            head = {"family": family, "noise": noise, "epsilon": epsilon}
            budget = budget_of(epsilon, noise, shape[0])
            declared = RuleDeclaration(scheme, constants, family, noise, budget, shape)
            planned = plan_rule(declared)
            if isinstance(planned, str):
                yield head | {"status": "refused", "reason": planned}
                continue
            keeps_treatment = planned.note == "neighbors keep their treatment"
            drawn = draw_thetas(planned, self.weights(constants, keeps_treatment), self.draws, rng)
            yield head | self._judged(drawn, constants) | planned.facts()

    def plain_row(self, scheme: Scheme, constants: Constants) -> Row:
        """Row of the two stages without privacy."""
        domain = constants.domain(self.train.dataset.n_samples)
        second = constants.second_stage().resolve(domain.space)
        drawn = without_noise(first_stage(scheme, domain), second, self.weights(constants))
        return {"family": PLAIN, "noise": "none", "epsilon": np.inf} | self._judged(
            drawn, constants
        )

    def pipeline_rows(
        self, name: str, declared: Row, noise: str, rng: np.random.Generator, center: float = 0.0
    ) -> Iterator[Row]:
        """Rows of the default pipeline, by one run for every epsilon.

        ``declared`` are its bounds and settings.
        """
        data = self.train.dataset
        domain = Domain(
            declared["covariate_bound"], declared["outcome_bound"], outcome_center=center
        )
        rows = Rows.POOLED.of(domain.features(self.test.dataset.X), 0.0)
        for epsilon in self.epsilons:
            head = {"scheme": name, "family": "pipeline", "noise": noise, "epsilon": epsilon}
            try:
                plan = make_plan(
                    RuleStudy(
                        Universe(domain, *data.X.shape),
                        budget_of(epsilon, noise, data.n_samples),
                        outcome_scale=declared["outcome_scale"],
                        declared=declared.get("settings", {}),
                        noise=noise,
                    )
                )
            except (CalibrationError, DeclarationError) as error:
                yield head | {"status": "refused", "reason": str(error)}
                continue
            result = plan.run(
                data, Execution("first_certified", TOLERANCE, int(rng.integers(2**62)))
            )
            theta, calibration = result.released[plan.main.name], plan.main.calibration
            facts = {
                "V": plan.bound.V,
                "gamma": getattr(calibration, "gamma", 0.0),
                "scale": calibration.scale,
            }
            facts |= {"theorem": plan.theorem, "note": ", ".join(step.name for step in plan.steps)}
            facts |= {
                "certified": result.certified,
                "predicted_flips": rule_noise(plan, theta).flipped_share,
            }
            yield head | {"status": "done"} | judged(self.test, (rows @ theta > 0)[None]) | facts

    def constant_rows(self) -> Iterator[Row]:
        """Everybody and nobody."""
        everyone = np.ones((1, self.test.dataset.n_samples), dtype=bool)
        for label, treated in (("treat all", everyone), ("treat none", ~everyone)):
            head = {"scheme": label, "family": "constant rule", "noise": "none", "epsilon": np.inf}
            yield head | {"status": "done"} | judged(self.test, treated)

    def _judged(self, drawn: tuple[Array, float, bool], constants: Constants) -> Row:
        thetas, share, certified = drawn
        # as a release treats them: beside an intercept, shrinking a record changes its
        # recommendation
        rows = constants.domain(self.test.dataset.n_samples).features(self.test.dataset.X)
        known = judged(self.test, (rows @ thetas.T > 0).T)
        return {"status": "done"} | known | {"effective_share": share, "certified": certified}


def in_force(design: Design, name: str, family: str, choice: Row) -> tuple[Scheme, Constants]:
    """A scheme and the constants of a family, with what tuning chose for them."""
    scheme = design["schemes"][name]
    constants = (
        design.get("saturating", design["constants"])
        if family == SATURATING
        else design["constants"]
    )
    settings = scheme.get("settings", {}) | choice["settings"]
    return scheme | {"settings": settings}, dataclasses.replace(constants, **choice["constants"])


def choose(design: Design, sample: Simulation, name: str, family: str) -> Row:
    """Settings tuned on an independent sample; those of the design where it tunes nothing.

    Every candidate is fitted on bootstrap resamples with every noise and budget and judged by its
    out-of-bag accuracy against the optimal rule; for the line without privacy, by one fit without
    noise. A candidate that is refused anywhere is out: it would else be judged where noise is
    small. Constants are tried first.
    """
    best: Row = {"settings": {}, "constants": {}, "score": None}
    tuning, n = design.get("tuning"), sample.dataset.n_samples
    if tuning is None:
        return best
    rng = np.random.default_rng([design["seed"], 7])
    bags = [rng.integers(n, size=n) for _ in range(tuning["bootstraps"])]
    constants = [] if family == SATURATING else tuning.get("constants", [])
    for kind, candidates in (
        ("constants", constants),
        ("settings", tuning["candidates"].get(name, [])),
    ):
        for candidate in candidates:
            tried = best | {kind: candidate}
            score = _score(design, sample, bags, in_force(design, name, family, tried), family)
            if score is not None and (best["score"] is None or score > best["score"]):
                best = tried | {"score": score}
    return best


def _score(
    design: Design,
    sample: Simulation,
    bags: list[Array],
    chosen: tuple[Scheme, Constants],
    family: str,
) -> float | None:
    scores = []
    for number, inside in enumerate(bags):
        outside = np.setdiff1d(np.arange(sample.dataset.n_samples), inside)
        trial = Trial(taken(sample, inside), taken(sample, outside), design["epsilons"])
        rows = [trial.plain_row(*chosen)] if family == PLAIN else []
        for noise in design["noises"] if family != PLAIN else []:
            for row in trial.private_rows(
                *chosen, family, noise, np.random.default_rng([design["seed"], 8, number])
            ):
                if row["status"] != "done":
                    return None
                rows.append(row)
        scores += [row["accuracy"] for row in rows]
    return float(np.mean(scores))


def all_rows(
    design: Design, choices: dict[tuple, Row], part: str, trial: Trial, cell: Cell
) -> list[Row]:
    """Every scheme, family, noise and budget on one dataset, the pipelines, and constant rules."""
    rows: list[Row] = []
    for name in design["schemes"]:
        for family in design["families"]:
            chosen = in_force(design, name, family, choices[part, name, family])
            for noise in design["noises"]:
                private = trial.private_rows(
                    *chosen, family, noise, cell.rng(f"{name}/{family}/{noise}")
                )
                rows += [{"scheme": name} | row for row in private]
        # settings that a small noise asks for would make every scheme weights of 1
        plain = in_force(design, name, PLAIN, choices[part, name, PLAIN])
        rows.append({"scheme": name} | trial.plain_row(*plain))
    for name, declared in design.get("methods", {}).items():
        for noise in design["noises"]:
            rows += trial.pipeline_rows(name, declared, noise, cell.rng(f"{name}/{noise}"))
    return rows + list(trial.constant_rows())


def tuned_run(
    design: Design,
    part: str,
    tuned: Callable[[Design, str, str, str], Row],
    rows: Callable[[Design, Cell], list[Row]],
    folder: Path,
    workers: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table of all replicates, and the tuned settings.

    Settings are tuned for every sample (``part``), scheme and family.
    """
    parts = list(design[f"{part}s"])
    families = [*design["families"], PLAIN]
    places = [
        (sample, name, family)
        for sample in parts
        for name in design["schemes"]
        for family in families
    ]
    choices = each(tuned, [(design, *place) for place in places], folder, workers)
    design["choices"] = dict(zip(places, choices, strict=True))
    keys = grid(**{part: parts}, replicate=range(design["replicates"]))
    table = run(rows, design, cells(design, keys), folder, workers)
    chosen = pd.DataFrame([(*place, as_text(one)) for place, one in design["choices"].items()])
    return table, chosen.set_axis([part, "scheme", "calibration", "chosen"], axis=1)
