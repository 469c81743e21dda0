"""The command line: names in, tables and files out.

It has no mathematics, and a file for every command or two.
"""

from dp2erm_cvx.cli.app import main

__all__ = ["main"]
