import itertools
import json

import numpy as np
import pytest
from click.testing import CliRunner

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Release, TwoStageERM, registry
from dp2erm_cvx.cli import main
from dp2erm_cvx.datasets import load_nhefs
from dp2erm_cvx.demo import comparison, composition, settings
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan.noise_range import noise_range, public_covariates
from dp2erm_cvx.program import Box
from dp2erm_cvx.universe import Universe


@pytest.fixture(scope="module")
def data():
    return load_nhefs()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    words = ["demo", "--seed", "1", "--solver", "newton", "--output-dir", str(folder), "--audit-seconds", "2"]
    return CliRunner().invoke(main, words), folder


@pytest.fixture(scope="module")
def effects(data):
    return list(comparison.effect_comparisons(data, itertools.count(1)))


@pytest.fixture(scope="module")
def composed(data):
    return composition.composed(data, itertools.count(1))


@pytest.fixture(scope="module")
def rules(data):
    return list(comparison.rule_comparisons(data, itertools.count(1)))


def test_the_demo_runs_and_is_readable(demo):
    result, folder = demo
    assert result.exit_code == 0, result.output
    for number in range(1, 9):
        assert f"\n{number}. " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= max(100, len(str(folder)) + 60)
    assert "naive difference of means 2.54 kg" in result.stdout
    assert "textbook 3.36 kg" in result.stdout
    assert "Noise dominates" in result.stdout
    assert result.stdout.startswith("NOT PRIVATE")


def test_no_number_is_cut_off_on_a_narrow_terminal(tmp_path):
    words = ["demo", "--seed", "1", "--solver", "newton", "--output-dir", str(tmp_path)]
    words += ["--audit-seconds", "0"]
    text = CliRunner().invoke(main, words, env={"COLUMNS": "80"}).stdout
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_the_demo_states_the_whole_price(demo, effects, composed, rules):
    spent = [one.release.guarantee for each in (*effects, *composed, *rules) for one in each.published]
    epsilon, delta = sum(one.epsilon for one in spent), sum(one.delta for one in spent)
    text = " ".join(demo[0].stdout.split())
    assert f"Publishing all {len(spent)} would cost epsilon = {epsilon:g}, delta = {delta:g}" in text


def test_the_demo_ends_with_an_audit(demo):
    result, folder = demo
    tail = result.stdout[result.stdout.index("\n8. ") :]
    assert tail.count("not violated") == 4
    facts = json.loads((folder / "audit_nhefs.json").read_text())
    assert [audit["title"] for audit in facts["audits"]] == [
        "entropy",
        "entropy, ridge/4",
        "IPW",
        "IPW, ridge/10",
    ]
    assert facts["private"] is False
    assert "Not private" in (folder / "audit_nhefs.html").read_text()


def test_the_demo_does_without_the_packages_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr("dp2erm_cvx.report.audit.find_spec", lambda name: None)
    words = ["demo", "--seed", "1", "--solver", "newton", "--output-dir", str(tmp_path)]
    result = CliRunner().invoke(main, [*words, "--audit-seconds", "1"])
    assert result.exit_code == 0, result.output
    assert "no page: pip install jinja2 matplotlib" in " ".join(result.stdout.split())
    assert (tmp_path / "audit_nhefs.json").exists()
    assert not (tmp_path / "audit_nhefs.html").exists()


def test_the_demo_writes_a_figure_and_a_release(demo):
    _, folder = demo
    assert (folder / "love_nhefs.png").read_bytes().startswith(b"\x89PNG")
    release = Release.from_json((folder / "release_nhefs.json").read_bytes())
    assert not release.private
    plain = json.loads((folder / "release_nhefs.json").read_bytes())
    assert not {"weights", "b", "dual"} & set(plain)


def test_the_release_of_the_demo_predicts(demo, tmp_path):
    _, folder = demo
    header = ",".join(settings.effect_domain().columns)
    (tmp_path / "one.csv").write_text(f"{header}\n0,60,0,3,20,30,1,1,110,175\n")
    result = CliRunner().invoke(
        main, ["predict", str(folder / "release_nhefs.json"), str(tmp_path / "one.csv")]
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == "row,treatment,effect"


def test_without_a_seed_every_release_is_private_and_new(data):
    scheme, spending = settings.schemes()[:1], settings.EFFECT_SPENDING[:1]
    drawn = [
        next(
            comparison.compare_schemes(
                data, settings.effect_domain(), scheme, settings.arm_means(), spending, seeds
            )
        )
        for seeds in (itertools.repeat(None), itertools.repeat(None))
    ]
    one, other = (each.published[0].release for each in drawn)
    assert one.private
    assert other.private
    assert one.theta != other.theta


def test_seeds_differ_between_releases(effects):
    thetas = {one.release.theta for each in effects for one in each.published}
    assert len(thetas) == sum(len(each.published) for each in effects)


def test_comparisons_on_nhefs(data, effects):
    assert comparison.naive_effect(data) == pytest.approx(2.54, abs=0.01)
    assert comparison.textbook_effect(data) == pytest.approx(3.4, abs=0.1)
    # ridge bias: every scheme lies between no adjustment and the textbook
    for one in effects[1:]:
        assert effects[0].effect < one.effect < comparison.textbook_effect(data)


def test_better_balance_costs_noise(effects):
    imbalance = [one.imbalance for one in effects]
    for mild, strong in ((1, 2), (3, 4)):
        assert imbalance[strong] < imbalance[mild]
        assert effects[strong].stability > effects[mild].stability
        for weak, noisy in zip(effects[mild].published, effects[strong].published, strict=True):
            assert noisy.noise.effect > weak.noise.effect


def test_a_composed_release_costs_its_whole_budget_once(composed):
    for one in (*composed[0].published, *composed[1].published):
        guarantee, spent = one.release.guarantee, one.release.step("propensity")
        assert guarantee.epsilon == one.spending.budget.epsilon
        assert spent.epsilon == pytest.approx(0.3 * guarantee.epsilon)
        assert "Theorem 9" in guarantee.theorem


def test_what_the_choice_of_calibration_buys(data, effects, composed):
    strong, mild = effects[-1], effects[-2]
    composed, plugged = composed
    for means, weighted in zip(composed.published, plugged.published, strict=True):
        assert weighted.noise.effect < 0.7 * means.noise.effect
        assert "Theorem 8" in weighted.release.guarantee.theorem
    assert composed.stability == pytest.approx(7.98, abs=0.01)
    assert strong.stability == pytest.approx(26.8, abs=0.1)
    # without its noise the private propensity gives the very weights of the direct scheme
    assert composed.effect == pytest.approx(strong.effect, abs=1e-6)
    for published, direct in zip(composed.published, strong.published[:2], strict=True):
        assert published.noise.effect < 0.5 * direct.noise.effect
    V, moved = composition.paper_noise(data.n_samples, len(data.columns), Budget(2.0))
    assert pytest.approx(3140, rel=1e-3) == V
    assert moved.effect > 40 * strong.published[1].noise.effect
    low, high = (composition.propensity_noise(data, Budget(epsilon)) for epsilon in (1.0, 2.0))
    for one, deviation in ((low, 0.26), (high, 0.14)):
        assert one.deviation == pytest.approx(deviation, rel=0.15)
        assert one.effect == pytest.approx(2.79, abs=0.05)
    balance = [one.imbalance for one in (strong, mild)]
    assert balance[0] < high.imbalance < low.imbalance < balance[1] + 0.005


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "deviation"), [(1.0, 0.80), (2.0, 0.42)])
def test_releases_by_composition_spread_as_measured(data, epsilon, deviation):
    """Both noises together, over seeded releases; the deviations were measured over 500 others."""
    scheme = settings.composed_scheme().program
    estimates = []
    for seed in range(1000, 1200):
        model = PrivateTwoStageERM(
            settings.effect_domain(), Budget(epsilon), scheme, settings.arm_means(), seed=seed
        )
        control, treated = model.fit(data.X, data.a, data.y).theta_
        estimates.append(treated - control)
    assert np.std(estimates) == pytest.approx(deviation, rel=0.2)


def test_the_best_rule_is_not_constant(rules):
    for one in rules:
        assert 0.05 < one.recommended.mean() < 0.95


def test_every_scheme_is_certified_by_every_solver(data):
    for rows in comparison.certificate_rows(data, ("newton", "clarabel")):
        for row in rows:
            assert row.certified
            assert row.distance <= 1e-9


def test_noise_range_of_arm_means_in_closed_form():
    domain = Domain(covariate_bound=1.0, outcome_bound=2.0)
    second = registry.build(registry.second_stages(), "arm_means", theta_set=Box(1.0))
    model = PrivateTwoStageERM(domain, Budget(1.0), "uniform", second)
    calibration = model.plan(500, 3).theta.calibration
    found = noise_range(second, Universe(domain, 500, 3), calibration)
    b = simulate_noise(calibration, 200_000, np.random.default_rng(9))
    scale = 500 * (1 + calibration.gamma)
    np.testing.assert_allclose(found.half_width, np.quantile(np.abs(b), 0.95, axis=0) / scale, rtol=0.03)
    assert found.effect == pytest.approx(np.quantile(np.abs(b[:, 1] - b[:, 0]), 0.95) / scale, rel=0.03)
    assert found.shrinkage == pytest.approx(calibration.gamma / (1 + calibration.gamma))
    assert found.bound == 1.0


@pytest.mark.parametrize(
    ("program", "ranges"), [("itr", ((0.0, 10.0), (-3.0, 5.0))), ("itr", None), ("arm_means", None)]
)
def test_noise_range_covers_what_releases_do(program, ranges):
    """On records like the assumed ones, 95 % of the releases fall in the range."""
    domain = Domain(covariate_bound=1.5, outcome_bound=1.0, ranges=ranges)
    rng = np.random.default_rng(4)
    n = 2000
    X = public_covariates(domain, 2, n, rng)
    a, y = np.arange(n) % 2, rng.uniform(-0.2, 0.2, n)
    second = registry.build(registry.second_stages(), program, theta_set=Box(50.0))
    plan = PrivateTwoStageERM(domain, Budget(4.0), "uniform", second).plan(n, 2)
    found = noise_range(second, Universe(domain, n, 2), plan.theta.calibration)
    plain = TwoStageERM(domain, "uniform", second, gamma=plan.theta.calibration.gamma).fit(X, a, y).theta_
    moved = np.array(
        [
            PrivateTwoStageERM(domain, Budget(4.0), "uniform", second, seed=seed).fit(X, a, y).theta_ - plain
            for seed in range(300)
        ]
    )
    inside = np.mean(np.abs(moved) <= found.half_width, axis=0)
    assert np.all((inside > 0.90) & (inside < 0.99)), inside
    assert not found.dominates


def test_dominates_compares_with_the_declared_bound():
    domain = Domain(covariate_bound=1.0, outcome_bound=2.0)
    second = registry.build(registry.second_stages(), "arm_means", theta_set=Box(1.0))
    for epsilon, expected in ((0.001, True), (100.0, False)):
        calibration = (
            PrivateTwoStageERM(domain, Budget(epsilon), "uniform", second).plan(500, 3).theta.calibration
        )
        found = noise_range(second, Universe(domain, 500, 3), calibration)
        assert found.dominates is expected
