"""``dp2erm ledger``, and studies that are charged to one."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.command_line import FIT, done, facts, run, sets, shown
from tests.ledger.model import spent

CHARGED = [*FIT[:3], *sets("ledger.file=b.db", "ledger.dataset=trial")]


def test_a_study_is_charged_once_and_its_account_is_shown(folder: Path) -> None:
    Path("b.db").unlink()
    done(
        "ledger",
        "b.db",
        "--dataset",
        "trial",
        "--declare-epsilon",
        "1.5",
        "--declare-delta",
        "1e-6",
    )
    charged = done(*CHARGED, "--json")
    assert json.loads(charged.stdout)["private"] is True
    assert "charged to 'trial': epsilon = 1, delta = 0" in charged.stderr
    assert "nothing is charged" in done(*CHARGED, "--seed", "1", "--force").stderr
    refused = run(*CHARGED, "--output", "out.json")
    assert (refused.exit_code, refused.stdout, Path("out.json").exists()) == (2, "", False)
    assert refused.stderr.splitlines()[-1].startswith("error: data set 'trial': epsilon = 1")
    (account,) = facts("ledger", "b.db")
    assert account["total"] == {"epsilon": 1.5, "delta": 1e-6}
    figures = {"epsilon": 1.0, "delta": 0.0, "left_epsilon": 0.5, "left_delta": 1e-6}
    assert account["spent"] == figures | {"composition": "basic", "relation": "replace-one"}
    assert [one["budget"]["epsilon"] for one in account["receipts"]] == [1.0]
    assert (account["relation"], account["composition"]) == ("replace-one", "basic")
    told = shown("ledger", "b.db", "--dataset", "trial")
    assert "trial: 1 release, neighbors: replace-one, protected: records" in told
    assert account["receipts"][0]["number"] in told
    for row in ("total 1.5 1e-06", "spent (basic composition) 1 0", "left 0.5 1e-06"):
        assert row in told


COUNTED = sets("two_stage.arithmetic=counted")


@pytest.mark.parametrize(
    ("words", "extra"), [(["--love-plot", "love.png"], "[plots]"), (COUNTED, "secure")]
)
def test_a_missing_extra_is_named_before_the_charge(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], extra: str
) -> None:
    monkeypatch.setattr("dp2erm_cvx.report.figures.find_spec", lambda name: None)
    for name in [*sys.modules, "flint", "opendp"]:
        if name.split(".")[0] in ("flint", "opendp"):
            monkeypatch.setitem(sys.modules, name, None)
    refused = run(*CHARGED, *words, "--output", "out.json")
    assert (refused.exit_code, refused.stdout, spent()) == (2, "", 0.0), refused.output
    assert extra in refused.stderr
    assert not Path("out.json").exists()


@pytest.mark.slow
def test_a_release_that_cannot_be_written_is_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dp2erm_cvx.report.figures.love_plot", lambda *known: 1 / 0)
    # every write to /dev/full fails as on a full disk
    for words, code in (
        (["--output", "/dev/full", "--force"], 2),
        (["--love-plot", "love.png"], 70),
    ):
        lost = run(*CHARGED, *words)
        assert (lost.exit_code, json.loads(lost.stdout)["private"]) == (code, True)
        assert "charged to 'trial'" in lost.stderr
        assert ("/dev/full: cannot be written: No space left" in lost.stderr) == (code == 2)
    # and a charge without a release is told
    monkeypatch.setattr("dp2erm_cvx.plan.plan.Plan.run", lambda *known: 1 / 0)
    failed = run(*CHARGED, "--output", "new.json")
    assert (failed.exit_code, failed.stdout, spent()) == (70, "", 3.0)
    assert "nothing was released, and the charge stays" in failed.stderr
    assert not Path("new.json").exists()


def test_the_commands_of_the_page_run(folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/ledger.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert [command[0] for command in commands] == ["ledger", "run", "ledger", "ledger", "ledger"]
    (account,) = json.loads([done(*command).stdout for command in commands][-1])
    assert account["spent"]["left_epsilon"] == 2.0
