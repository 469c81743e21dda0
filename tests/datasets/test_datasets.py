"""Data of the package are what was checked, scenarios what is written, and the demonstration on
them runs.
"""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats
from sklearn.linear_model import LogisticRegression

import dp2erm_cvx.datasets
from dp2erm_cvx import EffectRelease, RuleRelease, load_domain, read_release
from dp2erm_cvx.datasets import NHEFS_RANGES, SCENARIOS, load_nhefs, nhefs_domain, simulate
from dp2erm_cvx.errors import DeclarationError
from tests.command_line import run

FOLDER = Path(dp2erm_cvx.datasets.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "nhefs.md"
COVARIATE = stats.truncnorm(-1, 1)
SIZE = 200_000


def weighted_effect(X: NDArray[np.float64], a: NDArray[np.int64], y: NDArray[np.float64]) -> float:
    """Hajek estimate by an unregularized logistic propensity with squares of the measured
    columns.
    """
    measured = X[:, [1, 4, 5, 8, 9]]
    design = np.column_stack([X, measured**2])
    fit = LogisticRegression(C=np.inf, tol=1e-8, max_iter=2000).fit(design, a)
    propensity = fit.predict_proba(design)[:, 1]
    treated, control = a / propensity, (1 - a) / (1 - propensity)
    return float(treated @ y / treated.sum() - control @ y / control.sum())


def test_nhefs_is_the_file_that_was_checked() -> None:
    digest = hashlib.sha256((FOLDER / "nhefs.csv").read_bytes()).hexdigest()
    assert digest == "500eda1d2ca72c9464646d2ecee595638b9a881f0875d462470841275597aaf5"
    data = load_nhefs()
    assert (data.n_samples, int(data.a.sum()), data.columns) == (1566, 403, tuple(NHEFS_RANGES))
    assert (data.treatment, data.outcome) == ("qsmk", "wt82_71")
    # and it gives the textbook numbers
    naive = data.y[data.a == 1].mean() - data.y[data.a == 0].mean()
    assert naive == pytest.approx(2.54, abs=0.005)
    unclipped = nhefs_domain(covariate_bound=100.0).features(data.X)
    clipped = nhefs_domain().features(data.X)
    effect = weighted_effect(unclipped, data.a, data.y)
    assert effect == pytest.approx(3.4, abs=0.1)
    assert weighted_effect(clipped, data.a, data.y) == pytest.approx(effect, abs=0.02)


def test_the_page_tells_what_the_domain_does() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, (low, high, unit, reason) in NHEFS_RANGES.items():
        assert f"| `{name}` | {low:g} | {high:g} | {unit} | {reason} |" in text
    domain = nhefs_domain()
    assert f"| `covariate_bound` $M$ | {domain.covariate_bound:g} |" in text
    assert f"| `outcome_center` $c$ | {domain.outcome_center:g} kg |" in text
    assert f"| `outcome_bound` $M'$ | {domain.outcome_bound:g} kg |" in text
    norms = np.linalg.norm(nhefs_domain(covariate_bound=100.0).features(load_nhefs().X), axis=1)
    share = re.search(r"(\d+) % of the records are clipped at \$M = 2\.5\$, none\s+at \$3\$", text)
    assert share is not None
    assert (int(share[1]), norms.max() < 3) == (round(100 * np.mean(norms > 2.5)), True)
    # the studies of the demonstration declare these ranges
    whole, chosen = (load_domain(FOLDER / name).ranges for name in ("study.toml", "rule.toml"))
    assert whole == domain.ranges
    assert chosen == {name: whole[name] for name in ("age", "wt71")}
    told = {"treatment_cost": 3.0, "intercept": 1.0, "covariate_bound": 2.0}
    assert told.items() <= nhefs_domain(**told).to_dict().items()


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_covariates_treatments_and_noise_have_their_moments(scenario: str) -> None:
    drawn = simulate(scenario, SIZE, rng=7)
    X, a, y = drawn.dataset.X, drawn.dataset.a, drawn.dataset.y
    assert X.shape == (SIZE, 10)
    assert np.abs(X).max() <= 1.0
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=5 * COVARIATE.std() / SIZE**0.5)
    np.testing.assert_allclose(X.var(axis=0), COVARIATE.var(), rtol=0.02)
    np.testing.assert_allclose(np.corrcoef(X.T) - np.eye(10), 0.0, atol=0.012)
    assert stats.kstest(X[:, 3], COVARIATE.cdf).pvalue > 1e-3

    np.testing.assert_allclose(
        np.log(drawn.propensity / (1 - drawn.propensity)), 0.3 * X[:, 0] - 0.5 * X[:, 1] + 0.05
    )
    surprise = (a - drawn.propensity) / np.sqrt(drawn.propensity * (1 - drawn.propensity))
    assert abs(surprise.mean()) < 5 / SIZE**0.5
    assert abs((surprise * X[:, 1]).mean()) < 5 / SIZE**0.5

    noise = y - drawn.main_effect - (a - 0.5) * drawn.contrast
    variance = drawn.scenario.variance(X, a)
    assert stats.kstest(noise / np.sqrt(variance), stats.norm.cdf).pvalue > 1e-3


def test_scenarios_at_a_point_worked_by_hand() -> None:
    X = np.array(
        [[0.6, -0.2, 0.4, -0.6, 0.5, 0, 0, 0, 0, 0], [-0.6, 0.5, -1.0, 0.2, 0, 0, 0, 0, 0, 0]]
    )
    both = np.array([1, 0])
    linear, tree, nonlinear = (SCENARIOS[name] for name in ("linear", "tree", "nonlinear"))
    # sums over five columns of x and of x^2: 0.7 and 1.17; -0.9 and 1.65
    total = np.array([0.7 + (2 * 1.17 - 5) * 2 / 3, -0.9 + (2 * 1.65 - 5) * 2 / 3])
    np.testing.assert_allclose(linear.main_effect(X), -0.1 * total)
    np.testing.assert_allclose(tree.main_effect(X), -3 * total)
    np.testing.assert_allclose(linear.contrast(X), [4.8 + 1.6 + 1.6 - 4.8, -4.8 - 4 - 4 + 1.6])
    np.testing.assert_allclose(tree.contrast(X), [6 + 1, 5 + 1])
    np.testing.assert_allclose(
        nonlinear.contrast(X), [-0.5 + 1.2 + 0.36 + 0.625, -0.5 - 0.4 + 0.04]
    )
    np.testing.assert_allclose(
        nonlinear.main_effect(X),
        [
            2 + 1.8 - 0.4 - 1.8 - 0.9 - 0.375 - 0.24 + 2 * np.exp(0.12) + np.sin(0.4),
            2 - 1.8 + 1.0 + 0.6 - 0.1 - 0.6 + 2 * np.exp(0.3) - np.sin(1.0),
        ],
    )
    np.testing.assert_allclose(nonlinear.variance(X, both), [0.25 + 0.4, 0.25 + 1.0 + 0.2])
    np.testing.assert_allclose(nonlinear.variance(X, 1 - both), [0.25, 0.25 + 1.0])


def test_optimal_shares_are_the_known_ones_and_no_rule_is_better() -> None:
    left = COVARIATE.cdf(-0.5)

    def treated(x4: float) -> float:
        least = np.clip((0.5 + 2 * x4 - x4**2) / 2.5, 0.0, 1.0)  # treat where x5^2 is above it
        return float(COVARIATE.pdf(x4) * 2 * COVARIATE.cdf(-np.sqrt(least)))

    nonlinear = integrate.quad(treated, -1, 1, limit=200)[0]
    rng, known = (
        np.random.default_rng(1),
        {"linear": 0.5, "tree": left + left * (1 - left), "nonlinear": nonlinear},
    )
    for scenario, share in known.items():
        drawn = simulate(scenario, SIZE, rng=3)
        best, none, all_of = drawn.optimal_rule, np.zeros(SIZE), np.ones(SIZE)
        assert best.mean() == pytest.approx(share, abs=0.006)
        assert (drawn.accuracy(best), drawn.accuracy(none)) == (
            1.0,
            pytest.approx(1 - share, abs=0.006),
        )
        for rule in (none, all_of, rng.integers(0, 2, SIZE), 1 - best):
            assert drawn.value(rule) < drawn.value(best)
        assert drawn.value(all_of) - drawn.value(none) == pytest.approx(drawn.contrast.mean())


def test_wrong_settings_of_simulations_are_refused() -> None:
    with pytest.raises(
        DeclarationError, match="scenario = 'cubic': must be one of linear, tree, nonlinear"
    ):
        simulate("cubic", 10, rng=0)
    for wrong in (1, 2.5, True, "ten"):
        with pytest.raises(DeclarationError, match="n_samples = "):
            simulate("linear", wrong, rng=0)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return run("demo", "--seed", "1", "--output-dir", str(folder), "--audit-seconds", "1"), folder


def test_the_demo_runs_is_readable_and_writes_what_it_says(demo, tmp_path):
    result, folder = demo
    assert result.exit_code == 0, result.output
    for told in (
        "\n7. ",
        "Doubly robust 3.17 kg",
        "2.54 kg",
        "\nVerified\n",
        "\nREFUTED\n- estimate: ",
    ):
        assert told in result.stdout
    lines = [line for line in result.stdout.splitlines() if not line.startswith("$ ")]
    assert max(map(len, lines)) <= 2 * len(str(folder)) + 160
    assert result.stdout.startswith("NOT PRIVATE")
    assert (folder / "study.toml").read_text(encoding="utf-8") in result.stdout
    effect = read_release((folder / "average.json").read_bytes(), EffectRelease)
    assert result.stdout.count(f"study {effect.study}") == 2  # planned, and run
    rule = read_release((folder / "whom.json").read_bytes(), RuleRelease)
    assert [(one.columns, one.private) for one in (effect, rule)] == [(("age", "wt71"), False)] * 2
    for name, code in (("average", 0), ("whom", 0), ("forged", 1)):
        assert run("verify", str(folder / f"{name}.json")).exit_code == code
    (tmp_path / "one.csv").write_text("age,wt71\n60,110\n")
    told = run("predict", str(folder / "whom.json"), str(tmp_path / "one.csv"))
    assert told.stdout.splitlines()[0] == "row,treatment,effect"
    assert "<html" in (folder / "average.html").read_text(encoding="utf-8")
    facts = json.loads((folder / "audit.json").read_text())
    assert (facts["private"], len(facts["audits"])) == (True, 1)
    assert not any(verdict["violated"] for verdict in facts["audits"][0]["verdicts"])


@pytest.mark.slow
def test_without_a_seed_a_release_is_private_and_new(demo, tmp_path):
    assert run("demo", "--seed", "x", "--output-dir", str(tmp_path)).stderr.count("\n") == 1
    told = run("demo", "--output-dir", str(tmp_path), "--audit-seconds", "0")
    assert told.exit_code == 0, told.output
    fresh, seeded = (
        read_release((folder / "average.json").read_bytes(), EffectRelease)
        for folder in (tmp_path, demo[1])
    )
    assert (fresh.private, seeded.private) == (True, False)
    assert fresh.estimate != seeded.estimate
