"""The demonstration: every command that it prints runs, and a forged number is refuted."""

import json

import pytest

from dp2erm_cvx import EffectRelease, RuleRelease
from tests.command_line import run


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return run("demo", "--seed", "1", "--output-dir", str(folder), "--audit-seconds", "1"), folder


def test_the_demo_runs_and_is_readable(demo):
    result, folder = demo
    assert result.exit_code == 0, result.output
    for number in range(1, 8):
        assert f"\n{number}. " in result.stdout
    lines = [line for line in result.stdout.splitlines() if not line.startswith("$ ")]
    assert max(map(len, lines)) <= 2 * len(str(folder)) + 160
    assert "Doubly robust 3.17 kg" in result.stdout
    assert "2.54 kg" in result.stdout
    assert result.stdout.startswith("NOT PRIVATE")

    assert (folder / "study.toml").read_text(encoding="utf-8") in result.stdout
    study = f"study {EffectRelease.from_json((folder / 'average.json').read_bytes()).study}"
    assert result.stdout.count(study) == 2  # planned, and run


def test_what_is_true_is_verified_and_what_is_forged_is_refuted(demo):
    result, folder = demo
    assert "\nVerified\n" in result.stdout
    assert "\nREFUTED\n- estimate: " in result.stdout
    for name, code in (("average", 0), ("whom", 0), ("forged", 1)):
        assert run("verify", str(folder / f"{name}.json")).exit_code == code


def test_the_demo_writes_releases_a_page_and_the_report_of_an_audit(demo, tmp_path):
    _, folder = demo
    effect = EffectRelease.from_json((folder / "average.json").read_bytes())
    assert (effect.columns, effect.private, effect.guarantee.epsilon) == (("age", "wt71"), False, 2.0)
    rule = RuleRelease.from_json((folder / "whom.json").read_bytes())
    assert (rule.columns, rule.private) == (("age", "wt71"), False)
    (tmp_path / "one.csv").write_text("age,wt71\n60,110\n")
    told = run("predict", str(folder / "whom.json"), str(tmp_path / "one.csv"))
    assert told.stdout.splitlines()[0] == "row,treatment,effect"
    assert "<html" in (folder / "average.html").read_text(encoding="utf-8")
    facts = json.loads((folder / "audit.json").read_text())
    assert (facts["private"], len(facts["audits"])) == (True, 1)
    assert not any(verdict["violated"] for verdict in facts["audits"][0]["verdicts"])


def test_without_a_seed_a_release_is_private_and_new(demo, tmp_path):
    assert run("demo", "--seed", "x", "--output-dir", str(tmp_path)).stderr.count("\n") == 1
    told = run("demo", "--output-dir", str(tmp_path), "--audit-seconds", "0")
    assert told.exit_code == 0, told.output
    fresh, seeded = (
        EffectRelease.from_json((folder / "average.json").read_bytes()) for folder in (tmp_path, demo[1])
    )
    assert (fresh.private, seeded.private) == (True, False)
    assert fresh.estimate != seeded.estimate
