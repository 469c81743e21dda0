"""What a run says at its end, and about settings that no example tries."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx import stability
from dp2erm_cvx.audit import Quantity, audit_stability
from dp2erm_cvx.conformance import CheckStatus, Subject
from dp2erm_cvx.conformance.run import CheckOutcome, ConformanceReport, other_settings
from dp2erm_cvx.conformance.statement import short_audit
from dp2erm_cvx.conformance.subject import failed, noted, passed
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.problems.uniform import Uniform
from dp2erm_cvx.program import ClosedFormWeights
from tests.command_line import run as command
from tests.conformance.planted import BEFORE, FEW, changed, derived, judged, refuted


def outcome(name, judge):
    return CheckOutcome(name, *judge(""))


@pytest.mark.parametrize(
    ("outcomes", "conclusion"),
    [
        ((outcome("a", passed),), "all checks passed"),
        ((outcome("a", passed), outcome("b", noted)), "no check failed; 1 note to read: b"),
        ((outcome("a", noted), outcome("b", noted)), "no check failed; 2 notes to read: a, b"),
        ((outcome("a", noted), outcome("b", failed)), "1 failed"),
    ],
)
def test_a_note_is_no_pass(outcomes, conclusion):
    report = ConformanceReport("mine", {}, "direct", "", outcomes)
    assert report.conclusion == report.to_dict()["conclusion"] == conclusion


def test_a_theorem_of_another_name_is_to_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dp2erm_cvx.conformance.run.Subject", partial(Subject, larger=(101,)))
    refined = (
        "    def bound(self, universe):\n        found = super().bound(universe)\n"
        '        return dataclasses.replace(found, V=found.V / 2, theorem="Theorem 3, refined")\n\n'
    )
    text = changed(
        "exponential",
        (BEFORE, refined + BEFORE),
        ("from dataclasses", "import dataclasses\nfrom dataclasses"),
        ('({}, {"ridge": 0.05, "radius": 0.5})', "({},)"),
    )
    Path("mine.py").write_text(text, encoding="utf-8")
    (only,) = json.loads(command("check-program", "mine.py", "--solves", "20", "--json").stdout)
    assert only["conclusion"] == "no check failed; 1 note to read: stated bound"


@dataclasses.dataclass(frozen=True)
class Strata(ClosedFormWeights):
    """Weights of strata, bounded without the complements of their probabilities."""

    low: float = 0.5
    high: float = 0.5
    column: int = 0

    name = "strata"
    theorem = "V = 2 w_max"

    def __post_init__(self):
        if not (0 < self.low < 1 and 0 < self.high < 1):
            raise DeclarationError("low, high: must be between 0 and 1")

    def log_weights(self, records):
        treated = np.where(records.covariates[:, self.column] < 0, self.low, self.high)
        return -np.log(np.where(records.a == 1, treated, 1 - treated))

    def log_range(self, domain):
        return 0.0, 50.0

    def bound(self, universe):
        return self.of_range(universe, abs(np.log(self.low) - np.log(self.high)))

    def of_range(self, universe, length):
        w_max = stability.largest_weight(universe.n_samples, float(length))
        return stability.fixed_up_to_scale(universe.n_samples, w_max, "strata are public")


def test_a_bound_that_is_right_at_the_defaults_only_is_found():
    refuted(other_settings, Strata(), "low = 0.25: stated bound: ")


def test_settings_that_nothing_tries_are_named():
    class Tried(Strata):
        name = "tried"
        examples = ({}, {"high": 0.7})

        def bound(self, universe):
            both = (self.low, self.high, 1 - self.low, 1 - self.high)
            return self.of_range(universe, np.log(max(both) / min(both)))

    found = judged(other_settings, Tried())
    assert found.status is CheckStatus.NOTED
    assert "low = 0.25, 0.25 (from high = 0.7); high = 0.25, 0.35 (from high = 0.7): " in found.detail
    assert found.detail.endswith("column: only their defaults were checked")


def test_numbers_are_halved_and_doubled_and_an_infinite_one_replaced():
    found = judged(other_settings, overlap(), FEW)
    assert found.status is CheckStatus.PASSED
    assert "radius = 1.5" in found.detail
    assert judged(other_settings, Uniform(), FEW).status is CheckStatus.PASSED  # there are none
    found = judged(other_settings, derived(overlap)(ridge=2.0, radius=3.0), FEW)
    assert found.detail.startswith("ridge = 1, 4; radius = 1.5, 6: nothing found")


def tilted(annotation, default, *examples):
    """Weights that a temperature tilts, with a bound that is right up to a temperature of 2."""

    def log_weights(self, records):
        return self.temperature * records.covariates[:, 0] / records.domain.features_bound

    def bound(self, universe):
        w = stability.largest_weight(universe.n_samples, 2.0 * min(self.temperature, 2))
        return stability.fixed_up_to_scale(universe.n_samples, w, "the temperature is public")

    ends = {"log_range": lambda self, domain: (-100.0, 100.0)}
    members = {"log_weights": log_weights, **ends, "bound": bound, "examples": ({}, *examples)}
    members |= {"theorem": "V = 2 w_max", "temperature": default}
    return derived(ClosedFormWeights, __annotations__={"temperature": annotation}, **members)


#: By case: a class whose bound is wrong at a temperature of 4 only, which is twice its second example.
BEYOND_AN_EXAMPLE = {
    "floats": tilted("float", 1.0, {"temperature": 2.0}),
    "integers for floats": tilted("float", 1, {"temperature": 2}),
    "an annotation that is a class": tilted(float, 1, {"temperature": 2}),
    "an annotation of floats or nothing": tilted("float | None", 1, {"temperature": 2}),
    "a default that is a float": tilted("Any", 1.0, {"temperature": 2}),
}


@pytest.mark.parametrize("case", BEYOND_AN_EXAMPLE)
def test_variations_start_from_every_example_and_take_integers_for_floats(case):
    refuted(other_settings, BEYOND_AN_EXAMPLE[case](), "temperature = 4 (from temperature = 2): ")


def test_whole_numbers_are_not_varied_and_named():
    found = judged(other_settings, tilted("int", 1, {"temperature": 2})())
    assert found.status is CheckStatus.PASSED
    assert found.detail.endswith("temperature: whole numbers, tried at those of the examples only")


def test_an_audit_reports_v_and_not_the_largest_weight():
    found = judged(short_audit, Uniform(), FEW).detail
    assert found.endswith("V at most 100% of its bound 2")
    worst = []

    def audited(*arguments, **settings):
        worst.append(audit_stability(*arguments, **settings))
        return worst[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dp2erm_cvx.conformance.statement.audit_stability", audited)
        found = judged(short_audit, ipw_logistic(), FEW).detail
    shares = {one.claim.quantity: one.ratio for one in worst[0].verdicts}
    assert shares[Quantity.LARGEST] > 1.1 * shares[Quantity.V]
    assert f": V at most {shares[Quantity.V]:.0%} of its bound " in found
