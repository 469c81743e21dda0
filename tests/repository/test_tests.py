"""No default test depends on chance, on a clock or on what a third party warns of."""

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.noise import draw, random_source
from tests.noise.laws import calibration_of

TESTS = Path(__file__).parents[1]
REASONS = {
    "default_rng": "draws without a seed",
    "Random": "draws without a seed",
    "RandomState": "draws without a seed",
    "os.urandom": "draws without a seed",
    "secrets": "draws without a seed",
    "random": "draws from a generator that every test shares",
    "np.random": "draws from a generator that every test shares",
    "time": "asks a clock",
    "settings": "conftest.py sets deadline and derandomize",
    "fixture": "is set up above tests/, where it is given no noise of its own",
    "simplefilter": "makes an error of what a third party warns of",
}
CLOCKS = {"time.sleep", "time.time", "time.monotonic", "time.perf_counter", "time.process_time"}
#: A limit for what hangs.
EXCEPTIONS = {("hostile/outcome.py", "time"), ("data/test_cluster_faults.py", "time")}


def dotted(node: ast.expr) -> str:
    """The name of a function; what it is an attribute of counts only where that has a name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "()"


def complaint(call: ast.Call) -> str | None:
    """Reason that holds against this call, if any."""
    name = dotted(call.func)
    where, _, last = name.rpartition(".")
    if last in ("default_rng", "Random", "RandomState"):
        return last if not call.args and not call.keywords else None
    if name == "os.urandom" or name in CLOCKS:
        return name if name == "os.urandom" else "time"
    if where == "subprocess" and "timeout" in {word.arg for word in call.keywords}:
        return "time"
    if where == "secrets" or (
        where in ("random", "np.random") and last.islower() and last != "default_rng"
    ):
        return None if last in ("seed", "get_state") else where
    if last == "settings":
        return last if {"deadline", "derandomize"} & {word.arg for word in call.keywords} else None
    if last == "fixture":
        scopes = {ast.unparse(word.value) for word in call.keywords}
        return last if {"'session'", "'package'"} & scopes else None
    return last if last == "simplefilter" and ast.unparse(call.args[0]) == "'error'" else None


def complaints(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and (reason := complaint(node)):
            yield node.lineno, reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("np.random.default_rng()", "default_rng"),
        ("rng = default_rng(0)", None),
        ("random.Random()", "Random"),
        ("random.Random(3).choice([1])", None),
        ("random.SystemRandom()", None),
        ("random.choice([1])", "random"),
        ("np.random.normal()", "np.random"),
        ("os.urandom(1)", "os.urandom"),
        ("secrets.randbits(9)", "secrets"),
        ("time.sleep(5)", "time"),
        ("subprocess.run([], timeout=120)", "time"),
        ("subprocess.run([])", None),
        ("settings(max_examples=9, deadline=None)", "settings"),
        ("settings(max_examples=9)", None),
        ("pytest.fixture(scope='session')", "fixture"),
        ("warnings.simplefilter('error')", "simplefilter"),
        ("warnings.simplefilter('ignore')", None),
    ],
)
def test_what_is_refused(line, reason):
    assert [why for _, why in complaints(line)] == ([] if reason is None else [reason])


def test_no_test_depends_on_chance_or_a_clock():
    refused = [
        f"tests/{name}:{line}: {REASONS[reason]}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in [path.relative_to(TESTS).as_posix()]
        for line, reason in complaints(path.read_text(encoding="utf-8"))
        if name != "conftest.py" and (name, reason) not in EXCEPTIONS
    ]
    assert not refused, "\n".join(refused)


def test_noise_without_a_seed_is_that_of_the_name_of_the_test(request):
    def drawn() -> list[float]:
        return [*draw(calibration_of(Noise.GAMMA, 2)), *draw(calibration_of(Noise.GAMMA, 2))]

    first = drawn()
    assert len(set(first)) == 4
    item = request.node
    item.ihook.pytest_runtest_setup(item=item)
    assert drawn() == first


@pytest.fixture(scope="module")
def shared() -> int:
    return random_source().getrandbits(64)


def test_noise_of_what_tests_share_does_not_depend_on_who_comes_first(shared, request):
    word = request.config.getoption("noise")
    seeds = random.Random(f"{word} tests/repository/test_tests.py shared 0")
    assert shared == random.Random(seeds.getrandbits(128)).getrandbits(64)
    assert shared != random_source().getrandbits(64)


@pytest.mark.fresh_noise
def test_the_operating_systems_noise_is_there_for_who_asks():
    assert random.SystemRandom.__module__ == "random"
    assert random_source().getrandbits(64) != random_source().getrandbits(64)
