"""The checker of certificates and releases: what holds is accepted, and what was changed is
refused.
"""

import ast
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, Universe, checker
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.program import registry
from dp2erm_cvx.report.tables import simulated
from dp2erm_cvx.solve import solve
from dp2erm_cvx.solve.exported import document_of, exported, exported_bound
from tests.command_line import done, run, write_files
from tests.every_program import SETTINGS
from tests.every_release import RELEASES, release_of
from tests.forgeries import forged_certificates, forged_releases, sealed

SOURCE = Path(checker.__file__)
DATA, DOMAIN = simulated(24)
RECORDS = DOMAIN.records(DATA.X, DATA.a, DATA.y)
#: Releases of a kind that is not read, and why.
UNREAD = {
    "seeded": "not private: seeded noise",
    "scheme under Renyi": "delta",
    "balancing": "Theorem 5",
}


def certificate(name: str, solver: str = "newton", **settings: Any) -> Any:
    """The exported certificate of a program on a few records."""
    program = registry.build(registry.available(), name, **settings)
    if name in registry.first_stages():
        instance = program.instance(RECORDS)
    else:
        instance = program.instance(RECORDS, np.ones(RECORDS.n_samples), gamma=0.01)
    return exported(instance, solve(instance, solver=solver, throw=False), RECORDS)


def refusal(document: Any) -> str:
    """Why a document, as it is read from a file, is refused; empty where it is accepted."""
    try:
        checker.check(json.loads(json.dumps(document)))
    except checker.RefusedError as error:
        return str(error)
    return ""


def release(name: str) -> Any:
    return json.loads(release_of(name).to_json())


def test_the_checker_imports_the_standard_library_alone() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    tops = {str(name).split(".")[0] for name in names}
    assert tops <= sys.stdlib_module_names | {"flint"}


@pytest.mark.parametrize("number", [0.0, 1e-30, -1e-9, 0.3, -0.7, 5.5, -300.25, 700.125])
def test_exponentials_logarithms_and_roots_are_enclosed(number: float) -> None:
    rational = checker.exact(number)
    with mp.workdps(120):
        pairs = [(checker.exp(rational), mp.exp(mp.mpf(number)))]
        if number > 0:
            pairs.append((checker.log(rational), mp.log(mp.mpf(number))))
            pairs.append((checker.root(rational), mp.sqrt(mp.mpf(number))))
        for span, true in pairs:
            low, high = (
                mp.mpf(int(end.numerator)) / int(end.denominator) for end in (span.low, span.high)
            )
            assert low <= true <= high
            assert high - low <= mp.mpf(2) ** -230 * max(abs(true), 1)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ipw_logistic", {"ridge": 0.05, "radius": 0.2}),
        ("itr_saturating", {}),
        ("minimal_dispersion", {}),
    ],
)
def test_a_certificate_is_accepted_and_forgeries_of_it_are_refused(
    name: str, settings: Any
) -> None:
    one = certificate(name, **settings)
    assert not refusal(document_of([one]))
    for forgery, forged in forged_certificates(one, seed=1):
        assert refusal(document_of([forged])), forgery


def test_a_changed_digit_shows_in_the_digest() -> None:
    one = certificate("itr")
    one["claim"]["radius"] *= 2.0
    assert "digest" in refusal(document_of([one]))


def test_a_form_that_is_not_read_is_refused() -> None:
    one = certificate("itr")
    body = {**one, "form": "another form"}
    body["digest"] = checker.digest(body)
    assert "is not read by this file" in refusal(document_of([body]))
    assert "schema version 1" in refusal(document_of([one]) | {"schema_version": 1})


@pytest.mark.parametrize("name", ["trial", "decisions"])
def test_a_release_is_accepted_and_forgeries_of_it_are_refused(name: str) -> None:
    one = release(name)
    assert not refusal(one)
    for forgery, forged in forged_releases(one, seed=2):
        assert refusal(forged), forgery


def test_a_limit_that_two_records_exceed_is_refused_after_few_cells() -> None:
    """Cells around such a pair are not halved without end, which made refusals take for ever."""
    pairs = checker.PairsOfRecords(checker.exact(2.0), checker.logistic_gradients)
    diameter = pairs.diameter()
    known = len(pairs._known)
    assert not pairs.is_below(checker.exact(1.0), checker.exact(0.0), diameter * 9 / 10)
    assert len(pairs._known) - known < 1000


def test_unknown_steps_of_a_release_are_refused() -> None:
    one = release("trial")
    one["steps"][0]["perturbed"] = "something else"
    assert "is not read" in refusal(one)


def test_simulated_records_are_exported_and_the_file_is_accepted(tmp_path: Path) -> None:
    file = str(tmp_path / "certificates.json")
    words = ["certify", "--n", "20", "--program", "overlap", "--solver", "newton"]
    run(*words, "--export", file)
    assert not refusal(json.loads(Path(file).read_text(encoding="utf-8")))
    assert checker.main([file]) == 0
    assert checker.main([str(SOURCE)]) == 1


def test_private_records_are_not_exported_as_public_ones(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "certify",
        "data.csv",
        "--study",
        "domain.toml",
        "--program",
        "overlap",
        "--solver",
        "newton",
    ]
    write_files()
    refused = run(*words, "--export", "public.json")
    assert "--private-file" in refused.output
    assert not Path("public.json").exists()
    done(*words, "--private-file", "private.json")
    assert not refusal(json.loads(Path("private.json").read_text(encoding="utf-8")))


@pytest.fixture
def coarse(monkeypatch: Any) -> None:
    """Few cells, which prove a larger V in less time."""
    for name, count in (("CELLS", 16), ("LENGTHS", 4), ("MASSES", 6), ("MOVES", 16)):
        monkeypatch.setattr(checker.StabilityOfScheme, name, count)
    monkeypatch.setattr(checker.PairsOfRecords, "PARTS", ())


def bound_of(name: str, **settings: Any) -> tuple[Any, float]:
    """A bound of V that the checker proves, and the one in force."""
    program = registry.build(registry.first_stages(), name, **settings)
    universe = Universe(Domain(1.0, 1.0), 400, 2)
    return exported_bound(program, universe), program.at(universe).bound(universe).V


def test_a_bound_of_declared_constants_is_proved_and_that_of_others_refused(coarse: Any) -> None:
    one, in_force = bound_of("overlap", ridge=0.1)
    assert in_force < one["claim"]["V"] < 1.6 * in_force
    assert not refusal(document_of([one]))
    one["problem"]["ridge"] = 0.05
    assert "does not follow" in refusal(document_of([sealed(one)]))


def test_a_charge_of_a_release_is_found_in_its_ledger(tmp_path: Path) -> None:
    ledger, file = Ledger(tmp_path / "budget.db"), tmp_path / "release.json"
    one = release("trial")
    file.write_text(json.dumps(one), encoding="utf-8")
    ledger.declare("trial", Budget(3.0))
    ledger.charge("trial", Budget(0.5))
    assert checker.main([str(file), str(ledger.path)]) == 1
    ledger.charge("trial", Budget(one["guarantee"]["epsilon"]))
    assert checker.main([str(file), str(ledger.path)]) == 0
    assert checker.main([str(file), str(file)]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ipw_logistic", {"ridge": 0.1}),
        ("ipw_logistic", {"ridge": 0.003, "radius": 1.0}),
        ("ipw_logistic", {"ridge": 0.1, "trim": 4.0}),
        ("overlap", {"ridge": 0.1}),
        ("overlap", {"ridge": 1.0}),
    ],
)
def test_bounds_are_proved_within_a_twentieth(name: str, settings: Any) -> None:
    one, in_force = bound_of(name, **settings)
    assert in_force < one["claim"]["V"] < 1.05 * in_force
    assert not refusal(document_of([one]))


def every_certificate() -> Iterator[Any]:
    """Certificates of all programs whose form is read, by three solvers."""
    for name in registry.available():
        for settings in SETTINGS.get(name, [{}]):
            for solver in ("newton", "projected_gradient", "clarabel"):
                with contextlib.suppress(Dp2ermError):
                    yield certificate(name, solver, **settings)


@pytest.mark.slow
def test_two_hundred_certificates_are_accepted_and_as_many_forgeries_refused() -> None:
    accepted = refused = 0
    for number, one in enumerate(every_certificate()):
        assert not refusal(document_of([one])), one["program"]
        accepted += 1
        forgeries = list(forged_certificates(one, seed=number))
        for forgery, forged in (
            forgeries[number % len(forgeries)],
            forgeries[(3 * number + 1) % len(forgeries)],
        ):
            assert refusal(document_of([forged])), (one["program"], one["settings"], forgery)
            refused += 1
    assert accepted >= 200
    assert refused >= 200


@pytest.mark.slow
def test_every_release_is_accepted_or_named_as_unread_and_two_hundred_forgeries_are_refused() -> (
    None
):
    refused = 0
    for name in RELEASES:
        one = release(name)
        if name in UNREAD:
            assert UNREAD[name] in refusal(one)
            continue
        assert not refusal(one), name
        for seed in range(2):
            for forgery, forged in forged_releases(one, seed):
                assert refusal(forged), (name, forgery)
                refused += 1
    assert refused >= 200
