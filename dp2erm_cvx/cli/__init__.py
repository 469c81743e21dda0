"""The command line: names in, tables and files out. No mathematics, and one file per command."""

from dp2erm_cvx.cli.app import main

__all__ = ["main"]
