"""Kernel mean matching and a weighted regression: prediction in a population with other covariates."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.program import Gaussian
from dp2erm_cvx.program.kernel_model import PublicSample
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from dp2erm_cvx.universe import Universe
from tests.command_line import run as command

Matching, regression = programs()["kernel_mean_matching"], programs()["regression"]
DOMAIN = Domain(1.5, 2.0, intercept=1.0)


def shifted(n, seed=0):
    """A curved outcome; sources around -0.4, targets around 0.4."""
    rng = np.random.default_rng(seed)
    x = np.clip(np.concatenate([rng.normal(-0.4, 0.35, n), rng.normal(0.4, 0.25, n)]), -1, 1)
    y = np.where(x > 0, 2.0 * x, -0.5 * x) + 0.1 * rng.normal(size=2 * n)
    return x[:, None], y


def error_in_target(theta, x, y):
    return float(np.mean((y - theta[0] - theta[1] * x[:, 0]) ** 2))


def fitted(first, X, a, y, **settings):
    second = regression(theta_set=L2Ball(3.0))
    model = PrivateTwoStageERM(DOMAIN, Budget(60.0), first, second, seed=1, **settings)
    return model.fit(X, a, y).release_


def test_matched_weights_predict_better_where_the_target_is():
    X, y = shifted(1500)
    sources, target = slice(0, 1500), slice(1500, None)
    first = Matching(target=PublicSample(X[target][:200]), ridge=0.3, kernel=Gaussian(0.5))
    none = np.zeros(1500, dtype=int)
    matched = fitted(first, X[sources], none, y[sources], arithmetic="assumed")
    plain = fitted("uniform", X[sources], none, y[sources], arithmetic="assumed")
    errors = [error_in_target(np.array(r.theta), X[target], y[target]) for r in (matched, plain)]
    assert errors[0] < 0.8 * errors[1]
    # the rows of the target are not printed, their digest is
    assert json.dumps(matched.first_stage["settings"]["target"]).count(",") == 2


def test_a_counted_target_has_no_weight_and_needs_a_floor():
    X, y = shifted(60)
    a = np.repeat([0, 1], 60)
    w = solve(Matching().instance(DOMAIN.records(X, a, y))).value
    assert np.all(w[a == 1] == 0)
    assert w[a == 0].sum() == pytest.approx(120)
    with pytest.raises(CalibrationError, match="arm_floor"):
        Matching().stability(Universe(DOMAIN, 120, 2))
    floor = Domain(1.5, 2.0, intercept=1.0, arm_floor=50)
    counted = Matching().stability(Universe(floor, 120, 2)).V
    public = Matching(target=PublicSample([[0.0]])).stability(Universe(DOMAIN, 120, 2)).V
    assert public < counted < 240


def test_targets_that_do_not_fit_are_refused():
    X, y = shifted(20)
    data = DOMAIN.records(X, np.zeros(40), y)
    with pytest.raises(DeclarationError, match="2 columns, the records 1"):
        Matching(target=PublicSample([[0.0, 1.0]])).instance(data)
    for wrong in ([], [[np.nan]], "text", [[1.0], [1.0, 2.0]]):
        with pytest.raises(DeclarationError, match="public sample"):
            PublicSample(wrong)
    with pytest.raises(DeclarationError, match="target"):
        Matching(target=[[0.0]])


def test_the_command_takes_the_target_from_a_file(tmp_path):
    X, y = shifted(200)
    np.savetxt(
        tmp_path / "data.csv",
        np.column_stack([X[:200], np.zeros(200), y[:200]]),
        delimiter=",",
        header="x,a,y",
        comments="",
    )
    np.savetxt(
        tmp_path / "target.csv",
        np.column_stack([np.ones(200), X[200:]]),
        delimiter=",",
        header="other,x",
        comments="",
    )
    ran = command(
        "fit", str(tmp_path / "data.csv"), "--treatment", "a", "--outcome", "y", "--covariates", "x",
        "--covariate-bound", "1.5", "--outcome-bound", "2", "--epsilon", "5", "--json", "--yes",
        "--program", "kernel_mean_matching", "--set", f"target={tmp_path / 'target.csv'}",
        "--second-stage", "itr_huber", "--second-set", "threshold=0.5", "--yes",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.stderr
    release = json.loads(ran.stdout)
    assert release["declared"]["first"]["settings"]["target"]["rows"] == 200
    assert release["declared"]["second"]["settings"]["threshold"] == 0.5
    nameless = command("bounds", "--program", "kernel_mean_matching", "--set", "target=x.csv", "--n", "50",
                       "--covariate-bound", "1")  # fmt: skip
    assert nameless.exit_code == 2
    assert "--covariates" in nameless.stderr
