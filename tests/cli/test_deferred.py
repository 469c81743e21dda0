"""What a command imports, and imports that wait until they are used. No test looks at a clock."""

import subprocess
import sys
import threading
from importlib import import_module

import pytest

from dp2erm_cvx.cli import deferred as module
from dp2erm_cvx.cli.deferred import deferred

#: Of every heavy package something that only its own import brings.
HEAVY = {
    "cvxpy": "cvxpy.atoms",
    "pandas": "pandas.core",
    "scipy.optimize": "scipy.optimize._minimize",
    "scipy.spatial": "scipy.spatial._kdtree",
    "scipy.stats": "scipy.stats._distn_infrastructure",
    "sklearn": "sklearn.base",
    "numpy": "numpy",
    "rich": "rich",
    "pydantic": "pydantic",
    "matplotlib": "matplotlib",
    "pyarrow": "pyarrow",
    "dask": "dask",
    "jinja2": "jinja2",
    "audits": "dp2erm_cvx.audit",
    "tuning": "dp2erm_cvx.tuning",
    "estimators": "dp2erm_cvx.estimators",
}

RUNNER = """
import subprocess, sys
from dp2erm_cvx.cli import main

def run(*words):
    try:
        main(list(words))
    except SystemExit as end:
        assert end.code == 0, words

def check(*allowed):
    found = {name for name, part in HEAVY.items() if part in sys.modules} - set(allowed)
    if found:  # what a package of others imports by itself, which depends on its version
        parts = [part for name, part in HEAVY.items() if name in allowed and "dp2erm_cvx" not in part]
        code = "import sys" + "".join(f", {part}" for part in parts) + "; print(*sys.modules)"
        brought = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        found -= {name for name, part in HEAVY.items() if part in brought.stdout.split()}
    assert not found, found
"""


def in_a_new_process(code: str) -> None:
    words = [sys.executable, "-c", f"HEAVY = {HEAVY!r}\n{RUNNER}\n{code}"]
    ran = subprocess.run(words, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("deferred") / "data.csv"
    rows = [f"{k % 2},{k % 7},{(k % 5) / 5},{(k % 3) / 3}" for k in range(200)]
    path.write_text("a,y,x1,x2\n" + "\n".join(rows) + "\n")
    return path


def fit(data, output, *more):
    ranges = ["--range", "x1=0:1", "--range", "x2=0:1", "--covariate-bound", "1.4", "--outcome-bound", "7"]
    named = ["--treatment", "a", "--outcome", "y", "--second-stage", "arm_means", "--epsilon", "1"]
    return ["fit", str(data), *ranges, *named, "--output", str(output), *more]


def test_the_package_and_the_help_need_none_of_it():
    in_a_new_process("import dp2erm_cvx\nrun('--help')\nrun('fit', '--help')\ncheck()")


def test_a_fit_and_what_reads_its_release_import_what_they_use(data, tmp_path):
    release, page = tmp_path / "release.json", tmp_path / "page.html"
    # scikit-learn is the base class of every estimator
    in_a_new_process(
        f"run(*{fit(data, release)})\ncheck('numpy', 'rich', 'pydantic', 'sklearn', 'estimators')"
    )
    in_a_new_process(
        f"for command in ('show', 'verify', 'datasheet'): run(command, {str(release)!r})\n"
        "check('numpy', 'rich', 'pydantic')\n"
        f"run('report', {str(release)!r}, '--output', {str(page)!r})\n"
        "check('numpy', 'rich', 'pydantic', 'jinja2')"
    )
    assert page.read_text()


@pytest.mark.slow
def test_what_was_deferred_is_there_once_it_is_used(data, tmp_path):
    words = fit(data, tmp_path / "release.json", "--solver", "clarabel", "--program", "mmd")
    in_a_new_process(
        f"run(*{[*words, '--arm-floor', '20']})\nimport cvxpy, scipy.spatial, types\n"
        "assert 'cvxpy.atoms' in sys.modules and type(cvxpy) is type(scipy.spatial) is types.ModuleType"
    )


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes packages that are deferred, and forgets them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module, "DEFERRED", frozenset({"waits", "waits.deep", "absent"}))

    def write(source, deep="from waits import value\ntwice = 2 * value\n"):
        (tmp_path / "waits").mkdir()
        (tmp_path / "waits" / "__init__.py").write_text(source)
        (tmp_path / "waits" / "deep.py").write_text(deep)

    yield write
    for name in ("waits", "waits.deep"):
        sys.modules.pop(name, None)


COUNTED = "import sys\nsys.times_run = getattr(sys, 'times_run', 0) + 1\nvalue = 21\n"


@pytest.fixture
def count(monkeypatch):
    monkeypatch.setattr(sys, "times_run", 0, raising=False)
    return lambda: sys.times_run


def test_a_module_runs_once_and_only_when_it_is_looked_at(package, count):
    package(COUNTED + "import waits\nassert waits.value == 21\n")
    with deferred():
        waits = import_module("waits")
        assert import_module("waits") is waits
        assert waits.__name__ == "waits"
    assert count() == 0
    threads = [threading.Thread(target=lambda: waits.value) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (waits.value, count(), type(waits)) == (21, 1, type(sys))
    assert list(waits.__path__)
    with pytest.raises(AttributeError):
        _ = waits.missing


def test_workers_are_sent_the_name_of_a_waiting_module(package, count):
    cloudpickle = pytest.importorskip("cloudpickle")  # older versions of joblib bring their own
    package(COUNTED)
    with deferred():
        waits = import_module("waits")
    sent = cloudpickle.dumps([waits, lambda: waits])
    assert count() == 0
    again, function = cloudpickle.loads(sent)
    assert again is function() is waits


def test_a_module_inside_runs_its_parent_first(package, count):
    package(COUNTED)
    with deferred():
        deep = import_module("waits.deep")
        assert count() == 1  # whoever looks for it asks the parent for its path
        assert deep.twice == 42
    assert sys.modules["waits"].deep is deep


def test_a_module_may_make_its_attributes_itself(package):
    package(
        "def __getattr__(name):\n    if name != 'late':\n        raise AttributeError(name)\n    return 7\n"
    )
    with deferred():
        from waits import late
    assert late == 7
    with pytest.raises(AttributeError):
        _ = sys.modules["waits"].missing


def test_errors_come_where_they_belong(package):
    package("raise RuntimeError('broken')\n")
    with deferred():
        with pytest.raises(ModuleNotFoundError):
            import_module("absent")
        waits = import_module("waits")
    for _ in range(2):  # and not only the first time
        with pytest.raises(RuntimeError, match="broken"):
            _ = waits.value


def test_nothing_is_deferred_outside_of_a_command():
    before = list(sys.meta_path)
    with pytest.raises(KeyError), deferred():
        raise KeyError
    assert sys.meta_path == before
