"""What no estimator takes: refused in one line that says why, by what is public alone."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn.base import clone

from dp2erm_cvx import (
    Budget,
    Domain,
    Ledger,
    OpenDomain,
    PrivateEffect,
    PrivateRanges,
    PrivateRule,
    PrivateTwoStageERM,
    Treatment,
    TwoStageERM,
)
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, ProgramError
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing_hard
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.problems.paper_entropy_balancing import PaperEntropyBalancing
from dp2erm_cvx.program import WholeSpace
from tests.every_release import ARMS, DOMAIN, RELEASES, RISKS, SURVEY, of_registry, table_of
from tests.helpers import planted


@planted
class Careless(Uniform):
    """Weights with a bound below what any have."""

    name = "careless"

    def bound(self, universe):
        return replace(super().bound(universe), V=1e-3)


def fits(kind, table, **settings):
    return lambda **changes: kind(**(settings | changes)).fit(*table_of(table))


COMMON = {"domain": DOMAIN, "budget": Budget(2.0)}
WEIGHTS = {"budget": Budget(2.0), "first_stage": ipw_logistic(ridge=0.5)}
OF_ARMS = {"domain": replace(DOMAIN, codebook=ARMS), "budget": Budget(1.0, 1e-6)}
OF_RANGES = {"domain": OpenDomain({"u": None, "v": None}), "budget": Budget(9.0)}
#: Calls, of which rows of the table change what they were given.
CALLS = {
    "effect": fits(PrivateEffect, "trial", **COMMON),
    "rule": fits(PrivateRule, "trial", **COMMON),
    "weights": fits(PrivateTwoStageERM, "trial", domain=DOMAIN, **WEIGHTS),
    "effect of a survey": fits(
        PrivateEffect, "sampling weights", domain=SURVEY, budget=Budget(2.0)
    ),
    "rule of a survey": fits(PrivateRule, "sampling weights", domain=SURVEY, budget=Budget(2.0)),
    "weights of a survey": fits(PrivateTwoStageERM, "sampling weights", domain=SURVEY, **WEIGHTS),
    "survey in the clear": fits(TwoStageERM, "sampling weights", domain=SURVEY),
    "effect of arms": fits(PrivateEffect, "arms", **OF_ARMS),
    "rule of arms": fits(PrivateRule, "arms", **OF_ARMS),
    "ranges": fits(PrivateRanges, "trial", **OF_RANGES),
    "effect of groups": lambda **changes: of_registry({}, **changes).fit(*table_of("groups")),
    "treatment": Treatment,
}
LEVELS, ONE_FOR_ALL = ("none", "low", "high"), "propensity is that of every group"
TWO, COUNTED = (
    "sampling_weights: .* PrivateEffect or PrivateRule",
    replace(SURVEY.codebook, treatment=ARMS.treatment),
)
OF_WEALTH = OpenDomain({"u": None, "wealth": None})
REFUSED = {
    DeclarationError: [
        ("effect", {"prognostic": ["w"]}, "prognostic: unknown covariate 'w'; known: u, v"),
        ("effect", {"prognostic": ["u", "u"]}, "prognostic: a covariate is named twice"),
        ("effect", {"prognostic": "u"}, "must be a list of covariates"),
        ("effect", {"prognostic": []}, "must be a list of covariates"),
        (
            "effect",
            {"estimand": "risks"},
            "outcome_center = outcome_bound = 0.5, or estimand = 'ate'",
        ),
        ("effect", {"estimand": "cate"}, "must be one of ate, att, overlap, risks"),
        ("effect", {"level": 1.0}, "level = 1.0: must be less than 1"),
        ("effect", {"level": np.nan}, "level = nan: must be a finite number"),
        ("effect", {"residual_scale": 0.0}, "residual_scale = 0.0: must be greater than 0"),
        ("effect", {"effect_center": np.inf}, "effect_center = inf: must be a finite number"),
        ("effect", {"seed": -1}, "seed = -1: must be a whole number of at least 0"),
        ("effect", {"settings": {"unknown": 1}}, "unknown: is no setting of an effect"),
        ("effect", {"by": "sex"}, "need a codebook"),
        ("rule", {"outcome_scale": 0.0}, "outcome_scale = 0.0: must be greater than 0"),
        ("rule", {"expected": ["skewness"]}, "must be one of main effect, confounding"),
        ("rule", {"seed": -1}, "seed = -1: must be a whole number of at least 0"),
        ("rule", {"dataset": "trial"}, "ledger and dataset go together"),
        ("rule", {"settings": {"unknown": 1}}, "unknown: is no setting of a rule"),
        (
            "rule",
            {"settings": {"propensity": (0.1, 0.2)}},
            "propensity: 3 public coefficients are needed",
        ),
        ("weights", {"domain": OF_WEALTH}, "must be a Domain"),
        ("effect", {"domain": OF_WEALTH}, "must be a Domain"),
        ("ranges", {"domain": DOMAIN}, "must be an OpenDomain"),
        (
            "ranges",
            {"domain": OpenDomain({"u": (0, 1), "v": (0, 1)}, (0, 1))},
            "nothing is left to release",
        ),
        ("ranges", {"noise": "gaussian"}, "noise"),
        ("weights", {"second_stage": itr(features=("w",))}, "features"),
        ("weights", {"second_stage": itr(features=("u", 0))}, "twice"),
        ("weights", {"noise": "laplace"}, "noise"),
        ("weights", {"split": 1.5}, "split"),
        (
            "effect of a survey",
            {"domain": replace(RISKS, codebook=SURVEY.codebook), "estimand": "risks"},
            TWO,
        ),
        (
            "effect of a survey",
            {"domain": replace(DOMAIN, codebook=COUNTED)},
            "treatment of 3 levels",
        ),
        ("rule of a survey", {"settings": {"value_share": 0.2, "propensity": 0.5}}, TWO),
        ("rule of a survey", {"settings": {"mean_share": 0.1}}, "mean_share"),
        ("weights of a survey", {}, TWO),
        ("survey in the clear", {}, TWO),
        ("effect of arms", {"estimand": "att"}, "take 'ate'"),
        ("effect of arms", {"estimand": "overlap"}, "take 'ate'"),
        ("effect of arms", {"noise": "gaussian"}, "take 'gamma'"),
        ("effect of arms", {"effect_center": 1.0}, "leave it out"),
        ("effect of arms", {"settings": {"propensity": "logistic"}}, "take 'multinomial'"),
        ("effect of arms", {"settings": {"propensity": 0.5}}, "declare rates"),
        ("effect of arms", {"settings": {"rows": "pooled"}}, "take 'common' or 'arms'"),
        ("rule of arms", {}, "knows two arms"),
        ("ranges", {"domain": OF_WEALTH}, "the domain declares the columns u, wealth"),
        ("effect of groups", {"by": "age"}, "by: 'age' has no declared levels"),
        ("effect of groups", {"by": "warp"}, "did you mean|known"),
        (
            "effect of groups",
            {"where": {"ward": "D"}},
            "where: ward = 'D': must be one of 'ICU', 'Surgery'",
        ),
        ("effect of groups", {"where": {"age": "40"}}, "where: 'age' has no declared levels"),
        (
            "effect of groups",
            {"by": "ward", "where": {"ward": "ICU"}},
            "by: 'ward' is fixed by where",
        ),
        ("effect of groups", {"by": "ward", "estimand": "att"}, "only 'ate' is released by group"),
        ("effect of groups", {"by": "ward", "settings": {"propensity": "logistic"}}, ONE_FOR_ALL),
        ("treatment", {"levels": LEVELS, "reference": "x"}, "known: none, low, high"),
        (
            "treatment",
            {"levels": LEVELS, "rates": [0.5, 0.5]},
            "must be 3 probabilities that add up to 1",
        ),
        ("treatment", {"levels": LEVELS, "rates": [0.5, 0.4, 0.2]}, "add up to 1"),
        ("treatment", {"levels": LEVELS, "contrasts": "all"}, "must be reference or pairs"),
        ("treatment", {"levels": LEVELS, "treated": "low"}, "leave those out"),
        ("treatment", {"levels": ["a", ""]}, "none of them empty"),
        (
            "treatment",
            {"levels": ["a", "b"], "rates": [0.5, 0.5]},
            "declare the propensity of the effect",
        ),
        ("treatment", {"rates": [0.5, 0.3, 0.2]}, "must list levels"),
    ],
    ProgramError: [
        ("weights", {"first_stage": "nonsense"}, "choose one of"),
        ("weights", {"second_stage": "uniform"}, "choose one of"),
    ],
    CalibrationError: [
        ("weights", {"first_stage": ipw_logistic(ridge=0.0)}, "ridge"),
        ("weights", {"first_stage": entropy_balancing_hard()}, "hard"),
        ("weights", {"first_stage": PaperEntropyBalancing()}, "arm_floor"),
        ("weights", {"first_stage": Careless()}, "at least 2"),
        ("weights", {"second_stage": itr(theta_set=WholeSpace())}, "unbounded"),
        ("ranges", {"budget": Budget(0.1)}, "ranges of 3 columns need an epsilon"),
    ],
    DataError: [
        ("effect", {"domain": SURVEY}, "has no column 'wt'"),
        ("weights", {"domain": replace(DOMAIN, arm_floor=300)}, "arm_floor"),
    ],
}


@pytest.mark.one_row_in(1)
@pytest.mark.parametrize(
    ("error", "kind", "changes", "told"),
    [(error, *row) for error, rows in REFUSED.items() for row in rows],
)
def test_what_is_wrong_is_refused_in_one_line(error, kind, changes, told):
    with pytest.raises(error, match=told) as caught:
        CALLS[kind](**changes)
    assert "\n" not in str(caught.value)
    assert type(caught.value) is error


@pytest.mark.parametrize("ranges", [None, [(-1.0, 1.0)] * 3])
def test_names_and_numbers_of_columns_that_nobody_declares_suit_some_data(ranges):
    """The data may have them; what no data suit is refused before any are read."""
    public = Domain(1.5, 4.0, ranges=ranges)
    for chosen in (["age"], ["age", 2], [2], None):
        PrivateEffect(public, Budget(1.0), prognostic=chosen).check()
    for wrong in ("age", ["age", "age"], [-1], *([[3]] if ranges else [])):
        with pytest.raises(DeclarationError, match="prognostic"):
            PrivateEffect(public, Budget(1.0), prognostic=wrong).check()


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("kind", [PrivateTwoStageERM, PrivateEffect, PrivateRule])
def test_another_number_of_covariates_than_ranges_is_refused_before_a_charge(
    tmp_path, kind, columns
):
    book = Ledger(tmp_path / "ledger.db")
    book.declare("trial", Budget(5.0))
    model = kind(Domain(2.0, 1.0, ranges=[(0, 1)] * 2), Budget(5.0), ledger=book, dataset="trial")
    X = np.linspace(0, 1, 400 * columns).reshape(400, columns)
    for call in (
        lambda: model.plan(400, columns),
        lambda: model.fit(X, np.arange(400) % 2, X[:, 0]),
    ):
        with pytest.raises(DeclarationError, match=f"2 are declared for {columns} covariates"):
            call()
    assert book.account("trial").receipts == ()


#: Constant, beyond all bounds, of two values.
HOSTILE = (
    lambda X, y: (0 * X, 0 * y),
    lambda X, y: (X, 0 * y + 1e300),
    lambda X, y: (X.assign(u=1e300, v=-1e300), np.where(np.arange(len(y)) % 2, 1e308, -1e308)),
    lambda X, y: (1.0 * (X > 0), 1.0 * (y > 0)),
)


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize(
    "name",
    ["average effect", "risks", "ranges", "on released ranges", "rule of all", "private scheme"],
)
def test_no_dataset_makes_a_fit_refuse(name):
    X, a, y = table_of(name)
    for change, treated in product(HOSTILE, (0, 1)):
        data, outcomes = change(X, y)
        release = clone(RELEASES[name]).fit(data, 0 * a + treated, outcomes).release_
        assert release.private
        numbers = (getattr(release, name, 0.0) for name in ("estimate", "theta"))
        assert all(np.all(np.isfinite(one)) for one in numbers)
        ranges = [(one.low, one.high) for one in getattr(release, "ranges", ())]
        assert all(-np.inf < low < high < np.inf for low, high in ranges)
