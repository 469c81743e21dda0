"""The command line: names in, tables and files out. No mathematics, and a file for every command or
two.
"""

from dp2erm_cvx.cli.app import main

__all__ = ["main"]
