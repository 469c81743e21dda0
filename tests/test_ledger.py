"""The ledger: what it adds up, what it refuses, and that the estimator and the commands charge it."""

import json
import math
import multiprocessing
import re
import shlex
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from dp2erm_cvx import Budget, Domain, Neighboring, PrivateTwoStageERM, estimator
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, LedgerError
from dp2erm_cvx.ledger import Composition, Ledger
from dp2erm_cvx.ledger.composition import fits, spent
from tests.command_line import FIT, run, write_files

RNG = np.random.default_rng(0)
DATA = RNG.uniform(-1, 1, (30, 1)), RNG.integers(0, 2, 30), RNG.uniform(-1, 1, 30)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "ledger.db")
    book.declare("trial", Budget(1.0, 1e-6))
    return book


def model(ledger: object, dataset: object = "trial", epsilon: float = 0.4, **changes) -> PrivateTwoStageERM:
    domain = Domain(1.0, 1.0)
    stages = ("uniform", "arm_means")
    return PrivateTwoStageERM(domain, Budget(epsilon), *stages, ledger=ledger, dataset=dataset, **changes)


def test_charges_outlive_the_process_that_made_them(ledger: Ledger) -> None:
    first = ledger.charge("trial", Budget(0.25, 1e-7), "a first look")
    second = ledger.charge("trial", Budget(0.5))
    account = Ledger(ledger.path).account("trial")
    assert account.receipts == (first, second)
    assert first.note == "a first look"
    assert (account.spent.epsilon, account.spent.left_epsilon) == (0.75, 0.25)
    assert (account.spent.delta, account.spent.left_delta) == (1e-7, 9e-7)


def test_decimals_add_up_as_they_are_written(ledger: Ledger) -> None:
    for _ in range(10):
        ledger.charge("trial", Budget(0.1, 1e-7))
    figures = ledger.account("trial").spent
    assert (figures.epsilon, figures.left_epsilon, figures.left_delta) == (1.0, 0.0, 0.0)
    with pytest.raises(LedgerError, match="does not fit"):
        ledger.charge("trial", Budget(5e-324))


def test_what_is_left_fits_and_no_more(ledger: Ledger) -> None:
    ledger.charge("trial", Budget(1 / 3, 1e-7 / 3))
    left = ledger.account("trial").spent
    with pytest.raises(LedgerError):
        ledger.charge("trial", Budget(math.nextafter(left.left_epsilon, 1.0)))
    ledger.charge("trial", Budget(left.left_epsilon, left.left_delta))


def test_refusals_change_nothing(ledger: Ledger) -> None:
    ledger.charge("trial", Budget(0.5))
    before = ledger.path.read_bytes()
    refused = model(None, None, seed=1).fit(*DATA).release_.guarantee
    cases: list[tuple[type[Exception], str, tuple]] = [
        (LedgerError, "does not fit", ("trial", Budget(0.6))),
        (LedgerError, "does not fit", ("trial", Budget(0.1, 1e-5))),
        (LedgerError, "no declared total", ("trail", Budget(0.1))),
        (DeclarationError, "adds up a Budget", ("trial", 0.1)),
        (DeclarationError, "adds up a Budget", ("trial", {"epsilon": 0.1})),
        (DeclarationError, "seeded", ("trial", refused)),
        (DeclarationError, "dataset", ("", Budget(0.1))),
        (DeclarationError, "dataset", ("tri\nal", Budget(0.1))),
        (DeclarationError, "note", ("trial", Budget(0.1), "x" * 201)),
    ]
    for error, message, arguments in cases:
        with pytest.raises(error, match=message):
            ledger.charge(*arguments)
    with pytest.raises(DeclarationError, match="relation"):
        ledger.charge("trial", Budget(0.1), relation="add-remove")
    with pytest.raises(LedgerError, match="keep-treatment"):
        ledger.charge("trial", Budget(0.1), relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    assert ledger.path.read_bytes() == before


def test_a_weaker_total_admits_a_stronger_release(ledger: Ledger) -> None:
    ledger.declare("weak", Budget(1.0), relation="replace-one-keep-treatment")
    ledger.charge("weak", Budget(0.5))
    guarantee = model(None, None).fit(*DATA).release_.guarantee
    assert ledger.charge("weak", guarantee).budget == Budget(0.4)


def test_a_total_is_declared_once(ledger: Ledger) -> None:
    ledger.charge("trial", Budget(0.5))
    assert len(ledger.declare("trial", Budget(1.0, 1e-6)).receipts) == 1
    for total, others in (
        (Budget(2.0, 1e-6), {}),
        (Budget(1.0), {}),
        (Budget(1.0, 1e-6), {"composition": "pld"}),
        (Budget(1.0, 1e-6), {"relation": "replace-one-keep-treatment"}),
    ):
        with pytest.raises(LedgerError, match="declared once"):
            ledger.declare("trial", total, **others)
    with pytest.raises(DeclarationError, match="composition"):
        ledger.declare("other", Budget(1.0), composition="renyi")


def test_files_that_are_no_ledger(tmp_path: Path, ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no such ledger"):
        Ledger(tmp_path / "none.db").charge("trial", Budget(0.1))
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "no folder" / "a.db").declare("trial", Budget(1.0))
    (tmp_path / "text").write_text("not a database, but long enough to look at\n" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger(tmp_path / "text").declare("trial", Budget(1.0))
    for statement, message in (
        ("PRAGMA application_id = 1", "something else"),
        ("PRAGMA user_version = 9", "version 9"),
    ):
        other = Ledger(tmp_path / message)
        other.declare("trial", Budget(1.0))
        db = sqlite3.connect(other.path)
        db.execute(statement)
        db.close()
        with pytest.raises(LedgerError, match=message):
            other.charge("trial", Budget(0.1))
    for damage in ("epsilon = 'inf'", "epsilon = '-1'", "delta = 'x'"):
        other = Ledger(tmp_path / damage)
        other.declare("trial", Budget(1.0))
        other.charge("trial", Budget(0.1))
        db = sqlite3.connect(other.path)
        db.execute(f"UPDATE charges SET {damage}")
        db.commit()
        db.close()
        with pytest.raises(LedgerError, match="damaged"):
            other.charge("trial", Budget(0.1))
    for path in ("", "a\0b", None, 3):
        with pytest.raises(DeclarationError, match="path of a file"):
            Ledger(path)


def charge_until_refused(path: str, found: "multiprocessing.Queue") -> None:
    numbers = []
    try:
        while True:
            numbers.append(Ledger(path).charge("trial", Budget(0.01)).number)
    except LedgerError:
        found.put(numbers)


def test_four_processes_share_one_total(ledger: Ledger) -> None:
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    arguments = (str(ledger.path), found)
    processes = [context.Process(target=charge_until_refused, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    numbers = [number for _ in processes for number in found.get(timeout=60)]
    for process in processes:
        process.join()
    account = ledger.account("trial")
    assert sorted(numbers) == sorted(one.number for one in account.receipts)
    assert len(set(numbers)) == 100
    assert account.spent.left_epsilon == 0.0


def optimal_delta(epsilon: float, count: int, target: float) -> float:
    """Delta of ``count`` releases of pure ``epsilon`` at ``target`` (Kairouz, Oh and Viswanath 2015)."""
    terms = (
        math.comb(count, k) * math.exp(k * epsilon) * (1 - math.exp(target - (2 * k - count) * epsilon))
        for k in range(count + 1)
        if (2 * k - count) * epsilon > target
    )
    return sum(terms) / (1 + math.exp(epsilon)) ** count


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 100), (0.05, 400), (0.137, 60)])
def test_loss_distributions_are_tight_and_safe(epsilon: float, count: int) -> None:
    pytest.importorskip("dp_accounting")
    total = Budget(epsilon * count, 1e-6)
    figures = spent([Budget(epsilon)] * count, total, Composition.PLD)
    assert figures.composition is Composition.PLD
    assert figures.epsilon < 0.8 * epsilon * count
    assert optimal_delta(epsilon, count, figures.epsilon) <= 1e-6
    assert optimal_delta(epsilon, count, 0.98 * figures.epsilon) > 1e-6
    assert figures.left_epsilon == pytest.approx(total.epsilon - figures.epsilon)


def test_loss_distributions_count_every_delta() -> None:
    pytest.importorskip("dp_accounting")
    total = Budget(4.0, 1e-6)
    mixed = [*[Budget(0.1, 4e-9)] * 50, Budget(0.3)]
    more = [*[Budget(0.1, 4e-9)] * 50, Budget(0.3, 9e-7)]
    assert spent(mixed, total, Composition.PLD).epsilon > spent(mixed[1:], total, Composition.PLD).epsilon
    # the failure of every release is an infinite loss: with this one they exceed delta
    assert fits(mixed, total, Composition.PLD)
    assert not fits(more, total, Composition.PLD)
    assert not fits(mixed, total, Composition.BASIC)
    single = spent([Budget(0.5, 1e-6)], total, Composition.PLD)
    assert (single.epsilon, single.composition) == (0.5, Composition.BASIC)
    pure = Budget(4.0)
    assert not fits([Budget(0.1)] * 41, pure, Composition.PLD)
    assert spent([Budget(0.1)] * 40, pure, Composition.PLD).composition is Composition.BASIC


def test_basic_composition_where_the_package_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    releases, total = [Budget(0.1)] * 80, Budget(8.0, 1e-6)
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    figures = spent(releases, total, Composition.PLD)
    assert (figures.epsilon, figures.composition) == (8.0, Composition.BASIC)
    assert not fits([*releases, Budget(0.1)], total, Composition.PLD)


def test_a_fit_charges_what_its_plan_guarantees(ledger: Ledger) -> None:
    fitted = clone(model(ledger, calibration="renyi")).set_params(budget=Budget(0.4, 1e-7)).fit(*DATA)
    (receipt,) = ledger.account("trial").receipts
    assert fitted.receipt_ == receipt
    stated = fitted.release_.guarantee
    assert receipt.budget == Budget(stated.epsilon, stated.delta) == Budget(0.4, 1e-7)
    assert receipt.note == "uniform, then arm_means"
    pure = model(ledger).set_params(budget=Budget(0.4, 1e-7)).fit(*DATA)
    assert pure.receipt_.budget == Budget(0.4)  # gamma noise spends no delta
    with pytest.raises(LedgerError, match=r"epsilon = 0\.2, delta = 9e-07 is left"):
        model(ledger).fit(*DATA)


def test_the_charge_is_on_disk_before_noise_is_drawn(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def drawn(*args: object, **kwargs: object) -> None:
        seen.append(len(Ledger(ledger.path).account("trial").receipts))
        raise KeyboardInterrupt

    monkeypatch.setattr(estimator, "draw", drawn)
    with pytest.raises(KeyboardInterrupt):
        model(ledger).fit(*DATA)
    assert seen == [1]


def test_a_refused_fit_neither_clips_nor_draws(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateTwoStageERM, "_perturb", lambda *_: pytest.fail("the data were touched"))
    refused = model(ledger, epsilon=1.5)
    with pytest.raises(LedgerError) as one:
        refused.fit(*DATA)
    with pytest.raises(LedgerError) as other:
        refused.fit(DATA[0], 1 - DATA[1], -DATA[2])
    assert str(one.value) == str(other.value)
    assert not hasattr(refused, "release_")
    with pytest.raises(DataError):
        model(ledger).fit(DATA[0], DATA[1] + 0.5, DATA[2])
    assert ledger.account("trial").receipts == ()


def test_a_seeded_fit_charges_nothing_and_says_so(ledger: Ledger) -> None:
    with pytest.warns(UserWarning, match="nothing is charged"):
        fitted = model(ledger, seed=1).fit(*DATA)
    assert fitted.receipt_ is None
    assert ledger.account("trial").receipts == ()


def test_an_unproven_plan_is_not_charged(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = model(ledger).plan(30, 1)
    unproven = replace(plan, bound=replace(plan.bound, private=False))
    monkeypatch.setattr(PrivateTwoStageERM, "plan", lambda *_: unproven)
    with pytest.raises(CalibrationError, match="not proven"):
        model(ledger).fit(*DATA)
    assert ledger.account("trial").receipts == ()


@pytest.mark.parametrize(("book", "name"), [(None, "trial"), ("ledger.db", "trial"), (Ledger("a"), None)])
def test_a_ledger_needs_a_data_set(book: object, name: object) -> None:
    with pytest.raises(DeclarationError, match="go together"):
        model(book, name).fit(*DATA)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_files()
    return tmp_path


def test_commands(folder: Path) -> None:
    declare = ["ledger", "b.db", "--dataset", "trial", "--declare-epsilon", "1.5", "--declare-delta", "1e-6"]
    assert run(*declare).exit_code == 0
    charged = run(*FIT, "--ledger", "b.db", "--dataset", "trial", "--json")
    assert charged.exit_code == 0
    assert json.loads(charged.stdout)["private"] is True
    assert "charged to 'trial': epsilon = 1, delta = 0" in charged.stderr
    seeded = run(*FIT, "--ledger", "b.db", "--dataset", "trial", "--seed", "1")
    assert "nothing is charged" in seeded.stderr
    refused = run(*FIT, "--ledger", "b.db", "--dataset", "trial", "--output", "out.json")
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith("error: data set 'trial': epsilon = 1")
    assert not Path("out.json").exists()
    (account,) = json.loads(run("ledger", "b.db", "--json").stdout)
    assert account["total"] == {"epsilon": 1.5, "delta": 1e-6}
    assert account["spent"] == {
        "epsilon": 1.0,
        "delta": 0.0,
        "left_epsilon": 0.5,
        "left_delta": 1e-6,
        "composition": "basic",
    }
    assert [one["budget"]["epsilon"] for one in account["receipts"]] == [1.0]
    assert (account["relation"], account["composition"]) == ("replace-one", "basic")
    shown = run("ledger", "b.db", "--dataset", "trial").stdout
    assert "trial: 1 release, neighbors: replace-one" in shown
    assert account["receipts"][0]["number"] in shown
    for row in (
        ["total", "1.5", "1e-06"],
        ["spent", "(basic", "composition)", "1", "0"],
        ["left", "0.5", "1e-06"],
    ):
        assert row in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ledger", "none.db"], "no such ledger"),
        (["ledger", "none.db", "--declare-epsilon", "1"], "needs both"),
        (["ledger", "none.db", "--dataset", "a", "--relation", "replace-one"], "needs both"),
        (["ledger", "none.db", "--dataset", "a", "--declare-epsilon", "nan"], "epsilon"),
        (
            ["ledger", "none.db", "--dataset", "a", "--declare-epsilon", "1", "--composition", "x"],
            "composition",
        ),
        (["ledger", "data.csv", "--dataset", "a", "--declare-epsilon", "1"], "not a database"),
        ([*FIT, "--ledger", "none.db"], "go together"),
        ([*FIT, "--ledger", "none.db", "--dataset", "a"], "no such ledger"),
        ([*FIT, "--ledger", "none.db", "--dataset", "a", "--output", "none.db"], "used by this command"),
    ],
)
def test_commands_refuse_in_one_line(arguments: list[str], message: str, folder: Path) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not Path("none.db").exists()


def test_the_commands_of_the_page_run(folder: Path) -> None:
    page = (Path(__file__).parents[1] / "docs/ledger.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [command[:2] for command in commands] == [["dp2erm", "ledger"], ["dp2erm", "fit"]] + 3 * [
        ["dp2erm", "ledger"]
    ]
    for command in commands:
        result = run(*command[1:])
        assert result.exit_code == 0, result.output
    (account,) = json.loads(result.stdout)
    assert account["spent"]["left_epsilon"] == 2.0
