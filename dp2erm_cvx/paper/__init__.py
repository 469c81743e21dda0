"""The paper as printed: its own statements about programs of the library, by their names."""

from dp2erm_cvx.paper.printed import PRINTED, printed_statement

__all__ = ["PRINTED", "printed_statement"]
