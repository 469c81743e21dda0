"""Tables that are sound, and tables in which something gives the treatment or the outcome away."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from dp2erm_cvx import Codebook, Domain, Treatment
from dp2erm_cvx.data.dataset import Dataset, cells_of
from dp2erm_cvx.diagnostics.look import AskedAbout, look, seen_of


@dataclass(frozen=True)
class Case:
    """A table, its declaration, and what a question says."""

    X: pd.DataFrame
    arm: object
    y: object
    ranges: dict
    levels: dict = field(default_factory=dict)
    treatment: Treatment = field(default_factory=lambda: Treatment("arm", "yes", "no"))
    center: float = 50.0
    bound: float = 40.0
    event: bool = False
    book: dict = field(default_factory=dict)
    asked: dict = field(default_factory=dict)

    def public(self):
        book = Codebook(self.treatment, outcome="score", levels=self.levels, **self.book)
        ranges = book.ranges(self.ranges)
        outcome = {"outcome_center": self.center, "binary_outcome": self.event}
        return Domain(book.norm(ranges), self.bound, ranges=ranges, codebook=book, **outcome)

    def findings(self):
        public = self.public()
        data = Dataset.declared(public, self.X, self.arm, self.y)
        table = cells_of(public, self.X, self.arm, self.y)
        return look(seen_of(data, public, table), AskedAbout(public, **self.asked))

    def having(self, levels=None, ranges=None, **columns):
        """The case with further covariates."""
        X = self.X.assign(**columns)
        return replace(
            self, X=X, ranges=self.ranges | (ranges or {}), levels=self.levels | (levels or {})
        )


def yes(treated):
    return np.where(treated, "yes", "no")


def base(seed, n=2000, slope=1.0, rate=0.0, noise=4.0):
    """Severity confounds by ``slope`` on the log odds; age matters a little."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(30, 80, n).round()
    severity = rng.uniform(0, 10, n).round(2)
    v = (severity - 5) / 5
    treated = rng.random(n) < 1 / (1 + np.exp(-(slope * v + rate)))
    y = (50 - 8 * v - 2 * (age - 55) / 25 + 3 * treated + noise * rng.standard_normal(n)).round(2)
    X = pd.DataFrame({"age": age, "severity": severity})
    return Case(X, yes(treated), y, {"age": (30, 80), "severity": (0, 10)}), rng, treated


def trial(seed):
    case, _, _ = base(seed, n=400, slope=0.0)
    return replace(case, asked={"confounding": 0.1, "propensity": "constant"})


def confounded(seed):
    case, _, _ = base(seed, n=1500, slope=1.5)
    return case


def far_arms(seed):
    case, _, _ = base(seed, n=3000, slope=2.5)
    return case


def rare_treatment(seed):
    case, _, _ = base(seed, n=4000, slope=1.0, rate=-4.0)
    return case


def baseline(seed):
    case, rng, _ = base(seed, noise=8.0)
    before = case.y + rng.normal(0, (1.0, 1.5, 2.5, 4.0)[seed % 4], len(case.y))
    return case.having(ranges={"before": (0, 100)}, before=before.round(1))


def many_levels(seed):
    case, rng, _ = base(seed, n=900)
    ward = np.char.add("w", rng.integers(0, 40, 900).astype(str))
    return case.having(levels={"ward": [f"w{k}" for k in range(40)]}, ward=ward)


def wide(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (300, 50))
    treated = rng.random(300) < 1 / (1 + np.exp(-1.2 * X[:, :5].sum(axis=1)))
    names = [f"x{k}" for k in range(50)]
    y = 50 + 5 * X[:, 0] + 3 * treated + rng.normal(0, 4, 300)
    return Case(pd.DataFrame(X, columns=names), yes(treated), y, dict.fromkeys(names, (-1, 1)))


def laboratory(seed):
    case, rng, treated = base(seed)
    values = rng.lognormal(0, 0.5, 2000)
    values[rng.random(2000) < 0.3 + 0.03 * treated] = np.nan
    return case.having(ranges={"crp": (0, 20)}, crp=values)


def few_answers(seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({f"x{k}": rng.integers(0, 2, 1500) for k in range(3)})
    treated = rng.random(1500) < 0.3 + 0.3 * X["x0"]
    y = (rng.random(1500) < 0.1 + 0.2 * X["x1"]).astype(float)
    return Case(X, yes(treated), y, dict.fromkeys(X.columns, (0, 1)), center=0.5, bound=0.5)


def doses(seed):
    case, rng, _ = base(seed)
    alcohol = np.where(rng.random(2000) < 0.6, 0.0, rng.lognormal(2, 1, 2000)).round(1)
    return case.having(ranges={"alcohol": (0, 100)}, alcohol=alcohol)


def scales(seed):
    case, rng, treated = base(seed)
    X = pd.DataFrame({f"item{k}": rng.integers(1, 6, 2000) for k in range(6)})
    y = np.clip(X.sum(axis=1) + treated + rng.integers(-3, 4, 2000), 0, 40)
    return replace(case, X=X, y=y, ranges=dict.fromkeys(X.columns, (1, 5)), center=20, bound=20)


def visits(seed):
    case, _, _ = base(seed)
    book = {"unit": {"column": "pid", "number": 700}}
    X = case.X.assign(pid=np.char.add("p", (np.arange(2000) // 3).astype(str)))
    return replace(case, X=X, book=book)


def three_arms(seed):
    rng = np.random.default_rng(seed)
    severity = rng.uniform(0, 10, 1500)
    arm = np.array(["a", "b", "c"])[
        np.clip((severity / 5 + rng.uniform(0, 2, 1500)).astype(int), 0, 2)
    ]
    y = 50 - severity + rng.normal(0, 3, 1500)
    return Case(
        pd.DataFrame({"severity": severity}),
        arm,
        y,
        {"severity": (0, 10)},
        treatment=Treatment("arm", levels=["a", "b", "c"]),
    )


def sites(seed):
    case, rng, _ = base(seed)
    site = rng.integers(0, 8, 2000)
    treated = rng.random(2000) < np.linspace(0.15, 0.85, 8)[site]
    labels = [f"s{k}" for k in range(8)]
    case = case.having(levels={"site": labels}, site=np.array(labels)[site])
    return replace(case, arm=yes(treated))


def survey(seed):
    case, rng, _ = base(seed)
    X = case.X.assign(weight=rng.uniform(0.2, 3.0, 2000).round(2))
    return replace(case, X=X, book={"sampling_weights": {"column": "weight", "largest": 3.0}})


def dialysis(seed):
    case, rng, _ = base(seed)
    on = rng.random(2000) < 0.05
    return replace(
        case.having(levels={"dialysis": ["yes", "no"]}, dialysis=yes(on)),
        y=np.where(on, 52.0, case.y),
    )


def three_decimals(seed):
    case, rng, _ = base(seed)
    texts = [f"{value:.3f}" for value in rng.uniform(0, 10, 2000)]
    return case.having(ranges={"lactate": (0, 10)}, lactate=texts)


def strong_indicator(seed):
    case, rng, treated = base(seed)
    severe = rng.random(2000) < np.where(treated, 0.75, 0.25)
    return case.having(levels={"severe": ["yes", "no"]}, severe=yes(severe))


def hardly_varies(seed):
    case, rng, _ = base(seed)
    rare = (rng.random(2000) < 0.003).astype(int)
    return case.having(ranges={"rare": (0, 1), "year": (2000, 2030)}, rare=rare, year=2019)


def differences(seed):
    case, rng, _ = base(seed)
    return case.having(ranges={"change": (-5, 5)}, change=rng.normal(0, 1.5, 2000).round(1))


SOUND = (
    *(
        trial,
        confounded,
        far_arms,
        rare_treatment,
        baseline,
        many_levels,
        wide,
        laboratory,
        few_answers,
    ),
    *(doses, scales, visits, three_arms, sites, survey, dialysis, three_decimals, strong_indicator),
    *(hardly_varies, differences),
)


def kit(seed):
    case, rng, treated = base(seed)
    agree = rng.random(2000) < (1.0, 0.98, 0.9)[seed % 3]
    return case.having(levels={"kit": ["A", "B"]}, kit=np.where(treated == agree, "A", "B"))


def dose_of_drug(seed):
    case, rng, treated = base(seed)
    return case.having(
        ranges={"dose": (0, 60)}, dose=np.where(treated, rng.lognormal(3, 0.3, 2000), 0.0)
    )


def site_decides(seed):
    case, rng, _ = base(seed)
    site = rng.integers(0, 10, 2000)
    labels = [f"s{k}" for k in range(10)]
    case = case.having(levels={"site": labels}, site=np.array(labels)[site])
    return replace(case, arm=yes(site < 5))


def numbered_arm(seed):
    case, rng, treated = base(seed)
    return case.having(
        ranges={"code": (1000, 1010)}, code=1000 + 5 * treated + rng.integers(0, 3, 2000)
    )


def two_together(seed):
    case, rng, treated = base(seed)
    part = rng.uniform(0, 10, 2000)
    rest = 10 * treated + rng.normal(0, 0.5, 2000) - part
    return case.having(ranges={"part": (0, 10), "rest": (-12, 12)}, part=part, rest=rest)


def days_on_drug(seed):
    case, rng, treated = base(seed)
    return case.having(
        ranges={"days": (0, 30)}, days=np.where(treated, rng.uniform(1, 30, 2000), np.nan)
    )


def measured_in_one(seed):
    case, rng, treated = base(seed)
    X = case.X.assign(severity=case.X.severity.where(treated | (rng.random(2000) < 0.3)))
    return replace(case, X=X)


def propensity_score(seed):
    case, rng, treated = base(seed)
    score = np.clip(rng.normal(np.where(treated, 0.8, 0.2), 0.1), 0, 1)
    return case.having(ranges={"ps": (0, 1)}, ps=score)


def three_kits(seed):
    case = three_arms(seed)
    return case.having(
        levels={"kit": ["1", "2", "3"]}, kit=pd.Series(case.arm).map({"a": "1", "b": "2", "c": "3"})
    )


def outcome_rounded(seed):
    case, _, _ = base(seed)
    return case.having(ranges={"points": (0, 100)}, points=case.y.round())


def outcome_in_other_units(seed):
    case, _, _ = base(seed)
    return case.having(ranges={"points": (-200, 200)}, points=(1.8 * case.y + 32).round(2))


def better(seed):
    case, _, _ = base(seed)
    return case.having(
        levels={"better": ["yes", "no"]}, better=yes(case.y > (50, 55, 45)[seed % 3])
    )


def thirds(seed):
    case, _, _ = base(seed)
    return case.having(
        levels={"third": ["low", "mid", "high"]},
        third=np.array(["low", "mid", "high"])[np.searchsorted([46, 54], case.y)],
    )


def logarithm(seed):
    case, _, _ = base(seed)
    return case.having(ranges={"score_log": (2, 5)}, score_log=np.log(np.maximum(case.y, 10)))


def before_and_change(seed):
    case, rng, _ = base(seed)
    before = (case.y + rng.normal(0, 8, 2000)).round(2)
    return case.having(
        ranges={"before": (0, 120), "change": (-40, 40)}, before=before, change=case.y - before
    )


def death_flag(seed):
    case, rng, treated = base(seed)
    died = rng.random(2000) < 0.1 + 0.05 * treated
    case = replace(case, y=died.astype(float), center=0.5, bound=0.5)
    return case.having(
        levels={"discharge": ["home", "dead"]}, discharge=np.where(died, "dead", "home")
    )


def days_to_death(seed):
    case = death_flag(seed)
    rng = np.random.default_rng(seed)
    X = case.X.drop(columns="discharge").assign(
        days=np.where(case.y > 0, rng.uniform(1, 29, 2000), 30.0)
    )
    return replace(case, X=X, levels={}, ranges=case.ranges | {"days": (0, 30)})


def join(seed):
    case, _, _ = base(seed, n=500)
    times = 4 if seed % 2 else 2
    return replace(
        case,
        X=pd.concat([case.X] * times, ignore_index=True),
        arm=np.tile(case.arm, times),
        y=np.tile(case.y, times),
    )


def numbered_join(seed):
    case = join(seed)
    return case.having(ranges={"line": (0, 2000)}, line=np.arange(len(case.X)))


def thousands(seed):
    case, rng, _ = base(seed)
    cost = (rng.lognormal(7, 1, 2000)).astype(int)
    texts = [f"{value:,}".replace(",", ".") for value in np.minimum(cost, 900_000)]
    return case.having(ranges={"cost": (0, 20)}, cost=texts)


def decimal_commas(seed):
    case, _, _ = base(seed)
    X = case.X.assign(severity=case.X.severity.astype(str).str.replace(".", ","))
    return replace(case, X=X)


def minus_signs(seed):
    case, _, _ = base(seed)
    texts = [f"\u2212{-value:.2f}" if value < 0 else f"{value:.2f}" for value in case.y - 50]
    return replace(case, y=texts, center=0.0)


def percent_signs(seed):
    case, rng, _ = base(seed)
    return case.having(
        ranges={"fraction": (0, 100)},
        fraction=[f"{value:.0f}%" for value in rng.uniform(0, 99, 2000)],
    )


def other_unit(seed):
    case, _, _ = base(seed)
    return replace(case, X=case.X.assign(severity=case.X.severity / 1000))


def coded_event(seed):
    case, rng, _ = base(seed)
    return replace(
        case, y=np.where(rng.random(2000) < 0.1, 2, 1), center=0.5, bound=0.5, event=True
    )


def tiny_arm(seed):
    case, _, _ = base(seed)
    return replace(case, arm=yes(np.arange(2000) < 4))


def no_arm(seed):
    case, _, _ = base(seed)
    return replace(case, arm=np.where(case.arm == "yes", "Yes", "no"))


def other_case(seed):
    case, _, _ = base(seed)
    return case.having(
        levels={"grade": ["high", "low"]}, grade=np.where(case.X.severity > 5, "High", "Low")
    )


def dates(seed):
    case, rng, _ = base(seed)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 2000), unit="D")
    return case.having(ranges={"day": (0, 900)}, day=days)


def points(seed):
    case, _, _ = base(seed)
    return replace(case, X=case.X.assign(severity=[f"{value} pt" for value in case.X.severity]))


def mostly_empty(seed):
    case, rng, _ = base(seed)
    return case.having(
        ranges={"crp": (0, 20)},
        crp=np.where(rng.random(2000) < 0.7, np.nan, rng.uniform(0, 9, 2000)),
    )


def exclusive_or(seed):
    case, rng, treated = base(seed)
    first = rng.random(2000) < 0.5
    return case.having(
        levels={"first": ["yes", "no"], "second": ["yes", "no"]},
        first=yes(first),
        second=yes(first != treated),
    )


def measured_again(seed):
    case, rng, _ = base(seed)
    return case.having(ranges={"again": (0, 100)}, again=case.y + rng.normal(0, 1.5, 2000))


def parity(seed):
    case, rng, treated = base(seed)
    return case.having(
        ranges={"number": (0, 1001)}, number=2 * rng.integers(0, 500, 2000) + treated
    )


#: What no rule finds: it cannot be told from what is sound, or no line sees it.
HIDDEN = (exclusive_or, measured_again, parity)
LEAKS = (
    *(kit, dose_of_drug, site_decides, numbered_arm, two_together, days_on_drug, measured_in_one),
    *(
        propensity_score,
        three_kits,
        outcome_rounded,
        outcome_in_other_units,
        better,
        thirds,
        logarithm,
    ),
    *(before_and_change, death_flag, days_to_death, join, numbered_join, thousands, decimal_commas),
    *(
        minus_signs,
        percent_signs,
        other_unit,
        coded_event,
        tiny_arm,
        no_arm,
        other_case,
        dates,
        points,
    ),
    mostly_empty,
    *HIDDEN,
)
#: Each kind once or twice, all with seeds of their own.
LEAKING = [(kind, place) for place, kind in enumerate((*LEAKS, *LEAKS))][:55]
SOUNDLY = [(kind, 100 + place) for place, kind in enumerate(SOUND * 4)]
