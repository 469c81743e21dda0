"""The page and the JSON of an audit: complete, self-contained, escaped, and the same numbers."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.audit import (
    Attack,
    Claim,
    Declared,
    Noised,
    Quantity,
    SearchPlan,
    audit_density,
    audit_runs,
    audit_stability,
    search_additive,
)
from dp2erm_cvx.audit.movement import NeighborPair
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import Bound, scheme
from dp2erm_cvx.report import audit_facts, audit_page
from dp2erm_cvx.report import page as pages
from tests.audit.stability.reference import reference_program

UNIT = Domain(1.0, 1.0)
IPW = reference_program("ipw_logistic", ridge=0.1, radius=1.0)
WRONG = "<script>alert(1)</script> & $half$"


@pytest.fixture(scope="module")
def held():
    result = audit_stability(IPW, None, Universe(UNIT, 60, 2), search=SearchPlan(200))
    return dataclasses.replace(result, title="IPW of 60")


@scheme(cap=2.0)
def near_one(w, records, cap):
    """Weights near 1, whose bound is the author's word."""
    return cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1) + cp.sum_squares(records.signed.T @ w)), [w <= cap]
    )


@near_one.bound
def _(n, cap):
    return Bound.from_l2(2.0, w_max=cap)


def test_the_bound_of_an_author_is_called_stated_and_that_of_the_library_is_not(held):
    own = audit_stability(near_one(), None, Universe(UNIT, 30, 2), search=SearchPlan(20))
    words = (
        "the author of the program: nothing here proves it",
        "<strong>sharp, V",
        "<strong>stated, V",
    )
    pages = [audit_page([one]) for one in (own, held)]
    assert [[word in page for word in words] for page in pages] == [
        [True, False, True],
        [False, True, False],
    ]


@pytest.fixture(scope="module")
def violated():
    data = ([[0.5], [-0.5], [0.2], [0.9]], [0, 1, 1, 0], [0.0] * 4)
    bounds = [Claim(WRONG, Quantity.V, 1.0), Claim("nothing moves", Quantity.L1, 0.0)]
    result = audit_stability(IPW, data, UNIT, bounds=bounds, search=SearchPlan(200))
    return dataclasses.replace(result, title="four records")


class Loads(HTMLParser):
    """Everything that a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.found, self.text = [], []

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        for name in ("src", "href", "xlink:href", "data", "srcset", "action"):
            if name in held and not held[name].startswith("#"):
                self.found.append((tag, name, held[name]))
        if tag in ("script", "link", "iframe", "object", "embed", "base"):
            self.found.append((tag, None, None))

    def handle_data(self, data):
        self.text.append(data)


def read(page):
    parser = Loads()
    parser.feed(page)
    return parser.found, " ".join(" ".join(parser.text).split())


def test_the_page_says_what_was_found_and_how_to_repeat_it(held):
    page = audit_page([held], command="dp2erm audit --seed 0")
    loaded, text = read(page)
    assert not loaded
    assert not re.search(r"url\((?!#)|@import", page)
    told = (
        "bounds was violated by",
        "a search, not a proof",
        "dp2erm audit --seed 0",
        "none were read",
    )
    assert [one for one in told if one not in text] == []
    for verdict in held.verdicts:
        assert f"{verdict.claim.name}, {verdict.claim.quantity}" in text
    assert text.count(": no proof") == len(held.verdicts)
    assert page.count("<svg") == 1
    assert page == audit_page([held], command="dp2erm audit --seed 0")


def test_a_violation_leads_and_names_are_escaped(held, violated):
    page = audit_page([held, violated])
    _, text = read(page)
    assert "<script" not in page
    assert WRONG in text
    assert text.count("violated by this pair") == 2
    assert "> 0" in text
    assert "these numbers are not private" in text
    assert "For the data holder only" in text
    assert text.index("Violated:") < text.index("Overview")
    assert page.count("<details") == 2


def test_the_facts_are_those_of_the_audits(held, violated):
    facts = audit_facts([held, violated], "command")
    assert (facts["private"], facts["proof"]) == (False, False)
    assert facts["versions"].keys() >= {"Python", "dp2erm-cvx", "cvxpy", "clarabel"}
    first, second = facts["audits"]
    assert first["verdicts"] == held.to_dict()["verdicts"]
    assert all(verdict["violated"] for verdict in second["verdicts"])
    for sections in ([held], [held, violated]):
        assert audit_facts(sections)["headline"] in read(audit_page(sections))[1]


def test_neighbors_are_told_without_values():
    X = np.array([[0.5, 0.0], [0.5, 0.0], [0.25, 0.5], [-1.0, 0.0]])
    before = UNIT.records(X, [0, 0, 0, 0], np.zeros(4))
    after = UNIT.records(np.vstack([X[:3], [[1.0, 0.0]]]), [0, 0, 0, 1], np.zeros(4))
    told = pages.neighbor_in_words(NeighborPair(before, after, 3, "flips"), Universe(UNIT, 4, 2))
    assert told == (
        "flips: a record goes from untreated to treated and moves by 100% of the diameter of the "
        "covariates; the other 3 take 2 distinct values, none treated"
    )


def test_a_page_serves_audits_of_every_kind_and_the_pairs_of_searches(held):
    def noisy_sum(dataset):
        return (yield Noised(float(dataset[2].sum()), 1.0, sensitivity=2.0))

    worst = search_additive(noisy_sum, Universe(UNIT, 8, 1), Declared(1.0), search=SearchPlan(40))
    attack = Attack(runs=60, takes_rng=True, seed=0, events=("tails",))
    runs = audit_runs(lambda x, rng: x + rng.laplace(), 0, 1, Declared(1.0), attack=attack)
    mean = PrivateTwoStageERM(UNIT, Budget(1.0), "uniform", "itr")
    records = np.array([[0.5], [-0.5]]), np.array([0, 1]), np.zeros(2)
    density = audit_density(mean, records, records, starts=1)
    facts = audit_facts([held, worst, runs, density])
    assert facts["headline"].startswith("Violated: “additive audit” (0 of ")
    assert [one["violated"] for one in facts["audits"][1:]] == [True, False, False]
    assert (
        json.loads(json.dumps(facts, allow_nan=False, default=str))["audits"][1]["audit"]["found"]
        == 2.0
    )
    _, text = read(audit_page([held, worst, runs, density]))
    for one in (worst, runs, density):
        assert " ".join(str(one).split()) in text
    assert "first only" in text
    with pytest.raises(DeclarationError, match="str is no audit"):
        audit_page([held, "an audit"])


def test_a_page_needs_its_packages_and_an_audit(held, monkeypatch):
    with pytest.raises(DeclarationError, match="nothing to report"):
        audit_page([])
    monkeypatch.setattr(pages, "find_spec", lambda name: None if name == "jinja2" else object())
    with pytest.raises(DeclarationError, match="reports"):
        audit_page([held])
