"""A release as a measurement of OpenDP: it composes there, and nothing unfit gets in."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx import opendp as module
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import L2Ball, UserRegularizer
from dp2erm_cvx.opendp import as_opendp_measurement, group_privacy
from dp2erm_cvx.problems.itr import itr, itr_logistic
from dp2erm_cvx.program import WholeSpace
from dp2erm_cvx.solve import ProjectedGradient
from tests.plan.changed import unproven

opendp = pytest.importorskip("opendp")

from opendp import combinators, measures, metrics, mod  # noqa: E402

N, K = 20, 2
RNG = np.random.default_rng(0)
DATA = (RNG.uniform(-0.7, 0.7, (N, K)), np.arange(N) % 2, RNG.choice([-1.0, 1.0], N))
PURE, APPROXIMATE = Budget(0.5), Budget(0.5, 1e-4)


@pytest.fixture(autouse=True)
def features():
    mod.enable_features("contrib", "honest-but-curious")
    yield
    mod.disable_features("contrib", "honest-but-curious")


def model(budget=PURE, second="arm_means", domain=None, **settings):
    settings.setdefault("noise", "gaussian" if budget.delta else "gamma")
    return PrivateTwoStageERM(domain or Domain(1.0, 1.0), budget, "uniform", second, **settings)


def measurement(*args, **settings):
    return as_opendp_measurement(model(*args, **settings), N, K)


def test_a_call_is_a_fresh_release():
    used = model()
    made = as_opendp_measurement(used, N, K)
    first, second = made(DATA), made(DATA)
    assert len(first) == len(second) == 2
    assert all(isinstance(value, float) and math.isfinite(value) for value in first + second)
    assert first != second
    # nothing of the fit stays with the model
    assert not hasattr(used, "private_workings_")
    assert not hasattr(used, "theta_")


def test_what_is_set_later_changes_neither_the_map_nor_the_noise():
    used = model(Budget(0.1))
    made = as_opendp_measurement(used, N, K)
    used.set_params(budget=Budget(1e5))
    expected = made.map(1)
    assert expected <= 0.1
    assert np.std([made(DATA) for _ in range(20)]) > 0.1
    used.set_params(seed=1)
    assert made(DATA) != made(DATA)
    precise = measurement(Budget(400.0))
    assert np.max(np.std([precise(DATA) for _ in range(5)], axis=0)) < 0.01


def test_the_map_is_the_guarantee_of_the_plan_and_covers_more_records_by_group_privacy():
    pure, approximate = measurement(), measurement(APPROXIMATE)
    guarantee = model(APPROXIMATE).plan(N, K).guarantee
    assert pure.map(1) == model().plan(N, K).guarantee.epsilon <= 0.5
    assert approximate.map(1) == (guarantee.epsilon, guarantee.delta)
    assert 0 < guarantee.delta <= 1e-4
    assert pure.input_metric == metrics.hamming_distance()
    assert pure.output_measure == measures.max_divergence()
    assert approximate.output_measure == measures.approximate(measures.max_divergence())
    assert (pure.map(0), approximate.map(0)) == (0.0, (0.0, 0.0))
    assert 3 * pure.map(1) <= pure.map(3) <= 3 * pure.map(1) * (1 + 1e-15)
    epsilon, delta = approximate.map(1)
    chain = 0.0
    for _ in range(3):
        chain = math.exp(epsilon) * chain + delta
    assert approximate.map(3)[0] >= 3 * epsilon
    assert approximate.map(3)[1] == pytest.approx(chain, rel=1e-9)
    assert group_privacy(Budget(2.0), 10_000).delta == 0.0


def test_an_arm_floor_covers_one_record_only():
    made = measurement(domain=Domain(1.0, 1.0, arm_floor=3))
    assert made.map(1) <= 0.5
    with pytest.raises(mod.OpenDPException, match="one replaced record"):
        made.map(2)


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE])
def test_two_releases_compose_to_twice_the_loss(budget):
    one, two = measurement(budget), measurement(budget, second="itr")
    together = combinators.make_composition([one, two])
    assert [len(theta) for theta in together(DATA)] == [2, K]
    twice = pytest.approx(2 * np.array(one.map(1)), rel=1e-12)
    assert together.map(1) == twice
    assert budget.delta or together.map(1) >= 2 * one.map(1)
    # the adaptive compositor stops at what was declared
    compositor = combinators.make_adaptive_composition(
        one.input_domain, one.input_metric, one.output_measure, 1, [one.map(1)] * 2
    )
    queryable = compositor(DATA)
    first = queryable(one)
    # the second is chosen after the first was seen
    second = queryable(measurement(budget, second="itr" if first[0] > 0 else "arm_means"))
    assert len(first) == len(second) == 2
    with pytest.raises(mod.OpenDPException):
        queryable(one)
    assert compositor.map(1) == twice


X, A, Y = DATA
SHORT = Domain(1.0, 1.0, arm_floor=11)


@pytest.mark.parametrize(
    ("domain", "wrong"),
    [
        *((None, wrong) for wrong in (DATA[:2], "data", (X[:-1], A[:-1], Y[:-1]), (X[:, :1], A, Y))),
        *((None, (X, *wrong)) for wrong in ((A + 1, Y), (A, np.full(N, np.nan)))),
        (SHORT, DATA),
    ],
)
def test_data_outside_the_domain_are_refused(domain, wrong):
    made = measurement(domain=domain)
    assert made.input_domain.member(DATA) == (domain is None)
    assert not made.input_domain.member(wrong)
    with pytest.raises(mod.OpenDPException):
        made(wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": 1}, "seeded"),
        ({"dataset": "trial"}, "leave ledger and dataset out"),
        ({"ledger": object()}, "leave ledger and dataset out"),
        ({"domain": Domain(1.0, 1.0, relation="replace-one-keep-treatment")}, "any replaced record"),
        ({"second": itr(L2Ball(1.0), UserRegularizer(lambda theta: 0))}, "conditional"),
        ({"solver": ProjectedGradient(max_iterations=0)}, "conditional"),
        ({"second": itr_logistic(WholeSpace())}, "conditional"),
        ({"arithmetic": "assumed"}, "arithmetic"),
    ],
)
def test_unfit_models_are_refused(settings, message):
    with pytest.raises(DeclarationError, match=message):
        measurement(**settings)


def test_what_is_no_measurement_is_refused(monkeypatch):
    for error, message, call in (
        (DeclarationError, "PrivateTwoStageERM", lambda: as_opendp_measurement("model", N, K)),
        (DeclarationError, "n_samples", lambda: as_opendp_measurement(model(), 1.5, K)),
        (DeclarationError, "0", lambda: group_privacy(Budget(1.0), 0)),
        (CalibrationError, "leaves no guarantee", lambda: group_privacy(Budget(1.0, 1e-3), 8)),
        (CalibrationError, "leaves no guarantee", lambda: group_privacy(Budget(1.0, 1e-3), 10_000)),
    ):
        with pytest.raises(error, match=message):
            call()
    made, result = measurement(), unproven(model().plan(N, K))
    monkeypatch.setattr("dp2erm_cvx.release.Release.private", property(lambda self: False))
    with pytest.warns(RuntimeWarning, match="this release"):  # no solve reaches this
        made(DATA)
    with monkeypatch.context() as patch:
        patch.setattr(PrivateTwoStageERM, "plan", lambda *_: result)
        with pytest.raises(CalibrationError, match="not proven"):
            measurement()
    mod.disable_features("honest-but-curious")
    with pytest.raises(DeclarationError, match="enable_features"):
        measurement()
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(DeclarationError, match=r"dp2erm-cvx\[secure\]"):
        measurement()


def test_the_page_runs(capsys):
    text = (Path(__file__).parents[2] / "docs" / "coming_from.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(compile(source, "coming_from.md", "exec"), {})
    assert float(capsys.readouterr().out) == pytest.approx(3.0, rel=1e-9)
