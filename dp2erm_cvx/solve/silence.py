"""Solvers that print what they compute from the records, even when told not to."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Nothing printed through ``sys.stdout`` or ``sys.stderr`` gets out, nor does a warning.

    SCS writes residuals to ``sys.stdout`` whatever its ``verbose`` is, and CVXPY warns of inaccuracy, which
    the certificate measures. Clarabel and OSQP print nothing.
    """
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
