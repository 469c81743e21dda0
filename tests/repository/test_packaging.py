"""Equality of what is installed and what the tree holds, and of what is written twice."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import dp2erm_cvx

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_in_tree() -> set[str]:
    inside = {
        ".".join(p.parent.relative_to(ROOT).parts) for p in ROOT.glob("dp2erm_cvx/**/__init__.py")
    }
    return inside | {"dp2erm_cvx.problems"}


def test_every_package_is_listed() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages_in_tree()


def test_every_folder_with_code_is_a_package() -> None:
    folders = {
        path.parent for path in [*ROOT.glob("dp2erm_cvx/**/*.py"), *ROOT.glob("problems/**/*.py")]
    }
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_versions_agree() -> None:
    version = PROJECT["project"]["version"]
    assert dp2erm_cvx.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_script_and_the_programs_are_entry_points() -> None:
    scripts = metadata.entry_points(group="console_scripts", name="dp2erm")
    assert callable(next(iter(scripts)).load())
    homes = {point.value for point in metadata.entry_points(group="dp2erm_cvx.problems")}
    assert "dp2erm_cvx.problems" in homes


def test_all_takes_every_extra() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (every,) = extras["all"]
    named = re.fullmatch(r"dp2erm-cvx\[(.*)\]", every)
    assert named is not None
    assert set(named[1].split(",")) == set(extras) - {"all"}


def test_every_core_import_is_a_dependency() -> None:
    """A fresh interpreter without the extras must be able to import the core."""
    code = (
        "import sys\n"
        "extras = 'pandas pyarrow matplotlib jinja2 opendp dask distributed mpmath hypothesis'\n"
        "for extra in extras.split():\n"
        "    sys.modules[extra] = None\n"
        "import dp2erm_cvx, dp2erm_cvx.cli, dp2erm_cvx.report.figures\n"
        "import dp2erm_cvx.report.tables\n"
        "from dp2erm_cvx import Dataset, Domain, PrivateTwoStageERM, Release\n"
        "from dp2erm_cvx.program import registry\n"
        "from dp2erm_cvx.datasets import load_nhefs\n"
        "assert registry.programs() and load_nhefs().n_samples == 1566\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_data_are_read_and_an_effect_is_planned_without_cvxpy_and_scikit_learn() -> None:
    """Each takes longer to import than a small study to be answered; a ledger needs neither."""
    code = (
        "import sys\n"
        "from dp2erm_cvx.datasets import load_nhefs, nhefs_domain\n"
        "load_nhefs(); nhefs_domain()\n"
        "assert not {'cvxpy', 'pandas'} & sys.modules.keys()\n"
        "import dp2erm_cvx.ledger\n"
        "from dp2erm_cvx import Budget, Domain, PrivateEffect\n"
        "PrivateEffect(Domain(covariate_bound=1.0, outcome_bound=1.0), Budget(1.0)).plan(1000, 3)\n"
        "slow = {'cvxpy', 'sklearn', 'scipy.stats', 'scipy.optimize'} & sys.modules.keys()\n"
        "assert not slow, slow\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_the_wheel_holds_everything(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--quiet",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {str(path.relative_to(ROOT)) for path in ROOT.glob("dp2erm_cvx/**/*.py")}
    wanted |= {f"dp2erm_cvx/{path.relative_to(ROOT)}" for path in ROOT.glob("problems/*.py")}
    wanted |= {
        "dp2erm_cvx/py.typed",
        "dp2erm_cvx/datasets/nhefs.csv",
        "dp2erm_cvx/datasets/README.md",
    }
    assert wanted <= held
    assert {name.split("/")[0] for name in held} == {
        "dp2erm_cvx",
        f"dp2erm_cvx-{dp2erm_cvx.__version__}.dist-info",
    }
