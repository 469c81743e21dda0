"""What a command imports. No test looks at a clock."""

import subprocess
import sys

#: Of every heavy package something that only its own import brings.
HEAVY = ("cvxpy.atoms", "pandas.core", "sklearn.base", "numpy", "scipy", "rich", "pydantic", "matplotlib")

HELP = f"""
import sys
import dp2erm_cvx
from dp2erm_cvx.cli import main
for words in (["--help"], ["check", "--help"]):
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0, words
assert not (found := {HEAVY!r} & sys.modules.keys()), found
""".replace(repr(HEAVY), repr(set(HEAVY)))


def test_the_package_and_the_help_need_nothing_heavy():
    ran = subprocess.run([sys.executable, "-c", HELP], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
